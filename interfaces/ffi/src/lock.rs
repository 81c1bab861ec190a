// SPDX-License-Identifier: MIT OR Apache-2.0
//! A lock around a library's state. While only one thread uses it, it needs no atomic
//! read-modify-write operation. Such an operation would wait for earlier stores to memory that
//! another core reads, such as a message in a ring.
//!
//! The first thread that takes the lock owns it, and enters by setting a flag that only this thread
//! writes. A second thread marks the lock as contended and issues `membarrier`, so that all threads
//! of the process see the mark. It then waits until the owner has left. From then on, all threads
//! take an ordinary mutex.

use crate::this_thread;
use parking_lot::RawMutex;
use parking_lot::lock_api::{RawMutex as _, RawMutexTimed as _};
use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, compiler_fence};
use std::time::{Duration, Instant};

/// A value of the process that one thread at a time can use.
pub struct Locked<T: 'static> {
    lock: Lock,
    value: UnsafeCell<T>,
}

// SAFETY: the value is accessed only through `Held`, of which the lock allows one at a time.
unsafe impl<T: Send> Sync for Locked<T> {}

impl<T> Locked<T> {
    /// Creates a value that no thread holds.
    pub const fn new(value: T) -> Self {
        Locked {
            lock: Lock::new(),
            value: UnsafeCell::new(value),
        }
    }

    /// Waits for the value. Returns `None` if this thread already holds it, as in a signal handler
    /// or in a callback of the program. Once a second thread has taken the lock, this is no longer
    /// detected, and such a call deadlocks. Code that may run in a handler or callback must use
    /// `take_now`.
    #[inline]
    pub fn take(&'static self) -> Option<Held<T>> {
        let guard = self.lock.take()?;
        Some(Held {
            value: &self.value,
            _guard: guard,
        })
    }

    /// Like [`Locked::take`], but returns `None` if other threads hold the value for longer than
    /// `timeout`.
    pub fn take_within(&'static self, timeout: Duration) -> Option<Held<T>> {
        let guard = self.lock.take_within(timeout)?;
        Some(Held {
            value: &self.value,
            _guard: guard,
        })
    }

    /// Takes the value, unless this or another thread holds it.
    #[inline]
    pub fn take_now(&'static self) -> Option<Held<T>> {
        let guard = self.lock.take_now()?;
        Some(Held {
            value: &self.value,
            _guard: guard,
        })
    }

    /// Returns `true` if more than one thread has ever taken it.
    pub fn is_shared(&self) -> bool {
        self.lock.is_shared()
    }
}

/// Access to the value of a [`Locked`], until dropped.
pub struct Held<T: 'static> {
    value: &'static UnsafeCell<T>,
    _guard: Guard,
}

impl<T> Deref for Held<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the lock is held, so there is no other reference.
        unsafe { &*self.value.get() }
    }
}

impl<T> DerefMut for Held<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above.
        unsafe { &mut *self.value.get() }
    }
}

/// The lock of a [`Locked`]: biased towards the first thread until a second one takes it.
struct Lock {
    /// The owning thread; 0 before the first.
    owner: AtomicUsize,
    /// Set while that thread is inside without the mutex.
    is_inside: AtomicBool,
    /// Set after a second thread has requested the lock.
    is_contended: AtomicBool,
    /// Set once all threads take the mutex. Written with the mutex held.
    is_revoked: AtomicBool,
    mutex: RawMutex,
}

/// Proof that this thread holds the lock.
struct Guard {
    lock: &'static Lock,
    has_mutex: bool,
    /// The thread that took the lock must release it.
    not_send: PhantomData<*const ()>,
}

impl Drop for Guard {
    #[inline]
    fn drop(&mut self) {
        if self.has_mutex {
            // SAFETY: locked by this thread when this was created.
            unsafe { self.lock.mutex.unlock() };
        } else {
            // SYNC: ffi-inside. A thread that sees this also sees everything done inside.
            self.lock.is_inside.store(false, Ordering::Release);
        }
    }
}

impl Lock {
    const fn new() -> Lock {
        Lock {
            owner: AtomicUsize::new(0),
            is_inside: AtomicBool::new(false),
            is_contended: AtomicBool::new(false),
            is_revoked: AtomicBool::new(false),
            mutex: RawMutex::INIT,
        }
    }

    #[inline]
    fn guard(&'static self, has_mutex: bool) -> Guard {
        Guard {
            lock: self,
            has_mutex,
            not_send: PhantomData,
        }
    }

    fn is_shared(&self) -> bool {
        self.is_revoked.load(Ordering::Relaxed)
    }

    #[inline]
    fn is_own(&self) -> bool {
        self.owner.load(Ordering::Relaxed) == this_thread()
    }

    fn has_no_owner(&self) -> bool {
        self.owner.load(Ordering::Relaxed) == 0
    }

    #[inline]
    fn take(&'static self) -> Option<Guard> {
        if self.is_own() {
            if self.is_inside.load(Ordering::Relaxed) {
                return None;
            }
            if let Some(guard) = self.take_own() {
                return Some(guard);
            }
        }
        match self.take_mutex() {
            true => Some(self.guard(true)),
            false => self.take(),
        }
    }

    /// Takes the lock without the mutex. Only the owner may call it, while not inside. Returns
    /// `None` if another thread has requested the lock.
    #[inline]
    fn take_own(&'static self) -> Option<Guard> {
        if self.is_contended.load(Ordering::Relaxed) {
            return None;
        }
        self.is_inside.store(true, Ordering::Relaxed);
        // The processor may still load before it stores; `revoke` enforces the order.
        compiler_fence(Ordering::SeqCst);
        if self.is_contended.load(Ordering::Relaxed) {
            self.is_inside.store(false, Ordering::Release);
            return None;
        }
        Some(self.guard(false))
    }

    #[inline]
    fn take_now(&'static self) -> Option<Guard> {
        let is_free = self.is_own() && !self.is_inside.load(Ordering::Relaxed);
        let own = if is_free { self.take_own() } else { None };
        own.or_else(|| self.take_now_from_others())
    }

    #[cold]
    fn take_now_from_others(&'static self) -> Option<Guard> {
        match self.has_no_owner() {
            true => self.take(),
            false => self.take_within(Duration::ZERO),
        }
    }

    fn take_within(&'static self, timeout: Duration) -> Option<Guard> {
        if self.is_own() {
            if self.is_inside.load(Ordering::Relaxed) {
                return None;
            }
            if let Some(guard) = self.take_own() {
                return Some(guard);
            }
        }
        let end = Instant::now().checked_add(timeout);
        if !self.mutex.try_lock_for(timeout) {
            return None;
        }
        if self.revoke(end) {
            return Some(self.guard(true));
        }
        // SAFETY: locked above.
        unsafe { self.mutex.unlock() };
        None
    }

    /// Takes the mutex and returns `true`. Returns `false` without the mutex if this is the first
    /// thread, which becomes the owner.
    #[cold]
    fn take_mutex(&self) -> bool {
        self.mutex.lock();
        let is_first = self.has_no_owner();
        if is_first && register() {
            self.owner.store(this_thread(), Ordering::Relaxed);
            // SAFETY: locked above.
            unsafe { self.mutex.unlock() };
            return false;
        }
        // The lock has no owner if the kernel does not support the barrier.
        if is_first {
            self.owner.store(usize::MAX, Ordering::Relaxed);
        }
        self.revoke(None);
        true
    }

    /// Makes all threads take the mutex from now on. The caller holds the mutex. Returns `false` if
    /// the owner is still inside at `end`. The lock then stays contended: the owner takes the mutex
    /// on its next entry, and the next caller of this function waits for the owner again.
    fn revoke(&self, end: Option<Instant>) -> bool {
        if self.is_shared() {
            return true;
        }
        self.is_contended.store(true, Ordering::SeqCst);
        fence_all();
        // From here on the owner has either announced that it is inside, or will see that the lock
        // is contended.
        // SYNC: ffi-inside.
        while self.is_inside.load(Ordering::Acquire) && !self.is_own() {
            if end.is_some_and(|end| Instant::now() >= end) {
                return false;
            }
            std::thread::yield_now();
        }
        self.is_revoked.store(true, Ordering::Relaxed);
        true
    }
}

fn membarrier(command: libc::c_int) -> bool {
    // SAFETY: changes no memory; the kernel refuses unknown commands.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

/// Returns `true` if the kernel can make stores visible to all threads of this process.
fn register() -> bool {
    membarrier(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED)
}

fn fence_all() {
    if !membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED) {
        // If registration failed, no thread omits the mutex.
        std::sync::atomic::fence(Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Shared(UnsafeCell<u64>);
    // SAFETY: accessed only with the lock held.
    unsafe impl Sync for Shared {}

    fn new_lock() -> &'static Lock {
        Box::leak(Box::new(Lock::new()))
    }

    fn count(lock: &'static Lock, shared: &Shared, times: u64) {
        for _ in 0..times {
            let _guard = lock.take().unwrap();
            // SAFETY: the lock is held.
            unsafe { *shared.0.get() += 1 };
        }
    }

    #[test]
    fn owner_does_not_wait_after_contention() {
        let lock = new_lock();
        drop(lock.take_now().unwrap());
        let barrier = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let guard = lock.take().unwrap();
                barrier.wait();
                barrier.wait();
                drop(guard);
            });
            barrier.wait();
            assert!(lock.take_now().is_none() && lock.take_within(Duration::ZERO).is_none());
            barrier.wait();
        });
        let guard = lock.take_now().unwrap();
        assert!(lock.take_now().is_none(), "it is inside");
        drop(guard);
    }

    /// No count of several threads is lost from the moment that the second starts.
    #[test]
    fn later_threads_lose_no_update() {
        let (lock, shared) = (new_lock(), Shared(UnsafeCell::new(0)));
        count(lock, &shared, 1000);
        assert!(!lock.is_shared());
        let guard = lock.take().unwrap();
        assert!(lock.take().is_none() && lock.take_within(Duration::ZERO).is_none());
        drop(guard);
        let (each, count_of) = (20_000, 3);
        std::thread::scope(|scope| {
            for _ in 0..count_of {
                scope.spawn(|| count(lock, &shared, each));
            }
            count(lock, &shared, each);
        });
        assert!(lock.is_shared());
        let _guard = lock.take().unwrap();
        // SAFETY: the lock is held.
        let total = unsafe { *shared.0.get() };
        assert_eq!(total, 1000 + each * (count_of + 1));
    }

    /// `take_now` refuses at once, and the first thread stays without the mutex while it is alone.
    #[test]
    fn take_now_succeeds_when_the_lock_is_free() {
        static VALUE: Locked<u32> = Locked::new(0);
        let mut held = VALUE.take_now().unwrap();
        *held += 1;
        assert!(VALUE.take_now().is_none() && VALUE.take().is_none());
        assert!(!VALUE.is_shared());
        std::thread::scope(|scope| {
            let is_refused = scope.spawn(|| VALUE.take_now().is_none());
            assert!(is_refused.join().unwrap());
            // The lock is contended by now, while this thread is inside.
            assert!(VALUE.take_now().is_none());
            drop(held);
            let other = scope.spawn(|| VALUE.take_now().map(|mut held| *held += 1));
            assert!(other.join().unwrap().is_some());
        });
        assert!(VALUE.is_shared());
        assert_eq!(*VALUE.take_now().unwrap(), 2);
    }

    /// Like the end of a process during a call that does not return.
    #[test]
    fn take_within_times_out_without_effect_on_others() {
        let (lock, shared) = (new_lock(), Shared(UnsafeCell::new(0)));
        let guard = lock.take().unwrap();
        std::thread::scope(|scope| {
            let timeout = Duration::from_millis(1);
            let ending = scope.spawn(move || lock.take_within(timeout).is_none());
            assert!(ending.join().unwrap());
        });
        assert!(!lock.is_shared());
        drop(guard);
        std::thread::scope(|scope| {
            scope.spawn(|| count(lock, &shared, 1000));
            count(lock, &shared, 1000);
        });
        assert!(lock.is_shared() && lock.take_within(Duration::MAX).is_some());
        assert_eq!(shared.0.into_inner(), 2000);
    }
}
