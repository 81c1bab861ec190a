// SPDX-License-Identifier: MIT OR Apache-2.0
//! How much payload the socket's receive buffer holds, by what the kernel books for payload here.
//!
//! The kernel charges a datagram with the memory behind it: a run of segments that a virtual
//! interface hands over whole costs little more than its payload, full frames from a driver that
//! gives each a page cost three times theirs. It depends on the interface that frames come in by, so
//! it is measured: when a socket that was found empty has something, the kernel is asked what it has
//! booked, and the socket read until it is empty again.
//!
//! The one invariant: what is said to fit is never more than fits at the highest price lately seen.

/// Payload of a call from which on its price is looked at: what bulk data comes in. The management
/// of short datagrams costs more than their payload, and grants are not made for them.
const RUN_LEN: usize = 32 << 10;

/// Looks that the price is taken from. What arrives between the two halves of a look makes
/// it seem cheaper, never dearer, and the highest of so many counts.
const LOOKS: usize = 8;

/// Runs from one look to the next, once there were enough: a look costs two system calls more
/// than a run does, so this many make it unnoticeable.
const RUNS_BETWEEN: u32 = 64;

/// Looks in a row that bring nothing, each a system call more than a poll is, after which runs are waited
/// for: between messages that are waited for one by one the socket is always found empty.
const VAIN_LOOKS: u32 = 4;

/// Runs that are then waited for.
const RUNS_AFTER_VAIN: u32 = 8;

/// Prices are in hundredths of the payload.
const WHOLE: usize = 100;

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Booking {
    /// Bytes that the socket may book.
    booked_max: usize,
    /// Payload received so far.
    received: usize,
    /// Runs until the next look.
    countdown: u32,
    prices: [usize; LOOKS],
    looks: usize,
    vain_looks: u32,
    /// Capacity that was last told.
    told: usize,
}

impl Booking {
    /// For a socket that may book `booked_max` bytes, and is thought to hold `told` of payload.
    pub(super) fn new(booked_max: usize, told: usize) -> Booking {
        Booking {
            booked_max,
            received: 0,
            countdown: 1,
            prices: [0; LOOKS],
            looks: 0,
            vain_looks: 0,
            told,
        }
    }

    /// `len` bytes of payload have come with one call.
    #[inline]
    pub(super) fn on_received(&mut self, len: usize) {
        self.received = self.received.wrapping_add(len);
        if len >= RUN_LEN {
            self.countdown = self.countdown.saturating_sub(1);
        }
    }

    /// Now is the time for a look, if the socket was found empty before.
    #[inline]
    pub(super) fn is_due(&self) -> bool {
        self.countdown == 0
    }

    /// All payload so far.
    pub(super) fn received(&self) -> usize {
        self.received
    }

    /// `booked` bytes were booked, and gave `len` of payload, with which the socket was empty again.
    pub(super) fn on_look(&mut self, booked: usize, len: usize) {
        // Booked less than it gave: some of it has come after the question.
        if len >= RUN_LEN && booked >= len {
            self.prices[self.looks % LOOKS] = booked * WHOLE / len;
            self.looks += 1;
        }
        self.countdown = if self.looks < LOOKS { 1 } else { RUNS_BETWEEN };
    }

    /// A look found the socket empty still.
    pub(super) fn on_vain_look(&mut self) {
        self.vain_looks += 1;
        if self.vain_looks == VAIN_LOOKS {
            (self.vain_looks, self.countdown) = (0, RUNS_AFTER_VAIN);
        }
    }

    /// Payload that fits, if that has changed by more than an eighth since it was last told.
    pub(super) fn news(&mut self) -> Option<usize> {
        if self.looks < LOOKS {
            return None;
        }
        let price = self.prices.into_iter().max()?.max(WHOLE);
        // Up to a quarter may be booked although already read (`udp_rmem_release` gives memory
        // back in lumps).
        let capacity = (self.booked_max - self.booked_max / 4) * WHOLE / price;
        if capacity.abs_diff(self.told) <= self.told / 8 {
            return None;
        }
        self.told = capacity;
        Some(capacity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOOKED_MAX: usize = 400_000;

    fn after(prices: &[usize]) -> Booking {
        let mut booking = Booking::new(BOOKED_MAX, BOOKED_MAX / 4);
        for price in prices {
            booking.on_look(64_000 * price / WHOLE, 64_000);
        }
        booking
    }

    #[test]
    fn looks_in_vain_come_to_an_end_until_more_has_come() {
        let mut booking = Booking::new(BOOKED_MAX, BOOKED_MAX / 4);
        booking.on_received(RUN_LEN);
        for _ in 0..VAIN_LOOKS {
            assert!(booking.is_due());
            booking.on_vain_look();
        }
        for _ in 0..RUNS_AFTER_VAIN {
            assert!(!booking.is_due());
            booking.on_received(RUN_LEN);
        }
        assert!(booking.is_due());
    }

    #[test]
    fn the_highest_of_the_last_prices_counts() {
        let mut booking = after(&[105; LOOKS]);
        assert_eq!(booking.news(), Some(300_000 * 100 / 105));
        assert_eq!(booking.news(), None, "told once");
        booking.on_look(192_000, 64_000);
        assert_eq!(booking.news(), Some(100_000));
        for _ in 0..LOOKS {
            booking.on_look(64_000, 64_000);
        }
        assert_eq!(booking.news(), Some(300_000));
    }

    #[test]
    fn few_short_or_impossible_looks_say_nothing() {
        assert_eq!(after(&[105; LOOKS - 1]).news(), None);
        let mut booking = after(&[99; 2 * LOOKS]);
        booking.on_look(4_000, 1_000);
        assert_eq!(booking.news(), None);
    }

    #[test]
    fn looks_are_frequent_first_and_rare_later() {
        let mut booking = Booking::new(BOOKED_MAX, 0);
        assert!(!booking.is_due());
        for _ in 0..LOOKS {
            booking.on_received(RUN_LEN);
            assert!(booking.is_due());
            booking.on_look(RUN_LEN, RUN_LEN);
        }
        for _ in 1..RUNS_BETWEEN {
            booking.on_received(RUN_LEN);
            booking.on_received(100);
            assert!(!booking.is_due());
        }
        booking.on_received(RUN_LEN);
        assert!(booking.is_due());
    }
}
