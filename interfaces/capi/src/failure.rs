// SPDX-License-Identifier: MIT OR Apache-2.0
//! Causes of failures, for C programs.

pub(crate) use crate::error::Failure;
pub(crate) use portolan_ffi::guard;
use std::ffi::c_char;

/// Returns the cause of the last failure of a library function on this thread: one sentence that
/// names the subject and the cause. Valid until the next failure on this thread; empty before the
/// first; never null.
#[unsafe(no_mangle)]
pub extern "C" fn portolan_last_error() -> *const c_char {
    portolan_ffi::last_error()
}
