// SPDX-License-Identifier: MIT OR Apache-2.0
//! The lock of the library, which costs a thread that is alone in it no atomic operation: behind a store to
//! memory that another processor reads, such as a message in a ring, one waits for that store to arrive.
//!
//! It belongs to the first thread that takes it, by a flag that this thread alone writes, until another one
//! comes. That one says so, has the kernel make all threads of the process see it (`membarrier`), and waits
//! until the first is out; from then on everybody takes an ordinary mutex.

use crate::error::{Failure, lacking};
use parking_lot::RawMutex;
use parking_lot::lock_api::{RawMutex as _, RawMutexTimed as _};
use portolan_ffi::this_thread;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, compiler_fence};
use std::time::Duration;

/// The thread that it belongs to; 0 before the first.
static OWNER: AtomicUsize = AtomicUsize::new(0);
/// That thread is inside, without the mutex.
static IS_INSIDE: AtomicBool = AtomicBool::new(false);
/// Another thread has come.
static IS_WANTED: AtomicBool = AtomicBool::new(false);
/// The owner knows that, and takes the mutex. Written with it held.
static IS_REVOKED: AtomicBool = AtomicBool::new(false);

static MUTEX: RawMutex = RawMutex::INIT;

/// The lock is held by this thread.
pub(crate) struct Guard {
    has_mutex: bool,
    /// Who has taken it gives it back.
    not_send: PhantomData<*const ()>,
}

impl Guard {
    fn new(has_mutex: bool) -> Guard {
        Guard {
            has_mutex,
            not_send: PhantomData,
        }
    }
}

impl Drop for Guard {
    #[inline]
    fn drop(&mut self) {
        if self.has_mutex {
            // SAFETY: taken when this was made, by this thread.
            unsafe { MUTEX.unlock() };
        } else {
            // SYNC: vipl-inside. Whoever sees it sees all that was done inside.
            IS_INSIDE.store(false, Ordering::Release);
        }
    }
}

/// Whether more than one thread has ever taken the lock.
pub(crate) fn is_shared() -> bool {
    IS_REVOKED.load(Ordering::Relaxed)
}

/// Takes the lock.
#[inline]
pub(crate) fn take() -> Result<Guard, Failure> {
    if OWNER.load(Ordering::Relaxed) == this_thread() && !IS_WANTED.load(Ordering::Relaxed) {
        if IS_INSIDE.load(Ordering::Relaxed) {
            return Err(inside());
        }
        IS_INSIDE.store(true, Ordering::Relaxed);
        // The processor may still look first and store then: `revoke` has it done in order.
        compiler_fence(Ordering::SeqCst);
        if !IS_WANTED.load(Ordering::Relaxed) {
            return Ok(Guard::new(false));
        }
        IS_INSIDE.store(false, Ordering::Release);
    }
    match take_mutex() {
        true => Ok(Guard::new(true)),
        false => take(),
    }
}

#[cold]
fn inside() -> Failure {
    lacking(
        "this thread is in a function of the library, and was interrupted by a signal: call none from its handler",
    )
}

/// The same, unless others do not let go of it in that time.
pub(crate) fn take_within(patience: Duration) -> Option<Guard> {
    if !is_shared() && OWNER.load(Ordering::Relaxed) == this_thread() {
        return take().ok();
    }
    if !MUTEX.try_lock_for(patience) {
        return None;
    }
    revoke();
    Some(Guard::new(true))
}

/// Whether the mutex is taken; else this is the first thread, whose the lock is from now on.
#[cold]
fn take_mutex() -> bool {
    MUTEX.lock();
    let is_first = OWNER.load(Ordering::Relaxed) == 0;
    if is_first && register() {
        OWNER.store(this_thread(), Ordering::Relaxed);
        // SAFETY: taken above.
        unsafe { MUTEX.unlock() };
        return false;
    }
    // Nobody's, where the kernel cannot help.
    if is_first {
        OWNER.store(usize::MAX, Ordering::Relaxed);
    }
    revoke();
    true
}

/// Makes the mutex what everybody takes. It is held.
fn revoke() {
    if IS_REVOKED.load(Ordering::Relaxed) {
        return;
    }
    IS_WANTED.store(true, Ordering::SeqCst);
    fence_all();
    // From here on the owner either has said that it is inside, or will see that it is wanted.
    // SYNC: vipl-inside.
    while IS_INSIDE.load(Ordering::Acquire) && OWNER.load(Ordering::Relaxed) != this_thread() {
        std::thread::yield_now();
    }
    IS_REVOKED.store(true, Ordering::Relaxed);
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
    use std::cell::UnsafeCell;

    struct Shared(UnsafeCell<u64>);
    // SAFETY: reached with the lock held only.
    unsafe impl Sync for Shared {}
    static SHARED: Shared = Shared(UnsafeCell::new(0));

    fn count(times: u64) {
        for _ in 0..times {
            let _guard = take().unwrap();
            // SAFETY: the lock is held.
            unsafe { *SHARED.0.get() += 1 };
        }
    }

    /// Nothing of what several threads count is lost, from the moment that the second comes.
    #[test]
    fn threads_that_come_later_lose_nothing() {
        count(1000);
        assert!(!is_shared());
        let guard = take().unwrap();
        assert!(take().is_err() && take_within(Duration::ZERO).is_none());
        drop(guard);
        let (each, count_of) = (20_000, 3);
        std::thread::scope(|scope| {
            for _ in 0..count_of {
                scope.spawn(|| count(each));
            }
            count(each);
        });
        assert!(is_shared());
        let _guard = take().unwrap();
        // SAFETY: the lock is held.
        let total = unsafe { *SHARED.0.get() };
        assert_eq!(total, 1000 + each * (count_of + 1));
    }
}
