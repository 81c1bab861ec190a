// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sending side of a lane: the numbers of its messages, and the credit that they cost (`P4.3`).

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct LaneTx {
    next_seq: u16,
    best_effort_seq: u16,
    /// Of those that fill several frames.
    best_effort_number: u32,
    /// Charged so far, and how far the peer lets it go; both modulo 2^32.
    charged: u32,
    limit: u32,
    /// A submission was refused that costs credit: say when it would not be.
    starved: bool,
    /// The same of one that costs none: room is all that it lacks.
    wants_room: bool,
}

impl LaneTx {
    /// Sessions begin with so much credit.
    pub(crate) fn begin(&mut self, limit: u32) {
        self.limit = limit;
    }

    /// Takes the next number for a message that costs `charge`; `None`, and nothing has changed, if
    /// there is no credit for it.
    #[inline]
    pub(crate) fn reserve(&mut self, charge: u32) -> Option<u16> {
        if !self.has_credit(charge) {
            return None;
        }
        let seq = self.next_seq;
        self.next_seq = seq.wrapping_add(1);
        self.charged = self.charged.wrapping_add(charge);
        Some(seq)
    }

    /// The same, if its path `has_room`. A refusal is remembered (see `wake`).
    #[inline]
    pub(crate) fn reserve_or_starve(&mut self, has_room: bool, charge: u32) -> Option<u16> {
        let seq = has_room.then(|| self.reserve(charge)).flatten();
        self.starved |= seq.is_none();
        seq
    }

    /// The message that was reserved last never left.
    pub(crate) fn cancel(&mut self, charge: u32) {
        self.next_seq = self.next_seq.wrapping_sub(1);
        self.charged = self.charged.wrapping_sub(charge);
    }

    /// The next number of a best-effort message, which costs nothing, if its path `has_room`. A refusal
    /// is remembered (see `wake`). `P7.5`
    #[inline]
    pub(crate) fn next_best_effort(&mut self, has_room: bool) -> Option<u16> {
        self.wants_room |= !has_room;
        let seq = self.best_effort_seq;
        self.best_effort_seq = seq.wrapping_add(u16::from(has_room));
        has_room.then_some(seq)
    }

    /// The same for one that fills several frames. `P7.6`
    pub(crate) fn next_best_effort_number(&mut self, has_room: bool) -> Option<u32> {
        self.wants_room |= !has_room;
        let number = self.best_effort_number;
        self.best_effort_number = number.wrapping_add(u32::from(has_room));
        has_room.then_some(number)
    }

    #[inline]
    pub(crate) fn has_credit(&self, charge: u32) -> bool {
        self.limit.wrapping_sub(self.charged) as i32 >= charge as i32
    }

    /// The peer lets it go so far. `P4.4`: only forward, an older record may have been overtaken by a
    /// newer one.
    #[inline]
    pub(crate) fn on_credit(&mut self, limit: u32) {
        if (limit.wrapping_sub(self.limit) as i32) > 0 {
            self.limit = limit;
        }
    }

    #[inline]
    pub(crate) fn is_starved(&self) -> bool {
        self.starved || self.wants_room
    }

    /// Whether a submission was refused that would not be now, with credit for `charge`, or without any
    /// if `is_roomy`; it is told once.
    pub(crate) fn wake(&mut self, charge: u32, is_roomy: bool) -> bool {
        let by_credit = self.starved && self.has_credit(charge);
        let by_room = self.wants_room && is_roomy;
        self.starved &= !by_credit;
        self.wants_room &= !by_room;
        by_credit || by_room
    }

    /// How the lane's credit stands, `consumed` of the peer's.
    pub(super) fn status(&self, consumed: u32) -> CreditStatus {
        CreditStatus {
            charged: self.charged,
            limit: self.limit,
            consumed,
        }
    }
}

/// Credit of one lane, in bytes modulo 2^32 since the session began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreditStatus {
    /// Charged by this side for messages to the peer.
    pub charged: u32,
    /// How far the peer lets that go.
    pub limit: u32,
    /// Charged by the peer and consumed here.
    pub consumed: u32,
}
