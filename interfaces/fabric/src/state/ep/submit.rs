// SPDX-License-Identifier: MIT OR Apache-2.0
//! Operations of an endpoint. Peers are given by address, and a cookie carries the [`Op`].

use portolan::binding::{RawAtomic, RawPiece, RawRecv, RawRemote, RawSend, Sent};

use super::Ep;
use crate::errno::Errno;
use crate::state::op::Op;

impl Ep {
    /// Sends a message.
    ///
    /// # Safety
    /// The pieces stay valid until the completion.
    #[inline(always)]
    pub(in crate::state) unsafe fn send(
        &mut self,
        to: u64,
        what: &RawSend,
        pieces: &[RawPiece],
        op: &Op,
    ) -> Result<Sent, Errno> {
        let peer = self.peer(to)?;
        // SAFETY: guaranteed by the caller.
        Ok(unsafe { self.engine.send(peer, what, pieces, (*op).into()) }?)
    }

    /// Sends a copy.
    #[inline(always)]
    pub(in crate::state) fn inject(
        &mut self,
        to: u64,
        what: &RawSend,
        bytes: &[u8],
    ) -> Result<(), Errno> {
        let peer = self.peer(to)?;
        Ok(self.engine.inject(peer, what, bytes)?)
    }

    /// Posts a receive.
    ///
    /// # Safety
    /// The pieces stay valid, and are not accessed, until the completion.
    #[inline(always)]
    pub(crate) unsafe fn recv(
        &mut self,
        what: &RawRecv,
        pieces: &[RawPiece],
        op: Op,
    ) -> Result<(), Errno> {
        // SAFETY: guaranteed by the caller.
        Ok(unsafe { self.engine.recv(what, pieces, op.into()) }?)
    }

    /// Posts a multi-receive buffer.
    ///
    /// # Safety
    /// As for [`Ep::recv`].
    pub(crate) unsafe fn recv_multi(
        &mut self,
        what: &RawRecv,
        buffer: RawPiece,
        op: Op,
    ) -> Result<(), Errno> {
        let min_free = self.min_free;
        // SAFETY: guaranteed by the caller.
        Ok(unsafe { self.engine.recv_multi(what, buffer, min_free, op.into()) }?)
    }

    /// Cancels a posted receive. If several have this context, the oldest is cancelled, because
    /// nothing distinguishes them.
    pub(crate) fn cancel(&mut self, context: u64) {
        self.engine.cancel(context);
    }

    /// Writes to a peer's memory.
    ///
    /// # Safety
    /// The pieces stay valid until the completion.
    pub(crate) unsafe fn put(
        &mut self,
        (peer, remote): (u64, RawRemote),
        pieces: &[RawPiece],
        imm: Option<u64>,
        op: Op,
    ) -> Result<(), Errno> {
        let peer = self.peer(peer)?;
        // SAFETY: guaranteed by the caller.
        Ok(unsafe { self.engine.put(peer, remote, pieces, imm, op.into()) }?)
    }

    /// Writes a copy to a peer's memory.
    pub(crate) fn put_owned(
        &mut self,
        (peer, remote): (u64, RawRemote),
        bytes: Vec<u8>,
        imm: Option<u64>,
        op: Op,
    ) -> Result<(), Errno> {
        let peer = self.peer(peer)?;
        Ok(self.engine.put_owned(peer, remote, bytes, imm, op.into())?)
    }

    /// Reads a peer's memory.
    ///
    /// # Safety
    /// The pieces stay valid, and are not accessed, until the completion.
    pub(crate) unsafe fn get(
        &mut self,
        (peer, remote): (u64, RawRemote),
        pieces: &[RawPiece],
        op: Op,
    ) -> Result<(), Errno> {
        let peer = self.peer(peer)?;
        // SAFETY: guaranteed by the caller.
        Ok(unsafe { self.engine.get(peer, remote, pieces, op.into()) }?)
    }

    /// Runs an atomic operation on a peer's memory.
    ///
    /// # Safety
    /// The pieces for results stay valid, and are not accessed, until the completion.
    pub(crate) unsafe fn atomic(
        &mut self,
        (peer, remote): (u64, RawRemote),
        what: &RawAtomic<'_>,
        results: &[RawPiece],
        op: Op,
    ) -> Result<(), Errno> {
        let peer = self.peer(peer)?;
        // SAFETY: guaranteed by the caller.
        Ok(unsafe { self.engine.atomic(peer, remote, what, results, op.into()) }?)
    }
}
