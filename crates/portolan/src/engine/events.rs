// SPDX-License-Identifier: MIT OR Apache-2.0
//! Acting on the core's events while the frame they speak of is still at hand.

use super::stream::StreamCall;
use super::{Context, Handler, Inner, PortUse};
use crate::buffer::{self, Buffer};
use crate::checksum;
use crate::error::Error;
use crate::ops::{Memory, OpKind, Owner, Received, Request, State};
use crate::port::Message;
use crate::seal::Opened;
use portolan_link::RxFrame;
use portolan_proto::{
    Cause, Data, Dest, Event, LinkId, OpError, OpId, PeerId, PortId, Want, Whole, WholeDest,
};
use portolan_sys::effort;
use std::ops::Range;

/// Longest message for which a handler's port gets a buffer of the library's own accord.
const BUFFER_LEN_MAX: u64 = 1 << 30;

/// A message to fetch from a peer's memory.
pub(crate) struct Pull {
    pub(super) transfer: u32,
    pub(super) peer: PeerId,
    pub(super) remote_addr: u64,
    pub(super) op: OpId,
    pub(super) off: u64,
    pub(super) len: u64,
}

/// A blocking receive in its first turns: it takes its message straight from a frame, and is posted
/// only when none comes soon.
pub(crate) struct Inbox<'a> {
    pub(super) want: Want,
    pub(super) bytes: &'a mut [u8],
    pub(super) got: Option<Received>,
}

impl Inbox<'_> {
    #[inline]
    fn fill(&mut self, source: PeerId, bytes: &[u8]) {
        effort::copies();
        self.bytes[..bytes.len()].copy_from_slice(bytes);
        self.got = Some(Received {
            len: bytes.len(),
            source: source.0,
        });
    }
}

/// A delivered message.
struct Arrival {
    peer: PeerId,
    port: PortId,
    op: Option<OpId>,
    len: u64,
    data: Data,
    error: Option<OpError>,
}

pub(super) type Handlers = Vec<Option<Handler>>;

impl Inner {
    /// A frame has arrived.
    #[inline]
    pub(super) fn on_frame(
        &mut self,
        handlers: &mut Handlers,
        link: LinkId,
        lossless: bool,
        frame: &RxFrame<'_>,
        mut inbox: Option<&mut Inbox<'_>>,
    ) {
        let admitted = if lossless {
            // Out of the ring.
            effort::copies();
            let body_len = frame.body.map_or(0, |body| body.len());
            let from = PeerId(frame.from.unwrap_or(u32::MAX));
            self.core
                .admit_lossless(self.now, link, from, frame.head.len() + body_len)
        } else {
            self.core.admit(self.now, link, frame.head)
        };
        if let Some(mut admitted) = admitted {
            loop {
                let open = inbox.as_deref_mut().filter(|inbox| inbox.got.is_none());
                let want = open.as_ref().map(|inbox| &inbox.want);
                let Some(whole) = self.core.take_whole(&mut admitted, frame.head, want) else {
                    if !self.take_tagged(&mut admitted, frame.head) {
                        break;
                    }
                    if admitted.is_done() {
                        return;
                    }
                    continue;
                };
                let bytes = &frame.head[whole.off..whole.off + whole.len];
                match (whole.dest, open) {
                    (WholeDest::Wanted, Some(inbox)) => inbox.fill(admitted.from, bytes),
                    _ => self.deliver_whole(handlers, admitted.from, &whole, bytes),
                }
                if admitted.is_done() {
                    return;
                }
            }
            self.core.handle_rest(self.now, &admitted, frame.head);
        }
        self.drain(handlers, Some(frame));
    }

    /// Frames of `frame_len` bytes each have arrived, end to end, the last perhaps shorter; returns how
    /// many of the first ones were fragments of one message, which are at their place now.
    pub(super) fn on_run(
        &mut self,
        handlers: &mut Handlers,
        link: LinkId,
        frames: &[u8],
        frame_len: usize,
    ) -> usize {
        let datagrams = || frames.chunks(frame_len);
        // Looked at one by one, as far as they are wanted.
        let opened = datagrams().map_while(|datagram| checksum::open(datagram).ok());
        let Some(run) = self.core.handle_run(self.now, link, opened) else {
            return 0;
        };
        let dst = match run.dest {
            Dest::Op(op, off) => {
                let off = usize::try_from(off).unwrap_or(usize::MAX);
                self.ops.bytes_mut(op).get_mut(off..)
            }
            Dest::Held(id, off) => self.core.held_mut(id).get_mut(off..),
        };
        let dst = dst.unwrap_or_default().chunks_mut(run.part_len);
        for (dst, piece) in dst.zip(run.pieces(datagrams().map(checksum::behind_sum))) {
            effort::copies();
            dst[..piece.len()].copy_from_slice(piece);
        }
        self.placement.count(run.count * frame_len);
        self.drain(handlers, None);
        run.count
    }

    /// A frame from a network has arrived, in a job whose frames are sealed. `P10.3`
    pub(super) fn on_sealed(
        &mut self,
        handlers: &mut Handlers,
        link: LinkId,
        frame: &[u8],
        inbox: Option<&mut Inbox<'_>>,
    ) {
        let Inner { core, seals, .. } = self;
        let Some(seals) = seals else { return };
        let whole = |head| RxFrame {
            from: None,
            head,
            body: None,
            marked: false,
        };
        match seals.open(core, link, frame) {
            Err(reason) => core.note_dropped(reason),
            Ok(Opened::Handshake) => self.on_frame(handlers, link, false, &whole(frame), inbox),
            Ok(Opened::Frame(plain)) => {
                self.on_frame(handlers, link, false, &whole(&plain), inbox);
                if let Some(seals) = &mut self.seals {
                    seals.put_back(plain);
                }
            }
        }
    }

    /// A message that came the short way.
    #[inline]
    fn deliver_whole(
        &mut self,
        handlers: &mut Handlers,
        peer: PeerId,
        whole: &Whole,
        bytes: &[u8],
    ) {
        let WholeDest::Posted(op) = whole.dest else {
            self.handle(handlers, peer, whole.port, whole.len as u64, bytes, None);
            // The handler may have posted a buffer, or opened a port, for what waited.
            self.drain(handlers, None);
            return;
        };
        if self.ops.fill(op, bytes, peer.0, None) {
            self.tell_handler(handlers, peer, whole.port, op, whole.len as u64);
            // As above. Never within `drain`: its frame would be missing here.
            self.drain(handlers, None);
        }
    }

    /// Hands a filled buffer to its port's handler.
    fn tell_handler(
        &mut self,
        handlers: &mut Handlers,
        peer: PeerId,
        port: PortId,
        op: OpId,
        message_len: u64,
    ) {
        let buffer = self.ops.reclaim(op);
        self.handle(handlers, peer, port, message_len, &[], buffer);
    }

    /// Acts on all events.
    #[inline]
    pub(crate) fn drain(&mut self, handlers: &mut Handlers, frame: Option<&RxFrame<'_>>) {
        if self.core.has_event() {
            self.drain_events(handlers, frame);
        }
    }

    fn drain_events(&mut self, handlers: &mut Handlers, frame: Option<&RxFrame<'_>>) {
        while let Some(event) = self.core.poll_event() {
            match event {
                Event::Place {
                    dest: Dest::Op(op, off),
                    src,
                } => {
                    let off = usize::try_from(off).unwrap_or(usize::MAX);
                    let dst = self.ops.bytes_mut(op).get_mut(off..);
                    if let Some(dst) = dst.and_then(|dst| dst.get_mut(..src.len())) {
                        copy_part(frame, src, dst);
                    }
                }
                Event::Place {
                    dest: Dest::Held(id, off),
                    src,
                } => {
                    let dst = &mut self.core.held_mut(id)[off..off + src.len()];
                    copy_part(frame, src, dst);
                }
                Event::Deliver {
                    peer,
                    port,
                    op,
                    len,
                    data,
                    error,
                    ..
                } => {
                    let arrival = Arrival {
                        peer,
                        port,
                        op,
                        len,
                        data,
                        error,
                    };
                    self.deliver(handlers, frame, arrival);
                }
                Event::Matched {
                    peer,
                    op,
                    match_bits,
                    len,
                    data,
                    truncated,
                } => {
                    self.place_whole(frame, op, data);
                    self.complete_tagged(op, peer, match_bits, len, truncated);
                }
                other => self.on_rare(handlers, frame, other),
            }
        }
    }

    #[inline]
    fn deliver(&mut self, handlers: &mut Handlers, frame: Option<&RxFrame<'_>>, arrival: Arrival) {
        let Some(op) = arrival.op else {
            self.deliver_in_place(handlers, frame, arrival);
            return;
        };
        let Arrival {
            peer,
            port,
            len,
            data,
            error,
            ..
        } = arrival;
        self.place_whole(frame, op, data);
        match error {
            Some(error) if !self.ops.is_handled(op) => {
                let error = self.op_error(op, error);
                self.ops.fail(op, error);
            }
            // A handler sees by the length that its buffer was too short.
            _ => {
                let received = Received {
                    len: usize::try_from(len).unwrap_or(usize::MAX),
                    source: peer.0,
                };
                if self.ops.complete_ok(op, received, None) {
                    self.tell_handler(handlers, peer, port, op, len);
                }
            }
        }
    }

    /// Copies a delivered message into its buffer, as far as that reaches.
    #[inline]
    fn place_whole(&mut self, frame: Option<&RxFrame<'_>>, op: OpId, data: Data) {
        match data {
            Data::Frame(src) => {
                let dst = self.ops.bytes_mut(op);
                let len = src.len().min(dst.len());
                copy_part(frame, src.start..src.start + len, &mut dst[..len]);
            }
            Data::Held(id) => {
                let src = self.core.held(id);
                let dst = self.ops.bytes_mut(op);
                let len = src.len().min(dst.len());
                effort::copies();
                dst[..len].copy_from_slice(&src[..len]);
                self.core.release(id);
            }
            Data::Placed => {}
        }
    }

    #[inline]
    fn deliver_in_place(
        &mut self,
        handlers: &mut Handlers,
        frame: Option<&RxFrame<'_>>,
        arrival: Arrival,
    ) {
        let Arrival {
            peer,
            port,
            len,
            data,
            ..
        } = arrival;
        match data {
            Data::Frame(range) => {
                if let Some(bytes) = frame.and_then(|frame| frame.head.get(range.clone())) {
                    self.handle(handlers, peer, port, len, bytes, None);
                    return;
                }
                let mut scratch = std::mem::take(&mut self.scratch);
                scratch.resize(range.len(), 0);
                copy_part(frame, range, &mut scratch);
                self.handle(handlers, peer, port, len, &scratch, None);
                self.scratch = scratch;
            }
            Data::Held(id) => {
                let mut scratch = std::mem::take(&mut self.scratch);
                scratch.clear();
                scratch.extend_from_slice(self.core.held(id));
                self.core.release(id);
                self.handle(handlers, peer, port, len, &scratch, None);
                self.scratch = scratch;
            }
            Data::Placed => {}
        }
    }

    /// Runs the handler of a port.
    #[inline]
    fn handle(
        &mut self,
        handlers: &mut Handlers,
        peer: PeerId,
        port: PortId,
        message_len: u64,
        bytes: &[u8],
        buffer: Option<Buffer>,
    ) {
        if port.system {
            return self.on_news(peer, bytes);
        }
        let place = handlers.get_mut(usize::from(port.number));
        if let Some(Some(handler)) = place {
            let message = Message {
                source: peer.0,
                port: port.number,
                bytes,
                buffer,
                message_len,
            };
            handler(&mut Context::new(self), message);
        }
    }

    #[cold]
    fn on_rare(&mut self, handlers: &mut Handlers, frame: Option<&RxFrame<'_>>, event: Event) {
        match event {
            Event::SendDone { op, result } => {
                if let Some(OpKind::Send(peer)) = self.ops.kind(op) {
                    self.complete_send(op, peer, result);
                }
            }
            Event::RecvFailed { op, error } => self.fail_recv(op, error),
            Event::Pull {
                transfer,
                peer,
                remote_addr,
                op,
                off,
                len,
            } => {
                self.pulls.push(Pull {
                    transfer,
                    peer,
                    remote_addr,
                    op,
                    off,
                    len,
                });
            }
            Event::BufferWanted { port, peer, len } => self.lend_buffer(handlers, port, peer, len),
            Event::PortUnopened { port, peer } => self.note_unopened(port, peer),
            Event::MultiRecvSegment {
                op,
                part,
                off,
                len,
                is_last,
            } => self.begin_raw_part(op, part, off..off + len, is_last),
            other => self.on_peer_event(frame, other),
        }
    }

    /// Events that are about a peer rather than about an operation.
    fn on_peer_event(&mut self, frame: Option<&RxFrame<'_>>, event: Event) {
        match event {
            Event::Writable(peer) => self.pending.wake(peer),
            Event::StreamWanted(peer) => self.call_streams(StreamCall::Open(peer)),
            Event::PeerUp(peer) => {
                self.pending.wake(peer);
                self.peers[peer.0 as usize].connecting_since = None;
                if let Some(seals) = &mut self.seals
                    && let Some(ids) = self.core.session_ids(peer)
                {
                    seals.on_session(peer, ids);
                }
            }
            Event::Suspect { peer, .. } => {
                let since = self.core.last_heard(peer).unwrap_or(self.now);
                self.watch_since(peer, since);
            }
            Event::PeerFailed {
                peer,
                cause,
                unheard,
            } => {
                self.call_streams(StreamCall::Close(peer));
                if unheard {
                    self.note_undelivered(peer, cause);
                }
                self.note_gone(peer);
            }
            Event::MemoryFull { peer, error } => {
                let error = self.op_error(OpId(u64::MAX), error);
                log::warn!("{peer} on {} is held back: {error}", self.host_of(peer));
            }
            Event::Unsolicited { endpoint_id } => self.meet_unsolicited(&endpoint_id),
            other => self.on_remote(frame, other),
        }
    }

    /// A receive has ended without a message.
    fn fail_recv(&mut self, op: OpId, error: OpError) {
        match self.ops.owner(op) {
            None => {}
            Some(Owner::Caller(_)) => self.end_raw_recv_failed(op, error),
            Some(Owner::Request(_)) => {
                let error = self.op_error(op, error);
                self.ops.fail(op, error);
            }
            Some(Owner::Nobody) => {
                log::warn!("posted buffer: {}", self.op_error(op, error));
                self.ops.forget(op);
            }
        }
    }

    /// A port whose handler takes messages in place was sent one that does not travel in a frame.
    fn lend_buffer(&mut self, handlers: &Handlers, port: PortId, peer: PeerId, len: u64) {
        let handler = handlers.get(usize::from(port.number));
        if port.system || handler.is_none_or(Option::is_none) {
            return;
        }
        if len > BUFFER_LEN_MAX {
            log::warn!(
                "port {}: a message of {len} bytes waits for a buffer",
                port.number
            );
            return;
        }
        let len = usize::try_from(len).unwrap_or(0);
        let kind = OpKind::Recv {
            port,
            source: Some(peer),
        };
        let bytes = match buffer::zeroed("a buffer for a message", len) {
            Ok(bytes) => bytes,
            Err(error) => {
                log::error!("port {}: {error}; the message waits", port.number);
                return;
            }
        };
        let memory = Memory::Owned(Buffer::from(bytes));
        let op = self.ops.enter(kind, memory, Owner::Nobody);
        self.core.post_recv(port, op, len as u64, Some(peer));
    }

    /// Gives `peer` up: what only it could have ended ends with `cause`. `P9.6`
    pub(super) fn give_up(&mut self, peer: PeerId, cause: Cause) {
        self.core.fail_peer(peer, cause);
        self.note_gone(peer);
    }

    /// A peer was given up: what waits for it ends.
    pub(crate) fn note_gone(&mut self, peer: PeerId) {
        let portolan_proto::PeerStatus::Failed(cause) = self.core.peer_status(peer) else {
            return;
        };
        log::debug!("{peer} is given up: {cause:?}");
        let info = &mut self.peers[peer.0 as usize];
        (info.watched_since, info.is_doubted) = (None, false);
        for op in self.pending.take_peer(peer) {
            self.forget_queued_remote(op);
            self.complete_send(op, peer, Err(OpError::PeerGone(peer, cause)));
        }
    }

    /// Posts a buffer that the library owns meanwhile.
    pub(crate) fn post_recv(
        &mut self,
        port: PortId,
        mut buffer: Buffer,
        source: Option<PeerId>,
    ) -> Result<Request, Error> {
        self.check_owner()?;
        if buffer.as_mut_slice().is_none() {
            return Err(Error::BufferShared);
        }
        let use_ = self.port_use(port);
        if use_ == PortUse::Closed {
            return Err(Error::PortClosed { port: port.number });
        }
        let len = buffer.len() as u64;
        let owner = match use_ {
            PortUse::Handled => Owner::Nobody,
            _ => Owner::Request(State::Pending),
        };
        let kind = OpKind::Recv { port, source };
        let op = self.ops.enter(kind, Memory::Owned(buffer), owner);
        self.core.post_recv(port, op, len, source);
        Ok(Request(op))
    }

    /// The error of an operation, as a program sees it.
    pub(crate) fn op_error(&self, op: OpId, error: OpError) -> Error {
        match error {
            OpError::PeerGone(peer, cause) => self.gone_error(peer, cause),
            OpError::Truncated { message_len } => {
                let port = match self.ops.kind(op) {
                    Some(OpKind::Recv { port, .. }) => port.number,
                    _ => 0,
                };
                Error::Truncated {
                    port,
                    message_len,
                    buffer_len: self.ops.bytes(op).len(),
                }
            }
            OpError::Refused => {
                let rank = match self.ops.kind(op) {
                    Some(OpKind::Send(peer)) => peer.0,
                    _ => u32::MAX,
                };
                Error::Refused { rank }
            }
            OpError::Remote(peer, fault) => Error::RemoteRefused {
                rank: peer.0,
                host: self.host_of(peer),
                fault,
            },
            OpError::MemoryFull { held_len, limit } => {
                Error::UnexpectedMemoryFull { held_len, limit }
            }
            _ => Error::Cancelled,
        }
    }
}

/// Copies a part of a frame, from its head or its shared body.
#[inline]
pub(super) fn copy_part(frame: Option<&RxFrame<'_>>, src: Range<usize>, dst: &mut [u8]) {
    let Some(frame) = frame else { return };
    effort::copies();
    if let Some(bytes) = frame.head.get(src.clone()) {
        dst.copy_from_slice(bytes);
        return;
    }
    let head_len = frame.head.len();
    let in_head = head_len.saturating_sub(src.start).min(dst.len());
    let (front, back) = dst.split_at_mut(in_head);
    front.copy_from_slice(&frame.head[src.start.min(head_len)..src.start.min(head_len) + in_head]);
    if let Some(body) = frame.body {
        let off = (src.start + in_head).saturating_sub(head_len);
        body.copy_to(off, back);
    }
}
