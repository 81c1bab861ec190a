// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hash tables: keys and data of fixed lengths that are copied, or addresses in the program.

use crate::code::*;
use std::collections::HashMap;
use std::ffi::{c_int, c_long, c_ulong, c_void};
use std::ptr;

/// Compares two keys: returns 0 if they are equal.
pub type gm_hash_compare_t =
    Option<unsafe extern "C" fn(key1: *mut c_void, key2: *mut c_void) -> c_long>;
/// Returns a number for a key, the same for equal keys.
pub type gm_hash_function_t = Option<unsafe extern "C" fn(key: *mut c_void) -> c_ulong>;

/// Copied bytes, or an address.
enum StoredKey {
    Copy(Box<[u8]>),
    Address(*mut c_void),
}

impl StoredKey {
    /// Copies `len` bytes at `at`, or stores the address if `len` is 0.
    ///
    /// # Safety
    /// `at` must have `len` bytes.
    unsafe fn new(at: *mut c_void, len: usize) -> StoredKey {
        match len {
            0 => StoredKey::Address(at),
            // SAFETY: guaranteed by the caller, see `# Safety`.
            _ => StoredKey::Copy(
                unsafe { portolan_ffi::bytes(at.cast(), len) }
                    .unwrap_or(&[])
                    .into(),
            ),
        }
    }

    fn at(&self) -> *mut c_void {
        match self {
            StoredKey::Copy(bytes) => bytes.as_ptr().cast_mut().cast(),
            StoredKey::Address(at) => *at,
        }
    }
}

struct Entry {
    key: StoredKey,
    datum: StoredKey,
}

/// A hash table.
pub struct gm_hash {
    compare: gm_hash_compare_t,
    hash: gm_hash_function_t,
    key_len: usize,
    data_len: usize,
    entries: HashMap<u64, Vec<Entry>>,
    /// Datum that was removed last, which the program may still read.
    removed: Option<StoredKey>,
}

impl gm_hash {
    /// Returns the number of a key.
    ///
    /// # Safety
    /// `key` must be valid for the table's functions and its length of keys.
    unsafe fn number(&self, key: *mut c_void) -> u64 {
        match self.hash {
            // SAFETY: the program provided the function for such keys.
            Some(hash) => unsafe { hash(key) },
            None if self.key_len == 0 => key.addr() as u64,
            // SAFETY: guaranteed by the caller, see `# Safety`.
            None => unsafe { super::crc::gm_crc(key, self.key_len as u64) },
        }
    }

    /// Returns whether a key in the table equals `key`.
    ///
    /// # Safety
    /// As [`gm_hash::number`].
    unsafe fn is_same(&self, stored: &StoredKey, key: *mut c_void) -> bool {
        if let Some(compare) = self.compare {
            // SAFETY: the program provided the function for such keys.
            return unsafe { compare(stored.at(), key) } == 0;
        }
        match stored {
            StoredKey::Address(at) => *at == key,
            StoredKey::Copy(own) => {
                // SAFETY: guaranteed by the caller, see `# Safety`.
                let other = unsafe { portolan_ffi::bytes(key.cast(), self.key_len) };
                other == Ok(own)
            }
        }
    }

    /// Finds the entry with `key`.
    ///
    /// # Safety
    /// As [`gm_hash::number`].
    unsafe fn find(&self, key: *mut c_void) -> Option<(u64, usize)> {
        // SAFETY: guaranteed by the caller, see `# Safety`.
        let number = unsafe { self.number(key) };
        let entries = self.entries.get(&number)?;
        // SAFETY: guaranteed by the caller, see `# Safety`.
        let index = entries
            .iter()
            .position(|entry| unsafe { self.is_same(&entry.key, key) })?;
        Some((number, index))
    }

    /// Removes the entry with `key`.
    ///
    /// # Safety
    /// As [`gm_hash::number`].
    unsafe fn take(&mut self, key: *mut c_void) -> Option<Entry> {
        // SAFETY: guaranteed by the caller, see `# Safety`.
        let (number, index) = unsafe { self.find(key) }?;
        let entries = self.entries.get_mut(&number)?;
        let entry = entries.swap_remove(index);
        if entries.is_empty() {
            self.entries.remove(&number);
        }
        Some(entry)
    }
}

/// Creates a hash table for at least `min_entries` entries, which grows. Keys of `key_len` bytes
/// and data of `data_len` bytes are copied. With length 0 they are addresses, which the table keeps
/// unchanged. Keys are compared by `compare` and numbered by `hash`; if these are null, by their
/// bytes or addresses. `flags` must be 0, otherwise returns null.
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

/// Frees a hash table. Does nothing for null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_destroy_hash(hash: *mut gm_hash) {
    if !hash.is_null() {
        // SAFETY: the program passes a pointer from gm_create_hash(), not freed before.
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
    // SAFETY: the program passes a pointer from gm_create_hash(), or null.
    let Some(hash) = (unsafe { hash.as_mut() }) else {
        return GM_INVALID_PARAMETER;
    };
    // SAFETY: the program passes keys and data of the table's lengths.
    unsafe {
        if hash.find(key).is_some() {
            return GM_BUSY;
        }
        let entry = Entry {
            key: StoredKey::new(key, hash.key_len),
            datum: StoredKey::new(datum, hash.data_len),
        };
        let number = hash.number(key);
        hash.entries.entry(number).or_default().push(entry);
    }
    GM_SUCCESS
}

/// Returns the datum of the entry with that key, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_hash_find(hash: *mut gm_hash, key: *mut c_void) -> *mut c_void {
    // SAFETY: the program passes a pointer from gm_create_hash(), or null.
    let Some(hash) = (unsafe { hash.as_mut() }) else {
        return ptr::null_mut();
    };
    // SAFETY: the program passes a key of the table's length.
    match unsafe { hash.find(key) } {
        Some((number, index)) => hash.entries[&number][index].datum.at(),
        None => ptr::null_mut(),
    }
}

/// Removes the entry with that key. Returns its datum, which stays valid until the next removal, or
/// null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_hash_remove(hash: *mut gm_hash, key: *mut c_void) -> *mut c_void {
    // SAFETY: the program passes a pointer from gm_create_hash(), or null.
    let Some(hash) = (unsafe { hash.as_mut() }) else {
        return ptr::null_mut();
    };
    // SAFETY: the program passes a key of the table's length.
    match unsafe { hash.take(key) } {
        Some(entry) => hash.removed.insert(entry.datum).at(),
        None => ptr::null_mut(),
    }
}

/// Gives an entry another key. Does nothing if there is no such entry, or if the new key is in use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_hash_rekey(
    hash: *mut gm_hash,
    old_key: *mut c_void,
    new_key: *mut c_void,
) {
    // SAFETY: the program passes a pointer from gm_create_hash(), or null.
    let Some(hash) = (unsafe { hash.as_mut() }) else {
        return;
    };
    // SAFETY: the program passes a key of the table's length.
    unsafe {
        if hash.find(new_key).is_some() {
            return;
        }
        if let Some(entry) = hash.take(old_key) {
            let key = StoredKey::new(new_key, hash.key_len);
            let number = hash.number(new_key);
            let entry = Entry { key, ..entry };
            hash.entries.entry(number).or_default().push(entry);
        }
    }
}
