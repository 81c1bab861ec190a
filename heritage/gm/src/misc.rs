// SPDX-License-Identifier: MIT OR Apache-2.0
//! Time, and system functions that programs use.

use crate::code::*;
use crate::error::Failure;
use crate::machine::{die, must};
use crate::port::gm_port;
use std::ffi::{CStr, c_char, c_int, c_uint, c_ulong, c_void};
use std::fmt::Write as _;

/// Returns the time since an unspecified moment in units of 0.5 µs, as in GM.
#[unsafe(no_mangle)]
pub extern "C" fn gm_ticks(_port: *mut gm_port) -> u64 {
    /// Nanoseconds per tick.
    const TICK_NS: u64 = 500;
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` is valid for the result.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    let ns = |value: i64| u64::try_from(value).unwrap_or(0);
    (ns(now.tv_sec) * 1_000_000_000 + ns(now.tv_nsec)) / TICK_NS
}

/// Sleeps for `seconds` and returns 0.
#[unsafe(no_mangle)]
pub extern "C" fn gm_sleep(seconds: c_uint) -> c_int {
    std::thread::sleep(std::time::Duration::from_secs(seconds.into()));
    0
}

/// Exits the process: with exit status 0 for GM_SUCCESS, otherwise with 1.
#[unsafe(no_mangle)]
pub extern "C" fn gm_exit(status: gm_status_t) -> ! {
    // SAFETY: functions at exit belong to the program and the library.
    unsafe { libc::exit(c_int::from(status != GM_SUCCESS)) }
}

/// Ends all processes of the job.
#[unsafe(no_mangle)]
pub extern "C" fn gm_abort() -> ! {
    die("the program called gm_abort()", 1)
}

/// Returns the id of this process.
#[unsafe(no_mangle)]
pub extern "C" fn gm_getpid() -> c_uint {
    std::process::id()
}

/// Prints `message`, a colon and the meaning of `status` to standard error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_perror(message: *const c_char, status: gm_status_t) {
    let text = |at: *const c_char| {
        // SAFETY: not null; a string of the program, or the library's own text.
        let text = unsafe { CStr::from_ptr(at) };
        text.to_string_lossy().into_owned()
    };
    let meaning = text(gm_strerror(status));
    match message.is_null() {
        true => eprintln!("{meaning}"),
        false => eprintln!("{}: {meaning}", text(message)),
    }
}

/// Prints `length` bytes as hexadecimal numbers, 16 per line, to standard output.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_hex_dump(ptr: *const c_void, length: gm_size_t) {
    must("gm_hex_dump", || {
        let len = usize::try_from(length).unwrap_or(usize::MAX);
        // SAFETY: the program passes valid arguments, as the function's documentation requires.
        let bytes = unsafe { portolan_ffi::bytes(ptr.cast(), len) };
        let bytes = bytes.map_err(|_| Failure::null("the memory"))?;
        for (line, bytes) in bytes.chunks(16).enumerate() {
            let mut text = format!("{:08x}", line * 16);
            for byte in bytes {
                let _ = write!(text, " {byte:02x}");
            }
            println!("{text}");
        }
        Ok(())
    });
}

/// Returns the exponent of the smallest power of two that is at least `number`.
#[unsafe(no_mangle)]
pub extern "C" fn gm_log2_roundup(number: c_ulong) -> c_ulong {
    number
        .checked_next_power_of_two()
        .map_or(c_ulong::BITS, c_ulong::trailing_zeros)
        .into()
}
