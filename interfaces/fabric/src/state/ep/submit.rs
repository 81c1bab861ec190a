// SPDX-License-Identifier: MIT OR Apache-2.0
//! Operations of an endpoint, with peers by their address and what is told of them as a cookie.

use portolan::{RawAtomic, RawPiece, RawRecv, RawRemote, RawSend, Sent};

use super::Ep;
use crate::errno::Errno;
use crate::state::op::Op;

impl Ep {
    /// Send.
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
        // SAFETY: the caller's promise.
        Ok(unsafe { self.engine.send(peer, what, pieces, (*op).into()) }?)
    }

    /// Send a copy.
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

    /// Post a buffer.
    ///
    /// # Safety
    /// The pieces stay valid, and are not used, until the completion.
    #[inline(always)]
    pub(crate) unsafe fn recv(
        &mut self,
        what: &RawRecv,
        pieces: &[RawPiece],
        op: Op,
    ) -> Result<(), Errno> {
        // SAFETY: the caller's promise.
        Ok(unsafe { self.engine.recv(what, pieces, op.into()) }?)
    }

    /// Post a buffer for many messages.
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
        // SAFETY: the caller's promise.
        Ok(unsafe { self.engine.recv_multi(what, buffer, min_free, op.into()) }?)
    }

    /// Withdraw a posted receive, of several with this context the oldest: the application told them
    /// apart by nothing.
    pub(crate) fn cancel(&mut self, context: u64) {
        self.engine.cancel(context);
    }

    /// Write to a peer's memory.
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
        // SAFETY: the caller's promise.
        Ok(unsafe { self.engine.put(peer, remote, pieces, imm, op.into()) }?)
    }

    /// Write a copy to a peer's memory.
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

    /// Read a peer's memory.
    ///
    /// # Safety
    /// The pieces stay valid, and are not used, until the completion.
    pub(crate) unsafe fn get(
        &mut self,
        (peer, remote): (u64, RawRemote),
        pieces: &[RawPiece],
        op: Op,
    ) -> Result<(), Errno> {
        let peer = self.peer(peer)?;
        // SAFETY: the caller's promise.
        Ok(unsafe { self.engine.get(peer, remote, pieces, op.into()) }?)
    }

    /// Change numbers in a peer's memory.
    ///
    /// # Safety
    /// The pieces for results stay valid, and are not used, until the completion.
    pub(crate) unsafe fn atomic(
        &mut self,
        (peer, remote): (u64, RawRemote),
        what: &RawAtomic<'_>,
        results: &[RawPiece],
        op: Op,
    ) -> Result<(), Errno> {
        let peer = self.peer(peer)?;
        // SAFETY: the caller's promise.
        Ok(unsafe { self.engine.atomic(peer, remote, what, results, op.into()) }?)
    }
}
