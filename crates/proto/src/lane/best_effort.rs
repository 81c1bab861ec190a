// SPDX-License-Identifier: MIT OR Apache-2.0
//! Best effort: delivered if it arrives and finds a buffer; what is lost is counted, not repaired
//! (`P7.1`, `P7.4`).

use super::{Env, Lanes};
use crate::base::context::Context;
use crate::matching::port::Match;
use crate::{Data, DropReason, OpError, PortId};
use core::ops::Range;
use portolan_wire::Message;

/// Messages behind the newest that are told apart: a network reorders within a few frames.
const WINDOW: u16 = 64;

/// Which numbers of one lane have arrived, as far as a word remembers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    next: u16,
    /// Bit `i` stands for the number `next - 1 - i`.
    bits: u64,
}

/// How a message fits behind those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Admitted {
    /// The newest, with so many missing before it.
    Skipping(u16),
    /// One of those that were missing.
    Late,
}

impl Seen {
    /// Notes `seq`. A network may copy frames that have no packet number: each message is
    /// delivered once at most, and one that is too late to tell is not delivered.
    fn admit(&mut self, seq: u16) -> Result<Admitted, DropReason> {
        let ahead = seq.wrapping_sub(self.next);
        if ahead < 1 << 15 {
            self.next = seq.wrapping_add(1);
            self.bits = self.bits.checked_shl(u32::from(ahead) + 1).unwrap_or(0) | 1;
            return Ok(Admitted::Skipping(ahead));
        }
        let behind = self.next.wrapping_sub(1).wrapping_sub(seq);
        if behind >= WINDOW || self.bits >> behind & 1 == 1 {
            return Err(DropReason::Duplicate);
        }
        self.bits |= 1 << behind;
        Ok(Admitted::Late)
    }
}

impl Lanes {
    /// Notes that a message has come, and what is missing before it.
    pub(crate) fn note_best_effort(
        &mut self,
        ctx: &mut Context,
        message: &Message,
    ) -> Result<(), DropReason> {
        let rx = &mut self.rx[message.lane.index()].best_effort;
        match rx.admit(message.seq)? {
            Admitted::Skipping(count) => ctx.counters_mut().best_effort_lost += u64::from(count),
            // It was late, not lost.
            Admitted::Late => {
                ctx.counters_mut().best_effort_lost =
                    ctx.counters_mut().best_effort_lost.saturating_sub(1);
            }
        }
        Ok(())
    }

    pub(crate) fn on_best_effort(
        &mut self,
        env: &mut Env<'_>,
        message: &Message,
        payload: Range<usize>,
    ) -> Result<(), DropReason> {
        self.note_best_effort(&mut env.sh.ctx, message)?;
        let port = PortId::of(message);
        let found = env.sh.matching.find_at_port(port, env.peer, message.lane);
        let len = payload.len() as u64;
        let (op, error) = match found {
            Match::InPlace => (None, None),
            Match::Posted(posted) => (Some(posted.op), OpError::truncated(len, posted.len)),
            // P7.3
            Match::Nothing | Match::Discarded => return Err(DropReason::BestEffortNoBuffer),
        };
        self.deliver(
            env,
            message.lane,
            &port.into(),
            op,
            len,
            Data::Frame(payload),
            error,
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_is_admitted_once_and_late_ones_are_told_from_copies() {
        let mut seen = Seen::default();
        assert_eq!(seen.admit(0), Ok(Admitted::Skipping(0)));
        assert_eq!(seen.admit(0), Err(DropReason::Duplicate));
        assert_eq!(seen.admit(3), Ok(Admitted::Skipping(2)));
        assert_eq!(seen.admit(1), Ok(Admitted::Late));
        assert_eq!(seen.admit(1), Err(DropReason::Duplicate));
        assert_eq!(seen.admit(200), Ok(Admitted::Skipping(196)));
        assert_eq!(seen.admit(137), Ok(Admitted::Late));
        assert_eq!(seen.admit(136), Err(DropReason::Duplicate));
        assert_eq!(seen.admit(200), Err(DropReason::Duplicate));
    }
}
