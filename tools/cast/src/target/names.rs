// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which names of a directory have been seen, in few bytes a name: a directory may have a million.
//!
//! Hashes of 64 bits under a random key stand for the names. Two names that share one are taken for the
//! same: with a million names, once in some ten million casts.

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
