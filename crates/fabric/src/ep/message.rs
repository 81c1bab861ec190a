// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages, tagged or not: from a call's arguments to an operation of the endpoint.

use portolan::{RawPiece, RawRecv, RawSend, RawSpace};

use super::pieces::{gather, total_len};
use super::{Ep, Op};
use crate::abi::*;
use crate::cq::Entry;
use crate::errno::Errno;
use crate::offer::INJECT_LEN_MAX;
use crate::state::{Delivery, State};

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
    let key = ep.ops.insert(Op {
        context: what.context,
        flags: SEND | kind(what.space),
        reported: ep.tx.reports(what.flags),
        silent: false,
        multi: false,
        holds: false,
    });
    // SAFETY: the caller's promise.
    let sent = unsafe { ep.engine.send(peer, &what.spec(), pieces, key as u64) };
    sent.map_err(|error| {
        ep.ops.remove(key);
        error.into()
    })
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
    let reported = state.eps[at].tx.reports(what.flags);
    inject(state, at, what, &bytes)?;
    let State { eps, cqs, .. } = state;
    if reported && let Some(queue) = eps[at].routes.tx_cq.and_then(|cq| cqs.get_mut(cq)) {
        let flags = SEND | kind(what.space);
        let nothing = Entry::default();
        queue.push(Entry {
            context: what.context,
            flags,
            ..nothing
        });
    }
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
    let State {
        eps, cqs, cntrs, ..
    } = state;
    let ep = &mut eps[at];
    let peer = ep.peer(what.to)?;
    ep.engine.inject(peer, &what.spec(), bytes)?;
    Delivery {
        routes: &ep.routes,
        cqs,
        cntrs,
    }
    .count(SEND);
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
