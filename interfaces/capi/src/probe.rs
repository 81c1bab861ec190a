// SPDX-License-Identifier: MIT OR Apache-2.0
//! Probes, and receives of messages of unknown length.

use crate::code::*;
use crate::failure::{Failure, guard, timed_out, timeout};
use crate::handle::{enter, portolan_node_t};
use crate::memory::{self, Out};
use crate::message;
use crate::port;
use crate::tagged;
use crate::types::{PORTOLAN_ANY_SOURCE, portolan_envelope_t, portolan_received_t};
use portolan::{Error, Node, Received, TagMatch};
use std::ffi::{c_int, c_void};
use std::ptr;
use std::time::Duration;

/// Waits for a message at `port`.
fn probe(
    node: &mut Node,
    port: u16,
    source: u32,
    timeout: Option<Duration>,
) -> Result<Option<Received>, Error> {
    match (source, timeout) {
        (PORTOLAN_ANY_SOURCE, None) => node.probe(port).map(Some),
        (PORTOLAN_ANY_SOURCE, Some(timeout)) => node.probe_timeout(port, timeout),
        (source, None) => node.probe_from(source, port).map(Some),
        (source, Some(timeout)) => node.probe_from_timeout(source, port, timeout),
    }
}

/// Waits until a message from process `source`, or from any with PORTOLAN_ANY_SOURCE, waits at
/// `port`, and stores its properties in `*received`. The message stays available: a receive from
/// that sender gets it.
///
/// Errors: those of portolan_recv(), except for PORTOLAN_ERR_TRUNCATED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_probe(
    node: *mut portolan_node_t,
    port: u32,
    source: u32,
    received: *mut portolan_received_t,
) -> c_int {
    guard(|| {
        // SAFETY: guaranteed by the program.
        let (mut entered, received) = unsafe { (enter(node)?, Out::new("received", received)?) };
        let port = port::number(port)?;
        if let Some(found) = probe(entered.node()?, port, source, None)? {
            received.fill(&message::to_c(&found));
        }
        Ok(PORTOLAN_OK)
    })
}

/// Waits like portolan_probe(), at most `timeout_ns` nanoseconds; with 0 it does not wait.
///
/// Errors: PORTOLAN_ERR_TIMEOUT; those of portolan_probe().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_probe_for(
    node: *mut portolan_node_t,
    port: u32,
    source: u32,
    timeout_ns: u64,
    received: *mut portolan_received_t,
) -> c_int {
    guard(|| {
        // SAFETY: guaranteed by the program.
        let (mut entered, received) = unsafe { (enter(node)?, Out::new("received", received)?) };
        let (port, timeout) = (port::number(port)?, timeout(timeout_ns));
        let found = probe(entered.node()?, port, source, Some(timeout))?;
        let found = found.ok_or_else(|| timed_out("no message has arrived", timeout))?;
        received.fill(&message::to_c(&found));
        Ok(PORTOLAN_OK)
    })
}

/// Waits until a message waits that portolan_recv_tagged() would receive, and stores its properties
/// in `*envelope`. The message stays available. portolan_peek() does not wait.
///
/// Errors: those of portolan_peek().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_probe_tagged(
    node: *mut portolan_node_t,
    tag: u64,
    ignore: u64,
    source: u32,
    envelope: *mut portolan_envelope_t,
) -> c_int {
    guard(|| {
        // SAFETY: guaranteed by the program.
        let (mut entered, envelope) = unsafe { (enter(node)?, Out::new("envelope", envelope)?) };
        let found = entered
            .node()?
            .probe_tagged(tagged::which(tag, ignore, source))?;
        envelope.fill(&tagged::to_c(&found));
        Ok(PORTOLAN_OK)
    })
}

/// Waits like portolan_probe_tagged(), at most `timeout_ns` nanoseconds.
///
/// Errors: PORTOLAN_ERR_TIMEOUT; those of portolan_probe_tagged().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_probe_tagged_for(
    node: *mut portolan_node_t,
    tag: u64,
    ignore: u64,
    source: u32,
    timeout_ns: u64,
    envelope: *mut portolan_envelope_t,
) -> c_int {
    guard(|| {
        // SAFETY: guaranteed by the program.
        let (mut entered, envelope) = unsafe { (enter(node)?, Out::new("envelope", envelope)?) };
        let (which, timeout) = (tagged::which(tag, ignore, source), timeout(timeout_ns));
        let found = entered.node()?.probe_tagged_timeout(which, timeout)?;
        let found = found.ok_or_else(|| timed_out("no matching message has arrived", timeout))?;
        envelope.fill(&tagged::to_c(&found));
        Ok(PORTOLAN_OK)
    })
}

/// Memory of the C library's malloc(), freed unless the program gets it.
pub(crate) struct Allocated {
    at: *mut c_void,
    len: usize,
}

impl Allocated {
    pub(crate) fn new(len: usize) -> Result<Allocated, Failure> {
        // SAFETY: has no preconditions.
        let at = unsafe { libc::malloc(len.max(1)) };
        if at.is_null() {
            let text = format!("cannot allocate {len} bytes for a message");
            return Err(Failure::new(PORTOLAN_ERR_SYSTEM, text));
        }
        Ok(Allocated { at, len })
    }

    pub(crate) fn bytes(&mut self) -> Result<&mut [u8], Failure> {
        // SAFETY: the memory has this length, and nothing else uses it.
        unsafe { memory::bytes_mut("memory for a message", self.at, self.len) }
    }

    /// Passes the memory to the program.
    pub(crate) fn into_raw(mut self) -> *mut c_void {
        std::mem::replace(&mut self.at, ptr::null_mut())
    }
}

impl Drop for Allocated {
    fn drop(&mut self) {
        // SAFETY: of `malloc`, or null.
        unsafe { libc::free(self.at) };
    }
}

/// Waits for the next message to `port` like portolan_recv(), of any length, and stores its address
/// in `*buffer`. The memory is allocated by malloc(); release it with free(). On failure `*buffer`
/// becomes null.
///
/// Errors: those of portolan_recv(), except for PORTOLAN_ERR_TRUNCATED; PORTOLAN_ERR_SYSTEM when no
/// memory is left, and the message is still available.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_recv_alloc(
    node: *mut portolan_node_t,
    port: u32,
    source: u32,
    buffer: *mut *mut c_void,
    received: *mut portolan_received_t,
) -> c_int {
    guard(|| {
        // First, so that it becomes null even if the call is refused.
        // SAFETY: guaranteed by the program.
        let buffer = unsafe { place(buffer)? };
        // SAFETY: guaranteed by the program.
        let (mut entered, received) = unsafe { (enter(node)?, Out::new("received", received)?) };
        let port = port::number(port)?;
        let node = entered.node()?;
        while let Some(found) = probe(node, port, source, None)? {
            let mut memory = Allocated::new(found.len)?;
            let done = match node.recv_from(found.source, port, memory.bytes()?) {
                // The sender has ended before its message was here.
                Err(Error::PeerGone { .. }) if source == PORTOLAN_ANY_SOURCE => continue,
                done => done?,
            };
            received.fill(&message::to_c(&done));
            *buffer = memory.into_raw();
            break;
        }
        Ok(PORTOLAN_OK)
    })
}

/// Waits for a tagged message like portolan_recv_tagged(), of any length, and stores its address in
/// `*buffer`; see portolan_recv_alloc().
///
/// Errors: those of portolan_recv_tagged(), except for PORTOLAN_ERR_TRUNCATED; PORTOLAN_ERR_SYSTEM
/// when no memory is left, and the message is still available.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_recv_tagged_alloc(
    node: *mut portolan_node_t,
    tag: u64,
    ignore: u64,
    source: u32,
    buffer: *mut *mut c_void,
    envelope: *mut portolan_envelope_t,
) -> c_int {
    guard(|| {
        // First, so that it becomes null even if the call is refused.
        // SAFETY: guaranteed by the program.
        let buffer = unsafe { place(buffer)? };
        // SAFETY: guaranteed by the program.
        let (mut entered, envelope) = unsafe { (enter(node)?, Out::new("envelope", envelope)?) };
        let node = entered.node()?;
        let found = node.probe_tagged(tagged::which(tag, ignore, source))?;
        let mut memory = Allocated::new(found.len)?;
        let exactly = TagMatch::new(found.tag).source(found.source);
        let done = node.recv_tagged(exactly, memory.bytes()?)?;
        envelope.fill(&tagged::to_c(&done));
        *buffer = memory.into_raw();
        Ok(PORTOLAN_OK)
    })
}

/// Returns the program's pointer, set to null.
///
/// # Safety
/// `buffer` is null or points to a pointer that belongs to the program until the call has ended.
pub(crate) unsafe fn place<'a>(buffer: *mut *mut c_void) -> Result<&'a mut *mut c_void, Failure> {
    // SAFETY: guaranteed by the caller.
    let place = unsafe { buffer.as_mut() }.ok_or_else(|| Failure::null("buffer"))?;
    *place = ptr::null_mut();
    Ok(place)
}
