// SPDX-License-Identifier: MIT OR Apache-2.0
//! The calling thread's `errno`.
#![allow(unsafe_code)]

use libc::c_int;

/// Returns the calling thread's `errno`.
pub(crate) fn last() -> c_int {
    // SAFETY: the C library returns a valid pointer to the thread's own variable.
    unsafe { *libc::__errno_location() }
}

/// Sets the calling thread's `errno`.
pub(crate) fn set(error: c_int) {
    // SAFETY: as in `last`.
    unsafe { *libc::__errno_location() = error }
}

/// Sets `errno` and returns the -1 of a failed call.
pub(crate) fn fail(error: c_int) -> isize {
    set(error);
    -1
}
