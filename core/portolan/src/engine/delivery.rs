// SPDX-License-Identifier: MIT OR Apache-2.0
//! A message that has come goes to its buffer, and to the handler of its port.

use super::{Context, Engine, Handler, Inner, PortUse};
use crate::buffer::Buffer;
use crate::error::Error;
use crate::ops::{Memory, OpKind, Owner, Received, Request, State};
use crate::port::Message;
use portolan_link::RxFrame;
use portolan_proto::{
    Data, MatchBits, OpError, OpId, PeerId, PortId, Want, Whole, WholeDest, copy,
};
use portolan_sys::effort;
use portolan_sys::memory::append;
use std::ops::Range;

/// Longest message for which a handler's port gets a buffer of the library's own accord.
const BUFFER_LEN_MAX: u64 = 1 << 30;

/// A blocking receive in its first turns: it takes its message straight from a frame, and is posted
/// only when none comes soon.
pub(crate) struct Inbox<'a> {
    pub(super) want: Want,
    pub(super) bytes: &'a mut [u8],
    pub(super) got: Option<Taken>,
}

/// What such a receive has taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    pub(crate) received: Received,
    /// Of a message that has them.
    pub(crate) match_bits: Option<MatchBits>,
}

impl Inbox<'_> {
    #[inline]
    pub(super) fn fill(&mut self, source: PeerId, bytes: &[u8], match_bits: Option<MatchBits>) {
        effort::copies();
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

/// A delivered message.
pub(super) struct Arrival {
    pub(super) peer: PeerId,
    pub(super) port: PortId,
    pub(super) op: Option<OpId>,
    pub(super) len: u64,
    pub(super) data: Data,
    pub(super) error: Option<OpError>,
}

pub(super) type Handlers = Vec<Option<Handler>>;

/// A message in a posted buffer, whose handler runs when the program is back.
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

    /// Runs the handlers of messages that came while the program computed; how many did.
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
            let handlers = &mut self.handlers;
            self.inner
                .run_handler(handlers, peer, port, message_len, &[], Some(buffer));
        }
        // They may have posted buffers for what waited.
        self.drain();
        count
    }
}

impl Inner {
    /// A message that came the short way.
    #[inline]
    pub(super) fn deliver_whole(
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
        match error {
            Some(error) if !self.ops.is_handled(op) => {
                let mut error = self.op_error(op, error);
                if let Error::Truncated { source_rank, .. } = &mut error {
                    *source_rank = peer.0;
                }
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
    pub(super) fn place_whole(&mut self, frame: Option<&RxFrame<'_>>, op: OpId, data: Data) {
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
                copy(&mut dst[..len], &src[..len]);
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
                append(&mut scratch, self.core.held(id));
                self.core.release(id);
                self.handle(handlers, peer, port, len, &scratch, None);
                self.scratch = scratch;
            }
            Data::Placed => {}
        }
    }

    /// Hands a message to the handler of its port: now, or when the program is back.
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
        // Behind those that wait, whose turn is before.
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
        self.run_handler(handlers, peer, port, message_len, bytes, buffer);
    }

    #[inline]
    fn run_handler(
        &mut self,
        handlers: &mut Handlers,
        peer: PeerId,
        port: PortId,
        message_len: u64,
        bytes: &[u8],
        buffer: Option<Buffer>,
    ) {
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

    /// A port whose handler takes messages in place was sent one that does not travel in a frame.
    pub(super) fn lend_buffer(
        &mut self,
        handlers: &Handlers,
        port: PortId,
        peer: PeerId,
        len: u64,
    ) {
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
        let bytes = match self.spare.some("a buffer for a message", len) {
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
}

/// Copies a part of a frame, from its head or its shared body.
#[inline]
pub(super) fn copy_part(frame: Option<&RxFrame<'_>>, src: Range<usize>, dst: &mut [u8]) {
    let Some(frame) = frame else { return };
    effort::copies();
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
