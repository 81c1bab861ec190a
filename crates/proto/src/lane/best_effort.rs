// SPDX-License-Identifier: MIT OR Apache-2.0
//! Best effort: delivered if it arrives and finds a buffer; what is lost is counted, not repaired
//! (`P7.1`, `P7.4`).

use crate::base::event::{Data, PortId, PortMode};
use crate::dispatch::Shared;
use crate::dispatch::lone::{Admitted as Taken, Want, Whole, WholeDest};
use crate::lane::truncation;
use crate::matching::port::Match;
use crate::peer::Peer;
use crate::{Core, DropReason};
use core::ops::Range;
use portolan_wire::{MESSAGE_LEN, Message};

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

impl Peer {
    /// Notes that a message has come, and what is missing before it.
    fn note_best_effort(&mut self, sh: &mut Shared, message: &Message) -> Result<(), DropReason> {
        let rx = &mut self.lanes_rx[message.lane.index()].best_effort;
        match rx.admit(message.seq)? {
            Admitted::Skipping(count) => sh.counters.best_effort_lost += u64::from(count),
            // It was late, not lost.
            Admitted::Late => {
                sh.counters.best_effort_lost = sh.counters.best_effort_lost.saturating_sub(1);
            }
        }
        Ok(())
    }

    pub(crate) fn on_best_effort(
        &mut self,
        sh: &mut Shared,
        message: &Message,
        payload: Range<usize>,
    ) -> Result<(), DropReason> {
        self.note_best_effort(sh, message)?;
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
            // P7.3
            Match::Nothing => return Err(DropReason::BestEffortNoBuffer),
        };
        self.deliver(sh, message.lane, port, op, len, Data::Frame(payload), error);
        Ok(())
    }
}

impl Core {
    /// [`Core::take_whole`] for a best-effort message, for a receive that is waited for only: it would
    /// find no buffer. All others get theirs by an event.
    #[cold]
    pub(crate) fn take_best_effort(
        &mut self,
        frame: &mut Taken,
        head_len: usize,
        message: &Message,
        want: &Want,
    ) -> Option<Whole> {
        let port = PortId {
            number: message.port,
            system: message.system,
        };
        let (off, len) = (frame.at + MESSAGE_LEN, usize::from(message.len));
        let fits = off + len <= head_len.min(frame.total_len) && len <= want.len;
        let is_wanted = want.port == port && want.source.is_none_or(|from| from == frame.from);
        let found = self.sh.ports.get_mut(port)?;
        if !fits || !is_wanted || found.mode != Some(PortMode::Posted) || !found.is_quiet() {
            return None;
        }
        let state = self.peers.get_mut(frame.from.index())?.as_deref_mut()?;
        state.note_best_effort(&mut self.sh, message).ok()?;
        frame.at = off + len;
        self.sh.counters.messages_received += 1;
        self.sh.counters.bytes_received += len as u64;
        Some(Whole {
            port,
            dest: WholeDest::Wanted,
            off,
            len,
        })
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
