// SPDX-License-Identifier: MIT OR Apache-2.0
//! Settings of this process, from its environment.
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::sync::atomic::{AtomicU64, Ordering};

/// Time in nanoseconds that a blocked call polls before it sleeps; 0 by default.
pub(crate) const SPIN: &CStr = c"PORTOLAN_SOCKETS_SPIN_NS";

/// File to which each connection's figures are appended.
pub(crate) const STATS: &CStr = c"PORTOLAN_SOCKETS_STATS";

/// Calls on a connection before its end searches for the other end; 16 by default. A short
/// connection is cheaper on the kernel.
pub(crate) const CALLS: &CStr = c"PORTOLAN_SOCKETS_CALLS";

const DEFAULT_CALLS: u64 = 16;

static SPIN_NS: AtomicU64 = AtomicU64::new(0);
static CALLS_BEFORE: AtomicU64 = AtomicU64::new(DEFAULT_CALLS);

/// Reads the environment; called when the library is loaded.
pub(crate) fn load() {
    SPIN_NS.store(number(SPIN).unwrap_or(0), Ordering::Relaxed);
    CALLS_BEFORE.store(number(CALLS).unwrap_or(DEFAULT_CALLS), Ordering::Relaxed);
}

/// Returns a number of the environment.
fn number(name: &CStr) -> Option<u64> {
    variable(name)?.to_str().ok()?.parse().ok()
}

/// Returns a variable of the environment, without memory of its own.
pub(crate) fn variable(name: &CStr) -> Option<&'static CStr> {
    // SAFETY: `name` ends with a zero byte. The value lives until the program replaces it; it is
    // only used before the program's first instruction, or copied.
    unsafe {
        let found = libc::getenv(name.as_ptr());
        (!found.is_null()).then(|| CStr::from_ptr(found))
    }
}

/// Returns the time that a blocked call polls, in nanoseconds.
pub(crate) fn spin_ns() -> u64 {
    SPIN_NS.load(Ordering::Relaxed)
}

/// Returns the calls before the first search for the other end.
pub(crate) fn calls_before_join() -> u32 {
    u32::try_from(CALLS_BEFORE.load(Ordering::Relaxed)).unwrap_or(u32::MAX)
}
