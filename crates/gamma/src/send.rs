// SPDX-License-Identifier: MIT OR Apache-2.0
//! The eight sends, and completion of the non-blocking ones.
//!
//! All of them are reliable. Those without flow control may lose messages only if the environment
//! asks for it (`GAMMA_QOS=best-effort`), as GAMMA's did.

use crate::code::*;
use crate::machine::{self, Caller, Machine, running};
use crate::port::Port;
use portolan::{Buffer, Target};
use std::ffi::{c_int, c_ulong, c_void};
use std::ptr::NonNull;

/// The service that a send asks for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Service {
    Plain,
    FlowControlled,
}

/// A piece of a message.
struct Piece {
    at: *const u8,
    len: usize,
}

impl Piece {
    #[inline]
    fn new(at: *const c_void, len: c_ulong) -> Result<Piece, Failure> {
        let at = match (at.is_null(), len) {
            (false, _) => at.cast(),
            (true, 0) => NonNull::<u8>::dangling().as_ptr().cast_const(),
            (true, _) => return Err(null()),
        };
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        if len > isize::MAX.unsigned_abs() {
            return Err(Failure::new(
                GAMMA_ERR_ARGUMENT,
                "the buffer is longer than memory",
            ));
        }
        Ok(Piece { at, len })
    }

    /// # Safety
    /// The program's promise: the bytes are there, and stay as they are during the call.
    #[inline]
    unsafe fn bytes(&self) -> &[u8] {
        // SAFETY: not null, not too long; the rest is the caller's promise.
        unsafe { std::slice::from_raw_parts(self.at, self.len) }
    }
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

/// # Safety
/// As [`Piece::bytes`].
#[inline]
unsafe fn send(port: u16, pieces: &[Piece], service: Service) -> Result<c_int, Failure> {
    let machine = running()?;
    let port = machine.port(port)?;
    let target = target(&machine, port, service);
    match (machine.caller()?, pieces) {
        (Caller::Program(mut node), pieces) => {
            let node = node.as_mut().ok_or_else(machine::in_handler)?;
            match pieces {
                // SAFETY: the caller's promise.
                [piece] => node.send(target, unsafe { piece.bytes() })?,
                pieces => {
                    // SAFETY: the caller's promise.
                    let pieces: Vec<&[u8]> = pieces
                        .iter()
                        .map(|piece| unsafe { piece.bytes() })
                        .collect();
                    node.send_gather(target, &pieces)?;
                }
            }
        }
        // A handler cannot wait: what it sends is copied, and leaves when it has returned.
        (Caller::Handler(context), pieces) => {
            // SAFETY: the caller's promise.
            context.send(target, &unsafe { joined(pieces) })?;
        }
    }
    Ok(0)
}

/// The pieces as one message.
///
/// # Safety
/// As [`Piece::bytes`].
unsafe fn joined(pieces: &[Piece]) -> Vec<u8> {
    let mut all = Vec::new();
    for piece in pieces {
        // SAFETY: the caller's promise.
        all.extend_from_slice(unsafe { piece.bytes() });
    }
    all
}

/// # Safety
/// The program's promise: the bytes of a single piece stay as they are until the send is complete,
/// those of more until this returns.
unsafe fn isend(port: u16, pieces: &[Piece], service: Service) -> Result<c_int, Failure> {
    let machine = running()?;
    let port = machine.port(port)?;
    let target = target(&machine, port, service);
    let buffer = match pieces {
        // SAFETY: the caller's promise.
        [piece] => unsafe { Buffer::from_raw(piece.at, piece.len) },
        // SAFETY: the caller's promise.
        pieces => Buffer::from(unsafe { joined(pieces) }),
    };
    let request = match machine.caller()? {
        Caller::Program(mut node) => {
            let node = node.as_mut().ok_or_else(machine::in_handler)?;
            node.isend(target, buffer)?
        }
        Caller::Handler(context) => context.isend(target, buffer)?,
    };
    port.sends.borrow_mut().push_back(request);
    Ok(0)
}

/// Sends `len` bytes through `port`; when it returns, they may be used again. In a handler they are
/// copied, and leave when it has returned.
///
/// Errors: GAMMA_ERR_PORT, GAMMA_ERR_NULL, GAMMA_ERR_NODE_GONE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gamma_send(port: u16, buf: *const c_void, len: c_ulong) -> c_int {
    // SAFETY: the program's promise.
    guard(|| unsafe { send(port, &[Piece::new(buf, len)?], Service::Plain) })
}

/// As gamma_send(), with flow control.
///
/// Errors: those of gamma_send().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gamma_send_flowctl(port: u16, buf: *const c_void, len: c_ulong) -> c_int {
    // SAFETY: the program's promise.
    guard(|| unsafe { send(port, &[Piece::new(buf, len)?], Service::FlowControlled) })
}

/// As gamma_send(), of two pieces as one message.
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
    guard(|| {
        let pieces = [Piece::new(buf1, len1)?, Piece::new(buf2, len2)?];
        // SAFETY: the program's promise.
        unsafe { send(port, &pieces, Service::Plain) }
    })
}

/// As gamma_send_2p(), with flow control.
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
    guard(|| {
        let pieces = [Piece::new(buf1, len1)?, Piece::new(buf2, len2)?];
        // SAFETY: the program's promise.
        unsafe { send(port, &pieces, Service::FlowControlled) }
    })
}

/// Begins to send through `port`, without a copy. The bytes must stay as they are until
/// gamma_wsend() or gamma_tsend() says that the port's sends are complete.
///
/// Errors: those of gamma_send().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gamma_isend(port: u16, buf: *const c_void, len: c_ulong) -> c_int {
    // SAFETY: the program's promise.
    guard(|| unsafe { isend(port, &[Piece::new(buf, len)?], Service::Plain) })
}

/// As gamma_isend(), with flow control.
///
/// Errors: those of gamma_send().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gamma_isend_flowctl(port: u16, buf: *const c_void, len: c_ulong) -> c_int {
    // SAFETY: the program's promise.
    guard(|| unsafe { isend(port, &[Piece::new(buf, len)?], Service::FlowControlled) })
}

/// As gamma_isend(), of two pieces as one message.
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
    guard(|| {
        let pieces = [Piece::new(buf1, len1)?, Piece::new(buf2, len2)?];
        // SAFETY: the program's promise.
        unsafe { isend(port, &pieces, Service::Plain) }
    })
}

/// As gamma_isend_2p(), with flow control.
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
    guard(|| {
        let pieces = [Piece::new(buf1, len1)?, Piece::new(buf2, len2)?];
        // SAFETY: the program's promise.
        unsafe { isend(port, &pieces, Service::FlowControlled) }
    })
}

/// Completes what it can of the port's sends; whether all are complete.
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

/// Waits until all non-blocking sends through `port` are complete. A failure is that of one of
/// them; call it again for the others.
///
/// Errors: GAMMA_ERR_NODE_GONE, GAMMA_ERR_PORT, GAMMA_ERR_IN_HANDLER.
#[unsafe(no_mangle)]
pub extern "C" fn gamma_wsend(port: u16) -> c_int {
    guard(|| {
        let mut machine = running()?;
        let port = machine.port(port)?;
        while !complete(&machine, port)? {
            if machine::is_shared() {
                machine::step_aside(&mut machine);
                continue;
            }
            machine.with_node(|node| {
                if let Some(request) = port.sends.borrow_mut().pop_front() {
                    node.wait(request)?;
                }
                Ok(())
            })?;
        }
        Ok(0)
    })
}

/// Whether all non-blocking sends through `port` are complete: 1 or 0. Makes progress.
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
