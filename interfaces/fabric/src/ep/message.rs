// SPDX-License-Identifier: MIT OR Apache-2.0
//! Plain and tagged messages: converts a call's arguments to an operation of the endpoint.

use std::ffi::c_void;

use portolan::binding::{RawPiece, RawRecv, RawSend, RawSpace};

use super::pieces::{Buffer, Memory, gather, total_len};
use super::{peek, with};
use crate::abi::*;
use crate::errno::Errno;
use crate::offer::INJECT_LEN_MAX;
use crate::state::{Ep, Op, Side, State};

/// Arguments of a send.
pub(super) struct Outgoing {
    to: u64,
    space: RawSpace,
    imm: Option<u64>,
    context: *mut c_void,
    flags: u64,
}

/// Arguments of a receive.
pub(super) struct Incoming {
    from: u64,
    space: RawSpace,
    ignore: u64,
    context: *mut c_void,
    flags: u64,
}

/// Sends a message. `what` creates the arguments from the default flags, which apply to calls
/// without flags.
///
/// # Safety
/// The memory is not changed until the completion.
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
        // SAFETY: guaranteed by the caller.
        unsafe { send(state, at, &what, memory.pieces()?.as_ref(), &op) }
    })
}

/// Sends a copy, without a completion.
///
/// # Safety
/// The memory is readable now.
#[inline(always)]
pub(super) unsafe fn submit_copy(ep: *mut FidEp, memory: Buffer, what: &Outgoing) -> isize {
    with(ep, |state, at| {
        if memory.len() > INJECT_LEN_MAX {
            return Err(Errno::MSGSIZE);
        }
        // SAFETY: guaranteed by the caller.
        let bytes = unsafe { memory.bytes() };
        state.inject(at, what.to, &what.spec(), bytes)
    })
}

/// Posts a receive. `what` creates the arguments from the default flags, which apply to calls
/// without flags.
///
/// # Safety
/// The memory is not accessed until the completion.
#[inline(always)]
pub(super) unsafe fn post(
    ep: *mut FidEp,
    memory: impl Memory,
    what: impl FnOnce(u64) -> Incoming,
) -> isize {
    with(ep, |state, at| {
        let what = what(state.ep(at).rx().default_flags());
        // SAFETY: guaranteed by the caller.
        unsafe { recv(state, at, &what, memory.pieces()?.as_ref()) }
    })
}

/// Returns the flags that completions of this kind of message carry.
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

    /// Returns true if the call has one of these flags.
    #[inline]
    pub(super) fn has_flag(&self, flags: u64) -> bool {
        self.flags & flags != 0
    }

    /// Returns the application's name for a message that it removes from matching.
    pub(super) fn name(&self) -> usize {
        self.context as usize
    }
}

/// Sends a message.
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
        // SAFETY: guaranteed by the caller, for this call.
        return unsafe { send_copy(state, at, what, pieces, op) };
    }
    // SAFETY: guaranteed by the caller.
    unsafe { state.send(at, what.to, &what.spec(), pieces, op) }
}

/// Sends a copy, so that the memory may be reused at once, with a completion.
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
    // SAFETY: guaranteed by the caller.
    let bytes = unsafe { gather(pieces) };
    state.send_copy(at, what.to, &what.spec(), &bytes, op)
}

/// Posts a receive.
///
/// # Safety
/// The pieces stay valid, and are not accessed, until the completion.
#[inline(always)]
unsafe fn recv(
    state: &mut State,
    at: usize,
    what: &Incoming,
    pieces: &[RawPiece],
) -> Result<(), Errno> {
    if what.has_flag(PEEK | CLAIM) {
        // SAFETY: guaranteed by the caller.
        return unsafe { peek::recv(state, at, what, pieces) };
    }
    let ep = state.ep(at);
    let spec = what.spec(ep)?;
    let op = what.op(ep);
    if what.has_flag(MULTI_RECV) {
        let &[buffer] = pieces else {
            return Err(Errno::INVAL);
        };
        // SAFETY: guaranteed by the caller.
        unsafe { ep.recv_multi(&spec, buffer, op) }
    } else {
        // SAFETY: guaranteed by the caller.
        unsafe { ep.recv(&spec, pieces, op) }
    }
}
