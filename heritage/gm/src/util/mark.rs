// SPDX-License-Identifier: MIT OR Apache-2.0
//! Marks: locations in the program's memory that are recognized by their address and a number.

use crate::code::*;
use std::collections::HashMap;
use std::ffi::{c_int, c_ulong};

/// A mark. Its value is private to the library.
pub type gm_mark_t = gm_size_t;

/// A set of marks.
pub struct gm_mark_set {
    count: u64,
    /// Numbers of the marks, by address.
    marks: HashMap<usize, u64>,
}

/// Creates a set with room for `init_count` marks, which grows.
///
/// Errors: GM_INVALID_PARAMETER when `set` is null, GM_OUT_OF_MEMORY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_create_mark_set(
    set: *mut *mut gm_mark_set,
    init_count: c_ulong,
) -> gm_status_t {
    if set.is_null() {
        return GM_INVALID_PARAMETER;
    }
    let mut marks = HashMap::new();
    if marks
        .try_reserve(usize::try_from(init_count).unwrap_or(usize::MAX))
        .is_err()
    {
        return GM_OUT_OF_MEMORY;
    }
    let made = Box::into_raw(Box::new(gm_mark_set { count: 0, marks }));
    // SAFETY: the program passes valid arguments, as the function's documentation requires.
    unsafe { set.write(made) };
    GM_SUCCESS
}

/// Frees a set. Does nothing for null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_destroy_mark_set(set: *mut gm_mark_set) {
    if !set.is_null() {
        // SAFETY: the program passes a pointer from gm_create_mark_set(), not freed before.
        drop(unsafe { Box::from_raw(set) });
    }
}

/// Adds `mark` to the set.
///
/// Errors: GM_INVALID_PARAMETER when an argument is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_mark(set: *mut gm_mark_set, mark: *mut gm_mark_t) -> gm_status_t {
    // SAFETY: the program passes a pointer from gm_create_mark_set(), or null.
    let Some(set) = (unsafe { set.as_mut() }) else {
        return GM_INVALID_PARAMETER;
    };
    if mark.is_null() {
        return GM_INVALID_PARAMETER;
    }
    set.count += 1;
    set.marks.insert(mark.addr(), set.count);
    // SAFETY: the program passes valid arguments, as the function's documentation requires.
    unsafe { mark.write(set.count) };
    GM_SUCCESS
}

/// Returns 1 if `mark` is in the set, and 0 otherwise.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_mark_is_valid(set: *mut gm_mark_set, mark: *mut gm_mark_t) -> c_int {
    // SAFETY: the program passes a pointer from gm_create_mark_set(), or null.
    let Some(set) = (unsafe { set.as_ref() }) else {
        return 0;
    };
    let found = set.marks.get(&mark.addr());
    // SAFETY: reads only an address that was marked, which the program keeps valid.
    c_int::from(found.is_some_and(|number| *number == unsafe { mark.read() }))
}

/// Removes `mark` from the set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_unmark(set: *mut gm_mark_set, mark: *mut gm_mark_t) {
    // SAFETY: the program passes a pointer from gm_create_mark_set(), or null.
    if let Some(set) = unsafe { set.as_mut() } {
        set.marks.remove(&mark.addr());
    }
}

/// Removes all marks from the set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_unmark_all(set: *mut gm_mark_set) {
    // SAFETY: the program passes a pointer from gm_create_mark_set(), or null.
    if let Some(set) = unsafe { set.as_mut() } {
        set.marks.clear();
    }
}
