// SPDX-License-Identifier: MIT OR Apache-2.0
//! The area of chunks that hold frames, preceded by words with the shared state of its processes.
//! See the parent's documentation.
#![allow(unsafe_code, reason = "copies to and from the mapping")]

use crate::mapping::Mapping;
use crate::usage::{self, Call};
use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::sync::atomic::AtomicU32;

/// A multiple of any page size, because chunks must begin at a page.
const WORDS_LEN_UNIT: usize = 64 << 10;

/// A mapped area of shared words and frame chunks.
#[derive(Debug)]
pub struct Area {
    memory: Mapping,
    words_len: usize,
    chunk_len: usize,
}

impl Area {
    /// Returns the bytes of a memory file for that many words and chunks.
    #[must_use]
    pub fn file_len(word_count: usize, chunk_len: usize, chunk_count: usize) -> usize {
        words_len(word_count) + chunk_len * chunk_count
    }

    /// Maps an area in a memory file of [`Area::file_len`] bytes that cannot shrink
    /// ([`crate::memfd::check`]). Chunks have 2048 or 4096 bytes.
    ///
    /// # Errors
    /// Returns the error of `mmap`.
    pub fn map(
        file: BorrowedFd<'_>,
        word_count: usize,
        chunk_len: usize,
        chunk_count: usize,
    ) -> io::Result<Area> {
        Ok(Area {
            memory: Mapping::map(file, Self::file_len(word_count, chunk_len, chunk_count))?,
            words_len: words_len(word_count),
            chunk_len,
        })
    }

    /// Returns the address and length of the chunks.
    pub(super) fn chunks(&self) -> (u64, u64) {
        // SAFETY: the words precede the chunks in the mapping.
        let first = unsafe { self.memory.base().add(self.words_len) };
        let addr = first.as_ptr().expose_provenance() as u64;
        (addr, (self.memory.len() - self.words_len) as u64)
    }

    pub(super) fn chunk_len(&self) -> u32 {
        u32::try_from(self.chunk_len).unwrap_or(0)
    }

    /// Returns the word with that number.
    ///
    /// # Panics
    /// Panics if the number is out of range.
    #[inline]
    #[must_use]
    pub fn word(&self, index: usize) -> &AtomicU32 {
        assert!(index < self.words_len / 4);
        // SAFETY: in the mapping, by the assertion, and aligned, since mappings are; all processes
        // access it only as one word.
        unsafe { AtomicU32::from_ptr(self.memory.base().as_ptr().cast::<u32>().add(index)) }
    }

    /// Copies `bytes` to an offset among the chunks.
    ///
    /// # Panics
    /// Panics if they do not fit.
    #[inline]
    pub fn write(&self, at: usize, bytes: &[u8]) {
        let to = self.place(at, bytes.len());
        // SAFETY: `place` has checked that it lies in the mapping; `bytes` does not, being
        // borrowed. If another process writes there, only the frame is corrupted.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    }

    /// Copies bytes from an offset among the chunks. Returns `false` if the range is out of bounds.
    #[inline]
    #[must_use]
    pub fn read(&self, at: usize, bytes: &mut [u8]) -> bool {
        let chunks_len = self.memory.len() - self.words_len;
        if at > chunks_len || bytes.len() > chunks_len - at {
            return false;
        }
        let from = self.place(at, bytes.len());
        // SAFETY: as in `write`, in the other direction; any bytes are valid.
        unsafe { ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), bytes.len()) };
        true
    }

    #[inline]
    fn place(&self, at: usize, len: usize) -> *mut u8 {
        let chunks_len = self.memory.len() - self.words_len;
        assert!(at <= chunks_len && len <= chunks_len - at);
        // SAFETY: in the mapping, by the assertion.
        unsafe { self.memory.base().add(self.words_len + at) }.as_ptr()
    }
}

fn words_len(word_count: usize) -> usize {
    (word_count * 4).next_multiple_of(WORDS_LEN_UNIT)
}

/// A lock between processes that share a memory file. The kernel releases it when its holder dies.
#[derive(Debug)]
pub struct AreaLock(OwnedFd);

impl AreaLock {
    /// Creates a separate lock handle on a shared file. It opens the file again, because all users
    /// of one open file share its lock (flock(2)).
    ///
    /// # Errors
    /// `ENOENT` if `/proc` is not mounted.
    pub fn new(file: BorrowedFd<'_>) -> io::Result<AreaLock> {
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        Ok(AreaLock(open(path, flags, Mode::empty())?))
    }

    /// Runs `work` with the lock held.
    ///
    /// # Errors
    /// `ENOLCK` if the kernel has no memory for the lock.
    pub fn with<R>(&self, work: impl FnOnce() -> R) -> io::Result<R> {
        self.call(FlockOperation::LockExclusive)?;
        let result = work();
        self.call(FlockOperation::Unlock)?;
        Ok(result)
    }

    fn call(&self, operation: FlockOperation) -> io::Result<()> {
        loop {
            usage::count_call(Call::Flock);
            match flock(self.0.as_fd(), operation) {
                Err(Errno::INTR) => {}
                other => return Ok(other?),
            }
        }
    }
}
