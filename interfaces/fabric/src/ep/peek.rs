// SPDX-License-Identifier: MIT OR Apache-2.0
//! Peeking at unexpected messages, claiming them (removing them from matching), and receiving
//! claimed messages.

use portolan::binding::{RawEnvelope, RawPiece, RawRecv};

use super::message::Incoming;
use crate::abi::*;
use crate::errno::Errno;
use crate::state::{Ep, State};

/// Runs a receive with `FI_PEEK` or `FI_CLAIM`.
///
/// # Safety
/// The pieces stay valid, and are not accessed, until the completion.
#[cold]
pub(super) unsafe fn recv(
    state: &mut State,
    at: usize,
    what: &Incoming,
    pieces: &[RawPiece],
) -> Result<(), Errno> {
    if !what.has_flag(PEEK) {
        // SAFETY: guaranteed by the caller.
        return unsafe { recv_claimed(state, at, what, pieces) };
    }
    let spec = what.spec(state.ep(at))?;
    let mut found = peek(state.ep(at), what, &spec)?;
    if found.is_none() {
        // The message may have arrived since the last turn of the endpoint.
        state.progress(at);
        found = peek(state.ep(at), what, &spec)?;
    }
    // The result is a completion, whether or not a message was found.
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

fn peek(ep: &mut Ep, what: &Incoming, spec: &RawRecv) -> Result<Option<RawEnvelope>, Errno> {
    if what.has_flag(DISCARD) {
        ep.discard(spec)
    } else if what.has_flag(CLAIM) {
        ep.claim(spec, what.name())
    } else {
        ep.peek(spec)
    }
}

/// Receives or discards a message that was claimed before.
///
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
    if what.has_flag(DISCARD) {
        let envelope = ep.discard_claimed(what.name())?;
        state.found(at, &op, &envelope, 0);
        return Ok(());
    }
    // SAFETY: guaranteed by the caller.
    unsafe { ep.recv_claimed(what.name(), pieces, op) }
}
