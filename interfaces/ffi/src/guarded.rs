// SPDX-License-Identifier: MIT OR Apache-2.0
//! A lock that costs something only if the program calls from several threads at once.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};

use parking_lot::RawMutex;
use parking_lot::lock_api::RawMutex as _;

/// A value used by one thread at a time, ensured by a lock or by the program's promise.
pub struct Guarded<T> {
    raw: RawMutex,
    /// `false` if the program promised that its calls do not overlap; no lock is then taken.
    locking: bool,
    value: UnsafeCell<T>,
}

// SAFETY: `value` is accessed only through `lock`, which either holds `raw` or relies on the
// program's promise that no two calls overlap.
unsafe impl<T: Send> Sync for Guarded<T> {}

impl<T> Guarded<T> {
    /// Guards `value`, with a lock if `locking`.
    pub fn new(value: T, locking: bool) -> Guarded<T> {
        Guarded {
            raw: RawMutex::INIT,
            locking,
            value: UnsafeCell::new(value),
        }
    }

    /// Locks the value. Must not be nested: no code of the program may run while it is held.
    #[inline]
    pub fn lock(&self) -> Guard<'_, T> {
        if self.locking {
            self.raw.lock();
        }
        Guard { of: self }
    }
}

/// Access to the value of a [`Guarded`], until dropped.
pub struct Guard<'a, T> {
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
            // SAFETY: locked by `lock`, which created this guard.
            unsafe { self.of.raw.unlock() };
        }
    }
}
