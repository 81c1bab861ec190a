// SPDX-License-Identifier: MIT OR Apache-2.0
//! Handling of the core's events: places, deliveries, completions.

use super::{Got, Node, Op, Pull, longest_message};
use crate::Canary;
use crate::context::Context;
use crate::ledger::{Delivery, GREETING_PORT, Note, TaggedDelivery};
use crate::payload;
use crate::trace::Item;
use portolan_proto::{
    CompleteMessage, Data, Dest, Envelope, Event, HeldId, HeldMessage, MatchBits, MessageDest,
    OpError, OpId, PeerId, PortId, PortMode, Space, Tagged,
};
use portolan_wire::{MESSAGE_LEN, Message};
use std::ops::Range;

/// Delay in nanoseconds before a receive that failed because of its peer is posted again.
const REPOST_NS: u64 = 20_000_000;

/// Message that was matched by match bits.
#[derive(Debug)]
pub(super) struct Matched {
    /// Sender, receive, and the port of the receive.
    about: (PeerId, OpId, PortId),
    match_bits: MatchBits,
    len: usize,
    bytes: Vec<u8>,
}

impl Matched {
    /// Returns whether `other` has the same sender and port.
    fn shares_route(&self, other: &Matched) -> bool {
        let ((peer, _, port), (other_peer, _, other_port)) = (self.about, other.about);
        (peer, port) == (other_peer, other_port)
    }
}

impl Node {
    /// Handles all events; `frame` is the one being handled.
    pub(super) fn drain(&mut self, cx: &mut Context, frame: &[u8]) {
        while let Some(event) = self.core.poll_event() {
            self.on_event(cx, frame, event);
        }
    }

    fn on_event(&mut self, cx: &mut Context, frame: &[u8], event: Event) {
        match event {
            Event::Place { dest, src } => self.place(cx, frame, dest, src),
            Event::Deliver { .. } => self.on_deliver(cx, frame, event),
            Event::Matched { .. } => self.on_matched(cx, frame, event),
            Event::RecvFailed { op, error } => self.on_recv_failed(cx, op, error),
            Event::SendDone { op, result } => self.on_send_done(cx, op, result),
            Event::Pull {
                transfer,
                peer,
                remote_addr,
                op,
                off,
                len,
            } => self.pulls.push(Pull {
                transfer,
                peer: peer.0,
                remote_op: remote_addr & u64::from(u32::MAX),
                remote_off: usize::try_from(remote_addr >> 32).unwrap_or(0),
                op: op.0,
                off: usize::try_from(off).unwrap_or(usize::MAX),
                len: usize::try_from(len).unwrap_or(0),
            }),
            Event::BufferNeeded { port, peer, .. } => {
                // Long enough for any message here, because the core chooses which one takes it.
                // After the program has closed, only long enough for the number that identifies the
                // message.
                let len = match self.program.is_closing() {
                    true => payload::NUMBER_LEN,
                    false => longest_message(cx, self.id, port),
                };
                self.post(cx, port, len, Some(peer.0), false);
            }
            Event::PortUnopened { port, peer } => {
                if !self.program.is_late_to_open(port) {
                    let id = self.id;
                    cx.violate(format!(
                        "node {id}: {port:?} is open, for which {peer} waits"
                    ));
                }
            }
            Event::PeerUp(peer) => self.on_peer_up(cx, peer.0),
            Event::Writable(peer) => {
                if !cx.strikes(Canary::LostWakeup) {
                    self.peers[peer.0 as usize].blocked = [false; 2];
                }
            }
            Event::Suspect { peer, link } => {
                cx.trace
                    .push(cx.now, self.id, Item::Suspect { peer: peer.0, link });
                let suspect = &mut self.peers[peer.0 as usize].suspect;
                suspect.get_or_insert((cx.now, link));
                self.watched.insert(peer.0);
            }
            Event::StreamNeeded(peer) => self.on_stream_needed(cx, peer.0),
            Event::PeerFailed { peer, cause, .. } => self.on_peer_failed(cx, peer.0, cause),
            event => self.on_remote(cx, frame, event),
        }
    }

    pub(super) fn place(&mut self, cx: &mut Context, frame: &[u8], dest: Dest, src: Range<usize>) {
        if cx.strikes(Canary::LostPlacement) {
            return;
        }
        let id = self.id;
        let Some(from) = frame.get(src.clone()) else {
            cx.violate_always(format!(
                "node {id}: {src:?} of a frame of {} bytes",
                frame.len()
            ));
            return;
        };
        let into = match dest {
            Dest::Held(held, at) => self.core.held_mut(held).get_mut(at..at + from.len()),
            Dest::Op(op, at) => {
                let at = usize::try_from(at).unwrap_or(usize::MAX);
                let bytes = self.memory.get_mut(&op.0).and_then(Op::inbound);
                bytes.and_then(|bytes| bytes.get_mut(at..)?.get_mut(..from.len()))
            }
        };
        match into {
            Some(into) => into.copy_from_slice(from),
            None => cx.violate_always(format!(
                "node {id}: {} bytes placed at {dest:?}, which the core does not own",
                from.len()
            )),
        }
    }

    /// Handles a message taken from `frame` by the shortcut.
    pub(super) fn on_message(
        &mut self,
        cx: &mut Context,
        from: u32,
        frame: &[u8],
        taken: &CompleteMessage,
    ) {
        let room = match taken.dest {
            MessageDest::Posted(op) => self.take_buffer(cx, op, PeerId(from)).len(),
            _ => {
                self.check_in_place(cx, taken.port);
                usize::MAX
            }
        };
        let bytes = frame.get(taken.off..taken.off + taken.len);
        let bytes = bytes.filter(|bytes| bytes.len() <= room);
        // The program does not receive the lane, but the checkers need it.
        let header = taken
            .off
            .checked_sub(MESSAGE_LEN)
            .and_then(|at| frame.get(at..));
        let message = header.and_then(Message::peek);
        let (Some(bytes), Some(message)) = (bytes, message) else {
            let id = self.id;
            cx.violate_always(format!(
                "node {id}: the shortcut returned {taken:?} for {room} bytes"
            ));
            return;
        };
        let got = Got {
            src: from,
            lane: message.lane,
            port: taken.port,
            len: taken.len,
            bytes: bytes.to_vec(),
        };
        self.hand_over(cx, got);
    }

    /// Handles a complete waiting message that a receive has copied to `bytes`.
    pub(super) fn on_held(
        &mut self,
        cx: &mut Context,
        port: PortId,
        op: OpId,
        taken: &HeldMessage,
        bytes: &[u8],
    ) {
        let event = Event::Deliver {
            peer: taken.peer,
            port,
            lane: taken.lane,
            op: Some(op),
            len: taken.len as u64,
            data: Data::Frame(0..taken.len),
            error: None,
        };
        self.on_deliver(cx, bytes, event);
    }

    /// Handles a complete waiting message that was matched by its tag.
    pub(super) fn on_held_tagged(
        &mut self,
        cx: &mut Context,
        op: OpId,
        envelope: Envelope,
        held: HeldId,
    ) {
        let event = Event::Matched {
            peer: envelope.peer,
            op,
            match_bits: envelope.match_bits,
            len: envelope.len,
            data: Data::Held(held),
            truncated: false,
        };
        self.on_matched(cx, &[], event);
    }

    /// Handles a message that was matched by its tag.
    fn on_matched(&mut self, cx: &mut Context, frame: &[u8], event: Event) {
        let Event::Matched {
            peer,
            op,
            match_bits,
            len,
            data,
            truncated,
        } = event
        else {
            return;
        };
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        let port = self.port_of(op);
        let buffer = self.take_buffer(cx, op, peer);
        let cut = len.min(buffer.len());
        let bytes = match data {
            Data::Frame(range) => frame.get(range).map(|taken| taken[..cut].to_vec()),
            Data::Placed => Some(buffer[..cut].to_vec()),
            Data::Held(held) => {
                let bytes = self.core.held(held).get(..cut).map(<[u8]>::to_vec);
                self.core.release(held);
                bytes
            }
        };
        let id = self.id;
        if truncated != (len > buffer.len()) {
            cx.violate(format!(
                "node {id}: {len} bytes into {} ended with truncated {truncated}",
                buffer.len()
            ));
        }
        match bytes {
            Some(bytes) => {
                let matched = Matched {
                    about: (peer, op, port),
                    match_bits,
                    len,
                    bytes,
                };
                self.hand_over_tagged(cx, matched);
            }
            None => cx.violate_always(format!(
                "node {id}: a message of {len} bytes has no location"
            )),
        }
    }

    /// Handles a message that was matched by its tag and taken from `frame` by the shortcut.
    pub(super) fn on_tagged(&mut self, cx: &mut Context, from: u32, frame: &[u8], taken: &Tagged) {
        let op = match taken.dest {
            MessageDest::Posted(op) => op,
            MessageDest::Held => return,
            MessageDest::Handler | MessageDest::Waiting => {
                let id = self.id;
                cx.violate_always(format!("node {id}: no receive waits for {taken:?}"));
                return;
            }
        };
        let port = self.port_of(op);
        let room = self.take_buffer(cx, op, PeerId(from)).len();
        let bytes = frame.get(taken.off..taken.off + taken.len);
        let Some(bytes) = bytes.filter(|bytes| bytes.len() <= room) else {
            let id = self.id;
            cx.violate_always(format!(
                "node {id}: the shortcut returned {taken:?} for {room} bytes"
            ));
            return;
        };
        let matched = Matched {
            about: (PeerId(from), op, port),
            match_bits: taken.match_bits,
            len: taken.len,
            bytes: bytes.to_vec(),
        };
        self.hand_over_tagged(cx, matched);
    }

    /// Delivers a matched message. The canary swaps two messages of the plain space here.
    fn hand_over_tagged(&mut self, cx: &mut Context, matched: Matched) {
        let is_plain = matched.match_bits.space == Space::Plain;
        if is_plain && self.withheld_plain.is_none() && cx.strikes(Canary::PlainOvertakes) {
            self.withheld_plain = Some(matched);
            return;
        }
        self.present_tagged(cx, &matched);
        if let Some(kept) = self
            .withheld_plain
            .take_if(|kept| kept.shares_route(&matched))
        {
            self.present_tagged(cx, &kept);
        }
    }

    /// Returns the port that a receive is for.
    fn port_of(&self, op: OpId) -> PortId {
        match self.memory.get(&op.0) {
            Some(Op::Recv { port, .. }) => *port,
            _ => PortId::user(u16::MAX),
        }
    }

    fn present_tagged(&mut self, cx: &mut Context, matched: &Matched) {
        let Matched {
            about: (peer, op, port),
            match_bits,
            len,
            ref bytes,
        } = *matched;
        let (src, dst) = (peer.0, self.id);
        if self.peers[src as usize].session.is_none() && cx.has(Canary::ForgetAcked) {
            return;
        }
        let id = match_bits.imm.unwrap_or(0);
        if (match_bits.space, match_bits.tag) != cx.plan.label(dst, port) {
            cx.violate(format!(
                "node {dst}: {match_bits:?} was matched at {port:?}"
            ));
        }
        let delivery = TaggedDelivery {
            src,
            dst,
            port,
            op: op.0,
            id,
            len,
            bytes,
            is_plain: match_bits.space == Space::Plain,
        };
        let lane = match cx.ledger.deliver_tagged(&delivery) {
            Ok(lane) => lane,
            Err(what) => return cx.violate(what),
        };
        let item = Item::Delivered {
            from: src,
            lane,
            port: port.number,
            id,
            len,
        };
        cx.trace.push(cx.now, dst, item);
        cx.deliveries.push(crate::Arrival {
            at: std::time::Duration::from_nanos(cx.now),
            from: src,
            to: dst,
            len,
        });
    }

    /// Handles a message that was copied from its sender's memory, or could not be.
    pub(crate) fn on_pulled(&mut self, cx: &mut Context, pull: Pull, bytes: Option<Vec<u8>>) {
        let into = self.memory.get_mut(&pull.op).and_then(Op::inbound);
        let ok = match (bytes, into) {
            (Some(from), Some(into)) => {
                into[pull.off..pull.off + from.len()].copy_from_slice(&from);
                true
            }
            _ => false,
        };
        self.core.pull_done(pull.transfer, ok);
        self.drain(cx, &[]);
        self.on_wake(cx);
    }

    fn on_deliver(&mut self, cx: &mut Context, frame: &[u8], event: Event) {
        let Event::Deliver {
            peer,
            port,
            lane,
            op,
            len,
            data,
            error,
        } = event
        else {
            return;
        };
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        if op.is_none() {
            self.check_in_place(cx, port);
        }
        let buffer = op.map(|op| self.take_buffer(cx, op, peer));
        let room = buffer.as_ref().map_or(usize::MAX, Vec::len);
        let cut = len.min(room);
        let bytes = match data {
            Data::Frame(range) => frame.get(range).map(|taken| taken[..cut].to_vec()),
            Data::Placed => buffer.map(|buffer| buffer[..cut].to_vec()),
            Data::Held(held) => {
                let bytes = self.core.held(held).get(..cut).map(<[u8]>::to_vec);
                if !cx.strikes(Canary::LeakHeld) {
                    self.core.release(held);
                }
                bytes
            }
        };
        let id = self.id;
        let message_len = len as u64;
        let expected = (len > room).then_some(OpError::Truncated { message_len });
        if error != expected {
            cx.violate(format!(
                "node {id}: {len} bytes into {room} ended with {error:?}"
            ));
        }
        let Some(bytes) = bytes else {
            cx.violate_always(format!(
                "node {id}: a message of {len} bytes has no location"
            ));
            return;
        };
        let src = peer.0;
        let got = Got {
            src,
            lane,
            port,
            len,
            bytes,
        };
        self.hand_over(cx, got);
    }

    pub(super) fn takes_in_place(&self, cx: &Context, port: PortId) -> bool {
        let plan = cx.plan.port(self.id, port.number);
        port.system || plan.is_some_and(|plan| plan.mode == PortMode::InPlace)
    }

    /// Checks that the port of a message without a buffer delivers in place, also after the process
    /// has closed.
    fn check_in_place(&self, cx: &mut Context, port: PortId) {
        if !self.takes_in_place(cx, port) {
            let id = self.id;
            cx.violate(format!("node {id} received a message in place at {port:?}"));
        }
    }

    /// Delivers a message, with the canaries of delivery.
    fn hand_over(&mut self, cx: &mut Context, got: Got) {
        // A greeting may be repeated; the canary needs a message of the program.
        if got.port.system {
            return self.present(cx, &got);
        }
        if self.withheld.is_none() && cx.strikes(Canary::WrongOrder) {
            self.withheld = Some(got);
            return;
        }
        let remote = &mut self.peers[got.src as usize];
        if remote.has_left(got.port, got.lane) && cx.has(Canary::ForgetAcked) {
            return remote.take_left(got.port, got.lane);
        }
        self.present(cx, &got);
        let follows =
            |kept: &mut Got| (kept.src, kept.lane, kept.port) == (got.src, got.lane, got.port);
        if let Some(kept) = self.withheld.take_if(follows) {
            self.present(cx, &kept);
        }
        if cx.strikes(Canary::DeliverTwice) {
            self.present(cx, &got);
        }
    }

    /// Delivers a message to the program.
    fn present(&mut self, cx: &mut Context, got: &Got) {
        let Got {
            src,
            lane,
            port,
            len,
            ..
        } = *got;
        let remote = &self.peers[src as usize];
        let delivery = Delivery {
            src,
            dst: self.id,
            lane,
            port,
            bound: remote.session_of_next(port, lane),
            len,
            bytes: &got.bytes,
        };
        let entry = match cx.ledger.deliver(&delivery) {
            Ok(entry) => entry,
            Err(what) => return cx.violate(what),
        };
        // A best-effort message may be left over from an ended session, or may have overtaken such
        // leftovers.
        let is_next =
            !entry.best_effort || cx.ledger.session_of_best_effort(entry.id) == delivery.bound;
        if is_next {
            self.peers[src as usize].take_left(port, lane);
        }
        let id = entry.id;
        let item = Item::Delivered {
            from: src,
            lane,
            port: port.number,
            id,
            len,
        };
        cx.trace.push(cx.now, self.id, item);
        if port == GREETING_PORT {
            return self.on_greeting(cx, got);
        }
        if !port.system {
            cx.deliveries.push(crate::Arrival {
                at: std::time::Duration::from_nanos(cx.now),
                from: src,
                to: self.id,
                len,
            });
        }
        if let Note::Group { op, round } = entry.note {
            self.program.on_group(op, round, src);
        }
    }

    /// Handles the first message of a lane, which identifies the peer's session.
    fn on_greeting(&mut self, cx: &mut Context, got: &Got) {
        let Some(session) = payload::number(&got.bytes) else {
            return;
        };
        let (id, src, lane) = (self.id, got.src, got.lane.index());
        let remote = &mut self.peers[src as usize];
        let is_other = remote.bound[1 - lane].is_some_and(|other| other != session);
        let is_old = remote.newest_bound.is_some_and(|newest| session < newest);
        if remote.bound[lane].is_some() || is_other || is_old || remote.session.is_none() {
            cx.violate(format!(
                "node {id} was greeted by {src} for session {session} while bound to {:?}, \
                 newest {:?}, own {:?}",
                remote.bound, remote.newest_bound, remote.session
            ));
        }
        remote.bound[lane] = Some(session);
        remote.newest_bound = Some(session);
    }

    /// Removes and returns the buffer of a receive that has been filled.
    fn take_buffer(&mut self, cx: &mut Context, op: OpId, peer: PeerId) -> Vec<u8> {
        match self.memory.remove(&op.0) {
            Some(Op::Recv {
                bytes,
                port,
                source,
                again,
            }) => {
                if source.is_some_and(|source| source != peer.0) {
                    let id = self.id;
                    cx.violate(format!(
                        "node {id}: a receive from {source:?} matched a message of {peer}"
                    ));
                }
                if again {
                    self.program.request_again(cx, port.number, source, 0);
                }
                bytes
            }
            other => {
                let id = self.id;
                cx.violate_always(format!("node {id}: receive {op:?} ended twice ({other:?})"));
                Vec::new()
            }
        }
    }

    fn on_recv_failed(&mut self, cx: &mut Context, op: OpId, error: OpError) {
        let Some(Op::Recv {
            port,
            source,
            again,
            ..
        }) = self.memory.remove(&op.0)
        else {
            let id = self.id;
            cx.violate_always(format!(
                "node {id}: receive {op:?} failed that was not posted"
            ));
            return;
        };
        self.check_error(cx, error, "failed a receive from");
        if again {
            self.program
                .request_again(cx, port.number, source, REPOST_NS);
        }
    }

    fn on_send_done(&mut self, cx: &mut Context, op: OpId, result: Result<(), OpError>) {
        let Some(Op::Send { peer, .. }) = self.memory.remove(&op.0) else {
            let id = self.id;
            cx.violate_always(format!(
                "node {id}: send {op:?} completed but was not outstanding"
            ));
            return;
        };
        self.peers[peer as usize].send_count -= 1;
        if let Err(error) = result {
            self.failed_count += 1;
            self.check_error(cx, error, "failed a send to");
        }
    }

    pub(super) fn check_error(&self, cx: &mut Context, error: OpError, what: &str) {
        match error {
            OpError::PeerFailed(peer, cause) => {
                // A receive may be posted long after its peer has failed.
                let is_known = self.peers[peer.0 as usize].session.is_none();
                if !is_known || !cx.was_disturbed(self.id, peer.0) {
                    self.check_cause(cx, peer.0, cause, what);
                }
            }
            other => cx.violate(format!("node {} {what} nobody: {other:?}", self.id)),
        }
    }
}
