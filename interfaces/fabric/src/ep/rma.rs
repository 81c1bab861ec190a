// SPDX-License-Identifier: MIT OR Apache-2.0
//! Remote memory access. A completion means that the target's memory was read or written, which
//! satisfies every completion level that an application may request.

use std::ffi::c_void;
use std::ptr::null_mut;

use libc::iovec;
use portolan::binding::{RawPiece, RawRemote};

use super::pieces::{Buffer, List, Memory, Pieces, gather, total_len};
use super::{data_of, with};
use crate::abi::*;
use crate::errno::Errno;
use crate::offer::INJECT_LEN_MAX;
use crate::state::{Ep, Op};

pub(super) static OPS: OpsRma = OpsRma {
    size: size_of::<OpsRma>(),
    read,
    readv,
    readmsg,
    write,
    writev,
    writemsg,
    inject,
    writedata,
    injectdata,
};

/// Arguments of an access to a peer's memory.
struct Access {
    peer: u64,
    remote: RawRemote,
    imm: Option<u64>,
    context: *mut c_void,
    flags: u64,
}

impl Access {
    fn new(peer: u64, remote: RawRemote, context: *mut c_void, flags: u64) -> Access {
        Access {
            peer,
            remote,
            imm: None,
            context,
            flags,
        }
    }

    fn with(self, data: u64) -> Access {
        let imm = Some(data);
        Access { imm, ..self }
    }

    fn op(&self, of: u64, ep: &Ep) -> Op {
        ep.tx().op(self.context, RMA | of, self.flags)
    }
}

/// Moves bytes between the pieces and the peer's memory: [`put`] or [`get`]. It is unsafe because
/// the pieces must not be changed (`put`) or accessed (`get`) until the completion.
type Move = unsafe fn(&mut Ep, &Access, &[RawPiece]) -> Result<(), Errno>;

/// Reads or writes. `what` creates the arguments from the default flags, which apply to calls
/// without flags.
///
/// # Safety
/// As for `of`.
unsafe fn access(
    of: Move,
    ep: *mut FidEp,
    memory: impl Memory,
    what: impl FnOnce(u64) -> Access,
) -> isize {
    with(ep, |state, at| {
        let ep = state.ep(at);
        let what = what(ep.tx().default_flags());
        // SAFETY: guaranteed by the caller.
        unsafe { of(ep, &what, memory.pieces()?.as_ref()) }
    })
}

/// Reads or writes for a call by structure.
///
/// # Safety
/// The structure and its arrays are valid as described. For the pieces, as for `of`.
unsafe fn access_msg(of: Move, ep: *mut FidEp, msg: *const MsgRma, flags: u64) -> isize {
    with(ep, |state, at| {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let (what, pieces) = unpack(&*msg, flags)?;
            of(state.ep(at), &what, pieces.as_ref())
        }
    })
}

/// Writes to a peer's memory.
///
/// # Safety
/// The pieces stay valid until the completion.
unsafe fn put(ep: &mut Ep, what: &Access, pieces: &[RawPiece]) -> Result<(), Errno> {
    let op = what.op(WRITE, ep);
    if what.flags & INJECT != 0 {
        // SAFETY: guaranteed by the caller, for this call.
        return put_copy(ep, what, op, unsafe { gather(pieces) });
    }
    // SAFETY: guaranteed by the caller.
    unsafe { ep.put((what.peer, what.remote), pieces, what.imm, op) }
}

/// Writes a copy to a peer's memory. Counters and queues report it when it is done, as any other
/// operation, not when it was submitted.
fn put_copy(ep: &mut Ep, what: &Access, op: Op, bytes: Vec<u8>) -> Result<(), Errno> {
    if bytes.len() > INJECT_LEN_MAX {
        return Err(Errno::MSGSIZE);
    }
    ep.put_owned((what.peer, what.remote), bytes, what.imm, op)
}

/// Reads a peer's memory.
///
/// # Safety
/// The pieces stay valid, and are not accessed, until the completion.
unsafe fn get(ep: &mut Ep, what: &Access, pieces: &[RawPiece]) -> Result<(), Errno> {
    let op = what.op(READ, ep);
    // SAFETY: guaranteed by the caller.
    unsafe { ep.get((what.peer, what.remote), pieces, op) }
}

/// Returns the arguments of a call by structure.
///
/// # Safety
/// The structure and its arrays are valid as described.
unsafe fn unpack(msg: &MsgRma, flags: u64) -> Result<(Access, Pieces), Errno> {
    if msg.rma_iov_count != 1 {
        return Err(Errno::INVAL);
    }
    // SAFETY: guaranteed by the caller.
    let (target, pieces) = unsafe { (*msg.rma_iov, List(msg.iov, msg.iov_count).pieces()?) };
    if target.len != total_len(pieces.as_ref()) {
        return Err(Errno::INVAL);
    }
    let remote = RawRemote {
        addr: target.addr,
        key: target.key,
    };
    let what = Access {
        imm: data_of(msg.data, flags),
        ..Access::new(msg.addr, remote, msg.context, flags)
    };
    Ok((what, pieces))
}

/// Defines the calls of one [`Move`]: with one buffer, with a list, and by structure.
macro_rules! calls {
    ($of:ident, $Byte:ty: $one:ident, $list:ident, $by_msg:ident) => {
        extern "C" fn $one(
            ep: *mut FidEp,
            buf: $Byte,
            len: usize,
            _desc: *mut c_void,
            peer: u64,
            addr: u64,
            key: u64,
            context: *mut c_void,
        ) -> isize {
            let what = |flags| Access::new(peer, RawRemote { addr, key }, context, flags);
            // SAFETY: until the completion, the application does not change the memory of a write,
            // and does not access the memory of a read.
            unsafe { access($of, ep, Buffer(buf, len), what) }
        }

        extern "C" fn $list(
            ep: *mut FidEp,
            iov: *const iovec,
            _desc: *mut *mut c_void,
            count: usize,
            peer: u64,
            addr: u64,
            key: u64,
            context: *mut c_void,
        ) -> isize {
            let what = |flags| Access::new(peer, RawRemote { addr, key }, context, flags);
            // SAFETY: as with one buffer, for each of the pieces.
            unsafe { access($of, ep, List(iov, count), what) }
        }

        extern "C" fn $by_msg(ep: *mut FidEp, msg: *const MsgRma, flags: u64) -> isize {
            // SAFETY: the application's structure; for its pieces, as with one buffer.
            unsafe { access_msg($of, ep, msg, flags) }
        }
    };
}

calls!(get, *mut c_void: read, readv, readmsg);
calls!(put, *const c_void: write, writev, writemsg);

extern "C" fn writedata(
    ep: *mut FidEp,
    buf: *const c_void,
    len: usize,
    _desc: *mut c_void,
    data: u64,
    peer: u64,
    addr: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    let what = |flags| Access::new(peer, RawRemote { addr, key }, context, flags).with(data);
    // SAFETY: as in `write`.
    unsafe { access(put, ep, Buffer(buf, len), what) }
}

extern "C" fn inject(
    ep: *mut FidEp,
    buf: *const c_void,
    len: usize,
    peer: u64,
    addr: u64,
    key: u64,
) -> isize {
    let what = Access::new(peer, RawRemote { addr, key }, null_mut(), 0);
    // SAFETY: the application's bytes are readable during this call.
    unsafe { inject_put(ep, Buffer(buf, len), &what) }
}

extern "C" fn injectdata(
    ep: *mut FidEp,
    buf: *const c_void,
    len: usize,
    data: u64,
    peer: u64,
    addr: u64,
    key: u64,
) -> isize {
    let what = Access::new(peer, RawRemote { addr, key }, null_mut(), 0).with(data);
    // SAFETY: as in `inject`.
    unsafe { inject_put(ep, Buffer(buf, len), &what) }
}

/// Writes a copy without a completion.
///
/// # Safety
/// The memory is readable now.
unsafe fn inject_put(ep: *mut FidEp, memory: Buffer, what: &Access) -> isize {
    with(ep, |state, at| {
        if memory.len() > INJECT_LEN_MAX {
            return Err(Errno::MSGSIZE);
        }
        // SAFETY: guaranteed by the caller.
        let bytes = unsafe { memory.bytes() }.to_vec();
        put_copy(state.ep(at), what, Op::unreported(RMA | WRITE), bytes)
    })
}
