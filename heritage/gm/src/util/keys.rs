// SPDX-License-Identifier: MIT OR Apache-2.0
//! Functions for gm_create_hash(): keys that are addresses, integers or strings.

use std::cmp::Ordering;
use std::ffi::{CStr, c_char, c_int, c_long, c_ulong, c_void};

fn sign(order: Ordering) -> c_long {
    order as c_long
}

/// Spreads a number over all bits: the multiplier is the golden ratio of 2^64.
fn spread(number: u64) -> c_ulong {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32)
}

/// Compares the addresses `key1` and `key2`: returns a negative number, 0 or a positive one.
#[unsafe(no_mangle)]
pub extern "C" fn gm_hash_compare_ptrs(key1: *mut c_void, key2: *mut c_void) -> c_long {
    sign(key1.cmp(&key2))
}

/// Returns a number for the address `key`.
#[unsafe(no_mangle)]
pub extern "C" fn gm_hash_hash_ptr(key: *mut c_void) -> c_ulong {
    spread(key.addr() as u64)
}

/// Compares the numbers of type int at `key1` and `key2`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_hash_compare_ints(key1: *mut c_void, key2: *mut c_void) -> c_long {
    // SAFETY: the program passes the addresses of such numbers.
    let (first, second) = unsafe { (key1.cast::<c_int>().read(), key2.cast::<c_int>().read()) };
    sign(first.cmp(&second))
}

/// Returns a number for the number of type int at `key`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_hash_hash_int(key: *mut c_void) -> c_ulong {
    // SAFETY: the program passes the address of such a number.
    let number = unsafe { key.cast::<c_int>().read() };
    spread(i64::from(number).cast_unsigned())
}

/// Compares the numbers of type long at `key1` and `key2`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_hash_compare_longs(key1: *mut c_void, key2: *mut c_void) -> c_long {
    // SAFETY: the program passes the addresses of such numbers.
    let (first, second) = unsafe { (key1.cast::<c_long>().read(), key2.cast::<c_long>().read()) };
    sign(first.cmp(&second))
}

/// Hashes the `long` at `key`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_hash_hash_long(key: *mut c_void) -> c_ulong {
    // SAFETY: the program passes the address of such a number.
    let number = unsafe { key.cast::<c_long>().read() };
    spread(number.cast_unsigned())
}

/// Compares the strings at `key1` and `key2`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_hash_compare_strings(key1: *mut c_void, key2: *mut c_void) -> c_long {
    // SAFETY: the program passes zero-terminated strings.
    let (first, second) = unsafe {
        (
            CStr::from_ptr(key1.cast::<c_char>()),
            CStr::from_ptr(key2.cast::<c_char>()),
        )
    };
    sign(first.cmp(second))
}

/// Returns a number for the string at `key`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_hash_hash_string(key: *mut c_void) -> c_ulong {
    // SAFETY: the program passes a zero-terminated string.
    unsafe { super::crc::gm_crc_str(key.cast::<c_char>()) }
}
