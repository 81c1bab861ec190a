// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fixed tables of zeroed records, which are never freed: a record may be read after its
//! descriptor was closed.
#![allow(unsafe_code)]

use crate::table;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

/// Table of `N` records that are valid when zeroed, and only have atomic fields.
pub(crate) struct Pool<T: 'static, const N: usize> {
    records: AtomicPtr<T>,
    /// No record beyond this index was ever used.
    used: AtomicU32,
    /// Index from which the next search starts.
    hint: AtomicU32,
}

impl<T: Sync, const N: usize> Pool<T, N> {
    /// Creates a table without memory, which has no records.
    pub(crate) const fn new() -> Self {
        Pool {
            records: AtomicPtr::new(std::ptr::null_mut()),
            used: AtomicU32::new(0),
            hint: AtomicU32::new(0),
        }
    }

    /// Provides the memory, `shared` with forked processes or not.
    pub(crate) fn load(&self, shared: bool) {
        let records = table::zeroed(N * size_of::<T>(), shared);
        self.records.store(records.cast(), Ordering::Release);
    }

    /// Returns the record of an index.
    pub(crate) fn at(&self, index: u32) -> Option<&'static T> {
        let records = self.records.load(Ordering::Acquire);
        let index = index as usize;
        if records.is_null() || index >= N {
            return None;
        }
        // SAFETY: the table has N records of zeroed memory, which is valid by the type's contract,
        // and is never freed.
        Some(unsafe { &*records.add(index) })
    }

    /// Returns a record that `claim` accepts, with its index.
    pub(crate) fn claim(&self, claim: impl Fn(&T) -> bool) -> Option<(u32, &'static T)> {
        let start = self.hint.load(Ordering::Relaxed);
        let count = u32::try_from(N).unwrap_or(u32::MAX);
        for step in 0..count {
            let index = (start + step) % count;
            let record = self.at(index)?;
            if claim(record) {
                self.hint.store((index + 1) % count, Ordering::Relaxed);
                self.used.fetch_max(index + 1, Ordering::Relaxed);
                return Some((index, record));
            }
        }
        None
    }

    /// Prefers a freed record for the next claim, which keeps the used part short.
    pub(crate) fn freed(&self, index: u32) {
        self.hint.fetch_min(index, Ordering::Relaxed);
    }

    /// Returns all records that were ever used, with their indices.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &'static T)> {
        let used = self.used.load(Ordering::Relaxed);
        (0..used).filter_map(|index| Some((index, self.at(index)?)))
    }
}
