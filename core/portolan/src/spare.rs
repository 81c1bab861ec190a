// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory of past long messages that the library keeps for the next ones. Fresh memory costs a page
//! fault for each 4 KiB, which takes longer than copying a message into it.

use crate::error::Error;
use portolan_sys::memory;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError};

/// Shortest memory that is kept, in bytes. An allocator reuses shorter memory without page faults.
const KEPT_LEN_MIN: usize = 32 * 1024;

/// Maximum number of bytes kept: a window of 64 outgoing messages of 64 KiB, and one incoming.
pub(crate) const KEPT_LEN_MAX: usize = 8 << 20;

/// Memory is used only for messages of at least 1/`USED_PART` of its length. Otherwise a few short
/// messages would hold all that is kept.
const USED_PART: usize = 2;

/// Store of spare memory, shared by its clones.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spare(Arc<Mutex<Shelf>>);

/// Kept memory, most recent last: that may still be in a cache.
#[derive(Debug, Default)]
struct Shelf {
    kept: Vec<Vec<u8>>,
    /// Sum of their capacities.
    len: usize,
}

impl Spare {
    /// Returns memory of `len` bytes with unspecified contents, for `what`.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub(crate) fn some(&self, what: &'static str, len: usize) -> Result<Kept, Error> {
        let bytes = match self.take(len) {
            Some(mut bytes) => {
                bytes.resize(len, 0);
                bytes
            }
            None => memory::zeroed(len).map_err(|lack| Error::NoMemory { what, len, lack })?,
        };
        Ok(self.lend(bytes))
    }

    /// Returns a copy of `bytes`, for `what`.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub(crate) fn copy(&self, what: &'static str, bytes: &[u8]) -> Result<Kept, Error> {
        let copy = match self.take(bytes.len()) {
            Some(mut copy) => {
                copy.clear();
                memory::append(&mut copy, bytes);
                copy
            }
            None => memory::gathered(&[bytes]).map_err(|lack| Error::NoMemory {
                what,
                len: bytes.len(),
                lack,
            })?,
        };
        Ok(self.lend(copy))
    }

    fn lend(&self, bytes: Vec<u8>) -> Kept {
        let home = (bytes.capacity() >= KEPT_LEN_MIN).then(|| self.clone());
        Kept { bytes, home }
    }

    /// Returns memory for `len` bytes, if some is kept.
    fn take(&self, len: usize) -> Option<Vec<u8>> {
        if len < KEPT_LEN_MIN {
            return None;
        }
        let mut shelf = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = |one: &Vec<u8>| (len..=len * USED_PART).contains(&one.capacity());
        let index = shelf.kept.iter().rposition(fits)?;
        let bytes = shelf.kept.remove(index);
        shelf.len -= bytes.capacity();
        Some(bytes)
    }

    /// Keeps `bytes`, and frees the memory that has been unused for the longest time.
    fn keep(&self, bytes: Vec<u8>) {
        if bytes.capacity() > KEPT_LEN_MAX {
            return;
        }
        let mut shelf = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        shelf.len += bytes.capacity();
        shelf.kept.push(bytes);
        let mut gone = Vec::new();
        while shelf.len > KEPT_LEN_MAX {
            let oldest = shelf.kept.remove(0);
            shelf.len -= oldest.capacity();
            gone.push(oldest);
        }
        // Freed after the lock is released.
        drop(shelf);
    }
}

/// Memory that is kept again when it is dropped, if it came from a [`Spare`].
#[derive(Debug)]
pub(crate) struct Kept {
    bytes: Vec<u8>,
    home: Option<Spare>,
}

impl From<Vec<u8>> for Kept {
    /// Wraps a program's own memory, which is not kept.
    #[inline]
    fn from(bytes: Vec<u8>) -> Kept {
        Kept { bytes, home: None }
    }
}

impl Clone for Kept {
    /// Copies the bytes into memory that is not kept.
    fn clone(&self) -> Kept {
        self.bytes.clone().into()
    }
}

impl Kept {
    /// Returns the bytes, which are then not kept.
    pub(crate) fn into_vec(mut self) -> Vec<u8> {
        self.home = None;
        std::mem::take(&mut self.bytes)
    }
}

impl Deref for Kept {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl DerefMut for Kept {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if let Some(home) = self.home.take() {
            home.keep(std::mem::take(&mut self.bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: usize = 64 * 1024;

    fn held(spare: &Spare) -> usize {
        spare.0.lock().unwrap().len
    }

    #[test]
    fn memory_is_used_again() {
        let spare = Spare::default();
        let first = spare.copy("a test", &[7; LEN]).unwrap();
        let at = first.as_ptr();
        assert_eq!(held(&spare), 0);
        drop(first);
        assert_eq!(held(&spare), LEN);
        let shorter = spare.copy("a test", &[8; LEN / 2]).unwrap();
        assert_eq!((shorter.as_ptr(), &shorter[..]), (at, &[8; LEN / 2][..]));
        drop(shorter);
        let again = spare.some("a test", LEN).unwrap();
        assert_eq!((again.as_ptr(), again.len()), (at, LEN));
    }

    #[test]
    fn what_is_short_much_longer_or_taken_out_is_not_kept() {
        let spare = Spare::default();
        drop(spare.copy("a test", &[1; KEPT_LEN_MIN - 1]).unwrap());
        assert_eq!(held(&spare), 0);
        assert_eq!(spare.some("a test", LEN).unwrap().into_vec().len(), LEN);
        assert_eq!(held(&spare), 0);
        drop(spare.some("a test", 4 * LEN).unwrap());
        let one = spare.some("a test", LEN).unwrap();
        assert_eq!((held(&spare), one.len()), (4 * LEN, LEN));
    }

    #[test]
    fn no_more_is_kept_than_the_limit() {
        let spare = Spare::default();
        let all: Vec<_> = (0..2 * KEPT_LEN_MAX / LEN)
            .map(|_| spare.some("a test", LEN).unwrap())
            .collect();
        drop(all);
        assert_eq!(held(&spare), KEPT_LEN_MAX);
        drop(spare.some("a test", 2 * KEPT_LEN_MAX).unwrap());
        assert_eq!(held(&spare), KEPT_LEN_MAX);
        drop(spare.some("a test", KEPT_LEN_MAX).unwrap());
        assert_eq!(held(&spare), KEPT_LEN_MAX, "the older ones have gone");
    }
}
