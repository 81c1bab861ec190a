// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hash tables: keys and data of fixed lengths that are copied in, or addresses of the program's.

use crate::code::*;
use std::collections::HashMap;
use std::ffi::{c_int, c_long, c_ulong, c_void};
use std::ptr;

/// Whether two keys are different: 0 if they are equal.
pub type gm_hash_compare_t =
    Option<unsafe extern "C" fn(key1: *mut c_void, key2: *mut c_void) -> c_long>;
/// A number of a key, the same for equal ones.
pub type gm_hash_function_t = Option<unsafe extern "C" fn(key: *mut c_void) -> c_ulong>;

/// Bytes that were copied, or an address.
enum Kept {
    Copy(Box<[u8]>),
    Address(*mut c_void),
}

impl Kept {
    /// # Safety
    /// `at` has `len` bytes.
    unsafe fn new(at: *mut c_void, len: usize) -> Kept {
        match len {
            0 => Kept::Address(at),
            // SAFETY: the caller's promise.
            _ => Kept::Copy(
                unsafe { portolan_ffi::bytes(at.cast(), len) }
                    .unwrap_or(&[])
                    .into(),
            ),
        }
    }

    fn at(&self) -> *mut c_void {
        match self {
            Kept::Copy(bytes) => bytes.as_ptr().cast_mut().cast(),
            Kept::Address(at) => *at,
        }
    }
}

struct Entry {
    key: Kept,
    datum: Kept,
}

/// A hash table.
pub struct gm_hash {
    compare: gm_hash_compare_t,
    hash: gm_hash_function_t,
    key_len: usize,
    data_len: usize,
    entries: HashMap<u64, Vec<Entry>>,
    /// The datum that was removed last, which the program may still read.
    removed: Option<Kept>,
}

impl gm_hash {
    /// # Safety
    /// `key` is as the table's functions, or its length of keys, say.
    unsafe fn number(&self, key: *mut c_void) -> u64 {
        match self.hash {
            // SAFETY: the program's promise about its function and key.
            Some(hash) => unsafe { hash(key) },
            None if self.key_len == 0 => key.addr() as u64,
            // SAFETY: the caller's promise.
            None => unsafe { super::crc::gm_crc(key, self.key_len as u64) },
        }
    }

    /// # Safety
    /// As [`gm_hash::number`].
    unsafe fn is_same(&self, kept: &Kept, key: *mut c_void) -> bool {
        if let Some(compare) = self.compare {
            // SAFETY: the program's promise about its function and keys.
            return unsafe { compare(kept.at(), key) } == 0;
        }
        match kept {
            Kept::Address(at) => *at == key,
            Kept::Copy(own) => {
                // SAFETY: the caller's promise.
                let other = unsafe { portolan_ffi::bytes(key.cast(), self.key_len) };
                other == Ok(own)
            }
        }
    }

    /// # Safety
    /// As [`gm_hash::number`].
    unsafe fn find(&self, key: *mut c_void) -> Option<(u64, usize)> {
        // SAFETY: the caller's promise.
        let number = unsafe { self.number(key) };
        let entries = self.entries.get(&number)?;
        // SAFETY: the caller's promise.
        let index = entries
            .iter()
            .position(|entry| unsafe { self.is_same(&entry.key, key) })?;
        Some((number, index))
    }

    /// # Safety
    /// As [`gm_hash::number`].
    unsafe fn take(&mut self, key: *mut c_void) -> Option<Entry> {
        // SAFETY: the caller's promise.
        let (number, index) = unsafe { self.find(key) }?;
        let entries = self.entries.get_mut(&number)?;
        let entry = entries.swap_remove(index);
        if entries.is_empty() {
            self.entries.remove(&number);
        }
        Some(entry)
    }
}

/// Makes a hash table for at least `min_entries` entries, which grows. Keys of `key_len` bytes and data of
/// `data_len` are copied; of length 0 they are addresses, which the table keeps as they are. Keys are
/// compared by `compare` and numbered by `hash`; where these are null, by their bytes or addresses.
/// `flags` must be 0. Null if it is not.
#[unsafe(no_mangle)]
pub extern "C" fn gm_create_hash(
    compare: gm_hash_compare_t,
    hash: gm_hash_function_t,
    key_len: gm_size_t,
    data_len: gm_size_t,
    min_entries: gm_size_t,
    flags: c_int,
) -> *mut gm_hash {
    let len = |len: gm_size_t| usize::try_from(len).ok();
    let (Some(key_len), Some(data_len), 0) = (len(key_len), len(data_len), flags) else {
        return ptr::null_mut();
    };
    let mut entries = HashMap::new();
    if entries
        .try_reserve(len(min_entries).unwrap_or(usize::MAX))
        .is_err()
    {
        return ptr::null_mut();
    }
    Box::into_raw(Box::new(gm_hash {
        compare,
        hash,
        key_len,
        data_len,
        entries,
        removed: None,
    }))
}

/// Frees a hash table; null is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_destroy_hash(hash: *mut gm_hash) {
    if !hash.is_null() {
        // SAFETY: the program's promise: of gm_create_hash(), and not freed before.
        drop(unsafe { Box::from_raw(hash) });
    }
}

/// Adds an entry.
///
/// Errors: GM_INVALID_PARAMETER when `hash` is null; GM_BUSY when there is an entry with that key.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_hash_insert(
    hash: *mut gm_hash,
    key: *mut c_void,
    datum: *mut c_void,
) -> gm_status_t {
    // SAFETY: the program's promise: of gm_create_hash().
    let Some(hash) = (unsafe { hash.as_mut() }) else {
        return GM_INVALID_PARAMETER;
    };
    // SAFETY: the program's promise about keys and data.
    unsafe {
        if hash.find(key).is_some() {
            return GM_BUSY;
        }
        let entry = Entry {
            key: Kept::new(key, hash.key_len),
            datum: Kept::new(datum, hash.data_len),
        };
        let number = hash.number(key);
        hash.entries.entry(number).or_default().push(entry);
    }
    GM_SUCCESS
}

/// The datum of the entry with that key, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_hash_find(hash: *mut gm_hash, key: *mut c_void) -> *mut c_void {
    // SAFETY: the program's promise: of gm_create_hash().
    let Some(hash) = (unsafe { hash.as_mut() }) else {
        return ptr::null_mut();
    };
    // SAFETY: the program's promise about keys.
    match unsafe { hash.find(key) } {
        Some((number, index)) => hash.entries[&number][index].datum.at(),
        None => ptr::null_mut(),
    }
}

/// Removes the entry with that key: its datum, which stays until the next is removed, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_hash_remove(hash: *mut gm_hash, key: *mut c_void) -> *mut c_void {
    // SAFETY: the program's promise: of gm_create_hash().
    let Some(hash) = (unsafe { hash.as_mut() }) else {
        return ptr::null_mut();
    };
    // SAFETY: the program's promise about keys.
    match unsafe { hash.take(key) } {
        Some(entry) => hash.removed.insert(entry.datum).at(),
        None => ptr::null_mut(),
    }
}

/// Gives the entry with one key another, for which there must be none. Nothing happens if there is no
/// such entry, or the other key is in use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_hash_rekey(
    hash: *mut gm_hash,
    old_key: *mut c_void,
    new_key: *mut c_void,
) {
    // SAFETY: the program's promise: of gm_create_hash().
    let Some(hash) = (unsafe { hash.as_mut() }) else {
        return;
    };
    // SAFETY: the program's promise about keys.
    unsafe {
        if hash.find(new_key).is_some() {
            return;
        }
        if let Some(entry) = hash.take(old_key) {
            let key = Kept::new(new_key, hash.key_len);
            let number = hash.number(new_key);
            let entry = Entry { key, ..entry };
            hash.entries.entry(number).or_default().push(entry);
        }
    }
}
