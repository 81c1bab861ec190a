// SPDX-License-Identifier: MIT OR Apache-2.0
//! Looking at messages that nobody has received yet, taking them out of matching, and receiving
//! those that were taken out.

use portolan::{RawEnvelope, RawPiece, RawRecv};

use super::message::Incoming;
use crate::abi::*;
use crate::errno::Errno;
use crate::state::{Ep, State};

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
    if !what.asks_for(PEEK) {
        // SAFETY: the caller's promise.
        return unsafe { recv_claimed(state, at, what, pieces) };
    }
    let spec = what.spec(state.ep(at))?;
    let mut found = look(state.ep(at), what, &spec)?;
    if found.is_none() {
        // It may have arrived since the endpoint worked last.
        state.progress(at);
        found = look(state.ep(at), what, &spec)?;
    }
    // The answer is a completion, found or not.
    let op = what.op(state.ep(at));
    match found {
        Some(envelope) => {
            let len = usize::try_from(envelope.len).unwrap_or(usize::MAX);
            state.found(at, &op, &envelope, len);
        }
        None => state.not_found(at, &op),
    }
    Ok(())
}

fn look(ep: &mut Ep, what: &Incoming, spec: &RawRecv) -> Result<Option<RawEnvelope>, Errno> {
    if what.asks_for(DISCARD) {
        ep.discard(spec)
    } else if what.asks_for(CLAIM) {
        ep.claim(spec, what.name())
    } else {
        ep.peek(spec)
    }
}

/// # Safety
/// As for [`recv`].
unsafe fn recv_claimed(
    state: &mut State,
    at: usize,
    what: &Incoming,
    pieces: &[RawPiece],
) -> Result<(), Errno> {
    let ep = state.ep(at);
    let op = what.op(ep);
    if what.asks_for(DISCARD) {
        let envelope = ep.discard_claimed(what.name())?;
        state.found(at, &op, &envelope, 0);
        return Ok(());
    }
    // SAFETY: the caller's promise.
    unsafe { ep.recv_claimed(what.name(), pieces, op) }
}
