// SPDX-License-Identifier: MIT OR Apache-2.0
//! Acting on the core's events while the frame they speak of is still at hand.

use super::{Inner, PortUse};
use crate::buffer::Buffer;
use crate::error::Error;
use crate::ops::{OpKind, Received, Request};
use crate::port::{Context, Handler, Message};
use portolan_link::RxFrame;
use portolan_proto::{Data, Dest, Event, LaneId, LinkId, OpError, OpId, PeerId, PortId};
use std::ops::Range;

/// Longest message for which a handler's port gets a buffer of the library's own accord.
const BUFFER_LEN_MAX: u64 = 1 << 30;

/// A message to fetch from a peer's memory.
pub(crate) struct Pull {
    pub(super) transfer: u32,
    pub(super) peer: PeerId,
    pub(super) remote_addr: u64,
    pub(super) op: OpId,
    pub(super) len: u64,
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

type Handlers = Vec<Option<Handler>>;

impl Inner {
    /// A frame has arrived.
    #[inline]
    pub(super) fn on_frame(
        &mut self,
        handlers: &mut Handlers,
        link: LinkId,
        lossless: bool,
        frame: &RxFrame<'_>,
    ) {
        if lossless {
            let body_len = frame.body.map_or(0, |body| body.len());
            let total_len = frame.head.len() + body_len;
            let from = PeerId(frame.from.unwrap_or(u32::MAX));
            self.core
                .handle_lossless(self.now, link, from, frame.head, total_len);
        } else {
            self.core.handle_frame(self.now, link, frame.head);
        }
        self.drain(handlers, Some(frame));
    }

    /// Acts on all events.
    #[inline]
    pub(crate) fn drain(&mut self, handlers: &mut Handlers, frame: Option<&RxFrame<'_>>) {
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
                other => self.on_rare(handlers, other),
            }
        }
    }

    #[inline]
    fn deliver(&mut self, handlers: &mut Handlers, frame: Option<&RxFrame<'_>>, arrival: Arrival) {
        let Some(op) = arrival.op else {
            self.deliver_in_place(handlers, frame, arrival);
            return;
        };
        match arrival.data {
            Data::Frame(src) => {
                let dst = self.ops.bytes_mut(op);
                let len = src.len().min(dst.len());
                copy_part(frame, src.start..src.start + len, &mut dst[..len]);
            }
            Data::Held(id) => {
                let src = self.core.held(id);
                let dst = self.ops.bytes_mut(op);
                let len = src.len().min(dst.len());
                dst[..len].copy_from_slice(&src[..len]);
                self.core.release(id);
            }
            Data::Placed => {}
        }
        let len = usize::try_from(arrival.len).unwrap_or(usize::MAX);
        let result = match arrival.error {
            None => Ok(Received {
                len,
                source: arrival.peer.0,
            }),
            Some(error) => Err(self.op_error(op, error)),
        };
        let handled = self.ops.is_handled(op);
        if handled && matches!(arrival.error, None | Some(OpError::Truncated { .. })) {
            self.ops.complete(
                op,
                Ok(Received {
                    len,
                    source: arrival.peer.0,
                }),
            );
            let buffer = self
                .ops
                .finish(op)
                .and_then(Result::ok)
                .and_then(|done| done.buffer);
            self.handle(
                handlers,
                arrival.peer,
                arrival.port,
                arrival.len,
                &[],
                buffer,
            );
        } else {
            self.ops.complete(op, result);
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
        let place = handlers.get_mut(usize::from(port.number));
        if let Some(Some(handler)) = place {
            let message = Message {
                source: peer.0,
                port: port.number,
                bytes,
                buffer,
                message_len,
            };
            handler(&mut Context { inner: self }, message);
        }
    }

    #[cold]
    fn on_rare(&mut self, handlers: &mut Handlers, event: Event) {
        match event {
            Event::SendDone { op, result } => {
                if let Some(OpKind::Send(peer)) = self.ops.kind(op) {
                    self.complete_send(op, peer, result);
                }
            }
            Event::RecvFailed { op, error } => {
                let error = self.op_error(op, error);
                if self.ops.is_handled(op) {
                    log::warn!("posted buffer: {error}");
                    self.ops.forget(op);
                } else {
                    self.ops.complete(op, Err(error));
                }
            }
            Event::Pull {
                transfer,
                peer,
                remote_addr,
                op,
                len,
            } => {
                self.pulls.push(Pull {
                    transfer,
                    peer,
                    remote_addr,
                    op,
                    len,
                });
            }
            Event::BufferWanted {
                port,
                peer,
                lane,
                len,
            } => self.lend_buffer(handlers, port, (peer, lane), len),
            Event::PeerUp(peer) => self.peers[peer.0 as usize].connecting_since = None,
            Event::Suspect { peer, .. } => {
                let since = self.core.last_heard(peer).unwrap_or(self.now);
                let info = &mut self.peers[peer.0 as usize];
                info.watched_since.get_or_insert(since);
            }
            Event::PeerFailed { peer, .. } => self.note_gone(peer),
            _ => {}
        }
    }

    /// A port whose handler takes messages in place was sent one that does not travel in a frame.
    fn lend_buffer(
        &mut self,
        handlers: &Handlers,
        port: PortId,
        (peer, lane): (PeerId, LaneId),
        len: u64,
    ) {
        if handlers
            .get(usize::from(port.number))
            .is_none_or(Option::is_none)
        {
            return;
        }
        if len > BUFFER_LEN_MAX {
            log::warn!(
                "port {}: a message of {len} bytes waits for a buffer",
                port.number
            );
            return;
        }
        let kind = OpKind::Recv {
            port,
            source: Some(peer),
        };
        let buffer = vec![0; usize::try_from(len).unwrap_or(0)];
        let op = self.ops.owned(kind, Buffer::from(buffer), true);
        self.core.lend_buffer(port, op, len, peer, lane);
    }

    /// A peer was given up: what waits for it ends.
    pub(crate) fn note_gone(&mut self, peer: PeerId) {
        let portolan_proto::PeerStatus::Failed(cause) = self.core.peer_status(peer) else {
            return;
        };
        self.peers[peer.0 as usize].watched_since = None;
        for op in self.pending.take_peer(peer) {
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
        if buffer.as_mut_slice().is_none() {
            return Err(Error::BufferShared);
        }
        let use_ = self.port_use(port);
        if use_ == PortUse::Closed {
            return Err(Error::PortClosed { port: port.number });
        }
        let handled = use_ == PortUse::Handled;
        let len = buffer.len() as u64;
        let op = self
            .ops
            .owned(OpKind::Recv { port, source }, buffer, handled);
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
            _ => Error::Cancelled,
        }
    }
}

/// Copies a part of a frame, from its head or its shared body.
#[inline]
fn copy_part(frame: Option<&RxFrame<'_>>, src: Range<usize>, dst: &mut [u8]) {
    let Some(frame) = frame else { return };
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
