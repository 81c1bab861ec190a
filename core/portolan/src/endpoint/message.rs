// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages of an endpoint: send, receive, cancel.

use super::Endpoint;
use crate::engine::Engine;
use crate::ops::{Memory, OpKind};
use crate::raw::{
    Cookie, EndpointLimits, Many, PeerIndex, RawClaim, RawCompletion, RawEnvelope, RawError,
    RawKind, RawPiece, RawRecv, RawSend, RawSpace, RawWhat, Sent, SubmitError,
};
use portolan_proto::{
    ATOMIC_LEN_MAX, Cause, LaneId, MatchBits, OpError, OpId, PeerId, PeerStatus, Selector,
    SendSpec, Space,
};
use portolan_sys::memory::copy_raw;
use portolan_sys::{memory, usage};

/// Longest message that is copied at once: four pages. It is better to wait for a longer one.
pub(super) const INJECT_LEN_MAX: usize = 16 * 1024;

/// Maximum number of pieces of an operation. MPI libraries need at most 4.
const PIECES_MAX: usize = 8;

/// Maximum length of a message. The protocol counts in 64 bits, programs in gigabytes.
const MESSAGE_LEN_MAX: u64 = 1 << 40;

impl Endpoint {
    /// Returns the limits of this endpoint.
    #[must_use]
    pub fn limits(&self) -> EndpointLimits {
        EndpointLimits {
            inject_len_max: INJECT_LEN_MAX,
            pieces_max: PIECES_MAX,
            message_len_max: MESSAGE_LEN_MAX,
            atomic_len_max: ATOMIC_LEN_MAX,
        }
    }

    /// Sends the pieces as one message. A message that fits a frame is complete when this returns;
    /// otherwise a completion follows.
    ///
    /// # Errors
    /// [`SubmitError`]; no completion follows.
    ///
    /// # Safety
    /// Each piece must be readable. If this returns [`Sent::Pending`], it must stay readable and
    /// unchanged until the completion was handed out.
    #[inline(always)]
    pub unsafe fn send(
        &mut self,
        to: PeerIndex,
        spec: &RawSend,
        pieces: &[RawPiece],
        cookie: Cookie,
    ) -> Result<Sent, SubmitError> {
        let engine = &mut *self.engine.enter();
        let peer = engine.check_index(to)?;
        check_pieces(pieces)?;
        let what = spec_of(spec);
        let memory = if let [piece] = pieces {
            // SAFETY: the caller guarantees that the piece is readable.
            let bytes = unsafe { slice_of(piece) };
            if !spec.delivered && engine.submit_now(peer, &what, [bytes, &[]]) {
                return Ok(Sent::Done);
            }
            // SAFETY: the caller guarantees that the piece stays readable and unchanged until the
            // completion.
            unsafe { Memory::borrowed(bytes) }
        } else {
            // SAFETY: the caller guarantees that the pieces are readable.
            let whole = unsafe { gathered(pieces) }?;
            if !spec.delivered && engine.submit_now(peer, &what, [&whole, &[]]) {
                return Ok(Sent::Done);
            }
            Memory::Owned(whole.into())
        };
        engine.inner.check_capacity()?;
        let raw = (RawKind::Send, RawWhat::Send(spec.delivered), cookie);
        let op = engine.enter_op(OpKind::Send(peer), memory, raw);
        engine.submit_later(peer, what, op);
        Ok(Sent::Pending)
    }

    /// Sends a copy of `bytes`; there is no completion.
    ///
    /// # Errors
    /// [`SubmitError`]; nothing was sent.
    #[inline]
    pub fn inject(
        &mut self,
        to: PeerIndex,
        spec: &RawSend,
        bytes: &[u8],
    ) -> Result<(), SubmitError> {
        let engine = &mut *self.engine.enter();
        let peer = engine.check_index(to)?;
        if bytes.len() > INJECT_LEN_MAX {
            return Err(SubmitError::TooLong);
        }
        let what = spec_of(spec);
        if engine.submit_now(peer, &what, [bytes, &[]]) {
            return Ok(());
        }
        if let PeerStatus::Failed(cause @ (Cause::ProcessExited | Cause::Violation(_))) =
            engine.inner.core.peer_status(peer)
        {
            return Err(SubmitError::PeerGone(cause));
        }
        engine.inner.check_capacity()?;
        let copy = memory::gathered(&[bytes]).map_err(SubmitError::NoMemory)?;
        let raw = (RawKind::Send, RawWhat::Silent, Cookie::default());
        let op = engine.enter_op(OpKind::Send(peer), Memory::Owned(copy.into()), raw);
        engine.submit_later(peer, what, op);
        Ok(())
    }

    /// Posts the pieces for the next message that matches `spec`. A completion follows.
    ///
    /// # Errors
    /// [`SubmitError`]; no completion follows.
    ///
    /// # Safety
    /// Each piece must be writable, and must not be used by other code until the completion was
    /// handed out.
    #[inline]
    pub unsafe fn recv(
        &mut self,
        spec: &RawRecv,
        pieces: &[RawPiece],
        cookie: Cookie,
    ) -> Result<(), SubmitError> {
        let engine = &mut *self.engine.enter();
        let selector = engine.selector(spec)?;
        if let [piece] = pieces
            // SAFETY: the caller guarantees that the piece is writable.
            && unsafe { engine.recv_held(&selector, piece, (kind_of(spec), cookie)) }
        {
            return Ok(());
        }
        // SAFETY: the caller guarantees that the pieces are writable until the completion.
        let (op, len) = unsafe { engine.post(pieces, selector.source, kind_of(spec), cookie) }?;
        engine.inner.core.post_tagged(&selector, op, len);
        engine.settle();
        Ok(())
    }

    /// Posts `buffer` for many messages that match `spec`, stored one after another. Each has a
    /// completion with `cookie`. The buffer stays posted until less than `min_free` bytes of it are
    /// left. The completion with `released` set is the last.
    ///
    /// # Errors
    /// [`SubmitError`]; no completion follows.
    ///
    /// # Safety
    /// The buffer must be writable until the last completion was handed out. The bytes named by a
    /// completion belong to the caller from then on.
    pub unsafe fn recv_multi(
        &mut self,
        spec: &RawRecv,
        buffer: RawPiece,
        min_free: usize,
        cookie: Cookie,
    ) -> Result<(), SubmitError> {
        let engine = &mut *self.engine.enter();
        let selector = engine.selector(spec)?;
        // SAFETY: the caller guarantees that the buffer is writable until the last completion.
        let memory = unsafe { Memory::of_piece(buffer) };
        let many = RawWhat::Many(Box::new(Many::new(buffer)));
        let raw = (kind_of(spec), many, cookie);
        let op = engine.enter_op(recv_kind(selector.source), memory, raw);
        let (len, free_min) = (buffer.len as u64, min_free as u64);
        let core = &mut engine.inner.core;
        core.post_many(&selector, op, len, free_min);
        engine.settle();
        Ok(())
    }

    /// Returns the reason why a message for which [`Endpoint::peek`] and [`Endpoint::claim`] find
    /// nothing cannot arrive. Unexpected messages before it fill the memory, and none of them is
    /// being received. `None` while it can arrive.
    #[must_use]
    pub fn shortage(&self) -> Option<RawError> {
        self.engine.read().inner.core.shortage().map(RawError::from)
    }

    /// Returns the first unexpected message that matches `spec`, which stays queued. Considers only
    /// messages that earlier polls have received.
    ///
    /// # Errors
    /// [`SubmitError::NoSuchPeer`].
    pub fn peek(&mut self, spec: &RawRecv) -> Result<Option<RawEnvelope>, SubmitError> {
        let engine = &mut *self.engine.enter();
        let selector = engine.selector(spec)?;
        let found = engine.inner.core.peek_tagged(&selector);
        Ok(found.map(RawEnvelope::from))
    }

    /// Finds a message as [`Endpoint::peek`] does, and reserves it for [`Endpoint::recv_claimed`].
    /// Also returns `None` when 65,536 messages are claimed.
    ///
    /// # Errors
    /// Same as [`Endpoint::peek`].
    pub fn claim(
        &mut self,
        spec: &RawRecv,
    ) -> Result<Option<(RawClaim, RawEnvelope)>, SubmitError> {
        let engine = &mut *self.engine.enter();
        let selector = engine.selector(spec)?;
        let found = engine.inner.core.claim_tagged(&selector);
        Ok(found.map(|(id, envelope)| {
            let claim = RawClaim {
                id,
                source: envelope.peer,
                is_tagged: selector.space == Space::Tagged,
            };
            (claim, envelope.into())
        }))
    }

    /// Posts the pieces for a claimed message. A completion follows.
    ///
    /// # Errors
    /// [`SubmitError`]; no completion follows.
    ///
    /// # Safety
    /// Same as [`Endpoint::recv`].
    pub unsafe fn recv_claimed(
        &mut self,
        claim: RawClaim,
        pieces: &[RawPiece],
        cookie: Cookie,
    ) -> Result<(), SubmitError> {
        let kind = match claim.is_tagged {
            true => RawKind::RecvTagged,
            false => RawKind::Recv,
        };
        let engine = &mut *self.engine.enter();
        // SAFETY: the caller guarantees that the pieces are writable until the completion.
        let (op, len) = unsafe { engine.post(pieces, Some(claim.source), kind, cookie) }?;
        if !engine.inner.core.recv_claimed(claim.id, op, len) {
            engine.inner.forget_raw(op);
            return Err(SubmitError::StaleClaim);
        }
        engine.settle();
        Ok(())
    }

    /// Discards a claimed message.
    pub fn discard(&mut self, claim: RawClaim) {
        let source = Some(claim.source);
        let engine = &mut *self.engine.enter();
        let raw = (RawKind::Recv, RawWhat::Silent, Cookie::default());
        let memory = Memory::Owned(Vec::new().into());
        let op = engine.enter_op(recv_kind(source), memory, raw);
        if !engine.inner.core.recv_claimed(claim.id, op, 0) {
            engine.inner.forget_raw(op);
        }
        engine.settle();
    }

    /// Cancels the oldest posted receive with this context. Returns `true` if it was cancelled; its
    /// completion reports this. Returns `false` if it has a message already, or does not exist.
    pub fn cancel(&mut self, context: u64) -> bool {
        let inner = &mut self.engine.enter().inner;
        let mut posted = inner
            .posted_where(|cookie| cookie.context == context)
            .into_iter();
        let withdrawn = posted.find(|&op| inner.core.cancel_tagged(op));
        if let Some(op) = withdrawn {
            inner.end_raw_recv_failed(op, OpError::Cancelled);
        }
        withdrawn.is_some()
    }

    /// Cancels all posted receives that have no message. Their completions report this.
    pub fn cancel_all(&mut self) {
        let inner = &mut self.engine.enter().inner;
        for op in inner.posted_where(|_| true) {
            if inner.core.cancel_tagged(op) {
                inner.end_raw_recv_failed(op, OpError::Cancelled);
            }
        }
    }
}

impl Engine {
    /// Enters an operation that receives into `pieces`. Returns it with the length of the pieces.
    ///
    /// # Safety
    /// Same as [`Endpoint::recv`].
    #[inline(always)]
    unsafe fn post(
        &mut self,
        pieces: &[RawPiece],
        source: Option<PeerId>,
        kind: RawKind,
        cookie: Cookie,
    ) -> Result<(OpId, u64), SubmitError> {
        // SAFETY: the caller guarantees that the pieces are writable until the completion.
        let (memory, what, len) = unsafe { place(pieces) }?;
        let op = self.enter_op(recv_kind(source), memory, (kind, what, cookie));
        Ok((op, len))
    }

    /// Completes a receive into `piece` with a held message that fits. Returns `false` if there is
    /// none.
    ///
    /// # Safety
    /// Same as [`Endpoint::recv`].
    #[inline]
    unsafe fn recv_held(
        &mut self,
        selector: &Selector,
        piece: &RawPiece,
        (kind, cookie): (RawKind, Cookie),
    ) -> bool {
        let core = &mut self.inner.core;
        let Some((envelope, held)) = core.take_held_tagged(selector, piece.len) else {
            return false;
        };
        usage::count_copy();
        let bytes = core.held(held);
        // SAFETY: the caller guarantees that the piece is writable, `take_held_tagged` that the
        // message fits. The piece does not overlap the core's memory, which is never handed out.
        unsafe { copy_raw(bytes.as_ptr(), piece.ptr, bytes.len()) };
        core.release(held);
        self.inner.complete_raw(RawCompletion {
            cookie,
            kind,
            peer: Some(PeerIndex(envelope.peer.0)),
            len: envelope.len,
            tag: envelope.match_bits.tag,
            imm: envelope.match_bits.imm,
            buf: piece.ptr,
            released: false,
            error: None,
        });
        self.settle();
        true
    }

    #[inline]
    fn selector(&self, spec: &RawRecv) -> Result<Selector, SubmitError> {
        self.check_forked()?;
        let source = spec.source.map(|peer| self.check_index(peer)).transpose()?;
        Ok(match spec.space {
            RawSpace::Plain => Selector {
                space: Space::Plain,
                tag: 0,
                ignore: 0,
                source,
            },
            RawSpace::Tagged(tag) => Selector {
                space: Space::Tagged,
                tag,
                ignore: spec.ignore,
                source,
            },
        })
    }
}

/// Returns memory with bytes that are finally copied to `pieces`, the kind of operation, and the
/// length.
///
/// # Safety
/// Same as [`Endpoint::recv`].
#[inline]
pub(super) unsafe fn place(pieces: &[RawPiece]) -> Result<(Memory, RawWhat, u64), SubmitError> {
    check_pieces(pieces)?;
    if let [piece] = pieces {
        // SAFETY: the caller guarantees that the piece is writable until the completion.
        let memory = unsafe { Memory::of_piece(*piece) };
        return Ok((memory, RawWhat::Recv, piece.len as u64));
    }
    let len = pieces.iter().map(|piece| piece.len).sum();
    let bytes = memory::zeroed(len).map_err(SubmitError::NoMemory)?;
    let what = RawWhat::Scatter(pieces.into());
    Ok((Memory::Owned(bytes.into()), what, len as u64))
}

fn recv_kind(source: Option<PeerId>) -> OpKind {
    OpKind::RecvTagged { source }
}

fn kind_of(spec: &RawRecv) -> RawKind {
    match spec.space {
        RawSpace::Plain => RawKind::Recv,
        RawSpace::Tagged(_) => RawKind::RecvTagged,
    }
}

#[inline]
fn spec_of(spec: &RawSend) -> SendSpec {
    let (space, tag) = match spec.space {
        RawSpace::Plain => (Space::Plain, 0),
        RawSpace::Tagged(tag) => (Space::Tagged, tag),
    };
    let imm = spec.imm;
    SendSpec {
        to: MatchBits { space, tag, imm }.into(),
        lane: LaneId::Low,
        best_effort: false,
    }
}

impl From<portolan_proto::Envelope> for RawEnvelope {
    fn from(envelope: portolan_proto::Envelope) -> RawEnvelope {
        RawEnvelope {
            source: PeerIndex(envelope.peer.0),
            tag: envelope.match_bits.tag,
            len: envelope.len,
            imm: envelope.match_bits.imm,
        }
    }
}

pub(super) fn check_pieces(pieces: &[RawPiece]) -> Result<(), SubmitError> {
    if pieces.len() > PIECES_MAX {
        return Err(SubmitError::TooManyPieces);
    }
    let len = pieces.iter().map(|piece| piece.len as u64).sum::<u64>();
    if len > MESSAGE_LEN_MAX {
        return Err(SubmitError::TooLong);
    }
    Ok(())
}

/// Copies the pieces into one vector.
///
/// # Errors
/// [`SubmitError::NoMemory`].
///
/// # Safety
/// The pieces must be readable.
pub(super) unsafe fn gathered(pieces: &[RawPiece]) -> Result<Vec<u8>, SubmitError> {
    // SAFETY: the caller guarantees that the pieces are readable.
    let slices: Vec<_> = pieces
        .iter()
        .map(|piece| unsafe { slice_of(piece) })
        .collect();
    memory::gathered(&slices).map_err(SubmitError::NoMemory)
}

/// # Safety
/// The piece must be readable for as long as the slice is used.
pub(super) unsafe fn slice_of<'a>(piece: &RawPiece) -> &'a [u8] {
    match piece.len {
        0 => &[],
        // SAFETY: the caller guarantees that the piece is readable while the slice is used.
        len => unsafe { std::slice::from_raw_parts(piece.ptr, len) },
    }
}
