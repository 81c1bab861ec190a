// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reading end of a ring.

use super::layout::{self, WORD, Word};
use super::memory::RingMemory;
use super::offer::Offered;
use super::{Bell, RingBroken};
use crate::barrier;
use std::sync::atomic::Ordering;

/// Portions per lap in which space is returned: few enough that the head's line is rarely accessed,
/// and small enough that a full ring drains in steps while the sender refills it.
const PORTIONS: usize = 8;

/// Bytes of a cache line.
const LINE_LEN: u64 = 64;

/// Reads frames from a ring. One per ring, in the process that received its descriptor.
#[derive(Debug)]
pub struct RingReceiver {
    pub(super) memory: RingMemory,
    pub(super) offered: Offered,
    /// Stream position of the next word to read.
    head: u64,
    /// The head as last published to the sender.
    published: u64,
    frame_len_max: usize,
    /// Bytes after which consumed space is published.
    portion: u64,
    /// State of this end while awake.
    awake: u64,
}

/// A committed frame in the ring. Its bytes may change at any moment, so it can only be copied out.
#[derive(Debug)]
pub struct Entry<'a> {
    memory: &'a RingMemory,
    at: u64,
    len: usize,
}

impl Entry<'_> {
    /// Returns the bytes of the frame. Checked: such a frame fits the ring.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns `true` if the frame is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies `dst.len()` bytes, starting at `off` of the frame.
    ///
    /// # Panics
    /// Panics if the range exceeds the frame.
    #[inline]
    pub fn copy_to(&self, off: usize, dst: &mut [u8]) {
        assert!(
            off <= self.len && dst.len() <= self.len - off,
            "copy beyond the frame"
        );
        self.memory.copy_out(self.at + off as u64, dst);
    }
}

impl RingReceiver {
    pub(super) fn new(memory: RingMemory) -> Self {
        let awake = if barrier::register() {
            layout::STATE_FENCES
        } else {
            0
        };
        memory.receiver_state().store(awake, Ordering::Relaxed);
        let frame_len_max = layout::frame_len_max(memory.ring_len());
        let portion = (memory.ring_len() / PORTIONS) as u64;
        RingReceiver {
            memory,
            offered: Offered::default(),
            head: 0,
            published: 0,
            frame_len_max,
            portion,
            awake,
        }
    }

    /// Returns `true` if an entry or an invalid word can be read. One load.
    #[inline]
    #[must_use]
    pub fn has_entry(&self) -> bool {
        self.memory.word(self.head).load(Ordering::Relaxed) != 0
    }

    /// Returns the next committed frame, if any. It stays in the ring until
    /// [`RingReceiver::consume`].
    ///
    /// # Errors
    /// [`RingBroken`] if the sender wrote an invalid value.
    #[inline]
    pub fn peek(&mut self) -> Result<Option<Entry<'_>>, RingBroken> {
        // SYNC: entry (acquire; the frame behind the word was written before).
        let raw = self.memory.word(self.head).load(Ordering::Acquire);
        let len = match Word::decode(raw, self.frame_len_max) {
            Word::Empty => {
                // A message of 64 bytes occupies two lines. Without the prefetch, the second would
                // be fetched only after the word in the first was read, which takes half again the
                // time of one line. With a prefetch in each poll, both arrive together.
                self.memory.expect_read(self.head + LINE_LEN);
                return Ok(None);
            }
            Word::Frame(len) => len,
            Word::Padding => self.skip_padding()?,
            // P8.7: an invalid word breaks the ring.
            Word::Invalid => return Err(RingBroken("an entry's word is invalid")),
        };
        if layout::entry_len(len) > self.to_end() {
            return Err(RingBroken("an entry extends beyond the ring's end"));
        }
        Ok(Some(self.entry(len)))
    }

    /// Returns the next frame again, of `len` bytes as [`RingReceiver::peek`] returned.
    #[inline]
    #[must_use]
    pub fn entry(&self, len: usize) -> Entry<'_> {
        Entry {
            memory: &self.memory,
            at: self.head + WORD as u64,
            len,
        }
    }

    /// Consumes the next frame, of `len` bytes as [`RingReceiver::peek`] returned.
    #[inline]
    pub fn consume(&mut self, len: usize) -> Bell {
        debug_assert!(
            layout::entry_len(len) <= self.to_end(),
            "consumed more than was peeked"
        );
        self.head += layout::entry_len(len) as u64;
        if self.head - self.published >= self.portion {
            return self.publish();
        }
        Bell::Silent
    }

    /// Returns all consumed space now, instead of in portions.
    pub fn publish(&mut self) -> Bell {
        if self.published == self.head {
            return Bell::Silent;
        }
        self.published = self.head;
        // SYNC: space (release; our reads of the bytes below come before).
        self.memory.head().store(self.head, Ordering::Release);
        // SYNC: waiting (the store above, fence, then this load). A few times per lap, so the
        // full fence is not worth avoiding.
        barrier::full();
        let waiting = self.memory.sender_waiting();
        if waiting.load(Ordering::Relaxed) != 0 && waiting.swap(0, Ordering::Relaxed) != 0 {
            return Bell::Ring;
        }
        Bell::Silent
    }

    /// Requests a doorbell from the sender. Before sleeping, the caller must issue
    /// [`barrier::heavy`] and poll again with [`RingReceiver::has_entry`].
    pub fn arm(&mut self) {
        // SYNC: sleep (store the flag; the caller fences and polls for a word).
        let sleeping = self.awake | layout::STATE_SLEEPING;
        self.memory
            .receiver_state()
            .store(sleeping, Ordering::Relaxed);
    }

    /// Reverts [`RingReceiver::arm`].
    pub fn disarm(&mut self) {
        self.memory
            .receiver_state()
            .store(self.awake, Ordering::Relaxed);
    }

    /// Moves to the beginning of the next lap, where the frame behind the padding is.
    #[cold]
    fn skip_padding(&mut self) -> Result<usize, RingBroken> {
        if self.to_end() == self.memory.ring_len() {
            return Err(RingBroken("padding fills the whole ring"));
        }
        self.head += self.to_end() as u64;
        // SYNC: entry (acquire).
        let raw = self.memory.word(self.head).load(Ordering::Acquire);
        match Word::decode(raw, self.frame_len_max) {
            Word::Frame(len) => Ok(len),
            // A correct sender commits the frame before the padding in front of it.
            _ => Err(RingBroken("no frame behind padding")),
        }
    }

    #[inline]
    fn to_end(&self) -> usize {
        let ring_len = self.memory.ring_len();
        ring_len - (layout::to_usize(self.head) & (ring_len - 1))
    }
}
