// SPDX-License-Identifier: MIT OR Apache-2.0
//! Operations of the component, which a callback may submit while the endpoint is in use.

#![allow(unsafe_code, reason = "operations on memory of the component")]

use crate::types::*;
use portolan::binding::{
    Cookie, Endpoint, EndpointAddress, PeerIndex, RawAccess, RawAtomic, RawPiece, RawRemote, Sent,
    SubmitError,
};
use portolan::{AtomicOp, Datatype, Error};
use std::ffi::c_int;

/// An operation with a completion. Its memory belongs to the component.
pub(crate) enum Operation {
    Send {
        peer: PeerIndex,
        tag: u8,
        piece: RawPiece,
        context: u64,
    },
    Get(portolan_btl_transfer_t),
    Put(portolan_btl_transfer_t),
    Atomic(portolan_btl_atomic_t),
}

/// A change of the endpoint's peers or registered memory.
pub(crate) enum Change {
    Insert(EndpointAddress),
    Remove(PeerIndex),
    Register { memory: RawPiece, key: u64 },
    Deregister(u64),
}

/// A call that was made while the endpoint was in use.
pub(crate) enum Deferred {
    Operation(Operation),
    Change(Change),
}

impl Operation {
    /// Returns the context of the completion, and its kind.
    pub(crate) fn completion(&self) -> (u64, c_int) {
        match self {
            Operation::Send { context, .. } => (*context, PORTOLAN_BTL_SENT),
            Operation::Get(what) | Operation::Put(what) => (what.context, PORTOLAN_BTL_REMOTE),
            Operation::Atomic(what) => (what.context, PORTOLAN_BTL_REMOTE),
        }
    }

    /// Submits the operation. Returns PORTOLAN_BTL_DONE, or PORTOLAN_BTL_OK if a completion follows.
    ///
    /// # Safety
    /// The memory of the operation is valid until then.
    #[inline]
    pub(crate) unsafe fn submit(&self, endpoint: &mut Endpoint) -> Result<c_int, SubmitError> {
        match self {
            Operation::Send {
                peer,
                tag,
                piece,
                context,
            } => {
                let cookie = Cookie::new(*context);
                // SAFETY: the caller's promise.
                let sent = unsafe { endpoint.send_active(*peer, *tag, *piece, cookie) }?;
                return Ok(match sent {
                    Sent::Done => PORTOLAN_BTL_DONE,
                    Sent::Pending => PORTOLAN_BTL_OK,
                });
            }
            Operation::Get(what) => {
                let (peer, at, piece, cookie) = what.parts();
                // SAFETY: the caller's promise.
                unsafe { endpoint.get(peer, at, &[piece], cookie) }?;
            }
            Operation::Put(what) => {
                let (peer, at, piece, cookie) = what.parts();
                // SAFETY: the caller's promise.
                unsafe { endpoint.put(peer, at, &[piece], None, cookie) }?;
            }
            // SAFETY: the caller's promise.
            Operation::Atomic(what) => unsafe { what.submit(endpoint) }?,
        }
        Ok(PORTOLAN_BTL_OK)
    }
}

impl Change {
    /// Makes the change.
    ///
    /// # Errors
    /// [`Error`] of an insertion or registration.
    ///
    /// # Safety
    /// Registered memory is valid until it is deregistered.
    pub(crate) unsafe fn apply(&self, endpoint: &mut Endpoint) -> Result<(), Error> {
        match self {
            Change::Insert(address) => endpoint.insert(address).map(|_| ()),
            Change::Remove(peer) => {
                endpoint.remove(*peer);
                Ok(())
            }
            Change::Register { memory, key } => {
                let access = RawAccess {
                    read: true,
                    write: true,
                };
                let address = memory.ptr.addr() as u64;
                // SAFETY: the caller's promise.
                unsafe { endpoint.register(*memory, access, *key, address) }
            }
            Change::Deregister(key) => {
                endpoint.deregister(*key);
                Ok(())
            }
        }
    }
}

impl portolan_btl_transfer_t {
    fn parts(&self) -> (PeerIndex, RawRemote, RawPiece, Cookie) {
        let remote = RawRemote {
            addr: self.remote,
            key: self.key,
        };
        let local = RawPiece {
            ptr: self.local.cast(),
            len: self.len,
        };
        let cookie = Cookie::new(self.context);
        (PeerIndex(self.peer), remote, local, cookie)
    }
}

impl portolan_btl_atomic_t {
    /// # Safety
    /// `before` is null, or writable until the completion.
    unsafe fn submit(&self, endpoint: &mut Endpoint) -> Result<(), SubmitError> {
        let datatype = self.number.datatype();
        let len = datatype.len();
        let words = [self.operand.to_le_bytes(), self.compare.to_le_bytes()];
        let mut operands = [0; 16];
        operands[..len].copy_from_slice(&words[0][..len]);
        operands[len..2 * len].copy_from_slice(&words[1][..len]);
        let op = self.op.op();
        let atomic = RawAtomic {
            op,
            datatype,
            operands: &operands[..op.operands_len(len)],
        };
        let before = RawPiece {
            ptr: self.before.cast(),
            len,
        };
        let before: &[RawPiece] = match self.before.is_null() {
            true => &[],
            false => &[before],
        };
        let at = RawRemote {
            addr: self.remote,
            key: self.key,
        };
        let (peer, cookie) = (PeerIndex(self.peer), Cookie::new(self.context));
        // SAFETY: the caller's promise.
        unsafe { endpoint.atomic(peer, at, &atomic, before, cookie) }
    }
}

impl portolan_btl_op_t {
    fn op(self) -> AtomicOp {
        match self {
            portolan_btl_op_t::PORTOLAN_BTL_ADD => AtomicOp::Sum,
            portolan_btl_op_t::PORTOLAN_BTL_AND => AtomicOp::BitAnd,
            portolan_btl_op_t::PORTOLAN_BTL_OR => AtomicOp::BitOr,
            portolan_btl_op_t::PORTOLAN_BTL_XOR => AtomicOp::BitXor,
            portolan_btl_op_t::PORTOLAN_BTL_LAND => AtomicOp::LogicalAnd,
            portolan_btl_op_t::PORTOLAN_BTL_LOR => AtomicOp::LogicalOr,
            portolan_btl_op_t::PORTOLAN_BTL_LXOR => AtomicOp::LogicalXor,
            portolan_btl_op_t::PORTOLAN_BTL_SWAP => AtomicOp::Write,
            portolan_btl_op_t::PORTOLAN_BTL_MIN => AtomicOp::Min,
            portolan_btl_op_t::PORTOLAN_BTL_MAX => AtomicOp::Max,
            portolan_btl_op_t::PORTOLAN_BTL_COMPARE_SWAP => AtomicOp::SwapIfEqual,
        }
    }
}

impl portolan_btl_number_t {
    fn datatype(self) -> Datatype {
        match self {
            portolan_btl_number_t::PORTOLAN_BTL_INT32 => Datatype::I32,
            portolan_btl_number_t::PORTOLAN_BTL_INT64 => Datatype::I64,
            portolan_btl_number_t::PORTOLAN_BTL_FLOAT => Datatype::F32,
            portolan_btl_number_t::PORTOLAN_BTL_DOUBLE => Datatype::F64,
        }
    }
}
