// SPDX-License-Identifier: MIT OR Apache-2.0
//! Remote memory: flows of requests, each with its own area in its target's region, and the
//! expected contents.
//!
//! A flow derives the contents of its area from its requests in this session, since requests are
//! performed in the order of their lane. There are short puts and gets of the same bytes, additions
//! that return each number once, and alternating long puts and gets. When a session ends, the
//! contents are unknown.

use super::{Node, Op, Pull};
use crate::Canary;
use crate::context::Context;
use crate::ledger::Note;
use crate::payload;
use crate::plan::{NODES_MAX, RemoteFlow};
use crate::program::Outgoing;
use portolan_proto::{
    Access, AtomicSpec, Data, Event, LaneId, OpError, OpId, PeerId, PortId, Refused, RegionSpec,
    RemoteSpec, Reply,
};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Key of the region that every process opens.
const KEY: u64 = 77;

/// Lengths in an area: a counter, bytes for short requests, bytes for long ones.
const COUNTER_LEN: usize = 8;
const SHORT_LEN: usize = 8_000;
const LONG_LEN: usize = 150_000;
const AREA_LEN: usize = COUNTER_LEN + SHORT_LEN + LONG_LEN;

/// Minimum length of long requests in bytes: more than any plan sends without a transfer.
const LONG_LEN_MIN: usize = 70_000;

/// Maximum number of unsubmitted requests of a flow before it pauses.
const WAITING_MAX: usize = 64;

/// Pause of a flow with that many, in nanoseconds.
const FULL_NS: u64 = 50_000;

/// Expected result of a request.
#[derive(Debug)]
pub(crate) enum Expect {
    /// Completion only.
    End,
    /// These bytes, as far as they are known.
    Bytes(Vec<Option<u8>>),
    /// This number; if unknown, any number up to the count of additions so far.
    Count(Option<u64>),
    /// Completion of a long put of this payload.
    LongPut(u64),
    /// The payload of that long put.
    LongGet(u64),
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Requests {
    flow: RemoteFlow,
    /// Offset of its area in the region.
    base: usize,
    rng: ChaCha8Rng,
    left: u32,
    next_ns: u64,
    short: Vec<Option<u8>>,
    /// Value that the next addition returns, if known; and the total number of additions.
    counter: Option<u64>,
    added: u64,
    /// Set while an addition is in flight that reveals the counter.
    finding_out: bool,
    /// Payload and length of the last long put.
    long: Option<(u64, usize)>,
    long_under_way: bool,
}

/// Content of a request.
enum Draw {
    Put { off: usize, bytes: Vec<u8> },
    Get { off: usize, len: usize },
    Add,
    LongPut { id: u64, len: usize },
    LongGet { id: u64, len: usize },
}

impl Requests {
    fn new(cx: &Context, index: usize) -> Requests {
        let flow = cx.plan.remote[index];
        let mut rng = ChaCha8Rng::seed_from_u64(cx.plan.seed);
        rng.set_stream(u64::from(NODES_MAX) * 2 + index as u64);
        let earlier = cx.plan.remote[..index].iter();
        let area = earlier.filter(|other| other.dst == flow.dst).count();
        Requests {
            flow,
            base: area * AREA_LEN,
            rng,
            left: flow.count,
            next_ns: flow.start_ns,
            short: vec![None; SHORT_LEN],
            counter: None,
            added: 0,
            finding_out: false,
            long: None,
            long_under_way: false,
        }
    }

    /// Marks everything as unknown at the end of the session, because the outcome of requests in
    /// flight is unknown.
    fn forget(&mut self) {
        self.short.fill(None);
        (self.counter, self.long) = (None, None);
        (self.finding_out, self.long_under_way) = (false, false);
    }

    fn draw(&mut self, id: u64) -> Draw {
        let long = self.rng.random_bool(self.flow.long_share) && !self.long_under_way;
        if long {
            return match self.long.take() {
                Some((id, len)) => Draw::LongGet { id, len },
                None => Draw::LongPut {
                    id,
                    len: self.rng.random_range(LONG_LEN_MIN..=LONG_LEN),
                },
            };
        }
        let kind = self.rng.random_range(0..3);
        if kind == 0 && !self.finding_out {
            return Draw::Add;
        }
        let len = self.rng.random_range(0..=self.flow.len_max.min(SHORT_LEN));
        let off = self.rng.random_range(0..=SHORT_LEN - len);
        match kind {
            1 => Draw::Get { off, len },
            _ => Draw::Put {
                off,
                bytes: payload::make(id, len, false),
            },
        }
    }

    /// Updates the expected contents of the area after a request was submitted.
    fn on_submitted(&mut self, draw: &Draw) {
        match draw {
            Draw::Put { off, bytes } => {
                let known = bytes.iter().map(|&byte| Some(byte));
                let place = &mut self.short[*off..*off + bytes.len()];
                place
                    .iter_mut()
                    .zip(known)
                    .for_each(|(to, byte)| *to = byte);
            }
            Draw::Add => {
                self.added += 1;
                self.finding_out = self.counter.is_none();
                self.counter = self.counter.map(|count| count + 1);
            }
            Draw::LongPut { .. } | Draw::LongGet { .. } => self.long_under_way = true,
            Draw::Get { .. } => {}
        }
    }

    fn expect(&self, draw: &Draw) -> Expect {
        match draw {
            Draw::Put { .. } => Expect::End,
            Draw::Get { off, len } => Expect::Bytes(self.short[*off..*off + *len].to_vec()),
            Draw::Add => Expect::Count(self.counter),
            Draw::LongPut { id, .. } => Expect::LongPut(*id),
            Draw::LongGet { id, .. } => Expect::LongGet(*id),
        }
    }

    pub(super) fn is_for(&self, peer: u32) -> bool {
        self.flow.dst == peer
    }

    /// Checks the contents of the region after all requests have completed; returns a description
    /// of an error.
    pub(super) fn check_area(&self, region: &[u8]) -> Option<String> {
        let area = region.get(self.base..self.base + AREA_LEN)?;
        let (counter, rest) = area.split_at(COUNTER_LEN);
        let (short, long) = rest.split_at(SHORT_LEN);
        let count = payload::number(counter);
        if self.counter.is_some() && count != self.counter {
            return Some(format!("counter {count:?} instead of {:?}", self.counter));
        }
        let differs = |(got, expected): (&u8, &Option<u8>)| expected.is_some_and(|w| w != *got);
        if let Some(at) = short.iter().zip(&self.short).position(differs) {
            return Some(format!("byte {at} of the area of short puts differs"));
        }
        let (id, len) = self.long?;
        let at = payload::first_difference(id, &long[..len], false)?;
        Some(format!("byte {at} of {len} of a long put differs"))
    }

    /// Returns the offset of the first byte in the region.
    fn addr(&self, draw: &Draw) -> u64 {
        let within = match draw {
            Draw::Add => 0,
            Draw::Put { off, .. } | Draw::Get { off, .. } => COUNTER_LEN + off,
            Draw::LongPut { .. } | Draw::LongGet { .. } => COUNTER_LEN + SHORT_LEN,
        };
        (self.base + within) as u64
    }

    /// Checks the result of a successful request; returns a description of an error.
    fn check(&mut self, expect: &Expect, bytes: &[u8]) -> Option<String> {
        match expect {
            Expect::End => None,
            Expect::Bytes(expected) => {
                let differs =
                    |(got, expected): (&u8, &Option<u8>)| expected.is_some_and(|w| w != *got);
                let at = bytes.iter().zip(expected).position(differs);
                at.map(|at| format!("a get of {} bytes differs from byte {at} on", bytes.len()))
            }
            Expect::Count(expected) => {
                let got = payload::number(bytes)?;
                if expected.is_none() {
                    self.finding_out = false;
                    self.counter = Some(got + 1);
                }
                let is_right = expected.map_or(got < self.added, |expected| got == expected);
                (!is_right).then(|| {
                    let added = self.added;
                    format!("counted {got} instead of {expected:?} in {added} additions")
                })
            }
            Expect::LongPut(id) => {
                self.long_under_way = false;
                self.long = Some((*id, bytes.len()));
                None
            }
            Expect::LongGet(id) => {
                self.long_under_way = false;
                let at = payload::first_difference(*id, bytes, false);
                at.map(|at| format!("a get of {} bytes differs from byte {at} on", bytes.len()))
            }
        }
    }
}

impl Node {
    /// Opens the region for requests of other processes, if there are any, and starts the flows.
    pub(super) fn begin_remote(&mut self, cx: &Context) {
        let here = cx.plan.remote.iter().filter(|flow| flow.dst == self.id);
        let len = here.count() * AREA_LEN;
        if len > 0 {
            let op = self.make_op(Op::Region {
                bytes: vec![0; len],
            });
            let spec = RegionSpec {
                key: Some(KEY),
                base: 0,
                len: len as u64,
                access: Access::BOTH,
            };
            self.core.register(op, &spec);
        }
        if self.requests.is_empty() {
            let own = (0..cx.plan.remote.len()).filter(|&at| cx.plan.remote[at].src == self.id);
            self.requests = own.map(|at| Requests::new(cx, at)).collect();
        }
        self.requests.iter_mut().for_each(Requests::forget);
    }

    /// Marks the area at `peer` as unknown after the end of a session, and possibly of the process.
    pub(super) fn forget_area(&mut self, peer: u32) {
        let there = self.requests.iter_mut();
        there
            .filter(|requests| requests.flow.dst == peer)
            .for_each(Requests::forget);
    }

    /// Closes the region at the end; returns `false` if the core does not have it.
    pub(super) fn end_remote(&mut self) -> bool {
        let is_region = |(&op, what): (&u64, &Op)| matches!(what, Op::Region { .. }).then_some(op);
        let Some(region) = self.memory.iter().find_map(is_region) else {
            return true;
        };
        self.memory.remove(&region);
        self.core.deregister(KEY) == Some(OpId(region))
    }

    /// Queues the requests that are due after the messages of their lanes.
    pub(super) fn make_requests(&mut self, cx: &Context) {
        if self.program.is_leaving() {
            return;
        }
        for (index, requests) in self.requests.iter_mut().enumerate() {
            if cx.ending {
                requests.left = 0;
            }
            if requests.left == 0 || requests.next_ns > cx.now {
                continue;
            }
            let flow = requests.flow;
            let outbox = &mut self.peers[flow.dst as usize].outbox[flow.lane.index()];
            if outbox.len() >= WAITING_MAX {
                requests.next_ns = cx.now + flow.gap_ns.max(FULL_NS);
                continue;
            }
            outbox.push_back(Outgoing {
                port: PortId::user(0),
                best_effort: false,
                rendezvous: false,
                len: 0,
                note: Note::Request(index),
            });
            self.with_outbox.insert(flow.dst);
            requests.left -= 1;
            requests.next_ns = cx.now + flow.gap_ns;
        }
    }

    /// Returns the time of the next request.
    pub(super) fn next_request_ns(&self) -> u64 {
        let makes = |requests: &&Requests| requests.left > 0 && !self.program.is_leaving();
        let due = self.requests.iter().filter(makes);
        due.map(|requests| requests.next_ns)
            .min()
            .unwrap_or(u64::MAX)
    }

    pub(super) fn submit_request(
        &mut self,
        cx: &mut Context,
        peer: u32,
        lane: LaneId,
        index: usize,
    ) -> Result<(), Refused> {
        let id = cx.ledger.take_id();
        let before = self.requests[index].long;
        let draw = self.requests[index].draw(id);
        let requests = &self.requests[index];
        let expect = requests.expect(&draw);
        let spec = RemoteSpec {
            lane,
            key: KEY,
            addr: requests.addr(&draw),
            imm: (id.is_multiple_of(7)).then_some(id),
        };
        let bytes = match &draw {
            Draw::Put { bytes, .. } => bytes.clone(),
            Draw::LongPut { id, len } => payload::make(*id, *len, false),
            Draw::Get { len, .. } | Draw::LongGet { len, .. } => vec![0xa5; *len],
            Draw::Add => vec![0xa5; COUNTER_LEN],
        };
        let op = self.make_op(Op::Request {
            bytes: bytes.clone(),
            peer,
            stream: index,
            expect,
        });
        let result = self.ask_for(PeerId(peer), &spec, op, (&draw, &bytes));
        match &result {
            Ok(()) => {
                self.requests[index].on_submitted(&draw);
                self.peers[peer as usize].send_count += 1;
            }
            Err(_) => {
                self.requests[index].long = before;
                self.memory.remove(&op.0);
            }
        }
        result
    }

    fn ask_for(
        &mut self,
        peer: PeerId,
        spec: &RemoteSpec,
        op: OpId,
        (draw, bytes): (&Draw, &[u8]),
    ) -> Result<(), Refused> {
        let len = bytes.len() as u64;
        match draw {
            Draw::Put { .. } | Draw::LongPut { .. } => {
                // The operation's number stands for the buffer's address.
                if let Some(mut staging) = self.core.put(peer, spec, op, len, op.0)? {
                    staging.push(bytes);
                }
                Ok(())
            }
            Draw::Get { .. } | Draw::LongGet { .. } => self.core.get(peer, spec, op, len),
            Draw::Add => {
                let atomic = AtomicSpec {
                    code: 1,
                    datatype: 7,
                    fetch: true,
                    span: 8,
                };
                let mut staging = self.core.atomic(peer, spec, op, &atomic, COUNTER_LEN)?;
                staging.push(&1_u64.to_le_bytes());
                Ok(())
            }
        }
    }

    /// Handles the core's events of remote memory.
    pub(super) fn on_remote(&mut self, cx: &mut Context, frame: &[u8], event: Event) {
        match event {
            Event::RemoteDone { op, result } => {
                if !self.on_one_shot_done(cx, op, result) {
                    self.on_request_done(cx, op, result);
                }
            }
            Event::RemoteWrite { reply, data, .. } => self.on_put(cx, frame, &reply, data),
            Event::Discard { held } => self.core.release(held),
            Event::RemoteRead { reply, len } => self.on_read(cx, &reply, len),
            Event::RemoteAtomic { reply, data, .. } => self.on_add(cx, frame, &reply, data),
            Event::PutNotice(notice) => self.core.notice_taken(&notice),
            // For display only.
            Event::PortUnopened { .. } | Event::MemoryFull { .. } => {}
            _ => cx.violate_always(format!("node {}: unknown event {event:?}", self.id)),
        }
    }

    fn no_region(&self, cx: &mut Context, op: OpId) {
        let id = self.id;
        cx.violate_always(format!("node {id}: {op:?} is no region, or too short"));
    }

    fn region_part(&mut self, region: OpId, off: u64, len: usize) -> Option<&mut [u8]> {
        let off = usize::try_from(off).ok()?;
        match self.memory.get_mut(&region.0) {
            Some(Op::Region { bytes } | Op::OneShotRegion { bytes }) => {
                bytes.get_mut(off..)?.get_mut(..len)
            }
            _ => None,
        }
    }

    fn on_read(&mut self, cx: &mut Context, reply: &Reply, len: u64) {
        let want = usize::try_from(len).unwrap_or(usize::MAX);
        let Some(part) = self.region_part(reply.region, reply.off, want) else {
            return self.no_region(cx, reply.region);
        };
        let bytes = part.to_vec();
        let addr = Pull::addr(reply.region.0, reply.off);
        let local = self.clock.local(cx.now);
        if let Some(mut staging) = self.core.reply_read(local, reply, len, addr) {
            staging.push(&bytes);
        }
        if let Some(key) = self.long_one_shot_key(reply.region, len)
            && cx.strikes(Canary::EarlyClose)
        {
            self.core.deregister(key);
        }
    }

    fn on_put(&mut self, cx: &mut Context, frame: &[u8], reply: &Reply, data: Data) {
        let bytes = match data {
            Data::Frame(range) => frame.get(range).unwrap_or_default().to_vec(),
            Data::Held(held) => {
                let bytes = self.core.held(held).to_vec();
                self.core.release(held);
                bytes
            }
            Data::Placed => return,
        };
        match self.region_part(reply.region, reply.off, bytes.len()) {
            Some(place) => place.copy_from_slice(&bytes),
            None => self.no_region(cx, reply.region),
        }
    }

    fn on_add(&mut self, cx: &mut Context, frame: &[u8], reply: &Reply, data: Data) {
        let operand = match data {
            Data::Frame(range) => frame.get(range).and_then(payload::number),
            Data::Held(held) => {
                let operand = payload::number(self.core.held(held));
                self.core.release(held);
                operand
            }
            Data::Placed => None,
        };
        let operand = match cx.strikes(Canary::CountTwice) {
            true => operand.map(|operand| 2 * operand),
            false => operand,
        };
        let place = self.region_part(reply.region, reply.off, COUNTER_LEN);
        let (Some(operand), Some(place)) = (operand, place) else {
            return self.no_region(cx, reply.region);
        };
        let before = payload::number(place).unwrap_or(0);
        place.copy_from_slice(&before.wrapping_add(operand).to_le_bytes());
        if let Some(mut staging) = self.core.reply(reply, COUNTER_LEN) {
            staging.push(&before.to_le_bytes());
        }
    }

    fn on_request_done(&mut self, cx: &mut Context, op: OpId, result: Result<(), OpError>) {
        let id = self.id;
        let Some(Op::Request {
            bytes,
            peer,
            stream,
            expect,
        }) = self.memory.remove(&op.0)
        else {
            cx.violate_always(format!(
                "node {id}: request {op:?} completed but was not outstanding"
            ));
            return;
        };
        self.peers[peer as usize].send_count -= 1;
        let Err(error) = result else {
            if let Some(what) = self.requests[stream].check(&expect, &bytes) {
                cx.violate(format!("node {id} at {peer}: {what}"));
            }
            return;
        };
        self.failed_count += 1;
        self.check_error(cx, error, "failed a request to");
    }
}
