// SPDX-License-Identifier: MIT OR Apache-2.0
//! Plan of a run: all parameters, drawn from the seed before the run starts.

use crate::clock::Clock;
use portolan::binding::simulated::SimParams;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU64;
use std::time::Duration;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

/// Longest message of the traffic, in bytes.
const MESSAGE_LEN_MAX: usize = 300_000;

/// Bytes that one put or get moves at most.
const SLOT_LEN: usize = 40_000;

/// Messages from one process to another, all with one tag.
#[derive(Clone, Debug)]
pub(super) struct Flow {
    pub(super) src: u32,
    pub(super) dst: u32,
    pub(super) kind: FlowKind,
    pub(super) count: u32,
    pub(super) len_min: usize,
    pub(super) len_max: usize,
    pub(super) start_ns: u64,
    /// Messages per turn, and time between bursts.
    pub(super) burst: u32,
    pub(super) gap_ns: u64,
    /// Receives kept posted, and time before the first one.
    pub(super) depth: u32,
    pub(super) post_ns: u64,
    /// Set if receives name their source.
    pub(super) is_sourced: bool,
    /// Set if sends complete only when the receiver has the message.
    pub(super) delivered: bool,
    /// Set if messages are copied when they are sent, if they are short enough.
    pub(super) injects: bool,
}

/// Kind of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FlowKind {
    Tagged,
    /// Tagged, with bits that the receiver ignores.
    Masked,
    Active,
    Put,
    /// Put with immediate data, of which the target is notified.
    PutNotified,
    Get,
}

/// Disturbance of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fault {
    pub(super) node: u32,
    pub(super) at_ns: u64,
    pub(super) kind: FaultKind,
}

/// Kind of a disturbance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FaultKind {
    /// The process ends. Its host reports that, or fails with it.
    Kill { host_lives: bool },
    /// The process closes and ends.
    Leave,
    /// The process stands still.
    Pause { for_ns: u64 },
    /// The cable is cut.
    Cut { for_ns: u64 },
}

/// Kind of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Endpoints,
    /// Ranks of a job, which make this many rounds of collective operations.
    Job {
        rounds: u32,
    },
}

/// Parameters of a run.
#[derive(Clone, Debug)]
pub struct EnginePlan {
    pub(super) seed: u64,
    pub(super) kind: Kind,
    pub(super) nodes: u32,
    pub(super) net: SimParams,
    pub(super) options: BTreeMap<String, String>,
    pub(super) clocks: Vec<Clock>,
    /// Processor time of a turn, and of each frame or completion in it.
    pub(super) turn_ns: u64,
    pub(super) item_ns: u64,
    /// Longest time from an event to the turn of a process that sleeps.
    pub(super) wake_ns: u64,
    /// Empty turns before a process sleeps.
    pub(super) spin_turns: u32,
    /// Share of turns after which a program computes, and for how long at most.
    pub(super) compute_share: f64,
    pub(super) compute_ns: u64,
    pub(super) probe_loss: f64,
    pub(super) flows: Vec<Flow>,
    pub(super) faults: Vec<Fault>,
    /// Time after the last work and fault by which everything must have ended.
    pub(super) settle_ns: u64,
}

impl EnginePlan {
    /// Draws the plan of `seed`.
    #[must_use]
    pub fn draw(seed: u64) -> EnginePlan {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let rng = &mut rng;
        let kind = match rng.random_bool(0.4) {
            true => Kind::Job {
                rounds: rng.random_range(1..=12),
            },
            false => Kind::Endpoints,
        };
        let nodes = match rng.random_bool(0.1) {
            true => rng.random_range(9..=33),
            false => rng.random_range(2..=8),
        };
        let mut plan = EnginePlan {
            seed,
            kind,
            nodes,
            net: draw_net(rng),
            options: draw_options(seed, rng),
            clocks: (0..nodes).map(|_| draw_clock(rng)).collect(),
            turn_ns: rng.random_range(200..2000),
            item_ns: rng.random_range(100..2000),
            wake_ns: *[2 * US, 60 * US, MS, 20 * MS].choose(rng).unwrap_or(&US),
            spin_turns: *[1, 8, 40].choose(rng).unwrap_or(&8),
            compute_share: *[0.0, 0.0, 0.01, 0.2].choose(rng).unwrap_or(&0.0),
            compute_ns: *[20 * US, 3 * MS, 70 * MS].choose(rng).unwrap_or(&MS),
            probe_loss: *[0.0, 0.0, 0.1, 0.4].choose(rng).unwrap_or(&0.0),
            flows: Vec::new(),
            faults: Vec::new(),
            settle_ns: 0,
        };
        for _ in 0..rng.random_range(1..=plan.nodes * 2) {
            plan.draw_flow(rng);
        }
        plan.draw_faults(rng);
        plan.settle_ns = plan.time_limit();
        plan
    }

    fn draw_flow(&mut self, rng: &mut ChaCha8Rng) {
        let kinds = [
            FlowKind::Tagged,
            FlowKind::Tagged,
            FlowKind::Masked,
            FlowKind::Active,
            FlowKind::Put,
            FlowKind::PutNotified,
            FlowKind::Get,
        ];
        let kind = match self.kind {
            Kind::Endpoints => *kinds.choose(rng).unwrap_or(&FlowKind::Tagged),
            Kind::Job { .. } => FlowKind::Tagged,
        };
        let len_most = match kind {
            FlowKind::Put | FlowKind::PutNotified | FlowKind::Get => SLOT_LEN,
            _ => MESSAGE_LEN_MAX,
        };
        let len_max = *[8, 100, 1400, 9000, 64_000, MESSAGE_LEN_MAX]
            .choose(rng)
            .unwrap_or(&8);
        let len_max = len_max.min(len_most);
        let count_max = (600_000 / len_max.max(1)).clamp(3, 200);
        let src = rng.random_range(0..self.nodes);
        self.flows.push(Flow {
            src,
            dst: (src + rng.random_range(1..self.nodes)) % self.nodes,
            kind,
            count: rng.random_range(1..=u32::try_from(count_max).unwrap_or(3)),
            len_min: if rng.random_bool(0.5) { 0 } else { len_max / 2 },
            len_max,
            start_ns: rng.random_range(0..20 * MS),
            burst: *[1, 1, 4, 40].choose(rng).unwrap_or(&1),
            gap_ns: *[0, 3 * US, 500 * US, 8 * MS].choose(rng).unwrap_or(&0),
            depth: *[1, 2, 16, 200].choose(rng).unwrap_or(&1),
            post_ns: *[0, 0, 50 * US, 30 * MS].choose(rng).unwrap_or(&0),
            is_sourced: rng.random_bool(0.7),
            delivered: rng.random_bool(0.2),
            injects: rng.random_bool(0.5),
        });
    }

    fn draw_faults(&mut self, rng: &mut ChaCha8Rng) {
        if rng.random_bool(0.5) {
            return;
        }
        for _ in 0..rng.random_range(1..=2) {
            let node = rng.random_range(0..self.nodes);
            if self.faults.iter().any(|fault| fault.node == node) {
                continue;
            }
            // Far shorter than the time after which a silent peer is given up.
            let for_ns = rng.random_range(1..400) * MS;
            let kind = match rng.random_range(0..8) {
                0 | 1 => FaultKind::Kill { host_lives: true },
                2 => FaultKind::Kill { host_lives: false },
                3 | 4 if self.kind == Kind::Endpoints => FaultKind::Leave,
                5 => FaultKind::Cut { for_ns },
                _ => FaultKind::Pause { for_ns },
            };
            // Half of the faults strike while the process sends.
            let sends = self.flows.iter().filter(|flow| flow.src == node);
            let start_ns = sends.map(|flow| flow.start_ns).max();
            let at_ns = match start_ns.filter(|_| rng.random_bool(0.5)) {
                Some(start_ns) => start_ns + rng.random_range(0..MS),
                None => rng.random_range(0..60 * MS),
            };
            self.faults.push(Fault { node, at_ns, kind });
        }
    }

    /// Returns the time by which everything ends after the last work and fault. A process that has
    /// ended and was never heard of is given up last (`P9.5`): after 10 min between endpoints. Others
    /// are lost after a minute of silence (`P9.3`).
    fn time_limit(&self) -> u64 {
        let ends = |fault: &Fault| matches!(fault.kind, FaultKind::Kill { .. } | FaultKind::Leave);
        let seconds = match (self.faults.iter().any(ends), self.kind) {
            (false, _) => 40,
            (true, Kind::Job { .. }) => 130,
            (true, Kind::Endpoints) => 700,
        };
        seconds * 1_000_000_000
    }

    /// Returns the flows of `node`, as sender or as receiver, with their numbers.
    pub(super) fn flows_of(&self, node: u32) -> impl Iterator<Item = (usize, &Flow)> {
        let flows = self.flows.iter().enumerate();
        flows.filter(move |(_, flow)| flow.src == node || flow.dst == node)
    }
}

impl Flow {
    /// Returns the number that identifies a message of the flow with number `index`, which
    /// determines its bytes.
    pub(super) fn id(index: usize, seq: u32) -> u64 {
        (index as u64 + 1) << 32 | u64::from(seq)
    }

    /// Returns the length of a message in bytes.
    pub(super) fn len(&self, index: usize, seq: u32) -> usize {
        let mixed = Flow::id(index, seq).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33;
        let span = (self.len_max - self.len_min + 1) as u64;
        self.len_min + usize::try_from(mixed % span).unwrap_or(0)
    }

    pub(super) fn is_remote(&self) -> bool {
        use FlowKind::{Get, Put, PutNotified};
        matches!(self.kind, Put | PutNotified | Get)
    }
}

fn draw_net(rng: &mut ChaCha8Rng) -> SimParams {
    let shortest = *[1, 5, 50, 500].choose(rng).unwrap_or(&5);
    let longest = shortest * *[1, 1, 2, 20].choose(rng).unwrap_or(&1);
    let rates = [None, None, Some(125_000_000), Some(1_250_000_000)];
    let rate = rates.choose(rng).copied().flatten();
    SimParams {
        frame_len_max: *[1472, 1472, 8972, 600].choose(rng).unwrap_or(&1472),
        segments_max: *[1, 44].choose(rng).unwrap_or(&44),
        queue_frames_max: *[64, 4096].choose(rng).unwrap_or(&4096),
        delay: (
            Duration::from_micros(shortest),
            Duration::from_micros(longest),
        ),
        loss: *[0.0, 0.0, 0.001, 0.02, 0.1].choose(rng).unwrap_or(&0.0),
        duplicate: *[0.0, 0.0, 0.01].choose(rng).unwrap_or(&0.0),
        rate_bytes_per_sec: rate.and_then(NonZeroU64::new),
        port_buffer_len: *[16 << 10, 64 << 10, 1 << 20].choose(rng).unwrap_or(&65_536),
        ..SimParams::default()
    }
}

fn draw_options(seed: u64, rng: &mut ChaCha8Rng) -> BTreeMap<String, String> {
    let mut options = BTreeMap::new();
    let mut add = |name: &str, value: &str| options.insert(name.to_owned(), value.to_owned());
    if rng.random_bool(0.2) {
        add("auth", "aead");
    }
    if rng.random_bool(0.3) {
        add("peer_timeout", "5s");
    }
    if rng.random_bool(0.2) {
        add("schedule", "fair");
    }
    // Not drawn, so that known seeds keep the rest of their plans.
    if seed % 3 == 1 {
        add("fragments", "4000:128,12K:500,64K:900");
    }
    options
}

fn draw_clock(rng: &mut ChaCha8Rng) -> Clock {
    Clock {
        offset_ns: rng.random_range(1..1 << 50),
        drift_ppm: rng.random_range(-50..=50),
    }
}

impl fmt::Display for EnginePlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "seed {}: {} processes, {:?}; {:?}; {:?}; turns of {} ns and {} ns an item, wake within {} \
             us, {} empty turns, computing {} of turns for {} us; probes lost {}",
            self.seed,
            self.nodes,
            self.kind,
            self.options,
            self.net,
            self.turn_ns,
            self.item_ns,
            self.wake_ns / US,
            self.spin_turns,
            self.compute_share,
            self.compute_ns / US,
            self.probe_loss,
        )?;
        for (index, flow) in self.flows.iter().enumerate() {
            writeln!(f, "  flow {index}: {flow:?}")?;
        }
        for fault in &self.faults {
            writeln!(f, "  {fault:?}")?;
        }
        Ok(())
    }
}
