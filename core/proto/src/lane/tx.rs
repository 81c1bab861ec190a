// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sending side of a lane: message numbers and credit (`P4.3`).

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct LaneTx {
    next_seq: u16,
    best_effort_seq: u16,
    /// Next number of a best-effort message that fills several frames.
    best_effort_number: u32,
    /// Credit charged so far, and its limit from the peer; both modulo 2^32.
    charged: u32,
    limit: u32,
    /// Set if a submission that costs credit was refused; reported when it would succeed.
    starved: bool,
    /// Set if a submission that costs no credit was refused for lack of room.
    lacked_room: bool,
}

impl LaneTx {
    /// Starts a session with this credit.
    pub(crate) fn begin(&mut self, limit: u32) {
        self.limit = limit;
    }

    /// Assigns the next number to a message that costs `charge`. Returns `None`, with no state
    /// changed, if there is not enough credit.
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

    /// Assigns a number like [`LaneTx::reserve`], if the message's path `has_room`. Remembers a
    /// refusal (see `wake`).
    #[inline]
    pub(crate) fn reserve_or_starve(&mut self, has_room: bool, charge: u32) -> Option<u16> {
        let seq = has_room.then(|| self.reserve(charge)).flatten();
        self.starved |= seq.is_none();
        seq
    }

    /// Undoes the last reservation. Its message was not sent.
    pub(crate) fn cancel(&mut self, charge: u32) {
        self.next_seq = self.next_seq.wrapping_sub(1);
        self.charged = self.charged.wrapping_sub(charge);
    }

    /// Assigns the next number to a best-effort message, which costs no credit, if its path
    /// `has_room`. Remembers a refusal (see `wake`). `P7.5`
    #[inline]
    pub(crate) fn next_best_effort(&mut self, has_room: bool) -> Option<u16> {
        self.lacked_room |= !has_room;
        let seq = self.best_effort_seq;
        self.best_effort_seq = seq.wrapping_add(u16::from(has_room));
        has_room.then_some(seq)
    }

    /// Assigns the next number to a best-effort message that fills several frames, if its path
    /// `has_room`. `P7.6`
    pub(crate) fn next_best_effort_number(&mut self, has_room: bool) -> Option<u32> {
        self.lacked_room |= !has_room;
        let number = self.best_effort_number;
        self.best_effort_number = number.wrapping_add(u32::from(has_room));
        has_room.then_some(number)
    }

    #[inline]
    pub(crate) fn has_credit(&self, charge: u32) -> bool {
        self.limit.wrapping_sub(self.charged) as i32 >= charge as i32
    }

    /// Handles a credit limit of the peer. `P4.4`: the limit only grows, because a newer record may
    /// have overtaken an older one.
    #[inline]
    pub(crate) fn on_credit(&mut self, limit: u32) {
        if (limit.wrapping_sub(self.limit) as i32) > 0 {
            self.limit = limit;
        }
    }

    #[inline]
    pub(crate) fn is_starved(&self) -> bool {
        self.starved | self.lacked_room
    }

    /// Returns true, once, if a refused submission would now succeed: with credit for `charge`, or
    /// without credit if `is_roomy`.
    pub(crate) fn wake(&mut self, charge: u32, is_roomy: bool) -> bool {
        let by_credit = self.starved && self.has_credit(charge);
        let by_room = self.lacked_room && is_roomy;
        self.starved &= !by_credit;
        self.lacked_room &= !by_room;
        by_credit || by_room
    }

    /// Returns the lane's credit status; `consumed` is the peer's credit consumed here.
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
    /// Credit charged by this side for messages to the peer.
    pub charged: u32,
    /// Limit set by the peer.
    pub limit: u32,
    /// Credit charged by the peer and consumed here.
    pub consumed: u32,
}
