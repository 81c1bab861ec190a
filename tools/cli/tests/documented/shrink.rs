// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shrinks a program after its run differed from the prediction.

use crate::draw::{Drawn, EVERYBODYS, count_handled};
use crate::model::predict;
use crate::plan::{Message, Program, Step};

/// Largest number of programs to try while shrinking: a few minutes of jobs, as a hanging job takes
/// seconds.
const TRIES_MAX: usize = 300;

/// A search for a smaller program that `differs`.
struct Search<F> {
    best: Drawn,
    differs: F,
    tries: usize,
}

/// Returns the smallest program found that `differs`, starting with `drawn`, which does.
pub(crate) fn shrink(drawn: Drawn, differs: impl FnMut(&Program) -> bool) -> Program {
    let mut search = Search {
        best: drawn,
        differs,
        tries: 0,
    };
    while search.drop_events() | search.drop_steps() | search.shorten() {}
    search.best.program
}

impl<F: FnMut(&Program) -> bool> Search<F> {
    /// Takes `smaller` if it is sound and differs.
    fn try_it(&mut self, mut smaller: Drawn) -> bool {
        count_handled(&mut smaller.program);
        if smaller.program == self.best.program || predict(&smaller.program).is_err() {
            return false;
        }
        self.tries += 1;
        let taken = self.tries <= TRIES_MAX && (self.differs)(&smaller.program);
        if taken {
            self.best = smaller;
        }
        taken
    }

    fn try_without(&mut self, drop: impl Fn(usize, usize, usize) -> bool) -> bool {
        let mut smaller = self.best.clone();
        for (rank, steps) in self.best.events.iter().enumerate() {
            let kept: Vec<usize> = (0..steps.len())
                .filter(|&index| !drop(rank, index, steps[index]))
                .collect();
            let old = &self.best.program.processes[rank];
            smaller.program.processes[rank] =
                kept.iter().map(|&index| old[index].clone()).collect();
            smaller.events[rank] = kept.iter().map(|&index| steps[index]).collect();
        }
        self.try_it(smaller)
    }

    /// Tries to drop halves of the events, quarters, and so on, then single events.
    fn drop_events(&mut self) -> bool {
        let mut moved = false;
        let mut len = usize::MAX;
        while len > 1 {
            let mut events: Vec<usize> = self.best.events.iter().flatten().copied().collect();
            events.sort_unstable();
            events.dedup();
            events.retain(|&event| event != EVERYBODYS);
            len = len.min(events.len()).div_ceil(2).max(1);
            for part in events.chunks(len) {
                moved |= self.try_without(|_, _, event| part.contains(&event));
            }
        }
        moved
    }

    fn drop_steps(&mut self) -> bool {
        let mut moved = false;
        for rank in 0..self.best.program.processes.len() {
            for index in (0..self.best.program.processes[rank].len()).rev() {
                moved |= self.try_without(|other, step, _| (other, step) == (rank, index));
            }
        }
        moved
    }

    /// Tries to halve the lengths of messages, with unchanged buffers.
    fn shorten(&mut self) -> bool {
        let mut moved = false;
        for rank in 0..self.best.program.processes.len() {
            for index in 0..self.best.program.processes[rank].len() {
                let mut smaller = self.best.clone();
                if let Some(message) = message_of(&mut smaller.program.processes[rank][index]) {
                    message.len /= 2;
                    moved |= self.try_it(smaller);
                }
            }
        }
        moved
    }
}

fn message_of(step: &mut Step) -> Option<&mut Message> {
    match step {
        Step::Send { message, .. } | Step::Start { message, .. } => Some(message),
        _ => None,
    }
}
