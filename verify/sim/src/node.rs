// SPDX-License-Identifier: MIT OR Apache-2.0
//! One process: the real core, with an engine similar to the library's and simulated links.

mod events;
mod leave;
mod one_shot;
mod peers;
mod remote;
mod streams;
mod transmit;

use crate::clock::Clock;
use crate::context::Context;
use crate::ledger::{GREETING_PORT, GROUP_PORT};
use crate::plan::GroupPlan;
use crate::program::Program;
use crate::queue::{Flight, Happening};
use crate::shm::Received;
pub(crate) use one_shot::RegionCall;
use peers::Remote;
use portolan_proto::{
    Admitted, Cause, CompleteMessage, Config, Core, Dest, DropReason, LaneId, LinkId, MessageDest,
    OpId, PeerId, PortId, PortMode, Selector, Space,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Frames handled in one turn, so that a flood leaves time for other work.
const TURN_FRAMES_MAX: usize = 32;

/// Delay before a timer that has expired is retried, if a link without room prevented its work.
const AGAIN_NS: u64 = 10_000;

/// Program memory used by an operation.
#[derive(Debug)]
pub(crate) enum Op {
    Send {
        bytes: Vec<u8>,
        peer: u32,
    },
    Recv {
        bytes: Vec<u8>,
        port: PortId,
        source: Option<u32>,
        /// Set if another receive is posted when this one completes.
        again: bool,
    },
    /// Region open to other processes.
    Region {
        bytes: Vec<u8>,
    },
    /// Request for another process's memory: the bytes to put, or the buffer of a get.
    Request {
        bytes: Vec<u8>,
        peer: u32,
        stream: usize,
        expect: remote::Expect,
    },
    /// Region that is registered for one operation of a peer.
    OneShotRegion {
        bytes: Vec<u8>,
    },
    /// Operation on a one-shot region: the bytes to put, or the buffer of a get.
    OneShot {
        bytes: Vec<u8>,
        peer: u32,
        initiator: usize,
        one_shot: one_shot::OneShot,
    },
}

impl Op {
    /// Returns the bytes that other processes may read, or the core may send.
    pub(crate) fn outbound(&self) -> Option<&Vec<u8>> {
        match self {
            Op::Send { bytes, .. }
            | Op::Region { bytes }
            | Op::Request { bytes, .. }
            | Op::OneShotRegion { bytes }
            | Op::OneShot { bytes, .. } => Some(bytes),
            Op::Recv { .. } => None,
        }
    }

    /// Returns the bytes that the core may write.
    fn inbound(&mut self) -> Option<&mut Vec<u8>> {
        match self {
            Op::Recv { bytes, .. }
            | Op::Region { bytes }
            | Op::Request { bytes, .. }
            | Op::OneShotRegion { bytes }
            | Op::OneShot { bytes, .. } => Some(bytes),
            Op::Send { .. } => None,
        }
    }
}

/// Message to be copied directly from a peer's memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pull {
    pub(crate) transfer: u32,
    pub(crate) peer: u32,
    pub(crate) remote_op: u64,
    pub(crate) remote_off: usize,
    pub(crate) op: u64,
    pub(crate) off: usize,
    pub(crate) len: usize,
}

impl Pull {
    /// Returns a number that stands for the address of byte `off` in the memory of `op`.
    fn addr(op: u64, off: u64) -> u64 {
        off << 32 | op
    }
}

/// Message delivered by the core, on its way to the program.
#[derive(Debug)]
struct Got {
    src: u32,
    lane: LaneId,
    port: PortId,
    len: usize,
    bytes: Vec<u8>,
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) id: u32,
    pub(crate) life: u32,
    pub(crate) core: Core,
    clock: Clock,
    pub(crate) memory: BTreeMap<u64, Op>,
    next_op: u64,
    inbox: VecDeque<Flight>,
    inbox_len: [usize; LinkId::COUNT],
    link_blocked: [bool; LinkId::COUNT],
    busy_until: u64,
    /// Earliest `Wake` in the queue.
    wake_at: u64,
    peers: Vec<Remote>,
    /// Peers with messages in an outbox, and peers with a timed silence.
    with_outbox: BTreeSet<u32>,
    watched: BTreeSet<u32>,
    /// Peers with sent messages that may not have arrived.
    unsettled: BTreeSet<u32>,
    program: Program,
    requests: Vec<remote::Requests>,
    initiators: Vec<one_shot::Initiator>,
    /// One-shot regions by key.
    one_shot_regions: BTreeMap<u64, OpId>,
    /// Number of deregistered regions with an operation that failed at the peer. Its request may
    /// still arrive.
    one_shots_failed: u64,
    pub(crate) pulls: Vec<Pull>,
    /// Open connections, in the order of opening.
    streams: Vec<usize>,
    /// Set when one of them that was full has room.
    has_stream_room: bool,
    /// Delivery that a canary holds back.
    withheld: Option<Got>,
    /// Message of the plain space that a canary holds back.
    withheld_plain: Option<events::Matched>,
    pub(crate) failed_count: u64,
}

impl Node {
    pub(crate) fn new(cx: &Context, id: u32) -> Node {
        let mut node = Node {
            id,
            life: 0,
            core: make_core(cx, id, 0),
            clock: cx.plan.clocks[id as usize],
            memory: BTreeMap::new(),
            next_op: 0,
            inbox: VecDeque::new(),
            inbox_len: [0; LinkId::COUNT],
            link_blocked: [false; LinkId::COUNT],
            busy_until: 0,
            wake_at: u64::MAX,
            peers: (0..cx.plan.nodes).map(|_| Remote::default()).collect(),
            with_outbox: BTreeSet::new(),
            watched: BTreeSet::new(),
            unsettled: BTreeSet::new(),
            program: Program::new(cx, id),
            requests: Vec::new(),
            initiators: Vec::new(),
            one_shot_regions: BTreeMap::new(),
            one_shots_failed: 0,
            pulls: Vec::new(),
            streams: Vec::new(),
            has_stream_room: false,
            withheld: None,
            withheld_plain: None,
            failed_count: 0,
        };
        node.begin_remote(cx);
        node.begin_one_shots(cx);
        node
    }

    /// Ends the process, with all its state.
    pub(crate) fn crash(&mut self, cx: &mut Context) {
        for session in self.peers.iter().filter_map(|remote| remote.session) {
            cx.ledger.end(session);
        }
        self.check_drops(cx);
        self.memory.clear();
        self.inbox.clear();
        self.inbox_len = [0; LinkId::COUNT];
        self.pulls.clear();
        self.streams.clear();
    }

    /// Restarts the process with new state.
    pub(crate) fn restart(&mut self, cx: &mut Context) {
        self.life += 1;
        self.core = make_core(cx, self.id, self.life);
        self.link_blocked = [false; LinkId::COUNT];
        (self.busy_until, self.wake_at) = (0, u64::MAX);
        cx.paused_until[self.id as usize] = 0;
        self.peers = (0..cx.plan.nodes).map(|_| Remote::default()).collect();
        self.with_outbox.clear();
        self.watched.clear();
        self.unsettled.clear();
        self.program.begin_life(cx);
        self.begin_remote(cx);
        self.begin_one_shots(cx);
        self.turn(cx);
    }

    /// Handles a frame that has reached the process's socket.
    pub(crate) fn on_arrival(&mut self, cx: &mut Context, flight: Flight) {
        let (from, link) = (flight.from, flight.link);
        let params = cx.plan.network(link);
        let room = params.map_or(0, |params| params.rx_buffer_len);
        let len = &mut self.inbox_len[link.index()];
        if *len + flight.frame.len() > room {
            let (to, why) = (self.id, "socket buffer full");
            cx.socket_losses
                .push(std::time::Duration::from_nanos(cx.now));
            cx.trace
                .push(cx.now, from, crate::trace::Item::Lost { to, link, why });
            return;
        }
        *len += flight.frame.len();
        self.inbox.push_back(flight);
        self.on_wake(cx);
    }

    /// Runs a turn, if the process is not busy with the last one.
    pub(crate) fn on_wake(&mut self, cx: &mut Context) {
        if cx.now >= self.wake_at {
            self.wake_at = u64::MAX;
        }
        if cx.now < cx.paused_until[self.id as usize] {
            return;
        }
        if cx.now < self.busy_until {
            self.wake(cx, self.busy_until);
        } else {
            self.turn(cx);
        }
    }

    /// Runs one turn of the engine's loop: receive, timers, program, transmit.
    fn turn(&mut self, cx: &mut Context) {
        let mut cost_ns = self.receive(cx);
        let local = self.clock.local(cx.now);
        if self.core.poll_timeout() <= local {
            self.core.handle_timeout(local);
            self.drain(cx, &[]);
        }
        self.check_peers(cx);
        self.run_program(cx);
        self.flush_outboxes(cx);
        cost_ns += self.transmit(cx);
        self.drain(cx, &[]);
        self.continue_leaving(cx);
        self.settle(cx);
        self.check_bounds(cx);
        self.busy_until = cx.now + cost_ns;
        let next = self.next_turn(cx);
        self.wake(cx, next);
    }

    /// Returns the time before which the process has no turn.
    pub(crate) fn busy_until(&self) -> u64 {
        self.busy_until
    }

    fn next_turn(&self, cx: &Context) -> u64 {
        if !self.inbox.is_empty() || !self.pulls.is_empty() {
            return self.busy_until;
        }
        let timer = self.clock.global(self.core.poll_timeout());
        let timer = if timer <= cx.now {
            cx.now + AGAIN_NS
        } else {
            timer
        };
        // Streams report room by themselves.
        let full = LinkId::ALL
            .into_iter()
            .filter(|link| *link != LinkId::STREAM);
        let room = if full.into_iter().any(|link| self.link_blocked[link.index()]) {
            cx.net
                .full_until(cx.now, self.id)
                .unwrap_or(cx.now + AGAIN_NS)
        } else {
            u64::MAX
        };
        let watched = self
            .watched
            .iter()
            .map(|&peer| self.peers[peer as usize].next_ns());
        let program = self
            .program
            .next_ns()
            .min(self.next_request_ns())
            .min(self.next_one_shot_ns());
        timer
            .min(room)
            .min(program)
            .min(watched.min().unwrap_or(u64::MAX))
            .max(self.busy_until)
    }

    fn wake(&mut self, cx: &mut Context, at: u64) {
        if at < self.wake_at {
            self.wake_at = at;
            cx.queue.push(at, Happening::Wake { node: self.id });
        }
    }

    fn receive(&mut self, cx: &mut Context) -> u64 {
        let mut cost_ns = 0;
        let mut left = TURN_FRAMES_MAX;
        while left > 0 {
            if let Some(received) = cx.shm.receive(&mut cx.queue, cx.now, self.id) {
                match received {
                    Received::Frame(from, frame) => self.on_shared(cx, from, &frame),
                    Received::End(from) => {
                        self.core.fail_peer(PeerId(from), Cause::ProcessExited);
                        self.drain(cx, &[]);
                    }
                }
                // Shared memory costs no system call.
                cost_ns += cx.plan.frame_cost_ns / 8;
                left -= 1;
                continue;
            }
            let count = match self.on_predicted(cx, left) {
                0 => self.on_run(cx, left),
                count => count,
            };
            if count > 0 {
                cost_ns += cx.plan.frame_cost_ns * count as u64;
                left -= count;
            } else if let Some(flight) = self.inbox.pop_front() {
                self.on_datagram(cx, &flight);
                cost_ns += cx.plan.frame_cost_ns;
                left -= 1;
            } else {
                break;
            }
        }
        cost_ns
    }

    /// Receives up to `most` frames of one length from one node as if they had arrived in one call;
    /// returns how many.
    fn on_run(&mut self, cx: &mut Context, most: usize) -> usize {
        let Some(first) = self.inbox.front() else {
            return 0;
        };
        let (from, link, marked) = (first.from, first.link, first.marked);
        let len = first.frame.len();
        let alike = |next: &&Flight| {
            (next.from, next.link, next.marked, next.frame.len()) == (from, link, marked, len)
        };
        let run = self.inbox.iter().take_while(alike).take(most);
        let datagrams = run.map(|next| &next.frame[..]);
        let local = self.clock.local(cx.now);
        let Some(taken) = self.core.handle_run(local, link, datagrams) else {
            return 0;
        };
        let flights: Vec<_> = self.inbox.drain(..taken.count).collect();
        let starts = (0..taken.len).step_by(taken.part_len);
        for (flight, start) in flights.iter().zip(starts) {
            self.note_arrival(cx, flight);
            let dest = match taken.dest {
                Dest::Op(op, off) => Dest::Op(op, off + start as u64),
                Dest::Held(id, off) => Dest::Held(id, off + start),
            };
            let part = taken.part_len.min(taken.len - start);
            let src = taken.header_len..taken.header_len + part;
            self.place(cx, &flight.frame, dest, src);
        }
        self.drain(cx, &[]);
        if marked {
            let count = u32::try_from(taken.count).unwrap_or(u32::MAX);
            self.core.note_marked(link, &flights[0].frame, count);
        }
        taken.count
    }

    fn note_arrival(&mut self, cx: &mut Context, flight: &Flight) {
        let (from, link, len) = (flight.from, flight.link, flight.frame.len());
        self.inbox_len[link.index()] -= len;
        cx.trace.push(
            cx.now,
            self.id,
            crate::trace::Item::Arrived { from, link, len },
        );
    }

    fn on_datagram(&mut self, cx: &mut Context, flight: &Flight) {
        let local = self.clock.local(cx.now);
        let (link, frame) = (flight.link, &flight.frame);
        self.note_arrival(cx, flight);
        let accepted = self.core.counters().frames_received;
        if cx.plan.shortcuts {
            let admitted = self.core.admit(local, link, frame);
            self.take(cx, admitted, frame, frame);
        } else {
            self.core.handle_frame(local, link, frame);
            self.drain(cx, frame);
        }
        if flight.marked && self.core.counters().frames_received > accepted {
            self.core.note_marked(link, frame, 1);
        }
    }

    fn on_shared(&mut self, cx: &mut Context, from: u32, frame: &[u8]) {
        let local = self.clock.local(cx.now);
        let (link, len) = (LinkId::SHM, frame.len());
        cx.trace.push(
            cx.now,
            self.id,
            crate::trace::Item::Arrived { from, link, len },
        );
        // Everything that an earlier incarnation had committed came before its end. This frame is
        // of the current one.
        self.core.connect(local, PeerId(from));
        self.drain(cx, &[]);
        // A link passes the first bytes of a long entry in private memory, see `RxFrame`.
        let head = &frame[..len.min(4096)];
        let from = PeerId(from);
        if cx.plan.shortcuts {
            let admitted = self.core.admit_lossless(local, link, from, len);
            self.take(cx, admitted, head, frame);
        } else {
            self.core.handle_lossless(local, link, from, head, len);
            self.drain(cx, frame);
        }
    }

    /// Takes the messages of an admitted frame that can be delivered at once, then handles the
    /// rest.
    fn take(&mut self, cx: &mut Context, admitted: Option<Admitted>, head: &[u8], frame: &[u8]) {
        self.drain(cx, frame);
        let Some(mut admitted) = admitted else {
            return;
        };
        loop {
            if let Some((port, payload)) = self.core.take_in_place(&mut admitted, head) {
                let message = CompleteMessage {
                    port: PortId::user(port),
                    dest: MessageDest::Handler,
                    off: payload.start,
                    len: payload.len(),
                };
                self.on_message(cx, admitted.from.0, frame, &message);
            } else if let Some(message) = self.core.take_message(&mut admitted, head, None) {
                if message.dest == MessageDest::Held {
                    continue;
                }
                self.on_message(cx, admitted.from.0, frame, &message);
            } else if let Some(taken) = self.core.take_tagged(&mut admitted, head, None) {
                self.on_tagged(cx, admitted.from.0, frame, &taken);
            } else {
                break;
            }
        }
        let local = self.clock.local(cx.now);
        self.core.take_ack(local, &mut admitted, head);
        if !admitted.is_done() {
            self.core.handle_rest(local, &admitted, head);
        }
        self.drain(cx, frame);
    }

    fn run_program(&mut self, cx: &mut Context) {
        for (port, mode) in self.program.take_opened(cx.now) {
            self.core.open_port(port, mode);
        }
        for requested in self.program.take_requested(cx.now) {
            let port = PortId::user(requested.port);
            let is_tagged = cx
                .plan
                .port(self.id, requested.port)
                .is_some_and(|port| port.tagged);
            if is_tagged {
                let label = cx.plan.label(self.id, port);
                self.post_tagged(cx, port, label, (requested.len, requested.source));
            } else {
                self.post(cx, port, requested.len, requested.source, true);
            }
        }
        self.drain(cx, &[]);
        let peers = &self.peers;
        let queued = |peer: u32, lane: LaneId| peers[peer as usize].outbox[lane.index()].len();
        let mut made = self.program.take_messages(cx, queued);
        made.extend(self.program.step_groups(cx));
        for (peer, lane, out) in made {
            self.peers[peer as usize].outbox[lane.index()].push_back(out);
            self.with_outbox.insert(peer);
        }
        self.make_requests(cx);
        self.start_one_shots(cx);
    }

    fn post(
        &mut self,
        cx: &mut Context,
        port: PortId,
        len: usize,
        source: Option<u32>,
        again: bool,
    ) {
        let op = self.make_op(Op::Recv {
            bytes: vec![0xa5; len],
            port,
            source,
            again,
        });
        let source = source.map(PeerId);
        let mut bytes = vec![0x5a; len];
        if cx.plan.shortcuts
            && let Ok(taken) = self.core.take_held(port, source, &mut bytes)
        {
            return self.on_held(cx, port, op, &taken, &bytes);
        }
        self.core.post_recv(port, op, len as u64, source);
    }

    fn post_tagged(
        &mut self,
        cx: &mut Context,
        port: PortId,
        (space, tag): (Space, u64),
        (len, source): (usize, Option<u32>),
    ) {
        let op = self.make_op(Op::Recv {
            bytes: vec![0xa5; len],
            port,
            source,
            again: true,
        });
        let selector = Selector {
            space,
            tag,
            // Every other receive searches all waiting messages; no tag has this bit.
            ignore: (op.0 & 1) << 40,
            source: source.map(PeerId),
        };
        if cx.plan.shortcuts
            && let Some((envelope, held)) = self.core.take_held_tagged(&selector, len)
        {
            return self.on_held_tagged(cx, op, envelope, held);
        }
        self.core.post_tagged(&selector, op, len as u64);
    }

    fn make_op(&mut self, op: Op) -> OpId {
        self.next_op += 1;
        self.memory.insert(self.next_op, op);
        OpId(self.next_op)
    }

    /// Describes what has not completed; `None` if nothing is left to do.
    pub(crate) fn unfinished(&self, cx: &Context) -> Option<String> {
        if self.program.is_leaving() {
            return Some(self.describe_leaving());
        }
        if let Some(what) = self.program.unfinished(cx) {
            return Some(what);
        }
        if self.next_request_ns() != u64::MAX {
            return Some("requests for remote memory have not been submitted".to_owned());
        }
        if self.has_one_shots_left() {
            return Some("one-shot operations are not submitted yet".to_owned());
        }
        if let Some(&peer) = self.with_outbox.first() {
            return Some(self.describe_outbox(peer));
        }
        let sends = self
            .memory
            .values()
            .filter(|op| {
                matches!(
                    op,
                    Op::Send { .. } | Op::Request { .. } | Op::OneShot { .. }
                )
            })
            .count();
        if sends > 0 {
            return Some(format!(
                "{sends} sends by rendezvous and requests have not ended"
            ));
        }
        let (slots, held_len, transfers) = self.core.usage();
        if (slots, held_len, transfers) != (0, 0, 0) {
            return Some(format!(
                "{slots} frame buffers, {held_len} bytes of held messages and {transfers} \
                 transfers are in use"
            ));
        }
        let waits = self.core.has_unfinished() || !self.inbox.is_empty() || !self.pulls.is_empty();
        waits.then(|| "frames are not acknowledged or not handled".to_owned())
    }

    /// Cancels posted receives; afterwards no memory of the program may be in use.
    pub(crate) fn close(&mut self, cx: &mut Context) {
        let posted: Vec<_> = self
            .memory
            .iter()
            .filter_map(|(&op, what)| match what {
                Op::Recv { port, .. } => Some((op, *port)),
                _ => None,
            })
            .collect();
        self.end_one_shots();
        if !self.end_remote() {
            let id = self.id;
            cx.violate(format!("node {id}: the region was closed already"));
        }
        for (op, port) in posted {
            if self.core.cancel_recv(port, OpId(op)) || self.core.cancel_tagged(OpId(op)) {
                self.memory.remove(&op);
            } else {
                let id = self.id;
                cx.violate(format!(
                    "node {id}: receive {op} at {port:?} is neither posted nor ended"
                ));
            }
        }
        self.check_drops(cx);
    }

    /// Describes the drops; `None` if there were none.
    pub(crate) fn describe_drops(&self) -> Option<String> {
        let drops = self.core.counters().iter_drops();
        let drops: Vec<_> = drops
            .map(|(reason, n)| format!("{n} {}", reason.name()))
            .collect();
        (!drops.is_empty()).then(|| format!("node {} dropped {}", self.id, drops.join(", ")))
    }

    /// Returns the number of best-effort messages that this process has counted as missing.
    pub(crate) fn best_effort_counted(&self) -> u64 {
        let counters = self.core.counters();
        counters.best_effort_lost
            + counters.drops(DropReason::BestEffortIncomplete)
            + counters.drops(DropReason::BestEffortNoBuffer)
    }

    fn check_drops(&self, cx: &mut Context) {
        for (reason, count) in self.core.counters().iter_drops() {
            let is_late = reason == DropReason::RemoteKey && count <= self.one_shots_failed;
            if !is_late && !cx.explains(reason) {
                let (id, name) = (self.id, reason.name());
                cx.violate(format!(
                    "node {id} dropped {count} times for an unexpected reason: {name}"
                ));
            }
        }
    }

    /// Checks that memory of the core is within its limits.
    fn check_bounds(&self, cx: &mut Context) {
        let limits = &cx.plan.limits;
        let peers = cx.plan.nodes as usize;
        let (slots, held_len, _) = self.core.usage();
        // P3.10: one credit's worth per peer and lane, where an empty message is charged 32 bytes
        // and held in less than 128, plus messages waiting without their credit. P7.8: plus four
        // incomplete best-effort messages per lane.
        let incomplete_max = peers * 2 * 4 * 68 * 1024;
        let held_max =
            peers * 2 * limits.credit_len as usize * 4 + limits.held_len_max + incomplete_max;
        // Per path: a window, the frames waiting behind it in each lane, and best-effort messages;
        // then frames being sent.
        let per_path = limits.unacked_frames_max() + 3 * 64 + 16 + 16;
        let slots_max = peers * LinkId::COUNT * per_path;
        if held_len > held_max || slots > slots_max {
            let id = self.id;
            cx.violate_always(format!(
                "node {id} holds {held_len} bytes (bound {held_max}) and {slots} frame buffers \
                 (bound {slots_max})"
            ));
        }
    }
}

fn make_core(cx: &Context, id: u32, life: u32) -> Core {
    let plan = &cx.plan;
    let mut seed = [0x5a; 32];
    seed[..4].copy_from_slice(&id.to_le_bytes());
    seed[4..8].copy_from_slice(&life.to_le_bytes());
    seed[8..16].copy_from_slice(&plan.seed.to_le_bytes());
    let mut core = Core::new(Config {
        job_id: [9; 16],
        secret: [7; 32],
        rank: id,
        size: plan.nodes,
        // Time of the start, as used by a launcher.
        epoch: cx.now + 1,
        seed,
        limits: plan.limits.clone(),
    });
    let network = [LinkId::UDP, LinkId::PACKET, LinkId::UDP2];
    for link in network {
        if let Some(params) = plan.network(link) {
            core.add_link(link, params);
        }
    }
    if let Some(streams) = plan.streams {
        core.set_buffer_len(LinkId::STREAM, streams.buffer_len);
    }
    plan.shm
        .iter()
        .for_each(|params| core.add_link(LinkId::SHM, *params));
    for peer in (0..plan.nodes).filter(|peer| *peer != id) {
        let links = if plan.share_memory(id, peer) {
            &[LinkId::SHM][..]
        } else {
            &network[..]
        };
        core.allow(PeerId(peer), links);
    }
    for port in [GREETING_PORT, GROUP_PORT] {
        core.open_port(port, PortMode::InPlace);
    }
    core
}

/// Returns the length in bytes of the longest message for which a port that delivers in place may
/// need a buffer.
fn longest_message(cx: &Context, node: u32, port: PortId) -> usize {
    if port == GROUP_PORT {
        let lens = cx.plan.groups.iter().map(|group| match group {
            GroupPlan::Barrier => 0,
            GroupPlan::Broadcast { len, .. } => *len,
        });
        return lens.max().unwrap_or(0);
    }
    cx.plan
        .port(node, port.number)
        .map_or(0, |plan| plan.buffer_len)
}
