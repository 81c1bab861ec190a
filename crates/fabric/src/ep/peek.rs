// SPDX-License-Identifier: MIT OR Apache-2.0
//! Looking at messages that nobody has received yet, taking them out of matching, and receiving
//! those that were taken out.

use portolan::{RawEnvelope, RawPiece, RawRecv};

use super::Claimed;
use super::message::Incoming;
use crate::abi::*;
use crate::cq::{Entry, Failure};
use crate::errno::{self, Errno};
use crate::state::State;

/// Do what a receive with `FI_PEEK` or `FI_CLAIM` asks for.
///
/// # Safety
/// The pieces stay valid, and are not used, until the completion.
#[cold]
pub(super) unsafe fn recv(
    state: &mut State,
    at: usize,
    what: &Incoming,
    pieces: &[RawPiece],
) -> Result<(), Errno> {
    if what.flags & PEEK == 0 {
        // SAFETY: the caller's promise.
        return unsafe { recv_claimed(state, at, what, pieces) };
    }
    let spec = what.spec(&state.eps[at])?;
    let mut found = look(state, at, what, &spec)?;
    if found.is_none() {
        // It may have arrived since the endpoint worked last.
        state.progress(at);
        found = look(state, at, what, &spec)?;
    }
    report(state, at, what, found);
    Ok(())
}

fn look(
    state: &mut State,
    at: usize,
    what: &Incoming,
    spec: &RawRecv,
) -> Result<Option<RawEnvelope>, Errno> {
    let ep = &mut state.eps[at];
    if what.flags & (CLAIM | DISCARD) == 0 {
        return Ok(ep.engine.peek(spec)?);
    }
    let Some((claim, envelope)) = ep.engine.claim(spec)? else {
        return Ok(None);
    };
    if what.flags & DISCARD != 0 {
        ep.engine.discard(claim);
    } else {
        ep.claims.push(Claimed {
            context: what.context as usize,
            claim,
            envelope,
        });
    }
    Ok(Some(envelope))
}

/// The answer is a completion, found or not.
fn report(state: &mut State, at: usize, what: &Incoming, found: Option<RawEnvelope>) {
    if let Some(envelope) = found {
        let len = usize::try_from(envelope.len).unwrap_or(usize::MAX);
        return report_message(state, at, what, &envelope, len);
    }
    let State { eps, cqs, .. } = state;
    let ep = &eps[at];
    if let Some(queue) = ep.routes.rx_cq.and_then(|cq| cqs.get_mut(cq)) {
        let (errno, text) = match ep.engine.shortage() {
            Some(error) => (errno::of_completion(&error), error.to_string()),
            None => (Errno(libc::ENOMSG), "no such message has come".to_owned()),
        };
        queue.fail(Failure {
            entry: Entry {
                context: what.context as usize,
                flags: what.op(ep).flags,
                ..Entry::default()
            },
            beyond: 0,
            errno,
            text,
        });
    }
}

/// Tell of a message of which `len` bytes were found, or none received.
fn report_message(
    state: &mut State,
    at: usize,
    what: &Incoming,
    envelope: &RawEnvelope,
    len: usize,
) {
    let State { eps, cqs, .. } = state;
    let ep = &eps[at];
    let Some(queue) = ep.routes.rx_cq.and_then(|cq| cqs.get_mut(cq)) else {
        return;
    };
    let has_data = if envelope.imm.is_some() {
        REMOTE_CQ_DATA
    } else {
        0
    };
    queue.push(Entry {
        context: what.context as usize,
        flags: what.op(ep).flags | has_data,
        len,
        buf: 0,
        data: envelope.imm.unwrap_or(0),
        tag: envelope.tag,
        source: ep.routes.source(Some(envelope.source)),
    });
}

/// # Safety
/// As for [`recv`].
unsafe fn recv_claimed(
    state: &mut State,
    at: usize,
    what: &Incoming,
    pieces: &[RawPiece],
) -> Result<(), Errno> {
    let ep = &mut state.eps[at];
    let same = |claimed: &Claimed| claimed.context == what.context as usize;
    let place = ep.claims.iter().position(same).ok_or(Errno::INVAL)?;
    let Claimed {
        claim, envelope, ..
    } = ep.claims.swap_remove(place);
    if what.flags & DISCARD != 0 {
        ep.engine.discard(claim);
        report_message(state, at, what, &envelope, 0);
        return Ok(());
    }
    let cookie = what.op(ep).into();
    // SAFETY: the caller's promise.
    unsafe { ep.engine.recv_claimed(claim, pieces, cookie) }?;
    Ok(())
}
