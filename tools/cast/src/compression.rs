// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decision about compression. It pays if it makes the slowest stage of a cast faster.
//!
//! The caller provides all times. The stages are the source's own thread (reading, hashing,
//! compressing), the network, and the receivers (storing, hashing). Each is measured during the
//! cast in seconds per byte, and the slowest decides.

use std::time::Duration;

/// Raw bytes of a measured interval.
const INTERVAL_LEN: u64 = 16 << 20;

/// Raw bytes after a change that are not measured, because blocks sent before it still affect them.
const SETTLE_LEN: u64 = 32 << 20;

/// Interval of sample blocks that are compressed to measure the ratio, while compression is off and
/// might pay.
const SAMPLE_INTERVAL: u64 = 8;

/// Intervals with the source's thread as the slowest stage before one interval without compression.
/// That interval shows if the network has become faster, and costs a twentieth of the blocks.
const RECHECK_INTERVALS: u32 = 64;

/// Share of the source's time that it waits for a block to be accepted. Above it the other stages
/// are slower.
const WAITING: f64 = 0.3;

/// Maximum ratio of the new to the old time for a change.
const GAIN: f64 = 0.95;

/// Weight of the latest measurement in the mean.
const WEIGHT: f64 = 0.25;

/// A block that has left the source.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SentBlock {
    /// Bytes before and after coding.
    pub(crate) raw: usize,
    pub(crate) wire: usize,
    /// Time for reading and hashing.
    pub(crate) own: Duration,
    /// Time until the block was accepted.
    pub(crate) waited: Duration,
    /// Time since the previous block.
    pub(crate) passed: Duration,
}

#[derive(Debug, Default)]
struct Sum {
    raw: u64,
    wire: u64,
    own: f64,
    waited: f64,
    passed: f64,
}

/// Measures the stages and decides when to compress.
#[derive(Debug, Default)]
pub(crate) struct CompressionPolicy {
    is_on: bool,
    /// Set while compression is off for one interval, to measure the network.
    is_rechecking: bool,
    intervals_without_wait: u32,
    blocks: u64,
    settling: u64,
    sum: Sum,
    /// Set if the network is slower than the source's thread and the receivers.
    may_help: bool,
    /// Compressed bytes per raw byte.
    ratio: Option<f64>,
    /// Seconds per raw byte of compressing, and of reading and hashing (`own`).
    cost: Option<f64>,
    own: f64,
    /// Maximum seconds per byte on the wire.
    network: f64,
}

fn blend(mean: &mut Option<f64>, value: f64) {
    *mean = Some(mean.map_or(value, |mean| mean + WEIGHT * (value - mean)));
}

impl CompressionPolicy {
    /// Returns true if the next block should be compressed.
    pub(crate) fn should_compress(&mut self) -> bool {
        self.blocks += 1;
        self.is_on || (self.may_help && self.blocks.is_multiple_of(SAMPLE_INTERVAL))
    }

    /// Records a compressed block.
    pub(crate) fn on_compressed(&mut self, raw: usize, coded: usize, took: Duration) {
        if raw > 0 {
            blend(&mut self.ratio, (coded as f64 / raw as f64).min(1.0));
            blend(&mut self.cost, took.as_secs_f64() / raw as f64);
        }
    }

    /// Records a block that has left. `hosts_are_busy` is set if the disk or processor of a
    /// receiver is the bottleneck.
    pub(crate) fn on_sent(&mut self, block: SentBlock, hosts_are_busy: bool) {
        if self.settling > 0 {
            self.settling = self.settling.saturating_sub(block.raw as u64);
            return;
        }
        self.sum.raw += block.raw as u64;
        self.sum.wire += block.wire as u64;
        self.sum.own += block.own.as_secs_f64();
        self.sum.waited += block.waited.as_secs_f64();
        self.sum.passed += block.passed.as_secs_f64();
        if self.sum.raw >= INTERVAL_LEN {
            let sum = std::mem::take(&mut self.sum);
            self.decide(&sum, hosts_are_busy);
        }
    }

    fn decide(&mut self, sum: &Sum, hosts_are_busy: bool) {
        self.own = sum.own / sum.raw as f64;
        let is_waiting = sum.waited > WAITING * sum.passed;
        let network = sum.passed / sum.wire.max(1) as f64;
        self.network = match is_waiting || self.is_rechecking || self.network == 0.0 {
            true => network,
            // The network is at least that fast.
            false => self.network.min(network),
        };
        self.may_help = is_waiting && !hosts_are_busy;
        self.intervals_without_wait = match self.is_on && !is_waiting {
            true => self.intervals_without_wait + 1,
            false => 0,
        };
        let helps = self.would_help() && !hosts_are_busy;
        let is_due = self.intervals_without_wait >= RECHECK_INTERVALS;
        self.is_rechecking = helps && is_due;
        if is_due {
            self.intervals_without_wait = 0;
        }
        self.switch(helps && !is_due);
    }

    /// Returns true if compression makes, or would make, the slowest stage faster.
    fn would_help(&self) -> bool {
        let (Some(ratio), Some(cost)) = (self.ratio, self.cost) else {
            return false;
        };
        let with = (self.own + cost).max(ratio * self.network);
        let without = self.own.max(self.network);
        with < GAIN * without
    }

    fn switch(&mut self, on: bool) {
        if on != self.is_on {
            self.is_on = on;
            self.settling = SETTLE_LEN;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: usize = 1 << 20;

    /// A cast with the given milliseconds per block of each stage: the source, compressing, the
    /// network.
    struct Cast {
        policy: CompressionPolicy,
        own: f64,
        cost: f64,
        network: f64,
        /// Bytes of a compressed block.
        coded: u32,
        hosts: f64,
    }

    impl Cast {
        fn new(own: f64, cost: f64, network: f64, coded: u32) -> Cast {
            Cast {
                policy: CompressionPolicy::default(),
                own,
                cost,
                network,
                coded,
                hosts: 0.0,
            }
        }

        /// Sends `count` blocks. Returns the share of the last quarter that was compressed.
        fn send(&mut self, count: u32) -> f64 {
            let mut compressed = 0;
            for index in 0..count {
                let ms = |ms: f64| Duration::from_secs_f64(ms / 1e3);
                let mut own = self.own;
                let mut wire = LEN;
                if self.policy.should_compress() {
                    compressed += u32::from(index >= count - count / 4);
                    own += self.cost;
                    wire = self.coded as usize;
                    self.policy.on_compressed(LEN, wire, ms(self.cost));
                }
                let others = (self.network * wire as f64 / LEN as f64).max(self.hosts);
                let block = SentBlock {
                    raw: LEN,
                    wire,
                    own: ms(self.own),
                    waited: ms((others - own).max(0.0)),
                    passed: ms(own.max(others)),
                };
                self.policy
                    .on_sent(block, self.hosts > own.max(others - 0.01));
            }
            f64::from(compressed) / f64::from(count / 4)
        }
    }

    #[test]
    fn slow_network_turns_compression_on() {
        let mut cast = Cast::new(0.5, 2.0, 9.0, 400_000);
        assert!(cast.send(400) > 0.99);
    }

    #[test]
    fn fast_network_or_slow_source_leaves_compression_off() {
        // The network is faster than compression.
        assert!(Cast::new(0.5, 2.0, 1.0, 400_000).send(400) < 0.2);
        // The source's own thread is the slowest, so not even samples are compressed.
        assert!(Cast::new(3.0, 2.0, 1.0, 400_000).send(400) < 0.01);
    }

    #[test]
    fn incompressible_blocks_are_sent_raw_except_samples() {
        assert!(Cast::new(0.5, 2.0, 9.0, 1 << 20).send(400) < 0.2);
    }

    #[test]
    fn slow_receivers_leave_compression_off() {
        let mut cast = Cast::new(0.5, 2.0, 4.0, 400_000);
        cast.hosts = 10.0;
        assert!(cast.send(400) < 0.01);
    }

    #[test]
    fn compression_follows_the_network_speed() {
        let mut cast = Cast::new(0.5, 2.0, 9.0, 200_000);
        assert!(cast.send(400) > 0.99);
        cast.network = 0.6;
        assert!(cast.send(1600) < 0.2);
        cast.network = 9.0;
        assert!(cast.send(400) > 0.99);
    }
}
