// SPDX-License-Identifier: MIT OR Apache-2.0
//! Telling a process from the children it has forked: they have its memory and descriptors, and must
//! use neither for a session that is its own.
//!
//! A handler of `pthread_atfork` counts, so that the question costs one load. Children of `vfork` and
//! `posix_spawn` share the parent's memory until they are another program, and are not counted.
#![allow(unsafe_code, reason = "pthread_atfork is not in the standard library")]

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

/// Forks between the first process of this program that asked and this one.
static FORKS: AtomicU32 = AtomicU32::new(0);

extern "C" fn count() {
    FORKS.store(
        FORKS.load(Ordering::Relaxed).wrapping_add(1),
        Ordering::Relaxed,
    );
}

/// Has `handler` run in each child of this process, right after the fork. It may do what a handler of
/// a signal may.
pub fn at_child(handler: extern "C" fn()) {
    // SAFETY: the function exists as long as this code; the library removes it when that is unloaded.
    // It fails for want of memory only; then children are not told.
    let failed = unsafe { libc::pthread_atfork(None, None, Some(handler)) };
    debug_assert_eq!(failed, 0);
}

/// The process that something belongs to.
#[derive(Clone, Copy, Debug)]
pub struct Owner(u32);

impl Owner {
    /// This process.
    #[must_use]
    pub fn this_process() -> Owner {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| at_child(count));
        Owner(FORKS.load(Ordering::Relaxed))
    }

    /// Whether this process is a child, forked after the owner took possession.
    #[inline]
    #[must_use]
    pub fn is_another(self) -> bool {
        FORKS.load(Ordering::Relaxed) != self.0
    }
}
