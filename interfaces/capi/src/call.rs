// SPDX-License-Identifier: MIT OR Apache-2.0
//! Remote procedure calls.

use crate::code::*;
use crate::failure::{Failure, guard, timed_out};
use crate::handle::{Caller, enter, enter_any, portolan_node_t};
use crate::memory::{self, Out};
use crate::message::target;
use crate::port;
use crate::probe::{Allocated, place};
use crate::types::{portolan_call_t, portolan_reply_t};
use portolan::{Buffer, ReplyTo};
use std::ffi::{c_int, c_void};
use std::time::Duration;

/// Releases memory of a reply that has been sent.
pub type portolan_release_t = Option<unsafe extern "C" fn(memory: *mut c_void, user: *mut c_void)>;

/// Converts a timeout of a call. The largest one is none.
fn limit(timeout_ns: u64) -> Option<Duration> {
    (timeout_ns != u64::MAX).then(|| Duration::from_nanos(timeout_ns))
}

/// Calls a server: sends `len` bytes as a request to `port` of process `rank`, and waits at most
/// `timeout_ns` nanoseconds for the reply, which has any length. UINT64_MAX is no limit. Stores the
/// address of the reply in `*bytes`, and its length and status in `*reply`. The memory is allocated
/// by malloc(); release it with free(). On failure `*bytes` becomes null.
///
/// Errors: PORTOLAN_ERR_TIMEOUT, and a later reply is dropped; PORTOLAN_ERR_PEER_GONE when the server
/// has ended; PORTOLAN_ERR_SYSTEM when no memory is left; those of portolan_send().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_call(
    node: *mut portolan_node_t,
    rank: u32,
    port: u32,
    request: *const c_void,
    len: usize,
    timeout_ns: u64,
    bytes: *mut *mut c_void,
    reply: *mut portolan_reply_t,
) -> c_int {
    guard(|| {
        // First, so that it becomes null even if the call is refused.
        // SAFETY: guaranteed by the program.
        let (bytes, mut entered) = unsafe { (place(bytes)?, enter(node)?) };
        // SAFETY: guaranteed by the program.
        let (sent, reply) = unsafe {
            (
                memory::bytes("request", request, len)?,
                Out::new("reply", reply)?,
            )
        };
        let target = target(rank, port, 0)?;
        let mut call = entered.node()?.call(target, sent);
        if let Some(timeout) = limit(timeout_ns) {
            call = call.timeout(timeout);
        }
        let got = call.wait()?;
        let mut memory = Allocated::new(got.bytes.len())?;
        memory.bytes()?.copy_from_slice(&got.bytes);
        reply.fill(&portolan_reply_t {
            size: 0,
            len: got.bytes.len() as u64,
            status: u32::from(got.status),
        });
        *bytes = memory.into_raw();
        Ok(PORTOLAN_OK)
    })
}

/// Waits at most `timeout_ns` nanoseconds for the next request of portolan_call() to `port`, which was
/// opened with portolan_open(), and describes it in `*call`. UINT64_MAX is no limit. Its memory
/// `call->memory` is allocated by malloc(); release it with free(). Answer with portolan_reply().
///
/// Errors: PORTOLAN_ERR_TIMEOUT; PORTOLAN_ERR_SYSTEM when no memory is left; those of
/// portolan_recv().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_recv_call(
    node: *mut portolan_node_t,
    port: u32,
    timeout_ns: u64,
    call: *mut portolan_call_t,
) -> c_int {
    guard(|| {
        if call.is_null() {
            return Err(Failure::null("call"));
        }
        // SAFETY: guaranteed by the program.
        let (mut entered, call) = unsafe { (enter(node)?, Out::new("call", call)?) };
        let (port, timeout) = (port::number(port)?, limit(timeout_ns));
        let received = entered.node()?.recv_call(port, timeout)?;
        let none = || timed_out("no request has arrived", timeout.unwrap_or_default());
        let received = received.ok_or_else(none)?;
        let mut memory = Allocated::new(received.bytes().len())?;
        memory.bytes()?.copy_from_slice(received.bytes());
        call.fill(&portolan_call_t {
            size: 0,
            number: received.reply_to().number(),
            memory: memory.into_raw(),
            len: received.bytes().len() as u64,
            source: received.source(),
        });
        Ok(PORTOLAN_OK)
    })
}

/// Common part of the functions that answer a call.
///
/// # Safety
/// As [`enter_any`].
unsafe fn reply(
    node: *mut portolan_node_t,
    (source, number): (u32, u64),
    status: u32,
    bytes: impl FnOnce() -> Result<Buffer, Failure>,
) -> c_int {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        let caller = unsafe { enter_any(node)? };
        let Ok(status) = u16::try_from(status) else {
            let text = format!("status {status}: it is from 0 to 65535");
            return Err(Failure::new(PORTOLAN_ERR_ARGUMENT, text));
        };
        let (to, bytes) = (ReplyTo::from_parts(source, number), bytes()?);
        match caller {
            Caller::Program(mut entered) => entered.node()?.reply(to, status, bytes)?,
            Caller::Handler(context) => context.reply(to, status, bytes)?,
        }
        Ok(PORTOLAN_OK)
    })
}

/// Answers the call `number` of process `source` with a copy of `len` bytes and a status from 0 to
/// 65535; 0 is success by convention. A server may answer calls in any order. Handlers may call it.
///
/// Errors: PORTOLAN_ERR_ARGUMENT; those of portolan_send().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_reply(
    node: *mut portolan_node_t,
    source: u32,
    number: u64,
    status: u32,
    bytes: *const c_void,
    len: usize,
) -> c_int {
    let copy = || {
        // SAFETY: guaranteed by the program.
        let bytes = unsafe { memory::bytes("bytes", bytes, len)? };
        Ok(Buffer::from(bytes.to_vec()))
    };
    // SAFETY: guaranteed by the program.
    unsafe { reply(node, (source, number), status, copy) }
}

/// Answers a call like portolan_reply(), without a copy of long replies. The bytes must not change
/// until the library calls `release` with `bytes` and `user`, once, even if this fails. It does so
/// inside calls, or on a thread of its own.
///
/// Errors: PORTOLAN_ERR_ARGUMENT; those of portolan_send().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_reply_release(
    node: *mut portolan_node_t,
    source: u32,
    number: u64,
    status: u32,
    bytes: *mut c_void,
    len: usize,
    release: portolan_release_t,
    user: *mut c_void,
) -> c_int {
    let (at, user) = (Address(bytes), Address(user));
    let released = move || {
        // Both whole, so that the closure may move to another thread.
        let (at, user): (Address, Address) = (at, user);
        if let Some(release) = release {
            // SAFETY: the program guarantees that its function may be called so.
            unsafe { release(at.0, user.0) };
        }
    };
    // SAFETY: guaranteed by the program.
    let lent = match unsafe { memory::bytes("bytes", bytes, len) } {
        // SAFETY: the program keeps the bytes until `released` runs.
        Ok(lent) => Ok(unsafe { Buffer::from_raw_released(lent.as_ptr(), len, released) }),
        Err(failure) => {
            released();
            Err(failure)
        }
    };
    // SAFETY: guaranteed by the program.
    unsafe { reply(node, (source, number), status, || lent) }
}

/// Address that is passed back to the program.
#[derive(Clone, Copy)]
struct Address(*mut c_void);

// SAFETY: it is never dereferenced here, and the documentation allows its function to run on
// another thread.
unsafe impl Send for Address {}
// SAFETY: as above.
unsafe impl Sync for Address {}
