// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lanes: messages of one peer and priority, matched and delivered in the order of their numbers
//! even if they arrive on several paths (`P4.1`). The two lanes share nothing (`P4.2`).

mod assembly;
pub(crate) mod best_effort;
mod deliver;
mod end;
mod held_back;
mod lanes;
mod parts;
mod remote;
mod rx;
pub(crate) mod stream;
pub(crate) mod tx;

use crate::base::coverage::Coverage;
use crate::base::credit::charge;
use crate::base::request::{Announced, Request};
use crate::bulk::Origin;
use crate::matching::Arrival;
use crate::matching::port::{Match, Posted, Waiting};
use crate::path::control::{Control, ControlQueue};
use crate::rma::target::{Host, Job};
use crate::shared::Shared;
use crate::{
    Address, Data, Dest, DropReason, Event, HeldId, LinkId, OpError, OpId, PeerId, RemoteFault,
};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use assembly::Assembly;
use best_effort::Seen;
use core::ops::Range;
use held_back::HeldBack;
use portolan_wire::{DoneStatus, FRAME_HEADER_LEN, LaneId, Message, Record, Records, RemoteWrite};
use tx::LaneTx;

/// Credit per peer and lane for which messages are held even if memory is full, so that unread
/// messages of other peers block no lane. It admits one message of maximum length, or hundreds of
/// tiny ones. Each closed session may leave as much behind, so the reserve is 0 while such
/// leftovers alone fill the memory.
const HELD_RESERVE: u32 = 16 * 1024;

/// Both lanes shared with one peer.
#[derive(Debug)]
pub(crate) struct Lanes {
    tx: [LaneTx; 2],
    rx: [LaneRx; 2],
    /// Set if the peer must be sent the lane's credit.
    credit_due: [bool; 2],
    held_back: HeldBack,
    /// Present once a best-effort message of several frames has arrived.
    assembly: Option<Box<Assembly>>,
}

/// State of the lanes that is kept while nothing is in flight.
#[derive(Debug)]
pub(crate) struct DormantLanes {
    tx: [LaneTx; 2],
    rx: [LaneMemory; 2],
    assembly: Option<Box<Assembly>>,
}

/// Context of the lanes: the sender, and the state against which messages are matched.
pub(crate) struct Env<'a> {
    pub(crate) peer: PeerId,
    /// This side's token in the session.
    pub(crate) session: u64,
    /// Set unless the session has failed; the peer then waits for answers.
    pub(crate) is_open: bool,
    pub(crate) control: &'a mut ControlQueue,
    pub(crate) sh: &'a mut Shared,
}

impl Env<'_> {
    /// Returns the context in which requests of the peer are performed.
    fn host(&mut self) -> Host<'_> {
        Host {
            peer: self.peer,
            session: self.session,
            ctx: &mut self.sh.ctx,
            remote: &self.sh.remote,
            control: self.is_open.then_some(&mut *self.control),
        }
    }
}

/// State of one message of the lane.
#[derive(Debug)]
pub(crate) enum State {
    /// Fragments gather in held memory; not matched yet.
    Gathering { held: HeldId, received: Coverage },
    /// Complete in held memory; not matched yet.
    Held(HeldId),
    /// Request to send; not matched yet.
    Request(Announced),
    /// Matched; fragments are placed in the buffer.
    Placing { posted: Posted, received: Coverage },
    /// Matched; a rendezvous transfer fills the buffer.
    Transferring { transfer: u32 },
    /// Matched and complete; to be delivered in order.
    Ready {
        op: Option<OpId>,
        data: Data,
        error: Option<OpError>,
    },
    /// Waits for a receive, at its port or among the tagged messages.
    Unexpected,
    /// Continues as a transfer outside the lane, or has failed.
    Detached,
    /// Request for remote memory.
    Remote(Box<Job>),
}

#[derive(Debug)]
struct Entry {
    to: Address,
    len: u64,
    /// Credit to return when this entry is delivered.
    charge: u32,
    state: State,
    /// Set while a stream brings the message, as long as no fragment of it has arrived.
    by_stream: bool,
}

/// Receiving side. `entries[0]` is the next message to deliver; the first `matched` entries have
/// been matched.
#[derive(Debug, Default)]
pub(crate) struct LaneRx {
    next_seq: u16,
    matched: usize,
    /// Number of matched entries that are requests for remote memory.
    jobs_matched: usize,
    entries: VecDeque<Option<Entry>>,
    best_effort: Seen<16>,
    arrived: u32,
    consumed: u32,
    advertised: u32,
    /// Credit cost of the messages that wait for a receive, and the part of it that was returned
    /// early. `P4.14`
    waiting: u64,
    returned_early: u64,
}

/// State that is kept for an idle lane after all credit was returned.
#[derive(Debug, Default)]
pub(crate) struct LaneMemory {
    next_seq: u16,
    best_effort: Seen<16>,
    consumed: u32,
    advertised: u32,
}

impl Lanes {
    /// Handles a record that is numbered in a lane. Data that it announces arrives on `data_link`,
    /// given with whether that link is lossless.
    #[inline]
    pub(crate) fn on_record(
        &mut self,
        env: &mut Env<'_>,
        record: &Record,
        payload: Range<usize>,
        data_link: (LinkId, bool),
    ) -> Result<(), DropReason> {
        match record {
            Record::Message(message) if message.best_effort => {
                self.on_best_effort(env, message, payload)
            }
            Record::Message(message) => self.on_eager(env, message, payload),
            Record::Fragment(fragment) => self.on_fragment(env, fragment, payload),
            Record::Rts(rts) => self.on_request(env, data_link, rts),
            Record::RemoteWrite(write) => self.on_remote_write(env, write, payload),
            Record::RemoteRts(rts) => self.on_remote_rts(env, data_link, rts),
            Record::RemoteGet(get) => self.on_remote_get(env, get),
            _ => Err(DropReason::Misplaced),
        }
    }

    /// Returns true if `frame` has a message that would have to be held beyond each peer's reserve.
    /// Called only when memory is full. `P3.10`
    #[cold]
    pub(crate) fn must_hold(&self, env: &mut Env<'_>, frame: &[u8]) -> bool {
        let reserve = reserve(env.sh);
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
            let rx = &self.rx[message.lane.index()];
            if rx.outstanding() < reserve || rx.is_due(message.seq) {
                continue;
            }
            let to = Address::of(&message);
            let used = taken.iter().filter(|other| other.shares_queue(&to)).count();
            let ahead = &mut ahead[message.lane.index()];
            let in_turn = rx.is_next(message.seq.wrapping_sub(*ahead));
            let arrival = match is_part {
                true => Arrival::Parts,
                false => Arrival::Complete,
            };
            let from = (env.peer, message.lane);
            let finds_buffer = env
                .sh
                .matching
                .would_take(&env.sh.ctx, from, &to, arrival, used);
            if !in_turn || !finds_buffer {
                return true;
            }
            *ahead += 1;
            taken.push(to);
        }
        false
    }

    /// Does the check of [`Lanes::must_hold`] for one write to remote memory. `ahead` counts the
    /// messages of each lane handled before.
    fn must_hold_write(&self, write: &RemoteWrite, reserve: u32, ahead: &mut [u16; 2]) -> bool {
        let (lane, seq) = (write.head.lane.index(), write.head.seq);
        let rx = &self.rx[lane];
        if rx.outstanding() < reserve || rx.is_due(seq) {
            return false;
        }
        let is_complete = u32::from(write.len) == write.total_len;
        let in_turn = rx.is_next(seq.wrapping_sub(ahead[lane]));
        ahead[lane] += 1;
        !(is_complete && in_turn)
    }

    /// Handles a whole eager message, at `payload` of the frame being handled.
    #[inline]
    fn on_eager(
        &mut self,
        env: &mut Env<'_>,
        message: &Message,
        payload: Range<usize>,
    ) -> Result<(), DropReason> {
        let (lane, to) = (message.lane, Address::of(message));
        let rx = &mut self.rx[lane.index()];
        let (charge, len) = (charge(payload.len()), payload.len() as u64);
        // P3.12: a message that has already arrived on another path is charged only once.
        let index = rx.fresh(message.seq)?;
        rx.admit(charge)?;
        if !rx.is_next(message.seq) {
            return self.hold_eager(env, lane, to, index, payload);
        }
        let Shared { matching, ctx, .. } = &mut *env.sh;
        let from = (env.peer, lane);
        let mut data = Data::Frame(payload.clone());
        let (op, error) = match matching.find_eager(ctx, from, &to, len) {
            Match::InPlace => (None, None),
            Match::Posted(posted) => {
                // P11.10: the frame's memory is reused before the message is delivered, so copy it
                // now.
                if let Address::MatchBits(match_bits) = &to
                    && matching.must_wait(from, match_bits)
                {
                    data = Data::Placed;
                    if let Some(event) = posted.place(0, payload) {
                        ctx.emit(event);
                    }
                }
                (Some(posted.op), OpError::truncated(len, posted.len))
            }
            Match::Nothing | Match::Discarded => {
                return self.hold_eager(env, lane, to, 0, payload);
            }
        };
        rx.skip_next();
        self.deliver(env, lane, &to, op, len, data, error);
        self.consume(env, lane, charge);
        Ok(())
    }

    /// Queues the next message of its lane, which was copied to `len` bytes of held memory. Returns
    /// true if credit must be sent to the peer.
    pub(crate) fn hold_next(
        &mut self,
        env: &mut Env<'_>,
        lane: LaneId,
        to: &Address,
        (held, len): (HeldId, usize),
    ) -> bool {
        let (from, charge) = ((env.peer, lane), charge(len));
        let rx = &mut self.rx[lane.index()];
        rx.take_next(charge);
        rx.waiting += u64::from(charge);
        let Shared { matching, ctx, .. } = &mut *env.sh;
        matching.queue_unexpected(ctx, from, to, len as u64, true, Waiting::Held(held));
        let free = deliver::credit_comes_back(env.sh, to);
        self.on_unexpected(env, lane, charge, free);
        self.credit_due[lane.index()]
    }

    /// Copies a message that cannot be delivered from its frame to held memory.
    fn hold_eager(
        &mut self,
        env: &mut Env<'_>,
        lane: LaneId,
        to: Address,
        index: usize,
        payload: Range<usize>,
    ) -> Result<(), DropReason> {
        let len = payload.len();
        let held = env.sh.held.take(len);
        env.sh.ctx.counters_mut().messages_held += 1;
        env.sh.ctx.emit(Event::Place {
            dest: Dest::Held(held, 0),
            src: payload,
        });
        let state = State::Held(held);
        *self.rx[lane.index()].place(index) = Some(Entry {
            to,
            len: len as u64,
            charge: charge(len),
            state,
            by_stream: false,
        });
        self.advance(env, lane);
        Ok(())
    }

    /// Handles a request to send.
    pub(crate) fn on_request(
        &mut self,
        env: &mut Env<'_>,
        (link, lossless): (LinkId, bool),
        rts: &portolan_wire::Rts,
    ) -> Result<(), DropReason> {
        // P5.1
        if rts.message_len == 0 || !lossless && rts.message.len == 0 {
            return Err(DropReason::BadFragment);
        }
        let lane = rts.message.lane;
        let to = Address::of(&rts.message);
        let rx = &mut self.rx[lane.index()];
        let index = match rx.fresh(rts.message.seq) {
            Err(DropReason::Duplicate) => {
                // P15.15: the stream has ended, and the sender has not received this side's transfer
                // number.
                if let Some(grant) = env.sh.transfers.repeated_grant(env.peer, rts.transfer) {
                    env.control.push(Control::Grant(grant));
                }
                return Err(DropReason::Duplicate);
            }
            index => index?,
        };
        rx.admit(charge(0))?;
        let state = State::Request(Announced {
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
            by_stream: false,
        });
        self.advance(env, lane);
        Ok(())
    }

    /// Handles the completion of the rendezvous that fills the buffer of a message.
    pub(crate) fn on_transferred(
        &mut self,
        env: &mut Env<'_>,
        lane: LaneId,
        transfer: u32,
        op: OpId,
        error: Option<OpError>,
    ) {
        let rx = &mut self.rx[lane.index()];
        for entry in rx.entries.iter_mut().flatten() {
            if matches!(entry.state, State::Transferring { transfer: key } if key == transfer) {
                entry.state = State::Ready {
                    op: Some(op),
                    data: Data::Placed,
                    error,
                };
            }
        }
        self.advance(env, lane);
    }

    /// Handles the completion of a put's transfer. The put is answered in order.
    pub(crate) fn on_put_transferred(
        &mut self,
        env: &mut Env<'_>,
        lane: LaneId,
        transfer: u32,
        result: Result<(), RemoteFault>,
    ) {
        let rx = &mut self.rx[lane.index()];
        for entry in rx.entries.iter_mut().flatten() {
            if let State::Remote(job) = &mut entry.state {
                job.settle(transfer, result);
            }
        }
        self.advance(env, lane);
    }

    /// Matches and delivers all messages that can be handled next.
    pub(crate) fn advance(&mut self, env: &mut Env<'_>, lane: LaneId) {
        loop {
            self.match_next(env, lane);
            if !self.deliver_ready(env, lane) {
                return;
            }
        }
    }

    fn match_next(&mut self, env: &mut Env<'_>, lane: LaneId) {
        loop {
            let rx = &mut self.rx[lane.index()];
            let Some(Some(entry)) = rx.entries.get_mut(rx.matched) else {
                return;
            };
            let is_job = matches!(entry.state, State::Remote(_));
            // P12.9: if matched, it could be delivered before its turn in the lane.
            if rx.jobs_matched > 0 && !is_job || !match_entry(env, lane, entry) {
                return;
            }
            if matches!(entry.state, State::Unexpected) {
                rx.waiting += u64::from(entry.charge);
            }
            let rx = &mut self.rx[lane.index()];
            rx.jobs_matched += usize::from(is_job);
            rx.matched += 1;
        }
    }

    /// Delivers ready messages in order. Returns `true` if a request for remote memory was
    /// performed, since later messages may have waited for it.
    fn deliver_ready(&mut self, env: &mut Env<'_>, lane: LaneId) -> bool {
        let mut performed = false;
        loop {
            let rx = &mut self.rx[lane.index()];
            let state = rx
                .entries
                .front()
                .and_then(Option::as_ref)
                .map(|entry| &entry.state);
            let is_ready = match state {
                Some(State::Ready { .. } | State::Unexpected | State::Detached) => true,
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
                let spent = job.finish(&mut env.host(), entry.charge);
                self.consume(env, lane, spent);
                continue;
            }
            if let State::Unexpected = entry.state {
                let free = deliver::credit_comes_back(env.sh, &entry.to);
                self.on_unexpected(env, lane, entry.charge, free);
                continue;
            }
            if let State::Ready { op, data, error } = entry.state {
                self.deliver(env, lane, &entry.to, op, entry.len, data, error);
                env.sh.matching.on_delivered(&entry.to);
            }
            self.consume(env, lane, entry.charge);
        }
    }

    /// Returns credit, and schedules a credit record if enough has accumulated. `P4.4`
    #[inline]
    pub(crate) fn consume(&mut self, env: &mut Env<'_>, lane: LaneId, charge: u32) {
        self.return_charge(lane, charge, env.sh.ctx.credit_len());
    }
}

/// Returns the credit for which messages are held although memory is full. `P3.10`
fn reserve(sh: &Shared) -> u32 {
    match sh.held.orphaned_len() > sh.ctx.limits().held_len_max {
        true => 0,
        false => HELD_RESERVE,
    }
}

/// Matches the next message of a lane. Returns `false` if it must wait for more of its own data.
fn match_entry(env: &mut Env<'_>, lane: LaneId, entry: &mut Entry) -> bool {
    if let State::Remote(job) = &mut entry.state {
        let Shared {
            ctx,
            remote,
            transfers,
            ..
        } = env.sh;
        return job.match_up(ctx, remote, transfers, env.peer);
    }
    let (from, to, len) = ((env.peer, lane), entry.to, entry.len);
    match &entry.state {
        State::Gathering { held, received } => {
            // Before its first part is placed, the message can still be received directly into a
            // buffer.
            if !received.is_empty() || entry.by_stream {
                return false;
            }
            let found = env
                .sh
                .matching
                .find(&mut env.sh.ctx, from, &to, len, Arrival::Parts);
            let Match::Posted(posted) = found else {
                return false;
            };
            env.sh.held.release(*held);
            env.sh.matching.begin_in_order(from, &to, posted.op);
            let received = Coverage::default();
            entry.state = State::Placing { posted, received };
        }
        &State::Held(held) => {
            let found = env
                .sh
                .matching
                .find(&mut env.sh.ctx, from, &to, len, Arrival::Complete);
            entry.state = match found {
                Match::InPlace => State::Ready {
                    op: None,
                    data: Data::Held(held),
                    error: None,
                },
                Match::Posted(posted) => {
                    env.sh.matching.begin_in_order(from, &to, posted.op);
                    State::Ready {
                        op: Some(posted.op),
                        data: Data::Held(held),
                        error: OpError::truncated(len, posted.len),
                    }
                }
                Match::Discarded => {
                    env.sh.forget_held(&[held]);
                    State::Detached
                }
                Match::Nothing => queue_unexpected(env, from, entry, Waiting::Held(held)),
            };
        }
        &State::Request(announced) => return match_request(env, from, entry, announced),
        State::Placing { .. }
        | State::Transferring { .. }
        | State::Ready { .. }
        | State::Unexpected
        | State::Detached
        | State::Remote(_) => {}
    }
    true
}

/// Matches the next message of a lane if it is a request to send. Returns `false` if it must wait
/// for room among the transfers.
fn match_request(
    env: &mut Env<'_>,
    from: (PeerId, LaneId),
    entry: &mut Entry,
    announced: Announced,
) -> bool {
    let is_port = matches!(entry.to, Address::Port(_));
    if is_port && !env.sh.transfers.has_rx_room() {
        return false;
    }
    let found = env.sh.matching.find(
        &mut env.sh.ctx,
        from,
        &entry.to,
        entry.len,
        Arrival::Request,
    );
    entry.state = match found {
        Match::Posted(posted) => {
            let request = Request {
                peer: from.0,
                lane: from.1,
                to: entry.to,
                len: entry.len,
                announced,
            };
            if is_port {
                let transfer =
                    env.sh
                        .transfers
                        .start(&mut env.sh.ctx, &request, posted, Origin::Lane);
                State::Transferring { transfer }
            } else {
                env.sh.start_tagged(request, posted);
                State::Detached
            }
        }
        Match::Discarded => {
            let transfer = announced.sender_transfer;
            env.control.push_done(transfer, DoneStatus::Refused);
            State::Detached
        }
        Match::Nothing | Match::InPlace => {
            queue_unexpected(env, from, entry, Waiting::Request(announced))
        }
    };
    true
}

/// Queues a message until a receive takes it. `P4.7`
fn queue_unexpected(
    env: &mut Env<'_>,
    from: (PeerId, LaneId),
    entry: &Entry,
    what: Waiting,
) -> State {
    let holds_credit = entry.charge > 0;
    env.sh.matching.queue_unexpected(
        &mut env.sh.ctx,
        from,
        &entry.to,
        entry.len,
        holds_credit,
        what,
    );
    State::Unexpected
}
