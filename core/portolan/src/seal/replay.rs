// SPDX-License-Identifier: MIT OR Apache-2.0
//! Replay window of a key: the numbers received recently, as in RFC 6479.

/// Counts below the highest that are distinguished. A network reorders within some frames. An older
/// frame counts as lost, and is retransmitted with another count.
const WINDOW: u32 = 1024;

const WORDS: usize = WINDOW as usize / 64;

/// Window of received counts.
#[derive(Debug)]
pub(super) struct Replay {
    /// Successor of the highest received count.
    end: u32,
    /// Bit `count % WINDOW` of each of the last `WINDOW` counts below `end`.
    words: [u64; WORDS],
}

impl Replay {
    /// Creates an empty window; `count` is expected first.
    pub(super) fn starting_at(count: u32) -> Self {
        Replay {
            end: count,
            words: [0; WORDS],
        }
    }

    /// Returns whether `count` was certainly not received before. `P10.3`
    #[inline]
    pub(super) fn is_new(&self, count: u32) -> bool {
        if count >= self.end {
            return true;
        }
        if self.end - count > WINDOW {
            return false;
        }
        let (word, bit) = place(count);
        self.words[word] & bit == 0
    }

    /// Records the new count of an authenticated frame.
    #[inline]
    pub(super) fn insert(&mut self, count: u32) {
        if count >= self.end {
            self.advance(count);
        }
        let (word, bit) = place(count);
        self.words[word] |= bit;
    }

    /// Moves the window so that it ends with `count`, and clears its new part.
    #[inline]
    fn advance(&mut self, count: u32) {
        let skipped = count - self.end;
        if skipped >= WINDOW {
            self.words = [0; WORDS];
        } else {
            for passed in self.end..=count {
                let (word, bit) = place(passed);
                self.words[word] &= !bit;
            }
        }
        // Counts stay far below 2^32.
        self.end = count.saturating_add(1);
    }
}

#[inline]
fn place(count: u32) -> (usize, u64) {
    let at = count % WINDOW;
    ((at / 64) as usize, 1 << (at % 64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng, SeedableRng};
    use std::collections::BTreeSet;

    // P10.3
    #[test]
    fn each_count_is_accepted_once() {
        let mut window = Replay::starting_at(0);
        for count in [0, 5, 3, 4, 1023, 2, 1] {
            assert!(window.is_new(count), "{count}");
            window.insert(count);
            assert!(!window.is_new(count), "{count}");
        }
        // All of them are still within the window.
        assert!(!window.is_new(0));
        assert!(window.is_new(6));
    }

    #[test]
    fn counts_before_the_window_are_rejected() {
        let mut window = Replay::starting_at(0);
        window.insert(WINDOW);
        assert!(!window.is_new(0));
        assert!(window.is_new(1));
        window.insert(10 * WINDOW);
        assert!(!window.is_new(9 * WINDOW));
        assert!(window.is_new(9 * WINDOW + 1));
    }

    #[test]
    fn window_matches_reference_set() {
        let mut rng = rand::rngs::StdRng::seed_from_u64(7);
        let (mut window, mut seen, mut highest) = (Replay::starting_at(0), BTreeSet::new(), 0);
        for _ in 0..50_000 {
            let back = rng.random_range(0..1500);
            let count = (highest + rng.random_range(0..40_u32)).saturating_sub(back);
            let expected = count + WINDOW > highest && !seen.contains(&count);
            assert_eq!(window.is_new(count), expected, "{count} below {highest}");
            if expected {
                window.insert(count);
                seen.insert(count);
                highest = highest.max(count);
            }
        }
    }
}
