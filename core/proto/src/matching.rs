// SPDX-License-Identifier: MIT OR Apache-2.0
//! Matching of messages and receives, by port and by match bits.

pub(crate) mod match_list;
pub(crate) mod plain_order;
pub(crate) mod port;
mod queues;
pub(crate) mod remains;
pub(crate) mod shortage;
mod tag_queue;
mod unexpected;

use crate::base::context::Context;
use crate::base::narrow::narrow;
use crate::base::request::Request;
use crate::mem::held::HeldPool;
use crate::{Address, Event, HeldId, OpError, OpId, PeerId, PortId, PortMode, Selector};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use match_list::{Arrived, Fitting, MatchLists};
use plain_order::PlainOrder;
use port::{LateMessage, Match, Port, Ports, Posted, Served, Waiting};
use portolan_wire::{LaneId, MatchBits};
use remains::{Discarded, Remains};

/// Form in which a message to be matched has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    Complete,
    /// The first part is about to be placed.
    Parts,
    /// Request to send.
    Request,
}

/// Messages that wait for receives, and receives that wait for messages.
#[derive(Debug)]
pub(crate) struct Matching {
    ports: Ports,
    lists: MatchLists,
    plain_order: PlainOrder,
    /// Receives that matched a request while all transfers were in use.
    late: VecDeque<(Posted, Request)>,
    /// Ports to be served, because the message they waited for was delivered.
    unblocked: Vec<PortId>,
}

impl Matching {
    pub(crate) fn new() -> Self {
        Matching {
            ports: Ports::new(),
            lists: MatchLists::new(),
            plain_order: PlainOrder::default(),
            late: VecDeque::new(),
            unblocked: Vec::new(),
        }
    }

    /// Returns the port, if it was ever used.
    #[inline]
    pub(crate) fn port(&mut self, id: PortId) -> Option<&mut Port> {
        self.ports.get_mut(id)
    }

    /// Returns the receives by match bits, and the messages that wait for them.
    #[inline]
    pub(crate) fn lists(&mut self) -> &mut MatchLists {
        &mut self.lists
    }

    /// Returns the delivery order of messages of the plain space.
    #[inline]
    pub(crate) fn plain_order(&mut self) -> &mut PlainOrder {
        &mut self.plain_order
    }

    /// Records that a message was matched with the receive `op` and will be delivered later.
    /// `P11.10`
    pub(crate) fn begin_in_order(&mut self, from: (PeerId, LaneId), to: &Address, op: OpId) {
        if let Address::MatchBits(match_bits) = to {
            self.plain_order.begin(from, match_bits, op);
        }
    }

    /// See [`MatchLists::take_held`]; skips a message that must wait for an earlier one. `P11.10`
    pub(crate) fn take_held_tagged(
        &mut self,
        selector: &Selector,
        len: u64,
    ) -> Option<(Arrived, HeldId)> {
        let order = &self.plain_order;
        self.lists.take_held(selector, len, |found| {
            !order.must_wait((found.peer, found.lane), &found.match_bits)
        })
    }

    /// Returns whether a complete message must wait for an earlier one. `P11.10`
    #[inline]
    pub(crate) fn must_wait(&self, from: (PeerId, LaneId), match_bits: &MatchBits) -> bool {
        self.plain_order.must_wait(from, match_bits)
    }

    /// Returns the bytes in tables of waiting messages, without held memory.
    #[inline]
    pub(crate) fn table_len(&self) -> usize {
        self.lists.table_len() + self.ports.table_len()
    }

    /// Opens a port for messages.
    pub(crate) fn open_port(&mut self, ctx: &mut Context, id: PortId, mode: PortMode) {
        let port = self.ports.entry(id);
        port.open(mode);
        if mode == PortMode::InPlace {
            port.request_buffers(id, ctx);
        }
    }

    /// Posts a receive for the next message to a port; returns true if messages wait there.
    pub(crate) fn post_at_port(&mut self, id: PortId, posted: Posted) -> bool {
        let port = self.ports.entry(id);
        port.post(posted);
        port.has_unexpected()
    }

    /// Cancels a receive posted at a port; returns `false` if it is not waiting.
    pub(crate) fn cancel_at_port(&mut self, id: PortId, op: OpId) -> bool {
        self.ports.cancel(id, op)
    }

    /// Returns true if a message from `peer` waits at a port.
    pub(crate) fn waits_at(&mut self, id: PortId, peer: PeerId) -> bool {
        let port = self.ports.get_mut(id);
        port.is_some_and(|port| port.has_unexpected_from(peer))
    }

    /// Finds the receiver of the next eager message of a lane to a port.
    #[inline]
    pub(crate) fn find_at_port(&mut self, id: PortId, peer: PeerId, lane: LaneId) -> Match {
        match self.ports.get_mut(id) {
            Some(port) => port.find(peer, lane, true),
            None => Match::Nothing,
        }
    }

    /// Finds the receiver of a lane's next message, an eager one of `len` bytes.
    #[inline]
    pub(crate) fn find_eager(
        &mut self,
        ctx: &mut Context,
        (peer, lane): (PeerId, LaneId),
        to: &Address,
        len: u64,
    ) -> Match {
        match to {
            Address::Port(id) => self.find_at_port(*id, peer, lane),
            Address::MatchBits(match_bits) => {
                let posted = self.lists.take_posted(peer, match_bits, len, ctx);
                posted.map_or(Match::Nothing, Match::Posted)
            }
        }
    }

    /// Finds the receiver of a lane's next message, which has `len` bytes. It may have to wait.
    pub(crate) fn find(
        &mut self,
        ctx: &mut Context,
        (peer, lane): (PeerId, LaneId),
        to: &Address,
        len: u64,
        arrival: Arrival,
    ) -> Match {
        let found = match to {
            Address::Port(id) => {
                let port = self.ports.entry(*id);
                if arrival == Arrival::Parts && port.is(PortMode::InPlace) {
                    return Match::Nothing;
                }
                let found = port.find(peer, lane, arrival == Arrival::Complete);
                (found, port.discards())
            }
            Address::MatchBits(match_bits) => {
                let posted = self.lists.take_posted(peer, match_bits, len, ctx);
                let found = posted.map_or(Match::Nothing, Match::Posted);
                (found, ctx.is_closing())
            }
        };
        match found {
            (Match::Nothing, true) if arrival != Arrival::Parts => Match::Discarded,
            (found, _) => found,
        }
    }

    /// Takes the receive for a message of `len` bytes, if the first candidate matches and its
    /// buffer is long enough.
    #[inline]
    pub(crate) fn take_fitting(&mut self, peer: PeerId, to: &Address, len: u64) -> Option<Posted> {
        match to {
            Address::Port(port) => match self.port(*port)?.find_fitting(peer, len) {
                Match::Posted(posted) => Some(posted),
                Match::InPlace | Match::Nothing | Match::Discarded => None,
            },
            Address::MatchBits(match_bits) => {
                match self.lists.take_fitting(peer, match_bits, narrow(len)) {
                    Fitting::Taken(op) => Some(Posted {
                        op,
                        base: 0,
                        len,
                        source: Some(peer),
                    }),
                    Fitting::Unfit | Fitting::Nothing => None,
                }
            }
        }
    }

    /// Returns true if [`Matching::find`] would find a receive after `used` other receives were
    /// taken.
    pub(crate) fn would_take(
        &mut self,
        ctx: &Context,
        (peer, lane): (PeerId, LaneId),
        to: &Address,
        arrival: Arrival,
        used: usize,
    ) -> bool {
        let eager = arrival == Arrival::Complete;
        let discards = ctx.is_closing() && eager;
        match to {
            Address::Port(id) => {
                let takes = |port: &mut Port| port.would_take(peer, lane, eager, used);
                self.ports.get_mut(*id).map_or(discards, takes)
            }
            Address::MatchBits(match_bits) => {
                discards || self.lists.would_take(peer, match_bits, used)
            }
        }
    }

    /// Queues a message until a receive takes it.
    pub(crate) fn queue_unexpected(
        &mut self,
        ctx: &mut Context,
        (peer, lane): (PeerId, LaneId),
        to: &Address,
        len: u64,
        holds_credit: bool,
        what: Waiting,
    ) {
        match to {
            Address::Port(id) => {
                let port = self.ports.begin_waiting(*id);
                if let Waiting::Request(_) = what
                    && port.is(PortMode::InPlace)
                {
                    ctx.emit(Event::BufferNeeded {
                        port: *id,
                        peer,
                        len,
                    });
                }
                if let Some(event) = port.first_unopened(*id, peer) {
                    ctx.emit(event);
                }
                port.queue_unexpected((peer, lane), len, holds_credit, what);
            }
            Address::MatchBits(match_bits) => self.lists.queue_unexpected(&Arrived {
                peer,
                lane,
                match_bits: *match_bits,
                len,
                holds_credit,
                what,
            }),
        }
    }

    /// Takes the first message waiting at a port that can be served now. Skips lanes that
    /// `has_undelivered` reports to have an earlier message for the port.
    pub(crate) fn next_served(
        &mut self,
        id: PortId,
        has_undelivered: impl Fn(PeerId, LaneId) -> bool,
    ) -> Option<Served> {
        self.ports.next_served(id, has_undelivered)
    }

    /// See [`Ports::note_taken`].
    #[inline]
    pub(crate) fn note_taken(&mut self) {
        self.ports.note_taken();
    }

    /// See [`Port::peek`]. A failed search counts as waiting (`P4.14`).
    pub(crate) fn peek_at_port(
        &mut self,
        id: PortId,
        source: Option<PeerId>,
        has_undelivered: impl Fn(PeerId, LaneId) -> bool,
    ) -> Option<(PeerId, Waiting, u64)> {
        let found = self.ports.peek(id, source, has_undelivered);
        if found.is_none() {
            self.lists.note_missed();
        }
        found
    }

    /// Marks the first message of a lane at a port that has no buffer, a request, as being
    /// transferred.
    pub(crate) fn begin_transfer(&mut self, id: PortId, from: (PeerId, LaneId), transfer: u32) {
        self.ports.begin_transfer(id, from, transfer);
    }

    /// Marks the message of this transfer as complete.
    pub(crate) fn end_transfer(
        &mut self,
        id: PortId,
        from: (PeerId, LaneId),
        transfer: u32,
        message: LateMessage,
    ) {
        self.ports.end_transfer(id, from, transfer, message);
    }

    /// Takes the first message of a lane at a port if its transfer has completed.
    pub(crate) fn pop_transferred(
        &mut self,
        id: PortId,
        from: (PeerId, LaneId),
    ) -> Option<LateMessage> {
        self.ports.pop_transferred(id, from)
    }

    /// Marks the port for service after a delivery, if messages wait there.
    pub(crate) fn on_delivered(&mut self, to: &Address) {
        if let Address::Port(id) = to
            && let Some(port) = self.ports.get_mut(*id)
            && port.has_unexpected()
        {
            self.unblocked.push(*id);
        }
    }

    /// Returns the next port with messages that waited for an earlier one of their lane, now
    /// delivered.
    #[inline]
    pub(crate) fn next_unblocked(&mut self) -> Option<PortId> {
        self.unblocked.pop()
    }

    /// Queues a request that has matched a receive, until another transfer completes.
    pub(crate) fn push_late(&mut self, posted: Posted, request: Request) {
        self.late.push_back((posted, request));
    }

    #[inline]
    pub(crate) fn pop_late(&mut self) -> Option<(Posted, Request)> {
        self.late.pop_front()
    }

    /// Returns true if anything waiting here may start an operation with `peer`.
    pub(crate) fn has_waiting_from(&mut self, peer: PeerId) -> bool {
        !self.late.is_empty() || self.ports.has_waiting_from(peer)
    }

    /// Returns the number of complete waiting messages from `peer`, per port and lane.
    pub(crate) fn unread(&mut self, peer: PeerId) -> Vec<(PortId, LaneId, usize)> {
        self.ports.unread(peer)
    }

    /// Returns true if a receive or a handler waits for a message that `peer` may send.
    pub(crate) fn expects_from(&mut self, peer: PeerId) -> bool {
        self.lists.expects_from(peer) || self.ports.expects_from(peer)
    }

    /// Cancels the receives that only `peer` could have satisfied.
    pub(crate) fn take_sourced(&mut self, peer: PeerId) -> Vec<OpId> {
        let mut ops = self.ports.take_sourced(peer);
        ops.extend(self.lists.take_sourced(peer));
        ops
    }

    /// Cancels the receives that are `is_selected`.
    pub(crate) fn take_where(&mut self, is_selected: impl Fn(&Posted) -> bool) -> Vec<OpId> {
        let mut ops = self.lists.take_where(&is_selected);
        ops.extend(self.ports.take_where(&is_selected));
        ops
    }

    /// Keeps the waiting messages of a failed peer that are complete and not preceded by a missing
    /// one. All other messages are added to `remains`. `P9.7`, `P11.8`
    pub(crate) fn end_waiting(
        &mut self,
        peer: PeerId,
        error: OpError,
        pool: &mut HeldPool,
        remains: &mut Remains,
    ) {
        self.ports.end_waiting(peer, pool, remains);
        self.lists.end_waiting(peer, error, pool, remains);
        self.late.retain(|(posted, request)| {
            if request.peer == peer {
                remains.ops.push(posted.op);
            }
            request.peer != peer
        });
    }

    /// Cancels the receives, except at ports that deliver in place, and takes the waiting messages
    /// that are not being transferred. From now on arriving messages are discarded.
    pub(crate) fn discard(&mut self) -> Vec<Discarded> {
        let mut discarded = self.ports.discard();
        discarded.extend(self.lists.discard());
        discarded
    }
}
