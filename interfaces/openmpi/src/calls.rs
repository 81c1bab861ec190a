// SPDX-License-Identifier: MIT OR Apache-2.0
//! The functions of the C interface. Each one checks its arguments and calls the channel.

#![allow(unsafe_code, reason = "called from C, with memory of the component")]

use crate::channel::{Channel, status_of_refusal};
use crate::operation::{Change, Operation};
use crate::types::*;
use portolan::Error;
use portolan::binding::{EndpointAddress, PeerIndex, RawPiece, SubmitError};
use portolan_ffi::{Codes, Failure, fenced, guard, last_error};
use std::ffi::{c_char, c_int, c_void};
use std::ptr;

/// Numbers of this library's failures.
struct Btl;

impl Codes for Btl {
    const LIBRARY: &'static str = "btl/portolan";
    const INTERNAL: c_int = PORTOLAN_BTL_INTERNAL;
    const NULL: c_int = PORTOLAN_BTL_INVALID;

    fn of(_error: &Error) -> c_int {
        PORTOLAN_BTL_FAILED
    }
}

/// Opens an endpoint, for several threads at once if `threads` is not 0. Returns null on failure, which
/// portolan_btl_error() explains.
///
/// # Safety
/// `hooks` is valid, and what it names stays so until portolan_btl_close().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_btl_open(
    hooks: *const portolan_btl_hooks_t,
    threads: c_int,
) -> *mut portolan_btl_t {
    let opened = fenced::<_, Btl>(|| {
        // SAFETY: the caller's promise.
        let hooks = unsafe { hooks.as_ref() }.ok_or_else(|| Failure::null("hooks"))?;
        Ok(Channel::open(*hooks, threads != 0)?)
    });
    match opened {
        Ok(channel) => Box::into_raw(Box::new(channel)),
        Err(failure) => {
            failure.record();
            ptr::null_mut()
        }
    }
}

/// Returns the reason of the last failure on this thread.
#[unsafe(no_mangle)]
pub extern "C" fn portolan_btl_error() -> *const c_char {
    last_error()
}

/// Closes an endpoint after its messages have arrived.
///
/// # Safety `btl` is open and not used afterwards, and no hook is running.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_btl_close(btl: *mut portolan_btl_t) {
    if !btl.is_null() {
        // SAFETY: made by `portolan_btl_open`, and closed once.
        let channel = unsafe { Box::from_raw(btl) };
        let _ = fenced::<_, Btl>(|| {
            drop(channel);
            Ok(())
        });
    }
}

/// Writes the PORTOLAN_BTL_ADDRESS_LEN bytes of the endpoint's own address.
///
/// # Safety
/// `btl` is open; there is room for the address.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_btl_address(btl: *const portolan_btl_t, address: *mut u8) {
    // SAFETY: the caller's promise.
    let (channel, own) = unsafe { (&*btl, &mut *address.cast::<[u8; 64]>()) };
    own.copy_from_slice(channel.address().as_bytes());
}

/// Adds the owner of an address as a peer. `peer` receives its number, which is the same for the same address.
///
/// # Safety
/// `btl` is open; `address` has PORTOLAN_BTL_ADDRESS_LEN bytes; there is room for the number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_btl_insert(
    btl: *const portolan_btl_t,
    address: *const u8,
    peer: *mut u32,
) -> c_int {
    guard::<Btl>(|| {
        // SAFETY: the caller's promise.
        let (channel, bytes) = unsafe { (&*btl, &*address.cast::<[u8; 64]>()) };
        let address = EndpointAddress::from_bytes(bytes)?;
        let index = channel.insert(address)?;
        // SAFETY: the caller's promise.
        unsafe { *peer = index.0 };
        Ok(PORTOLAN_BTL_OK)
    })
}

/// Removes a peer. Messages that were sent to it still arrive.
///
/// # Safety
/// `btl` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_btl_remove(btl: *const portolan_btl_t, peer: u32) {
    let _ = fenced::<_, Btl>(|| {
        // SAFETY: the caller's promise.
        unsafe { (*btl).change(Change::Remove(PeerIndex(peer))) }?;
        Ok(())
    });
}

/// Sends a header and a payload as one message without queueing it, and returns PORTOLAN_BTL_DONE. After
/// PORTOLAN_BTL_AGAIN or another failure nothing was sent.
///
/// # Safety
/// `btl` is open; both pieces are readable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_btl_inject(
    btl: *const portolan_btl_t,
    peer: u32,
    tag: u8,
    head: *const c_void,
    head_len: usize,
    body: *const c_void,
    body_len: usize,
) -> c_int {
    status(|| {
        // SAFETY: the caller's promise.
        let (channel, pieces) = unsafe { (&*btl, [slice(head, head_len), slice(body, body_len)]) };
        channel.inject(PeerIndex(peer), tag, pieces)?;
        Ok(PORTOLAN_BTL_DONE)
    })
}

/// Sends a message. Returns PORTOLAN_BTL_DONE if it is complete, or PORTOLAN_BTL_OK if a completion follows. The
/// memory stays in use until then.
///
/// # Safety
/// `btl` is open; the bytes are readable, and stay as they are until the message has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_btl_send(
    btl: *const portolan_btl_t,
    peer: u32,
    tag: u8,
    bytes: *const c_void,
    len: usize,
    context: u64,
) -> c_int {
    status(|| {
        let piece = RawPiece {
            ptr: bytes.cast_mut().cast(),
            len,
        };
        let send = Operation::Send {
            peer: PeerIndex(peer),
            tag,
            piece,
            context,
        };
        // SAFETY: the caller's promises.
        unsafe { (*btl).submit(send) }
    })
}

/// Registers memory, which peers may read and write by its addresses. `key` receives the key that they need.
///
/// # Safety
/// `btl` is open; the memory is readable and writable until portolan_btl_deregister(); there is room for the key.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_btl_register(
    btl: *const portolan_btl_t,
    memory: *mut c_void,
    len: usize,
    key: *mut u64,
) -> c_int {
    guard::<Btl>(|| {
        let piece = RawPiece {
            ptr: memory.cast(),
            len,
        };
        // SAFETY: the caller's promises.
        unsafe { *key = (*btl).register(piece)? };
        Ok(PORTOLAN_BTL_OK)
    })
}

/// Deregisters memory. Peers cannot access it after the call.
///
/// # Safety
/// `btl` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_btl_deregister(btl: *const portolan_btl_t, key: u64) {
    let _ = fenced::<_, Btl>(|| {
        // SAFETY: the caller's promise.
        unsafe { (*btl).change(Change::Deregister(key)) }?;
        Ok(())
    });
}

/// Reads memory of a peer. A completion follows.
///
/// # Safety
/// `btl` is open and `what` valid; the local memory is writable, and not used otherwise until the completion.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_btl_get(
    btl: *const portolan_btl_t,
    what: *const portolan_btl_transfer_t,
) -> c_int {
    // SAFETY: the caller's promise.
    status(|| unsafe { (*btl).submit(Operation::Get(*what)) })
}

/// Writes memory of a peer. A completion follows when the bytes have arrived.
///
/// # Safety
/// `btl` is open and `what` valid; the local memory is readable, and unchanged until the completion.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_btl_put(
    btl: *const portolan_btl_t,
    what: *const portolan_btl_transfer_t,
) -> c_int {
    // SAFETY: the caller's promise.
    status(|| unsafe { (*btl).submit(Operation::Put(*what)) })
}

/// Changes a number in memory of a peer. A completion follows.
///
/// # Safety
/// `btl` is open and `what` valid; `before` is writable until the completion, unless it is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_btl_atomic(
    btl: *const portolan_btl_t,
    what: *const portolan_btl_atomic_t,
) -> c_int {
    // SAFETY: the caller's promise.
    status(|| unsafe { (*btl).submit(Operation::Atomic(*what)) })
}

/// Runs a turn of the endpoint and calls the callbacks. Returns the number of messages and completions. Returns 0
/// at once in a callback, and while another thread polls.
///
/// # Safety
/// `btl` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_btl_poll(btl: *const portolan_btl_t) -> c_int {
    let count = fenced::<_, Btl>(|| {
        // SAFETY: the caller's promise.
        Ok(unsafe { &*btl }.poll())
    });
    c_int::try_from(count.unwrap_or(0)).unwrap_or(c_int::MAX)
}

/// Runs the body of a call of the data path. Back-pressure records no text.
#[inline(always)]
fn status(body: impl FnOnce() -> Result<c_int, SubmitError>) -> c_int {
    let ended = fenced::<_, Btl>(|| Ok(body().unwrap_or_else(|error| code_of(&error))));
    ended.unwrap_or_else(|failure| failure.record())
}

#[cold]
fn code_of(error: &SubmitError) -> c_int {
    match error {
        SubmitError::Again => PORTOLAN_BTL_AGAIN,
        other => Failure::<Btl>::new(status_of_refusal(other), other.to_string()).record(),
    }
}

/// # Safety
/// The bytes are readable for as long as the slice is used.
#[inline]
unsafe fn slice<'a>(ptr: *const c_void, len: usize) -> &'a [u8] {
    match len {
        0 => &[],
        // SAFETY: the caller's promise.
        _ => unsafe { std::slice::from_raw_parts(ptr.cast(), len) },
    }
}
