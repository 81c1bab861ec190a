// SPDX-License-Identifier: MIT OR Apache-2.0
//! Set of a directory's names, with few bytes per name, for directories with a million entries.
//!
//! It stores 64-bit hashes under a random key. Names with equal hashes are taken for the same. With
//! a million names that happens about once in ten million casts.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::hash::{BuildHasher, RandomState};

#[derive(Debug, Default)]
pub(super) struct Names {
    key: RandomState,
    seen: HashSet<u64>,
}

impl Names {
    pub(super) fn insert(&mut self, name: &OsStr) {
        self.seen.insert(self.key.hash_one(name));
    }

    pub(super) fn has(&self, name: &OsStr) -> bool {
        self.seen.contains(&self.key.hash_one(name))
    }
}
