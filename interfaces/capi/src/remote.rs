// SPDX-License-Identifier: MIT OR Apache-2.0
//! Remote memory: regions, put and get.

use crate::code::*;
use crate::failure::{Failure, guard, timed_out, timeout};
use crate::handle::{Caller, enter, portolan_node_t};
use crate::memory::{self, Out};
use crate::request::{begin_waited, call};
use crate::types::*;
use portolan::{Access, Lane, PutNotice, RemoteKey, RemoteTarget};
use std::ffi::{c_int, c_void};

pub(crate) fn key_of(key: RemoteKey) -> u64 {
    u64::from_le_bytes(key.to_bytes())
}

/// Converts a location that the program names.
///
/// # Safety
/// `place` is null, or points to as many bytes as its first field states.
pub(crate) unsafe fn target(place: *const portolan_remote_t) -> Result<RemoteTarget, Failure> {
    // SAFETY: guaranteed by the caller.
    let place = unsafe { memory::take("the place", place)? };
    if place.flags & !(PORTOLAN_HIGH | PORTOLAN_NOTIFY) != 0 {
        let text = format!(
            "flags {:#x}: a remote operation accepts PORTOLAN_HIGH and PORTOLAN_NOTIFY only",
            place.flags
        );
        return Err(Failure::new(PORTOLAN_ERR_ARGUMENT, text));
    }
    let key = RemoteKey::from_bytes(place.key.to_le_bytes());
    let mut target = RemoteTarget::new(place.rank, key, place.offset);
    if place.flags & PORTOLAN_HIGH != 0 {
        target = target.lane(Lane::High);
    }
    if place.flags & PORTOLAN_NOTIFY != 0 {
        target = target.notify(place.notice);
    }
    Ok(target)
}

/// Registers `len` bytes of memory for all processes of the job that have `*key`, a random number.
/// `access`: PORTOLAN_READ_ACCESS, PORTOLAN_WRITE_ACCESS or both. The program may continue to use
/// the memory. Changes by other processes appear during calls of the library or, within a host, at
/// any time. The memory must stay valid until portolan_deregister() or portolan_close().
///
/// Errors: PORTOLAN_ERR_ARGUMENT, PORTOLAN_ERR_NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_register(
    node: *mut portolan_node_t,
    memory: *mut c_void,
    len: usize,
    access: u32,
    key: *mut u64,
) -> c_int {
    guard(|| {
        if key.is_null() {
            return Err(Failure::null("key"));
        }
        let both = PORTOLAN_READ_ACCESS | PORTOLAN_WRITE_ACCESS;
        if access == 0 || access & !both != 0 {
            let text = format!(
                "access {access:#x}: use PORTOLAN_READ_ACCESS, PORTOLAN_WRITE_ACCESS or both"
            );
            return Err(Failure::new(PORTOLAN_ERR_ARGUMENT, text));
        }
        let access = Access {
            read: access & PORTOLAN_READ_ACCESS != 0,
            write: access & PORTOLAN_WRITE_ACCESS != 0,
        };
        // SAFETY: guaranteed by the program.
        let (mut entered, buffer) = unsafe { (enter(node)?, memory::receive_buffer(memory, len)?) };
        let joined = entered.joined()?;
        let registered = joined.node.register(buffer, access)?;
        let number = key_of(registered.key());
        joined.registered.insert(number, registered);
        // SAFETY: not null; the program guarantees that it points to a key.
        unsafe { key.write(number) };
        Ok(PORTOLAN_OK)
    })
}

/// Deregisters a region. Operations on it, pending or later, fail with PORTOLAN_ERR_REMOTE_REFUSED.
///
/// Errors: PORTOLAN_ERR_NO_REGION.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_deregister(node: *mut portolan_node_t, key: u64) -> c_int {
    guard(|| {
        // SAFETY: guaranteed by the program.
        let mut entered = unsafe { enter(node)? };
        let joined = entered.joined()?;
        let Some(registered) = joined.registered.remove(&key) else {
            let text = "this process registers no memory with that key, or has deregistered it";
            return Err(Failure::new(PORTOLAN_ERR_NO_REGION, text));
        };
        // Memory of the program: dropping the buffer has no other effect.
        drop(joined.node.deregister(registered));
        Ok(PORTOLAN_OK)
    })
}

/// Puts `len` bytes into the memory of another process. They are in place when it returns. An
/// operation that is submitted after a put, to the same process and on the same lane, finds its
/// bytes in place. If two operations are longer than 64 KiB (16 KiB within a host) and touch the
/// same bytes, the second must wait for the completion of the first.
///
/// Errors: PORTOLAN_ERR_REMOTE_REFUSED, those of portolan_send().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_put(
    node: *mut portolan_node_t,
    to: *const portolan_remote_t,
    buffer: *const c_void,
    len: usize,
) -> c_int {
    guard(|| {
        // SAFETY: guaranteed by the program.
        let (mut entered, bytes) =
            unsafe { (enter(node)?, memory::bytes("the buffer", buffer, len)?) };
        // SAFETY: guaranteed by the program.
        entered.node()?.put(unsafe { target(to)? }, bytes)?;
        Ok(PORTOLAN_OK)
    })
}

/// Gets `len` bytes from the memory of another process.
///
/// Errors: those of portolan_put().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_get(
    node: *mut portolan_node_t,
    from: *const portolan_remote_t,
    buffer: *mut c_void,
    len: usize,
) -> c_int {
    guard(|| {
        // SAFETY: guaranteed by the program.
        let (mut entered, bytes) =
            unsafe { (enter(node)?, memory::bytes_mut("the buffer", buffer, len)?) };
        // SAFETY: guaranteed by the program.
        entered.node()?.get(unsafe { target(from)? }, bytes)?;
        Ok(PORTOLAN_OK)
    })
}

/// Starts a nonblocking put. The request is complete when the bytes are in place. Until then, the
/// buffer must not change. Handlers may call it.
///
/// Errors: those of portolan_put().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_iput(
    node: *mut portolan_node_t,
    to: *const portolan_remote_t,
    buffer: *const c_void,
    len: usize,
    request: *mut portolan_request_t,
) -> c_int {
    let operation = |caller: Caller| {
        // SAFETY: guaranteed by the program.
        let buffer = unsafe { memory::send_buffer(buffer, len)? };
        // SAFETY: guaranteed by the program.
        let target = unsafe { target(to)? };
        Ok(call!(caller.iput(target, buffer)))
    };
    // SAFETY: guaranteed by the program.
    unsafe { begin_waited(node, request, operation) }
}

/// Starts a nonblocking get. The buffer must not be used until the request is complete. Handlers
/// may call it.
///
/// Errors: those of portolan_put().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_iget(
    node: *mut portolan_node_t,
    from: *const portolan_remote_t,
    buffer: *mut c_void,
    len: usize,
    request: *mut portolan_request_t,
) -> c_int {
    let operation = |caller: Caller| {
        // SAFETY: guaranteed by the program.
        let buffer = unsafe { memory::receive_buffer(buffer, len)? };
        // SAFETY: guaranteed by the program.
        let target = unsafe { target(from)? };
        Ok(call!(caller.iget(target, buffer)))
    };
    // SAFETY: guaranteed by the program.
    unsafe { begin_waited(node, request, operation) }
}

/// Stores the next received notice of a put with PORTOLAN_NOTIFY in `*notice`. Returns 1, or 0 if
/// there is none. It makes no progress.
///
/// Errors: PORTOLAN_ERR_NOBODY_LEFT when there is none and none can arrive, because all other
/// processes of the job have ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_next_notice(
    node: *mut portolan_node_t,
    notice: *mut portolan_notice_t,
) -> c_int {
    guard(|| {
        // SAFETY: guaranteed by the program.
        let (mut entered, notice) = unsafe { (enter(node)?, Out::new("notice", notice)?) };
        let Some(next) = entered.node()?.next_notice()? else {
            return Ok(0);
        };
        notice.fill(&to_c(&next));
        Ok(1)
    })
}

/// Waits for the next notice of a put with PORTOLAN_NOTIFY, and stores it in `*notice`.
///
/// Errors: PORTOLAN_ERR_NOBODY_LEFT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_wait_notice(
    node: *mut portolan_node_t,
    notice: *mut portolan_notice_t,
) -> c_int {
    guard(|| {
        // SAFETY: guaranteed by the program.
        let (mut entered, notice) = unsafe { (enter(node)?, Out::new("notice", notice)?) };
        notice.fill(&to_c(&entered.node()?.wait_notice()?));
        Ok(PORTOLAN_OK)
    })
}

/// Waits like portolan_wait_notice(), at most `timeout_ns` nanoseconds.
///
/// Errors: PORTOLAN_ERR_TIMEOUT, PORTOLAN_ERR_NOBODY_LEFT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_wait_notice_for(
    node: *mut portolan_node_t,
    timeout_ns: u64,
    notice: *mut portolan_notice_t,
) -> c_int {
    guard(|| {
        // SAFETY: guaranteed by the program.
        let (mut entered, notice) = unsafe { (enter(node)?, Out::new("notice", notice)?) };
        let timeout = timeout(timeout_ns);
        let Some(next) = entered.node()?.wait_notice_timeout(timeout)? else {
            return Err(timed_out("no notice has arrived", timeout));
        };
        notice.fill(&to_c(&next));
        Ok(PORTOLAN_OK)
    })
}

fn to_c(notice: &PutNotice) -> portolan_notice_t {
    portolan_notice_t {
        size: 0,
        word: notice.word,
        key: key_of(notice.key),
        offset: notice.offset,
        len: notice.len,
        source: notice.source,
    }
}
