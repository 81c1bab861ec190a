// SPDX-License-Identifier: MIT OR Apache-2.0
//! The mapped rings of an AF_XDP socket. See the parent's documentation.
//!
//! Indices are read from the ring each time, not cached, because processes take turns on the rings
//! of an area.
#![allow(unsafe_code, reason = "reads and writes entries of the mapping")]

use crate::mapping::Mapping;
use rustix::net::sockopt;
use rustix::net::xdp::{
    XDP_PGOFF_RX_RING, XDP_PGOFF_TX_RING, XDP_UMEM_PGOFF_COMPLETION_RING, XDP_UMEM_PGOFF_FILL_RING,
};
use std::io;
use std::marker::PhantomData;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, Ordering};

/// Kind of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Which {
    Rx,
    Tx,
    Fill,
    Completion,
}

/// Types of ring entries: the offset of a chunk, or offset, length and options of a frame.
pub(super) trait Entry: Copy {}
impl Entry for u64 {}
impl Entry for libc::xdp_desc {}

#[derive(Debug)]
struct Ring<T> {
    memory: Mapping,
    producer_off: usize,
    consumer_off: usize,
    flags_off: usize,
    entries_off: usize,
    /// Number of entries, a power of two.
    len: u32,
    _entries: PhantomData<T>,
}

impl<T: Entry> Ring<T> {
    fn map(socket: BorrowedFd<'_>, which: Which, len: u32) -> io::Result<Ring<T>> {
        let offsets = sockopt::xdp_mmap_offsets(socket)?;
        let (place, offsets) = match which {
            Which::Rx => (XDP_PGOFF_RX_RING, offsets.rx),
            Which::Tx => (XDP_PGOFF_TX_RING, offsets.tx),
            Which::Fill => (XDP_UMEM_PGOFF_FILL_RING, offsets.fr),
            Which::Completion => (XDP_UMEM_PGOFF_COMPLETION_RING, offsets.cr),
        };
        let off = |off: u64| usize::try_from(off).map_err(io::Error::other);
        // Before Linux 5.4 rings had no flags; links need 5.9 for other reasons.
        let flags = offsets.flags.ok_or(io::ErrorKind::Unsupported)?;
        let (producer_off, consumer_off) = (off(offsets.producer)?, off(offsets.consumer)?);
        let (flags_off, entries_off) = (off(flags)?, off(offsets.desc)?);
        let memory_len = entries_off + len as usize * size_of::<T>();
        let fits = |word: usize| word.is_multiple_of(4) && word + 4 <= memory_len;
        let all_fit = fits(producer_off) && fits(consumer_off) && fits(flags_off);
        if !len.is_power_of_two() || !all_fit || !entries_off.is_multiple_of(align_of::<T>()) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(Ring {
            memory: Mapping::map_at(socket, place, memory_len)?,
            producer_off,
            consumer_off,
            flags_off,
            entries_off,
            len,
            _entries: PhantomData,
        })
    }

    #[inline]
    fn word(&self, off: usize) -> &AtomicU32 {
        // SAFETY: `map` has checked that the word lies in the mapping, aligned; the mapping lives
        // as long as `self`, and the kernel and all processes access it only as one word.
        unsafe { AtomicU32::from_ptr(self.memory.base().as_ptr().add(off).cast()) }
    }

    #[inline]
    fn producer(&self) -> &AtomicU32 {
        self.word(self.producer_off)
    }

    #[inline]
    fn consumer(&self) -> &AtomicU32 {
        self.word(self.consumer_off)
    }

    #[inline]
    fn entry(&self, index: u32) -> *mut T {
        let at = (index & (self.len - 1)) as usize;
        // SAFETY: `at` is below `len`, and `map` has mapped that many entries behind `entries_off`.
        unsafe {
            self.memory
                .base()
                .as_ptr()
                .add(self.entries_off)
                .cast::<T>()
                .add(at)
        }
    }
}

/// Consuming end of a ring that the kernel fills.
#[derive(Debug)]
pub struct ConsumerRing<T>(Ring<T>);

#[allow(private_bounds, reason = "there are two kinds of entries")]
impl<T: Entry> ConsumerRing<T> {
    pub(super) fn map(socket: BorrowedFd<'_>, which: Which, len: u32) -> io::Result<Self> {
        Ring::map(socket, which, len).map(ConsumerRing)
    }

    /// Returns `true` if an entry is waiting.
    #[inline]
    #[must_use]
    pub fn has_entry(&self) -> bool {
        let consumer = self.0.consumer().load(Ordering::Relaxed);
        // SYNC: xdp entry
        self.0.producer().load(Ordering::Acquire) != consumer
    }

    /// Takes the next entry.
    #[inline]
    pub fn take(&mut self) -> Option<T> {
        let ring = &self.0;
        let consumer = ring.consumer().load(Ordering::Relaxed);
        // SYNC: xdp entry
        if ring.producer().load(Ordering::Acquire) == consumer {
            return None;
        }
        // SAFETY: written before the acquired index, and not written again before the release
        // below; any bytes are a valid entry.
        let entry = unsafe { ring.entry(consumer).read() };
        // SYNC: xdp space
        ring.consumer()
            .store(consumer.wrapping_add(1), Ordering::Release);
        Some(entry)
    }
}

/// Producing end of a ring that the kernel drains.
#[derive(Debug)]
pub struct ProducerRing<T>(Ring<T>);

#[allow(private_bounds, reason = "there are two kinds of entries")]
impl<T: Entry> ProducerRing<T> {
    pub(super) fn map(socket: BorrowedFd<'_>, which: Which, len: u32) -> io::Result<Self> {
        Ring::map(socket, which, len).map(ProducerRing)
    }

    /// Appends an entry. Returns `false` if the ring is full.
    #[inline]
    pub fn push(&mut self, entry: T) -> bool {
        let ring = &self.0;
        let producer = ring.producer().load(Ordering::Relaxed);
        // SYNC: xdp space
        let consumer = ring.consumer().load(Ordering::Acquire);
        if producer.wrapping_sub(consumer) >= ring.len {
            return false;
        }
        // SAFETY: the kernel has finished with the entry, by the acquired index, and does not read
        // it before the release below.
        unsafe { ring.entry(producer).write(entry) };
        // SYNC: xdp entry
        ring.producer()
            .store(producer.wrapping_add(1), Ordering::Release);
        true
    }

    /// Returns `true` if the kernel has taken all entries.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let producer = self.0.producer().load(Ordering::Relaxed);
        // SYNC: xdp space
        self.0.consumer().load(Ordering::Acquire) == producer
    }

    /// Returns `true` if the kernel needs a system call to continue (`XDP_RING_NEED_WAKEUP`).
    #[inline]
    #[must_use]
    pub fn needs_wakeup(&self) -> bool {
        let flags = self.0.word(self.0.flags_off).load(Ordering::Relaxed);
        flags & libc::XDP_RING_NEED_WAKEUP != 0
    }
}
