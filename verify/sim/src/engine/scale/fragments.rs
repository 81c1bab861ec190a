// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lone messages and streams in whole and in short frames, as in Figures 5 and 6 of the paper on
//! GAMMA and Gigabit Ethernet.
//!
//! Two endpoints are connected by three stages of 1 Gb/s: a bus, a cable, and the other end's bus.
//! Each stage forwards a frame once all of it has arrived, as in the paper's machines.

use super::crowd::CrowdConfig;
use super::programs::{Load, Sender, Shared};
use portolan::binding::model::{PathModel, Stage, Stages};
use portolan::binding::simulated::SimParams;
use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU64;
use std::time::Duration;

/// Bytes per second of each stage: Gigabit Ethernet.
const RATE_BYTES_PER_SEC: u64 = 125_000_000;

/// Stages beside the two cables of the simulated network. The receiver's cable stands for its bus.
const FURTHER_STAGES: usize = 1;

/// Time of an empty message, near the paper's 9.5 µs.
const LATENCY: Duration = Duration::from_micros(8);

/// Bytes of a frame on a stage that are not message: Ethernet with preamble and gap, IPv4, UDP, and
/// the headers of frame and fragment.
const HEADERS_LEN: f64 = 66.0 + 40.0;

/// Message bytes in the longest frame.
const FRAME_LEN: u64 = 1432;

/// Frame lengths between which the model chooses: the granularity of the paper's Table 4.
const FRAME_LENS: [u64; 10] = [128, 256, 384, 512, 640, 768, 896, 1024, 1152, 1280];

/// Message lengths with several frames.
const LENS: [usize; 8] = [1500, 2000, 3000, 5000, 8000, 12_000, 20_000, 60_000];

/// Rows of the paper's Table 4 but the last, of whole frames.
const PRINTED: &str = "512:128,1664:256,5148:384,11000:768,12000:896";

/// Longest frame in bytes of the stream with short frames throughout: the least that a path has.
const SHORT_FRAME_LEN: usize = 512;

/// Lone messages of a figure, and the time between them: longer than that of a delayed
/// acknowledgement.
const LONE_COUNT: u32 = 40;
const LONE_GAP_NS: u64 = 3_000_000;

/// Bytes of a stream, as in the paper.
const STREAM_LEN: usize = 10_000_000;

/// Figures of one message length.
#[derive(Clone, Debug)]
pub struct FragmentsRow {
    /// Message bytes.
    pub len: usize,
    /// Message bytes in a frame by the model; 0 for whole frames.
    pub frame_len: u64,
    /// Microseconds of a lone message: in whole frames, by the model, by the paper's table.
    pub lone_us: [f64; 3],
    /// Megabytes per second of a stream: in whole frames, by the model, in short frames throughout.
    pub stream_mb_s: [f64; 3],
    /// Frames sent with each of these streams, acknowledgements included.
    pub stream_frames: [u64; 3],
}

impl FragmentsRow {
    /// Returns the header of the table.
    #[must_use]
    pub fn header() -> &'static str {
        "| message, B | frame by model, B | lone, whole, MB/s | by model | by Table 4 | stream, whole, MB/s | by \
         model | frames of 512 B |\n| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    }
}

impl fmt::Display for FragmentsRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "| {} | {} |", self.len, self.frame_len)?;
        let whole = self.lone_us[0];
        write!(f, " {:.1} |", self.len as f64 / whole)?;
        for us in &self.lone_us[1..] {
            let gain = (whole / us - 1.0) * 100.0;
            write!(f, " {:.1} ({gain:+.0} %) |", self.len as f64 / us)?;
        }
        for rate in self.stream_mb_s {
            write!(f, " {rate:.1} |")?;
        }
        Ok(())
    }
}

/// Returns the figures of all message lengths.
pub fn in_fragments() -> impl Iterator<Item = FragmentsRow> {
    LENS.into_iter().map(row)
}

/// Returns the value of the setting `fragments` by the model of the stages.
#[must_use]
pub fn fragments_table() -> String {
    let mut steps: Vec<(usize, u64)> = Vec::new();
    for len in LENS {
        let frame_len = frame_len_of(len);
        match steps.last_mut() {
            Some(last) if last.1 == frame_len => last.0 = len,
            _ => steps.push((len, frame_len)),
        }
    }
    let steps = steps.iter().filter(|(_, frame_len)| *frame_len > 0);
    let steps: Vec<String> = steps.map(|(len, frame)| format!("{len}:{frame}")).collect();
    steps.join(",")
}

/// Returns the frame length by the model of the stages; 0 for whole frames.
fn frame_len_of(len: usize) -> u64 {
    let per_byte_ns = 1e9 / RATE_BYTES_PER_SEC as f64;
    let stage = Stage {
        per_call_us: HEADERS_LEN * per_byte_ns / 1e3,
        per_datagram_us: 0.0,
        per_byte_ns,
    };
    let model = PathModel {
        path: "packet".into(),
        frame_len: FRAME_LEN,
        datagram_len: FRAME_LEN,
        call_len: FRAME_LEN,
        eager_len_bound: 64 << 10,
        eager: Stages {
            sender: stage,
            wire: stage,
            receiver: stage,
            ..Stages::default()
        },
        rendezvous: None,
        rendezvous_us: 0.0,
        further_call_us: 0.0,
        far: Vec::new(),
        far_streaming: Vec::new(),
    };
    model.best_frame_len(len as u64, &FRAME_LENS, 0.0)
}

fn row(len: usize) -> FragmentsRow {
    let table = fragments_table();
    let policies = ["whole", &table, PRINTED];
    let lone_us = policies.map(|policy| {
        let load = Load {
            count: LONE_COUNT,
            len,
            gap_ns: LONE_GAP_NS,
        };
        run(load, &crowd_config(policy)).0.delay_us()
    });
    let load = Load {
        count: u32::try_from(STREAM_LEN / len).unwrap_or(u32::MAX),
        len,
        gap_ns: 0,
    };
    let mut short = crowd_config("whole");
    short.net.frame_len_max = SHORT_FRAME_LEN;
    let streams = [crowd_config("whole"), crowd_config(&table), short];
    let streams = streams.map(|crowd_config| run(load, &crowd_config));
    let rate = |shared: &Shared| len as f64 / shared.interval_us();
    FragmentsRow {
        len,
        frame_len: frame_len_of(len),
        lone_us,
        stream_mb_s: streams.each_ref().map(|(shared, _)| rate(shared)),
        stream_frames: streams.each_ref().map(|(_, frames)| *frames),
    }
}

fn crowd_config(fragments: &str) -> CrowdConfig {
    CrowdConfig {
        net: SimParams {
            delay: (LATENCY, LATENCY),
            rate_bytes_per_sec: NonZeroU64::new(RATE_BYTES_PER_SEC),
            stage_count: FURTHER_STAGES,
            // No loss: the paper's cable had no switch.
            port_buffer_len: 64 << 20,
            ..SimParams::default()
        },
        options: BTreeMap::from([("fragments".to_owned(), fragments.to_owned())]),
    }
}

/// Sends `load` from one endpoint to the other. Returns the record, and the frames of both.
fn run(load: Load, crowd_config: &CrowdConfig) -> (Shared, u64) {
    let shared = Shared::new(2);
    let targets = |node: u32| if node == 0 { vec![1] } else { Vec::new() };
    let mut crowd = Sender::crowd(2, &shared, load, crowd_config, targets);
    crowd.run_until_done();
    // The last messages and acknowledgements arrive.
    crowd.run_for(LONE_GAP_NS);
    (shared, crowd.stats().sent)
}
