// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages of an endpoint: sending, receiving, withdrawing.

use super::Endpoint;
use super::open::PLAIN_PORT;
use super::raw::{Multi, RawOp, RawWhat};
use super::types::{
    EndpointLimits, PeerIndex, RawCompletion, RawKind, RawPiece, RawRecv, RawSend, SubmitError,
};
use crate::engine::{Inner, Submitted};
use crate::error::Error;
use crate::ops::OpKind;
use portolan_proto::{Cause, LaneId, OpError, OpId, PeerId, PeerStatus, SendSpec};

/// Longest message that is copied at once: four pages; a longer one is better waited for.
const INJECT_LEN_MAX: usize = 16 * 1024;

/// Pieces of an operation; what MPI libraries ask for is at most 4.
const PIECES_MAX: usize = 8;

/// What a message may be long: the protocol counts in 64 bits, programs in gigabytes.
const MESSAGE_LEN_MAX: u64 = 1 << 40;

impl Endpoint {
    /// What this endpoint takes.
    #[must_use]
    pub fn limits(&self) -> EndpointLimits {
        EndpointLimits {
            inject_len_max: INJECT_LEN_MAX,
            pieces_max: PIECES_MAX,
            message_len_max: MESSAGE_LEN_MAX,
        }
    }

    /// Sends the pieces as one message; ends with a completion.
    ///
    /// # Errors
    /// [`SubmitError`]; there is no completion then.
    ///
    /// # Safety
    /// Each piece must be readable, and stay so and as it is until the completion was handed out.
    #[inline]
    pub unsafe fn send(
        &mut self,
        to: PeerIndex,
        spec: &RawSend,
        pieces: &[RawPiece],
        context: u64,
    ) -> Result<(), SubmitError> {
        let peer = self.check_peer(to)?;
        check_pieces(pieces)?;
        let what = spec_of(spec);
        if let [piece] = pieces {
            // SAFETY: the caller's promise.
            let bytes = unsafe { slice_of(piece) };
            if !spec.delivered && self.submit_now(peer, &what, bytes) {
                self.complete_send(to, context, bytes.len());
                return Ok(());
            }
            // SAFETY: the caller's promise: the memory outlives the operation.
            let op = unsafe { self.engine.inner.ops.lent_raw(OpKind::Send(peer), bytes) };
            self.submit_later(peer, what, op, RawWhat::Send, context);
            return Ok(());
        }
        let mut whole = Vec::with_capacity(pieces.iter().map(|piece| piece.len).sum());
        for piece in pieces {
            // SAFETY: the caller's promise.
            whole.extend_from_slice(unsafe { slice_of(piece) });
        }
        if !spec.delivered && self.submit_now(peer, &what, &whole) {
            self.complete_send(to, context, whole.len());
            return Ok(());
        }
        let kind = OpKind::Send(peer);
        let op = self.engine.inner.ops.owned(kind, whole.into(), true);
        self.submit_later(peer, what, op, RawWhat::Send, context);
        Ok(())
    }

    /// Sends a copy of `bytes`; there is no completion.
    ///
    /// # Errors
    /// [`SubmitError`]; nothing was sent then.
    #[inline]
    pub fn inject(
        &mut self,
        to: PeerIndex,
        spec: &RawSend,
        bytes: &[u8],
    ) -> Result<(), SubmitError> {
        let peer = self.check_peer(to)?;
        if bytes.len() > INJECT_LEN_MAX {
            return Err(SubmitError::TooLong);
        }
        let what = spec_of(spec);
        if self.submit_now(peer, &what, bytes) {
            return Ok(());
        }
        if let PeerStatus::Failed(cause @ (Cause::ProcessGone | Cause::Violation(_))) =
            self.engine.inner.core.peer_status(peer)
        {
            return Err(SubmitError::PeerGone(cause));
        }
        let (kind, copy) = (OpKind::Send(peer), bytes.to_vec());
        let op = self.engine.inner.ops.owned(kind, copy.into(), true);
        self.submit_later(peer, what, op, RawWhat::Inject, 0);
        Ok(())
    }

    /// Sends what goes into a frame at once; `false` if it must wait, or ask.
    #[inline]
    fn submit_now(&mut self, peer: PeerId, spec: &SendSpec, bytes: &[u8]) -> bool {
        let engine = &mut self.engine;
        let turn = engine.inner.turn;
        let is_first = engine.inner.peers[peer.0 as usize].sent_turn != turn;
        if is_first && engine.send_direct(peer, spec, bytes) {
            engine.inner.peers[peer.0 as usize].sent_turn = turn;
            return true;
        }
        let inner = &mut engine.inner;
        if inner.pending.is_empty() && inner.core.append(peer, spec, bytes).is_some() {
            return true;
        }
        let accepted = matches!(
            inner.try_eager(peer, spec, &[bytes]),
            Ok(Submitted::Accepted)
        );
        if engine.inner.flush_wanted {
            engine.flush();
        }
        accepted
    }

    /// Queues or announces a message; its operation ends later.
    fn submit_later(
        &mut self,
        peer: PeerId,
        spec: SendSpec,
        op: OpId,
        what: RawWhat,
        context: u64,
    ) {
        let waits_for = Some(peer);
        self.note_op(op, what, context, waits_for);
        self.wait_for(peer);
        self.engine.inner.submit_raw(peer, spec, op);
        self.engine.drain();
        self.engine.flush();
    }

    #[inline]
    fn complete_send(&mut self, to: PeerIndex, context: u64, len: usize) {
        if let Some(raw) = &mut self.engine.inner.raw {
            raw.done.push_back(RawCompletion {
                context,
                kind: RawKind::Send,
                peer: Some(to),
                len: len as u64,
                tag: 0,
                imm: None,
                buf: std::ptr::null_mut(),
                released: true,
                error: None,
            });
        }
    }

    /// Posts the pieces for the next message that `spec` takes; ends with a completion.
    ///
    /// # Errors
    /// [`SubmitError`]; there is no completion then.
    ///
    /// # Safety
    /// Each piece must be writable, and not be used by others until the completion was handed out.
    #[inline]
    pub unsafe fn recv(
        &mut self,
        spec: &RawRecv,
        pieces: &[RawPiece],
        context: u64,
    ) -> Result<(), SubmitError> {
        let source = spec.source.map(|peer| self.check_peer(peer)).transpose()?;
        check_pieces(pieces)?;
        let (op, what, len) = match pieces {
            [piece] => {
                // SAFETY: the caller's promise.
                let op = unsafe { self.engine.inner.lend(*piece) };
                (op, RawWhat::Recv(*spec), piece.len)
            }
            _ => {
                let len = pieces.iter().map(|piece| piece.len).sum();
                let kind = recv_kind(source);
                let op = self.engine.inner.ops.owned(kind, vec![0; len].into(), true);
                (op, RawWhat::Scatter(*spec, pieces.into()), len)
            }
        };
        self.post(op, what, spec, len, context)
    }

    /// Posts `buffer` for many messages that `spec` takes, one behind another. Each has a
    /// completion with `context`. The buffer stays posted until less than `min_free` bytes of it
    /// are left; the completion that is `released` is the last.
    ///
    /// # Errors
    /// [`SubmitError`]; there is no completion then.
    ///
    /// # Safety
    /// The buffer must be writable until the last completion was handed out; what a completion
    /// names is the caller's from then on.
    pub unsafe fn recv_multi(
        &mut self,
        spec: &RawRecv,
        buffer: RawPiece,
        min_free: usize,
        context: u64,
    ) -> Result<(), SubmitError> {
        spec.source.map(|peer| self.check_peer(peer)).transpose()?;
        // SAFETY: the caller's promise.
        let op = unsafe { self.engine.inner.lend(buffer) };
        let multi = Multi {
            buffer,
            off: 0,
            min_free,
        };
        let what = RawWhat::Multi(*spec, multi);
        self.post(op, what, spec, buffer.len, context)
    }

    fn post(
        &mut self,
        op: OpId,
        what: RawWhat,
        spec: &RawRecv,
        len: usize,
        context: u64,
    ) -> Result<(), SubmitError> {
        let source = spec.source.map(|peer| PeerId(peer.0));
        self.note_op(op, what, context, source);
        if let Some(peer) = source {
            self.wait_for(peer);
        }
        let core = &mut self.engine.inner.core;
        core.post_recv(PLAIN_PORT, op, len as u64, source);
        self.engine.drain();
        if self.engine.inner.flush_wanted {
            self.engine.flush();
        }
        Ok(())
    }

    /// Withdraws the oldest posted receive with this context. `true`: it ends with a completion
    /// that says so; `false`: it has a message already, or does not exist.
    pub fn cancel(&mut self, context: u64) -> bool {
        let inner = &mut self.engine.inner;
        let Some(op) = inner.raw.as_ref().and_then(|raw| raw.find_recv(context)) else {
            return false;
        };
        if !inner.core.cancel_recv(PLAIN_PORT, op) {
            return false;
        }
        inner.end_raw_recv_failed(op, OpError::Cancelled);
        true
    }

    fn note_op(&mut self, op: OpId, what: RawWhat, context: u64, waits_for: Option<PeerId>) {
        if let Some(raw) = &mut self.engine.inner.raw {
            raw.insert(RawOp {
                op,
                context,
                what,
                waits_for,
            });
        }
    }
}

impl Inner {
    /// Makes an operation that receives into `piece`.
    ///
    /// # Safety
    /// The piece must be writable, and nobody else use it, until the operation has ended.
    unsafe fn lend(&mut self, piece: RawPiece) -> OpId {
        // SAFETY: the caller's promise; an empty piece may be null, and a dangling pointer is as
        // good.
        let bytes = unsafe {
            match piece.len {
                0 => &mut [],
                len => std::slice::from_raw_parts_mut(piece.ptr, len),
            }
        };
        // SAFETY: the caller's promise.
        unsafe { self.ops.lent_mut_raw(recv_kind(None), bytes) }
    }

    /// Posts what is left of a buffer for many messages again.
    pub(super) fn post_multi(&mut self, spec: RawRecv, multi: Multi, context: u64) {
        let len = multi.buffer.len - multi.off;
        let rest = RawPiece {
            ptr: multi.buffer.ptr.wrapping_add(multi.off),
            len,
        };
        // SAFETY: `recv_multi`'s caller lends the buffer until its last completion, and this part
        // was not named by one.
        let op = unsafe { self.lend(rest) };
        let source = spec.source.map(|peer| PeerId(peer.0));
        if let Some(raw) = &mut self.raw {
            raw.insert(RawOp {
                op,
                context,
                what: RawWhat::Multi(spec, multi),
                waits_for: source,
            });
            source.map(|peer| raw.wait(peer));
        }
        self.core.post_recv(PLAIN_PORT, op, len as u64, source);
    }

    /// As [`Inner::submit_op`], and opens a session where there is none.
    fn submit_raw(&mut self, peer: PeerId, spec: SendSpec, op: OpId) {
        let has_session = matches!(
            self.core.peer_status(peer),
            PeerStatus::Up | PeerStatus::Connecting
        );
        if !has_session {
            let connected = match self.core.peer_status(peer) {
                PeerStatus::Failed(cause @ (Cause::ProcessGone | Cause::Violation(_))) => {
                    Err(cause)
                }
                _ => self.connect(peer).map_err(|_: Error| Cause::NoPath),
            };
            if let Err(cause) = connected {
                self.complete_send(op, peer, Err(OpError::PeerGone(peer, cause)));
                return;
            }
        }
        self.submit_op(peer, spec, op);
    }
}

fn recv_kind(source: Option<PeerId>) -> OpKind {
    OpKind::Recv {
        port: PLAIN_PORT,
        source,
    }
}

fn spec_of(_spec: &RawSend) -> SendSpec {
    SendSpec {
        to: PLAIN_PORT.into(),
        lane: LaneId::Low,
        best_effort: false,
    }
}

fn check_pieces(pieces: &[RawPiece]) -> Result<(), SubmitError> {
    if pieces.len() > PIECES_MAX {
        return Err(SubmitError::TooManyPieces);
    }
    let len = pieces.iter().map(|piece| piece.len as u64).sum::<u64>();
    if len > MESSAGE_LEN_MAX {
        return Err(SubmitError::TooLong);
    }
    Ok(())
}

/// # Safety
/// The piece must be readable for as long as the slice is used.
unsafe fn slice_of<'a>(piece: &RawPiece) -> &'a [u8] {
    match piece.len {
        0 => &[],
        // SAFETY: the caller's promise.
        len => unsafe { std::slice::from_raw_parts(piece.ptr, len) },
    }
}
