// SPDX-License-Identifier: MIT OR Apache-2.0
//! Detection of forked children. A child has its parent's memory and descriptors, and must not use
//! either for a session of the parent.
//!
//! A `pthread_atfork` handler counts forks, so a check costs one load. Children of `vfork` and
//! `posix_spawn` share the parent's memory until they run another program, and are not counted.
#![allow(unsafe_code, reason = "pthread_atfork is not in the standard library")]

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

/// Number of forks between the first process of this program that used this module and this one.
static FORKS: AtomicU32 = AtomicU32::new(0);

extern "C" fn count() {
    FORKS.store(
        FORKS.load(Ordering::Relaxed).wrapping_add(1),
        Ordering::Relaxed,
    );
}

/// Runs `handler` in each child of this process, right after the fork. It may do only what a signal
/// handler may do.
pub fn at_child(handler: extern "C" fn()) {
    // SAFETY: the function exists as long as this code; the library removes it when that is
    // unloaded. The call fails only without memory; the handler is then not run in children.
    let failed = unsafe { libc::pthread_atfork(None, None, Some(handler)) };
    debug_assert_eq!(failed, 0);
}

/// The process that owns an object.
#[derive(Clone, Copy, Debug)]
pub struct Owner(u32);

impl Owner {
    /// Returns an owner for this process.
    #[must_use]
    pub fn this_process() -> Owner {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| at_child(count));
        Owner(FORKS.load(Ordering::Relaxed))
    }

    /// Returns `true` if this process is a child that was forked after the owner was created.
    #[inline]
    #[must_use]
    pub fn is_another(self) -> bool {
        FORKS.load(Ordering::Relaxed) != self.0
    }
}
