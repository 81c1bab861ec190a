// SPDX-License-Identifier: MIT OR Apache-2.0
//! Private memory in whole pages, large ones if available, populated from the start.
//!
//! Large pages save copies of bulk data most TLB misses; populated pages save page faults.
#![allow(unsafe_code, reason = "maps, advises and unmaps memory")]

use rustix::mm::{self, Advice, MapFlags, ProtFlags};
use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};
use std::{io, slice};

/// Bytes of a large page, on x86-64 and on 64-bit Arm with pages of 4 KiB. If large pages have
/// another length, the system refuses, and small ones are used.
const LARGE_PAGE_LEN: usize = 2 << 20;

/// Bytes of the smallest page of all systems, used to touch each page. Touching a larger page twice
/// is harmless.
const PAGE_LEN: usize = 4096;

/// Kind of pages behind a [`Pages`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Backing {
    /// Large pages reserved by the administrator (`vm.nr_hugepages`).
    Reserved,
    /// Small pages that the system was advised to replace by large ones (`transparent_hugepage`).
    Advised,
    /// Small pages.
    Small,
}

/// Zeroed private memory of this process; unmapped on drop.
#[derive(Debug)]
pub struct Pages {
    /// The mapping, which may begin before and end after the bytes.
    base: NonNull<u8>,
    mapped_len: usize,
    bytes: NonNull<u8>,
    len: usize,
    backing: Backing,
}

// SAFETY: the mapping belongs to the process, not to a thread, and `Pages` owns it alone.
unsafe impl Send for Pages {}
// SAFETY: `&Pages` gives shared access to plain bytes only.
unsafe impl Sync for Pages {}

impl Pages {
    /// Maps `len` bytes, in large pages if available and `len` fills one.
    ///
    /// # Errors
    /// Returns the error of `mmap`: ENOMEM if the system, or a limit of the process, has no memory
    /// left.
    pub fn new(len: usize) -> io::Result<Self> {
        if len < LARGE_PAGE_LEN {
            return Self::map(len, len.max(1), Backing::Small);
        }
        let rounded_len = len
            .checked_next_multiple_of(LARGE_PAGE_LEN)
            .ok_or(io::ErrorKind::OutOfMemory)?;
        // Reserved pages are few; having none is normal.
        if let Ok(pages) = Self::map(len, rounded_len, Backing::Reserved) {
            return Ok(pages);
        }
        // One page more, so that a large page can begin within the first.
        let padded_len = rounded_len.checked_add(LARGE_PAGE_LEN);
        Self::map(
            len,
            padded_len.ok_or(io::ErrorKind::OutOfMemory)?,
            Backing::Advised,
        )
    }

    fn map(len: usize, mapped_len: usize, requested: Backing) -> io::Result<Self> {
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        let flags = match requested {
            Backing::Reserved => MapFlags::PRIVATE | MapFlags::HUGETLB,
            _ => MapFlags::PRIVATE,
        };
        // SAFETY: a null hint lets the kernel choose an unused range, so no existing object of this
        // process is touched.
        let base = unsafe { mm::mmap_anonymous(ptr::null_mut(), mapped_len, prot, flags) }?;
        let base = NonNull::new(base.cast::<u8>()).ok_or(io::ErrorKind::InvalidInput)?;
        let mut pages = Pages {
            base,
            mapped_len,
            bytes: base,
            len,
            backing: requested,
        };
        if requested == Backing::Advised {
            pages.advise();
        }
        pages.populate()?;
        Ok(pages)
    }

    /// Aligns the start to a large page, and requests large pages.
    fn advise(&mut self) {
        let skipped = self.base.as_ptr().align_offset(LARGE_PAGE_LEN);
        // SAFETY: less than a large page, by which the mapping is longer than the bytes.
        self.bytes = unsafe { self.base.add(skipped) };
        let len = self.len.next_multiple_of(LARGE_PAGE_LEN);
        let start = self.bytes.as_ptr().cast();
        // SAFETY: the range is within our mapping, and the advice does not change its contents.
        if unsafe { mm::madvise(start, len, Advice::LinuxHugepage) }.is_err() {
            self.backing = Backing::Small;
        }
    }

    /// Populates all pages. For reserved pages, a failure such as a limit of the process's control
    /// group must be found here; later it would be a SIGBUS.
    fn populate(&mut self) -> io::Result<()> {
        let start = self.bytes.as_ptr().cast();
        // SAFETY: the range is within our mapping; populating changes no byte.
        match unsafe { mm::madvise(start, self.len, Advice::LinuxPopulateWrite) } {
            Ok(()) => Ok(()),
            // Not supported before Linux 5.14.
            Err(rustix::io::Errno::INVAL) if self.backing != Backing::Reserved => {
                for byte in self.iter_mut().step_by(PAGE_LEN) {
                    // SAFETY: `byte` is a live exclusive reference; volatile, so that the compiler
                    // keeps the store of an unchanged value.
                    unsafe { ptr::write_volatile(byte, 0) };
                }
                Ok(())
            }
            Err(errno) => Err(errno.into()),
        }
    }

    /// Returns the kind of these pages.
    #[must_use]
    pub fn backing(&self) -> Backing {
        self.backing
    }
}

impl Deref for Pages {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: `map` got the range from mmap, readable, zeroed and private; it stays until drop.
        unsafe { slice::from_raw_parts(self.bytes.as_ptr(), self.len) }
    }
}

impl DerefMut for Pages {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, writable; `&mut self` keeps this the only reference.
        unsafe { slice::from_raw_parts_mut(self.bytes.as_ptr(), self.len) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: `map` got exactly this range from mmap, and references to it have ended. An error
        // could only concern the range, which is ours.
        let _ = unsafe { mm::munmap(self.base.as_ptr().cast(), self.mapped_len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_zeroed_aligned_and_writable() {
        for len in [0, 1, 4096, 100_000, LARGE_PAGE_LEN, 2 * LARGE_PAGE_LEN + 5] {
            let mut pages = Pages::new(len).unwrap();
            assert_eq!(pages.len(), len);
            let aligned = match pages.backing() {
                Backing::Small => PAGE_LEN,
                _ => LARGE_PAGE_LEN,
            };
            assert!(pages.as_ptr().addr().is_multiple_of(aligned), "{len}");
            assert!(pages.iter().all(|&byte| byte == 0));
            pages.fill(0xa5);
            assert!(pages.iter().all(|&byte| byte == 0xa5));
        }
    }

    #[test]
    fn pages_are_present_from_the_start() {
        let pages = Pages::new(1 << 20).unwrap();
        let mut present = vec![0_u8; (1 << 20) / PAGE_LEN];
        let start = pages.as_ptr().cast_mut().cast();
        // SAFETY: mincore writes a byte for each page of the range, which is ours, into `present`.
        let result = unsafe { libc::mincore(start, pages.len(), present.as_mut_ptr()) };
        assert_eq!(result, 0);
        assert!(present.iter().all(|page| page & 1 == 1));
    }

    #[test]
    fn oversized_request_is_refused() {
        assert!(Pages::new(usize::MAX / 2).is_err());
        assert!(Pages::new(usize::MAX).is_err());
    }
}
