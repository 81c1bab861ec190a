// SPDX-License-Identifier: MIT OR Apache-2.0
//! Delivers a received message to its buffer and to the handler of its port.

use super::fault::{UNWRITABLE, can_place_whole};
use super::{Context, Engine, Handler, Inner, PortUse};
use crate::buffer::Buffer;
use crate::canary::Canary;
use crate::error::Error;
use crate::ops::{Memory, OpKind, Owner, Received, Request, State};
use crate::port::Message;
use portolan_link::RxFrame;
use portolan_proto::{
    CompleteMessage, Data, MatchBits, MessageDest, OpError, OpId, PeerId, PortId, WaitingRecv, copy,
};
use portolan_sys::memory::append;
use portolan_sys::usage;
use std::ops::Range;

/// Longest message for which the library itself allocates a buffer for a handler's port.
const BUFFER_LEN_MAX: u64 = 1 << 30;

/// Blocking receive in its first turns. It takes its message directly from a frame, and is posted
/// only if none arrives soon.
pub(crate) struct Inbox<'a> {
    pub(super) want: WaitingRecv,
    pub(super) bytes: &'a mut [u8],
    pub(super) got: Option<Taken>,
    /// Set while nothing waits where its message is matched.
    pub(super) is_quiet: bool,
}

/// Message taken by an [`Inbox`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    pub(crate) received: Received,
    /// Match bits of a tagged message.
    pub(crate) match_bits: Option<MatchBits>,
}

impl Inbox<'_> {
    /// Tests whether the receive can take the next message without searching the ports first.
    #[inline]
    pub(super) fn is_next(&self) -> bool {
        self.is_quiet && self.got.is_none()
    }

    #[inline(always)]
    pub(super) fn fill(&mut self, source: PeerId, bytes: &[u8], match_bits: Option<MatchBits>) {
        usage::count_copy();
        copy(&mut self.bytes[..bytes.len()], bytes);
        let received = Received {
            len: bytes.len(),
            source: source.0,
        };
        self.got = Some(Taken {
            received,
            match_bits,
        });
    }
}

/// Delivered message.
pub(super) struct Arrival {
    pub(super) peer: PeerId,
    pub(super) port: PortId,
    pub(super) op: Option<OpId>,
    pub(super) len: u64,
    pub(super) data: Data,
    pub(super) error: Option<OpError>,
}

/// Handlers of messages.
pub(crate) enum Handlers {
    /// Handlers by port.
    OfPorts(Vec<Option<Handler>>),
    /// Hook of an endpoint for all ports.
    Active(ActiveHook),
}

/// Hook for a message, given its sender, its port, and its bytes.
pub(crate) type ActiveHook = Box<dyn FnMut(PeerId, u16, &[u8]) + Send>;

impl Handlers {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        matches!(self, Handlers::OfPorts(handlers) if handlers.is_empty())
    }

    /// Tests whether messages to `port` have a handler.
    fn has(&self, port: u16) -> bool {
        match self {
            Handlers::OfPorts(handlers) => {
                matches!(handlers.get(usize::from(port)), Some(Some(_)))
            }
            Handlers::Active(_) => true,
        }
    }
}

/// Message in a posted buffer. Its handler runs in the program's next call.
pub(super) struct Deferred {
    peer: PeerId,
    port: PortId,
    message_len: u64,
    buffer: Buffer,
}

impl Engine {
    #[inline]
    pub(crate) fn has_deferred(&self) -> bool {
        !self.inner.deferred.is_empty()
    }

    /// Runs the handlers of messages that arrived while the program computed. Returns the number of
    /// handlers run.
    #[inline]
    pub(crate) fn run_deferred(&mut self) -> usize {
        match self.has_deferred() {
            true => self.run_all_deferred(),
            false => 0,
        }
    }

    #[cold]
    fn run_all_deferred(&mut self) -> usize {
        let mut count = 0;
        while let Some(deferred) = self.inner.deferred.pop_front() {
            let Deferred {
                peer,
                port,
                message_len,
                buffer,
            } = deferred;
            count += 1;
            let message = Message {
                source: peer.0,
                port: port.number,
                bytes: &[],
                buffer: Some(buffer),
                message_len,
            };
            self.inner.run_handler(&mut self.handlers, message);
        }
        // Handlers may have posted buffers for waiting messages.
        self.drain();
        count
    }
}

impl Inner {
    /// Delivers a message that bypassed the queues.
    #[inline]
    pub(super) fn deliver_whole(
        &mut self,
        handlers: &mut Handlers,
        peer: PeerId,
        whole: &CompleteMessage,
        bytes: &[u8],
    ) {
        let MessageDest::Posted(op) = whole.dest else {
            self.handle(handlers, peer, whole.port, whole.len as u64, bytes, None);
            // The handler may have posted a buffer, or opened a port, for a waiting message.
            self.drain(handlers, None);
            return;
        };
        if self.ops.fill(op, bytes, peer.0, None) {
            self.pass_to_handler(handlers, peer, whole.port, op, whole.len as u64);
            // As above. Never runs within `drain`, because the frame would not be available here.
            self.drain(handlers, None);
        }
    }

    /// Passes a filled buffer to the handler of its port.
    fn pass_to_handler(
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

    #[inline]
    pub(super) fn deliver(
        &mut self,
        handlers: &mut Handlers,
        frame: Option<&RxFrame<'_>>,
        arrival: Arrival,
    ) {
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
        match self.take_fault(op).or(error) {
            Some(error) if !self.ops.is_handled(op) => {
                let mut error = self.op_error(op, error);
                if let Error::Truncated { source_rank, .. } = &mut error {
                    *source_rank = peer.0;
                }
                self.ops.fail(op, error);
            }
            // A handler detects by the length that its buffer was too short.
            _ => {
                let received = Received {
                    len: usize::try_from(len).unwrap_or(usize::MAX),
                    source: peer.0,
                };
                if self.ops.complete_ok(op, received, None) {
                    self.pass_to_handler(handlers, peer, port, op, len);
                }
            }
        }
    }

    /// Copies a delivered message into its buffer, as far as it fits.
    #[inline]
    pub(super) fn place_whole(&mut self, frame: Option<&RxFrame<'_>>, op: OpId, data: Data) {
        match data {
            Data::Frame(src) => {
                let dst = self.ops.bytes_mut(op);
                let len = src.len().min(dst.len());
                match can_place_whole(&mut dst[..len]) {
                    true => copy_part(frame, src.start..src.start + len, &mut dst[..len]),
                    false => self.note_fault(op, UNWRITABLE),
                }
            }
            Data::Held(id) => {
                let src = self.core.held(id);
                let dst = self.ops.bytes_mut(op);
                let len = src.len().min(dst.len());
                usage::count_copy();
                let is_writable = can_place_whole(&mut dst[..len]);
                if is_writable {
                    copy(&mut dst[..len], &src[..len]);
                }
                self.core.release(id);
                if !is_writable {
                    self.note_fault(op, UNWRITABLE);
                }
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
                append(&mut scratch, self.core.held(id));
                self.core.release(id);
                self.handle(handlers, peer, port, len, &scratch, None);
                self.scratch = scratch;
            }
            Data::Placed => {}
        }
    }

    /// Passes a message to the handler of its port, now or in the program's next call.
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
            return self.on_system(peer, port, bytes);
        }
        // Deferred messages run first, so this one is queued behind them.
        if (self.is_away || !self.deferred.is_empty())
            && let Some(buffer) = buffer
        {
            self.deferred.push_back(Deferred {
                peer,
                port,
                message_len,
                buffer,
            });
            return;
        }
        let message = Message {
            source: peer.0,
            port: port.number,
            bytes,
            buffer,
            message_len,
        };
        self.run_handler(handlers, message);
    }

    /// Runs the handler of `port` with a message where it is.
    #[inline(always)]
    pub(super) fn run_in_place(
        &mut self,
        handlers: &mut Handlers,
        peer: PeerId,
        port: u16,
        bytes: &[u8],
    ) {
        let message = Message {
            source: peer.0,
            port,
            bytes,
            buffer: None,
            message_len: bytes.len() as u64,
        };
        self.run_handler(handlers, message);
    }

    #[inline(always)]
    fn run_handler(&mut self, handlers: &mut Handlers, message: Message<'_>) {
        match handlers {
            Handlers::OfPorts(handlers) => {
                if let Some(Some(handler)) = handlers.get_mut(usize::from(message.port)) {
                    handler(&mut Context::new(self), message);
                }
            }
            Handlers::Active(hook) => hook(PeerId(message.source), message.port, message.bytes()),
        }
    }

    /// Allocates a buffer for a message that does not fit a frame and has a handler that takes
    /// messages in place.
    pub(super) fn allocate_buffer(
        &mut self,
        handlers: &Handlers,
        port: PortId,
        peer: PeerId,
        len: u64,
    ) {
        if port.system || !handlers.has(port.number) {
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
        let bytes = match self.pool.buffer("a buffer for a message", len) {
            Ok(bytes) => bytes,
            Err(error) => {
                log::error!("port {}: {error}; the message waits", port.number);
                return;
            }
        };
        let memory = Memory::Owned(Buffer::from(bytes));
        let op = self.ops.enter(kind, memory, Owner::None);
        self.core.post_recv(port, op, len as u64, Some(peer));
    }

    /// Posts a buffer. The library owns it until the receive completes.
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
            PortUse::Handled => Owner::None,
            _ => Owner::Request(State::Pending),
        };
        let kind = OpKind::Recv { port, source };
        let op = self.ops.enter(kind, Memory::Owned(buffer), owner);
        self.core.post_recv(port, op, len, source);
        Ok(Request(op))
    }
}

/// Copies a part of a frame, from its head or its shared body.
#[inline]
pub(super) fn copy_part(frame: Option<&RxFrame<'_>>, src: Range<usize>, dst: &mut [u8]) {
    let Some(frame) = frame else { return };
    if Canary::LostPart.strikes() && src.len() > 512 && (src.len() % 7) == 3 {
        return;
    }
    usage::count_copy();
    if let Some(bytes) = frame.head.get(src.clone()) {
        copy(dst, bytes);
        return;
    }
    let head_len = frame.head.len();
    let in_head = head_len.saturating_sub(src.start).min(dst.len());
    let (front, back) = dst.split_at_mut(in_head);
    let first = src.start.min(head_len);
    copy(front, &frame.head[first..first + in_head]);
    if let Some(body) = frame.body {
        let off = (src.start + in_head).saturating_sub(head_len);
        body.copy_to(off, back);
    }
}
