// SPDX-License-Identifier: MIT OR Apache-2.0
//! Joining, leaving, and properties of the job.

use crate::code::*;
use crate::failure::{Failure, guard};
use crate::handle::{Caller, enter, enter_any, handle, portolan_node_t};
use crate::memory;
use portolan::Node;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;

/// Joins the job that this process was started in; without a launcher, a job of one. The node
/// belongs to the calling thread. On failure, `*node` becomes null.
///
/// Errors: PORTOLAN_ERR_LAUNCH, PORTOLAN_ERR_LINK, PORTOLAN_ERR_SETTING, PORTOLAN_ERR_SYSTEM.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_join(node: *mut *mut portolan_node_t) -> c_int {
    guard(|| {
        if node.is_null() {
            return Err(Failure::null("node"));
        }
        // SAFETY: not null; the program guarantees that it points to a pointer.
        unsafe { node.write(ptr::null_mut()) };
        let made = portolan_node_t::make(Node::join()?);
        // SAFETY: as above.
        unsafe { node.write(ptr::from_ref(made).cast_mut()) };
        Ok(PORTOLAN_OK)
    })
}

/// Leaves the job after all sent messages have arrived, however long live receivers take. Pending
/// sends get one second to complete. Other pending operations are cancelled. The memory of all
/// operations belongs to the program again.
///
/// Errors: PORTOLAN_ERR_UNDELIVERED when a process that may be alive may have missed messages;
/// PORTOLAN_ERR_CLOSED when the node was closed before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_close(node: *mut portolan_node_t) -> c_int {
    guard(|| {
        // SAFETY: guaranteed by the program.
        let mut entered = unsafe { enter(node)? };
        if let Some(joined) = portolan_node_t::take(&mut entered) {
            joined.node.close()?;
        }
        Ok(PORTOLAN_OK)
    })
}

/// Gives the node to the calling thread. Its previous thread must not be in a function of the
/// library, and must no longer call one with this node.
///
/// Errors: PORTOLAN_ERR_CLOSED; PORTOLAN_ERR_WRONG_THREAD while the other thread is in a function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_adopt(node: *mut portolan_node_t) -> c_int {
    guard(|| {
        // SAFETY: guaranteed by the program.
        unsafe { handle(node)? }.adopt()?;
        Ok(PORTOLAN_OK)
    })
}

/// Returns the rank of this process, from 0. Handlers may call it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_rank(node: *const portolan_node_t) -> c_int {
    guard(|| {
        // SAFETY: guaranteed by the program.
        let rank = match unsafe { enter_any(node)? } {
            Caller::Program(mut entered) => entered.node()?.rank(),
            Caller::Handler(context) => context.rank(),
        };
        Ok(number(u64::from(rank)))
    })
}

/// Returns the number of processes in the job. Handlers may call it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_size(node: *const portolan_node_t) -> c_int {
    guard(|| {
        // SAFETY: guaranteed by the program.
        let size = match unsafe { enter_any(node)? } {
            Caller::Program(mut entered) => entered.node()?.size(),
            Caller::Handler(context) => context.size(),
        };
        Ok(number(u64::from(size)))
    })
}

/// Converts a count to a result.
pub(crate) fn number(count: u64) -> c_int {
    c_int::try_from(count).unwrap_or(c_int::MAX)
}

/// Reads a string of the program.
///
/// # Safety
/// `text` is null or ends with a zero.
pub(crate) unsafe fn text<'a>(
    what: &str,
    text: *const c_char,
) -> Result<std::borrow::Cow<'a, str>, Failure> {
    if text.is_null() {
        return Err(Failure::null(what));
    }
    // SAFETY: not null; the caller guarantees the zero.
    Ok(unsafe { CStr::from_ptr(text) }.to_string_lossy())
}

/// Copies `found` to the program's `len` bytes, cut to fit, with a terminating zero. Returns its
/// full length.
///
/// # Safety
/// As [`memory::bytes_mut`].
pub(crate) unsafe fn copy_text(
    what: &str,
    place: *mut c_char,
    len: usize,
    found: &str,
) -> Result<c_int, Failure> {
    // SAFETY: guaranteed by the caller.
    let place = unsafe { memory::bytes_mut(what, place.cast(), len)? };
    if let Some(last) = place.len().checked_sub(1) {
        let fits = found.len().min(last);
        place[..fits].copy_from_slice(&found.as_bytes()[..fits]);
        place[fits] = 0;
    }
    Ok(number(found.len() as u64))
}

/// Writes the 16 bytes of the job's random number to `id`. All processes of a job have the same
/// number, and jobs have different ones.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_job_id(node: *mut portolan_node_t, id: *mut u8) -> c_int {
    guard(|| {
        // SAFETY: guaranteed by the program.
        let mut entered = unsafe { enter(node)? };
        let own = entered.node()?.job_id();
        // SAFETY: guaranteed by the program.
        unsafe { memory::bytes_mut("id", id.cast(), own.len())? }.copy_from_slice(&own);
        Ok(PORTOLAN_OK)
    })
}

/// Copies the value of the program's own option `name`, which was given with `portolan run --option
/// app.NAME=VALUE`, to `value`, cut to fit, with a terminating zero. Returns its length without the
/// zero.
///
/// Errors: PORTOLAN_ERR_NO_OPTION.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_option(
    node: *mut portolan_node_t,
    name: *const c_char,
    value: *mut c_char,
    value_len: usize,
) -> c_int {
    guard(|| {
        // SAFETY: guaranteed by the program.
        let (mut entered, name) = unsafe { (enter(node)?, text("name", name)?) };
        let Some(found) = entered.node()?.option(&name) else {
            let text = format!("this job was started without --option app.{name}=VALUE");
            return Err(Failure::new(PORTOLAN_ERR_NO_OPTION, text));
        };
        // SAFETY: guaranteed by the program.
        unsafe { copy_text("value", value, value_len, found) }
    })
}

/// Ends the whole job with exit status `status`, because of `reason`. This process should end too.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_abort(
    node: *mut portolan_node_t,
    status: c_int,
    reason: *const c_char,
) -> c_int {
    guard(|| {
        // SAFETY: guaranteed by the program.
        let (mut entered, reason) = unsafe { (enter(node)?, text("reason", reason)?) };
        entered.node()?.abort(status, &reason);
        Ok(PORTOLAN_OK)
    })
}

/// Calls `tell` with a description of each path to process `rank` that was tried so far: the link,
/// its state and its round-trip time. The text is valid during that call. Returns the number of
/// paths.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_paths(
    node: *mut portolan_node_t,
    rank: u32,
    tell: Option<unsafe extern "C" fn(path: *const c_char, user: *mut c_void)>,
    user: *mut c_void,
) -> c_int {
    guard(|| {
        // SAFETY: guaranteed by the program.
        let mut entered = unsafe { enter(node)? };
        let tell = tell.ok_or_else(|| Failure::null("tell"))?;
        let node = entered.node()?;
        if rank >= node.size() {
            let size = node.size();
            return Err(portolan::Error::NoSuchRank { rank, size }.into());
        }
        let paths = node.paths(rank);
        for path in &paths {
            // The library writes the text without zeros.
            let path = CString::new(path.to_string()).unwrap_or_default();
            // SAFETY: the program guarantees that its function may be called in this way.
            unsafe { tell(path.as_ptr(), user) };
        }
        Ok(number(paths.len() as u64))
    })
}
