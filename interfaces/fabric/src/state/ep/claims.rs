// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages that nobody has received yet: looking at them, and taking them out of matching.

use portolan::{RawClaim, RawEnvelope, RawPiece, RawRecv};

use super::Ep;
use crate::errno::Errno;
use crate::state::op::Op;

/// A message that was taken out of matching.
pub(super) struct Claimed {
    /// The pointer that the application took it with, and names it by.
    context: usize,
    claim: RawClaim,
    envelope: RawEnvelope,
}

impl Ep {
    /// Look for a message.
    pub(crate) fn peek(&mut self, spec: &RawRecv) -> Result<Option<RawEnvelope>, Errno> {
        Ok(self.engine.peek(spec)?)
    }

    /// Look for a message, and take it out of matching under this name.
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

    /// Look for a message, and drop it.
    pub(crate) fn discard(&mut self, spec: &RawRecv) -> Result<Option<RawEnvelope>, Errno> {
        let found = self.engine.claim(spec)?;
        Ok(found.map(|(claim, envelope)| {
            self.engine.discard(claim);
            envelope
        }))
    }

    /// Drop a message that was taken out of matching.
    pub(crate) fn discard_claimed(&mut self, context: usize) -> Result<RawEnvelope, Errno> {
        let Claimed {
            claim, envelope, ..
        } = self.take_claimed(context)?;
        self.engine.discard(claim);
        Ok(envelope)
    }

    /// Receive a message that was taken out of matching.
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
        // SAFETY: the caller's promise.
        Ok(unsafe { self.engine.recv_claimed(claim, pieces, op.into()) }?)
    }

    fn take_claimed(&mut self, context: usize) -> Result<Claimed, Errno> {
        let same = |claimed: &Claimed| claimed.context == context;
        let place = self.claims.iter().position(same).ok_or(Errno::INVAL)?;
        Ok(self.claims.swap_remove(place))
    }
}
