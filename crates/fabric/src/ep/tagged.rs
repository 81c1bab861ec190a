// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tagged messages: the table of operations. `desc` arguments mean nothing here, since memory needs no
//! registration to be sent from.

use std::ffi::c_void;

use libc::iovec;
use portolan::RawSpace;

use super::message::{Incoming, Outgoing, inject as inject_bytes, recv as post, send as submit};
use super::pieces::{Pieces, bytes, piece};
use super::with;
use crate::abi::*;

pub(super) static OPS: OpsTagged = OpsTagged {
    size: size_of::<OpsTagged>(),
    recv,
    recvv,
    recvmsg,
    send,
    sendv,
    sendmsg,
    inject,
    senddata,
    injectdata,
};

extern "C" fn recv(
    ep: *mut FidEp,
    buf: *mut c_void,
    len: usize,
    _desc: *mut c_void,
    from: u64,
    tag: u64,
    ignore: u64,
    context: *mut c_void,
) -> isize {
    with(ep, |state, at| {
        let flags = state.eps[at].rx.default;
        let space = RawSpace::Tagged(tag);
        let what = Incoming {
            from,
            space,
            ignore,
            context: context as usize,
            flags,
        };
        // SAFETY: the application leaves the buffer alone until the completion.
        unsafe { post(state, at, &what, &[piece(buf, len)]) }
    })
}

extern "C" fn recvv(
    ep: *mut FidEp,
    iov: *const iovec,
    _desc: *mut *mut c_void,
    count: usize,
    from: u64,
    tag: u64,
    ignore: u64,
    context: *mut c_void,
) -> isize {
    with(ep, |state, at| {
        let flags = state.eps[at].rx.default;
        let space = RawSpace::Tagged(tag);
        let what = Incoming {
            from,
            space,
            ignore,
            context: context as usize,
            flags,
        };
        // SAFETY: as in `recv`, for each of the pieces.
        unsafe { post(state, at, &what, &Pieces::of_iov(iov, count)?) }
    })
}

extern "C" fn recvmsg(ep: *mut FidEp, msg: *const MsgTagged, flags: u64) -> isize {
    with(ep, |state, at| {
        // SAFETY: the application's structure; its pieces are left alone until the completion.
        unsafe {
            let msg = &*msg;
            let (from, context) = (msg.addr, msg.context as usize);
            let space = RawSpace::Tagged(msg.tag);
            let what = Incoming {
                from,
                space,
                ignore: msg.ignore,
                context,
                flags,
            };
            post(state, at, &what, &Pieces::of_iov(msg.iov, msg.iov_count)?)
        }
    })
}

extern "C" fn send(
    ep: *mut FidEp,
    buf: *const c_void,
    len: usize,
    _desc: *mut c_void,
    to: u64,
    tag: u64,
    context: *mut c_void,
) -> isize {
    with(ep, |state, at| {
        let flags = state.eps[at].tx.default;
        let space = RawSpace::Tagged(tag);
        let what = Outgoing {
            to,
            space,
            imm: None,
            context: context as usize,
            flags,
        };
        // SAFETY: the application leaves the message as it is until the completion.
        unsafe { submit(state, at, &what, &[piece(buf, len)]) }
    })
}

extern "C" fn sendv(
    ep: *mut FidEp,
    iov: *const iovec,
    _desc: *mut *mut c_void,
    count: usize,
    to: u64,
    tag: u64,
    context: *mut c_void,
) -> isize {
    with(ep, |state, at| {
        let flags = state.eps[at].tx.default;
        let space = RawSpace::Tagged(tag);
        let what = Outgoing {
            to,
            space,
            imm: None,
            context: context as usize,
            flags,
        };
        // SAFETY: as in `send`, for each of the pieces.
        unsafe { submit(state, at, &what, &Pieces::of_iov(iov, count)?) }
    })
}

extern "C" fn sendmsg(ep: *mut FidEp, msg: *const MsgTagged, flags: u64) -> isize {
    with(ep, |state, at| {
        // SAFETY: the application's structure; its pieces stay as they are until the completion.
        unsafe {
            let msg = &*msg;
            let imm = (flags & REMOTE_CQ_DATA != 0).then_some(msg.data);
            let (to, context) = (msg.addr, msg.context as usize);
            let space = RawSpace::Tagged(msg.tag);
            let what = Outgoing {
                to,
                space,
                imm,
                context,
                flags,
            };
            submit(state, at, &what, &Pieces::of_iov(msg.iov, msg.iov_count)?)
        }
    })
}

extern "C" fn inject(ep: *mut FidEp, buf: *const c_void, len: usize, to: u64, tag: u64) -> isize {
    with(ep, |state, at| {
        let space = RawSpace::Tagged(tag);
        let what = Outgoing {
            to,
            space,
            imm: None,
            context: 0,
            flags: 0,
        };
        // SAFETY: the application's message, for this call.
        inject_bytes(state, at, &what, unsafe { bytes(buf, len) })
    })
}

extern "C" fn senddata(
    ep: *mut FidEp,
    buf: *const c_void,
    len: usize,
    _desc: *mut c_void,
    data: u64,
    to: u64,
    tag: u64,
    context: *mut c_void,
) -> isize {
    with(ep, |state, at| {
        let flags = state.eps[at].tx.default;
        let (space, context) = (RawSpace::Tagged(tag), context as usize);
        let what = Outgoing {
            to,
            space,
            imm: Some(data),
            context,
            flags,
        };
        // SAFETY: as in `send`.
        unsafe { submit(state, at, &what, &[piece(buf, len)]) }
    })
}

extern "C" fn injectdata(
    ep: *mut FidEp,
    buf: *const c_void,
    len: usize,
    data: u64,
    to: u64,
    tag: u64,
) -> isize {
    with(ep, |state, at| {
        let space = RawSpace::Tagged(tag);
        let what = Outgoing {
            to,
            space,
            imm: Some(data),
            context: 0,
            flags: 0,
        };
        // SAFETY: as in `inject`.
        inject_bytes(state, at, &what, unsafe { bytes(buf, len) })
    })
}
