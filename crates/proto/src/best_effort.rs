// SPDX-License-Identifier: MIT OR Apache-2.0
//! Best effort: delivered if it arrives and finds a buffer; what is lost is counted, not repaired.

use crate::DropReason;
use crate::core_state::Shared;
use crate::event::{Data, PortId};
use crate::lane::truncation;
use crate::peer::Peer;
use crate::port::Match;
use core::ops::Range;
use portolan_wire::Message;

/// Numbers of a lane's best-effort messages, as far as they matter: how many are missing, and which
/// of the newest have come.
#[derive(Debug, Default)]
pub(crate) struct BestEffortRx {
    next: u16,
    /// Bit n: the message numbered `next - 1 - n` has come.
    seen: u64,
}

#[derive(Debug, PartialEq, Eq)]
enum Arrival {
    /// Newer than all before; so many between are missing.
    New { skipped: u16 },
    /// Counted as missing before; it was overtaken.
    Late,
}

impl BestEffortRx {
    fn admit(&mut self, seq: u16) -> Result<Arrival, DropReason> {
        let skipped = seq.wrapping_sub(self.next);
        if skipped < 1 << 15 {
            self.next = seq.wrapping_add(1);
            let older = self.seen.checked_shl(u32::from(skipped) + 1).unwrap_or(0);
            self.seen = older | 1;
            return Ok(Arrival::New { skipped });
        }
        let age = u32::from(self.next.wrapping_sub(seq)) - 1;
        let Some(bit) = 1_u64.checked_shl(age) else {
            return Err(DropReason::BeyondWindow);
        };
        if self.seen & bit != 0 {
            return Err(DropReason::Duplicate);
        }
        self.seen |= bit;
        Ok(Arrival::Late)
    }
}

impl Peer {
    pub(crate) fn on_best_effort(
        &mut self,
        sh: &mut Shared,
        message: &Message,
        payload: Range<usize>,
    ) -> Result<(), DropReason> {
        let rx = &mut self.lanes_rx[message.lane.index()];
        let lost = &mut sh.counters.best_effort_lost;
        match rx.best_effort.admit(message.seq)? {
            Arrival::New { skipped } => *lost += u64::from(skipped),
            Arrival::Late => *lost = lost.saturating_sub(1),
        }
        let port = PortId {
            number: message.port,
            system: message.system,
        };
        let found = match sh.ports.get_mut(port) {
            Some(found) => found.find(self.id, message.lane, true),
            None => Match::Nothing,
        };
        let len = payload.len() as u64;
        let (op, error) = match found {
            Match::InPlace => (None, None),
            Match::Posted(posted) => (Some(posted.op), truncation(len, posted.len)),
            Match::Nothing => return Err(DropReason::BestEffortNoBuffer),
        };
        self.deliver(sh, message.lane, port, op, len, Data::Frame(payload), error);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_admitted_once() {
        let mut rx = BestEffortRx::default();
        assert_eq!(rx.admit(0), Ok(Arrival::New { skipped: 0 }));
        assert_eq!(rx.admit(0), Err(DropReason::Duplicate));
        assert_eq!(rx.admit(3), Ok(Arrival::New { skipped: 2 }));
        assert_eq!(rx.admit(1), Ok(Arrival::Late));
        assert_eq!(rx.admit(1), Err(DropReason::Duplicate));
        assert_eq!(rx.admit(3), Err(DropReason::Duplicate));
        assert_eq!(rx.admit(2), Ok(Arrival::Late));
    }

    #[test]
    fn what_is_too_old_to_tell_is_dropped() {
        let mut rx = BestEffortRx::default();
        assert_eq!(rx.admit(100), Ok(Arrival::New { skipped: 100 }));
        assert_eq!(rx.admit(37), Ok(Arrival::Late));
        assert_eq!(rx.admit(36), Err(DropReason::BeyondWindow));
        assert_eq!(rx.admit(164), Ok(Arrival::New { skipped: 63 }));
        assert_eq!(rx.admit(100), Err(DropReason::BeyondWindow));
        assert_eq!(rx.admit(101), Ok(Arrival::Late));
    }

    #[test]
    fn numbers_wrap() {
        let mut rx = BestEffortRx {
            next: u16::MAX,
            seen: 0,
        };
        assert_eq!(rx.admit(1), Ok(Arrival::New { skipped: 2 }));
        assert_eq!(rx.admit(u16::MAX), Ok(Arrival::Late));
        assert_eq!(rx.admit(u16::MAX), Err(DropReason::Duplicate));
    }
}
