// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writing end of a ring.

use super::layout::{self, WORD, Word};
use super::memory::RingMemory;
use super::offer::Claims;
use super::{Bell, RingBroken};
use crate::barrier;
use std::io::IoSlice;
use std::sync::atomic::Ordering;

/// Reason why a frame was not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PushError {
    /// No space until the receiver has consumed more.
    #[error("ring is full")]
    Full,
    /// The frame is too long for this ring.
    #[error("frame is longer than {0} bytes")]
    TooLong(usize),
    /// The receiver's index is invalid.
    #[error(transparent)]
    Broken(#[from] RingBroken),
}

/// Writes frames into a ring. One per ring, in the process that created it.
#[derive(Debug)]
pub struct RingSender {
    pub(super) memory: RingMemory,
    pub(super) claims: Claims,
    /// Stream position of the next entry; private to this process.
    tail: u64,
    /// The head as last read. It is reread only when the ring seems full.
    head: u64,
    /// Bytes that the next entries may fill before the head and the ring's end are checked again.
    room: usize,
    frame_len_max: usize,
    /// State of a receiver that needs neither a bell nor a fence. No receiver has it unless this
    /// process takes part in the receivers' heavy fences.
    silent_state: u64,
}

impl RingSender {
    pub(super) fn new(memory: RingMemory) -> Self {
        let frame_len_max = layout::frame_len_max(memory.ring_len());
        RingSender {
            memory,
            claims: Claims::default(),
            tail: 0,
            head: 0,
            room: 0,
            frame_len_max,
            silent_state: match barrier::register() {
                true => layout::STATE_FENCES,
                false => u64::MAX,
            },
        }
    }

    /// Returns the longest frame in bytes.
    #[must_use]
    pub fn frame_len_max(&self) -> usize {
        self.frame_len_max
    }

    /// Writes one frame, gathered from `head` and `payload`, and commits it.
    ///
    /// # Errors
    /// [`PushError`]; nothing was written.
    #[inline]
    pub fn push(&mut self, head: &[u8], payload: &[IoSlice<'_>]) -> Result<Bell, PushError> {
        let len = payload
            .iter()
            .fold(head.len(), |sum, slice| sum.saturating_add(slice.len()));
        let at = self.reserve(len)?;
        self.copy_in(at + WORD as u64, head, payload);
        self.commit(at, len);
        Ok(self.bell())
    }

    /// Writes one frame of a header and a payload, like [`RingSender::push`].
    ///
    /// # Errors
    /// [`PushError`]; nothing was written.
    #[inline(always)]
    pub fn push_message<const N: usize>(
        &mut self,
        header: &[u8; N],
        payload: &[u8],
    ) -> Result<Bell, PushError> {
        let len = N + payload.len();
        let at = self.reserve(len)?;
        self.memory.copy_two_in(at + WORD as u64, header, payload);
        self.commit(at, len);
        Ok(self.bell())
    }

    /// Returns the stream position for the entry of a frame of `len` bytes. The entry is contiguous.
    #[inline(always)]
    fn reserve(&mut self, len: usize) -> Result<u64, PushError> {
        match len <= self.frame_len_max && layout::entry_len(len) <= self.room {
            true => Ok(self.tail),
            false => self.find_room(len),
        }
    }

    /// Finds room like the fast path, also by padding before the entry and with space that the
    /// receiver has returned meanwhile.
    #[cold]
    fn find_room(&mut self, len: usize) -> Result<u64, PushError> {
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
        self.room = self.room_at(at);
        Ok(at)
    }

    /// Returns the bytes from stream position `at` that entries may fill without a further check:
    /// up to the ring's end, and up to the zero word before the head.
    fn room_at(&self, at: u64) -> usize {
        let ring_len = self.memory.ring_len();
        let used = layout::to_usize(at - self.head);
        let to_end = ring_len - (layout::to_usize(at) & (ring_len - 1));
        to_end.min((ring_len - WORD).saturating_sub(used))
    }

    /// Returns `true` if a frame of `len` bytes fits now.
    ///
    /// # Errors
    /// [`RingBroken`] if the receiver's index is invalid.
    pub fn has_space(&mut self, len: usize) -> Result<bool, RingBroken> {
        let entry = layout::entry_len(len.min(self.frame_len_max));
        self.refresh_head()?;
        Ok(self.fits(self.padding_before(entry) + entry))
    }

    /// Requests a doorbell from the receiver when it returns space. Before sleeping, the caller
    /// must issue [`barrier::full`] and check again with [`RingSender::has_space`].
    pub fn arm(&mut self) {
        // SYNC: waiting (store the flag; the caller fences and rereads the head).
        self.memory.sender_waiting().store(1, Ordering::Relaxed);
    }

    /// Reverts [`RingSender::arm`].
    pub fn disarm(&mut self) {
        self.memory.sender_waiting().store(0, Ordering::Relaxed);
    }

    /// Returns the bytes up to the ring's end if `entry` does not fit before it, else 0.
    #[inline]
    fn padding_before(&self, entry: usize) -> usize {
        let to_end = self.to_end();
        if entry > to_end { to_end } else { 0 }
    }

    /// Returns the bytes from the tail to the ring's end.
    #[inline]
    fn to_end(&self) -> usize {
        let ring_len = self.memory.ring_len();
        ring_len - (layout::to_usize(self.tail) & (ring_len - 1))
    }

    /// Returns `true` if there is space for `len` bytes and the zero word behind them.
    #[inline]
    fn fits(&self, len: usize) -> bool {
        let used = layout::to_usize(self.tail - self.head);
        used + len + WORD <= self.memory.ring_len()
    }

    #[cold]
    fn refresh_head(&mut self) -> Result<(), RingBroken> {
        // SYNC: space (acquire; the receiver has finished reading all bytes below).
        let head = self.memory.head().load(Ordering::Acquire);
        // P8.7: an invalid head breaks the ring.
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

    /// Makes the frame at `at` visible, together with the padding before it, if any.
    #[inline(always)]
    fn commit(&mut self, at: u64, len: usize) {
        let entry = layout::entry_len(len);
        let next = at + entry as u64;
        // P8.7: first zero the word behind the entry, which the receiver polls next.
        self.memory
            .word(next)
            .store(Word::Empty.encode(), Ordering::Relaxed);
        // SYNC: entry (release; the frame and the zero behind it come before).
        self.memory
            .word(at)
            .store(Word::Frame(len).encode(), Ordering::Release);
        if at != self.tail {
            // The receiver still waits at the padding, so the frame is not visible before this.
            // SYNC: entry (release).
            self.memory
                .word(self.tail)
                .store(Word::Padding.encode(), Ordering::Release);
        }
        self.tail = next;
        self.room -= entry;
    }

    /// Returns if the receiver must be woken. One load of a line that changes only around its
    /// sleep.
    #[inline(always)]
    fn bell(&self) -> Bell {
        // SYNC: sleep (the commit above, fence, then this load). If the receiver fences for us and
        // we are registered, only the compiler must be prevented from swapping the two.
        barrier::light();
        let state = self.memory.receiver_state().load(Ordering::Relaxed);
        if state == self.silent_state {
            return Bell::Silent;
        }
        self.bell_fenced()
    }

    /// Handles a receiver that sleeps, or that does not fence for us, at least not yet.
    #[cold]
    fn bell_fenced(&self) -> Bell {
        barrier::full();
        let state = self.memory.receiver_state();
        if state.load(Ordering::Relaxed) & layout::STATE_SLEEPING == 0 {
            return Bell::Silent;
        }
        // Clearing the flag makes this the only bell of this sleep. Further frames cost no system
        // call while the receiver is still waking.
        if state.fetch_and(!layout::STATE_SLEEPING, Ordering::Relaxed) & layout::STATE_SLEEPING == 0
        {
            return Bell::Silent;
        }
        Bell::Ring
    }
}
