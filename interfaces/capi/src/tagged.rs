// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tagged messages: matched by a 64-bit tag and the sender, instead of a port.

use crate::code::*;
use crate::failure::{Failure, guard, timed_out, timeout};
use crate::handle::{Caller, enter, enter_any, portolan_node_t};
use crate::memory::{self, Out};
use crate::request::{begin_waited, call};
use crate::types::*;
use portolan::{Envelope, Error, Lane, Request, TagMatch, TagTarget};
use std::ffi::{c_int, c_void};

/// Converts the destination of a tagged message.
///
/// # Safety
/// `imm` is null or points to a word.
#[inline]
unsafe fn target(rank: u32, tag: u64, imm: *const u64, flags: u32) -> Result<TagTarget, Failure> {
    if flags & !PORTOLAN_HIGH != 0 {
        let text = format!("flags {flags:#x}: a tagged send accepts PORTOLAN_HIGH only");
        return Err(Failure::new(PORTOLAN_ERR_ARGUMENT, text));
    }
    let mut target = TagTarget::new(rank, tag);
    if flags != 0 {
        target = target.lane(Lane::High);
    }
    if !imm.is_null() {
        // SAFETY: not null; the caller guarantees the rest.
        target = target.imm(unsafe { imm.read() });
    }
    Ok(target)
}

#[inline]
pub(crate) fn which(tag: u64, ignore: u64, source: u32) -> TagMatch {
    let which = TagMatch::new(tag).ignore(ignore);
    match source {
        PORTOLAN_ANY_SOURCE => which,
        source => which.source(source),
    }
}

/// Describes a message that did not fit its buffer; `None` for other errors.
pub(crate) fn truncated(error: &Error) -> Option<portolan_envelope_t> {
    let (len, source, tag, imm) = match *error {
        Error::Truncated {
            source_rank,
            message_len,
            ..
        } => (message_len, source_rank, 0, None),
        Error::TruncatedTagged {
            source_rank,
            tag,
            imm,
            message_len,
            ..
        } => (message_len, source_rank, tag, imm),
        _ => return None,
    };
    Some(portolan_envelope_t {
        size: 0,
        len,
        tag,
        imm: imm.unwrap_or(0),
        source,
        has_imm: u32::from(imm.is_some()),
    })
}

pub(crate) fn to_c(envelope: &Envelope) -> portolan_envelope_t {
    portolan_envelope_t {
        size: 0,
        len: envelope.len as u64,
        tag: envelope.tag,
        imm: envelope.imm.unwrap_or(0),
        source: envelope.source,
        has_imm: u32::from(envelope.imm.is_some()),
    }
}

/// Sends `len` bytes to process `rank` like portolan_send(). The receiver matches the message by
/// `tag` instead of by port. If `imm` is not null, the receiver also gets that word. `flags`: 0 or
/// PORTOLAN_HIGH. Messages to one rank and lane, whether tagged or sent to ports, are matched in
/// sending order.
///
/// Errors: those of portolan_send().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_send_tagged(
    node: *mut portolan_node_t,
    rank: u32,
    tag: u64,
    imm: *const u64,
    buffer: *const c_void,
    len: usize,
    flags: u32,
) -> c_int {
    guard(|| {
        // SAFETY: guaranteed by the program.
        let (mut entered, bytes) =
            unsafe { (enter(node)?, memory::bytes("the buffer", buffer, len)?) };
        // SAFETY: guaranteed by the program.
        let target = unsafe { target(rank, tag, imm, flags)? };
        entered.node()?.send_tagged(target, bytes)?;
        Ok(PORTOLAN_OK)
    })
}

/// Starts a nonblocking portolan_send_tagged(); see portolan_isend(). Handlers may call it.
///
/// Errors: those of portolan_send().
#[unsafe(no_mangle)]
#[allow(
    clippy::too_many_arguments,
    reason = "as many as C programs of this kind have"
)]
pub unsafe extern "C" fn portolan_isend_tagged(
    node: *mut portolan_node_t,
    rank: u32,
    tag: u64,
    imm: *const u64,
    buffer: *const c_void,
    len: usize,
    flags: u32,
    request: *mut portolan_request_t,
) -> c_int {
    let operation = |caller: Caller| {
        // SAFETY: guaranteed by the program.
        let buffer = unsafe { memory::send_buffer(buffer, len)? };
        // SAFETY: guaranteed by the program.
        let target = unsafe { target(rank, tag, imm, flags)? };
        Ok(call!(caller.isend_tagged(target, buffer)))
    };
    // SAFETY: guaranteed by the program.
    unsafe { begin_waited(node, request, operation) }
}

/// Starts a nonblocking send of a tagged copy; see portolan_isend_copy(). Handlers may call it.
///
/// Errors: those of portolan_send().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_isend_tagged_copy(
    node: *mut portolan_node_t,
    rank: u32,
    tag: u64,
    imm: *const u64,
    buffer: *const c_void,
    len: usize,
    flags: u32,
) -> c_int {
    guard(|| {
        // SAFETY: guaranteed by the program.
        let (caller, bytes) =
            unsafe { (enter_any(node)?, memory::bytes("the buffer", buffer, len)?) };
        // SAFETY: guaranteed by the program.
        let target = unsafe { target(rank, tag, imm, flags)? };
        match caller {
            Caller::Program(mut entered) => entered.node()?.isend_tagged_copy(target, bytes)?,
            Caller::Handler(context) => context.send_tagged(target, bytes)?,
        }
        Ok(PORTOLAN_OK)
    })
}

/// Posts a buffer for the first message that matches no earlier receive and has `tag`, except for
/// the bits in `ignore`, from process `source`, or from any with PORTOLAN_ANY_SOURCE. See
/// portolan_post_recv(). Handlers may call it.
///
/// Errors: PORTOLAN_ERR_NO_SUCH_RANK.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_post_recv_tagged(
    node: *mut portolan_node_t,
    tag: u64,
    ignore: u64,
    source: u32,
    buffer: *mut c_void,
    len: usize,
    request: *mut portolan_request_t,
) -> c_int {
    let operation = |caller: Caller| {
        // SAFETY: guaranteed by the program.
        let buffer = unsafe { memory::receive_buffer(buffer, len)? };
        let which = which(tag, ignore, source);
        Ok(call!(caller.post_recv_tagged(which, buffer)))
    };
    // SAFETY: guaranteed by the program.
    unsafe { begin_waited(node, request, operation) }
}

/// Waits for the first message that portolan_post_recv_tagged() would match, and stores its
/// properties in `*envelope`, which may be null.
///
/// Errors: PORTOLAN_ERR_TRUNCATED, with `*envelope` filled; PORTOLAN_ERR_NO_MEMORY,
/// PORTOLAN_ERR_NO_SUCH_RANK, PORTOLAN_ERR_PEER_GONE, PORTOLAN_ERR_NOBODY_LEFT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_recv_tagged(
    node: *mut portolan_node_t,
    tag: u64,
    ignore: u64,
    source: u32,
    buffer: *mut c_void,
    len: usize,
    envelope: *mut portolan_envelope_t,
) -> c_int {
    guard(|| {
        // SAFETY: guaranteed by the program.
        let (mut entered, bytes) =
            unsafe { (enter(node)?, memory::bytes_mut("the buffer", buffer, len)?) };
        // SAFETY: guaranteed by the program.
        let envelope = unsafe { Out::new("envelope", envelope)? };
        let which = which(tag, ignore, source);
        let done = entered.node()?.recv_tagged(which, bytes);
        envelope.fill_from(&done, to_c, truncated);
        done?;
        Ok(PORTOLAN_OK)
    })
}

/// Waits like portolan_recv_tagged(), at most `timeout_ns` nanoseconds. A long message that has begun
/// to arrive is received completely, even after that time.
///
/// Errors: PORTOLAN_ERR_TIMEOUT, and no message is lost; those of portolan_recv_tagged().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_recv_tagged_for(
    node: *mut portolan_node_t,
    tag: u64,
    ignore: u64,
    source: u32,
    buffer: *mut c_void,
    len: usize,
    timeout_ns: u64,
    envelope: *mut portolan_envelope_t,
) -> c_int {
    guard(|| {
        // SAFETY: guaranteed by the program.
        let (mut entered, bytes) =
            unsafe { (enter(node)?, memory::bytes_mut("the buffer", buffer, len)?) };
        // SAFETY: guaranteed by the program.
        let envelope = unsafe { Out::new("envelope", envelope)? };
        let (which, timeout) = (which(tag, ignore, source), timeout(timeout_ns));
        let done = entered.node()?.recv_tagged_timeout(which, bytes, timeout);
        let done = done.transpose();
        let done = done.ok_or_else(|| timed_out("no matching message has arrived", timeout))?;
        envelope.fill_from(&done, to_c, truncated);
        done?;
        Ok(PORTOLAN_OK)
    })
}

/// Makes progress once. Returns 1 if an unexpected message matches, and stores its properties in
/// `*envelope`; the message stays available to receives. Returns 0 if there is none.
///
/// Errors: PORTOLAN_ERR_NO_SUCH_RANK, PORTOLAN_ERR_NO_MEMORY; when there is none and none can
/// arrive, PORTOLAN_ERR_PEER_GONE with a `source`, PORTOLAN_ERR_NOBODY_LEFT without.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_peek(
    node: *mut portolan_node_t,
    tag: u64,
    ignore: u64,
    source: u32,
    envelope: *mut portolan_envelope_t,
) -> c_int {
    guard(|| {
        // SAFETY: guaranteed by the program.
        let (mut entered, envelope) = unsafe { (enter(node)?, Out::new("envelope", envelope)?) };
        let Some(found) = entered.node()?.peek(which(tag, ignore, source))? else {
            return Ok(0);
        };
        envelope.fill(&to_c(&found));
        Ok(1)
    })
}

/// Like portolan_peek(), but removes the message from matching with other receives, for
/// portolan_recv_claimed(). A claimed message keeps its memory until it is received.
///
/// Errors: those of portolan_peek().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_claim(
    node: *mut portolan_node_t,
    tag: u64,
    ignore: u64,
    source: u32,
    envelope: *mut portolan_envelope_t,
    claim: *mut portolan_claim_t,
) -> c_int {
    guard(|| {
        if claim.is_null() {
            return Err(Failure::null("claim"));
        }
        // SAFETY: guaranteed by the program.
        let (mut entered, envelope) = unsafe { (enter(node)?, Out::new("envelope", envelope)?) };
        let joined = entered.joined()?;
        let Some(claimed) = joined.node.claim(which(tag, ignore, source))? else {
            return Ok(0);
        };
        let found = *claimed.envelope();
        joined.claim_count += 1;
        joined.claims.insert(joined.claim_count, claimed);
        // SAFETY: not null; the program guarantees that it points to a claim.
        unsafe { claim.write(joined.claim_count) };
        envelope.fill(&to_c(&found));
        Ok(1)
    })
}

/// Posts a buffer for a claimed message. A buffer without bytes discards the message: the request
/// then completes with PORTOLAN_ERR_TRUNCATED, unless the message is empty too.
///
/// Errors: PORTOLAN_ERR_NO_CLAIM when it was received before, or is not valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_recv_claimed(
    node: *mut portolan_node_t,
    claim: portolan_claim_t,
    buffer: *mut c_void,
    len: usize,
    request: *mut portolan_request_t,
) -> c_int {
    let operation = |caller: Caller| {
        let mut entered = caller.program()?;
        // SAFETY: guaranteed by the program.
        let buffer = unsafe { memory::receive_buffer(buffer, len)? };
        let joined = entered.joined()?;
        let Some(claimed) = joined.claims.remove(&claim) else {
            let text = format!("claim {claim} does not exist, or its message was received before");
            return Err(Failure::new(PORTOLAN_ERR_NO_CLAIM, text));
        };
        Ok(joined.node.recv_claimed(claimed, buffer)?)
    };
    // SAFETY: guaranteed by the program.
    unsafe { begin_waited(node, request, operation) }
}

/// Cancels a posted receive, tagged or at a port without a handler. Returns 1, and the receive
/// completes with PORTOLAN_ERR_CANCELLED. Returns 0 for a send, or when a message has matched the
/// receive, which then completes normally. The request must be waited for in both cases.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_cancel(
    node: *mut portolan_node_t,
    request: portolan_request_t,
) -> c_int {
    guard(|| {
        // SAFETY: guaranteed by the program.
        let mut entered = unsafe { enter(node)? };
        Ok(c_int::from(
            entered.node()?.cancel(Request::from_raw(request)),
        ))
    })
}
