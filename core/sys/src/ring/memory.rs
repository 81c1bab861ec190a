// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ring's memory as both ends see it: atomics, and copies by raw pointer.
//!
//! Each offset is masked or checked here, against private numbers, so that nothing the other
//! process writes can lead outside the mapping.
#![allow(
    unsafe_code,
    reason = "reaches into memory shared with another process"
)]

use super::layout::{self, DATA_OFF};
use crate::mapping::Mapping;
use crate::memory;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};

/// A mapped ring.
#[derive(Debug)]
pub(super) struct RingMemory {
    mapping: Mapping,
    ring_len: usize,
}

impl RingMemory {
    /// Maps a ring of `ring_len` bytes from a file that cannot shrink below it.
    pub(super) fn map(fd: impl AsFd, ring_len: usize) -> io::Result<Self> {
        assert!(
            layout::is_valid_ring_len(ring_len),
            "ring length {ring_len}"
        );
        let mapping = Mapping::map(fd, layout::file_len(ring_len))?;
        Ok(RingMemory { mapping, ring_len })
    }

    /// Bytes of data; a power of two.
    #[inline]
    pub(super) fn ring_len(&self) -> usize {
        self.ring_len
    }

    /// Writes what [`RingMemory::is_initialized`] looks for.
    pub(super) fn initialize(&self) {
        self.field(layout::RING_LEN_OFF)
            .store(self.ring_len as u64, Ordering::Relaxed);
        self.field(layout::MAGIC_OFF)
            .store(layout::MAGIC, Ordering::Release);
    }

    /// Whether the creator speaks this layout and means the same length.
    pub(super) fn is_initialized(&self) -> bool {
        self.field(layout::MAGIC_OFF).load(Ordering::Acquire) == layout::MAGIC
            && self.field(layout::RING_LEN_OFF).load(Ordering::Relaxed) == self.ring_len as u64
    }

    /// Bytes consumed, written by the receiver.
    #[inline]
    pub(super) fn head(&self) -> &AtomicU64 {
        self.field(layout::HEAD_OFF)
    }

    /// `STATE_*` bits of the receiver.
    #[inline]
    pub(super) fn receiver_state(&self) -> &AtomicU64 {
        self.field(layout::RECEIVER_STATE_OFF)
    }

    /// Nonzero while the sender sleeps for want of room.
    #[inline]
    pub(super) fn sender_waiting(&self) -> &AtomicU64 {
        self.field(layout::SENDER_WAITING_OFF)
    }

    /// What is left to claim of the receiver's offer.
    #[inline]
    pub(super) fn offer(&self) -> &AtomicU64 {
        self.field(layout::OFFER_OFF)
    }

    /// The terms of the offer, written by the receiver.
    pub(super) fn offer_fields(&self) -> [&AtomicU64; 4] {
        std::array::from_fn(|index| self.field(layout::OFFER_OFF + (index + 1) * layout::WORD))
    }

    /// What the sender has copied of the offer, written by the sender.
    pub(super) fn offer_done(&self) -> &AtomicU64 {
        self.field(layout::OFFER_DONE_OFF)
    }

    /// The word at stream position `index`.
    #[inline]
    pub(super) fn word(&self, index: u64) -> &AtomicU64 {
        // Masked to a multiple of 8 below the power of two that `map` checked.
        self.field(DATA_OFF + (layout::to_usize(index) & (self.ring_len - 1) & !7))
    }

    /// Copies `src` to stream position `index`; it must not wrap.
    #[inline(always)]
    pub(super) fn copy_in(&self, index: u64, src: &[u8]) {
        let off = self.data_off(index, src.len());
        // SAFETY: `data_off` checked that off + len is within the mapping, which `src` cannot
        // overlap because no reference into a mapping exists. An honest receiver does not read
        // these bytes before the word in front of them is committed (SYNC: entry) and has given
        // them back (SYNC: space); a dishonest one only spoils what it reads itself.
        unsafe {
            let dst = self.mapping.base().as_ptr().add(off);
            copy(src.as_ptr(), dst, src.len());
        }
    }

    /// Copies from stream position `index` into private memory; it must not wrap.
    #[inline]
    pub(super) fn copy_out(&self, index: u64, dst: &mut [u8]) {
        let off = self.data_off(index, dst.len());
        // SAFETY: as in `copy_in`, off + len is within the mapping and `dst` is elsewhere. An
        // honest sender does not write these bytes before they are given back. A dishonest one
        // races with this copy: `dst` then holds arbitrary bytes, which is what the caller has to
        // expect of a peer anyway; every byte pattern is a valid u8, and what was read twice is in
        // `dst` once.
        unsafe {
            let src = self.mapping.base().as_ptr().add(off);
            copy(src, dst.as_mut_ptr(), dst.len());
        }
    }

    /// Asks for the cache line at stream position `index`, to be read soon. A hint.
    #[inline]
    pub(super) fn expect_read(&self, index: u64) {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let line: *const AtomicU64 = self.word(index);
            // SAFETY: a prefetch reads and writes nothing, whatever the address.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(line.cast()) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = index;
    }

    #[inline]
    fn data_off(&self, index: u64, len: usize) -> usize {
        let at = layout::to_usize(index) & (self.ring_len - 1);
        assert!(len <= self.ring_len - at, "copy beyond the ring's end");
        DATA_OFF + at
    }

    /// `off` is a multiple of 8 with 8 bytes behind it; all callers are in this file.
    #[inline]
    fn field(&self, off: usize) -> &AtomicU64 {
        debug_assert!(off.is_multiple_of(8) && off + 8 <= self.mapping.len());
        // SAFETY: in bounds and aligned: the header's offsets are constants below DATA_OFF, those
        // of words are masked, and mmap returns page-aligned memory that lives as long as `self`.
        // The header is only ever reached as atomics. A word may share bytes with an earlier
        // frame's plain copy, which the SYNC pairs order before or after it in honest processes.
        unsafe { AtomicU64::from_ptr(self.mapping.base().as_ptr().add(off).cast()) }
    }
}

/// [`ptr::copy_nonoverlapping`], by a few moves and without a call where the bytes are few, and as
/// [`memory::copy_raw`] does where they are many.
///
/// # Safety
/// As of [`ptr::copy_nonoverlapping`].
#[inline(always)]
unsafe fn copy(src: *const u8, dst: *mut u8, len: usize) {
    // Two moves of a width that overlap in the middle take any length from one width to two.
    macro_rules! by {
        ($width:ty) => {{
            let last = len - size_of::<$width>();
            // SAFETY: both moves are within `len` bytes, which the caller has promised.
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
        // SAFETY: the caller's promise.
        _ => unsafe { memory::copy_raw(src, dst, len) },
    }
}
