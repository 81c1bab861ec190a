// SPDX-License-Identifier: MIT OR Apache-2.0
//! Best effort: messages are delivered if they arrive and find a buffer. Lost ones are counted and
//! not retransmitted (`P7.1`, `P7.4`).

use super::{Env, Lanes};
use crate::base::context::Context;
use crate::matching::port::Match;
use crate::{Data, DropReason, OpError, PortId};
use core::ops::Range;
use portolan_wire::Message;

/// Number of messages before the newest that are tracked; a network reorders within a few frames.
const WINDOW: u32 = 64;

/// Numbers of a sequence that have arrived, within a window of one word. Each number has `BITS`
/// bits.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen<const BITS: u32> {
    next: u32,
    /// Bit `i` stands for the number `next - 1 - i`.
    bits: u64,
}

/// Position of a message relative to the earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admitted {
    /// Newest message, with this many missing before it.
    Skipping(u32),
    /// Message that was missing.
    Late,
}

impl<const BITS: u32> Seen<BITS> {
    const MASK: u32 = u32::MAX >> (u32::BITS - BITS);

    /// Records `seq`. A network may duplicate frames that have no packet number. Each message is
    /// delivered at most once, and one too old to check is dropped.
    pub(super) fn admit(&mut self, seq: u32) -> Result<Admitted, DropReason> {
        let ahead = seq.wrapping_sub(self.next) & Self::MASK;
        if ahead <= Self::MASK >> 1 {
            self.next = seq.wrapping_add(1);
            self.bits = self.bits.checked_shl(ahead + 1).unwrap_or(0) | 1;
            return Ok(Admitted::Skipping(ahead));
        }
        let behind = self.next.wrapping_sub(1).wrapping_sub(seq) & Self::MASK;
        if behind >= WINDOW || self.bits >> behind & 1 == 1 {
            return Err(DropReason::Duplicate);
        }
        self.bits |= 1 << behind;
        Ok(Admitted::Late)
    }
}

impl Admitted {
    /// Counts the messages missing before it as lost. `P7.4`
    pub(super) fn count(self, ctx: &mut Context) {
        let lost = &mut ctx.counters_mut().best_effort_lost;
        match self {
            Admitted::Skipping(count) => *lost += u64::from(count),
            // It was late, not lost.
            Admitted::Late => *lost = lost.saturating_sub(1),
        }
    }
}

impl Lanes {
    /// Records the arrival of a message, and the messages missing before it.
    pub(crate) fn note_best_effort(
        &mut self,
        ctx: &mut Context,
        message: &Message,
    ) -> Result<(), DropReason> {
        let seen = &mut self.rx[message.lane.index()].best_effort;
        seen.admit(message.seq.into())?.count(ctx);
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
    fn late_numbers_are_distinguished_from_duplicates() {
        let mut seen = Seen::<16>::default();
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

    #[test]
    fn numbers_wrap_around() {
        let mut seen = Seen::<16>::default();
        for seq in [0x7fff, 0xfffe, 0xffff, 0, 1] {
            assert!(
                matches!(seen.admit(seq), Ok(Admitted::Skipping(_))),
                "{seq}"
            );
        }
        assert_eq!(seen.admit(0xffff), Err(DropReason::Duplicate));
        let mut seen = Seen::<32>::default();
        for seq in [0x7fff_ffff, 0xffff_fffe, 0, 70_000] {
            assert!(
                matches!(seen.admit(seq), Ok(Admitted::Skipping(_))),
                "{seq}"
            );
        }
        // As old as a full cycle of a shorter sequence.
        assert_eq!(seen.admit(70_000 - 65_536), Err(DropReason::Duplicate));
    }
}
