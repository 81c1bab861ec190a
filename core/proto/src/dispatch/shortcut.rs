// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shortcuts for small messages, past queues and events: from the caller's memory directly to a
//! lossless link or into an open frame, and from an arrived frame to its port.
//!
//! If a shortcut does not apply, it returns `None` and changes nothing, and the general path
//! handles the message.

use super::list;
use crate::base::credit::charge;
use crate::matching::Matching;
use crate::matching::match_list::Fitting;
use crate::matching::port::{Match, Port};
use crate::mem::copy::copy;
use crate::peer::Peer;
use crate::shared::Shared;
use crate::{Address, Core, Instant, LinkId, OpId, PeerId, PortId, PortMode, Selector, SendSpec};
use core::ops::Range;
use portolan_wire::{BestEffortPart, LaneId, MESSAGE_LEN, MatchBits, Message};

/// Returns true if the messages of a port are delivered in place, and none waits there.
#[inline(always)]
fn delivers_in_place(matching: &mut Matching, to: PortId) -> bool {
    let delivers = |port: &mut Port| port.is(PortMode::InPlace) && !port.has_unexpected();
    !to.system && matching.port(to).is_some_and(delivers)
}

/// Frame with a valid header, and the position up to which its records were taken.
#[derive(Clone, Copy, Debug)]
pub struct Admitted {
    /// Sender.
    pub from: PeerId,
    /// Link on which it arrived.
    pub(crate) link: LinkId,
    /// Set if the frame has a number or arrived on a lossless link. Only such a frame may carry
    /// records that must not be lost.
    pub(crate) reliable: bool,
    /// Byte offset of the next record.
    pub(crate) at: usize,
    /// Length of the frame in bytes, without padding.
    pub(crate) total_len: usize,
}

impl Admitted {
    /// Returns true if no records are left.
    #[inline]
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.at >= self.total_len
    }

    /// Returns true if records are left, and all of them are whole messages to `port` that are not
    /// best effort. `head` is the argument that was passed to [`Core::admit`].
    #[must_use]
    pub fn has_only(&self, head: &[u8], port: PortId) -> bool {
        let mut left = head.get(self.at..self.total_len).unwrap_or_default();
        while let Some((header, behind)) = left.split_first_chunk() {
            match Message::peek_reliable(header) {
                Some(message)
                    if PortId::of(&message) == port && usize::from(message.len) <= behind.len() =>
                {
                    left = &behind[usize::from(message.len)..];
                }
                _ => return false,
            }
        }
        left.is_empty() && !self.is_done()
    }

    /// Returns the records that were not taken, as a frame of their own.
    #[must_use]
    pub fn rest<'a>(&self, head: &'a [u8]) -> (Admitted, &'a [u8]) {
        let end = self.total_len.min(head.len());
        let rest = Admitted {
            at: 0,
            total_len: self.total_len.saturating_sub(self.at),
            ..*self
        };
        (rest, head.get(self.at..end).unwrap_or_default())
    }

    /// Returns the range of `len` bytes of payload after a header of `header_len` bytes, if `head`
    /// has all of it.
    #[inline]
    fn payload(&self, head: &[u8], header_len: usize, len: usize) -> Option<Range<usize>> {
        let off = self.at + header_len;
        let is_here = off + len <= head.len().min(self.total_len);
        is_here.then_some(off..off + len)
    }
}

/// Receive that waits without being posted. It takes the next message available in a frame. The
/// caller has checked that nothing else [waits](Core::is_quiet).
#[derive(Clone, Copy, Debug)]
pub struct WaitingRecv {
    /// Messages that it takes.
    pub filter: RecvFilter,
    /// Length of the buffer in bytes.
    pub len: usize,
}

/// Messages that a [`WaitingRecv`] takes.
#[derive(Clone, Copy, Debug)]
pub enum RecvFilter {
    /// Messages to this port, only from this peer if given.
    Port(PortId, Option<PeerId>),
    /// Messages with match bits.
    MatchBits(Selector),
}

impl WaitingRecv {
    #[inline(always)]
    fn takes(&self, to: PortId, from: PeerId, len: usize) -> bool {
        match self.filter {
            RecvFilter::Port(port, source) => {
                port == to && self.len >= len && source.is_none_or(|source| source == from)
            }
            RecvFilter::MatchBits(_) => false,
        }
    }

    #[inline]
    fn takes_tagged(&self, to: &MatchBits, from: PeerId, len: usize) -> bool {
        match &self.filter {
            RecvFilter::Port(..) => false,
            RecvFilter::MatchBits(selector) => {
                selector.space == to.space && self.len >= len && selector.takes(from, to.tag)
            }
        }
    }
}

/// Destination of a [`CompleteMessage`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageDest {
    /// Handler of its port, in place.
    Handler,
    /// Buffer of this operation.
    Posted(OpId),
    /// The receive that waits without being posted.
    Waiting,
    /// No receive yet; the core holds a copy until one takes it.
    Held,
}

/// Message that may be delivered at once, at `off..off + len` of its frame.
#[derive(Clone, Copy, Debug)]
pub struct CompleteMessage {
    /// Port of the message.
    pub port: PortId,
    /// Destination.
    pub dest: MessageDest,
    /// Offset of the payload in the frame.
    pub off: usize,
    /// Payload length in bytes.
    pub len: usize,
}

/// Tagged message that may be delivered at once, at `off..off + len` of its frame.
#[derive(Clone, Copy, Debug)]
pub struct Tagged {
    /// Destination; never a handler.
    pub dest: MessageDest,
    /// Match bits of the message.
    pub match_bits: MatchBits,
    /// Offset of the payload in the frame.
    pub off: usize,
    /// Payload length in bytes.
    pub len: usize,
}

impl Core {
    /// Accepts a message of `len` bytes to be sent immediately by shared memory, if nothing waits
    /// before it. Returns the header to put before the payload. `N` must be its
    /// [`SendSpec::header_len`]. Since it is known at compile time, messages to ports pay nothing
    /// for the existence of match bits.
    #[inline(always)]
    pub fn direct<const N: usize>(
        &mut self,
        peer: PeerId,
        spec: &SendSpec,
        len: usize,
    ) -> Option<[u8; N]> {
        let state = self.peers.get_mut(peer.index())?.as_deref_mut()?;
        state.direct(&mut self.sh.ctx, spec, len)
    }

    /// Returns true if [`Core::direct`] sends messages to `peer` at present, unless one is too long or
    /// lacks credit.
    #[inline]
    #[must_use]
    pub fn is_direct(&self, peer: PeerId) -> bool {
        let state = self.peers.get(peer.index());
        matches!(state, Some(Some(state)) if state.is_direct())
    }

    /// Undoes [`Core::direct`] for a message that the link had no room for. It was never sent.
    #[cold]
    pub fn direct_refused(&mut self, peer: PeerId, lane: LaneId, len: usize) {
        if let Some(Some(state)) = self.peers.get_mut(peer.index()) {
            state.lanes_mut().tx(lane).cancel(charge(len));
            self.sh.ctx.counters_mut().messages_sent -= 1;
        }
    }

    /// Appends a message in two pieces to its lane's open frame, if there is one with room.
    #[inline(always)]
    pub fn append(&mut self, peer: PeerId, spec: &SendSpec, pieces: [&[u8]; 2]) -> Option<()> {
        let state = self.peers.get_mut(peer.index())?.as_deref_mut()?;
        state.append(&mut self.sh, spec, pieces)?;
        // The peer is ready already, because of the frame.
        self.has_staged = true;
        Some(())
    }

    /// Returns true if nothing waits where a message would be matched: neither a receive nor a
    /// message, at an open port or with match bits.
    #[inline]
    pub fn is_quiet(&mut self, filter: &RecvFilter) -> bool {
        let matching = &mut self.sh.matching;
        match filter {
            RecvFilter::Port(port, _) => matching.port(*port).is_some_and(|port| port.is_quiet()),
            RecvFilter::MatchBits(selector) => matching.lists().is_quiet(selector.space),
        }
    }

    /// Returns false only if no message waits at `port`. May return true although none waits.
    #[inline]
    pub fn may_wait_at(&mut self, port: PortId) -> bool {
        let port = self.sh.matching.port(port);
        port.is_some_and(|port| !port.is_quiet())
    }

    /// Returns the complete messages waiting at `port`, by sender, in the order in which they are
    /// served.
    pub fn waiting_at(&mut self, port: PortId) -> impl Iterator<Item = (PeerId, &[u8])> + '_ {
        let Shared { matching, held, .. } = &mut self.sh;
        let port = matching.port(port);
        let waiting = port.into_iter().flat_map(|port| port.held());
        waiting.map(|(peer, id)| (peer, held.bytes(id)))
    }

    /// Takes a frame of a lossless link, at time `now`, if it is one message to `port` and the next
    /// of its lane. Otherwise the frame is for [`Core::admit_lossless`]. `rest_len` bytes follow the
    /// header of the message. Nothing [waits](Core::is_quiet) at the port.
    #[inline(always)]
    pub fn take_frame(
        &mut self,
        now: Instant,
        from: PeerId,
        header: &[u8; MESSAGE_LEN],
        rest_len: usize,
        port: PortId,
    ) -> bool {
        debug_assert!(
            self.is_quiet(&RecvFilter::Port(port, None)),
            "an earlier message waits"
        );
        let takes = |_: &mut Matching, to, len| to == port && len == rest_len;
        let Some((state, _)) = self.take_plain(from, header, takes) else {
            return false;
        };
        state.on_activity(now);
        self.sh.ctx.counters_mut().frames_received += 1;
        true
    }

    /// Takes a message of `from`, if it is the next of its lane and `takes` accepts its port and its
    /// length. Returns its header. The frame is reliable.
    #[inline(always)]
    fn take_plain(
        &mut self,
        from: PeerId,
        header: &[u8; MESSAGE_LEN],
        takes: impl FnOnce(&mut Matching, PortId, usize) -> bool,
    ) -> Option<(&mut Peer, Message)> {
        let message = Message::peek_reliable(header)?;
        let len = usize::from(message.len);
        let state = self.peers.get_mut(from.index())?.as_deref_mut()?;
        let (is_open, lanes, charge) = (state.is_open(), state.lanes_mut(), charge(len));
        if !is_open
            || !lanes.may_take(message.lane, message.seq, charge)
            || !takes(&mut self.sh.matching, PortId::of(&message), len)
        {
            return None;
        }
        self.sh.ctx.count_received(len as u64);
        if lanes.take(message.lane, charge, self.sh.ctx.credit_len()) {
            list(&mut self.ready, &mut self.timed, state);
        }
        Some((state, message))
    }

    /// Takes the next message of an admitted frame for `recv`, if it is the next of its lane.
    /// Returns its range in `head`, the argument that was passed to [`Core::admit`]. Nothing
    /// [waits](Core::is_quiet) at the port of `recv`.
    #[inline(always)]
    pub fn take_next(
        &mut self,
        frame: &mut Admitted,
        head: &[u8],
        recv: &WaitingRecv,
    ) -> Option<Range<usize>> {
        debug_assert!(self.is_quiet(&recv.filter), "an earlier message waits");
        let from = frame.from;
        let takes = |_: &mut Matching, to, len| recv.takes(to, from, len);
        let (_, payload) = self.take_record(frame, head, takes)?;
        Some(payload)
    }

    /// Takes the next message of an admitted frame, if it is the next of its lane and its port
    /// delivers in place. Returns the port and the range of the message in `head`, the argument that
    /// was passed to [`Core::admit`].
    #[inline(always)]
    pub fn take_in_place(
        &mut self,
        frame: &mut Admitted,
        head: &[u8],
    ) -> Option<(u16, Range<usize>)> {
        self.take_record(frame, head, |matching, to, _| {
            delivers_in_place(matching, to)
        })
    }

    /// Passes the next messages of an admitted frame to `pass` with their ports, as long as each is
    /// the next of its lane and its port delivers in place. `head` is the argument that was passed
    /// to [`Core::admit`]. Returns the number of messages.
    ///
    /// `pass` cannot change the core, so one lookup of the peer and of the port serves all messages.
    #[inline(always)]
    pub fn pass_in_place(
        &mut self,
        frame: &mut Admitted,
        head: &[u8],
        mut pass: impl FnMut(u16, &[u8]),
    ) -> u32 {
        let peer = self.peers.get_mut(frame.from.index());
        let Some(peer) = peer.and_then(|peer| peer.as_deref_mut()) else {
            return 0;
        };
        let Some(mut records) = head.get(frame.at..frame.total_len) else {
            return 0;
        };
        if !frame.reliable || !peer.is_open() {
            return 0;
        }
        let credit_len = self.sh.ctx.credit_len();
        let (mut count, mut total_len, mut charges) = (0, 0, [0; 2]);
        let mut in_place = None;
        while let Some((header, rest)) = records.split_first_chunk()
            && let Some(message) = Message::peek_reliable(header)
            && let Some((payload, rest)) = rest.split_at_checked(message.len.into())
        {
            let (to, lanes) = (PortId::of(&message), peer.lanes_mut());
            let charge = charge(payload.len());
            if !lanes.may_take(message.lane, message.seq, charge)
                || (in_place != Some(to) && !delivers_in_place(&mut self.sh.matching, to))
            {
                break;
            }
            in_place = Some(to);
            lanes.accept(message.lane, charge);
            charges[message.lane.index()] += charge;
            count += 1;
            total_len += payload.len();
            pass(message.port, payload);
            records = rest;
        }
        frame.at = frame.total_len - records.len();
        self.sh.ctx.count_all_received(count, total_len as u64);
        let lanes = LaneId::ALL.into_iter().zip(charges);
        for (lane, charge) in lanes.filter(|(_, charge)| *charge > 0) {
            if peer.lanes_mut().return_charge(lane, charge, credit_len) {
                list(&mut self.ready, &mut self.timed, peer);
            }
        }
        count
    }

    /// Takes the next message of an admitted frame, if it is the next of its lane and `takes`
    /// accepts its port and its length. Returns the port's number and the range of the message.
    #[inline(always)]
    fn take_record(
        &mut self,
        frame: &mut Admitted,
        head: &[u8],
        takes: impl FnOnce(&mut Matching, PortId, usize) -> bool,
    ) -> Option<(u16, Range<usize>)> {
        let records = head.get(frame.at..frame.total_len)?;
        let (header, rest) = records.split_first_chunk()?;
        if !frame.reliable {
            return None;
        }
        let takes =
            |matching: &mut Matching, to, len| len <= rest.len() && takes(matching, to, len);
        let (_, message) = self.take_plain(frame.from, header, takes)?;
        let start = frame.at + MESSAGE_LEN;
        frame.at = start + usize::from(message.len);
        Some((message.port, start..frame.at))
    }

    /// Takes the next message of an admitted frame, if it is the next of its lane and fits a
    /// buffer. `head` is the argument that was passed to [`Core::admit`].
    #[inline]
    pub fn take_message(
        &mut self,
        frame: &mut Admitted,
        head: &[u8],
        recv: Option<&WaitingRecv>,
    ) -> Option<CompleteMessage> {
        let Some(message) = Message::peek(head.get(frame.at..)?) else {
            if let Some(recv) = recv {
                self.await_assembled(frame, head, recv);
            }
            return None;
        };
        let len = usize::from(message.len);
        if message.best_effort {
            return self.take_best_effort(frame, head, &message, recv?);
        }
        let (port, from, lane) = (PortId::of(&message), frame.from, message.lane);
        let find = |matching: &mut Matching| {
            let found = matching.port(port)?;
            match found.find_fitting(from, len as u64) {
                Match::InPlace => Some(MessageDest::Handler),
                Match::Posted(posted) => Some(MessageDest::Posted(posted.op)),
                Match::Nothing
                    if recv.is_some_and(|recv| recv.takes(port, from, len)) && found.is_quiet() =>
                {
                    Some(MessageDest::Waiting)
                }
                Match::Nothing => found.must_hold(from, lane).then_some(MessageDest::Held),
                Match::Discarded => None,
            }
        };
        let (dest, Range { start: off, .. }) =
            self.take(frame, head, &message, MESSAGE_LEN, find)?;
        Some(CompleteMessage {
            port,
            dest,
            off,
            len,
        })
    }

    /// Takes the next message of an admitted frame like [`Core::take_message`], for tagged
    /// messages.
    #[inline]
    pub fn take_tagged(
        &mut self,
        frame: &mut Admitted,
        head: &[u8],
        recv: Option<&WaitingRecv>,
    ) -> Option<Tagged> {
        let message = Message::peek_tagged(head.get(frame.at..)?)?;
        let match_bits = message.match_bits?;
        let (from, len) = (frame.from, usize::from(message.len));
        let is_closing = self.sh.ctx.is_closing();
        let find = |matching: &mut Matching| {
            if matching.must_wait((from, message.lane), &match_bits) {
                return None;
            }
            let lists = matching.lists();
            match lists.take_fitting(from, &match_bits, len) {
                Fitting::Taken(op) => return Some(MessageDest::Posted(op)),
                Fitting::Unfit => return None,
                Fitting::Nothing => {}
            }
            let is_awaited = recv.is_some_and(|recv| recv.takes_tagged(&match_bits, from, len));
            match is_awaited && lists.is_quiet(match_bits.space) {
                true => Some(MessageDest::Waiting),
                false => (!is_closing).then_some(MessageDest::Held),
            }
        };
        let header_len = message.header_len();
        let (dest, Range { start: off, .. }) =
            self.take(frame, head, &message, header_len, find)?;
        Some(Tagged {
            dest,
            match_bits,
            off,
            len,
        })
    }

    /// Takes `message`, the next of `frame`, if it is the next of its lane and `find` returns a
    /// destination for it. Returns the destination, and the range of the payload in `head`.
    #[inline(always)]
    fn take(
        &mut self,
        frame: &mut Admitted,
        head: &[u8],
        message: &Message,
        header_len: usize,
        find: impl FnOnce(&mut Matching) -> Option<MessageDest>,
    ) -> Option<(MessageDest, Range<usize>)> {
        let payload = frame.payload(head, header_len, usize::from(message.len))?;
        if !frame.reliable {
            return None;
        }
        let state = self.peers.get_mut(frame.from.index())?.as_deref_mut()?;
        let (lanes, charge) = (state.lanes_mut(), charge(payload.len()));
        if !lanes.may_take(message.lane, message.seq, charge) {
            return None;
        }
        let dest = find(&mut self.sh.matching)?;
        frame.at = payload.end;
        if dest == MessageDest::Held {
            self.hold(frame.from, message, &head[payload.clone()]);
            return Some((dest, payload));
        }
        self.sh.ctx.count_received(payload.len() as u64);
        if lanes.take(message.lane, charge, self.sh.ctx.credit_len()) {
            self.touch(frame.from);
        }
        Some((dest, payload))
    }

    /// Copies a message that is the next of its lane, and that no receive takes, to held memory.
    fn hold(&mut self, from: PeerId, message: &Message, bytes: &[u8]) {
        let Some(Some(state)) = self.peers.get_mut(from.index()) else {
            return;
        };
        let held = self.sh.held.take(bytes.len());
        copy(self.sh.held.bytes_mut(held), bytes);
        self.sh.ctx.counters_mut().messages_held += 1;
        let to = Address::of(message);
        let (lanes, env) = &mut state.lanes(&mut self.sh);
        if lanes.hold_next(env, message.lane, &to, (held, bytes.len())) {
            self.touch(from);
        }
    }
}

impl Core {
    /// Records that a waiting receive would take the best-effort message that has its part next.
    /// Such a receive counts as a buffer, whether it is posted or not.
    #[cold]
    fn await_assembled(&mut self, frame: &Admitted, head: &[u8], recv: &WaitingRecv) {
        let part = head.get(frame.at..).and_then(BestEffortPart::peek);
        let Some(part) = part.filter(|part| {
            let port = PortId {
                number: part.port,
                system: part.system,
            };
            recv.takes(port, frame.from, part.message_len as usize)
        }) else {
            return;
        };
        if let Some(Some(state)) = self.peers.get_mut(frame.from.index()) {
            state.lanes_mut().await_assembled(&part);
        }
    }

    /// Takes a best-effort message like [`Core::take_message`], but only for a receive that
    /// waits without being posted: the message would find no buffer. All other best-effort messages
    /// are delivered by an event.
    #[cold]
    fn take_best_effort(
        &mut self,
        frame: &mut Admitted,
        head: &[u8],
        message: &Message,
        recv: &WaitingRecv,
    ) -> Option<CompleteMessage> {
        let (port, len) = (PortId::of(message), usize::from(message.len));
        let payload = frame.payload(head, MESSAGE_LEN, len)?;
        let found = self.sh.matching.port(port)?;
        let is_awaited = recv.takes(port, frame.from, len);
        if !is_awaited || !found.is(PortMode::Posted) || !found.is_quiet() {
            return None;
        }
        let state = self.peers.get_mut(frame.from.index())?.as_deref_mut()?;
        let lanes = state.lanes_mut();
        lanes.note_best_effort(&mut self.sh.ctx, message).ok()?;
        frame.at = payload.end;
        self.sh.ctx.count_received(len as u64);
        Some(CompleteMessage {
            port,
            dest: MessageDest::Waiting,
            off: payload.start,
            len,
        })
    }
}
