// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory of a length that a program or a peer chooses. A shortage of memory is an error, not an
//! abort.
#![allow(
    unsafe_code,
    reason = "zeroed memory that may be refused, and copies by pointers"
)]

use crate::shortage::Shortage;
use std::alloc::{Layout, alloc_zeroed};
use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut};
use std::ptr;

/// Returns a vector of `len` zero bytes, with pages that are not touched yet.
///
/// # Errors
/// [`Shortage`] if there is not enough memory.
pub fn zeroed(len: usize) -> Result<Vec<u8>, Shortage> {
    if len == 0 {
        return Ok(Vec::new());
    }
    let layout = Layout::array::<u8>(len).map_err(|_| Shortage::memory())?;
    // SAFETY: the layout has a nonzero length.
    let bytes = unsafe { alloc_zeroed(layout) };
    if bytes.is_null() {
        return Err(Shortage::memory());
    }
    // SAFETY: just allocated by the global allocator with the layout of `len` bytes, all of them
    // initialised, with no other owner.
    Ok(unsafe { Vec::from_raw_parts(bytes, len, len) })
}

/// Returns the concatenated pieces.
///
/// # Errors
/// [`Shortage`] if there is not enough memory.
pub fn gathered(pieces: &[&[u8]]) -> Result<Vec<u8>, Shortage> {
    let len = pieces.iter().map(|piece| piece.len()).sum();
    let mut joined = Vec::new();
    joined
        .try_reserve_exact(len)
        .map_err(|_| Shortage::memory())?;
    pieces.iter().for_each(|piece| append(&mut joined, piece));
    Ok(joined)
}

/// Appends `bytes`, fast at any relative alignment ([`copy_raw`]).
#[inline]
pub fn append(to: &mut Vec<u8>, bytes: &[u8]) {
    to.reserve(bytes.len());
    for piece in bytes.chunks(COPY_PIECE_LEN) {
        to.extend_from_slice(piece);
    }
}

/// Bytes copied by one call of the C library. Beyond about 2 KiB, glibc uses the processor's string
/// instruction. On an AMD EPYC that is 12 to 20 times slower if the destination begins 1 to 31
/// bytes after the source, modulo pages of 4 KiB. Pieces of 1 KiB cost nothing otherwise. Matches
/// `portolan_proto::copy`, which cannot use pointers.
const COPY_PIECE_LEN: usize = 1024;

/// Copies `len` bytes, fast at any relative alignment.
///
/// # Safety
/// As for [`ptr::copy_nonoverlapping`].
#[inline]
pub unsafe fn copy_raw(src: *const u8, dst: *mut u8, len: usize) {
    if len <= COPY_PIECE_LEN {
        // SAFETY: the caller guarantees it.
        return unsafe { ptr::copy_nonoverlapping(src, dst, len) };
    }
    for at in (0..len).step_by(COPY_PIECE_LEN) {
        let piece_len = COPY_PIECE_LEN.min(len - at);
        // SAFETY: within `len` bytes, as the caller guarantees.
        unsafe { ptr::copy_nonoverlapping(src.add(at), dst.add(at), piece_len) };
    }
}

/// Same as [`ptr::copy_nonoverlapping`]: short lengths take a few moves without a call, long
/// lengths use [`copy_raw`].
///
/// # Safety
/// As for [`ptr::copy_nonoverlapping`].
#[inline(always)]
pub unsafe fn copy(src: *const u8, dst: *mut u8, len: usize) {
    // Two moves of a width, overlapping in the middle, cover any length from one width to two.
    macro_rules! by {
        ($width:ty) => {{
            let last = len - size_of::<$width>();
            // SAFETY: both moves are within `len` bytes, as the caller guarantees.
            unsafe {
                let (begin, end) = (
                    src.cast::<$width>().read_unaligned(),
                    src.add(last).cast::<$width>().read_unaligned(),
                );
                dst.cast::<$width>().write_unaligned(begin);
                dst.add(last).cast::<$width>().write_unaligned(end);
            }
        }};
    }
    match len {
        8..=16 => by!(u64),
        17..=32 => by!(u128),
        // SAFETY: the caller guarantees it.
        _ => unsafe { copy_raw(src, dst, len) },
    }
}

/// Copies `head` and `body` to the beginning of `room`. Returns both in one piece.
///
/// # Panics
/// Panics if `room` is shorter than both.
#[inline]
pub fn joined<'a, const LEN: usize>(
    room: &'a mut [MaybeUninit<u8>; LEN],
    head: &[u8],
    body: &[u8],
) -> &'a [u8] {
    let len = head.len() + body.len();
    assert!(len <= LEN, "{len} bytes do not fit {LEN}");
    let first = room.as_mut_ptr().cast::<u8>();
    // SAFETY: both pieces fit in `room`, which nothing else borrows.
    unsafe {
        copy(head.as_ptr(), first, head.len());
        copy(body.as_ptr(), first.add(head.len()), body.len());
    }
    // SAFETY: the first `len` bytes were written above.
    unsafe { std::slice::from_raw_parts(room.as_ptr().cast(), len) }
}

/// Zeroed bytes that begin at a page, for large copies between the kernel and a program.
///
/// Most x86 processors copy at half speed if the destination lies up to 31 bytes after the source,
/// modulo pages of 4 KiB: each load then appears to depend on the preceding store. The kernel's
/// buffers for long datagrams begin at a page, and an allocator's buffers often some bytes after
/// one.
pub struct PageBuf {
    bytes: Box<[u8]>,
    off: usize,
    len: usize,
}

impl PageBuf {
    /// Returns a buffer of `len` zero bytes.
    #[must_use]
    pub fn zeroed(len: usize) -> PageBuf {
        let bytes = vec![0; len + PAGE_LEN - 1].into_boxed_slice();
        let off = bytes.as_ptr().align_offset(PAGE_LEN);
        PageBuf { bytes, off, len }
    }
}

/// Granularity in which processors compare the addresses of loads and stores, for any page size.
const PAGE_LEN: usize = 4096;

impl Deref for PageBuf {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.bytes[self.off..self.off + self.len]
    }
}

impl DerefMut for PageBuf {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.off..self.off + self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_all_short_lengths_are_joined() {
        let bytes: Vec<u8> = (0..100).collect();
        for head_len in 0..40 {
            for body_len in 0..40 {
                let (head, body) = (&bytes[..head_len], &bytes[50..50 + body_len]);
                let mut room = [MaybeUninit::new(0xa5); 80];
                assert_eq!(joined(&mut room, head, body), [head, body].concat());
            }
        }
    }

    #[test]
    fn copies_of_all_lengths_are_complete() {
        for len in [0, 1, 1023, 1024, 1025, 5000] {
            let src: Vec<u8> = (0..=255).cycle().take(len).collect();
            let mut dst = vec![0xa5; len];
            // SAFETY: two vectors of that length.
            unsafe { copy_raw(src.as_ptr(), dst.as_mut_ptr(), len) };
            assert_eq!(dst, src);
        }
    }

    #[test]
    fn page_buffer_begins_at_a_page() {
        for len in [0, 1, 4096, 100_000] {
            let mut buf = PageBuf::zeroed(len);
            assert!(buf.as_ptr().addr().is_multiple_of(4096));
            buf.fill(7);
            assert_eq!(*buf, vec![7; len]);
        }
    }

    #[test]
    fn memory_is_zeroed_and_oversized_requests_are_refused() {
        for len in [0, 1, 100_000] {
            assert_eq!(zeroed(len).unwrap(), vec![0; len]);
        }
        assert!(zeroed(usize::MAX).is_err());
        assert!(zeroed(usize::MAX / 2 - 7).is_err());
        assert_eq!(gathered(&[b"ab", b"", b"c"]).unwrap(), b"abc");
    }
}
