// SPDX-License-Identifier: MIT OR Apache-2.0
//! Streams in a plan: whether they are used, their parameters, and their failures.

use super::{Flow, MS, NODES_MAX, Plan};
use portolan_proto::{LaneId, StreamUse};
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::fmt;

/// Length in bytes of a message of a few parts.
const LONG_LEN_MAX: usize = 700_000;

/// Parameters of the streams of a run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StreamPlan {
    /// Set if parts have checksums.
    pub(crate) has_sums: bool,
    /// Set if sent pages are read when the receiver takes them, otherwise when they reach the
    /// receiver's system. The former happens between namespaces of one host; parts have checksums
    /// there (P13.4).
    pub(crate) references_pages: bool,
    /// Bytes that a connection accepts before it is full.
    pub(crate) buffer_len: usize,
    /// Bandwidth in bytes per second.
    pub(crate) bandwidth: u64,
    pub(crate) latency_ns: u64,
    /// Maximum number of bytes received by one call.
    pub(crate) piece_len_max: usize,
    /// Time without use after which, or after at most twice of which, an end closes.
    pub(crate) idle_ns: u64,
    /// Shares of attempts that are refused, and that get no answer.
    pub(crate) refused: f64,
    pub(crate) dropped: f64,
    /// Share of pieces with a flipped bit that TCP's checksum does not detect; 0 if parts have no
    /// checksums.
    pub(crate) corrupt: f64,
    /// Share of connections that break, and the time within which they do.
    pub(crate) broken: f64,
    pub(crate) broken_ns: u64,
    /// Share of parts that are delayed, with all parts after them, and the delay.
    pub(crate) stalled: f64,
    pub(crate) stall_ns: u64,
}

impl Plan {
    pub(super) fn draw_streams(&mut self, seed: u64) {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(u64::from(NODES_MAX) + 9);
        let rng = &mut rng;
        self.predicts = rng.random_bool(0.5);
        if rng.random_bool(0.4) {
            return;
        }
        let usages = [StreamUse::On, StreamUse::On, StreamUse::Auto];
        self.limits.stream = *usages.choose(rng).unwrap_or(&StreamUse::On);
        let mut pick = |values: &[u64]| *values.choose(rng).unwrap_or(&1);
        let buffer_len = pick(&[64 << 10, 512 << 10, 4 << 20]);
        let piece_len_max = pick(&[4000, 60_000, 1 << 20]);
        let mut streams = StreamPlan {
            buffer_len: usize::try_from(buffer_len).unwrap_or(usize::MAX),
            piece_len_max: usize::try_from(piece_len_max).unwrap_or(usize::MAX),
            bandwidth: pick(&[20_000_000, 1_000_000_000, 5_000_000_000]),
            latency_ns: pick(&[1000, 20_000, 500_000]),
            idle_ns: pick(&[MS / 2, 10 * MS, 2000 * MS]),
            broken_ns: pick(&[MS, 20 * MS, 500 * MS]),
            stall_ns: pick(&[MS, 200 * MS]),
            ..StreamPlan::default()
        };
        let mut share = |values: &[f64]| *values.choose(rng).unwrap_or(&0.0);
        streams.refused = share(&[0.0, 0.0, 0.3, 1.0]);
        streams.dropped = share(&[0.0, 0.0, 0.3]);
        streams.broken = share(&[0.0, 0.5, 1.0]);
        streams.stalled = share(&[0.0, 0.02, 0.2]);
        streams.references_pages = rng.random_bool(0.6);
        streams.has_sums = streams.references_pages || rng.random_bool(0.5);
        if streams.has_sums {
            streams.corrupt = *[0.0, 0.0, 0.01, 0.3].choose(rng).unwrap_or(&0.0);
        }
        self.streams = Some(streams);
        for _ in 0..rng.random_range(0..=3) {
            self.draw_long(rng);
        }
        for _ in 0..rng.random_range(0..=3) {
            self.draw_eager(rng);
        }
    }

    /// Draws consecutive long messages, of which all but the first find an open stream.
    fn draw_long(&mut self, rng: &mut ChaCha8Rng) {
        self.draw_consecutive(rng, [70_000, 300_000, LONG_LEN_MAX]);
    }

    /// Draws consecutive messages of some or several frames, with short ones among them. They are
    /// sent eagerly, if the limits of the run allow that.
    fn draw_eager(&mut self, rng: &mut ChaCha8Rng) {
        self.draw_consecutive(rng, [3000, 16_000, 65_536]);
    }

    fn draw_consecutive(&mut self, rng: &mut ChaCha8Rng, lens: [usize; 3]) {
        let src = rng.random_range(0..self.nodes);
        let dst = (src + rng.random_range(1..self.nodes)) % self.nodes;
        let draw = |rng: &mut ChaCha8Rng| *lens.choose(rng).unwrap_or(&LONG_LEN_MAX);
        let Some(flow) = Flow::to_some_port(&mut self.ports, rng, (src, dst), draw) else {
            return;
        };
        let count = rng.random_range(5..=40_u32);
        self.flows.push(Flow {
            lane: *LaneId::ALL.choose(rng).unwrap_or(&LaneId::Low),
            count,
            len_min: flow.len_max / 8,
            burst: *[1, 1, 4].choose(rng).unwrap_or(&1),
            gap_ns: rng.random_range(1000..2000 + self.traffic_ns / u64::from(count)),
            start_ns: rng.random_range(0..self.traffic_ns / 4 + 1),
            ..flow
        });
    }
}

impl fmt::Display for StreamPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pages = if self.references_pages {
            "pages referenced, "
        } else {
            ""
        };
        let sums = if self.has_sums { "sums, " } else { "" };
        let (refused, dropped) = (self.refused, self.dropped);
        write!(
            f,
            "streams of {} KiB and {} MB/s ({pages}{sums}{refused} refused, {dropped} not answered, \
             {} broken within {} ms, {} late, idle after {} µs)",
            self.buffer_len >> 10,
            self.bandwidth / 1_000_000,
            self.broken,
            self.broken_ns / MS,
            self.stalled,
            self.idle_ns / 1000
        )
    }
}
