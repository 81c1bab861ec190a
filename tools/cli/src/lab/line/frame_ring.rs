// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frames in flight on one cable, in a ring of bytes, first in, first out.
//!
//! The module reads no clock and sends no frame. Invariant: the bytes between the oldest frame and
//! the position of the next frame are never handed out for writing.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Instant;

/// See the module documentation.
pub(super) struct FrameRing {
    bytes: Vec<u8>,
    frames: VecDeque<Frame>,
    /// Largest number of bytes that one frame needs.
    slot_len: usize,
    /// Position at which the next frame is written.
    next: usize,
}

struct Frame {
    bytes: Range<usize>,
    due: Instant,
}

impl FrameRing {
    /// Creates a buffer for `len` bytes of frames of up to `slot_len` bytes each. The kernel
    /// allocates memory when it is first written.
    pub(super) fn new(len: usize, slot_len: usize) -> FrameRing {
        FrameRing {
            bytes: vec![0; len.max(slot_len)],
            frames: VecDeque::new(),
            slot_len,
            next: 0,
        }
    }

    /// Returns the slot for the next frame; `None` if the cable is full.
    pub(super) fn free_slot(&mut self) -> Option<&mut [u8]> {
        let oldest = self.frames.front().map(|frame| frame.bytes.start);
        let end = match oldest {
            None => {
                // Start again at the beginning, which is in the cache.
                self.next = 0;
                self.bytes.len()
            }
            Some(oldest) if oldest >= self.next => oldest,
            Some(oldest) => {
                if self.bytes.len() - self.next < self.slot_len {
                    self.next = 0;
                    oldest
                } else {
                    self.bytes.len()
                }
            }
        };
        let slot = self.next..self.next + self.slot_len;
        (slot.end <= end).then(|| &mut self.bytes[slot])
    }

    /// Records a frame written to these bytes of the free slot. It leaves at `due`, or after the
    /// frame before it if that one leaves later.
    pub(super) fn push(&mut self, bytes: Range<usize>, due: Instant) {
        let bytes = self.next + bytes.start..self.next + bytes.end;
        debug_assert!(bytes.len() <= self.slot_len && !bytes.is_empty());
        self.next = bytes.end;
        let due = self.frames.back().map_or(due, |last| due.max(last.due));
        self.frames.push_back(Frame { bytes, due });
    }

    /// Returns the time at which the oldest frame leaves.
    pub(super) fn due(&self) -> Option<Instant> {
        self.frames.front().map(|frame| frame.due)
    }

    /// Returns the oldest frame.
    pub(super) fn first(&self) -> Option<&[u8]> {
        let frame = self.frames.front()?;
        Some(&self.bytes[frame.bytes.clone()])
    }

    /// Returns the newest frame.
    pub(super) fn last(&self) -> Option<&[u8]> {
        let frame = self.frames.back()?;
        Some(&self.bytes[frame.bytes.clone()])
    }

    /// Removes the oldest frame.
    pub(super) fn pop(&mut self) {
        self.frames.pop_front();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// Adds a frame filled with `mark`, with one unused byte of the slot before it.
    fn put(ring: &mut FrameRing, len: usize, mark: u8, due: Instant) -> bool {
        let Some(slot) = ring.free_slot() else {
            return false;
        };
        slot.fill(0xa5);
        slot[1..=len].fill(mark);
        ring.push(1..1 + len, due);
        true
    }

    #[test]
    fn frames_stay_intact_and_ordered_across_wraps() {
        let start = Instant::now();
        let mut ring = FrameRing::new(100, 20);
        let (mut pushed, mut popped) = (0u8, 0u8);
        for step in 0..250usize {
            let len = 1 + step * 7 % 19;
            if put(&mut ring, len, pushed, start) {
                pushed += 1;
            }
            if step % 3 > 0 || ring.frames.len() > 3 {
                let first = ring.first().unwrap();
                assert!(first.iter().all(|byte| *byte == popped), "{first:?}");
                ring.pop();
                popped += 1;
            }
        }
        assert!(popped > 100 && ring.frames.len() < 5, "{popped}");
    }

    #[test]
    fn full_ring_has_no_slot_until_oldest_is_popped() {
        let start = Instant::now();
        let mut ring = FrameRing::new(60, 20);
        for mark in 0..3 {
            assert!(put(&mut ring, 19, mark, start));
        }
        assert!(ring.free_slot().is_none());
        ring.pop();
        assert!(put(&mut ring, 19, 3, start));
        assert!(ring.free_slot().is_none());
        for mark in 1..4 {
            assert_eq!(ring.first().unwrap(), [mark; 19]);
            ring.pop();
        }
        assert!(ring.first().is_none() && ring.due().is_none());
    }

    #[test]
    fn due_times_never_decrease() {
        let start = Instant::now();
        let later = start + Duration::from_millis(1);
        let mut ring = FrameRing::new(100, 20);
        put(&mut ring, 5, 0, later);
        put(&mut ring, 5, 1, start);
        assert_eq!(ring.due(), Some(later));
        ring.pop();
        assert_eq!(ring.due(), Some(later));
    }
}
