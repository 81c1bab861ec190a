// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pool of memory for long messages: memory of completed messages is reused for later ones. Fresh
//! memory costs a page fault for each 4 KiB, which takes longer than copying a message into it.

use crate::error::Error;
use portolan_sys::memory;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError};

/// Minimum length of pooled memory, in bytes. An allocator reuses shorter memory without page
/// faults.
const POOLED_LEN_MIN: usize = 32 * 1024;

/// Maximum number of pooled bytes: a window of 64 outgoing messages of 64 KiB, and one incoming.
pub(crate) const POOL_LEN_MAX: usize = 8 << 20;

/// Memory is used only for messages of at least 1/`USED_DIVISOR` of its length. Otherwise a few
/// short messages would hold all pooled memory.
const USED_DIVISOR: usize = 2;

/// Pool of memory, shared by its clones.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pool(Arc<Mutex<Inner>>);

/// Unused memory, most recent last: that may still be in a cache.
#[derive(Debug, Default)]
struct Inner {
    buffers: Vec<Vec<u8>>,
    /// Sum of their capacities.
    len: usize,
}

impl Pool {
    /// Returns memory of `len` bytes with unspecified contents, for `what`.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub(crate) fn buffer(&self, what: &'static str, len: usize) -> Result<PooledBuf, Error> {
        let bytes = match self.take(len) {
            Some(mut bytes) => {
                bytes.resize(len, 0);
                bytes
            }
            None => memory::zeroed(len).map_err(|lack| Error::NoMemory { what, len, lack })?,
        };
        Ok(self.wrap(bytes))
    }

    /// Returns a copy of `bytes`, for `what`.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub(crate) fn copy(&self, what: &'static str, bytes: &[u8]) -> Result<PooledBuf, Error> {
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
        Ok(self.wrap(copy))
    }

    fn wrap(&self, bytes: Vec<u8>) -> PooledBuf {
        let pool = (bytes.capacity() >= POOLED_LEN_MIN).then(|| self.clone());
        PooledBuf { bytes, pool }
    }

    /// Returns memory for `len` bytes, if the pool has some.
    fn take(&self, len: usize) -> Option<Vec<u8>> {
        if len < POOLED_LEN_MIN {
            return None;
        }
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = |one: &Vec<u8>| (len..=len * USED_DIVISOR).contains(&one.capacity());
        let index = inner.buffers.iter().rposition(fits)?;
        let bytes = inner.buffers.remove(index);
        inner.len -= bytes.capacity();
        Some(bytes)
    }

    /// Adds `bytes` to the pool, and frees the memory that has been unused for the longest time.
    fn put(&self, bytes: Vec<u8>) {
        if bytes.capacity() > POOL_LEN_MAX {
            return;
        }
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        inner.len += bytes.capacity();
        inner.buffers.push(bytes);
        let mut freed = Vec::new();
        while inner.len > POOL_LEN_MAX {
            let oldest = inner.buffers.remove(0);
            inner.len -= oldest.capacity();
            freed.push(oldest);
        }
        // Freed after the lock is released.
        drop(inner);
    }
}

/// Memory that returns to its [`Pool`], if it came from one, when it is dropped.
#[derive(Debug)]
pub(crate) struct PooledBuf {
    bytes: Vec<u8>,
    pool: Option<Pool>,
}

impl From<Vec<u8>> for PooledBuf {
    /// Wraps a program's own memory, which never enters a pool.
    #[inline]
    fn from(bytes: Vec<u8>) -> PooledBuf {
        PooledBuf { bytes, pool: None }
    }
}

impl Clone for PooledBuf {
    /// Copies the bytes into memory that is not pooled.
    fn clone(&self) -> PooledBuf {
        self.bytes.clone().into()
    }
}

impl PooledBuf {
    /// Returns the bytes, which then do not return to the pool.
    pub(crate) fn into_vec(mut self) -> Vec<u8> {
        self.pool = None;
        std::mem::take(&mut self.bytes)
    }
}

impl Deref for PooledBuf {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl DerefMut for PooledBuf {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl Drop for PooledBuf {
    fn drop(&mut self) {
        if let Some(pool) = self.pool.take() {
            pool.put(std::mem::take(&mut self.bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: usize = 64 * 1024;

    fn pooled_len(pool: &Pool) -> usize {
        pool.0.lock().unwrap().len
    }

    #[test]
    fn memory_is_reused() {
        let pool = Pool::default();
        let first = pool.copy("a test", &[7; LEN]).unwrap();
        let at = first.as_ptr();
        assert_eq!(pooled_len(&pool), 0);
        drop(first);
        assert_eq!(pooled_len(&pool), LEN);
        let shorter = pool.copy("a test", &[8; LEN / 2]).unwrap();
        assert_eq!((shorter.as_ptr(), &shorter[..]), (at, &[8; LEN / 2][..]));
        drop(shorter);
        let again = pool.buffer("a test", LEN).unwrap();
        assert_eq!((again.as_ptr(), again.len()), (at, LEN));
    }

    #[test]
    fn short_oversized_or_extracted_memory_is_not_pooled() {
        let pool = Pool::default();
        drop(pool.copy("a test", &[1; POOLED_LEN_MIN - 1]).unwrap());
        assert_eq!(pooled_len(&pool), 0);
        assert_eq!(pool.buffer("a test", LEN).unwrap().into_vec().len(), LEN);
        assert_eq!(pooled_len(&pool), 0);
        drop(pool.buffer("a test", 4 * LEN).unwrap());
        let one = pool.buffer("a test", LEN).unwrap();
        assert_eq!((pooled_len(&pool), one.len()), (4 * LEN, LEN));
    }

    #[test]
    fn pool_never_exceeds_its_limit() {
        let pool = Pool::default();
        let all: Vec<_> = (0..2 * POOL_LEN_MAX / LEN)
            .map(|_| pool.buffer("a test", LEN).unwrap())
            .collect();
        drop(all);
        assert_eq!(pooled_len(&pool), POOL_LEN_MAX);
        drop(pool.buffer("a test", 2 * POOL_LEN_MAX).unwrap());
        assert_eq!(pooled_len(&pool), POOL_LEN_MAX);
        drop(pool.buffer("a test", POOL_LEN_MAX).unwrap());
        assert_eq!(pooled_len(&pool), POOL_LEN_MAX, "the oldest were freed");
    }
}
