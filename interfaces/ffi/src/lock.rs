// SPDX-License-Identifier: MIT OR Apache-2.0
//! A lock around what a library has, which costs a thread that is alone in it no atomic operation: behind a
//! store to memory that another processor reads, such as a message in a ring, one waits for that store to
//! arrive.
//!
//! It belongs to the first thread that takes it, by a flag that this thread alone writes, until another one
//! comes. That one says so, has the kernel make all threads of the process see it (`membarrier`), and waits
//! until the first is out; from then on everybody takes an ordinary mutex.

use crate::this_thread;
use parking_lot::RawMutex;
use parking_lot::lock_api::{RawMutex as _, RawMutexTimed as _};
use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, compiler_fence};
use std::time::{Duration, Instant};

/// A value of the process's that one thread at a time may have.
pub struct Locked<T: 'static> {
    lock: Lock,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached through `Held` alone, of which there is one at a time, by the lock.
unsafe impl<T: Send> Sync for Locked<T> {}

impl<T> Locked<T> {
    /// One that nobody has.
    pub const fn new(value: T) -> Self {
        Locked {
            lock: Lock::new(),
            value: UnsafeCell::new(value),
        }
    }

    /// Waits for the value. `None` when this thread has it already: it was interrupted by a signal, or is in
    /// a function of the program's that the library called. Once another thread has ever taken it, that is
    /// not seen any more, and such a call waits for itself: who may be in one takes it by `take_now`.
    #[inline]
    pub fn take(&'static self) -> Option<Held<T>> {
        let guard = self.lock.take()?;
        Some(Held {
            value: &self.value,
            _guard: guard,
        })
    }

    /// The same, unless others do not let go of it in that time.
    pub fn take_within(&'static self, patience: Duration) -> Option<Held<T>> {
        let guard = self.lock.take_within(patience)?;
        Some(Held {
            value: &self.value,
            _guard: guard,
        })
    }

    /// Takes the value, unless another thread has it, or this one already.
    #[inline]
    pub fn take_now(&'static self) -> Option<Held<T>> {
        let guard = self.lock.take_now()?;
        Some(Held {
            value: &self.value,
            _guard: guard,
        })
    }

    /// Whether more than one thread has ever taken it.
    pub fn is_shared(&self) -> bool {
        self.lock.is_shared()
    }
}

/// The value of a [`Locked`], until it is dropped.
pub struct Held<T: 'static> {
    value: &'static UnsafeCell<T>,
    _guard: Guard,
}

impl<T> Deref for Held<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the lock is held, and nobody else has a reference.
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

/// See the module documentation.
struct Lock {
    /// The thread that it belongs to; 0 before the first.
    owner: AtomicUsize,
    /// That thread is inside, without the mutex.
    is_inside: AtomicBool,
    /// Another thread has come.
    is_wanted: AtomicBool,
    /// The owner knows that, and takes the mutex. Written with it held.
    is_revoked: AtomicBool,
    mutex: RawMutex,
}

/// The lock is held by this thread.
struct Guard {
    lock: &'static Lock,
    has_mutex: bool,
    /// Who has taken it gives it back.
    not_send: PhantomData<*const ()>,
}

impl Drop for Guard {
    #[inline]
    fn drop(&mut self) {
        if self.has_mutex {
            // SAFETY: taken when this was made, by this thread.
            unsafe { self.lock.mutex.unlock() };
        } else {
            // SYNC: ffi-inside. Whoever sees it sees all that was done inside.
            self.lock.is_inside.store(false, Ordering::Release);
        }
    }
}

impl Lock {
    const fn new() -> Lock {
        Lock {
            owner: AtomicUsize::new(0),
            is_inside: AtomicBool::new(false),
            is_wanted: AtomicBool::new(false),
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

    fn is_nobodys(&self) -> bool {
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

    /// The lock without the mutex, for its owner, who is not inside; `None` once another thread has come.
    #[inline]
    fn take_own(&'static self) -> Option<Guard> {
        if self.is_wanted.load(Ordering::Relaxed) {
            return None;
        }
        self.is_inside.store(true, Ordering::Relaxed);
        // The processor may still look first and store then: `revoke` has it done in order.
        compiler_fence(Ordering::SeqCst);
        if self.is_wanted.load(Ordering::Relaxed) {
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
        match self.is_nobodys() {
            true => self.take(),
            false => self.take_within(Duration::ZERO),
        }
    }

    fn take_within(&'static self, patience: Duration) -> Option<Guard> {
        if self.is_own() {
            if self.is_inside.load(Ordering::Relaxed) {
                return None;
            }
            if let Some(guard) = self.take_own() {
                return Some(guard);
            }
        }
        let end = Instant::now().checked_add(patience);
        if !self.mutex.try_lock_for(patience) {
            return None;
        }
        if self.revoke(end) {
            return Some(self.guard(true));
        }
        // SAFETY: taken above.
        unsafe { self.mutex.unlock() };
        None
    }

    /// Whether the mutex is taken; else this is the first thread, whose the lock is from now on.
    #[cold]
    fn take_mutex(&self) -> bool {
        self.mutex.lock();
        let is_first = self.is_nobodys();
        if is_first && register() {
            self.owner.store(this_thread(), Ordering::Relaxed);
            // SAFETY: taken above.
            unsafe { self.mutex.unlock() };
            return false;
        }
        // Nobody's, where the kernel cannot help.
        if is_first {
            self.owner.store(usize::MAX, Ordering::Relaxed);
        }
        self.revoke(None);
        true
    }

    /// Makes the mutex, which is held, what everybody takes: whether the owner was out before `end`. If it
    /// was not, it will take the mutex the next time, and who comes next waits for it again.
    fn revoke(&self, end: Option<Instant>) -> bool {
        if self.is_shared() {
            return true;
        }
        self.is_wanted.store(true, Ordering::SeqCst);
        fence_all();
        // From here on the owner either has said that it is inside, or will see that it is wanted.
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
    // SAFETY: changes no memory; the kernel refuses what it does not know.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

/// Whether the kernel can make all threads of this process see what one has stored.
fn register() -> bool {
    membarrier(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED)
}

fn fence_all() {
    if !membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED) {
        // Nobody goes without the mutex where it was not registered.
        std::sync::atomic::fence(Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Shared(UnsafeCell<u64>);
    // SAFETY: reached with the lock held only.
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
    fn the_owner_does_not_wait_for_who_came_later() {
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

    /// Nothing of what several threads count is lost, from the moment that the second comes.
    #[test]
    fn threads_that_come_later_lose_nothing() {
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

    /// Who will not wait is told at once, and the first stays without the mutex as long as it is alone.
    #[test]
    fn who_will_not_wait_has_it_when_nobody_else_does() {
        static VALUE: Locked<u32> = Locked::new(0);
        let mut held = VALUE.take_now().unwrap();
        *held += 1;
        assert!(VALUE.take_now().is_none() && VALUE.take().is_none());
        assert!(!VALUE.is_shared());
        std::thread::scope(|scope| {
            let is_refused = scope.spawn(|| VALUE.take_now().is_none());
            assert!(is_refused.join().unwrap());
            // It is wanted by now, and this thread inside all the same.
            assert!(VALUE.take_now().is_none());
            drop(held);
            let other = scope.spawn(|| VALUE.take_now().map(|mut held| *held += 1));
            assert!(other.join().unwrap().is_some());
        });
        assert!(VALUE.is_shared());
        assert_eq!(*VALUE.take_now().unwrap(), 2);
    }

    /// As at the end of a process, behind a call that does not come back.
    #[test]
    fn who_has_no_more_patience_does_not_get_it_and_all_others_do() {
        let (lock, shared) = (new_lock(), Shared(UnsafeCell::new(0)));
        let guard = lock.take().unwrap();
        std::thread::scope(|scope| {
            let patience = Duration::from_millis(1);
            let ending = scope.spawn(move || lock.take_within(patience).is_none());
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
