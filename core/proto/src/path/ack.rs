// SPDX-License-Identifier: MIT OR Apache-2.0
//! Receiving side of a path's packet numbers: the set of received numbers and their
//! acknowledgement.

use super::FRAME_LEN_LEAST;
use crate::base::config::{ACK_NUMBERS_MAX, number_span};
use crate::base::narrow::narrow;
use crate::base::poll_gap::{DELAY_UNKNOWN, PollGap};
use crate::base::time::Span;
use crate::{DropReason, Instant};
use alloc::collections::VecDeque;
use portolan_wire::{ACK_FIXED_LEN, Ack, CHECK_LEN, FRAME_HEADER_LEN, MARKS_LEN, Marks, SEAL_LEN};

/// Maximum bitmap words in one acknowledgement. With all of them it fits the shortest frames
/// (`P6.2`).
pub(super) const WORDS_MAX: usize = ACK_NUMBERS_MAX as usize / 64;

const _: () = {
    let longest = ACK_FIXED_LEN + WORDS_MAX * 8;
    let around = FRAME_HEADER_LEN + CHECK_LEN + SEAL_LEN;
    assert!(
        longest + around <= FRAME_LEN_LEAST,
        "a frame holds the longest acknowledgement"
    );
};

/// Bytes reserved for an acknowledgement after a message: up to 16 words, which cover 1024 numbers
/// behind a gap. The reserve is part of each frame's buffer. A longer acknowledgement is sent by
/// itself.
pub(crate) const ACK_ROOM: usize = ACK_FIXED_LEN + 16 * 8;

/// Set of received numbers: complete below `base`, exact above it.
#[derive(Debug)]
pub(crate) struct RxWindow {
    /// Lowest number that has not arrived.
    base: u32,
    /// Number after the highest that has arrived; `base` while there is no gap.
    end: u32,
    /// Bitmap words; bit `i` of word `k` stands for `(base & !63) + 64 k + i`. Only valid, and never
    /// empty, while there is a gap.
    words: VecDeque<u64>,
    /// Number of packet numbers starting at `base` that are accepted.
    span: u32,
    last_num: u32,
    last_attempt: u8,
    last_at: Instant,
    /// Numbered frames since the last acknowledgement.
    unacked_count: u32,
    /// Set if a gap has not been reported to the peer yet.
    has_new_gap: bool,
    due: Instant,
    /// Number of marked frames received, and the count reported last.
    marked: u32,
    marked_told: u32,
}

/// Compact state of a fully acknowledged receive window.
#[derive(Debug, Default)]
pub(crate) struct RxMemory {
    base: u32,
    last_num: u32,
    last_attempt: u8,
    last_at: Instant,
    marked: u32,
}

impl RxWindow {
    /// Returns the compact state; `None` if there are gaps or unacknowledged frames.
    pub(crate) fn memory(&self) -> Option<RxMemory> {
        let settled = !self.has_gap() && self.unacked_count == 0 && self.due == Instant::NEVER;
        settled.then_some(RxMemory {
            base: self.base,
            last_num: self.last_num,
            last_attempt: self.last_attempt,
            last_at: self.last_at,
            marked: self.marked,
        })
    }

    pub(crate) fn restore(&mut self, memory: RxMemory) {
        (self.base, self.end) = (memory.base, memory.base);
        self.last_num = memory.last_num;
        self.last_attempt = memory.last_attempt;
        self.last_at = memory.last_at;
        (self.marked, self.marked_told) = (memory.marked, memory.marked);
    }

    pub(crate) fn new(window_frames: u16) -> Self {
        RxWindow {
            base: 0,
            end: 0,
            words: VecDeque::new(),
            span: number_span(u32::from(window_frames)),
            last_num: 0,
            last_attempt: 0,
            last_at: Instant::default(),
            unacked_count: 0,
            has_new_gap: false,
            due: Instant::NEVER,
            marked: 0,
            marked_told: 0,
        }
    }

    /// Counts received frames with a congestion mark. `P3.14`
    pub(crate) fn on_marked(&mut self, count: u32) {
        self.marked = self.marked.wrapping_add(count);
    }

    /// Checks that `num` is new and inside the window, without recording it. `P3.2`
    #[inline]
    pub(crate) fn check(&self, num: u32) -> Result<(), DropReason> {
        // In order: `base` has not arrived.
        if num == self.base {
            return Ok(());
        }
        self.check_apart(num)
    }

    #[cold]
    fn check_apart(&self, num: u32) -> Result<(), DropReason> {
        let ahead = num.wrapping_sub(self.base);
        if ahead >= 1 << 31 {
            return Err(DropReason::Duplicate);
        }
        if ahead >= self.span {
            return Err(DropReason::BeyondWindow);
        }
        if num.wrapping_sub(self.end) < 1 << 31 {
            return Ok(());
        }
        let (word, bit) = self.place(num);
        match self.words.get(word) {
            Some(bits) if bits >> bit & 1 == 1 => Err(DropReason::Duplicate),
            _ => Ok(()),
        }
    }

    /// Records `num`, which [`RxWindow::check`] has accepted.
    #[inline]
    pub(crate) fn insert(&mut self, now: Instant, num: u32, attempt: u8) {
        if num == self.end && !self.has_gap() {
            self.end = num.wrapping_add(1);
            self.base = self.end;
        } else {
            self.insert_apart(num);
        }
        self.last_num = num;
        self.last_attempt = attempt;
        self.last_at = now;
        self.unacked_count += 1;
    }

    /// Records a number behind a gap, or one that fills a gap.
    fn insert_apart(&mut self, num: u32) {
        let ahead = num.wrapping_sub(self.end);
        self.has_new_gap |= ahead > 0 && ahead < 1 << 31;
        self.set_bits(num, 1);
        self.advance();
    }

    /// Returns how many numbers starting at `num` may be recorded by [`RxWindow::insert_run`]: none
    /// if `num` or a later one has arrived. `P3.2`
    #[inline]
    pub(crate) fn run_max(&self, num: u32) -> u32 {
        if num.wrapping_sub(self.end) >= 1 << 31 {
            return 0;
        }
        let ahead = num.wrapping_sub(self.base);
        self.span.saturating_sub(ahead)
    }

    /// Records `count` numbers starting at `first`, at most as many as [`RxWindow::run_max`]
    /// returned.
    #[inline]
    pub(crate) fn insert_run(&mut self, now: Instant, first: u32, count: u32, attempt: u8) {
        let end = first.wrapping_add(count);
        self.has_new_gap |= first != self.end;
        if first == self.base {
            // Nothing after them has arrived.
            (self.base, self.end) = (end, end);
        } else {
            self.set_bits(first, count);
        }
        self.last_num = end.wrapping_sub(1);
        self.last_attempt = attempt;
        self.last_at = now;
        self.unacked_count += count;
    }

    /// Records numbers behind a gap, or in one, one word at a time.
    fn set_bits(&mut self, first: u32, count: u32) {
        if !self.has_gap() {
            self.words.clear();
            // Bits below the base mark numbers that have arrived.
            self.words.push_back((1 << (self.base & 63)) - 1);
        }
        let end = first.wrapping_add(count);
        if end.wrapping_sub(self.end) < 1 << 31 {
            self.end = end;
        }
        let (mut word, mut bit) = self.place(first);
        let mut left = count;
        while left > 0 {
            let here = left.min(64 - bit);
            if word >= self.words.len() {
                self.words.resize(word + 1, 0);
            }
            self.words[word] |= u64::MAX >> (64 - here) << bit;
            left -= here;
            (word, bit) = (word + 1, 0);
        }
    }

    /// Schedules an acknowledgement: at once after a new gap or `every` frames, otherwise after
    /// `delay`. Returns true if it is due at once. `P3.5`
    #[inline]
    pub(crate) fn schedule(&mut self, now: Instant, every: u32, delay: Span) -> bool {
        let prompt = self.has_new_gap || self.unacked_count >= every;
        self.set_due(if prompt { now } else { now + delay });
        prompt
    }

    /// Makes an acknowledgement due after a duplicate, because its sender has not received the
    /// earlier one. `P3.2`
    pub(crate) fn on_duplicate(&mut self, now: Instant, num: u32, attempt: u8) {
        self.last_num = num;
        self.last_attempt = attempt;
        self.last_at = now;
        self.unacked_count += 1;
        self.due = now;
    }

    /// Returns true if a number above `base` has arrived.
    #[inline]
    pub(crate) fn has_gap(&self) -> bool {
        self.end != self.base
    }

    #[inline]
    pub(crate) fn unacked_count(&self) -> u32 {
        self.unacked_count
    }

    #[inline]
    pub(crate) fn due(&self) -> Instant {
        self.due
    }

    #[inline]
    pub(crate) fn set_due(&mut self, due: Instant) {
        self.due = self.due.min(due);
    }

    /// Writes the acknowledgement, and the count of marks if there is room for it. Returns the
    /// length of both, or 0 if `out` is too short. What was written is no longer due. `P3.4`
    pub(crate) fn emit(
        &mut self,
        now: Instant,
        poll_gap: &PollGap,
        path: u8,
        out: &mut [u8],
    ) -> usize {
        let word_count = if self.has_gap() {
            self.words.len().min(WORDS_MAX)
        } else {
            0
        };
        let len = ACK_FIXED_LEN + word_count * 8;
        if out.len() < len {
            return 0;
        }
        let delay_us = if poll_gap.covers(self.last_at) {
            DELAY_UNKNOWN
        } else {
            let waited = now.span_since(self.last_at).as_micros();
            u16::try_from(waited).unwrap_or(DELAY_UNKNOWN)
        };
        Ack {
            path,
            word_count: narrow(word_count),
            echo_attempt: self.last_attempt,
            delay_us,
            base: self.base,
            echo_num: self.last_num,
        }
        .emit(out);
        for (index, bytes) in out[ACK_FIXED_LEN..len].chunks_exact_mut(8).enumerate() {
            bytes.copy_from_slice(&self.relative_word(index).to_le_bytes());
        }
        self.unacked_count = 0;
        self.has_new_gap = false;
        self.due = Instant::NEVER;
        if self.marked != self.marked_told {
            return len + self.emit_ecn_count(path, &mut out[len..]);
        }
        len
    }

    /// Writes the count of marked frames, if there is room. `P3.14`
    #[cold]
    fn emit_ecn_count(&mut self, path: u8, out: &mut [u8]) -> usize {
        if out.len() < MARKS_LEN {
            return 0;
        }
        let count = self.marked;
        Marks { path, count }.emit(out);
        self.marked_told = count;
        MARKS_LEN
    }

    /// Makes the acknowledgement due at once, because the sender waits for it.
    pub(crate) fn set_awaited(&mut self) {
        if self.unacked_count > 0 {
            self.due = Instant::default();
        }
    }

    /// Returns true if [`RxWindow::set_awaited`] was called and no acknowledgement was sent since.
    pub(crate) fn is_awaited(&self) -> bool {
        self.due == Instant::default()
    }

    #[inline]
    fn place(&self, num: u32) -> (usize, u32) {
        let at = num.wrapping_sub(self.base & !63);
        ((at / 64) as usize, at % 64)
    }

    /// Moves `base` to the lowest number that has not arrived.
    fn advance(&mut self) {
        while let Some(word) = self.words.front() {
            let run = word.trailing_ones();
            self.base = (self.base & !63).wrapping_add(run);
            if run < 64 {
                return;
            }
            // `base` moved on to the next word.
            self.words.pop_front();
        }
    }

    /// Returns 64 bits starting at `base + 1 + 64 index`.
    fn relative_word(&self, index: usize) -> u64 {
        let shift = (self.base & 63) + 1;
        let low = self.words.get(index).copied().unwrap_or(0);
        let high = self.words.get(index + 1).copied().unwrap_or(0);
        if shift == 64 {
            high
        } else {
            low >> shift | high << (64 - shift)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use alloc::vec::Vec;

    fn acked(window: &mut RxWindow) -> (u32, Vec<u32>) {
        let mut out = [0xa5; ACK_FIXED_LEN + WORDS_MAX * 8];
        let len = window.emit(Instant::default(), &PollGap::default(), 1, &mut out);
        let base = u32::from_le_bytes(out[8..12].try_into().unwrap());
        let mut set = Vec::new();
        for (k, word) in out[ACK_FIXED_LEN..len].chunks_exact(8).enumerate() {
            let word = u64::from_le_bytes(word.try_into().unwrap());
            for bit in (0..64).filter(|bit| word >> bit & 1 == 1) {
                set.push(base.wrapping_add(1 + 64 * u32::try_from(k).unwrap() + bit));
            }
        }
        (base, set)
    }

    // P3.2, P3.4
    #[test]
    fn in_order_numbers_need_no_bitmap() {
        let mut window = RxWindow::new(1024);
        for num in 0..200 {
            window.check(num).unwrap();
            window.insert(Instant::default(), num, 0);
            assert!(!window.has_gap());
        }
        assert_eq!(acked(&mut window), (200, Vec::new()));
        assert_eq!(window.check(199), Err(DropReason::Duplicate));
        assert_eq!(
            window.check(200 + ACK_NUMBERS_MAX),
            Err(DropReason::BeyondWindow)
        );
    }

    /// Occasionally records a run of up to 100 numbers at or behind the end of `model`.
    fn insert_run_behind(
        window: &mut RxWindow,
        model: &mut BTreeSet<u32>,
        start: u32,
        random: u64,
    ) {
        let end = model.last().map_or(0, |last| last + 1);
        assert_eq!(window.end, start.wrapping_add(end));
        if end > 0 {
            assert_eq!(
                window.run_max(start.wrapping_add(end - 1)),
                0,
                "has arrived"
            );
        }
        let [skip, share, chance, ..] = random.to_le_bytes().map(u32::from);
        if chance >= 16 {
            return;
        }
        let first = end + skip % 4 * 33;
        let num = start.wrapping_add(first);
        let most = window.run_max(num);
        assert_eq!(most == 0, window.check(num).is_err());
        let count = most.min(share % 101);
        if count == 0 {
            return;
        }
        window.insert_run(Instant::default(), num, count, 0);
        model.extend(first..first + count);
    }

    // P3.1, P3.4
    #[test]
    fn bitmap_agrees_with_a_set_across_wrap_of_numbers() {
        let mut window = RxWindow::new(1024);
        (window.base, window.end) = (u32::MAX - 70, u32::MAX - 70);
        let start = window.base;
        let mut model = BTreeSet::new();
        let mut state = 12_345u64;
        for _ in 0..4000 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let ahead = u32::try_from(state >> 40).unwrap() % 700;
            let num = start.wrapping_add(ahead);
            let fresh = model.insert(ahead);
            match window.check(num) {
                Ok(()) => {
                    assert!(fresh);
                    window.insert(Instant::default(), num, 0);
                }
                Err(reason) => {
                    assert_eq!(reason, DropReason::Duplicate);
                    assert!(!fresh);
                }
            }
            insert_run_behind(&mut window, &mut model, start, state);
            let base = (0..).find(|ahead| !model.contains(ahead)).unwrap();
            let (got_base, got) = acked(&mut window);
            assert_eq!(got_base, start.wrapping_add(base));
            let want: Vec<u32> = model
                .iter()
                .filter(|&&a| a > base)
                .map(|&a| start.wrapping_add(a))
                .collect();
            assert_eq!(got, want);
        }
    }

    // P3.5
    #[test]
    fn gap_is_acknowledged_once_and_at_once() {
        let now = Instant::from_nanos(1000);
        let mut window = RxWindow::new(1024);
        let mut came = |nums: core::ops::Range<u32>| {
            match nums.len() {
                1 => window.insert(now, nums.start, 0),
                _ => window.insert_run(now, nums.start, nums.end - nums.start, 0),
            }
            let prompt = window.schedule(now, 64, Span::from_micros(50));
            assert_eq!(prompt, window.due() == now);
            if prompt {
                acked(&mut window);
            }
            prompt
        };
        assert!(!came(0..10));
        assert!(came(11..20), "10 is missing");
        assert!(!came(20..30) && !came(30..31), "already acknowledged");
        assert!(came(32..33), "31 is missing");
        assert!(!came(10..11) && !came(31..32), "all have come");
        assert!(!came(33..40));
        assert!(came(41..42));
    }
}
