// SPDX-License-Identifier: MIT OR Apache-2.0
//! The lock of a domain, which a program that promises to be single-threaded does not pay for.

#![allow(
    unsafe_code,
    reason = "a lock that is conditional is not in the standard library"
)]

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};

use parking_lot::RawMutex;
use parking_lot::lock_api::RawMutex as _;

/// A value that one thread at a time may use: by a lock, or by the application's promise.
pub(crate) struct Guarded<T> {
    raw: RawMutex,
    /// False: the application serialises its calls (`FI_THREAD_DOMAIN`), so no lock is taken.
    locking: bool,
    value: UnsafeCell<T>,
}

// SAFETY: `value` is reached only through `lock`, which either holds `raw` or relies on the
// application's promise that no two calls on a domain overlap (`FI_THREAD_DOMAIN`).
unsafe impl<T: Send> Sync for Guarded<T> {}

impl<T> Guarded<T> {
    pub(crate) fn new(value: T, locking: bool) -> Guarded<T> {
        Guarded {
            raw: RawMutex::INIT,
            locking,
            value: UnsafeCell::new(value),
        }
    }

    /// Take the value. Never nested: no code of the application runs below it.
    #[inline]
    pub(crate) fn lock(&self) -> Guard<'_, T> {
        if self.locking {
            self.raw.lock();
        }
        Guard { of: self }
    }
}

pub(crate) struct Guard<'a, T> {
    of: &'a Guarded<T>,
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this guard is the only one (see `Guarded`).
        unsafe { &*self.of.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard is the only one (see `Guarded`).
        unsafe { &mut *self.of.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if self.of.locking {
            // SAFETY: locked by `lock`, which made this guard.
            unsafe { self.of.raw.unlock() };
        }
    }
}
