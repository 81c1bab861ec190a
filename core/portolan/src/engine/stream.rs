// SPDX-License-Identifier: MIT OR Apache-2.0
//! Transfers over streams: parts are sent from user memory and received into it. Streams are opened
//! when the core requests them, and closed when no transfer uses them (`P15`).
//!
//! Invariant: the core is notified of every stream that ends, and sends its content on a path.

use super::delivery::Handlers;
use super::gather::{filled, two_pieces_of};
use super::transmit::payload_of;
use super::{Engine, Inner};
use crate::checksum::{is_right_of_part, part_hasher, sum_of_part};
use crate::links::{HOT_TURNS, Links};
use crate::ops::Ops;
use crate::streams::{POLL_ALL_TURNS, Streams};
use portolan_link::stream::{HEAD_LEN_MAX, Landing, Part, PartReceiver, Place, Tokens};
use portolan_link::{Notice, TxError, TxFrame};
use portolan_proto::{
    DropReason, HeldId, LinkId, MessagePlace, OpId, PART_LEN_MAX_LATENCY_SENSITIVE, PartHead,
    PartPlace, Payload, PeerId, PushPlace, PushRequest, StreamMessage, Transmit,
};
use portolan_sys::probe;
use portolan_wire::{CHECK_LEN, CheckedFrame, Chunk, Done, Sum};
use std::io::IoSlice;

/// Receive calls per connection and turn, and the bytes of each. They limit how long other messages
/// wait. The second limit applies during a sequence of short messages.
const RECEIVE_BUDGET: (usize, usize) = (2, usize::MAX);
const RECEIVE_BUDGET_LATENCY: (usize, usize) = (1, PART_LEN_MAX_LATENCY_SENSITIVE);

/// Consecutive TCP timeouts after which the content is sent on a path. One may be a lost tail; two
/// are half a second without progress.
const TIMEOUTS_MAX: u8 = 2;

/// Stream operation to perform once the links are available.
#[derive(Clone, Copy, Debug)]
pub(crate) enum StreamCall {
    Open(PeerId),
    Close(PeerId),
}

impl Inner {
    /// Queues an operation until the links are available. Does nothing if streams are not in use.
    pub(super) fn call_streams(&mut self, call: StreamCall) {
        if self.core.uses_streams() {
            self.stream_calls.push(call);
        }
    }
}

impl Engine {
    /// Receives parts, and continues sends that had no room.
    #[inline]
    pub(super) fn work_on_streams(&mut self, turn: u32) -> usize {
        if !self.inner.stream_calls.is_empty() {
            self.make_stream_calls();
        }
        let Some(streams) = self.links.streams() else {
            return 0;
        };
        if streams.link_mut().counts().0 == 0 {
            return 0;
        }
        if streams.has_unsent_parts() {
            resume(streams, &self.inner.ops);
        }
        // A useless poll would take the lock of a socket on which acknowledgements of sent data
        // arrive.
        let is_due = self.inner.core.expects_parts()
            || streams.is_roused(turn)
            || self.pace.stream_is_due(turn);
        if !is_due {
            if streams.link_mut().has_unsent() {
                streams.link_mut().push();
                self.accept_stream_notices();
            }
            return 0;
        }
        let budget = match self.inner.in_latency_mode() {
            true => RECEIVE_BUDGET_LATENCY,
            false => RECEIVE_BUDGET,
        };
        let mut intake = PartIntake {
            requires_sums: streams.requires_sums(),
            is_fresh: false,
            inner: &mut self.inner,
            handlers: &mut self.handlers,
        };
        let moved = streams.link_mut().receive(budget, &mut intake);
        if moved > 0 {
            streams.poll_all(turn, HOT_TURNS);
        }
        self.accept_stream_notices();
        moved
    }

    #[cold]
    fn make_stream_calls(&mut self) {
        for call in std::mem::take(&mut self.inner.stream_calls) {
            let Some(streams) = self.links.streams() else {
                return;
            };
            match call {
                StreamCall::Close(peer) => streams.link_mut().close(peer.0),
                StreamCall::Open(peer) => {
                    let ids = self.inner.core.session_ids(peer);
                    let (Some(ids), Some(socket)) = (ids, self.address_of(peer)) else {
                        let now = self.inner.now;
                        self.inner.core.stream_closed(now, peer, true);
                        continue;
                    };
                    let tokens = Tokens {
                        mine: ids.mine.1,
                        theirs: ids.theirs.1,
                    };
                    if let Some(streams) = self.links.streams() {
                        streams.link_mut().open_to(peer.0, socket, tokens);
                    }
                }
            }
        }
        self.check_streams();
    }

    /// Runs the checks that need system calls and seldom find anything: new connections, idle ones
    /// and stalled ones.
    #[cold]
    pub(super) fn check_streams(&mut self) {
        let Engine { inner, links, .. } = self;
        let Some(streams) = links.streams() else {
            return;
        };
        let core = &inner.core;
        let has_notice = streams
            .link_mut()
            .service(&mut |tokens| Some(core.stream_owner(tokens.mine, tokens.theirs)?.0));
        if has_notice {
            streams.poll_all(inner.turn, POLL_ALL_TURNS);
        }
        if streams.idle_is_due(inner.now) {
            streams.link_mut().close_idle();
        }
        if streams.stall_is_due(inner.now) {
            streams.link_mut().give_up_stalled(TIMEOUTS_MAX);
        }
        self.accept_stream_notices();
    }

    fn accept_stream_notices(&mut self) {
        let Engine { inner, links, .. } = self;
        let Some(streams) = links.streams() else {
            return;
        };
        while let Some(notice) = streams.link_mut().poll_notice() {
            match notice {
                Notice::StreamUp(peer) => {
                    inner.core.stream_opened(PeerId(peer));
                }
                Notice::StreamDown { peer, is_idle } => {
                    inner.core.stream_closed(inner.now, PeerId(peer), !is_idle);
                    if streams.link_mut().is_open(peer) {
                        // Both sides had opened a stream at the same time.
                        inner.core.stream_opened(PeerId(peer));
                    }
                }
                Notice::Dropped(name) => *inner.link_drops.entry(name).or_default() += 1,
                _ => {}
            }
        }
    }
}

impl Links {
    /// Sends a part of a transfer on the stream to its peer.
    pub(super) fn transmit_part(
        &mut self,
        ops: &Ops,
        transmit: &Transmit<'_>,
    ) -> (PeerId, LinkId, Result<(), TxError>) {
        let (peer, link) = transmit.destination();
        let headers = match *transmit {
            Transmit::Bulk { headers, .. } => headers,
            Transmit::Message { head, payload, .. } => {
                return (peer, link, self.transmit_message(ops, peer, head, payload));
            }
            _ => return (peer, link, Ok(())),
        };
        let Some(streams) = self.streams() else {
            return (peer, link, Err(TxError::NotConnected(peer.0)));
        };
        // A forgotten operation must still fill its place in the stream; the transfer fails at the
        // peer.
        let one = payload_of(ops, transmit).map(|bytes| [bytes, &[]]);
        let two = || two_pieces_of(ops, transmit.payload().first()?);
        let pieces = one.or_else(two).unwrap_or_default();
        let mut head = [0; HEAD_LEN_MAX];
        let head = &mut head[..headers.len()];
        head.copy_from_slice(headers);
        if streams.has_unsent_parts() {
            resume(streams, ops);
        }
        if streams.link_mut().is_full(peer.0) {
            return (peer, link, Err(TxError::Full));
        }
        if let Some((front, chunk)) = head.split_at_mut_checked(CHECK_LEN)
            && CheckedFrame::has_sum(front)
        {
            front.copy_from_slice(&CheckedFrame::front(sum_of_part(chunk, pieces)));
        }
        let payload = pieces.map(IoSlice::new);
        let frame = TxFrame {
            head,
            payload: filled(&payload),
            segments: None,
        };
        let result = streams.link_mut().transmit(peer.0, &frame);
        if let (Ok(()), [part]) = (&result, transmit.payload()) {
            streams.on_sent(peer, part.op, part.off + part.len as u64);
        }
        (peer, link, result)
    }

    /// Sends an eager message on the stream to its peer.
    fn transmit_message(
        &mut self,
        ops: &Ops,
        peer: PeerId,
        head: &[u8],
        payload: &[u8],
    ) -> Result<(), TxError> {
        let Some(streams) = self.streams() else {
            return Err(TxError::NotConnected(peer.0));
        };
        if streams.has_unsent_parts() {
            resume(streams, ops);
        }
        if streams.link_mut().is_full(peer.0) {
            return Err(TxError::Full);
        }
        let mut copy = [0; HEAD_LEN_MAX];
        let front = &mut copy[..head.len()];
        front.copy_from_slice(head);
        if let Some((check, rest)) = front.split_at_mut_checked(CHECK_LEN)
            && CheckedFrame::has_sum(check)
        {
            check.copy_from_slice(&CheckedFrame::front(sum_of_part(rest, [payload, &[]])));
        }
        let frame = TxFrame {
            head: front,
            payload: &[IoSlice::new(payload)],
            segments: None,
        };
        // The core keeps the payload only until the peer has acknowledged it, or the stream ends.
        streams.link_mut().transmit_copied(peer.0, &frame)
    }
}

/// Sends more of the parts of which the sockets have not accepted the end.
fn resume(streams: &mut Streams, ops: &Ops) {
    streams.resume(|op, off, len| {
        let off = u64::try_from(off).ok()?;
        match two_pieces_of(ops, &Payload { op, off, len })? {
            [bytes, []] => Some(bytes),
            // Such parts are copied.
            _ => None,
        }
    });
}

/// Connects the streams with the core for one receive call.
struct PartIntake<'a> {
    inner: &'a mut Inner,
    handlers: &'a mut Handlers,
    requires_sums: bool,
    /// Set when the clock was read for this call.
    is_fresh: bool,
}

/// Head of a part.
#[derive(Clone, Copy)]
enum Head {
    Contents(Contents),
    /// Announcement of a transfer, and optionally the completion of another one. The first bytes
    /// follow.
    Push(PushRequest, Option<Done>),
}

/// Contents of a part, as its head describes them.
#[derive(Clone, Copy)]
enum Contents {
    /// Bytes of a transfer.
    Chunk(Chunk),
    /// Eager message.
    Message(StreamMessage),
}

/// Place for the next bytes of a part.
enum Destination {
    Op { op: OpId, off: u64, len: u64 },
    Held(HeldId),
    Nowhere,
}

/// Parses the head of a part, and its checksum.
fn parse(part: &Part) -> Option<(Head, Option<Sum>)> {
    let (bytes, sum) = match CheckedFrame::split_front(part.head()) {
        Some((bytes, sum)) => (bytes, Some(sum)),
        None => (part.head(), None),
    };
    if let Some(message) = StreamMessage::parse(bytes, part.len) {
        return Some((Head::Contents(Contents::Message(message)), sum));
    }
    let head = match PartHead::parse(bytes, part.len)? {
        PartHead::Chunk(chunk) => Head::Contents(Contents::Chunk(chunk)),
        PartHead::Push(request, done) => Head::Push(request, done),
    };
    Some((head, sum))
}

impl PartIntake<'_> {
    /// Returns the destination of `len` bytes of a part, starting after the bytes that have already
    /// landed.
    fn destination(
        &mut self,
        part: &Part,
        contents: &Contents,
        len: usize,
    ) -> Result<Destination, DropReason> {
        let (off, from, len) = (part.landed as u64, PeerId(part.from), len as u64);
        let core = &mut self.inner.core;
        match contents {
            Contents::Chunk(chunk) => match core.place_part(from, chunk, off, len) {
                PartPlace::Wrong => Err(DropReason::BadFragment),
                PartPlace::Nowhere => Ok(Destination::Nowhere),
                PartPlace::At { op, off, len } => Ok(Destination::Op { op, off, len }),
            },
            Contents::Message(message) => {
                let place = core.place_message(from, message, (off, len))?;
                Ok(match place {
                    MessagePlace::Nowhere => Destination::Nowhere,
                    MessagePlace::Held(held) => Destination::Held(held),
                    MessagePlace::Op { op, off, len } => Destination::Op { op, off, len },
                })
            }
        }
    }

    /// Returns the memory for `len` bytes of a part, starting after the bytes that have already
    /// landed.
    fn memory(
        &mut self,
        part: &Part,
        contents: &Contents,
        len: usize,
    ) -> Result<Option<&mut [u8]>, DropReason> {
        Ok(match self.destination(part, contents, len)? {
            Destination::Nowhere => None,
            Destination::Held(held) => {
                let bytes = self.inner.core.held_mut(held).get_mut(part.landed..);
                bytes.and_then(|bytes| bytes.get_mut(..len))
            }
            Destination::Op { op, off, len } => op_memory(&mut self.inner.ops, op, (off, len)),
        })
    }

    /// Handles the head of a part of which nothing has landed.
    fn open(&mut self, part: &Part, head: &Head) -> Result<(), DropReason> {
        let from = PeerId(part.from);
        match head {
            Head::Contents(Contents::Chunk(_)) => {}
            Head::Contents(Contents::Message(message)) => {
                self.inner.core.open_message(from, message)?;
            }
            Head::Push(request, done) => {
                self.freshen();
                if let PushRequest::Message(rts) = request
                    && !self.inner.core.has_push(from, request)
                {
                    self.inner.note_long(rts.message_len);
                }
                let Inner { core, now, .. } = &mut *self.inner;
                core.open_push(*now, from, (request, *done), part.len as u64)?;
                self.inner.drain(self.handlers, None);
            }
        }
        Ok(())
    }

    /// Returns the contents of a part of which more is about to land, or `None` if it must wait.
    fn contents(&mut self, part: &Part, head: &Head) -> Option<Contents> {
        match head {
            Head::Contents(contents) => Some(*contents),
            Head::Push(request, _) => {
                match self.inner.core.place_push(PeerId(part.from), request) {
                    PushPlace::Part(chunk) => Some(Contents::Chunk(chunk)),
                    PushPlace::Wait => None,
                }
            }
        }
    }

    /// Returns the contents of a part of which bytes have landed.
    fn landing(&self, part: &Part, head: Head) -> Contents {
        match head {
            Head::Contents(contents) => contents,
            Head::Push(request, _) => {
                let from = PeerId(part.from);
                Contents::Chunk(self.inner.core.push_chunk(from, &request))
            }
        }
    }

    /// Fails the operation if the next `len` bytes of a part cannot be written to its memory.
    fn check_memory(
        &mut self,
        part: &Part,
        contents: &Contents,
        len: usize,
    ) -> Result<(), DropReason> {
        let Destination::Op { op, off, len } = self.destination(part, contents, len)? else {
            return Ok(());
        };
        let bytes = op_memory(&mut self.inner.ops, op, (off, len));
        if bytes.is_some_and(|bytes| !probe::is_writable(bytes)) {
            let (off, len) = (usize::try_from(off), usize::try_from(len));
            if let (Ok(off), Ok(len)) = (off, len) {
                self.inner.fail_writes(op, off..off + len);
                self.inner.drain(self.handlers, None);
            }
        }
        Ok(())
    }

    fn freshen(&mut self) {
        if !std::mem::replace(&mut self.is_fresh, true) {
            self.inner.read_clock();
        }
    }

    /// Notifies the core of bytes that have landed.
    fn note_landed(&mut self, part: &Part, contents: &Contents, off: usize, len: usize) {
        self.freshen();
        let Inner { core, now, .. } = &mut *self.inner;
        let (from, off, len) = (PeerId(part.from), off as u64, len as u64);
        match contents {
            Contents::Chunk(chunk) => core.handle_part(*now, from, chunk, off, len),
            Contents::Message(message) => core.handle_message(*now, from, message, (off, len)),
        }
        self.inner.drain(self.handlers, None);
    }

    /// Returns whether the checksum of a complete part must be right. Bytes of a transfer that has
    /// ended may have changed; those of a message never change.
    fn must_be_right(&self, part: &Part, contents: &Contents) -> bool {
        match contents {
            Contents::Chunk(chunk) => self.inner.core.needs_part(PeerId(part.from), chunk),
            Contents::Message(_) => true,
        }
    }

    /// Rejects a part; the stream ends. `P15.5`
    fn reject(&mut self, part: &Part, reason: DropReason) -> Place<'_> {
        self.inner.core.note_dropped(reason);
        if reason == DropReason::NoMemory {
            self.freshen();
            let now = self.inner.now;
            self.inner.core.note_no_memory(now, PeerId(part.from));
        }
        Place::End
    }
}

/// Returns `len` bytes starting at `off` of the memory of an operation, if they exist.
fn op_memory(ops: &mut Ops, op: OpId, (off, len): (u64, u64)) -> Option<&mut [u8]> {
    let (off, len) = (usize::try_from(off).ok()?, usize::try_from(len).ok()?);
    ops.bytes_mut(op).get_mut(off..)?.get_mut(..len)
}

impl PartReceiver for PartIntake<'_> {
    fn place(&mut self, part: &Part, copied_len: usize) -> Place<'_> {
        let requires_sums = self.requires_sums;
        let Some((head, sum)) = parse(part) else {
            return Place::End;
        };
        if requires_sums && sum.is_none() {
            return self.reject(part, DropReason::Unchecked);
        }
        if part.landed == 0
            && let Err(reason) = self.open(part, &head)
        {
            return self.reject(part, reason);
        }
        let Some(contents) = self.contents(part, &head) else {
            return Place::Later;
        };
        // The system reports memory that it cannot write; a copy in this process would raise a
        // signal.
        if copied_len > 0
            && let Err(reason) = self.check_memory(part, &contents, copied_len)
        {
            return self.reject(part, reason);
        }
        match self.memory(part, &contents, part.len - part.landed) {
            Err(_) => Place::End,
            Ok(None) => Place::Nowhere,
            Ok(Some(bytes)) => Place::At(bytes),
        }
    }

    fn faulted(&mut self, part: &Part) -> bool {
        let Some((head, _)) = parse(part) else {
            return false;
        };
        let contents = self.landing(part, head);
        let left = part.len - part.landed;
        // The operation of an eager message fails when the message has arrived in frames.
        self.check_memory(part, &contents, left).is_ok()
            && matches!(
                self.destination(part, &contents, left),
                Ok(Destination::Nowhere)
            )
    }

    fn landed(&mut self, part: &mut Part, landing: Landing<'_>) -> bool {
        let Some((head, sum)) = parse(part) else {
            return false;
        };
        let contents = self.landing(part, head);
        let len = match landing {
            Landing::There(len) => len,
            Landing::Lost(bytes) => bytes.len(),
        };
        let Some(sum) = sum else {
            self.note_landed(part, &contents, part.landed, len);
            return true;
        };
        // Counted only once all of the part has arrived and its checksum is right. `P15.5`
        let hash = part.hash.take();
        let mut hash = hash.unwrap_or_else(|| part_hasher(&part.head()[CHECK_LEN..]));
        match landing {
            Landing::Lost(bytes) => hash.write(bytes),
            Landing::There(len) => match self.memory(part, &contents, len) {
                Ok(Some(bytes)) => hash.write(bytes),
                _ => return false,
            },
        }
        if part.landed + len < part.len || !self.must_be_right(part, &contents) {
            part.hash = Some(hash);
            return true;
        }
        if !is_right_of_part(sum, &part.head()[CHECK_LEN..], &*hash) {
            self.inner.core.note_dropped(DropReason::BadChecksum);
            return false;
        }
        self.note_landed(part, &contents, 0, part.len);
        true
    }
}
