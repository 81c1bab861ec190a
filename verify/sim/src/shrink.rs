// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shrinking of a failing run: leaves out everything that the violation does not need.

use crate::cuts::{Cut, Cuts};
use crate::{Failure, Options, simulate};

/// Maximum number of times that the messages are halved.
const HALVES_MAX: u32 = 12;

/// Run that fails in the same way with fewer parts.
#[derive(Clone, Debug)]
pub struct Shrunk {
    /// Options of that run.
    pub options: Options,
    /// Failure that it shows.
    pub failure: Box<Failure>,
    /// Number of runs it took to find it.
    pub run_count: u32,
}

/// Shrinks the run of `options`, which showed `failure`, in at most `runs_max` runs.
///
/// The search is greedy. Each part that the failure does not need is left out, in the order of what
/// simplifies a run most. Flows and faults are left out in halves, quarters and so on.
#[must_use]
pub fn shrink(options: &Options, failure: Box<Failure>, runs_max: u32) -> Shrunk {
    let mut search = Search {
        wanted: kind_of(&failure.violation),
        best: Shrunk {
            options: Options {
                trace: false,
                pcap: None,
                ..options.clone()
            },
            failure,
            run_count: 0,
        },
        runs_max,
    };
    let plan = options.plan();
    for cut in Cuts::kinds() {
        search.try_without(cut);
    }
    search.thin_out(plan.fault_count(), Cut::Faults);
    search.thin_out(plan.flow_count(), Cut::Flows);
    let mut halves = 0;
    while halves < HALVES_MAX && search.try_without(Cut::Half) {
        halves += 1;
    }
    search.best
}

struct Search {
    wanted: String,
    best: Shrunk,
    runs_max: u32,
}

impl Search {
    /// Leaves out `cut` permanently if the failure stays the same.
    fn try_without(&mut self, cut: Cut) -> bool {
        if self.best.run_count >= self.runs_max {
            return false;
        }
        let options = Options {
            without: self.best.options.without.with(cut),
            ..self.best.options.clone()
        };
        // A part that the plan does not have cannot be left out.
        if format!("{:?}", options.plan()) == format!("{:?}", self.best.options.plan()) {
            return false;
        }
        self.best.run_count += 1;
        match simulate(&options) {
            Err(failure) if kind_of(&failure.violation) == self.wanted => {
                (self.best.options, self.best.failure) = (options, failure);
                true
            }
            _ => false,
        }
    }

    /// Leaves out ranges of `count` equal parts, long ranges first.
    fn thin_out(&mut self, count: usize, cut: impl Fn(std::ops::RangeInclusive<usize>) -> Cut) {
        let mut removed = vec![false; count];
        let mut step = count.next_power_of_two() / 2;
        while step > 0 {
            for first in (0..count).step_by(step) {
                let last = (first + step).min(count) - 1;
                let is_removed = removed[first..=last].iter().all(|removed| *removed);
                if !is_removed && self.try_without(cut(first..=last)) {
                    removed[first..=last].fill(true);
                }
            }
            step /= 2;
        }
    }
}

/// Returns the kind of a violation, whatever process it affected: its first words without numbers.
fn kind_of(violation: &str) -> String {
    let words = violation.chars().filter(|c| !c.is_ascii_digit());
    words.take(40).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Canary;

    #[test]
    fn shrinking_preserves_the_failure() {
        let found = (0..100).find_map(|seed| {
            let options = Options {
                seed,
                canary: Some(Canary::DeliverTwice),
                ..Options::default()
            };
            let failure = simulate(&options).err()?;
            Some((options, failure))
        });
        let (options, failure) = found.expect("a seed shows the canary");
        let kind = kind_of(&failure.violation);
        let flow_count = options.plan().flow_count();
        let shrunk = shrink(&options, failure, 100);
        let again = simulate(&shrunk.options).expect_err("still fails");
        assert_eq!(kind_of(&again.violation), kind);
        assert_eq!(again.violation, shrunk.failure.violation);
        assert!(shrunk.options.plan().flow_count() < flow_count.max(2));
    }
}
