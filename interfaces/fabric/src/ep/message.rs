// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages, tagged or not: from a call's arguments to an operation of the endpoint.

use std::ffi::c_void;

use portolan::{RawPiece, RawRecv, RawSend, RawSpace};

use super::pieces::{Memory, One, gather, total_len};
use super::{peek, with};
use crate::abi::*;
use crate::errno::Errno;
use crate::offer::INJECT_LEN_MAX;
use crate::state::{Ep, Op, Side, State};

/// A message to send.
pub(super) struct Outgoing {
    to: u64,
    space: RawSpace,
    imm: Option<u64>,
    context: *mut c_void,
    flags: u64,
}

/// A message to receive.
pub(super) struct Incoming {
    from: u64,
    space: RawSpace,
    ignore: u64,
    context: *mut c_void,
    flags: u64,
}

/// Send. `what` makes a message of the flags of calls that pass none.
///
/// # Safety
/// The memory stays as it is until the completion.
#[inline(always)]
pub(super) unsafe fn submit(
    ep: *mut FidEp,
    memory: impl Memory,
    what: impl FnOnce(u64) -> Outgoing,
) -> isize {
    with(ep, |state, at| {
        let tx = state.ep(at).tx();
        let what = what(tx.default_flags());
        let op = what.op(tx);
        // SAFETY: the caller's promise.
        unsafe { send(state, at, &what, memory.pieces()?.as_ref(), &op) }
    })
}

/// Send a copy, without a completion.
///
/// # Safety
/// The memory is readable now.
#[inline(always)]
pub(super) unsafe fn submit_copy(ep: *mut FidEp, memory: One, what: &Outgoing) -> isize {
    // SAFETY: the caller's promise.
    let bytes = unsafe { memory.bytes() };
    with(ep, |state, at| {
        state.inject(at, what.to, &what.spec(), bytes)
    })
}

/// Post a buffer. `what` makes a message of the flags of calls that pass none.
///
/// # Safety
/// The memory is left alone until the completion.
#[inline(always)]
pub(super) unsafe fn post(
    ep: *mut FidEp,
    memory: impl Memory,
    what: impl FnOnce(u64) -> Incoming,
) -> isize {
    with(ep, |state, at| {
        let what = what(state.ep(at).rx().default_flags());
        // SAFETY: the caller's promise.
        unsafe { recv(state, at, &what, memory.pieces()?.as_ref()) }
    })
}

/// What the completions of this kind of message say.
#[inline]
fn kind(space: RawSpace) -> u64 {
    match space {
        RawSpace::Plain => MSG,
        RawSpace::Tagged(_) => TAGGED,
    }
}

impl Outgoing {
    #[inline]
    pub(super) fn plain(to: u64, imm: Option<u64>, context: *mut c_void, flags: u64) -> Outgoing {
        Outgoing {
            to,
            space: RawSpace::Plain,
            imm,
            context,
            flags,
        }
    }

    #[inline]
    pub(super) fn tagged(self, tag: u64) -> Outgoing {
        let space = RawSpace::Tagged(tag);
        Outgoing { space, ..self }
    }

    #[inline]
    fn spec(&self) -> RawSend {
        let delivered = self.flags & (DELIVERY_COMPLETE | MATCH_COMPLETE) != 0;
        RawSend {
            space: self.space,
            imm: self.imm,
            delivered,
        }
    }

    #[inline]
    fn op(&self, tx: Side) -> Op {
        let flags = SEND | kind(self.space);
        tx.op(self.context, flags, self.flags)
    }
}

impl Incoming {
    #[inline]
    pub(super) fn plain(from: u64, context: *mut c_void, flags: u64) -> Incoming {
        Incoming {
            from,
            space: RawSpace::Plain,
            ignore: 0,
            context,
            flags,
        }
    }

    #[inline]
    pub(super) fn tagged(self, tag: u64, ignore: u64) -> Incoming {
        let space = RawSpace::Tagged(tag);
        Incoming {
            space,
            ignore,
            ..self
        }
    }

    #[inline]
    pub(super) fn spec(&self, ep: &Ep) -> Result<RawRecv, Errno> {
        Ok(RawRecv {
            space: self.space,
            ignore: self.ignore,
            source: ep.source(self.from)?,
        })
    }

    #[inline]
    pub(super) fn op(&self, ep: &Ep) -> Op {
        let flags = RECV | kind(self.space);
        ep.rx().op(self.context, flags, self.flags)
    }

    /// Whether the call has one of these flags.
    #[inline]
    pub(super) fn asks_for(&self, flags: u64) -> bool {
        self.flags & flags != 0
    }

    /// What the application calls a message by that it takes out of matching.
    pub(super) fn name(&self) -> usize {
        self.context as usize
    }
}

/// Send.
///
/// # Safety
/// The pieces stay valid until the completion.
#[inline(always)]
unsafe fn send(
    state: &mut State,
    at: usize,
    what: &Outgoing,
    pieces: &[RawPiece],
    op: &Op,
) -> Result<(), Errno> {
    if what.flags & INJECT != 0 {
        // SAFETY: the caller's promise, for this call.
        return unsafe { send_copy(state, at, what, pieces, op) };
    }
    // SAFETY: the caller's promise.
    unsafe { state.send(at, what.to, &what.spec(), pieces, op) }
}

/// Send what may be reused at once, and yet is reported.
///
/// # Safety
/// The pieces are readable now.
#[cold]
unsafe fn send_copy(
    state: &mut State,
    at: usize,
    what: &Outgoing,
    pieces: &[RawPiece],
    op: &Op,
) -> Result<(), Errno> {
    if total_len(pieces) > INJECT_LEN_MAX {
        return Err(Errno::MSGSIZE);
    }
    // SAFETY: the caller's promise.
    let bytes = unsafe { gather(pieces) };
    state.send_copy(at, what.to, &what.spec(), &bytes, op)
}

/// Post a buffer.
///
/// # Safety
/// The pieces stay valid, and are not used, until the completion.
#[inline(always)]
unsafe fn recv(
    state: &mut State,
    at: usize,
    what: &Incoming,
    pieces: &[RawPiece],
) -> Result<(), Errno> {
    if what.asks_for(PEEK | CLAIM) {
        // SAFETY: the caller's promise.
        return unsafe { peek::recv(state, at, what, pieces) };
    }
    let ep = state.ep(at);
    let spec = what.spec(ep)?;
    let op = what.op(ep);
    if what.asks_for(MULTI_RECV) {
        let &[buffer] = pieces else {
            return Err(Errno::INVAL);
        };
        // SAFETY: the caller's promise.
        unsafe { ep.recv_multi(&spec, buffer, op) }
    } else {
        // SAFETY: the caller's promise.
        unsafe { ep.recv(&spec, pieces, op) }
    }
}
