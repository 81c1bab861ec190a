// SPDX-License-Identifier: MIT OR Apache-2.0
//! A shared mapping of a whole memory file.
//!
//! It exposes only a base pointer. The memory may change at any moment, so it never becomes a
//! slice.
#![allow(unsafe_code, reason = "maps and unmaps memory")]

use rustix::mm::{self, MapFlags, ProtFlags};
use std::io;
use std::os::fd::AsFd;
use std::ptr::{self, NonNull};

/// A readable and writable shared mapping; unmapped on drop.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread: any thread may use the base pointer
// and any thread may unmap. `Mapping` itself holds no other state.
unsafe impl Send for Mapping {}
// SAFETY: `&Mapping` gives only the base pointer and the length, both constant until drop.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `len` bytes of `fd`, which must have and keep that length (see
    /// [`crate::memfd::check`]); otherwise an access may raise SIGBUS. The pages are populated at
    /// once, so that the data path takes no page faults.
    ///
    /// # Errors
    /// Returns the error of `mmap`; `len` zero is invalid.
    pub fn map(fd: impl AsFd, len: usize) -> io::Result<Self> {
        Self::map_at(fd, 0, len)
    }

    /// Maps `len` bytes starting at `off`. For a socket's rings, `off` selects a ring.
    ///
    /// # Errors
    /// As [`Mapping::map`].
    pub fn map_at(fd: impl AsFd, off: u64, len: usize) -> io::Result<Self> {
        Self::map_with(fd, off, len, MapFlags::SHARED | MapFlags::POPULATE)
    }

    /// Maps like [`Mapping::map`], but takes memory for a page when it is first written.
    ///
    /// # Errors
    /// As [`Mapping::map`].
    pub fn map_lazily(fd: impl AsFd, len: usize) -> io::Result<Self> {
        Self::map_with(fd, 0, len, MapFlags::SHARED)
    }

    fn map_with(fd: impl AsFd, off: u64, len: usize, flags: MapFlags) -> io::Result<Self> {
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a null hint lets the kernel choose an unused range, so no existing object of this
        // process is touched; the range is reached only through this Mapping's pointer.
        let base = unsafe { mm::mmap(ptr::null_mut(), len, prot, flags, fd, off) }?;
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::InvalidInput)?;
        Ok(Mapping { base, len })
    }

    /// Returns the first byte, valid for reads and writes of [`Mapping::len`] bytes while `self`
    /// lives.
    #[inline]
    #[must_use]
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Returns the bytes mapped; never zero.
    #[inline]
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "an empty mapping cannot exist")]
    pub fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `map` got exactly this range from mmap, and pointers derived from `base` do not
        // outlive `self`. An error could only concern the range, which is ours.
        let _ = unsafe { mm::munmap(self.base.as_ptr().cast(), self.len) };
    }
}
