// SPDX-License-Identifier: MIT OR Apache-2.0
//! Run of a plan: handles events in order, until everything has completed or a guarantee is
//! violated.

mod ends;
mod streams;

use crate::capture::Capture;
use crate::context::Context;
use crate::cuts::Cuts;
use crate::faults::{Fault, FaultKind, NEVER};
use crate::node::{Node, RegionCall};
use crate::queue::Happening;
use crate::trace::Trace;
use crate::{Canary, Plan};
use portolan_proto::{LaneId, PeerId};
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::time::Duration;

/// Time after the end of traffic and faults by which everything must have completed. It covers one
/// second of silence, one second of connecting in vain, and delays by loss.
const SETTLE_NS: u64 = 15_000_000_000;

/// Maximum number of events at one instant; more indicate a loop. The largest runs have a few per
/// process and frame.
const STILL_MAX: u32 = 1_000_000;

/// Interval of checks whether everything has completed.
const CHECK_INTERVAL_NS: u64 = 2_000_000;

/// Parameters of a run.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Seed from which everything is drawn.
    pub seed: u64,
    /// Number of processes, instead of the drawn one.
    pub nodes: Option<u32>,
    /// Time in which the programs create work, instead of the drawn one.
    pub duration: Option<Duration>,
    /// Print every event.
    pub trace: bool,
    /// Flip bits in headers, and check only survival.
    pub header_corruption: bool,
    /// Deliberate bug to add.
    pub canary: Option<Canary>,
    /// Parts of the drawn plan to leave out.
    pub without: Cuts,
    /// File to which sent frames are written.
    pub pcap: Option<PathBuf>,
}

impl Options {
    /// Returns the plan that these options describe.
    #[must_use]
    pub fn plan(&self) -> Plan {
        let duration = self
            .duration
            .map(|d| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX).max(1));
        let mut plan = Plan::draw(self.seed, self.nodes, duration, self.header_corruption);
        self.without.apply(&mut plan);
        plan
    }

    /// Returns the command that repeats the run.
    #[must_use]
    pub fn command(&self) -> String {
        let mut command = format!("portolan-sim --seed {}", self.seed);
        let mut add = |option: &str, value: Option<String>| {
            if let Some(value) = value {
                command += &format!(" --{option} {value}");
            }
        };
        add("nodes", self.nodes.map(|nodes| nodes.to_string()));
        let duration = self.duration.map(|duration| duration.as_millis());
        add("duration", duration.map(|millis| millis.to_string()));
        add("canary", self.canary.map(|canary| canary.name().to_owned()));
        let without = (!self.without.0.is_empty()).then(|| self.without.to_string());
        add("without", without);
        if self.header_corruption {
            command += " --header-corruption";
        }
        command
    }
}

/// Result of a run without a violation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Seed of the run.
    pub seed: u64,
    /// Number of processes.
    pub nodes: u32,
    /// Number of frames sent.
    pub frame_count: u64,
    /// Bytes in these frames.
    pub byte_count: u64,
    /// Bytes of messages received by streams.
    pub stream_byte_count: u64,
    /// Number of messages delivered.
    pub message_count: u64,
    /// Number of operations that failed, each for a reason explained by a fault.
    pub failed_count: u64,
    /// Number of frames retransmitted.
    pub retransmit_count: u64,
    /// Virtual time at the end.
    pub virtual_time: Duration,
    /// Hash over all events.
    pub trace_hash: u64,
    /// Times of frame losses at full receive buffers of processes.
    pub socket_losses: Vec<Duration>,
    /// Times of frame losses at full ports of the switch.
    pub switch_losses: Vec<Duration>,
    /// Maximum number of bytes queued at one port of the switch.
    pub switch_queue_len_max: u64,
    /// Mean number of bytes queued before a frame at such a port.
    pub switch_queue_len_mean: u64,
    /// Number of datagrams that switches have marked.
    pub marked_count: u64,
    /// Delivered messages of the programs, in order of delivery.
    pub deliveries: Vec<Arrival>,
}

/// Delivered message of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Virtual time of delivery.
    pub at: Duration,
    /// Sender.
    pub from: u32,
    /// Receiver.
    pub to: u32,
    /// Length in bytes.
    pub len: usize,
}

/// Violation of a guarantee.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Seed that reproduces it.
    pub seed: u64,
    /// Description of the violation.
    pub violation: String,
    /// Virtual time of the violation.
    pub at: Duration,
    /// Last events before it.
    pub last: Vec<String>,
    /// Drops of each process, by reason.
    pub drops: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.last {
            writeln!(f, "  {line}")?;
        }
        for line in &self.drops {
            writeln!(f, "{line}")?;
        }
        write!(f, "seed {} at {:?}: {}", self.seed, self.at, self.violation)
    }
}

impl std::error::Error for Failure {}

/// Runs one seed.
///
/// # Errors
/// [`Failure`] describes the first violation.
pub fn simulate(options: &Options) -> Result<Report, Box<Failure>> {
    simulate_plan(options.plan(), options)
}

/// Runs a plan that was made by hand, with the other options.
///
/// # Errors
/// [`Failure`] describes the first violation.
pub fn simulate_plan(plan: Plan, options: &Options) -> Result<Report, Box<Failure>> {
    // Not always the first opportunity; the seed selects one.
    let canary = options
        .canary
        .map(|canary| (canary, 1 + u32::try_from(plan.seed % 7).unwrap_or(0)));
    let capture = options.pcap.as_deref().map(Capture::create).transpose();
    let capture = capture.map_err(|error| {
        Box::new(Failure {
            seed: plan.seed,
            violation: format!("no run, since the capture file cannot be made: {error}"),
            at: Duration::ZERO,
            last: Vec::new(),
            drops: Vec::new(),
        })
    })?;
    let trace = Trace::new(options.trace, capture);
    let mut world = World::new(Context::new(plan, canary, trace));
    // A panic is a violation like any other: it must be reported with its seed.
    let run = std::panic::catch_unwind(AssertUnwindSafe(|| world.run()));
    if let Err(panic) = run {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        world
            .cx
            .violate_always(format!("panic: {}", text.unwrap_or("without words")));
    }
    world.finish()
}

struct World {
    cx: Context,
    nodes: Vec<Node>,
    done: bool,
    /// Events since virtual time last advanced.
    still: u32,
}

impl World {
    fn new(mut cx: Context) -> World {
        let nodes = (0..cx.plan.nodes).map(|id| Node::new(&cx, id)).collect();
        for node in 0..cx.plan.nodes {
            // No two processes start at the same instant.
            cx.queue
                .push(u64::from(node) * 1000, Happening::Wake { node });
        }
        for (index, fault) in cx.plan.faults.iter().enumerate() {
            cx.queue
                .push(fault.begin_ns, Happening::FaultBegins { index });
            if fault.end_ns != NEVER {
                cx.queue.push(fault.end_ns, Happening::FaultEnds { index });
            }
        }
        cx.queue.push(cx.quiet_ns, Happening::Check);
        World {
            cx,
            nodes,
            done: false,
            still: 0,
        }
    }

    fn run(&mut self) {
        while !self.done && self.cx.violation().is_none() {
            let Some((at, what)) = self.cx.queue.pop() else {
                return;
            };
            self.still = if at > self.cx.now { 0 } else { self.still + 1 };
            if self.still > STILL_MAX {
                self.cx.violate_always(format!(
                    "time stands still: {STILL_MAX} happenings in one nanosecond, now {what:?}"
                ));
            }
            self.cx.now = at;
            self.happen(what);
            self.make_region_calls();
            for node in std::mem::take(&mut self.cx.left) {
                self.leave(node);
            }
        }
    }

    fn happen(&mut self, what: Happening) {
        match what {
            Happening::Arrive(flight) => {
                let to = flight.to;
                if self.cx.alive[to as usize] {
                    self.nodes[to as usize].on_arrival(&mut self.cx, flight);
                    self.pull(to);
                }
            }
            Happening::Switch { leg, flight } => {
                let Context {
                    net,
                    queue,
                    trace,
                    now,
                    ..
                } = &mut self.cx;
                net.forward((queue, trace), *now, leg, flight);
            }
            Happening::Stream { id, what } => self.on_stream(id, what),
            Happening::Wake { node } => {
                if self.cx.alive[node as usize] {
                    self.nodes[node as usize].on_wake(&mut self.cx);
                    self.pull(node);
                }
            }
            Happening::FaultBegins { index } => self.begin_fault(index),
            Happening::FaultEnds { index } => self.end_fault(index),
            Happening::Exited { node, exited, life } => {
                let has_exited =
                    !self.cx.alive[exited as usize] && self.nodes[exited as usize].life == life;
                if has_exited && self.cx.alive[node as usize] {
                    self.nodes[node as usize].on_exit_reported(&mut self.cx, exited);
                }
            }
            Happening::Check => self.check_completion(),
        }
    }

    /// Registers and deregisters one-shot regions.
    fn make_region_calls(&mut self) {
        while !self.cx.region_calls.is_empty() {
            for call in std::mem::take(&mut self.cx.region_calls) {
                let (RegionCall::Register { target, .. } | RegionCall::Deregister { target, .. }) =
                    call;
                if !self.cx.alive[target as usize] {
                    continue;
                }
                let node = &mut self.nodes[target as usize];
                match call {
                    RegionCall::Register { one_shot, .. } => node.register_one_shot(&one_shot),
                    RegionCall::Deregister {
                        one_shot, is_done, ..
                    } => {
                        node.deregister_one_shot(&mut self.cx, &one_shot, is_done);
                        self.pull(target);
                    }
                }
            }
        }
    }

    fn begin_fault(&mut self, index: usize) {
        let fault = self.cx.plan.faults[index];
        let what = fault.name();
        match fault.kind {
            FaultKind::Pause { node } => {
                self.trace_fault(node, index, what);
                let until = &mut self.cx.paused_until[node as usize];
                *until = (*until).max(fault.end_ns);
            }
            FaultKind::Crash { node, .. } => {
                self.trace_fault(node, index, what);
                self.crash(node);
            }
            FaultKind::Leave { node, .. } => {
                self.trace_fault(node, index, what);
                self.cx.plan.faults[index].begin_ns = NEVER;
                self.nodes[node as usize].begin_leaving(&mut self.cx);
                self.pull(node);
            }
            FaultKind::Partition { .. }
            | FaultKind::Narrow { .. }
            | FaultKind::Storm { .. }
            | FaultKind::Detour { .. }
            | FaultKind::Mute { .. } => {
                self.trace_fault(0, index, what);
                self.cx.net.active.push(fault);
            }
            FaultKind::LinkDown { node, .. } => {
                self.trace_fault(node, index, what);
                self.cx.net.active.push(fault);
                if self.cx.strikes(Canary::NoOtherLink) {
                    self.cx.net.active.push(Fault {
                        end_ns: u64::MAX,
                        kind: FaultKind::Mute { node },
                        ..fault
                    });
                }
            }
        }
    }

    fn end_fault(&mut self, index: usize) {
        let fault = self.cx.plan.faults[index];
        match fault.kind {
            FaultKind::Pause { node } if self.cx.alive[node as usize] => {
                self.trace_fault(node, index, "pause ends");
                self.nodes[node as usize].on_wake(&mut self.cx);
                self.pull(node);
            }
            FaultKind::Crash {
                node,
                forever: false,
            }
            | FaultKind::Leave { node, .. }
                if !self.cx.alive[node as usize] =>
            {
                self.trace_fault(node, index, "restart");
                self.cx.plan.faults[index].end_ns = self.cx.now;
                self.cx.alive[node as usize] = true;
                self.cx.lives[node as usize] += 1;
                self.nodes[node as usize].restart(&mut self.cx);
                self.pull(node);
            }
            FaultKind::Partition { .. }
            | FaultKind::LinkDown { .. }
            | FaultKind::Narrow { .. }
            | FaultKind::Storm { .. }
            | FaultKind::Detour { .. } => {
                self.trace_fault(0, index, "the network heals");
                self.cx
                    .net
                    .active
                    .retain(|active| active.end_ns > self.cx.now);
            }
            _ => {}
        }
    }

    fn trace_fault(&mut self, node: u32, index: usize, what: &'static str) {
        self.cx
            .trace
            .push(self.cx.now, node, crate::trace::Item::Fault { index, what });
    }

    /// Performs the copies between processes' memory that the operating system would do.
    fn pull(&mut self, node: u32) {
        for pull in std::mem::take(&mut self.nodes[node as usize].pulls) {
            let source = self.nodes[pull.peer as usize].memory.get(&pull.remote_op);
            // Some systems forbid it at times; the bytes are then requested as frames.
            let forbidden = pull.transfer % 5 == 0 || !self.cx.alive[pull.peer as usize];
            let bytes = match source {
                Some(op) if !forbidden => op
                    .outbound()
                    .and_then(|bytes| bytes.get(pull.remote_off..)?.get(..pull.len))
                    .map(<[u8]>::to_vec),
                _ => None,
            };
            self.nodes[node as usize].on_pulled(&mut self.cx, pull, bytes);
        }
    }

    /// Checks whether everything has completed.
    fn check_completion(&mut self) {
        // Half of the settling time is for completion, half for failing what cannot complete.
        if !self.cx.ending && self.cx.now >= self.cx.quiet_ns + SETTLE_NS / 2 {
            self.cx.ending = true;
            self.close_sessions();
        }
        let unfinished = match self.cx.now < self.cx.quiet_ns {
            true => Some("a process is to start again".to_owned()),
            false => self.unfinished(),
        };
        let Some(what) = unfinished else {
            self.done = true;
            return;
        };
        if self.cx.now >= self.cx.quiet_ns + SETTLE_NS {
            let secs = SETTLE_NS / 1_000_000_000;
            self.cx.violate(format!(
                "{secs} s after the last work and the last fault, {what}"
            ));
            self.done = true;
            return;
        }
        self.cx
            .queue
            .push(self.cx.now + CHECK_INTERVAL_NS, Happening::Check);
    }

    /// Closes the sessions that are open at one end only, and informs every process that the end is
    /// near.
    fn close_sessions(&mut self) {
        for a in 0..self.cx.plan.nodes {
            for b in (0..self.cx.plan.nodes).filter(|b| *b != a) {
                if self.cx.alive[a as usize] && !self.stands(a, b) && self.cx.was_disturbed(a, b) {
                    self.nodes[a as usize].close_session(&mut self.cx, b);
                }
            }
            self.cx.queue.push(self.cx.now, Happening::Wake { node: a });
        }
    }

    /// Returns true if the current sessions of two processes are bound to each other.
    fn stands(&self, a: u32, b: u32) -> bool {
        let here = self.nodes[a as usize].binding(b);
        let there = self.nodes[b as usize].binding(a);
        let both = self.cx.alive[a as usize] && self.cx.alive[b as usize];
        both && here.is_some() && here == there.map(|(own, theirs)| (theirs, own))
    }

    fn unfinished(&self) -> Option<String> {
        let alive = self
            .nodes
            .iter()
            .filter(|node| self.cx.alive[node.id as usize]);
        for node in alive {
            if let Some(what) = node.unfinished(&self.cx) {
                return Some(format!("node {}: {what}", node.id));
            }
        }
        if !self.cx.shm.is_empty() {
            return Some("frames lie in shared memory".to_owned());
        }
        self.half_open()
    }

    /// Describes a session that is open at one end only. The other end has given up, and may have
    /// left a receive half filled.
    fn half_open(&self) -> Option<String> {
        let is_alive = |node: u32| self.cx.alive[node as usize];
        for a in (0..self.cx.plan.nodes).filter(|a| is_alive(*a)) {
            for b in (0..self.cx.plan.nodes).filter(|b| *b != a && is_alive(*b)) {
                let has_session = self.nodes[a as usize].binding(b).is_some();
                if has_session && !self.stands(a, b) && self.cx.was_disturbed(a, b) {
                    return Some(format!("node {a} has a session with {b}, which has none"));
                }
            }
        }
        None
    }

    fn finish(mut self) -> Result<Report, Box<Failure>> {
        if self.cx.violation().is_none() {
            for node in 0..self.nodes.len() {
                if self.cx.alive[node] {
                    self.nodes[node].close(&mut self.cx);
                }
            }
            self.check_delivered();
            self.check_settled();
            self.check_credit();
            self.check_best_effort();
        }
        let at = Duration::from_nanos(self.cx.now);
        let seed = self.cx.plan.seed;
        if let Some(violation) = self.cx.violation() {
            return Err(Box::new(Failure {
                seed,
                violation: violation.to_owned(),
                at,
                last: self.cx.trace.last(),
                drops: self.nodes.iter().filter_map(Node::describe_drops).collect(),
            }));
        }
        Ok(Report {
            seed,
            nodes: self.cx.plan.nodes,
            frame_count: self.cx.net.frame_count,
            byte_count: self.cx.net.byte_count,
            stream_byte_count: self
                .nodes
                .iter()
                .map(|n| n.core.counters().stream_bytes)
                .sum(),
            message_count: self.cx.ledger.message_count,
            failed_count: self.nodes.iter().map(|node| node.failed_count).sum(),
            retransmit_count: self
                .nodes
                .iter()
                .map(|n| n.core.counters().retransmits)
                .sum(),
            virtual_time: at,
            trace_hash: self.cx.trace.hash(),
            socket_losses: std::mem::take(&mut self.cx.socket_losses),
            switch_losses: std::mem::take(&mut self.cx.net.switch_losses),
            switch_queue_len_max: self.cx.net.switch_queue_len_max,
            switch_queue_len_mean: self.cx.net.switch_queue_len_mean(),
            marked_count: self.cx.net.marked_count,
            deliveries: std::mem::take(&mut self.cx.deliveries),
        })
    }

    /// Checks that messages accepted in sessions still open at both ends have been delivered.
    fn check_delivered(&mut self) {
        let open: Vec<_> = self.cx.ledger.open_sessions().collect();
        for (session, src, dst) in open {
            let Some((count, lane, port, oldest)) = self.cx.ledger.undelivered(session) else {
                continue;
            };
            let is_bound = self.nodes[dst as usize]
                .binding(src)
                .is_some_and(|(own, theirs)| theirs == session && self.cx.ledger.is_open(own));
            if is_bound || !self.cx.was_disturbed(src, dst) {
                self.cx.violate(format!(
                    "session {session} from {src} to {dst}: {count} messages never arrived, first \
                     message {} ({} bytes) to {port:?} {lane:?}",
                    oldest.id, oldest.len
                ));
            }
        }
    }

    /// Checks that best-effort messages counted as missing were not delivered, and none was counted
    /// twice. Not all are counted: the last ones of a lane, or those to an exited process, go
    /// unnoticed. `P7.4`, `P7.8`
    fn check_best_effort(&mut self) {
        let counted: u64 = self.nodes.iter().map(Node::best_effort_counted).sum();
        let missing = self.cx.ledger.best_effort_missing();
        if counted > missing && !self.cx.plan.header_corruption {
            self.cx.violate(format!(
                "{missing} best-effort messages were not delivered, but {counted} counted"
            ));
        }
    }

    /// Checks that, in sessions open at both ends, the sender has regained the credit that the
    /// receiver consumed.
    fn check_credit(&mut self) {
        for a in 0..self.cx.plan.nodes {
            for b in (0..self.cx.plan.nodes).filter(|b| *b != a) {
                let (here, there) = (&self.nodes[a as usize], &self.nodes[b as usize]);
                if !self.stands(a, b) {
                    continue;
                }
                for lane in LaneId::ALL {
                    let sender = here
                        .core
                        .credit(PeerId(b), lane)
                        .map(|credit| credit.charged);
                    let receiver = there
                        .core
                        .credit(PeerId(a), lane)
                        .map(|credit| credit.consumed);
                    if sender != receiver {
                        self.cx.violate(format!(
                            "credit from {a} to {b} {lane:?}: charged {sender:?}, consumed {receiver:?}"
                        ));
                    }
                }
            }
        }
    }
}
