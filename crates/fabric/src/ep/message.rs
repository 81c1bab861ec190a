// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages, tagged or not: from a call's arguments to an operation of the endpoint.

use std::ffi::c_void;

use portolan::{RawPiece, RawRecv, RawSend, RawSpace, Sent};

use super::pieces::{Memory, One, gather, total_len};
use super::{Ep, Op, with};
use crate::abi::*;
use crate::errno::Errno;
use crate::offer::INJECT_LEN_MAX;
use crate::state::State;

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
    pub(super) context: *mut c_void,
    pub(super) flags: u64,
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
        let what = what(state.eps[at].tx.default);
        // SAFETY: the caller's promise.
        unsafe { send(state, at, &what, memory.pieces()?.as_ref()) }
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
    with(ep, |state, at| inject(state, at, what, bytes))
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
        let what = what(state.eps[at].rx.default);
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
    fn op(&self, ep: &Ep) -> Op {
        let flags = SEND | kind(self.space);
        Op::new(self.context, flags, ep.tx.reports(self.flags))
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
        Op::new(self.context, flags, ep.rx.reports(self.flags))
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
) -> Result<(), Errno> {
    if what.flags & INJECT != 0 {
        // SAFETY: the caller's promise, for this call.
        return unsafe { send_copy(state, at, what, pieces) };
    }
    let ep = &mut state.eps[at];
    let peer = ep.peer(what.to)?;
    let op = what.op(ep);
    // SAFETY: the caller's promise.
    let sent = unsafe { ep.engine.send(peer, &what.spec(), pieces, op.into()) }?;
    if sent == Sent::Done {
        state.delivery(at).succeed(&op, op.entry());
    }
    Ok(())
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
) -> Result<(), Errno> {
    if total_len(pieces) > INJECT_LEN_MAX {
        return Err(Errno::MSGSIZE);
    }
    // SAFETY: the caller's promise.
    let bytes = unsafe { gather(pieces) };
    let ep = &mut state.eps[at];
    let peer = ep.peer(what.to)?;
    ep.engine.inject(peer, &what.spec(), &bytes)?;
    let op = what.op(ep);
    state.delivery(at).succeed(&op, op.entry());
    Ok(())
}

/// Send a copy, without a completion.
#[inline(always)]
fn inject(state: &mut State, at: usize, what: &Outgoing, bytes: &[u8]) -> Result<(), Errno> {
    let ep = &mut state.eps[at];
    let peer = ep.peer(what.to)?;
    ep.engine.inject(peer, &what.spec(), bytes)?;
    state.delivery(at).count(SEND);
    Ok(())
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
    if what.flags & (PEEK | CLAIM) != 0 {
        // SAFETY: the caller's promise.
        return unsafe { super::peek::recv(state, at, what, pieces) };
    }
    let ep = &mut state.eps[at];
    let spec = what.spec(ep)?;
    let cookie = what.op(ep).into();
    if what.flags & MULTI_RECV != 0 {
        let &[buffer] = pieces else {
            return Err(Errno::INVAL);
        };
        // SAFETY: the caller's promise.
        unsafe { ep.engine.recv_multi(&spec, buffer, ep.min_free, cookie) }?;
    } else {
        // SAFETY: the caller's promise.
        unsafe { ep.engine.recv(&spec, pieces, cookie) }?;
    }
    Ok(())
}
