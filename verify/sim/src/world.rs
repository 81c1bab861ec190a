// SPDX-License-Identifier: MIT OR Apache-2.0
//! The run: takes what happens next, until everything has come to its end or a promise is broken.

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

/// From the end of the traffic and the faults, everything must be at its end within this time: a
/// second of silence, one of connecting in vain, and what loss makes of the rest.
const SETTLE_NS: u64 = 15_000_000_000;

/// More happenings in one moment are a loop: the largest runs have a few per process and frame.
const STILL_MAX: u32 = 1_000_000;

/// How often the run looks whether all is done.
const LOOK_NS: u64 = 2_000_000;

/// What to run.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Everything is drawn from it.
    pub seed: u64,
    /// Number of processes instead of the drawn one.
    pub nodes: Option<u32>,
    /// Time in which the programs make work, instead of the drawn one.
    pub duration: Option<Duration>,
    /// Print every event.
    pub trace: bool,
    /// Flip bits in headers and check survival only.
    pub header_corruption: bool,
    /// Put this bug in.
    pub canary: Option<Canary>,
    /// Parts of the drawn plan that are left out.
    pub without: Cuts,
    /// Write what is sent to this file.
    pub pcap: Option<PathBuf>,
}

impl Options {
    /// The plan that these options stand for.
    #[must_use]
    pub fn plan(&self) -> Plan {
        let duration = self
            .duration
            .map(|d| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX).max(1));
        let mut plan = Plan::draw(self.seed, self.nodes, duration, self.header_corruption);
        self.without.apply(&mut plan);
        plan
    }

    /// The command that runs the same again.
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
        add("canary", self.canary.map(|canary| canary.to_string()));
        let without = (!self.without.0.is_empty()).then(|| self.without.to_string());
        add("without", without);
        if self.header_corruption {
            command += " --header-corruption";
        }
        command
    }
}

/// What a run without a violation was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Its seed.
    pub seed: u64,
    /// Processes.
    pub nodes: u32,
    /// Frames sent.
    pub frame_count: u64,
    /// Bytes in them.
    pub byte_count: u64,
    /// Bytes of messages that came by streams.
    pub stream_byte_count: u64,
    /// Messages delivered.
    pub message_count: u64,
    /// Operations that failed, each for a reason that a fault explains.
    pub failed_count: u64,
    /// Frames sent again.
    pub retransmit_count: u64,
    /// Virtual time.
    pub virtual_time: Duration,
    /// Hash over everything that happened.
    pub trace_hash: u64,
    /// When frames were lost to full receive buffers of processes.
    pub socket_losses: Vec<Duration>,
    /// When frames were lost to full ports of the switch.
    pub switch_losses: Vec<Duration>,
    /// Bytes that waited at one port of the switch at most.
    pub switch_queue_len_max: u64,
    /// Bytes that a frame found before it at such a port, on average.
    pub switch_queue_len_mean: u64,
    /// Datagrams that switches have marked.
    pub marked_count: u64,
    /// When each message was delivered, and from whom to whom, in that order.
    pub deliveries: Vec<Arrival>,
}

/// A delivered message of the programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When, in virtual time.
    pub at: Duration,
    /// Sender.
    pub from: u32,
    /// Receiver.
    pub to: u32,
    /// Bytes.
    pub len: usize,
}

/// A broken promise.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The seed that shows it.
    pub seed: u64,
    /// What was broken.
    pub violation: String,
    /// When, in virtual time.
    pub at: Duration,
    /// What happened last.
    pub last: Vec<String>,
    /// What each process has dropped, and why.
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
/// [`Failure`] names the first broken promise.
pub fn simulate(options: &Options) -> Result<Report, Box<Failure>> {
    simulate_plan(options.plan(), options)
}

/// Runs a plan that was made by hand, with the other options.
///
/// # Errors
/// [`Failure`] names the first broken promise.
pub fn simulate_plan(plan: Plan, options: &Options) -> Result<Report, Box<Failure>> {
    // Not the first opportunity always: which one follows from the seed.
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
    // A panic is a broken promise like any other: it must name its seed.
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
    /// Happenings since time last went on.
    still: u32,
}

impl World {
    fn new(mut cx: Context) -> World {
        let nodes = (0..cx.plan.nodes).map(|id| Node::new(&cx, id)).collect();
        for node in 0..cx.plan.nodes {
            // No two processes start at the same moment.
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
        cx.queue.push(cx.quiet_ns, Happening::Look);
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
            Happening::Gone { node, gone, life } => {
                let is_gone =
                    !self.cx.alive[gone as usize] && self.nodes[gone as usize].life == life;
                if is_gone && self.cx.alive[node as usize] {
                    self.nodes[node as usize].on_told_gone(&mut self.cx, gone);
                }
            }
            Happening::Look => self.look(),
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

    /// Does what only the system can: copies from one process's memory to another's.
    fn pull(&mut self, node: u32) {
        for pull in std::mem::take(&mut self.nodes[node as usize].pulls) {
            let source = self.nodes[pull.peer as usize].memory.get(&pull.remote_op);
            // Some systems forbid it now and then: then the bytes are asked for as frames.
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

    /// Whether everything has come to its end.
    fn look(&mut self) {
        // Half of the time to settle is for finishing, half for giving up what cannot be finished.
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
        self.cx.queue.push(self.cx.now + LOOK_NS, Happening::Look);
    }

    /// Ends the sessions that stand at one end only, and lets every process see that the end is near.
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

    /// Whether two processes are bound to one another's present sessions.
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

    /// Names a session that stands at one end only. A receive there can be half filled by the other end,
    /// which has given up.
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

    /// What was accepted in a session that still stands at both ends has been delivered.
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

    /// A best-effort message that was counted as missing was not delivered, and none was counted twice.
    /// Not all are counted: nothing tells of the last ones of a lane, or of those to a process that is
    /// gone. `P7.4`, `P7.8`
    fn check_best_effort(&mut self) {
        let counted: u64 = self.nodes.iter().map(Node::best_effort_counted).sum();
        let missing = self.cx.ledger.best_effort_missing();
        if counted > missing && !self.cx.plan.header_corruption {
            self.cx.violate(format!(
                "{missing} best-effort messages were not delivered, but {counted} counted"
            ));
        }
    }

    /// Where a session stands at both ends, the sender has back what the receiver has consumed.
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
