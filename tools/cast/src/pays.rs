// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether compression pays: it does where it makes the slowest stage of a cast faster.
//!
//! No clock: times come in. Stages are the source's own thread (reading, hashing, compressing), the
//! network, and what hosts do (storing, hashing). Each is measured while the cast runs, in seconds a
//! byte; the slowest decides.

use std::time::Duration;

/// Raw bytes of an interval that is measured.
const INTERVAL_LEN: u64 = 16 << 20;

/// Raw bytes after a change that are not measured: they meet what was sent before it.
const SETTLE_LEN: u64 = 32 << 20;

/// While it is off and might pay, one block of so many is compressed to see how well.
const SAMPLE_INTERVAL: u64 = 8;

/// Intervals in which the source's thread is the slowest, before one without compression shows whether
/// the network has become faster: it costs a twentieth of the blocks.
const RECHECK_INTERVALS: u32 = 64;

/// Share of the time that the source waits for the others to take a block, above which these are the
/// slower ones.
const WAITING: f64 = 0.3;

/// What must be won before it changes.
const GAIN: f64 = 0.95;

/// Weight of what was measured last.
const WEIGHT: f64 = 0.25;

/// A block that has left the source.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Left {
    /// Bytes before and after coding.
    pub(crate) raw: usize,
    pub(crate) wire: usize,
    /// Time for reading and hashing.
    pub(crate) own: Duration,
    /// Time until somebody took it.
    pub(crate) waited: Duration,
    /// Time since the block before.
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

/// Measures the stages, and says when to compress.
#[derive(Debug, Default)]
pub(crate) struct Pays {
    is_on: bool,
    /// Off for one interval, to measure the network.
    is_rechecking: bool,
    unwaited: u32,
    blocks: u64,
    settling: u64,
    sum: Sum,
    /// The network is slower than the source's thread, and than what hosts do.
    may_pay: bool,
    /// Bytes after compression for each before it.
    ratio: Option<f64>,
    /// Seconds a raw byte: compressing; reading and hashing.
    cost: Option<f64>,
    own: f64,
    /// Seconds a byte on the wire, at most.
    network: f64,
}

fn blend(mean: &mut Option<f64>, value: f64) {
    *mean = Some(mean.map_or(value, |mean| mean + WEIGHT * (value - mean)));
}

impl Pays {
    /// Whether to compress the next block.
    pub(crate) fn wants(&mut self) -> bool {
        self.blocks += 1;
        self.is_on || (self.may_pay && self.blocks.is_multiple_of(SAMPLE_INTERVAL))
    }

    /// A block was compressed.
    pub(crate) fn on_compressed(&mut self, raw: usize, coded: usize, took: Duration) {
        if raw > 0 {
            blend(&mut self.ratio, (coded as f64 / raw as f64).min(1.0));
            blend(&mut self.cost, took.as_secs_f64() / raw as f64);
        }
    }

    /// A block has left; `hosts_are_busy` where one of them is bounded by its disk or its processor.
    pub(crate) fn on_left(&mut self, left: Left, hosts_are_busy: bool) {
        if self.settling > 0 {
            self.settling = self.settling.saturating_sub(left.raw as u64);
            return;
        }
        self.sum.raw += left.raw as u64;
        self.sum.wire += left.wire as u64;
        self.sum.own += left.own.as_secs_f64();
        self.sum.waited += left.waited.as_secs_f64();
        self.sum.passed += left.passed.as_secs_f64();
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
        self.may_pay = is_waiting && !hosts_are_busy;
        self.unwaited = match self.is_on && !is_waiting {
            true => self.unwaited + 1,
            false => 0,
        };
        let pays = self.would_pay() && !hosts_are_busy;
        let is_due = self.unwaited >= RECHECK_INTERVALS;
        self.is_rechecking = pays && is_due;
        if is_due {
            self.unwaited = 0;
        }
        self.turn(pays && !is_due);
    }

    /// The slowest stage would become faster, or is so.
    fn would_pay(&self) -> bool {
        let (Some(ratio), Some(cost)) = (self.ratio, self.cost) else {
            return false;
        };
        let with = (self.own + cost).max(ratio * self.network);
        let without = self.own.max(self.network);
        with < GAIN * without
    }

    fn turn(&mut self, on: bool) {
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

    /// A cast whose stages take so many ms a block: the source's own, compressing, the network.
    struct Cast {
        pays: Pays,
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
                pays: Pays::default(),
                own,
                cost,
                network,
                coded,
                hosts: 0.0,
            }
        }

        /// Sends `count` blocks; the share of the last quarter that was compressed.
        fn send(&mut self, count: u32) -> f64 {
            let mut compressed = 0;
            for index in 0..count {
                let ms = |ms: f64| Duration::from_secs_f64(ms / 1e3);
                let mut own = self.own;
                let mut wire = LEN;
                if self.pays.wants() {
                    compressed += u32::from(index >= count - count / 4);
                    own += self.cost;
                    wire = self.coded as usize;
                    self.pays.on_compressed(LEN, wire, ms(self.cost));
                }
                let others = (self.network * wire as f64 / LEN as f64).max(self.hosts);
                let left = Left {
                    raw: LEN,
                    wire,
                    own: ms(self.own),
                    waited: ms((others - own).max(0.0)),
                    passed: ms(own.max(others)),
                };
                self.pays.on_left(left, self.hosts > own.max(others - 0.01));
            }
            f64::from(compressed) / f64::from(count / 4)
        }
    }

    #[test]
    fn a_slow_network_is_made_faster() {
        let mut cast = Cast::new(0.5, 2.0, 9.0, 400_000);
        assert!(cast.send(400) > 0.99);
    }

    #[test]
    fn what_is_fast_already_is_left_alone() {
        // The network is faster than compression.
        assert!(Cast::new(0.5, 2.0, 1.0, 400_000).send(400) < 0.2);
        // The source's own thread is the slowest: nothing is even tried.
        assert!(Cast::new(3.0, 2.0, 1.0, 400_000).send(400) < 0.01);
    }

    #[test]
    fn blocks_that_do_not_shrink_go_raw_but_for_samples() {
        assert!(Cast::new(0.5, 2.0, 9.0, 1 << 20).send(400) < 0.2);
    }

    #[test]
    fn where_hosts_are_the_slowest_it_would_only_cost() {
        let mut cast = Cast::new(0.5, 2.0, 4.0, 400_000);
        cast.hosts = 10.0;
        assert!(cast.send(400) < 0.01);
    }

    #[test]
    fn it_follows_a_network_that_changes() {
        let mut cast = Cast::new(0.5, 2.0, 9.0, 200_000);
        assert!(cast.send(400) > 0.99);
        cast.network = 0.6;
        assert!(cast.send(1600) < 0.2);
        cast.network = 9.0;
        assert!(cast.send(400) > 0.99);
    }
}
