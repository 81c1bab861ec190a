// SPDX-License-Identifier: MIT OR Apache-2.0
//! Locks for the threads of a program.

use parking_lot::RawMutex;
use parking_lot::lock_api::RawMutex as _;

/// A lock.
pub struct gm_mutex {
    raw: RawMutex,
}

/// Creates an unlocked lock.
#[unsafe(no_mangle)]
pub extern "C" fn gm_create_mutex() -> *mut gm_mutex {
    let raw = RawMutex::INIT;
    Box::into_raw(Box::new(gm_mutex { raw }))
}

/// Frees a lock, which must be unlocked. Does nothing for null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_destroy_mutex(mutex: *mut gm_mutex) {
    if !mutex.is_null() {
        // SAFETY: the program passes a pointer from gm_create_mutex(), not freed before.
        drop(unsafe { Box::from_raw(mutex) });
    }
}

/// Locks a lock. Waits while another thread holds it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_mutex_enter(mutex: *mut gm_mutex) {
    // SAFETY: the program passes a pointer from gm_create_mutex(), or null.
    if let Some(mutex) = unsafe { mutex.as_ref() } {
        mutex.raw.lock();
    }
}

/// Unlocks a lock that this thread has locked. Does nothing if it is not locked.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_mutex_exit(mutex: *mut gm_mutex) {
    // SAFETY: the program passes a pointer from gm_create_mutex(), or null.
    if let Some(mutex) = unsafe { mutex.as_ref() }
        && mutex.raw.is_locked()
    {
        // SAFETY: the lock is locked, and the program calls this only from the thread that locked
        // it.
        unsafe { mutex.raw.unlock() };
    }
}
