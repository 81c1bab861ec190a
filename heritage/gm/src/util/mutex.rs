// SPDX-License-Identifier: MIT OR Apache-2.0
//! Locks between the threads of a program.

use parking_lot::RawMutex;
use parking_lot::lock_api::RawMutex as _;

/// A lock.
pub struct gm_mutex {
    raw: RawMutex,
}

/// Makes a lock, which is open.
#[unsafe(no_mangle)]
pub extern "C" fn gm_create_mutex() -> *mut gm_mutex {
    let raw = RawMutex::INIT;
    Box::into_raw(Box::new(gm_mutex { raw }))
}

/// Frees a lock, which must be open; null is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_destroy_mutex(mutex: *mut gm_mutex) {
    if !mutex.is_null() {
        // SAFETY: the program's promise: of gm_create_mutex(), and not freed before.
        drop(unsafe { Box::from_raw(mutex) });
    }
}

/// Closes a lock, and waits for that until it is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_mutex_enter(mutex: *mut gm_mutex) {
    // SAFETY: the program's promise: of gm_create_mutex().
    if let Some(mutex) = unsafe { mutex.as_ref() } {
        mutex.raw.lock();
    }
}

/// Opens a lock that this thread has closed; one that is open stays so.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_mutex_exit(mutex: *mut gm_mutex) {
    // SAFETY: the program's promise: of gm_create_mutex().
    if let Some(mutex) = unsafe { mutex.as_ref() }
        && mutex.raw.is_locked()
    {
        // SAFETY: it is closed, by this thread: the program's promise.
        unsafe { mutex.raw.unlock() };
    }
}
