// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages, tagged or not: from a call's arguments to an operation of the endpoint.

use portolan::{RawPiece, RawRecv, RawSend, RawSpace, Sent};

use super::pieces::{gather, total_len};
use super::{Ep, Op};
use crate::abi::*;
use crate::errno::Errno;
use crate::offer::INJECT_LEN_MAX;
use crate::state::State;

/// A message to send.
pub(super) struct Outgoing {
    pub(super) to: u64,
    pub(super) space: RawSpace,
    pub(super) imm: Option<u64>,
    pub(super) context: usize,
    pub(super) flags: u64,
}

/// A message to receive.
pub(super) struct Incoming {
    pub(super) from: u64,
    pub(super) space: RawSpace,
    pub(super) ignore: u64,
    pub(super) context: usize,
    pub(super) flags: u64,
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
        Op {
            context: self.context,
            flags: SEND | kind(self.space),
            reported: ep.tx.reports(self.flags),
            silent: false,
            multi: false,
            holds: false,
        }
    }
}

impl Incoming {
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
        Op {
            context: self.context,
            flags: RECV | kind(self.space),
            reported: ep.rx.reports(self.flags),
            silent: false,
            multi: self.flags & MULTI_RECV != 0,
            holds: false,
        }
    }
}

/// Send.
///
/// # Safety
/// The pieces stay valid until the completion.
#[inline]
pub(super) unsafe fn send(
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
    let place = ep.ops.vacant_entry();
    let key = place.key() as u64;
    // SAFETY: the caller's promise.
    match unsafe { ep.engine.send(peer, &what.spec(), pieces, key) }? {
        Sent::Done => state.delivery(at).succeed(&op, op.entry()),
        Sent::Pending => {
            place.insert(op);
        }
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
#[inline]
pub(super) fn inject(
    state: &mut State,
    at: usize,
    what: &Outgoing,
    bytes: &[u8],
) -> Result<(), Errno> {
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
#[inline]
pub(super) unsafe fn recv(
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
    let op = what.op(ep);
    let key = ep.ops.insert(op);
    let posted = if op.multi {
        let &[buffer] = pieces else {
            ep.ops.remove(key);
            return Err(Errno::INVAL);
        };
        // SAFETY: the caller's promise.
        unsafe { ep.engine.recv_multi(&spec, buffer, ep.min_free, key as u64) }
    } else {
        // SAFETY: the caller's promise.
        unsafe { ep.engine.recv(&spec, pieces, key as u64) }
    };
    posted.map_err(|error| {
        ep.ops.remove(key);
        error.into()
    })
}
