// SPDX-License-Identifier: MIT OR Apache-2.0
//! Unexpected messages: peeking at them, and claiming them, which removes them from matching.

use portolan::binding::{RawClaim, RawEnvelope, RawPiece, RawRecv};

use super::Ep;
use crate::errno::Errno;
use crate::state::op::Op;

/// A claimed message.
pub(super) struct Claimed {
    /// The application's context pointer, which names the message.
    context: usize,
    claim: RawClaim,
    envelope: RawEnvelope,
}

impl Ep {
    /// Searches for a message.
    pub(crate) fn peek(&mut self, spec: &RawRecv) -> Result<Option<RawEnvelope>, Errno> {
        Ok(self.engine.peek(spec)?)
    }

    /// Searches for a message and removes it from matching under the name `context`.
    pub(crate) fn claim(
        &mut self,
        spec: &RawRecv,
        context: usize,
    ) -> Result<Option<RawEnvelope>, Errno> {
        let Some((claim, envelope)) = self.engine.claim(spec)? else {
            return Ok(None);
        };
        self.claims.push(Claimed {
            context,
            claim,
            envelope,
        });
        Ok(Some(envelope))
    }

    /// Searches for a message and discards it.
    pub(crate) fn discard(&mut self, spec: &RawRecv) -> Result<Option<RawEnvelope>, Errno> {
        let found = self.engine.claim(spec)?;
        Ok(found.map(|(claim, envelope)| {
            self.engine.discard(claim);
            envelope
        }))
    }

    /// Discards a claimed message.
    pub(crate) fn discard_claimed(&mut self, context: usize) -> Result<RawEnvelope, Errno> {
        let Claimed {
            claim, envelope, ..
        } = self.take_claimed(context)?;
        self.engine.discard(claim);
        Ok(envelope)
    }

    /// Receives a claimed message.
    ///
    /// # Safety
    /// As for [`Ep::recv`].
    pub(crate) unsafe fn recv_claimed(
        &mut self,
        context: usize,
        pieces: &[RawPiece],
        op: Op,
    ) -> Result<(), Errno> {
        let Claimed { claim, .. } = self.take_claimed(context)?;
        // SAFETY: guaranteed by the caller.
        Ok(unsafe { self.engine.recv_claimed(claim, pieces, op.into()) }?)
    }

    fn take_claimed(&mut self, context: usize) -> Result<Claimed, Errno> {
        let same = |claimed: &Claimed| claimed.context == context;
        let place = self.claims.iter().position(same).ok_or(Errno::INVAL)?;
        Ok(self.claims.swap_remove(place))
    }
}
