// SPDX-License-Identifier: MIT OR Apache-2.0
//! Remote memory of an endpoint: regions under keys of the caller's, put and get.

use super::Endpoint;
use super::message::{INJECT_LEN_MAX, check_pieces, gathered, slice_of};
use super::raw::RawWhat;
use super::types::{
    PeerIndex, RawAccess, RawCompletion, RawKind, RawPiece, RawRemote, SubmitError,
};
use crate::engine::{Call, Engine, Inner};
use crate::error::Error;
use crate::ops::OpKind;
use portolan_proto::{
    Access, Cause, LaneId, OpError, OpId, PeerId, PeerStatus, RegionSpec, RemoteSpec,
};
use std::ptr;

impl Endpoint {
    /// Opens `memory` to all who know `key`. Addresses in it count from `base_addr`: 0 for offsets,
    /// the address of the memory for addresses.
    ///
    /// # Errors
    /// [`Error::KeyInUse`]; [`Error::RegionTooLong`] beyond half the address space.
    ///
    /// # Safety
    /// The memory must be readable, and writable if it is open for writing, until
    /// [`Endpoint::conceal`]; peers change it within calls of this endpoint.
    pub unsafe fn expose(
        &mut self,
        memory: RawPiece,
        access: RawAccess,
        key: u64,
        base_addr: u64,
    ) -> Result<(), Error> {
        if isize::try_from(memory.len).is_err() {
            return Err(Error::RegionTooLong { len: memory.len });
        }
        let inner = &mut self.engine.enter().inner;
        // SAFETY: the caller's promise.
        let op = unsafe { inner.lend(memory, OpKind::Region) };
        let spec = RegionSpec {
            key: Some(key),
            base: base_addr,
            len: memory.len as u64,
            access: Access {
                read: access.read,
                write: access.write,
            },
        };
        if inner.core.expose(op, &spec).is_none() {
            inner.ops.forget(op);
            return Err(Error::KeyInUse { key });
        }
        self.regions.insert(key, op);
        Ok(())
    }

    /// Closes a region: on return nobody touches its memory any more. `false` if there is none.
    pub fn conceal(&mut self, key: u64) -> bool {
        let Some(op) = self.regions.remove(&key) else {
            return false;
        };
        let engine = &mut *self.engine.enter();
        engine.inner.core.conceal(key);
        engine.inner.ops.forget(op);
        engine.settle();
        true
    }

    /// Puts the pieces behind one another into the memory of `to`; ends with a completion when they
    /// are there. With `imm`, the program there gets a [`RawKind::RemotePut`].
    ///
    /// # Errors
    /// [`SubmitError`]; there is no completion then.
    ///
    /// # Safety
    /// As of [`Endpoint::send`].
    pub unsafe fn put(
        &mut self,
        to: PeerIndex,
        at: RawRemote,
        pieces: &[RawPiece],
        imm: Option<u64>,
        context: u64,
    ) -> Result<(), SubmitError> {
        let engine = &mut *self.engine.enter();
        let peer = engine.check_ask(to)?;
        check_pieces(pieces)?;
        let ops = &mut engine.inner.ops;
        let kind = OpKind::Remote(peer);
        let op = match pieces {
            // SAFETY: the caller's promise: the memory outlives the operation.
            [piece] => unsafe { ops.lent_raw(kind, slice_of(piece)) },
            _ => {
                // SAFETY: the caller's promise.
                let whole = unsafe { gathered(pieces) }?;
                ops.owned(kind, whole.into(), true)
            }
        };
        engine.note_op(op, RawKind::Put, RawWhat::Send(false), context, Some(peer));
        engine.ask(peer, op, spec_of(at, imm), Call::Put);
        Ok(())
    }

    /// Puts a copy of `bytes`; there is no completion.
    ///
    /// # Errors
    /// [`SubmitError`]; nothing was sent then.
    pub fn inject_put(
        &mut self,
        to: PeerIndex,
        at: RawRemote,
        bytes: &[u8],
        imm: Option<u64>,
    ) -> Result<(), SubmitError> {
        let engine = &mut *self.engine.enter();
        let peer = engine.check_ask(to)?;
        if bytes.len() > INJECT_LEN_MAX {
            return Err(SubmitError::TooLong);
        }
        let kind = OpKind::Remote(peer);
        let ops = &mut engine.inner.ops;
        let op = ops.owned(kind, bytes.to_vec().into(), true);
        engine.note_op(op, RawKind::Put, RawWhat::Silent, 0, Some(peer));
        engine.ask(peer, op, spec_of(at, imm), Call::Put);
        Ok(())
    }

    /// Fills the pieces from the memory of `from`; ends with a completion.
    ///
    /// # Errors
    /// [`SubmitError`]; there is no completion then.
    ///
    /// # Safety
    /// As of [`Endpoint::recv`].
    pub unsafe fn get(
        &mut self,
        from: PeerIndex,
        at: RawRemote,
        pieces: &[RawPiece],
        context: u64,
    ) -> Result<(), SubmitError> {
        let engine = &mut *self.engine.enter();
        let peer = engine.check_ask(from)?;
        let kind = OpKind::Remote(peer);
        // SAFETY: the caller's promise.
        let (op, what, _) = unsafe { engine.inner.place(pieces, kind) }?;
        engine.note_op(op, RawKind::Get, what, context, Some(peer));
        engine.ask(peer, op, spec_of(at, None), Call::Get);
        Ok(())
    }
}

impl Engine {
    /// The peer, if it can be asked for something now.
    pub(super) fn check_ask(&self, peer: PeerIndex) -> Result<PeerId, SubmitError> {
        let peer = self.check_index(peer)?;
        self.inner.check_room()?;
        Ok(peer)
    }

    /// Submits what `op` asks of `peer`.
    pub(super) fn ask(&mut self, peer: PeerId, op: OpId, spec: RemoteSpec, call: Call<'_>) {
        let inner = &mut self.inner;
        let gone = match inner.core.peer_status(peer) {
            PeerStatus::Failed(cause @ (Cause::ProcessGone | Cause::Violation(_))) => Some(cause),
            _ => match inner.submit_remote(peer, op, spec, call) {
                Ok(()) => None,
                Err(_) => Some(Cause::NoPath),
            },
        };
        if let Some(cause) = gone {
            inner.complete_send(op, peer, Err(OpError::PeerGone(peer, cause)));
        }
        self.settle();
    }
}

impl Inner {
    /// The next put that the program is to be told of.
    #[inline]
    pub(super) fn next_notice(&mut self) -> Option<RawCompletion> {
        let notice = self.remote.notices.pop_front()?;
        self.core.notice_taken(&notice);
        Some(RawCompletion {
            context: 0,
            kind: RawKind::RemotePut,
            peer: Some(PeerIndex(notice.peer.0)),
            len: notice.len,
            tag: 0,
            imm: Some(notice.imm),
            buf: ptr::null_mut(),
            released: false,
            error: None,
        })
    }
}

pub(super) fn spec_of(at: RawRemote, imm: Option<u64>) -> RemoteSpec {
    RemoteSpec {
        lane: LaneId::Low,
        key: at.key,
        addr: at.addr,
        imm,
    }
}
