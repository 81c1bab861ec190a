// SPDX-License-Identifier: MIT OR Apache-2.0
//! A lock for a few instructions, in memory that forked processes share.
//!
//! It survives a holder that was killed: a waiter takes the lock over from a thread that no longer
//! exists. A signal handler cannot take a lock that its own thread holds: the attempt fails.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};

/// Attempts before the waiter yields its core.
const SPINS: u32 = 100;

/// Attempts between checks that the holder still exists.
const YIELDS: u32 = 1000;

thread_local! {
    static OWN_ID: Cell<u32> = const { Cell::new(0) };
}

/// Returns the kernel's number of this thread.
pub(crate) fn own_id() -> u32 {
    let known = OWN_ID.get();
    if known != 0 {
        return known;
    }
    // SAFETY: `gettid` has no preconditions.
    let id = unsafe { libc::gettid() }.unsigned_abs();
    OWN_ID.set(id);
    id
}

/// Forgets the number of this thread, which changed in a forked child.
pub(crate) fn forget_own_id() {
    OWN_ID.set(0);
}

/// Returns true if a thread of this number exists.
pub(crate) fn exists(id: u32) -> bool {
    let id = libc::pid_t::try_from(id).unwrap_or(libc::pid_t::MAX);
    // SAFETY: signal 0 is never delivered.
    (unsafe { libc::kill(id, 0) }) == 0 || crate::errno::last() != libc::ESRCH
}

/// Lock. All zeros is the unlocked state.
#[repr(transparent)]
#[derive(Default)]
pub(crate) struct Lock {
    /// Thread that holds it, or 0.
    holder: AtomicU32,
}

/// The holder is a function that this thread's signal handler interrupted.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Interrupted;

impl Lock {
    /// Waits for the lock, and holds it.
    ///
    /// # Errors
    /// This thread holds it already.
    pub(crate) fn lock(&self) -> Result<(), Interrupted> {
        self.lock_within(u32::MAX)
    }

    /// Holds the lock, unless it is not free within `limit` attempts.
    ///
    /// # Errors
    /// The lock is not free, or this thread holds it already.
    pub(crate) fn lock_within(&self, limit: u32) -> Result<(), Interrupted> {
        let own = own_id();
        let mut attempts = 0_u32;
        loop {
            let found =
                self.holder
                    .compare_exchange_weak(0, own, Ordering::Acquire, Ordering::Relaxed);
            let Err(holder) = found else {
                return Ok(());
            };
            attempts = attempts.wrapping_add(1);
            if holder == own || attempts == limit {
                return Err(Interrupted);
            }
            if attempts.is_multiple_of(YIELDS) {
                self.replace_dead(holder, own)?;
            }
            if attempts > SPINS {
                // SAFETY: `sched_yield` has no preconditions.
                unsafe { libc::sched_yield() };
            } else {
                std::hint::spin_loop();
            }
        }
    }

    /// Opens the lock if its holder no longer exists.
    fn replace_dead(&self, holder: u32, own: u32) -> Result<(), Interrupted> {
        if holder == 0 || holder == own {
            return Ok(());
        }
        if !exists(holder) {
            // If it fails, another waiter was faster.
            let _ = self
                .holder
                .compare_exchange(holder, 0, Ordering::Acquire, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Opens the lock, which this thread holds.
    pub(crate) fn unlock(&self) {
        self.holder.store(0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    fn open() -> Lock {
        Lock {
            holder: AtomicU32::new(0),
        }
    }

    #[test]
    fn second_lock_of_one_thread_is_refused() {
        let lock = open();
        assert_eq!(lock.lock(), Ok(()));
        assert_eq!(lock.lock(), Err(Interrupted));
        lock.unlock();
        assert_eq!(lock.lock(), Ok(()));
    }

    #[test]
    fn lock_of_a_dead_thread_is_taken_over() {
        let lock = open();
        std::thread::scope(|scope| {
            scope.spawn(|| lock.lock());
        });
        assert_eq!(lock.lock(), Ok(()));
    }

    #[test]
    fn threads_exclude_each_other() {
        let (lock, sum) = (open(), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        lock.lock().unwrap();
                        let before = sum.load(Ordering::Relaxed);
                        std::hint::spin_loop();
                        sum.store(before + 1, Ordering::Relaxed);
                        lock.unlock();
                    }
                });
            }
        });
        assert_eq!(sum.into_inner(), 4000);
    }
}
