// SPDX-License-Identifier: MIT OR Apache-2.0
//! Remote memory. A completion says that the target's memory was read or written, so every level
//! of completion an application may ask for is met.

use std::ffi::c_void;

use libc::iovec;
use portolan::{RawPiece, RawRemote};

use super::pieces::{Pieces, bytes, gather, piece, total_len};
use super::{Ep, Op, with};
use crate::abi::*;
use crate::errno::Errno;
use crate::offer::INJECT_LEN_MAX;
use crate::state::State;

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
    fn op(&self, of: u64, ep: &Ep) -> Op {
        Op {
            context: self.context as usize,
            flags: RMA | of,
            reported: ep.tx.reports(self.flags),
            silent: false,
            multi: false,
            holds: false,
        }
    }
}

/// Write.
///
/// # Safety
/// The pieces stay valid until the completion.
unsafe fn put(
    state: &mut State,
    at: usize,
    what: &Access,
    pieces: &[RawPiece],
) -> Result<(), Errno> {
    let ep = &mut state.eps[at];
    let op = what.op(WRITE, ep);
    if what.flags & INJECT != 0 {
        // SAFETY: the caller's promise, for this call.
        return put_copy(ep, what, op, unsafe { gather(pieces) });
    }
    let peer = ep.peer(what.peer)?;
    let key = ep.ops.insert(op);
    // SAFETY: the caller's promise.
    let sent = unsafe {
        ep.engine
            .put(peer, what.remote, pieces, what.imm, key as u64)
    };
    sent.map_err(|error| {
        ep.ops.remove(key);
        error.into()
    })
}

/// Write a copy. It is an operation like the others, so that counters and queues tell when it is
/// done, not when it was taken.
fn put_copy(ep: &mut Ep, what: &Access, op: Op, bytes: Vec<u8>) -> Result<(), Errno> {
    let peer = ep.peer(what.peer)?;
    let (copy, key) = ep.hold(op, bytes)?;
    // SAFETY: the copy lives until the completion.
    let sent = unsafe {
        ep.engine
            .put(peer, what.remote, &[copy], what.imm, key as u64)
    };
    sent.map_err(|error| {
        ep.release(key);
        error.into()
    })
}

impl Ep {
    /// Keep a copy of what an operation sends until it is done.
    pub(super) fn hold(&mut self, op: Op, bytes: Vec<u8>) -> Result<(RawPiece, usize), Errno> {
        if bytes.len() > INJECT_LEN_MAX {
            return Err(Errno::MSGSIZE);
        }
        let key = self.ops.insert(Op { holds: true, ..op });
        let copy = self
            .injected
            .entry(key)
            .insert_entry(bytes.into_boxed_slice())
            .into_mut();
        Ok((piece(copy.as_ptr().cast(), copy.len()), key))
    }

    /// Forget an operation that was not accepted.
    pub(super) fn release(&mut self, key: usize) {
        self.ops.remove(key);
        self.injected.remove(&key);
    }
}

/// Read.
///
/// # Safety
/// The pieces stay valid, and are not used, until the completion.
unsafe fn get(
    state: &mut State,
    at: usize,
    what: &Access,
    pieces: &[RawPiece],
) -> Result<(), Errno> {
    let ep = &mut state.eps[at];
    let op = what.op(READ, ep);
    let peer = ep.peer(what.peer)?;
    let key = ep.ops.insert(op);
    // SAFETY: the caller's promise.
    let sent = unsafe { ep.engine.get(peer, what.remote, pieces, key as u64) };
    sent.map_err(|error| {
        ep.ops.remove(key);
        error.into()
    })
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
    let (target, pieces) = unsafe { (*msg.rma_iov, Pieces::of_iov(msg.iov, msg.iov_count)?) };
    if target.len != total_len(&pieces) {
        return Err(Errno::INVAL);
    }
    let access = Access {
        peer: msg.addr,
        remote: RawRemote {
            addr: target.addr,
            key: target.key,
        },
        imm: (flags & REMOTE_CQ_DATA != 0).then_some(msg.data),
        context: msg.context,
        flags,
    };
    Ok((access, pieces))
}

extern "C" fn read(
    ep: *mut FidEp,
    buf: *mut c_void,
    len: usize,
    _desc: *mut c_void,
    peer: u64,
    addr: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    with(ep, |state, at| {
        let flags = state.eps[at].tx.default;
        let what = Access {
            peer,
            remote: RawRemote { addr, key },
            imm: None,
            context,
            flags,
        };
        // SAFETY: the application leaves the buffer alone until the completion.
        unsafe { get(state, at, &what, &[piece(buf, len)]) }
    })
}

extern "C" fn readv(
    ep: *mut FidEp,
    iov: *const iovec,
    _desc: *mut *mut c_void,
    count: usize,
    peer: u64,
    addr: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    with(ep, |state, at| {
        let flags = state.eps[at].tx.default;
        let what = Access {
            peer,
            remote: RawRemote { addr, key },
            imm: None,
            context,
            flags,
        };
        // SAFETY: as in `read`, for each of the pieces.
        unsafe { get(state, at, &what, &Pieces::of_iov(iov, count)?) }
    })
}

extern "C" fn readmsg(ep: *mut FidEp, msg: *const MsgRma, flags: u64) -> isize {
    with(ep, |state, at| {
        // SAFETY: the application's structure; its pieces are left alone until the completion.
        unsafe {
            let (what, pieces) = unpack(&*msg, flags)?;
            get(state, at, &what, &pieces)
        }
    })
}

extern "C" fn write(
    ep: *mut FidEp,
    buf: *const c_void,
    len: usize,
    _desc: *mut c_void,
    peer: u64,
    addr: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    with(ep, |state, at| {
        let flags = state.eps[at].tx.default;
        let what = Access {
            peer,
            remote: RawRemote { addr, key },
            imm: None,
            context,
            flags,
        };
        // SAFETY: the application leaves the bytes as they are until the completion.
        unsafe { put(state, at, &what, &[piece(buf, len)]) }
    })
}

extern "C" fn writev(
    ep: *mut FidEp,
    iov: *const iovec,
    _desc: *mut *mut c_void,
    count: usize,
    peer: u64,
    addr: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    with(ep, |state, at| {
        let flags = state.eps[at].tx.default;
        let what = Access {
            peer,
            remote: RawRemote { addr, key },
            imm: None,
            context,
            flags,
        };
        // SAFETY: as in `write`, for each of the pieces.
        unsafe { put(state, at, &what, &Pieces::of_iov(iov, count)?) }
    })
}

extern "C" fn writemsg(ep: *mut FidEp, msg: *const MsgRma, flags: u64) -> isize {
    with(ep, |state, at| {
        // SAFETY: the application's structure; its pieces stay as they are until the completion.
        unsafe {
            let (what, pieces) = unpack(&*msg, flags)?;
            put(state, at, &what, &pieces)
        }
    })
}

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
    with(ep, |state, at| {
        let (flags, remote) = (state.eps[at].tx.default, RawRemote { addr, key });
        let what = Access {
            peer,
            remote,
            imm: Some(data),
            context,
            flags,
        };
        // SAFETY: as in `write`.
        unsafe { put(state, at, &what, &[piece(buf, len)]) }
    })
}

extern "C" fn inject(
    ep: *mut FidEp,
    buf: *const c_void,
    len: usize,
    peer: u64,
    addr: u64,
    key: u64,
) -> isize {
    // SAFETY: the application's bytes, for this call.
    inject_put(
        ep,
        unsafe { bytes(buf, len) },
        None,
        peer,
        RawRemote { addr, key },
    )
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
    // SAFETY: as in `inject`.
    inject_put(
        ep,
        unsafe { bytes(buf, len) },
        Some(data),
        peer,
        RawRemote { addr, key },
    )
}

fn inject_put(
    ep: *mut FidEp,
    bytes: &[u8],
    imm: Option<u64>,
    peer: u64,
    remote: RawRemote,
) -> isize {
    with(ep, |state, at| {
        let ep = &mut state.eps[at];
        let what = Access {
            peer,
            remote,
            imm,
            context: std::ptr::null_mut(),
            flags: 0,
        };
        let op = Op {
            reported: false,
            silent: true,
            ..what.op(WRITE, ep)
        };
        put_copy(ep, &what, op, bytes.to_vec())
    })
}
