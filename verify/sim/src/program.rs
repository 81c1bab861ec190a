// SPDX-License-Identifier: MIT OR Apache-2.0
//! Program of one process: its sends, its receives and its collective operations.
//!
//! It does not access the core. It fills outboxes and requests buffers; the engine in `node` acts
//! on them.

use crate::context::Context;
use crate::ledger::{GROUP_PORT, Note};
use crate::plan::{Flow, GroupPlan, PortPlan};
use portolan_proto::{LaneId, PortId, PortMode, group};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeSet;

/// Message that waits to be accepted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outgoing {
    pub(crate) port: PortId,
    pub(crate) best_effort: bool,
    /// Set if it is sent by rendezvous although it is short.
    pub(crate) rendezvous: bool,
    pub(crate) len: usize,
    pub(crate) note: Note,
}

/// Buffer that is to be posted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestedBuffer {
    pub(crate) at_ns: u64,
    pub(crate) port: u16,
    pub(crate) len: usize,
    pub(crate) source: Option<u32>,
}

/// Stage of a program on its way to exit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Working,
    /// The program creates no more work.
    Finishing,
    /// The program makes no more requests.
    Closing,
}

#[derive(Debug)]
struct Stream {
    flow: Flow,
    left: u32,
    next_ns: u64,
}

/// Maximum number of messages waiting for one peer before the flows to it pause.
const OUTBOX_MAX: usize = 64;

/// Pause of a flow with a full outbox, and of one to a port that opens much later, in nanoseconds.
const FULL_NS: u64 = 50_000;
const LATE_NS: u64 = 2_000_000;

fn pause_ns(cx: &Context, flow: &Flow) -> u64 {
    let port = cx.plan.port(flow.dst, flow.port);
    match port.is_some_and(|port| port.open_ns > cx.now + LATE_NS) {
        true => LATE_NS,
        false => FULL_NS,
    }
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Program {
    id: u32,
    rng: ChaCha8Rng,
    streams: Vec<Stream>,
    requested: Vec<RequestedBuffer>,
    /// Ports that are not open yet: time, port and mode.
    closed: Vec<(u64, PortId, PortMode)>,
    stage: Stage,
    /// Set if it creates one more turn's messages before it exits, like a program that sends and
    /// returns.
    has_final_messages: bool,
    group_index: usize,
    group_round: u32,
    group_entered: bool,
    received: BTreeSet<(usize, u32, u32)>,
}

impl Program {
    pub(crate) fn new(cx: &Context, id: u32) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(cx.plan.seed);
        // Streams 0 and 1 are the plan's and the network's.
        rng.set_stream(u64::from(id) + 2);
        let flows = cx.plan.flows.iter().filter(|flow| flow.src == id);
        let streams = flows.map(|flow| Stream {
            flow: flow.clone(),
            left: flow.count,
            next_ns: flow.start_ns,
        });
        let mut program = Program {
            id,
            rng,
            streams: streams.collect(),
            requested: Vec::new(),
            closed: Vec::new(),
            stage: Stage::Working,
            has_final_messages: false,
            group_index: 0,
            group_round: 0,
            group_entered: false,
            received: BTreeSet::new(),
        };
        program.begin_life(cx);
        program
    }

    /// Starts or restarts the process: its ports must be opened and its buffers posted.
    pub(crate) fn begin_life(&mut self, cx: &Context) {
        self.stage = Stage::Working;
        self.requested.clear();
        self.closed.clear();
        let id = self.id;
        for plan in cx.plan.ports.iter().filter(|plan| plan.node == id) {
            let port = PortId::user(plan.port);
            self.closed.push((plan.open_ns, port, plan.mode));
            if plan.mode == PortMode::Posted {
                self.request_buffers(cx, plan);
            }
        }
    }

    /// Ends the creation of work in this incarnation, except what each flow creates now.
    pub(crate) fn finish(&mut self) {
        self.stage = Stage::Finishing;
        self.has_final_messages = true;
        self.streams.iter_mut().for_each(|one| one.next_ns = 0);
    }

    /// Ends all requests of the program.
    pub(crate) fn close(&mut self) {
        self.stage = Stage::Closing;
        self.requested.clear();
        self.closed.clear();
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.stage == Stage::Closing
    }

    /// Returns true if it is about to exit.
    pub(crate) fn is_leaving(&self) -> bool {
        self.stage != Stage::Working
    }

    /// Returns true if it has not opened this port yet.
    pub(crate) fn is_late_to_open(&self, port: PortId) -> bool {
        self.closed.iter().any(|(_, late, _)| *late == port)
    }

    pub(crate) fn take_opened(&mut self, now: u64) -> Vec<(PortId, PortMode)> {
        let due = self.closed.extract_if(.., |(at_ns, ..)| *at_ns <= now);
        due.map(|(_, port, mode)| (port, mode)).collect()
    }

    fn request_buffers(&mut self, cx: &Context, plan: &PortPlan) {
        let flows = cx.plan.flows.iter();
        let sources: BTreeSet<Option<u32>> = flows
            .filter(|flow| flow.dst == self.id && flow.port == plan.port)
            .map(|flow| plan.sourced.then_some(flow.src))
            .collect();
        for source in sources {
            for _ in 0..plan.depth {
                self.requested.push(RequestedBuffer {
                    at_ns: cx.now.max(plan.open_ns),
                    port: plan.port,
                    len: plan.buffer_len,
                    source,
                });
            }
        }
    }

    /// Requests another buffer, because a posted one was used.
    pub(crate) fn request_again(
        &mut self,
        cx: &Context,
        port: u16,
        source: Option<u32>,
        extra_ns: u64,
    ) {
        if let Some(plan) = cx.plan.port(self.id, port)
            && !self.is_closing()
        {
            self.requested.push(RequestedBuffer {
                at_ns: cx.now + plan.again_ns + extra_ns,
                port,
                len: plan.buffer_len,
                source,
            });
        }
    }

    /// Returns the buffers that are to be posted now.
    pub(crate) fn take_requested(&mut self, now: u64) -> Vec<RequestedBuffer> {
        self.requested
            .extract_if(.., |requested| requested.at_ns <= now)
            .collect()
    }

    /// Returns the messages that the flows create now, by peer and lane; `queued` returns the
    /// number already waiting.
    pub(crate) fn take_messages(
        &mut self,
        cx: &Context,
        queued: impl Fn(u32, LaneId) -> usize,
    ) -> Vec<(u32, LaneId, Outgoing)> {
        let mut made = Vec::new();
        if self.is_leaving() && !std::mem::take(&mut self.has_final_messages) {
            return made;
        }
        for stream in &mut self.streams {
            if cx.ending {
                stream.left = 0;
            }
            if stream.left == 0 || stream.next_ns > cx.now {
                continue;
            }
            let flow = &stream.flow;
            if queued(flow.dst, flow.lane) >= OUTBOX_MAX {
                stream.next_ns = cx.now + flow.gap_ns.max(pause_ns(cx, flow));
                continue;
            }
            for _ in 0..flow.burst.min(stream.left) {
                let out = Outgoing {
                    port: PortId::user(flow.port),
                    best_effort: flow.best_effort,
                    rendezvous: flow.rendezvous_share > 0.0
                        && self.rng.random_bool(flow.rendezvous_share),
                    len: self.rng.random_range(flow.len_min..=flow.len_max),
                    note: Note::Nothing,
                };
                made.push((flow.dst, flow.lane, out));
                stream.left -= 1;
            }
            stream.next_ns = cx.now + flow.gap_ns;
        }
        made
    }

    /// Returns the time of the program's next activity.
    pub(crate) fn next_ns(&self) -> u64 {
        let makes = |stream: &&Stream| stream.left > 0 && !self.is_leaving();
        let streams = self.streams.iter().filter(makes);
        let streams = streams.map(|stream| stream.next_ns).min();
        let requested = self.requested.iter().map(|requested| requested.at_ns).min();
        let opened = self.closed.iter().map(|(at_ns, ..)| *at_ns).min();
        let all = [streams, requested, opened];
        all.into_iter().flatten().min().unwrap_or(u64::MAX)
    }

    /// Handles a message of a collective operation.
    pub(crate) fn on_group(&mut self, op: usize, round: u32, from: u32) {
        self.received.insert((op, round, from));
    }

    /// Advances the collective operations as far as the received messages allow.
    pub(crate) fn step_groups(&mut self, cx: &mut Context) -> Vec<(u32, LaneId, Outgoing)> {
        let mut out = Vec::new();
        while let Some(&plan) = cx.plan.groups.get(self.group_index) {
            if !self.group_entered {
                self.group_entered = true;
                cx.entered[self.group_index] += 1;
                self.on_entered(cx, plan, &mut out);
            }
            let went_on = match plan {
                GroupPlan::Barrier => self.step_barrier(cx, &mut out),
                GroupPlan::Broadcast { root, len } => self.step_broadcast(cx, root, len, &mut out),
            };
            if !went_on {
                break;
            }
        }
        out
    }

    fn on_entered(
        &mut self,
        cx: &Context,
        plan: GroupPlan,
        out: &mut Vec<(u32, LaneId, Outgoing)>,
    ) {
        match plan {
            GroupPlan::Barrier => {
                let (to, _) = group::barrier_partners(self.id, cx.plan.nodes, 0);
                out.push(self.group_message(to, 0));
            }
            GroupPlan::Broadcast { root, len } if root == self.id => {
                self.pass_on(cx, root, len, out)
            }
            GroupPlan::Broadcast { .. } => {}
        }
    }

    fn step_barrier(&mut self, cx: &mut Context, out: &mut Vec<(u32, LaneId, Outgoing)>) -> bool {
        let size = cx.plan.nodes;
        let (_, from) = group::barrier_partners(self.id, size, self.group_round);
        if !self
            .received
            .remove(&(self.group_index, self.group_round, from))
        {
            return false;
        }
        self.group_round += 1;
        if self.group_round < group::barrier_rounds(size) {
            let (to, _) = group::barrier_partners(self.id, size, self.group_round);
            out.push(self.group_message(to, 0));
            return true;
        }
        if cx.entered[self.group_index] < size {
            let (id, op, entered) = (self.id, self.group_index, cx.entered[self.group_index]);
            cx.violate(format!(
                "node {id} left barrier {op} that {entered} of {size} had entered"
            ));
        }
        self.end_group();
        true
    }

    fn step_broadcast(
        &mut self,
        cx: &Context,
        root: u32,
        len: usize,
        out: &mut Vec<(u32, LaneId, Outgoing)>,
    ) -> bool {
        if let Some(parent) = group::broadcast_parent(self.id, root, cx.plan.nodes) {
            if !self.received.remove(&(self.group_index, 0, parent)) {
                return false;
            }
            self.pass_on(cx, root, len, out);
        }
        self.end_group();
        true
    }

    fn pass_on(
        &mut self,
        cx: &Context,
        root: u32,
        len: usize,
        out: &mut Vec<(u32, LaneId, Outgoing)>,
    ) {
        for child in group::broadcast_children(self.id, root, cx.plan.nodes) {
            out.push(self.group_message(child, len));
        }
    }

    fn group_message(&self, to: u32, len: usize) -> (u32, LaneId, Outgoing) {
        let (op, round) = (self.group_index, self.group_round);
        let out = Outgoing {
            port: GROUP_PORT,
            best_effort: false,
            rendezvous: false,
            len,
            note: Note::Group { op, round },
        };
        (to, LaneId::Low, out)
    }

    fn end_group(&mut self) {
        self.group_index += 1;
        self.group_round = 0;
        self.group_entered = false;
    }

    /// Describes what the program has not finished; `None` if it has nothing left to do.
    pub(crate) fn unfinished(&self, cx: &Context) -> Option<String> {
        let left: u32 = self.streams.iter().map(|stream| stream.left).sum();
        if left > 0 {
            return Some(format!("{left} messages have not been created"));
        }
        (self.group_index < cx.plan.groups.len()).then(|| {
            format!(
                "collective operation {} is in round {}",
                self.group_index, self.group_round
            )
        })
    }
}
