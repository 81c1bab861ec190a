// SPDX-License-Identifier: MIT OR Apache-2.0
//! Atomic operations on the memory of an endpoint's peers.

use super::Endpoint;
use super::message::place;
use super::remote::spec_of;
use crate::atomic::{AtomicOp, Datatype};
use crate::engine::{Call, atomic_spec};
use crate::ops::{Memory, OpKind};
use crate::raw::{Cookie, PeerIndex, RawKind, RawPiece, RawRemote, RawWhat, SubmitError};
use portolan_proto::AtomicSpec;

/// Atomic operation on numbers of a peer. The numbers are little-endian, and are copied at once.
#[derive(Clone, Copy, Debug)]
pub struct RawAtomic<'a> {
    /// Operation.
    pub op: AtomicOp,
    /// Kind of number.
    pub datatype: Datatype,
    /// Operands, followed by as many numbers to compare with if the operation compares.
    pub operands: &'a [u8],
}

impl RawAtomic<'_> {
    /// Returns the request, with `back_len` bytes for the previous numbers; 0 to discard them.
    fn spec(&self, back_len: usize) -> Result<AtomicSpec, SubmitError> {
        let span = match self.op {
            AtomicOp::Read => back_len,
            op if op.compares() => self.operands.len() / 2,
            _ => self.operands.len(),
        };
        let count = span / self.datatype.len();
        atomic_spec(self.op, self.datatype, count, self.operands.len(), back_len)
            .map_err(|_| SubmitError::Unsupported)
    }
}

impl Endpoint {
    /// Changes numbers in the memory of `to`. A completion follows when it is done. The pieces of
    /// `before` receive the previous numbers. Their length must match the changed numbers; without
    /// pieces the previous numbers are discarded.
    ///
    /// # Errors
    /// [`SubmitError`]; no completion follows. [`SubmitError::Unsupported`] if the operation
    /// does not exist for the kind of number, or if lengths do not match or exceed
    /// [`crate::binding::EndpointLimits::atomic_len_max`].
    ///
    /// # Safety
    /// Same as [`Endpoint::recv`], for the pieces.
    pub unsafe fn atomic(
        &mut self,
        to: PeerIndex,
        at: RawRemote,
        atomic: &RawAtomic<'_>,
        before: &[RawPiece],
        cookie: Cookie,
    ) -> Result<(), SubmitError> {
        let engine = &mut *self.engine.enter();
        let peer = engine.check_ask(to)?;
        let spec = atomic.spec(before.iter().map(|piece| piece.len).sum())?;
        // SAFETY: the caller guarantees that the pieces are writable until the completion.
        let (memory, what, _) = unsafe { place(before) }?;
        let op = engine.enter_op(
            OpKind::Remote(peer),
            memory,
            (RawKind::Atomic, what, cookie),
        );
        let call = Call::Atomic(spec, atomic.operands.into());
        engine.submit_request(peer, op, spec_of(at, None), call);
        Ok(())
    }

    /// Changes numbers like [`Endpoint::atomic`], without a completion and without the previous
    /// numbers.
    ///
    /// # Errors
    /// Same as [`Endpoint::atomic`]; nothing was sent.
    pub fn inject_atomic(
        &mut self,
        to: PeerIndex,
        at: RawRemote,
        atomic: &RawAtomic<'_>,
    ) -> Result<(), SubmitError> {
        let engine = &mut *self.engine.enter();
        let peer = engine.check_ask(to)?;
        let spec = atomic.spec(0)?;
        let memory = Memory::Owned(Vec::new().into());
        let raw = (RawKind::Atomic, RawWhat::Silent, Cookie::default());
        let op = engine.enter_op(OpKind::Remote(peer), memory, raw);
        let call = Call::Atomic(spec, atomic.operands.into());
        engine.submit_request(peer, op, spec_of(at, None), call);
        Ok(())
    }
}
