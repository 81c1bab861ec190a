// SPDX-License-Identifier: MIT OR Apache-2.0
//! Blocking sends and receives.

use crate::code::*;
use crate::failure::{Failure, guard, timed_out, timeout};
use crate::handle::{enter, portolan_node_t};
use crate::memory::{self, Out};
use crate::port;
use crate::tagged::truncated;
use crate::types::{
    PORTOLAN_ANY_SOURCE, PORTOLAN_BEST_EFFORT, PORTOLAN_HIGH, portolan_piece_t, portolan_received_t,
};
use portolan::binding::Plumbing as _;
use portolan::{Error, Lane, Received, Target};
use std::ffi::{c_int, c_void};

/// Maximum number of pieces of one message: the limit of one system call (IOV_MAX of Linux).
const PIECES_MAX: usize = 1024;

/// Converts the destination of a message.
#[inline]
pub(crate) fn target(rank: u32, port: u32, flags: u32) -> Result<Target, Failure> {
    let port = port::number(port)?;
    if flags == 0 {
        return Ok(Target::new(rank, port));
    }
    if flags & !(PORTOLAN_HIGH | PORTOLAN_BEST_EFFORT) != 0 {
        return Err(unknown_flags(flags));
    }
    let mut target = Target::new(rank, port);
    if flags & PORTOLAN_HIGH != 0 {
        target = target.lane(Lane::High);
    }
    if flags & PORTOLAN_BEST_EFFORT != 0 {
        target = target.best_effort();
    }
    Ok(target)
}

#[cold]
fn unknown_flags(flags: u32) -> Failure {
    let text =
        format!("flags {flags:#x}: a send accepts PORTOLAN_HIGH and PORTOLAN_BEST_EFFORT only");
    Failure::new(PORTOLAN_ERR_ARGUMENT, text)
}

/// Sends `len` bytes to `port` of process `rank`. The bytes may be reused when it returns. Short
/// messages are then copied, and have left or leave within microseconds; long ones have arrived.
/// `flags`: 0, or PORTOLAN_HIGH, PORTOLAN_BEST_EFFORT, or both. A message may be empty.
///
/// Errors: PORTOLAN_ERR_NO_SUCH_RANK, PORTOLAN_ERR_NO_PATH, PORTOLAN_ERR_NO_ANSWER,
/// PORTOLAN_ERR_PEER_GONE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_send(
    node: *mut portolan_node_t,
    rank: u32,
    port: u32,
    buffer: *const c_void,
    len: usize,
    flags: u32,
) -> c_int {
    guard(|| {
        // SAFETY: guaranteed by the program.
        let (mut entered, bytes) =
            unsafe { (enter(node)?, memory::bytes("the buffer", buffer, len)?) };
        entered.node()?.send(target(rank, port, flags)?, bytes)?;
        Ok(PORTOLAN_OK)
    })
}

/// Waits at most `timeout_ns` nanoseconds until the receiver accepts `len` bytes of any length. They
/// are copied, and sent as if by portolan_isend_copy(). A receiver accepts nothing while it has 512
/// KiB of unread messages of this process and lane, or has not yet answered. `flags`: as for
/// portolan_send().
///
/// Errors: PORTOLAN_ERR_TIMEOUT, and the message is not sent; those of portolan_send().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_send_for(
    node: *mut portolan_node_t,
    rank: u32,
    port: u32,
    buffer: *const c_void,
    len: usize,
    flags: u32,
    timeout_ns: u64,
) -> c_int {
    guard(|| {
        // SAFETY: guaranteed by the program.
        let (mut entered, bytes) =
            unsafe { (enter(node)?, memory::bytes("the buffer", buffer, len)?) };
        let (target, timeout) = (target(rank, port, flags)?, timeout(timeout_ns));
        match entered.node()?.send_timeout(target, bytes, timeout)? {
            true => Ok(PORTOLAN_OK),
            false => Err(timed_out("the receiver has accepted no message", timeout)),
        }
    })
}

/// Sends `count` pieces as one message, like portolan_send().
///
/// Errors: those of portolan_send().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_send_gather(
    node: *mut portolan_node_t,
    rank: u32,
    port: u32,
    pieces: *const portolan_piece_t,
    count: usize,
    flags: u32,
) -> c_int {
    guard(|| {
        // SAFETY: guaranteed by the program.
        let mut entered = unsafe { enter(node)? };
        if count > PIECES_MAX {
            let text = format!("{count} pieces: a message has at most {PIECES_MAX}");
            return Err(Failure::new(PORTOLAN_ERR_ARGUMENT, text));
        }
        if pieces.is_null() && count > 0 {
            return Err(Failure::null("pieces"));
        }
        let mut all: Vec<&[u8]> = Vec::with_capacity(count);
        for index in 0..count {
            // SAFETY: the program guarantees that `pieces` has `count` elements.
            let piece = unsafe { pieces.add(index).read() };
            // SAFETY: guaranteed by the program.
            all.push(unsafe { memory::bytes("a piece", piece.bytes, piece.len)? });
        }
        let sum = all
            .iter()
            .fold(0, |sum: usize, piece| sum.saturating_add(piece.len()));
        if sum > isize::MAX.unsigned_abs() {
            let text = "the pieces together do not fit in memory";
            return Err(Failure::new(PORTOLAN_ERR_ARGUMENT, text));
        }
        let target = target(rank, port, flags)?;
        entered.node()?.send_gather(target, &all)?;
        Ok(PORTOLAN_OK)
    })
}

/// Waits for the next message to `port` from process `source`, or from any with
/// PORTOLAN_ANY_SOURCE, and stores its properties in `*received`, which may be null.
///
/// Errors: PORTOLAN_ERR_PORT_CLOSED, PORTOLAN_ERR_PORT_IN_USE for a port with a handler,
/// PORTOLAN_ERR_NO_MEMORY; PORTOLAN_ERR_TRUNCATED, with `*received` filled; with a `source`,
/// PORTOLAN_ERR_NO_SUCH_RANK and PORTOLAN_ERR_PEER_GONE, without, PORTOLAN_ERR_NOBODY_LEFT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_recv(
    node: *mut portolan_node_t,
    port: u32,
    source: u32,
    buffer: *mut c_void,
    len: usize,
    received: *mut portolan_received_t,
) -> c_int {
    guard(|| {
        // SAFETY: guaranteed by the program.
        let (mut entered, bytes) =
            unsafe { (enter(node)?, memory::bytes_mut("the buffer", buffer, len)?) };
        // SAFETY: guaranteed by the program.
        let received = unsafe { Out::new("received", received)? };
        let port = port::number(port)?;
        let node = entered.node()?;
        let source = (source != PORTOLAN_ANY_SOURCE).then_some(source);
        let done = node.recv_of(port, source, bytes);
        received.fill_from(&done, to_c, truncated_received);
        done?;
        Ok(PORTOLAN_OK)
    })
}

/// Waits like portolan_recv(), at most `timeout_ns` nanoseconds. A long message that has begun to
/// arrive is received completely, even after that time.
///
/// Errors: PORTOLAN_ERR_TIMEOUT, and no message is lost; those of portolan_recv().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_recv_for(
    node: *mut portolan_node_t,
    port: u32,
    source: u32,
    buffer: *mut c_void,
    len: usize,
    timeout_ns: u64,
    received: *mut portolan_received_t,
) -> c_int {
    guard(|| {
        // SAFETY: guaranteed by the program.
        let (mut entered, bytes) =
            unsafe { (enter(node)?, memory::bytes_mut("the buffer", buffer, len)?) };
        // SAFETY: guaranteed by the program.
        let received = unsafe { Out::new("received", received)? };
        let (port, timeout) = (port::number(port)?, timeout(timeout_ns));
        let node = entered.node()?;
        let done = match source {
            PORTOLAN_ANY_SOURCE => node.recv_timeout(port, bytes, timeout),
            source => node.recv_from_timeout(source, port, bytes, timeout),
        };
        let done = done.transpose();
        let done = done.ok_or_else(|| timed_out("no message has arrived", timeout))?;
        received.fill_from(&done, to_c, truncated_received);
        done?;
        Ok(PORTOLAN_OK)
    })
}

pub(crate) fn to_c(received: &Received) -> portolan_received_t {
    portolan_received_t {
        size: 0,
        len: received.len as u64,
        source: received.source,
    }
}

/// Describes a message that did not fit its buffer.
fn truncated_received(error: &Error) -> Option<portolan_received_t> {
    truncated(error).map(|envelope| portolan_received_t {
        size: 0,
        len: envelope.len,
        source: envelope.source,
    })
}
