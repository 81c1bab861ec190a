// SPDX-License-Identifier: MIT OR Apache-2.0
//! Causes of failures, for C programs.

use crate::code::PORTOLAN_ERR_TIMEOUT;
pub(crate) use crate::error::Failure;
pub(crate) use portolan_ffi::guard;
use std::ffi::c_char;
use std::time::Duration;

/// Converts a timeout of a program.
pub(crate) fn timeout(timeout_ns: u64) -> Duration {
    Duration::from_nanos(timeout_ns)
}

/// Returns the failure of a call in which nothing happened for `timeout`.
#[cold]
pub(crate) fn timed_out(what: &str, timeout: Duration) -> Failure {
    Failure::new(PORTOLAN_ERR_TIMEOUT, format!("{what} within {timeout:?}"))
}

/// Returns the cause of the last failure of a library function on this thread: one sentence that
/// names the subject and the cause. Valid until the next failure on this thread; empty before the
/// first; never null.
#[unsafe(no_mangle)]
pub extern "C" fn portolan_last_error() -> *const c_char {
    portolan_ffi::last_error()
}
