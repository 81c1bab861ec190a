// SPDX-License-Identifier: MIT OR Apache-2.0
//! Performs a plan in a call that waits, if each message fits one with its head: without a request,
//! and without memory for pending messages.

use super::memory::Combine;
use super::plan::{Action, Place, Round, Span};
use super::prepared::Prepared;
use crate::collective::Layout;
use crate::error::Error;
use crate::node::{Node, Task};
use std::ops::Range;

/// Memories of one operation.
struct Memories<'a> {
    input: &'a [u8],
    output: &'a mut [u8],
    scratch: &'a mut [u8],
}

/// Performs the operation that has begun as `task`, from `input` to `output`.
pub(super) fn perform(
    prepared: &mut Prepared,
    combine: Option<&Combine>,
    node: &mut Node,
    task: &Task,
    (input, output): (&[u8], &mut [u8]),
) -> Result<(), Error> {
    let Prepared { plan, scratch, .. } = prepared;
    let mut memories = Memories {
        input,
        output,
        scratch,
    };
    let mut rounds = plan.rounds.iter();
    rounds.try_for_each(|round| memories.perform(node, task, round, combine))
}

impl Memories<'_> {
    fn perform(
        &mut self,
        node: &mut Node,
        task: &Task,
        round: &Round,
        combine: Option<&Combine>,
    ) -> Result<(), Error> {
        for (member, from) in &round.sends {
            node.send_inline(task, *member, Layout::Part, self.bytes(*from))?;
        }
        for (member, to) in &round.receives {
            node.receive_inline(task, *member, Layout::Part, self.bytes_mut(*to))?;
        }
        for action in &round.after {
            self.act(*action, combine);
        }
        Ok(())
    }

    fn bytes(&self, span: Span) -> &[u8] {
        let whole = match span.place {
            Place::Input => self.input,
            Place::Output => self.output,
            Place::Scratch => self.scratch,
        };
        &whole[range(span)]
    }

    fn bytes_mut(&mut self, span: Span) -> &mut [u8] {
        let whole = match span.place {
            Place::Input => unreachable!("plans do not write the input"),
            Place::Output => &mut *self.output,
            Place::Scratch => &mut self.scratch[..],
        };
        &mut whole[range(span)]
    }

    /// Performs the work after a round.
    fn act(&mut self, action: Action, combine: Option<&Combine>) {
        let (Action::Copy { from, to } | Action::Combine { from, to, .. }) = action;
        let (source, target) = self.two(from, to);
        match (action, combine) {
            (Action::Combine { side, .. }, Some(combine)) => combine.perform(side, target, source),
            (Action::Copy { .. }, _) => target.copy_from_slice(source),
            (Action::Combine { .. }, None) => unreachable!("plans that combine have an operator"),
        }
    }

    /// Returns two parts, of which the second is for writing. They do not overlap.
    fn two(&mut self, from: Span, to: Span) -> (&[u8], &mut [u8]) {
        let whole = match (from.place, to.place) {
            (_, Place::Input) => unreachable!("plans do not write the input"),
            (Place::Input, Place::Output) => {
                return (&self.input[range(from)], &mut self.output[range(to)]);
            }
            (Place::Input, Place::Scratch) => {
                return (&self.input[range(from)], &mut self.scratch[range(to)]);
            }
            (Place::Output, Place::Scratch) => {
                return (&self.output[range(from)], &mut self.scratch[range(to)]);
            }
            (Place::Scratch, Place::Output) => {
                return (&self.scratch[range(from)], &mut self.output[range(to)]);
            }
            (Place::Output, Place::Output) => &mut *self.output,
            (Place::Scratch, Place::Scratch) => &mut self.scratch[..],
        };
        match from.off < to.off {
            true => {
                let (lower, upper) = whole.split_at_mut(to.off);
                (&lower[range(from)], &mut upper[..to.len])
            }
            false => {
                let (lower, upper) = whole.split_at_mut(from.off);
                (&upper[..from.len], &mut lower[range(to)])
            }
        }
    }
}

fn range(span: Span) -> Range<usize> {
    span.off..span.off + span.len
}
