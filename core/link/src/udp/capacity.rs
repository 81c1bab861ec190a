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
const MEASUREMENTS: usize = 8;

/// Runs between measurements, after the first [`MEASUREMENTS`]. A measurement costs two system
/// calls more than a run; this interval makes that negligible.
const RUNS_BETWEEN: u32 = 64;

/// Consecutive measurements of an empty socket, each one system call more than a poll, after which
/// measuring pauses. Between messages that are awaited one by one, the socket is always empty.
const EMPTY_MAX: u32 = 4;

/// Runs in the first pause.
const RUNS_AFTER_EMPTY: u32 = 8;

/// Maximum runs in a pause. Each pause is twice as long as the last one, until a measurement
/// succeeds. Between messages that are awaited one by one, almost none is then measured.
const RUNS_AFTER_EMPTY_MAX: u32 = 512;

/// Scale of prices, in hundredths of the payload.
const PRICE_SCALE: usize = 100;

/// Measured capacity of the socket's receive buffer.
#[derive(Debug)]
pub(super) struct CapacityMeter {
    /// Maximum number of bytes that the kernel charges to the socket.
    charged_max: usize,
    /// Payload received so far.
    received: usize,
    /// Runs until the next measurement.
    countdown: u32,
    prices: [usize; MEASUREMENTS],
    measurement_count: usize,
    empty_count: u32,
    /// Length of the next pause, in runs.
    pause: u32,
    /// Last reported capacity.
    reported: usize,
}

impl CapacityMeter {
    /// Creates the state for a socket charged with at most `charged_max` bytes and an initial
    /// capacity of `reported` bytes.
    pub(super) fn new(charged_max: usize, reported: usize) -> CapacityMeter {
        CapacityMeter {
            charged_max,
            received: 0,
            countdown: 1,
            prices: [0; MEASUREMENTS],
            measurement_count: 0,
            empty_count: 0,
            pause: RUNS_AFTER_EMPTY,
            reported,
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

    /// Records a measurement: `charged` bytes were charged for `len` bytes of payload, which
    /// emptied the socket.
    pub(super) fn on_measurement(&mut self, charged: usize, len: usize) {
        // Charged less than received: some of the data arrived after the charge was read.
        if len >= RUN_LEN && charged >= len {
            self.prices[self.measurement_count % MEASUREMENTS] = charged * PRICE_SCALE / len;
            self.measurement_count += 1;
            self.pause = RUNS_AFTER_EMPTY;
        }
        self.countdown = if self.measurement_count < MEASUREMENTS {
            1
        } else {
            RUNS_BETWEEN
        };
    }

    /// Records a measurement that found the socket still empty.
    pub(super) fn on_empty(&mut self) {
        self.empty_count += 1;
        if self.empty_count == EMPTY_MAX {
            (self.empty_count, self.countdown) = (0, self.pause);
            self.pause = (2 * self.pause).min(RUNS_AFTER_EMPTY_MAX);
        }
    }

    /// Returns the capacity if it changed by more than an eighth since the last report.
    pub(super) fn take_change(&mut self) -> Option<usize> {
        if self.measurement_count < MEASUREMENTS {
            return None;
        }
        let price = self.prices.into_iter().max()?.max(PRICE_SCALE);
        // Up to a quarter may stay charged after it was read (`udp_rmem_release` returns memory in
        // batches).
        let capacity = (self.charged_max - self.charged_max / 4) * PRICE_SCALE / price;
        if capacity.abs_diff(self.reported) <= self.reported / 8 {
            return None;
        }
        self.reported = capacity;
        Some(capacity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHARGED_MAX: usize = 400_000;

    fn after(prices: &[usize]) -> CapacityMeter {
        let mut capacity_meter = CapacityMeter::new(CHARGED_MAX, CHARGED_MAX / 4);
        for price in prices {
            capacity_meter.on_measurement(64_000 * price / PRICE_SCALE, 64_000);
        }
        capacity_meter
    }

    #[test]
    fn empty_measurements_pause_measuring() {
        let mut capacity_meter = CapacityMeter::new(CHARGED_MAX, CHARGED_MAX / 4);
        capacity_meter.on_received(RUN_LEN);
        let mut pause = |runs: u32| {
            for _ in 0..EMPTY_MAX {
                assert!(capacity_meter.is_due());
                capacity_meter.on_empty();
            }
            for _ in 0..runs {
                assert!(!capacity_meter.is_due());
                capacity_meter.on_received(RUN_LEN);
            }
        };
        for runs in [8, 16, 32, 64, 128, 256, 512, 512] {
            pause(runs);
        }
        assert!(capacity_meter.is_due());
    }

    #[test]
    fn highest_recent_price_counts() {
        let mut capacity_meter = after(&[105; MEASUREMENTS]);
        assert_eq!(capacity_meter.take_change(), Some(300_000 * 100 / 105));
        assert_eq!(capacity_meter.take_change(), None, "reported once");
        capacity_meter.on_measurement(192_000, 64_000);
        assert_eq!(capacity_meter.take_change(), Some(100_000));
        for _ in 0..MEASUREMENTS {
            capacity_meter.on_measurement(64_000, 64_000);
        }
        assert_eq!(capacity_meter.take_change(), Some(300_000));
    }

    #[test]
    fn short_or_inconsistent_measurements_are_ignored() {
        assert_eq!(after(&[105; MEASUREMENTS - 1]).take_change(), None);
        let mut capacity_meter = after(&[99; 2 * MEASUREMENTS]);
        capacity_meter.on_measurement(4_000, 1_000);
        assert_eq!(capacity_meter.take_change(), None);
    }

    #[test]
    fn measurements_become_rare() {
        let mut capacity_meter = CapacityMeter::new(CHARGED_MAX, 0);
        assert!(!capacity_meter.is_due());
        for _ in 0..MEASUREMENTS {
            capacity_meter.on_received(RUN_LEN);
            assert!(capacity_meter.is_due());
            capacity_meter.on_measurement(RUN_LEN, RUN_LEN);
        }
        for _ in 1..RUNS_BETWEEN {
            capacity_meter.on_received(RUN_LEN);
            capacity_meter.on_received(100);
            assert!(!capacity_meter.is_due());
        }
        capacity_meter.on_received(RUN_LEN);
        assert!(capacity_meter.is_due());
    }
}
