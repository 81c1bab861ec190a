// SPDX-License-Identifier: MIT OR Apache-2.0
//! The eight sends, and completion of the non-blocking ones.
//!
//! All of them are reliable. Sends without flow control may lose messages, as in GAMMA, only if the
//! environment permits it (`GAMMA_QOS=best-effort`).

use crate::code::*;
use crate::machine::{self, Caller, Machine, running};
use crate::port::Port;
use portolan::binding::Plumbing as _;
use portolan::{Buffer, Node, Target};
use std::ffi::{c_int, c_ulong, c_void};

/// Service that a send requests.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Service {
    Plain,
    FlowControlled,
}

/// A piece of a message: its address, and its length in bytes.
type Piece = (*const c_void, c_ulong);

/// Converts the pieces of a message.
///
/// # Safety
/// The program guarantees that the bytes are valid, and not changed while the slices are used.
#[inline]
unsafe fn slices<'a, const N: usize>(pieces: [Piece; N]) -> Result<[&'a [u8]; N], Failure> {
    let mut slices: [&[u8]; N] = [&[]; N];
    let mut sum = 0_usize;
    for (slice, (at, len)) in slices.iter_mut().zip(pieces) {
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        sum = sum.saturating_add(len);
        if sum > isize::MAX.unsigned_abs() {
            return Err(too_long());
        }
        if len == 0 {
            continue;
        }
        if at.is_null() {
            return Err(null());
        }
        // SAFETY: not null and not too long; the caller guarantees that the bytes are valid.
        *slice = unsafe { std::slice::from_raw_parts(at.cast(), len) };
    }
    Ok(slices)
}

#[cold]
fn too_long() -> Failure {
    Failure::new(
        GAMMA_ERR_ARGUMENT,
        "the message length exceeds the memory of the process",
    )
}

#[cold]
fn null() -> Failure {
    Failure::new(GAMMA_ERR_NULL, "the buffer is null")
}

#[inline]
fn target(machine: &Machine, port: &Port, service: Service) -> Target {
    let target = port.target.get();
    if service == Service::Plain && machine.best_effort.get() {
        return target.best_effort();
    }
    target
}

/// Sends a message.
///
/// # Safety
/// As for [`slices`], until this returns.
#[inline]
unsafe fn send<const N: usize>(
    port: u16,
    pieces: [Piece; N],
    service: Service,
) -> Result<c_int, Failure> {
    // SAFETY: guaranteed by the caller.
    let pieces = unsafe { slices(pieces)? };
    let machine = running()?;
    let port = machine.port(port)?;
    let target = target(&machine, port, service);
    match machine.caller()? {
        Caller::Program(mut node) => {
            let node = node_of(&mut node)?;
            match &pieces[..] {
                [piece] => node.send(target, piece)?,
                pieces => node.send_gather(target, pieces)?,
            }
        }
        // A handler cannot wait. Its message is copied, and leaves after the handler has returned.
        Caller::Handler(context) => match &pieces[..] {
            [piece] => context.send(target, piece)?,
            pieces => context.send(target, &concat(pieces)?)?,
        },
    }
    Ok(0)
}

fn node_of(node: &mut Option<Node>) -> Result<&mut Node, Failure> {
    node.as_mut().ok_or_else(machine::in_handler)
}

/// Concatenates the pieces, if there is enough memory.
fn concat(pieces: &[&[u8]]) -> Result<Vec<u8>, Failure> {
    let len = pieces.iter().map(|piece| piece.len()).sum();
    let mut message = Vec::new();
    if message.try_reserve_exact(len).is_err() {
        let text = format!("out of memory for a copy of {len} bytes");
        return Err(Failure::new(GAMMA_ERR_SYSTEM, text));
    }
    pieces
        .iter()
        .for_each(|piece| message.extend_from_slice(piece));
    Ok(message)
}

/// Starts a nonblocking send.
///
/// # Safety
/// As for [`slices`], until the send is complete.
unsafe fn isend<const N: usize>(
    port: u16,
    pieces: [Piece; N],
    service: Service,
) -> Result<c_int, Failure> {
    // SAFETY: guaranteed by the caller.
    let pieces = unsafe { slices(pieces)? };
    let machine = running()?;
    let port = machine.port(port)?;
    let target = target(&machine, port, service);
    let mut caller = machine.caller()?;
    // SAFETY: guaranteed by the caller.
    let borrowed = |piece: &[u8]| unsafe { Buffer::from_raw(piece.as_ptr(), piece.len()) };
    let request = match &pieces[..] {
        [first, second] => {
            let (first, second) = (borrowed(first), borrowed(second));
            match &mut caller {
                Caller::Program(node) => node_of(node)?.isend_two(target, first, second)?,
                Caller::Handler(context) => context.isend_two(target, first, second)?,
            }
        }
        pieces => {
            let buffer = borrowed(pieces[0]);
            Some(match &mut caller {
                Caller::Program(node) => node_of(node)?.isend(target, buffer)?,
                Caller::Handler(context) => context.isend(target, buffer)?,
            })
        }
    };
    port.sends.borrow_mut().extend(request);
    Ok(0)
}

/// Sends `len` bytes through `port`. They may be reused when it returns. In a handler they are
/// copied, and leave after the handler has returned.
///
/// Errors: GAMMA_ERR_PORT, GAMMA_ERR_NULL, GAMMA_ERR_NODE_GONE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gamma_send(port: u16, buf: *const c_void, len: c_ulong) -> c_int {
    // SAFETY: guaranteed by the program.
    guard(|| unsafe { send(port, [(buf, len)], Service::Plain) })
}

/// Sends a message as gamma_send() does, with flow control.
///
/// Errors: those of gamma_send().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gamma_send_flowctl(port: u16, buf: *const c_void, len: c_ulong) -> c_int {
    // SAFETY: guaranteed by the program.
    guard(|| unsafe { send(port, [(buf, len)], Service::FlowControlled) })
}

/// Sends two pieces as one message, as gamma_send() does.
///
/// Errors: those of gamma_send().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gamma_send_2p(
    port: u16,
    buf1: *const c_void,
    len1: c_ulong,
    buf2: *const c_void,
    len2: c_ulong,
) -> c_int {
    // SAFETY: guaranteed by the program.
    guard(|| unsafe { send(port, [(buf1, len1), (buf2, len2)], Service::Plain) })
}

/// Sends two pieces as gamma_send_2p() does, with flow control.
///
/// Errors: those of gamma_send().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gamma_send_2p_flowctl(
    port: u16,
    buf1: *const c_void,
    len1: c_ulong,
    buf2: *const c_void,
    len2: c_ulong,
) -> c_int {
    // SAFETY: guaranteed by the program.
    guard(|| unsafe { send(port, [(buf1, len1), (buf2, len2)], Service::FlowControlled) })
}

/// Starts a nonblocking send through `port`, without a copy. The bytes must not be changed until
/// gamma_wsend() or gamma_tsend() reports that the port's sends are complete.
///
/// Errors: those of gamma_send().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gamma_isend(port: u16, buf: *const c_void, len: c_ulong) -> c_int {
    // SAFETY: guaranteed by the program.
    guard(|| unsafe { isend(port, [(buf, len)], Service::Plain) })
}

/// Starts a nonblocking send like gamma_isend(), with flow control.
///
/// Errors: those of gamma_send().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gamma_isend_flowctl(port: u16, buf: *const c_void, len: c_ulong) -> c_int {
    // SAFETY: guaranteed by the program.
    guard(|| unsafe { isend(port, [(buf, len)], Service::FlowControlled) })
}

/// Starts a nonblocking send of two pieces as one message, like gamma_isend(). They are not copied
/// if the message must wait or needs a rendezvous. Neither may be changed until gamma_wsend() or
/// gamma_tsend() reports that the port's sends are complete.
///
/// Errors: those of gamma_send().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gamma_isend_2p(
    port: u16,
    buf1: *const c_void,
    len1: c_ulong,
    buf2: *const c_void,
    len2: c_ulong,
) -> c_int {
    // SAFETY: guaranteed by the program.
    guard(|| unsafe { isend(port, [(buf1, len1), (buf2, len2)], Service::Plain) })
}

/// Starts a nonblocking send of two pieces like gamma_isend_2p(), with flow control.
///
/// Errors: those of gamma_send().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gamma_isend_2p_flowctl(
    port: u16,
    buf1: *const c_void,
    len1: c_ulong,
    buf2: *const c_void,
    len2: c_ulong,
) -> c_int {
    // SAFETY: guaranteed by the program.
    guard(|| unsafe { isend(port, [(buf1, len1), (buf2, len2)], Service::FlowControlled) })
}

/// Collects completed sends of the port. Returns true if all are complete.
fn complete(machine: &Machine, port: &Port) -> Result<bool, Failure> {
    machine.with_node(|node| {
        loop {
            let Some(&request) = port.sends.borrow().front() else {
                return Ok(true);
            };
            let result = node.test(request);
            if let Ok(None) = result {
                return Ok(false);
            }
            let _ended = port.sends.borrow_mut().pop_front();
            result?;
        }
    })
}

/// Waits until all non-blocking sends through `port` are complete. An error belongs to one of the
/// sends; call it again for the rest.
///
/// Errors: GAMMA_ERR_NODE_GONE, GAMMA_ERR_PORT, GAMMA_ERR_IN_HANDLER.
#[unsafe(no_mangle)]
pub extern "C" fn gamma_wsend(port: u16) -> c_int {
    guard(|| {
        let mut machine = running()?;
        let port = machine.port(port)?;
        while !complete(&machine, port)? {
            if machine::is_shared() {
                machine::yield_lock(&mut machine);
                continue;
            }
            // Not borrowed during the wait, because a handler may send through this port.
            let first = port.sends.borrow_mut().pop_front();
            if let Some(request) = first {
                machine.with_node(|node| Ok(node.wait(request)?))?;
            }
        }
        Ok(0)
    })
}

/// Returns 1 if all non-blocking sends through `port` are complete, or 0. Makes progress.
///
/// Errors: those of gamma_wsend().
#[unsafe(no_mangle)]
pub extern "C" fn gamma_tsend(port: u16) -> c_int {
    guard(|| {
        let machine = running()?;
        let port = machine.port(port)?;
        Ok(c_int::from(complete(&machine, port)?))
    })
}
