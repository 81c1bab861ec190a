// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frames in flight on one cable, in a ring of bytes, first in, first out.
//!
//! The module reads no clock and sends no frame. Invariant: the bytes between the oldest frame and
//! the position of the next frame are never handed out for writing.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Instant;

/// See the module documentation.
pub(super) struct Held {
    bytes: Vec<u8>,
    frames: VecDeque<Frame>,
    /// Largest number of bytes that one frame needs.
    room_len: usize,
    /// Position at which the next frame is written.
    next: usize,
}

struct Frame {
    bytes: Range<usize>,
    due: Instant,
}

impl Held {
    /// Creates room for `len` bytes of frames of up to `room_len` bytes each. The kernel allocates
    /// memory when it is first written.
    pub(super) fn new(len: usize, room_len: usize) -> Held {
        Held {
            bytes: vec![0; len.max(room_len)],
            frames: VecDeque::new(),
            room_len,
            next: 0,
        }
    }

    /// Returns room for the next frame; `None` if the cable is full.
    pub(super) fn room(&mut self) -> Option<&mut [u8]> {
        let oldest = self.frames.front().map(|frame| frame.bytes.start);
        let end = match oldest {
            None => {
                // Start again at the beginning, which is in the cache.
                self.next = 0;
                self.bytes.len()
            }
            Some(oldest) if oldest >= self.next => oldest,
            Some(oldest) => {
                if self.bytes.len() - self.next < self.room_len {
                    self.next = 0;
                    oldest
                } else {
                    self.bytes.len()
                }
            }
        };
        let room = self.next..self.next + self.room_len;
        (room.end <= end).then(|| &mut self.bytes[room])
    }

    /// Records a frame written to these bytes of the room. It leaves at `due`, or after the frame
    /// before it if that one leaves later.
    pub(super) fn push(&mut self, bytes: Range<usize>, due: Instant) {
        let bytes = self.next + bytes.start..self.next + bytes.end;
        debug_assert!(bytes.len() <= self.room_len && !bytes.is_empty());
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

    /// Adds a frame whose bytes are all `mark`, with one unused byte of room before it.
    fn put(held: &mut Held, len: usize, mark: u8, due: Instant) -> bool {
        let Some(room) = held.room() else {
            return false;
        };
        room.fill(0xa5);
        room[1..=len].fill(mark);
        held.push(1..1 + len, due);
        true
    }

    #[test]
    fn frames_leave_whole_and_in_order_however_often_the_ring_is_gone_round() {
        let start = Instant::now();
        let mut held = Held::new(100, 20);
        let (mut pushed, mut popped) = (0u8, 0u8);
        for step in 0..250usize {
            let len = 1 + step * 7 % 19;
            if put(&mut held, len, pushed, start) {
                pushed += 1;
            }
            if step % 3 > 0 || held.frames.len() > 3 {
                let first = held.first().unwrap();
                assert!(first.iter().all(|byte| *byte == popped), "{first:?}");
                held.pop();
                popped += 1;
            }
        }
        assert!(popped > 100 && held.frames.len() < 5, "{popped}");
    }

    #[test]
    fn a_full_ring_has_no_room_until_its_oldest_frame_has_left() {
        let start = Instant::now();
        let mut held = Held::new(60, 20);
        for mark in 0..3 {
            assert!(put(&mut held, 19, mark, start));
        }
        assert!(held.room().is_none());
        held.pop();
        assert!(put(&mut held, 19, 3, start));
        assert!(held.room().is_none());
        for mark in 1..4 {
            assert_eq!(held.first().unwrap(), [mark; 19]);
            held.pop();
        }
        assert!(held.first().is_none() && held.due().is_none());
    }

    #[test]
    fn no_frame_leaves_before_one_that_came_before_it() {
        let start = Instant::now();
        let later = start + Duration::from_millis(1);
        let mut held = Held::new(100, 20);
        put(&mut held, 5, 0, later);
        put(&mut held, 5, 1, start);
        assert_eq!(held.due(), Some(later));
        held.pop();
        assert_eq!(held.due(), Some(later));
    }
}
