// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ring's memory as seen by both ends: atomics, and copies by raw pointer.
//!
//! Each offset is masked or checked here against private numbers, so no value written by the other
//! process can lead outside the mapping.
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
    /// Bits of a stream position that are the offset of its word in the data.
    mask: usize,
}

impl RingMemory {
    /// Maps a ring of `ring_len` bytes from a file that cannot shrink below it.
    pub(super) fn map(fd: impl AsFd, ring_len: usize) -> io::Result<Self> {
        assert!(
            layout::is_valid_ring_len(ring_len),
            "ring length {ring_len}"
        );
        let mapping = Mapping::map(fd, layout::file_len(ring_len))?;
        Ok(RingMemory {
            mapping,
            ring_len,
            mask: (ring_len - 1) & !(layout::WORD - 1),
        })
    }

    /// Returns the bytes of data; a power of two.
    #[inline]
    pub(super) fn ring_len(&self) -> usize {
        self.ring_len
    }

    /// Writes the fields that [`RingMemory::is_initialized`] checks.
    pub(super) fn initialize(&self) {
        self.field(layout::RING_LEN_OFF)
            .store(self.ring_len as u64, Ordering::Relaxed);
        self.field(layout::MAGIC_OFF)
            .store(layout::MAGIC, Ordering::Release);
    }

    /// Returns `true` if the creator used this layout and the same length.
    pub(super) fn is_initialized(&self) -> bool {
        self.field(layout::MAGIC_OFF).load(Ordering::Acquire) == layout::MAGIC
            && self.field(layout::RING_LEN_OFF).load(Ordering::Relaxed) == self.ring_len as u64
    }

    /// Returns the bytes consumed, written by the receiver.
    #[inline]
    pub(super) fn head(&self) -> &AtomicU64 {
        self.field(layout::HEAD_OFF)
    }

    /// Returns the `STATE_*` bits of the receiver.
    #[inline]
    pub(super) fn receiver_state(&self) -> &AtomicU64 {
        self.field(layout::RECEIVER_STATE_OFF)
    }

    /// Returns the flag that is nonzero while the sender sleeps because the ring is full.
    #[inline]
    pub(super) fn sender_waiting(&self) -> &AtomicU64 {
        self.field(layout::SENDER_WAITING_OFF)
    }

    /// Returns the unclaimed part of the receiver's offer.
    #[inline]
    pub(super) fn offer(&self) -> &AtomicU64 {
        self.field(layout::OFFER_OFF)
    }

    /// Returns the terms of the offer, written by the receiver.
    pub(super) fn offer_fields(&self) -> [&AtomicU64; 4] {
        std::array::from_fn(|index| self.field(layout::OFFER_OFF + (index + 1) * layout::WORD))
    }

    /// Returns the sender's count of copied units of the offer.
    pub(super) fn offer_done(&self) -> &AtomicU64 {
        self.field(layout::OFFER_DONE_OFF)
    }

    /// Returns the word at stream position `index`.
    #[inline]
    pub(super) fn word(&self, index: u64) -> &AtomicU64 {
        // Masked to a multiple of 8 below the power of two that `map` checked.
        self.field(DATA_OFF + (layout::to_usize(index) & self.mask))
    }

    /// Copies `src` to stream position `index`; it must not wrap.
    #[inline(always)]
    pub(super) fn copy_in(&self, index: u64, src: &[u8]) {
        let off = self.data_off(index, src.len());
        // SAFETY: `data_off` checked that off + len is within the mapping, which `src` cannot
        // overlap because no reference into a mapping exists. A correct receiver reads these bytes
        // only after the preceding word is committed (SYNC: entry), and has returned them before
        // this write (SYNC: space). A malicious one only corrupts its own input.
        unsafe {
            let dst = self.mapping.base().as_ptr().add(off);
            memory::copy(src.as_ptr(), dst, src.len());
        }
    }

    /// Copies `first` and then `second` to stream position `index`; they must not wrap.
    #[inline(always)]
    pub(super) fn copy_two_in<const N: usize>(&self, index: u64, first: &[u8; N], second: &[u8]) {
        let off = self.data_off(index, N.saturating_add(second.len()));
        // SAFETY: as in `copy_in`, for both.
        unsafe {
            let dst = self.mapping.base().as_ptr().add(off);
            dst.cast::<[u8; N]>().write(*first);
            memory::copy(second.as_ptr(), dst.add(N), second.len());
        }
    }

    /// Copies from stream position `index` into private memory; it must not wrap.
    #[inline]
    pub(super) fn copy_out(&self, index: u64, dst: &mut [u8]) {
        let off = self.data_off(index, dst.len());
        // SAFETY: as in `copy_in`, off + len is within the mapping and `dst` is elsewhere. A
        // correct sender does not write these bytes before they are returned. A malicious one races
        // with this copy: `dst` then holds arbitrary bytes, which the caller must expect of a peer
        // anyway. Every byte pattern is a valid u8, and `dst` is a single private copy.
        unsafe {
            let src = self.mapping.base().as_ptr().add(off);
            memory::copy(src, dst.as_mut_ptr(), dst.len());
        }
    }

    /// Prefetches the cache line at stream position `index`. A hint.
    #[inline]
    pub(super) fn expect_read(&self, index: u64) {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let line: *const AtomicU64 = self.word(index);
            // SAFETY: a prefetch reads and writes nothing, at any address.
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

    /// Returns a field. `off` is a multiple of 8 followed by 8 bytes; all callers are in this file.
    #[inline]
    fn field(&self, off: usize) -> &AtomicU64 {
        debug_assert!(off.is_multiple_of(8) && off + 8 <= self.mapping.len());
        // SAFETY: in bounds and aligned: the header's offsets are constants below DATA_OFF, those
        // of words are masked, and mmap returns page-aligned memory that lives as long as `self`.
        // The header is only accessed as atomics. A word may share bytes with an earlier frame's
        // plain copy, which the SYNC pairs order before or after it in correct processes.
        unsafe { AtomicU64::from_ptr(self.mapping.base().as_ptr().add(off).cast()) }
    }
}
