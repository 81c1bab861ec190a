// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measurement of the payload that the socket's receive buffer can hold, from the memory that the
//! kernel charges for it.
//!
//! The kernel charges a datagram with the memory that holds it. A run of segments that a virtual
//! interface delivers whole costs little more than its payload. Full frames from a driver that
//! gives each a page cost three times their payload. The cost depends on the receiving interface,
//! so it is measured: when a socket that was empty has data, the charged memory is read, and the
//! socket is drained until it is empty again.
//!
//! Invariant: the reported capacity never exceeds what fits at the highest recent price.

/// Payload of a call from which on its price is measured, as bulk data has. Short datagrams cost
/// more in overhead than in payload, and grants do not cover them.
const RUN_LEN: usize = 32 << 10;

/// Measurements that determine the price. Data that arrives between the two halves of a measurement
/// makes it cheaper, never dearer; the highest of this many counts.
const LOOKS: usize = 8;

/// Runs between measurements, after the first [`LOOKS`]. A measurement costs two system calls more
/// than a run; this interval makes that negligible.
const RUNS_BETWEEN: u32 = 64;

/// Consecutive measurements of an empty socket, each one system call more than a poll, after which
/// measuring pauses. Between messages that are awaited one by one, the socket is always empty.
const VAIN_LOOKS: u32 = 4;

/// Runs to wait for during that pause.
const RUNS_AFTER_VAIN: u32 = 8;

/// Scale of prices, in hundredths of the payload.
const WHOLE: usize = 100;

/// Measured capacity of the socket's receive buffer.
#[derive(Debug)]
pub(super) struct Booking {
    /// Most bytes that the kernel charges to the socket.
    booked_max: usize,
    /// Payload received so far.
    received: usize,
    /// Runs until the next measurement.
    countdown: u32,
    prices: [usize; LOOKS],
    looks: usize,
    vain_looks: u32,
    /// Last reported capacity.
    told: usize,
}

impl Booking {
    /// Creates the state for a socket charged with at most `booked_max` bytes and an initial
    /// capacity of `told` bytes.
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

    /// Records `len` bytes of payload received by one call.
    #[inline]
    pub(super) fn on_received(&mut self, len: usize) {
        self.received = self.received.wrapping_add(len);
        if len >= RUN_LEN {
            self.countdown = self.countdown.saturating_sub(1);
        }
    }

    /// Returns `true` if a measurement is due when the socket is found empty.
    #[inline]
    pub(super) fn is_due(&self) -> bool {
        self.countdown == 0
    }

    /// Returns the total payload received.
    pub(super) fn received(&self) -> usize {
        self.received
    }

    /// Records a measurement: `booked` bytes were charged for `len` bytes of payload, which emptied
    /// the socket.
    pub(super) fn on_look(&mut self, booked: usize, len: usize) {
        // Charged less than received: some of the data arrived after the charge was read.
        if len >= RUN_LEN && booked >= len {
            self.prices[self.looks % LOOKS] = booked * WHOLE / len;
            self.looks += 1;
        }
        self.countdown = if self.looks < LOOKS { 1 } else { RUNS_BETWEEN };
    }

    /// Records a measurement that found the socket still empty.
    pub(super) fn on_vain_look(&mut self) {
        self.vain_looks += 1;
        if self.vain_looks == VAIN_LOOKS {
            (self.vain_looks, self.countdown) = (0, RUNS_AFTER_VAIN);
        }
    }

    /// Returns the capacity if it changed by more than an eighth since the last report.
    pub(super) fn news(&mut self) -> Option<usize> {
        if self.looks < LOOKS {
            return None;
        }
        let price = self.prices.into_iter().max()?.max(WHOLE);
        // Up to a quarter may stay charged after it was read (`udp_rmem_release` returns memory in
        // batches).
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
