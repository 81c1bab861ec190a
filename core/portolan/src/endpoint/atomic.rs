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

/// What is done to the numbers of a peer. The numbers are little-endian, and are copied at once.
#[derive(Clone, Copy, Debug)]
pub struct RawAtomic<'a> {
    /// What.
    pub op: AtomicOp,
    /// The kind of number.
    pub datatype: Datatype,
    /// The operands, and behind them as many numbers to compare, if the operation compares.
    pub operands: &'a [u8],
}

impl RawAtomic<'_> {
    /// What to ask for, with a place of `back_len` bytes for the numbers before; 0 for none.
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
    /// Changes numbers in the memory of `to`; ends with a completion when it is done. The pieces
    /// of `before` get the numbers as they were, as many as are changed; none for not at all.
    ///
    /// # Errors
    /// [`SubmitError`]; there is no completion then. [`SubmitError::Unsupported`] where the
    /// operation does not exist for the kind of number, or lengths do not fit one another or
    /// exceed [`crate::EndpointLimits::atomic_len_max`].
    ///
    /// # Safety
    /// As of [`Endpoint::recv`], for the pieces.
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
        // SAFETY: the caller's promise.
        let (memory, what, _) = unsafe { place(before) }?;
        let op = engine.enter_op(
            OpKind::Remote(peer),
            memory,
            (RawKind::Atomic, what, cookie),
        );
        let call = Call::Atomic(spec, atomic.operands.into());
        engine.ask(peer, op, spec_of(at, None), call);
        Ok(())
    }

    /// The same without a completion, and without the numbers before.
    ///
    /// # Errors
    /// As [`Endpoint::atomic`]; nothing was sent then.
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
        let asked = (RawKind::Atomic, RawWhat::Silent, Cookie::default());
        let op = engine.enter_op(OpKind::Remote(peer), memory, asked);
        let call = Call::Atomic(spec, atomic.operands.into());
        engine.ask(peer, op, spec_of(at, None), call);
        Ok(())
    }
}
