// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lookaside lists: entries of one length that are given out and come back.

use crate::code::gm_size_t;
use std::ffi::c_void;
use std::ptr;

/// What entries are aligned to, as `malloc`'s memory is; in front of each, its list.
const HEAD: usize = 16;

/// A lookaside list.
pub struct gm_lookaside {
    entry_len: usize,
    free: Vec<*mut u8>,
    /// Entries that the program has.
    given: usize,
    /// It goes with the last of them.
    is_destroyed: bool,
}

impl gm_lookaside {
    fn make(&self) -> *mut u8 {
        let Some(len) = self.entry_len.checked_add(HEAD) else {
            return ptr::null_mut();
        };
        // SAFETY: has no conditions.
        unsafe { libc::malloc(len) }.cast()
    }
}

/// Makes a list of entries of `entry_len` bytes, `min_entries` of which are there at once; null when there
/// is no memory.
#[unsafe(no_mangle)]
pub extern "C" fn gm_create_lookaside(
    entry_len: gm_size_t,
    min_entries: gm_size_t,
) -> *mut gm_lookaside {
    let Ok(entry_len) = usize::try_from(entry_len) else {
        return ptr::null_mut();
    };
    let mut list = Box::new(gm_lookaside {
        entry_len,
        free: Vec::new(),
        given: 0,
        is_destroyed: false,
    });
    for _ in 0..min_entries {
        let entry = list.make();
        if entry.is_null() {
            list.free_all();
            return ptr::null_mut();
        }
        list.free.push(entry);
    }
    Box::into_raw(list)
}

impl gm_lookaside {
    fn free_all(&mut self) {
        for entry in self.free.drain(..) {
            // SAFETY: of malloc, and nobody's.
            unsafe { libc::free(entry.cast()) };
        }
    }
}

/// Frees a list; null is none. Entries that were not given back stay until they are.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_destroy_lookaside(list: *mut gm_lookaside) {
    // SAFETY: the program's promise: of gm_create_lookaside(), and not freed before.
    let Some(own) = (unsafe { list.as_mut() }) else {
        return;
    };
    own.free_all();
    own.is_destroyed = true;
    if own.given == 0 {
        // SAFETY: as above; nothing refers to it any more.
        drop(unsafe { Box::from_raw(list) });
    }
}

/// An entry of a list; null when there is no memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_lookaside_alloc(list: *mut gm_lookaside) -> *mut c_void {
    // SAFETY: the program's promise: of gm_create_lookaside().
    let Some(own) = (unsafe { list.as_mut() }) else {
        return ptr::null_mut();
    };
    let entry = own.free.pop().unwrap_or_else(|| own.make());
    if entry.is_null() {
        return ptr::null_mut();
    }
    own.given += 1;
    // SAFETY: an entry has a head, which is aligned as malloc's memory is.
    unsafe { entry.cast::<*mut gm_lookaside>().write(list) };
    // SAFETY: the entry is longer than its head.
    unsafe { entry.add(HEAD) }.cast()
}

/// The same, of zeros.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_lookaside_zalloc(list: *mut gm_lookaside) -> *mut c_void {
    // SAFETY: the program's promise.
    let entry = unsafe { gm_lookaside_alloc(list) };
    if !entry.is_null() {
        // SAFETY: the list is there, and its entries are as long as it says.
        unsafe { entry.write_bytes(0, (*list).entry_len) };
    }
    entry
}

/// Gives an entry back to its list; null is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_lookaside_free(entry: *mut c_void) {
    if entry.is_null() {
        return;
    }
    // SAFETY: the program's promise: an entry, which has a head.
    let entry = unsafe { entry.cast::<u8>().sub(HEAD) };
    // SAFETY: as above.
    let list = unsafe { entry.cast::<*mut gm_lookaside>().read() };
    // SAFETY: a list stays as long as it has given entries out.
    let own = unsafe { &mut *list };
    own.given -= 1;
    own.free.push(entry);
    if own.is_destroyed {
        own.free_all();
        if own.given == 0 {
            // SAFETY: nothing refers to it any more.
            drop(unsafe { Box::from_raw(list) });
        }
    }
}
