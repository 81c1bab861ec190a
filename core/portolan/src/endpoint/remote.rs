// SPDX-License-Identifier: MIT OR Apache-2.0
//! Remote memory of an endpoint: regions with keys chosen by the caller, put and get.

use super::Endpoint;
use super::message::{INJECT_LEN_MAX, check_pieces, gathered, place, slice_of};
use crate::engine::Call;
use crate::error::Error;
use crate::ops::{Memory, OpKind, Owner};
use crate::raw::{
    Cookie, PeerIndex, RawAccess, RawKind, RawPiece, RawRemote, RawWhat, SubmitError,
};
use portolan_proto::{Access, LaneId, RegionSpec, RemoteSpec};

impl Endpoint {
    /// Registers `memory` for all peers that have `key`. Addresses in it start at `base_addr`. Use
    /// 0 to address by offset, and the address of the memory to address by pointer.
    ///
    /// # Errors
    /// [`Error::KeyInUse`]; [`Error::RegionTooLong`] beyond half the address space.
    ///
    /// # Safety
    /// The memory must be readable until [`Endpoint::deregister`], and writable if it is open for
    /// writing. Peers change it within calls of this endpoint.
    pub unsafe fn register(
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
        // SAFETY: the caller guarantees that the memory is valid for `access` until `deregister`.
        let lent = unsafe { Memory::of_piece(memory) };
        let op = inner.ops.enter(OpKind::Region, lent, Owner::None);
        let spec = RegionSpec {
            key: Some(key),
            base: base_addr,
            len: memory.len as u64,
            access: Access {
                read: access.read,
                write: access.write,
            },
        };
        if inner.core.register(op, &spec).is_none() {
            inner.ops.forget(op);
            return Err(Error::KeyInUse { key });
        }
        self.regions.insert(key, op);
        Ok(())
    }

    /// Deregisters a region. On return its memory is no longer accessed. Returns `false` if there
    /// is none with this key.
    pub fn deregister(&mut self, key: u64) -> bool {
        let Some(op) = self.regions.remove(&key) else {
            return false;
        };
        let engine = &mut *self.engine.enter();
        engine.inner.core.deregister(key);
        engine.inner.ops.forget(op);
        engine.settle();
        true
    }

    /// Writes the pieces one after another into the memory of `to`. A completion follows when they
    /// are there. With `imm`, the target's program gets a [`RawKind::RemotePut`].
    ///
    /// # Errors
    /// [`SubmitError`]; no completion follows.
    ///
    /// # Safety
    /// Same as [`Endpoint::send`].
    pub unsafe fn put(
        &mut self,
        to: PeerIndex,
        at: RawRemote,
        pieces: &[RawPiece],
        imm: Option<u64>,
        cookie: Cookie,
    ) -> Result<(), SubmitError> {
        let engine = &mut *self.engine.enter();
        let peer = engine.check_ask(to)?;
        check_pieces(pieces)?;
        let memory = match pieces {
            // SAFETY: the caller guarantees that the piece stays readable and unchanged until the
            // completion.
            [piece] => unsafe { Memory::borrowed(slice_of(piece)) },
            // SAFETY: the caller guarantees that the pieces are readable.
            _ => Memory::Owned(unsafe { gathered(pieces) }?.into()),
        };
        let what = RawWhat::Send(false);
        engine.put(peer, spec_of(at, imm), memory, what, cookie);
        Ok(())
    }

    /// Writes `bytes` into the memory of `to`; the endpoint owns them. A completion follows when
    /// they are there.
    ///
    /// # Errors
    /// [`SubmitError`]; no completion follows.
    pub fn put_owned(
        &mut self,
        to: PeerIndex,
        at: RawRemote,
        bytes: Vec<u8>,
        imm: Option<u64>,
        cookie: Cookie,
    ) -> Result<(), SubmitError> {
        let engine = &mut *self.engine.enter();
        let peer = engine.check_ask(to)?;
        let (memory, what) = (Memory::Owned(bytes.into()), RawWhat::Send(false));
        engine.put(peer, spec_of(at, imm), memory, what, cookie);
        Ok(())
    }

    /// Writes a copy of `bytes` into the memory of `to`. There is no completion.
    ///
    /// # Errors
    /// [`SubmitError`]; nothing was sent.
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
        let memory = Memory::Owned(bytes.to_vec().into());
        let cookie = Cookie::default();
        engine.put(peer, spec_of(at, imm), memory, RawWhat::Silent, cookie);
        Ok(())
    }

    /// Reads the memory of `from` into the pieces. A completion follows.
    ///
    /// # Errors
    /// [`SubmitError`]; no completion follows.
    ///
    /// # Safety
    /// Same as [`Endpoint::recv`].
    pub unsafe fn get(
        &mut self,
        from: PeerIndex,
        at: RawRemote,
        pieces: &[RawPiece],
        cookie: Cookie,
    ) -> Result<(), SubmitError> {
        let engine = &mut *self.engine.enter();
        let peer = engine.check_ask(from)?;
        // SAFETY: the caller guarantees that the pieces are writable until the completion.
        let (memory, what, _) = unsafe { place(pieces) }?;
        let op = engine.enter_op(OpKind::Remote(peer), memory, (RawKind::Get, what, cookie));
        engine.submit_request(peer, op, spec_of(at, None), Call::Get);
        Ok(())
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
