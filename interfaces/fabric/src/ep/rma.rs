// SPDX-License-Identifier: MIT OR Apache-2.0
//! Remote memory. A completion says that the target's memory was read or written, so every level
//! of completion an application may ask for is met.

use std::ffi::c_void;
use std::ptr::null_mut;

use libc::iovec;
use portolan::{RawPiece, RawRemote};

use super::pieces::{List, Memory, One, Pieces, gather, total_len};
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

/// An access to a peer's memory.
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

/// What moves bytes between the pieces and the peer's memory: [`put`] or [`get`]. Unsafe, since
/// the pieces must be left as they are, or alone, until the completion.
type Move = unsafe fn(&mut Ep, &Access, &[RawPiece]) -> Result<(), Errno>;

/// Read or write. `what` makes an access of the flags of calls that pass none.
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
        // SAFETY: the caller's promise.
        unsafe { of(ep, &what, memory.pieces()?.as_ref()) }
    })
}

/// The same for a call by structure.
///
/// # Safety
/// The structure and its arrays are as the application describes them; for their pieces, as for
/// `of`.
unsafe fn access_msg(of: Move, ep: *mut FidEp, msg: *const MsgRma, flags: u64) -> isize {
    with(ep, |state, at| {
        // SAFETY: the caller's promise.
        unsafe {
            let (what, pieces) = unpack(&*msg, flags)?;
            of(state.ep(at), &what, pieces.as_ref())
        }
    })
}

/// Write.
///
/// # Safety
/// The pieces stay valid until the completion.
unsafe fn put(ep: &mut Ep, what: &Access, pieces: &[RawPiece]) -> Result<(), Errno> {
    let op = what.op(WRITE, ep);
    if what.flags & INJECT != 0 {
        // SAFETY: the caller's promise, for this call.
        return put_copy(ep, what, op, unsafe { gather(pieces) });
    }
    // SAFETY: the caller's promise.
    unsafe { ep.put((what.peer, what.remote), pieces, what.imm, op) }
}

/// Write a copy. It is an operation like the others, so that counters and queues tell when it is
/// done, not when it was taken.
fn put_copy(ep: &mut Ep, what: &Access, op: Op, bytes: Vec<u8>) -> Result<(), Errno> {
    if bytes.len() > INJECT_LEN_MAX {
        return Err(Errno::MSGSIZE);
    }
    ep.put_owned((what.peer, what.remote), bytes, what.imm, op)
}

/// Read.
///
/// # Safety
/// The pieces stay valid, and are not used, until the completion.
unsafe fn get(ep: &mut Ep, what: &Access, pieces: &[RawPiece]) -> Result<(), Errno> {
    let op = what.op(READ, ep);
    // SAFETY: the caller's promise.
    unsafe { ep.get((what.peer, what.remote), pieces, op) }
}

/// The arguments of a call by structure.
///
/// # Safety
/// The structure and its arrays are as the application describes them.
unsafe fn unpack(msg: &MsgRma, flags: u64) -> Result<(Access, Pieces), Errno> {
    if msg.rma_iov_count != 1 {
        return Err(Errno::INVAL);
    }
    // SAFETY: the caller's promise.
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

/// The calls with one buffer, with a list of them and by structure, of one [`Move`].
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
            // SAFETY: until the completion the application leaves what is written from as it is, and
            // what is read into alone.
            unsafe { access($of, ep, One(buf, len), what) }
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
    unsafe { access(put, ep, One(buf, len), what) }
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
    // SAFETY: the application's bytes, for this call.
    unsafe { inject_put(ep, One(buf, len), &what) }
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
    unsafe { inject_put(ep, One(buf, len), &what) }
}

/// Write a copy, of which nobody is told.
///
/// # Safety
/// The memory is readable now.
unsafe fn inject_put(ep: *mut FidEp, memory: One, what: &Access) -> isize {
    with(ep, |state, at| {
        // SAFETY: the caller's promise.
        let bytes = unsafe { memory.bytes() }.to_vec();
        put_copy(state.ep(at), what, Op::untold(RMA | WRITE), bytes)
    })
}
