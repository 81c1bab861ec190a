// SPDX-License-Identifier: MIT OR Apache-2.0
//! Locking of memory. GAMMA's driver wrote to physical addresses and required it. Portolan does
//! not, so exceeding a system limit is not an error.

use crate::code::*;
use std::ffi::{c_int, c_ulong, c_void};
use std::io;

/// Returns the pages that contain `len` bytes at `buf`.
fn pages(buf: *const c_void, len: c_ulong) -> Result<(*mut c_void, usize), Failure> {
    if buf.is_null() {
        return Err(Failure::new(GAMMA_ERR_NULL, "the buffer is null"));
    }
    // SAFETY: the call has no preconditions.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    let page = usize::try_from(page).unwrap_or(4096);
    let within = buf.addr() % page;
    let len = usize::try_from(len).unwrap_or(usize::MAX);
    let at = buf.cast_mut().wrapping_byte_sub(within);
    Ok((at, len.saturating_add(within)))
}

fn system_error(what: &str) -> Failure {
    let error = io::Error::last_os_error();
    Failure::new(GAMMA_ERR_SYSTEM, format!("{what}: {error}"))
}

/// Locks memory, as far as the system's limits allow. Unlocked memory only costs speed.
///
/// Errors: GAMMA_ERR_NULL; GAMMA_ERR_SYSTEM when the memory is not mapped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gamma_mlock(buf: *const c_void, len: c_ulong) -> c_int {
    guard(|| {
        let (at, len) = pages(buf, len)?;
        // SAFETY: the kernel checks the addresses.
        if unsafe { libc::mlock(at, len) } == 0 {
            return Ok(0);
        }
        // `mlock` fails for unmapped memory and for a limit. `msync` with MS_ASYNC has no effect,
        // but it fails for unmapped memory.
        // SAFETY: as above.
        if unsafe { libc::msync(at, len, libc::MS_ASYNC) } == 0 {
            return Ok(0);
        }
        Err(system_error("locking memory"))
    })
}

/// Unlocks memory.
///
/// Errors: GAMMA_ERR_NULL, GAMMA_ERR_SYSTEM.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gamma_munlock(buf: *const c_void, len: c_ulong) -> c_int {
    guard(|| {
        let (at, len) = pages(buf, len)?;
        // SAFETY: the kernel checks the addresses.
        match unsafe { libc::munlock(at, len) } {
            0 => Ok(0),
            _ => Err(system_error("unlocking memory")),
        }
    })
}

/// Unlocks all memory of the process.
///
/// Errors: GAMMA_ERR_SYSTEM.
#[unsafe(no_mangle)]
pub extern "C" fn gamma_munlockall() -> c_int {
    // SAFETY: the call has no preconditions.
    guard(|| match unsafe { libc::munlockall() } {
        0 => Ok(0),
        _ => Err(system_error("unlocking all memory")),
    })
}
