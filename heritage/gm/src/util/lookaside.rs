// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lookaside lists: entries of one length that are allocated and freed repeatedly.

use crate::code::gm_size_t;
use std::ffi::c_void;
use std::ptr;

/// Alignment of entries, as of `malloc`'s memory. The bytes before each entry hold its list.
const HEAD: usize = 16;

/// A lookaside list.
pub struct gm_lookaside {
    entry_len: usize,
    free: Vec<*mut u8>,
    /// Number of entries that the program has.
    given: usize,
    /// Set when the list must be freed with the last of them.
    is_destroyed: bool,
}

impl gm_lookaside {
    fn make(&self) -> *mut u8 {
        let Some(len) = self.entry_len.checked_add(HEAD) else {
            return ptr::null_mut();
        };
        // SAFETY: malloc() has no preconditions.
        unsafe { libc::malloc(len) }.cast()
    }
}

/// Creates a list of entries of `entry_len` bytes, with `min_entries` allocated at once. Returns
/// null if there is no memory.
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
            // SAFETY: memory of malloc() that nothing else refers to.
            unsafe { libc::free(entry.cast()) };
        }
    }
}

/// Frees a list. Does nothing for null. Entries that the program still has stay valid until it
/// frees them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_destroy_lookaside(list: *mut gm_lookaside) {
    // SAFETY: the program passes a pointer from gm_create_lookaside(), not freed before.
    let Some(own) = (unsafe { list.as_mut() }) else {
        return;
    };
    own.free_all();
    own.is_destroyed = true;
    if own.given == 0 {
        // SAFETY: as above; nothing refers to it now.
        drop(unsafe { Box::from_raw(list) });
    }
}

/// Allocates an entry of a list. Returns null if there is no memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_lookaside_alloc(list: *mut gm_lookaside) -> *mut c_void {
    // SAFETY: the program passes a pointer from gm_create_lookaside(), or null.
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

/// Allocates an entry filled with zeros.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_lookaside_zalloc(list: *mut gm_lookaside) -> *mut c_void {
    // SAFETY: the program passes valid arguments, as the function's documentation requires.
    let entry = unsafe { gm_lookaside_alloc(list) };
    if !entry.is_null() {
        // SAFETY: the list is valid, and its entries have `entry_len` bytes.
        unsafe { entry.write_bytes(0, (*list).entry_len) };
    }
    entry
}

/// Returns an entry to its list. Does nothing for null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_lookaside_free(entry: *mut c_void) {
    if entry.is_null() {
        return;
    }
    // SAFETY: the program passes an entry, which has a head.
    let entry = unsafe { entry.cast::<u8>().sub(HEAD) };
    // SAFETY: as above.
    let list = unsafe { entry.cast::<*mut gm_lookaside>().read() };
    // SAFETY: a list stays valid while the program has entries of it.
    let own = unsafe { &mut *list };
    own.given -= 1;
    own.free.push(entry);
    if own.is_destroyed {
        own.free_all();
        if own.given == 0 {
            // SAFETY: nothing refers to it now.
            drop(unsafe { Box::from_raw(list) });
        }
    }
}
