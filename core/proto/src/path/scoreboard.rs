// SPDX-License-Identifier: MIT OR Apache-2.0
//! Scoreboard of a path (as in RFC 6675): the received numbers behind the lowest missing one, from
//! the last acknowledgement. While a frame is missing, each acknowledgement repeats them, so new
//! ones are found one word at a time.

use super::ack::WORDS_MAX;
use crate::base::narrow::narrow;
use alloc::vec::Vec;

/// See the module documentation.
#[derive(Debug, Default)]
pub(super) struct Scoreboard {
    /// Number of the first bit.
    first: u32,
    words: Vec<u64>,
}

impl Scoreboard {
    /// Applies the bitmap of an acknowledgement, with words that begin after `base`. Calls
    /// `arrived` with the numbers that the previous one did not report. An overtaken
    /// acknowledgement does not change the stored bitmap.
    pub(super) fn update(&mut self, base: u32, words: &[u8], mut arrived: impl FnMut(u32)) {
        let first = base.wrapping_add(1);
        let ahead = first.wrapping_sub(self.first);
        // With nothing stored, no acknowledgement is old.
        let is_old = ahead >= 1 << 31 && !self.words.is_empty();
        let words = words.chunks_exact(8).take(WORDS_MAX);
        let count = words.len();
        for (index, word) in words.enumerate() {
            let word = u64::from_le_bytes(word.try_into().unwrap_or([0; 8]));
            let start = 64 * narrow::<_, u32>(index);
            let mut new = match is_old {
                true => word,
                // Not yet overwritten: only words before `index` are.
                false => word & !self.word_at(ahead.saturating_add(start)),
            };
            while new != 0 {
                arrived(first.wrapping_add(start + new.trailing_zeros()));
                new &= new - 1;
            }
            match self.words.get_mut(index) {
                _ if is_old => {}
                Some(kept) => *kept = word,
                None => self.words.push(word),
            }
        }
        if !is_old {
            self.first = first;
            self.words.truncate(count);
        }
    }

    /// Clears the scoreboard.
    pub(super) fn clear(&mut self) {
        self.words.clear();
    }

    /// Returns the first number not below `num` that was not reported as received.
    pub(super) fn next_unreported(&self, num: u32) -> u32 {
        let mut at = num.wrapping_sub(self.first);
        if at >= 1 << 31 {
            return num;
        }
        while let Some(word) = self.words.get(at as usize / 64) {
            let missing = !(word >> (at % 64)) & (u64::MAX >> (at % 64));
            if missing != 0 {
                at += missing.trailing_zeros();
                break;
            }
            at = (at / 64 + 1) * 64;
        }
        self.first.wrapping_add(at)
    }

    /// Returns true if `num` may have arrived but was beyond the bitmap.
    pub(super) fn may_hide(&self, num: u32) -> bool {
        let at = num.wrapping_sub(self.first);
        self.words.len() == WORDS_MAX && at < 1 << 31 && at as usize / 64 >= WORDS_MAX
    }

    /// Returns 64 bits starting at bit `at`.
    fn word_at(&self, at: u32) -> u64 {
        let (index, shift) = (at as usize / 64, at % 64);
        let word = |index: usize| self.words.get(index).copied().unwrap_or(0);
        match shift {
            0 => word(index),
            _ => word(index) >> shift | word(index + 1) << (64 - shift),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use alloc::vec;

    /// Returns the bitmap of `arrived` behind `base`, as long as necessary.
    fn bitmap(base: u32, arrived: &BTreeSet<u32>) -> Vec<u8> {
        let mut words = vec![0_u64; WORDS_MAX];
        for ahead in 0..narrow::<_, u32>(WORDS_MAX * 64) {
            if arrived.contains(&base.wrapping_add(1 + ahead)) {
                words[ahead as usize / 64] |= 1 << (ahead % 64);
            }
        }
        let count = words
            .iter()
            .rposition(|word| *word != 0)
            .map_or(0, |last| last + 1);
        words[..count]
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .collect()
    }

    // P3.4
    #[test]
    fn each_number_is_reported_once_across_wrap() {
        let mut board = Scoreboard::default();
        let start = u32::MAX - 3000;
        board.first = start;
        let (mut arrived, mut reported) = (BTreeSet::new(), BTreeSet::new());
        let mut state = 12_345_u64;
        let mut base = 0;
        for round in 0..3000_u32 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            // Mostly the next numbers, with holes; occasionally a missing one.
            let ahead = match round % 7 {
                0 => 0,
                _ => narrow::<_, u32>(state >> 40) % 90,
            };
            arrived.insert(start.wrapping_add(base + ahead));
            while arrived.contains(&start.wrapping_add(base)) {
                base += 1;
            }
            let from = start.wrapping_add(base);
            board.update(from, &bitmap(from, &arrived), |num| {
                assert!(reported.insert(num), "{num} was reported before");
            });
            for ahead in 0..200 {
                let num = from.wrapping_add(1 + ahead);
                assert!(!arrived.contains(&num) || reported.contains(&num));
                let next = (0..).map(|more| num.wrapping_add(more));
                let mut next = next.filter(|num| !arrived.contains(num));
                assert_eq!(Some(board.next_unreported(num)), next.next());
            }
        }
        assert!(base > 1500, "{base} numbers");
    }

    // P3.6
    #[test]
    fn reordered_acknowledgement_changes_nothing() {
        let mut board = Scoreboard::default();
        let arrived: BTreeSet<u32> = (11..20).chain(30..40).collect();
        board.update(20, &bitmap(20, &arrived), |_| {});
        let mut reported = Vec::new();
        board.update(10, &bitmap(10, &arrived), |num| reported.push(num));
        assert_eq!(
            reported.len(),
            arrived.len(),
            "the caller checks whether it is new"
        );
        assert_eq!(
            (board.next_unreported(21), board.next_unreported(30)),
            (21, 40)
        );
    }
}
