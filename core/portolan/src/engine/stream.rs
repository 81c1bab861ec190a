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
use crate::links::Links;
use crate::ops::Ops;
use portolan_link::stream::{Landing, Part, PartReceiver, Place, Tokens};
use portolan_link::{Notice, TxError, TxFrame};
use portolan_proto::{
    DropReason, LinkId, PART_LEN_MAX_LATENCY_SENSITIVE, PartPlace, PeerId, Transmit,
};
use portolan_sys::probe;
use portolan_wire::{CHECK_LEN, CheckedFrame, Chunk, Record, Records, Sum};
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
        // A useless poll would take the lock of a socket on which acknowledgements of sent data
        // arrive.
        if !self.inner.core.expects_parts() && !streams.is_roused(turn) {
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
            streams.poll_all(inner.turn);
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
        let Transmit::Bulk { headers, .. } = *transmit else {
            return (peer, link, Ok(()));
        };
        let Some(streams) = self.streams() else {
            return (peer, link, Err(TxError::NotConnected(peer.0)));
        };
        // A forgotten operation must still fill its place in the stream; the transfer fails at the
        // peer.
        let one = payload_of(ops, transmit).map(|bytes| [bytes, &[]]);
        let two = || two_pieces_of(ops, transmit.payload().first()?);
        let pieces = one.or_else(two).unwrap_or_default();
        let mut head = [0; CHECK_LEN + portolan_wire::CHUNK_LEN];
        let head = &mut head[..headers.len()];
        head.copy_from_slice(headers);
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
        (peer, link, streams.link_mut().transmit(peer.0, &frame))
    }
}

/// Connects the streams with the core for one receive call.
struct PartIntake<'a> {
    inner: &'a mut Inner,
    handlers: &'a mut Handlers,
    requires_sums: bool,
    /// Set when the clock was read for this call.
    is_fresh: bool,
}

/// Parses the head of a part: its place in the transfer, and its checksum.
fn parse(part: &Part) -> Option<(Chunk, Option<Sum>)> {
    let (bytes, sum) = match CheckedFrame::split_front(part.head()) {
        Some((bytes, sum)) => (bytes, Some(sum)),
        None => (part.head(), None),
    };
    match Records::new(bytes, 0, bytes.len() + part.len).next() {
        Some(Ok((Record::Chunk(chunk), payload))) if payload.start == bytes.len() => {
            Some((chunk, sum))
        }
        _ => None,
    }
}

impl PartIntake<'_> {
    /// Returns the memory for `len` bytes of a part, starting after the bytes that have already
    /// landed.
    fn memory(&mut self, part: &Part, chunk: &Chunk, len: usize) -> Result<Option<&mut [u8]>, ()> {
        let (off, from) = (part.landed as u64, PeerId(part.from));
        match self.inner.core.place_part(from, chunk, off, len as u64) {
            PartPlace::Wrong => Err(()),
            PartPlace::Nowhere => Ok(None),
            PartPlace::At { op, off, len } => {
                let (off, len) = (usize::try_from(off), usize::try_from(len));
                let (Ok(off), Ok(len)) = (off, len) else {
                    return Ok(None);
                };
                let bytes = self.inner.ops.bytes_mut(op).get_mut(off..);
                Ok(bytes.and_then(|bytes| bytes.get_mut(..len)))
            }
        }
    }

    /// Fails the operation whose memory a part cannot be written to. The system reports memory that
    /// is unmapped later; the stream then ends, and the rest arrives in frames.
    fn check_memory(&mut self, part: &Part, chunk: &Chunk) {
        let (from, len) = (PeerId(part.from), part.len as u64);
        if let PartPlace::At { op, off, len } = self.inner.core.place_part(from, chunk, 0, len) {
            let (off, len) = (usize::try_from(off), usize::try_from(len));
            let (Ok(off), Ok(len)) = (off, len) else {
                return;
            };
            let bytes = self.inner.ops.bytes_mut(op).get_mut(off..);
            let bytes = bytes.and_then(|bytes| bytes.get_mut(..len));
            if bytes.is_some_and(|bytes| !probe::is_writable(bytes)) {
                self.inner.fail_writes(op, off..off + len);
                self.inner.drain(self.handlers, None);
            }
        }
    }

    /// Notifies the core of bytes that have landed.
    fn note_landed(&mut self, part: &Part, chunk: &Chunk, off: usize, len: usize) {
        if !std::mem::replace(&mut self.is_fresh, true) {
            self.inner.read_clock();
        }
        let Inner { core, now, .. } = &mut *self.inner;
        core.handle_part(*now, PeerId(part.from), chunk, off as u64, len as u64);
        self.inner.drain(self.handlers, None);
    }
}

impl PartReceiver for PartIntake<'_> {
    fn place(&mut self, part: &Part) -> Place<'_> {
        let requires_sums = self.requires_sums;
        let Some((chunk, sum)) = parse(part) else {
            return Place::End;
        };
        if requires_sums && sum.is_none() {
            self.inner.core.note_dropped(DropReason::Unchecked);
            return Place::End;
        }
        if part.landed == 0 {
            self.check_memory(part, &chunk);
        }
        match self.memory(part, &chunk, part.len - part.landed) {
            Err(()) => Place::End,
            Ok(None) => Place::Nowhere,
            Ok(Some(bytes)) => Place::At(bytes),
        }
    }

    fn landed(&mut self, part: &mut Part, landing: Landing<'_>) -> bool {
        let Some((chunk, sum)) = parse(part) else {
            return false;
        };
        let len = match landing {
            Landing::There(len) => len,
            Landing::Lost(bytes) => bytes.len(),
        };
        let Some(sum) = sum else {
            self.note_landed(part, &chunk, part.landed, len);
            return true;
        };
        // Counted only once all of the part has arrived and its checksum is right. `P15.5`
        let hash = part.hash.take();
        let mut hash = hash.unwrap_or_else(|| part_hasher(&part.head()[CHECK_LEN..]));
        match landing {
            Landing::Lost(bytes) => hash.write(bytes),
            Landing::There(len) => match self.memory(part, &chunk, len) {
                Ok(Some(bytes)) => hash.write(bytes),
                _ => return false,
            },
        }
        let is_wanted = (self.inner.core).needs_part(PeerId(part.from), &chunk);
        if part.landed + len < part.len || !is_wanted {
            part.hash = Some(hash);
            return true;
        }
        if !is_right_of_part(sum, &part.head()[CHECK_LEN..], &*hash) {
            self.inner.core.note_dropped(DropReason::BadChecksum);
            return false;
        }
        self.note_landed(part, &chunk, 0, part.len);
        true
    }
}
