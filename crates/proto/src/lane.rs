// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lanes: messages of one peer and priority, matched and delivered in the order of their numbers
//! although they came by several paths (`P4.1`). The two lanes share nothing (`P4.2`).

pub(crate) mod best_effort;
mod end;
mod label;
mod parts;
mod remote;
pub(crate) mod shortage;
pub(crate) mod tx;

use crate::base::coverage::Coverage;
use crate::base::credit::charge;
use crate::base::request::{Asked, Request};
use crate::bulk::Origin;
use crate::matching::Arrival;
use crate::matching::port::{Match, Posted, Waiting};
use crate::peer::Peer;
use crate::rma::REMOTE_PORT;
use crate::rma::target::Job;
use crate::shared::Shared;
use crate::{
    Address, Data, Dest, DropReason, Event, HeldId, LinkId, OpError, OpId, PeerId, PortId,
    RemoteFault,
};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::Range;
use portolan_wire::{FRAME_HEADER_LEN, LaneId, Record, Records, RemoteWrite};

/// Credit per peer and lane up to which messages are held although memory is full, so that what
/// others have not read holds nobody up. One longest message, and hundreds of tiny ones. Sessions that
/// come and go leave as much each: there is none while what they left fills the memory by itself.
const HELD_RESERVE: u32 = 16 * 1024;

/// Where one message of the lane stands.
#[derive(Debug)]
pub(crate) enum State {
    /// Fragments gather in held memory; not matched yet.
    Gathering { held: HeldId, received: Coverage },
    /// All there, not matched yet.
    Held(HeldId),
    /// Asked to be sent, not matched yet.
    Request(Asked),
    /// Matched; fragments go straight to the buffer.
    Placing { posted: Posted, received: Coverage },
    /// Matched; a rendezvous fills the buffer.
    Transferring { transfer: u32 },
    /// Matched and all there: deliver in its turn.
    Ready {
        op: Option<OpId>,
        data: Data,
        error: Option<OpError>,
    },
    /// Waits for a receive, at its port or among those with labels.
    Aside,
    /// Goes on as a transfer that is no part of the lane, or failed.
    Gone,
    /// A request for remote memory.
    Remote(Box<Job>),
}

#[derive(Debug)]
struct Entry {
    to: Address,
    len: u64,
    /// Credit to give back when this entry is delivered.
    charge: u32,
    state: State,
}

/// Receiving side. `entries[0]` is the message to be delivered next; the first `matched` have been
/// to their ports.
#[derive(Debug, Default)]
pub(crate) struct LaneRx {
    next_seq: u16,
    matched: usize,
    /// How many of those are requests for remote memory.
    jobs_matched: usize,
    entries: VecDeque<Option<Entry>>,
    pub(crate) best_effort: crate::lane::best_effort::Seen,
    arrived: u32,
    consumed: u32,
    advertised: u32,
    /// What messages have cost that wait for a receive, and how much of it was given back all the
    /// same. `P4.14`
    waiting: u64,
    lent: u64,
}

/// What is kept of a lane on which nothing is under way and all credit was given back.
#[derive(Debug, Default)]
pub(crate) struct LaneMemory {
    next_seq: u16,
    best_effort: crate::lane::best_effort::Seen,
    pub(crate) consumed: u32,
    advertised: u32,
}

impl LaneRx {
    /// `None` while something is under way.
    pub(crate) fn memory(&self) -> Option<LaneMemory> {
        let settled = self.entries.is_empty() && self.arrived == self.consumed && self.waiting == 0;
        settled.then(|| LaneMemory {
            next_seq: self.next_seq,
            best_effort: self.best_effort.clone(),
            consumed: self.consumed,
            advertised: self.advertised,
        })
    }

    pub(crate) fn recall(&mut self, memory: LaneMemory) {
        self.next_seq = memory.next_seq;
        self.best_effort = memory.best_effort;
        (self.arrived, self.consumed) = (memory.consumed, memory.consumed);
        self.advertised = memory.advertised;
    }

    pub(crate) fn new(credit_len: u32) -> Self {
        LaneRx {
            advertised: credit_len,
            ..LaneRx::default()
        }
    }

    /// Limit to tell the peer now.
    pub(crate) fn advertise(&mut self, credit_len: u32) -> u32 {
        self.advertised = self.consumed.wrapping_add(credit_len);
        self.advertised
    }

    pub(crate) fn consumed(&self) -> u32 {
        self.consumed
    }

    /// Half of the credit is used up: soon the peer waits for it.
    pub(crate) fn owes_credit(&self, credit_len: u32) -> bool {
        self.unadvertised(credit_len) >= credit_len / 2
    }

    /// Credit that the peer has not been told of.
    #[inline]
    fn unadvertised(&self, credit_len: u32) -> u32 {
        let limit = self.consumed.wrapping_add(credit_len);
        limit.wrapping_sub(self.advertised)
    }

    /// Gives `charge` back to the peer; `true` when it is time to say so.
    #[inline]
    pub(crate) fn consume(&mut self, charge: u32, credit_len: u32) -> bool {
        self.consumed = self.consumed.wrapping_add(charge);
        // A quarter: seldom enough to cost little, early enough that a stream never stops for it.
        self.unadvertised(credit_len) >= credit_len / 4
    }

    #[inline]
    pub(crate) fn admit(&mut self, charge: u32) -> Result<(), DropReason> {
        let arrived = self.arrived.wrapping_add(charge);
        // P4.3
        if (self.advertised.wrapping_sub(arrived) as i32) < 0 {
            return Err(DropReason::BeyondCredit);
        }
        self.arrived = arrived;
        Ok(())
    }

    /// A message that waited was taken; returns what comes back of what it had cost.
    pub(crate) fn end_waiting(&mut self, charge: u32) -> u32 {
        debug_assert!(self.waiting >= u64::from(charge), "it did not wait");
        self.waiting -= u64::from(charge);
        let paid = u64::from(charge).min(self.lent);
        self.lent -= paid;
        charge - u32::try_from(paid).unwrap_or(charge)
    }

    /// Counts up to `charge` of what messages that wait have cost as lent; returns how much.
    pub(crate) fn lend(&mut self, charge: u32) -> u32 {
        // Below the lane's credit, as it keeps a message back.
        let kept = u32::try_from(self.waiting - self.lent).unwrap_or(u32::MAX);
        let lent = kept.min(charge);
        self.lent += u64::from(lent);
        lent
    }

    /// Messages that wait keep credit back.
    pub(crate) fn keeps_credit(&self) -> bool {
        self.waiting > self.lent
    }

    /// Messages that were matched are yet to be delivered.
    pub(crate) fn has_matched(&self) -> bool {
        self.matched > 0
    }

    /// Index of `seq` among the entries.
    #[inline]
    pub(crate) fn index(&self, seq: u16) -> Result<usize, DropReason> {
        let ahead = seq.wrapping_sub(self.next_seq);
        // P4.8
        if ahead >= 1 << 15 {
            return Err(DropReason::Duplicate);
        }
        Ok(usize::from(ahead))
    }

    /// Index of `seq`, of which nothing has arrived yet.
    pub(crate) fn fresh(&self, seq: u16) -> Result<usize, DropReason> {
        let index = self.index(seq)?;
        match self.entries.get(index) {
            Some(Some(_)) => Err(DropReason::Duplicate),
            _ => Ok(index),
        }
    }

    fn place(&mut self, index: usize) -> &mut Option<Entry> {
        if index >= self.entries.len() {
            self.entries.resize_with(index + 1, || None);
        }
        &mut self.entries[index]
    }

    /// The peer has credit for `charge`.
    #[inline]
    pub(crate) fn has_room(&self, charge: u32) -> bool {
        self.advertised
            .wrapping_sub(self.arrived.wrapping_add(charge)) as i32
            >= 0
    }

    /// The next message was taken past the queue.
    #[inline]
    pub(crate) fn take_next(&mut self, charge: u32) {
        self.arrived = self.arrived.wrapping_add(charge);
        self.next_seq = self.next_seq.wrapping_add(1);
    }

    /// A message to `port` has been matched and is yet to be delivered. What waits at the port is
    /// younger: nothing is matched past a waiting message.
    pub(crate) fn owes(&self, port: PortId) -> bool {
        let matched = self.entries.iter().take(self.matched).flatten();
        matched
            .filter(|entry| entry.to == Address::Port(port))
            .any(|entry| !matches!(entry.state, State::Aside | State::Gone))
    }

    /// The next number was dealt with past the queue.
    pub(crate) fn skip_next(&mut self) {
        self.next_seq = self.next_seq.wrapping_add(1);
    }

    /// Nothing of the message at `index` has arrived.
    pub(crate) fn is_vacant(&self, index: usize) -> bool {
        self.entries.get(index).is_none_or(Option::is_none)
    }

    pub(crate) fn put_job(&mut self, index: usize, job: Job, charge: u32) {
        *self.place(index) = Some(Entry {
            to: REMOTE_PORT.into(),
            len: 0,
            charge,
            state: State::Remote(Box::new(job)),
        });
    }

    /// The request at `index`.
    pub(crate) fn job_mut(&mut self, index: usize) -> Option<&mut Job> {
        match &mut self.entries.get_mut(index)?.as_mut()?.state {
            State::Remote(job) => Some(job),
            _ => None,
        }
    }

    /// Credit that the peer has spent on what is not consumed: early, unread, or under way in parts.
    fn outstanding(&self) -> u32 {
        self.arrived.wrapping_sub(self.consumed)
    }

    /// A part of this message has arrived, and has its place.
    fn has_begun(&self, seq: u16) -> bool {
        self.index(seq)
            .is_ok_and(|index| matches!(self.entries.get(index), Some(Some(_))))
    }

    /// Nothing waits before the message with this number.
    #[inline]
    pub(crate) fn is_next(&self, seq: u16) -> bool {
        self.entries.is_empty() && seq == self.next_seq
    }
}

impl Peer {
    /// Whether `frame` has a message that would have to be held beyond what every peer may have
    /// held. Asked only when memory is full. `P3.10`
    #[cold]
    pub(crate) fn must_hold(&self, sh: &mut Shared, frame: &[u8]) -> bool {
        let reserve = reserve(sh);
        let mut taken: Vec<Address> = Vec::new();
        let mut ahead = [0u16; 2];
        for item in Records::new(frame, FRAME_HEADER_LEN, frame.len()) {
            let (message, is_part) = match item {
                Ok((Record::Message(message), _)) if !message.best_effort => (message, false),
                Ok((Record::Fragment(fragment), _)) => (fragment.message, true),
                Ok((Record::RemoteWrite(write), _)) => {
                    if self.must_hold_write(&write, reserve, &mut ahead) {
                        return true;
                    }
                    continue;
                }
                Ok(_) => continue,
                Err(_) => break,
            };
            let rx = &self.lanes_rx[message.lane.index()];
            if rx.outstanding() < reserve || rx.has_begun(message.seq) {
                continue;
            }
            let to = Address::of(&message);
            let used = taken.iter().filter(|other| other.shares_queue(&to)).count();
            let ahead = &mut ahead[message.lane.index()];
            let in_turn = rx.is_next(message.seq.wrapping_sub(*ahead));
            let arrival = match is_part {
                true => Arrival::Parts,
                false => Arrival::Whole,
            };
            let from = (self.id, message.lane);
            let finds_buffer = sh.matching.would_take(&sh.ctx, from, &to, arrival, used);
            if !in_turn || !finds_buffer {
                return true;
            }
            *ahead += 1;
            taken.push(to);
        }
        false
    }

    /// The same for one write to remote memory, `ahead` messages of its lane being dealt with before.
    fn must_hold_write(&self, write: &RemoteWrite, reserve: u32, ahead: &mut [u16; 2]) -> bool {
        let (lane, seq) = (write.head.lane.index(), write.head.seq);
        let rx = &self.lanes_rx[lane];
        if rx.outstanding() < reserve || rx.has_begun(seq) {
            return false;
        }
        let is_whole = u32::from(write.len) == write.total_len;
        let in_turn = rx.is_next(seq.wrapping_sub(ahead[lane]));
        ahead[lane] += 1;
        !(is_whole && in_turn)
    }

    /// A whole eager message, at `payload` of the frame being handled.
    #[inline]
    pub(crate) fn on_whole(
        &mut self,
        sh: &mut Shared,
        lane: LaneId,
        port: PortId,
        seq: u16,
        payload: Range<usize>,
    ) -> Result<(), DropReason> {
        let rx = &mut self.lanes_rx[lane.index()];
        let charge = charge(payload.len());
        if rx.is_next(seq) {
            rx.admit(charge)?;
            let found = sh.matching.find_at_port(port, self.id, lane);
            let (op, capacity) = match found {
                Match::InPlace => (None, u64::MAX),
                Match::Posted(posted) => (Some(posted.op), posted.len),
                Match::Nothing | Match::Discarded => {
                    return self.keep_whole(sh, lane, port.into(), 0, payload);
                }
            };
            rx.next_seq = rx.next_seq.wrapping_add(1);
            let len = payload.len() as u64;
            let error = (len > capacity).then_some(OpError::Truncated { message_len: len });
            let data = Data::Frame(payload);
            self.deliver(sh, lane, port, op, len, data, error);
            self.consume(sh, lane, charge);
            return Ok(());
        }
        // P3.12: what has come by another path costs nothing a second time.
        let index = rx.fresh(seq)?;
        rx.admit(charge)?;
        self.keep_whole(sh, lane, port.into(), index, payload)
    }

    /// Copies a message that cannot be delivered straight from its frame into held memory.
    fn keep_whole(
        &mut self,
        sh: &mut Shared,
        lane: LaneId,
        to: Address,
        index: usize,
        payload: Range<usize>,
    ) -> Result<(), DropReason> {
        let len = payload.len();
        let held = sh.held.take(len);
        sh.ctx.counters_mut().messages_held += 1;
        sh.ctx.emit(Event::Place {
            dest: Dest::Held(held, 0),
            src: payload,
        });
        let state = State::Held(held);
        *self.lanes_rx[lane.index()].place(index) = Some(Entry {
            to,
            len: len as u64,
            charge: charge(len),
            state,
        });
        self.advance(sh, lane);
        Ok(())
    }

    /// A request to send.
    pub(crate) fn on_request(
        &mut self,
        sh: &mut Shared,
        link: LinkId,
        rts: &portolan_wire::Rts,
    ) -> Result<(), DropReason> {
        // The data will come by the path for bulk, which the peer chooses as this side does.
        let (link, lossless) = self.paths.data_link(link);
        // P5.1
        if rts.message_len == 0 || !lossless && rts.message.len == 0 {
            return Err(DropReason::BadFragment);
        }
        let lane = rts.message.lane;
        let to = Address::of(&rts.message);
        let rx = &mut self.lanes_rx[lane.index()];
        let index = rx.fresh(rts.message.seq)?;
        rx.admit(charge(0))?;
        let state = State::Request(Asked {
            sender_transfer: rts.transfer,
            remote_addr: rts.remote_addr,
            fragment_len: rts.message.len,
            link,
        });
        *rx.place(index) = Some(Entry {
            to,
            len: rts.message_len,
            charge: charge(0),
            state,
        });
        self.advance(sh, lane);
        Ok(())
    }

    /// The rendezvous of the message `seq` has filled its buffer.
    pub(crate) fn on_transferred(
        &mut self,
        sh: &mut Shared,
        lane: LaneId,
        transfer: u32,
        op: OpId,
        error: Option<OpError>,
    ) {
        let rx = &mut self.lanes_rx[lane.index()];
        for entry in rx.entries.iter_mut().flatten() {
            if matches!(entry.state, State::Transferring { transfer: key } if key == transfer) {
                entry.state = State::Ready {
                    op: Some(op),
                    data: Data::Placed,
                    error,
                };
            }
        }
        self.advance(sh, lane);
    }

    /// The transfer of a put has ended; it is answered in its turn.
    pub(crate) fn on_put_transferred(
        &mut self,
        sh: &mut Shared,
        lane: LaneId,
        transfer: u32,
        result: Result<(), RemoteFault>,
    ) {
        let rx = &mut self.lanes_rx[lane.index()];
        for entry in rx.entries.iter_mut().flatten() {
            if let State::Remote(job) = &mut entry.state {
                job.settle(transfer, result);
            }
        }
        self.advance(sh, lane);
    }

    /// Matches what is next to be matched and delivers what is next to be delivered.
    pub(crate) fn advance(&mut self, sh: &mut Shared, lane: LaneId) {
        loop {
            self.match_next(sh, lane);
            if !self.deliver_ready(sh, lane) {
                return;
            }
        }
    }

    fn match_next(&mut self, sh: &mut Shared, lane: LaneId) {
        loop {
            let rx = &mut self.lanes_rx[lane.index()];
            let Some(Some(entry)) = rx.entries.get_mut(rx.matched) else {
                return;
            };
            let is_job = matches!(entry.state, State::Remote(_));
            // P12.9: a message that was matched could be delivered before its turn in the lane.
            if rx.jobs_matched > 0 && !is_job || !match_entry(sh, self.id, lane, entry) {
                return;
            }
            if matches!(entry.state, State::Aside) {
                rx.waiting += u64::from(entry.charge);
            }
            if let Some(transfer) = sh.refused.take() {
                self.refuse(transfer);
            }
            let rx = &mut self.lanes_rx[lane.index()];
            rx.jobs_matched += usize::from(is_job);
            rx.matched += 1;
        }
    }

    /// `true` if a request for remote memory was performed, for which others may have waited.
    fn deliver_ready(&mut self, sh: &mut Shared, lane: LaneId) -> bool {
        let mut performed = false;
        loop {
            let rx = &mut self.lanes_rx[lane.index()];
            let state = rx
                .entries
                .front()
                .and_then(Option::as_ref)
                .map(|entry| &entry.state);
            let is_ready = match state {
                Some(State::Ready { .. } | State::Aside | State::Gone) => true,
                Some(State::Remote(job)) => job.is_ready(),
                _ => false,
            };
            if rx.matched == 0 || !is_ready {
                return performed;
            }
            let entry = rx.entries.pop_front().flatten();
            rx.matched -= 1;
            rx.next_seq = rx.next_seq.wrapping_add(1);
            let Some(entry) = entry else { continue };
            if let State::Remote(job) = entry.state {
                rx.jobs_matched -= 1;
                performed = true;
                let spent = job.finish(&mut self.host(sh), entry.charge);
                self.consume(sh, lane, spent);
                continue;
            }
            if let State::Aside = entry.state {
                let free = label::credit_comes_back(sh, &entry.to);
                self.on_aside(sh, lane, entry.charge, free);
                continue;
            }
            if let State::Ready { op, data, error } = entry.state {
                self.deliver_to(sh, lane, &entry.to, op, entry.len, data, error);
                sh.matching.on_delivered(&entry.to);
            }
            self.consume(sh, lane, entry.charge);
        }
    }

    #[allow(
        clippy::too_many_arguments,
        reason = "one argument per field of the event"
    )]
    #[inline]
    pub(crate) fn deliver(
        &mut self,
        sh: &mut Shared,
        lane: LaneId,
        port: PortId,
        op: Option<OpId>,
        len: u64,
        data: Data,
        error: Option<OpError>,
    ) {
        sh.ctx.count_received(len);
        sh.ctx.emit(Event::Deliver {
            peer: self.id,
            port,
            lane,
            op,
            len,
            data,
            error,
        });
    }

    /// Gives credit back and tells the peer when it is time. `P4.4`
    #[inline]
    pub(crate) fn consume(&mut self, sh: &mut Shared, lane: LaneId, charge: u32) {
        let credit_len = sh.ctx.credit_len();
        if self.lanes_rx[lane.index()].consume(charge, credit_len) {
            self.credit_due[lane.index()] = true;
        }
    }
}

/// Credit whose messages are held although memory is full. `P3.10`
fn reserve(sh: &Shared) -> u32 {
    match sh.held.left_len() > sh.ctx.limits().held_len_max {
        true => 0,
        false => HELD_RESERVE,
    }
}

/// Takes a message in its turn to its port; `false` if it must wait for more of itself.
fn match_entry(sh: &mut Shared, peer: PeerId, lane: LaneId, entry: &mut Entry) -> bool {
    if let State::Remote(job) = &mut entry.state {
        let Shared {
            ctx,
            remote,
            transfers,
            ..
        } = sh;
        return job.match_up(ctx, remote, transfers, peer);
    }
    let (from, to, len) = ((peer, lane), entry.to, entry.len);
    match &entry.state {
        State::Gathering { held, received } => {
            // Before its first part is placed, it may still go straight to a buffer.
            if !received.is_empty() {
                return false;
            }
            let found = sh
                .matching
                .find(&mut sh.ctx, from, &to, len, Arrival::Parts);
            let Match::Posted(posted) = found else {
                return false;
            };
            sh.held.release(*held);
            let received = Coverage::default();
            entry.state = State::Placing { posted, received };
        }
        &State::Held(held) => {
            let found = sh
                .matching
                .find(&mut sh.ctx, from, &to, len, Arrival::Whole);
            entry.state = match found {
                Match::InPlace => State::Ready {
                    op: None,
                    data: Data::Held(held),
                    error: None,
                },
                Match::Posted(posted) => State::Ready {
                    op: Some(posted.op),
                    data: Data::Held(held),
                    error: OpError::truncated(len, posted.len),
                },
                Match::Discarded => sh.discard_held(held),
                Match::Nothing => put_aside(sh, from, entry, Waiting::Held(held)),
            };
        }
        &State::Request(asked) => return match_request(sh, from, entry, asked),
        State::Placing { .. }
        | State::Transferring { .. }
        | State::Ready { .. }
        | State::Aside
        | State::Gone
        | State::Remote(_) => {}
    }
    true
}

/// A request to send in its turn; `false` if it must wait for room among the transfers.
fn match_request(sh: &mut Shared, from: (PeerId, LaneId), entry: &mut Entry, asked: Asked) -> bool {
    let is_port = matches!(entry.to, Address::Port(_));
    if is_port && !sh.transfers.has_rx_room() {
        return false;
    }
    let found = sh
        .matching
        .find(&mut sh.ctx, from, &entry.to, entry.len, Arrival::Request);
    entry.state = match found {
        Match::Posted(posted) => {
            let request = Request {
                peer: from.0,
                lane: from.1,
                to: entry.to,
                len: entry.len,
                asked,
            };
            if is_port {
                let transfer = sh
                    .transfers
                    .start(&mut sh.ctx, &request, posted, Origin::Lane);
                State::Transferring { transfer }
            } else {
                sh.start_labelled(request, posted);
                State::Gone
            }
        }
        Match::Discarded => sh.discard_request(asked),
        Match::Nothing | Match::InPlace => put_aside(sh, from, entry, Waiting::Request(asked)),
    };
    true
}

/// Lets the message wait until a receive takes it. `P4.7`
fn put_aside(sh: &mut Shared, from: (PeerId, LaneId), entry: &Entry, what: Waiting) -> State {
    let keeps_credit = entry.charge > 0;
    sh.matching
        .put_aside(&mut sh.ctx, from, &entry.to, entry.len, keeps_credit, what);
    State::Aside
}
