// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why a function failed, as C programs are told.

pub(crate) use crate::error::Failure;
pub(crate) use portolan_ffi::guard;
use std::ffi::c_char;

/// Why the last function of the library that failed on this thread did so: one sentence that names
/// the thing and the cause. Valid until the next failure on this thread; empty before the first;
/// never null.
#[unsafe(no_mangle)]
pub extern "C" fn portolan_last_error() -> *const c_char {
    portolan_ffi::last_error()
}
