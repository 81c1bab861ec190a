// SPDX-License-Identifier: MIT OR Apache-2.0
//! The writing end of a ring.

use super::layout::{self, WORD, Word};
use super::memory::RingMemory;
use super::offer::Claims;
use super::{Bell, RingBroken};
use crate::barrier;
use std::io::IoSlice;
use std::sync::atomic::Ordering;

/// Why a frame was not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PushError {
    /// No room until the receiver has consumed more.
    #[error("ring is full")]
    Full,
    /// No ring of this length will ever carry it.
    #[error("frame longer than {0} bytes")]
    TooLong(usize),
    /// The receiver's index cannot be.
    #[error(transparent)]
    Broken(#[from] RingBroken),
}

/// Writes frames into a ring. One per ring, in the process that created it.
#[derive(Debug)]
pub struct RingSender {
    pub(super) memory: RingMemory,
    pub(super) claims: Claims,
    /// Stream position of the next entry. Nobody else knows it.
    tail: u64,
    /// The head as last read; reread only when the ring seems full.
    head: u64,
    frame_len_max: usize,
    /// This process takes part in the receiver's heavy fences.
    registered: bool,
}

impl RingSender {
    pub(super) fn new(memory: RingMemory) -> Self {
        let frame_len_max = layout::frame_len_max(memory.ring_len());
        RingSender {
            memory,
            claims: Claims::default(),
            tail: 0,
            head: 0,
            frame_len_max,
            registered: barrier::register(),
        }
    }

    /// Longest frame in bytes.
    #[must_use]
    pub fn frame_len_max(&self) -> usize {
        self.frame_len_max
    }

    /// Writes one frame, gathered from `head` and `payload`, and commits it.
    ///
    /// # Errors
    /// [`PushError`]; nothing was written.
    #[inline(always)]
    pub fn push(&mut self, head: &[u8], payload: &[IoSlice<'_>]) -> Result<Bell, PushError> {
        let len = payload
            .iter()
            .fold(head.len(), |sum, slice| sum.saturating_add(slice.len()));
        if len > self.frame_len_max {
            return Err(PushError::TooLong(self.frame_len_max));
        }
        let entry = layout::entry_len(len);
        let padding = self.padding_before(entry);
        if !self.fits(padding + entry) {
            self.refresh_head()?;
            if !self.fits(padding + entry) {
                return Err(PushError::Full);
            }
        }
        let at = self.tail + padding as u64;
        self.copy_in(at + WORD as u64, head, payload);
        self.commit(at, entry, len);
        Ok(self.bell())
    }

    /// Whether a frame of `len` bytes would fit now.
    ///
    /// # Errors
    /// [`RingBroken`] when the receiver's index cannot be.
    pub fn has_room(&mut self, len: usize) -> Result<bool, RingBroken> {
        let entry = layout::entry_len(len.min(self.frame_len_max));
        self.refresh_head()?;
        Ok(self.fits(self.padding_before(entry) + entry))
    }

    /// Asks the receiver to ring when it gives space back. A [`barrier::full`] and another look
    /// with [`RingSender::has_room`] must follow before sleeping.
    pub fn arm(&mut self) {
        // SYNC: waiting (store the flag; the caller fences and rereads the head).
        self.memory.sender_waiting().store(1, Ordering::Relaxed);
    }

    /// Undoes [`RingSender::arm`].
    pub fn disarm(&mut self) {
        self.memory.sender_waiting().store(0, Ordering::Relaxed);
    }

    /// Bytes up to the ring's end if `entry` does not fit in front of it, else none.
    #[inline]
    fn padding_before(&self, entry: usize) -> usize {
        let ring_len = self.memory.ring_len();
        let to_end = ring_len - (layout::to_usize(self.tail) & (ring_len - 1));
        if entry > to_end { to_end } else { 0 }
    }

    /// Room for `len` bytes and the zero word behind them.
    #[inline]
    fn fits(&self, len: usize) -> bool {
        let used = layout::to_usize(self.tail - self.head);
        used + len + WORD <= self.memory.ring_len()
    }

    #[cold]
    fn refresh_head(&mut self) -> Result<(), RingBroken> {
        // SYNC: space (acquire; the receiver has finished reading all bytes below).
        let head = self.memory.head().load(Ordering::Acquire);
        // P8.7: a head that cannot be breaks the ring.
        if head < self.head || head > self.tail {
            return Err(RingBroken("the receiver's index is out of bounds"));
        }
        self.head = head;
        Ok(())
    }

    #[inline]
    fn copy_in(&self, mut at: u64, head: &[u8], payload: &[IoSlice<'_>]) {
        self.memory.copy_in(at, head);
        at += head.len() as u64;
        for slice in payload {
            self.memory.copy_in(at, slice);
            at += slice.len() as u64;
        }
    }

    /// Makes the frame at `at` visible, and with it the padding in front of it, if any.
    #[inline]
    fn commit(&mut self, at: u64, entry: usize, len: usize) {
        let next = at + entry as u64;
        // P8.7: first the zero behind, which is where the receiver looks next.
        self.memory
            .word(next)
            .store(Word::Empty.encode(), Ordering::Relaxed);
        // SYNC: entry (release; the frame and the zero behind it come before).
        self.memory
            .word(at)
            .store(Word::Frame(len).encode(), Ordering::Release);
        if at != self.tail {
            // The receiver still waits at the padding, so the frame is not seen before this.
            // SYNC: entry (release).
            self.memory
                .word(self.tail)
                .store(Word::Padding.encode(), Ordering::Release);
        }
        self.tail = next;
    }

    /// Whether the receiver sleeps. One load of a line that changes only when it does.
    #[inline]
    fn bell(&self) -> Bell {
        // SYNC: sleep (the commit above, fence, then this load). When the receiver fences for us
        // and we are registered, only the compiler must be kept from swapping the two.
        barrier::light();
        let state = self.memory.receiver_state().load(Ordering::Relaxed);
        if self.registered && state == layout::STATE_FENCES {
            return Bell::Silent;
        }
        self.bell_fenced()
    }

    /// The receiver sleeps, or has not said yet that it fences for us, or never will.
    fn bell_fenced(&self) -> Bell {
        barrier::full();
        let state = self.memory.receiver_state();
        if state.load(Ordering::Relaxed) & layout::STATE_SLEEPING == 0 {
            return Bell::Silent;
        }
        // Taking the flag makes this the only bell of this sleep: frames that follow while the
        // receiver is still waking cost no system call.
        if state.fetch_and(!layout::STATE_SLEEPING, Ordering::Relaxed) & layout::STATE_SLEEPING == 0
        {
            return Bell::Silent;
        }
        Bell::Ring
    }
}
