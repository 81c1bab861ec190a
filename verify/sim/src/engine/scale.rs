// SPDX-License-Identifier: MIT OR Apache-2.0
//! Thousands of processes in one thread: figures of the engine that ships beside the ideal of the
//! simulated network.
//!
//! All processes are on one switch with cables of 10 Gb/s and a small buffer for each port. The figures
//! are of virtual time, so they are the same on every machine. Only the memory is that of this one.

mod compare;
mod crowd;
mod fragments;
mod programs;
mod reference;
mod scheduled;
mod traffic;

pub use compare::{CompareRow, compare};

use crowd::CrowdConfig;
use crowd::{LATENCY_NS, RATE_BYTES_PER_SEC, TURN_NS};
use portolan::binding::simulated::SimStats;
use programs::{Load, Rank, Sender, Shared};
use std::fmt;

pub use fragments::{FragmentsRow, fragments_table, in_fragments};

/// Bytes of the headers of a message in a frame of its own, on the cable: Ethernet with preamble and
/// gap, IPv4, UDP, and the protocol's own.
const MESSAGE_OVERHEAD_LEN: u64 = 66 + 32;

/// Rounds of a collective operation, of which the first opens the sessions.
const ROUNDS: u32 = 11;

/// One line of the table.
#[derive(Clone, Debug)]
pub struct ScaleRow {
    /// Name of the workload.
    pub what: String,
    /// Virtual time in microseconds.
    pub time_us: f64,
    /// Time that the network and the processor need at least, in microseconds.
    pub ideal_us: f64,
    /// 99th percentile of the time from a send to its arrival, in microseconds.
    pub p99_us: f64,
    /// Jain's index of the senders' throughputs: 1 if all are equal.
    pub fairness: f64,
    /// Frames sent, and lost at a full buffer of the switch or of a receiver.
    pub frames: u64,
    /// Frames lost at a full buffer.
    pub overflowed: u64,
    /// Resident memory of this process in bytes for each session end, or for each rank of each rank's
    /// job. It includes the share of the processes' own memory, and what the allocator keeps after
    /// peers have become dormant.
    pub memory_len: u64,
}

impl ScaleRow {
    /// Returns the header of the table.
    #[must_use]
    pub fn header() -> &'static str {
        "| what | time, µs | ideal, µs | ratio | p99, µs | Jain | frames | lost to full buffers | resident \
         a peer, B |\n| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    }
}

impl fmt::Display for ScaleRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "| {} | {:.1} | {:.1} | {:.2} | {:.1} | {:.3} | {} | {} | {} |",
            self.what,
            self.time_us,
            self.ideal_us,
            self.time_us / self.ideal_us,
            self.p99_us,
            self.fairness,
            self.frames,
            self.overflowed,
            self.memory_len,
        )
    }
}

/// Sends a message of 8 bytes from each of `nodes` endpoints to each of the next `partners`.
#[must_use]
pub fn all_to_all(nodes: u32, partners: u32) -> ScaleRow {
    let partners = partners.min(nodes - 1);
    let load = Load {
        count: 1,
        len: 8,
        gap_ns: 0,
    };
    let before = resident_len();
    let shared = Shared::new(nodes);
    let targets = |node: u32| (1..=partners).map(|step| (node + step) % nodes).collect();
    let mut crowd = Sender::crowd(nodes, &shared, load, &CrowdConfig::default(), targets);
    crowd.run_until_done();
    let wire_ns = frame_ns(load.len) * u64::from(partners);
    let mut row = shared.row(&crowd, wire_ns + LATENCY_NS);
    row.what = match partners == nodes - 1 {
        true => format!("all-to-all of {nodes}, 8 B"),
        false => format!("{nodes} endpoints, 8 B to {partners} others each"),
    };
    // Dormant after a second, with the time of a delayed acknowledgement.
    crowd.run_for(3_000_000_000);
    let pairs = u64::from(nodes) * u64::from(partners) * 2;
    row.memory_len = resident_len().saturating_sub(before) / pairs;
    row
}

/// Sends `load` from each of `senders` endpoints to one.
#[must_use]
pub fn incast(senders: u32, is_long: bool) -> ScaleRow {
    let load = match is_long {
        true => Load {
            count: 1,
            len: 256 << 10,
            gap_ns: 0,
        },
        false => Load {
            count: 64,
            len: 1000,
            gap_ns: 0,
        },
    };
    let before = resident_len();
    let shared = Shared::new(senders + 1);
    let targets = |node: u32| if node == 0 { Vec::new() } else { vec![0] };
    let mut crowd = Sender::crowd(senders + 1, &shared, load, &CrowdConfig::default(), targets);
    crowd.run_until_done();
    let bytes = u64::from(load.count) * load.len as u64;
    let payload_max = 1400;
    let frames = (load.len as u64).div_ceil(payload_max) * u64::from(load.count);
    let on_wire = (bytes + frames * MESSAGE_OVERHEAD_LEN) * u64::from(senders);
    let mut row = shared.row(
        &crowd,
        on_wire * 1_000_000_000 / RATE_BYTES_PER_SEC + LATENCY_NS,
    );
    row.what = format!("incast of {senders}, {} × {} B", load.count, load.len);
    crowd.run_for(3_000_000_000);
    row.memory_len = resident_len().saturating_sub(before) / (u64::from(senders) * 2);
    row
}

/// Makes rounds of a collective operation of `nodes` ranks: a barrier, or a sum of 8 bytes.
#[must_use]
pub fn collective(nodes: u32, is_barrier: bool) -> ScaleRow {
    let before = resident_len();
    let shared = Shared::new(nodes);
    let mut crowd = Rank::crowd(nodes, &shared, is_barrier, ROUNDS);
    crowd.run_until_done();
    let steps = u64::from(nodes.next_power_of_two().trailing_zeros());
    // Each step is a message in a frame of its own, and a turn at either end.
    let ideal_ns = steps * (LATENCY_NS + 2 * frame_ns(8) + 2 * TURN_NS);
    let mut row = shared.row(&crowd, ideal_ns);
    row.time_us = shared.round_us(ROUNDS);
    row.memory_len = resident_len().saturating_sub(before) / u64::from(nodes) / u64::from(nodes);
    row.what = match is_barrier {
        true => format!("barrier of {nodes}"),
        false => format!("allreduce of {nodes}, 8 B"),
    };
    row
}

/// Lets every hundredth of `nodes` endpoints die, one after the other, while each sends to the next
/// eight.
#[must_use]
pub fn rolling_failure(nodes: u32) -> ScaleRow {
    let load = Load {
        count: 200,
        len: 64,
        gap_ns: 100_000,
    };
    let before = resident_len();
    let shared = Shared::new(nodes);
    let targets = |node: u32| (1..=8).map(|step| (node + step) % nodes).collect();
    let mut crowd = Sender::crowd(nodes, &shared, load, &CrowdConfig::default(), targets);
    for (index, node) in (0..nodes).step_by(100).enumerate() {
        crowd.kill_at(1_000_000 + 500_000 * index as u64, node);
    }
    crowd.run_until_done();
    let paced_ns = load.gap_ns * u64::from(load.count - 1);
    let mut row = shared.row(&crowd, paced_ns + LATENCY_NS);
    row.what = format!(
        "{nodes} endpoints, 64 B to 8 others each 100 µs, {} die",
        nodes.div_ceil(100)
    );
    row.memory_len = resident_len().saturating_sub(before) / (u64::from(nodes) * 16);
    row
}

/// Returns the time of a message in a frame of its own on a cable.
fn frame_ns(len: usize) -> u64 {
    (len as u64 + MESSAGE_OVERHEAD_LEN) * 1_000_000_000 / RATE_BYTES_PER_SEC
}

/// Returns the resident memory of this process in bytes.
fn resident_len() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split(' ').nth(1).and_then(|pages| pages.parse().ok());
    pages.unwrap_or(0_u64) * 4096
}

/// Returns the frames that were lost at a full buffer.
fn overflowed(stats: &SimStats) -> u64 {
    stats.overflowed + stats.unreceived
}
