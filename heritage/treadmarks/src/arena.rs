// SPDX-License-Identifier: MIT OR Apache-2.0
//! Allocation of shared memory. Each process has a part of it, so allocating needs no message.
//!
//! The records are outside of the shared memory. The first piece that fits is used.

use std::collections::BTreeMap;

/// Alignment of blocks that are shorter than a page.
const ALIGN: usize = 16;

/// Free and used pieces of a range of offsets.
#[derive(Debug)]
pub(crate) struct Arena {
    page_len: usize,
    /// Length of each free piece. No two are adjacent.
    free: BTreeMap<usize, usize>,
    used: BTreeMap<usize, usize>,
}

impl Arena {
    /// Creates an arena of `len` bytes at offset `start`. Both are multiples of `page_len`.
    pub(crate) fn new(start: usize, len: usize, page_len: usize) -> Arena {
        Arena {
            page_len,
            free: BTreeMap::from([(start, len)]),
            used: BTreeMap::new(),
        }
    }

    /// Allocates `len` bytes; `None` if there is no such piece. A block of a page or more begins on
    /// a page and shares none, so that it causes no false sharing.
    pub(crate) fn allocate(&mut self, len: usize) -> Option<usize> {
        let align = if len >= self.page_len {
            self.page_len
        } else {
            ALIGN
        };
        let len = len.max(1).checked_next_multiple_of(align)?;
        let (start, piece, at) = self.free.iter().find_map(|(&start, &piece)| {
            let at = start.next_multiple_of(align);
            let fits = at.checked_add(len).is_some_and(|end| end <= start + piece);
            fits.then_some((start, piece, at))
        })?;
        self.free.remove(&start);
        if at > start {
            self.free.insert(start, at - start);
        }
        let end = at + len;
        if start + piece > end {
            self.free.insert(end, start + piece - end);
        }
        self.used.insert(at, len);
        Some(at)
    }

    /// Frees the block at an offset. Returns `false` if there is none.
    pub(crate) fn free(&mut self, at: usize) -> bool {
        let Some(mut len) = self.used.remove(&at) else {
            return false;
        };
        let mut start = at;
        if let Some(next) = self.free.remove(&(at + len)) {
            len += next;
        }
        if let Some((&before, &piece)) = self.free.range(..at).next_back()
            && before + piece == at
        {
            (start, len) = (before, len + piece);
        }
        self.free.insert(start, len);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    const PAGE: usize = 4096;

    #[test]
    fn long_blocks_share_no_page() {
        let mut arena = Arena::new(PAGE, 16 * PAGE, PAGE);
        let short = arena.allocate(5).unwrap();
        let long = arena.allocate(PAGE + 1).unwrap();
        let next = arena.allocate(5).unwrap();
        assert_eq!((short, long), (PAGE, 2 * PAGE));
        assert_eq!(next, PAGE + ALIGN);
        assert_eq!(arena.allocate(14 * PAGE), None);
        assert_eq!(arena.allocate(usize::MAX), None);
        // Its end would be beyond the address space.
        assert_eq!(arena.allocate(usize::MAX - 2 * PAGE + 1), None);
    }

    #[test]
    fn only_blocks_are_freed_and_once() {
        let mut arena = Arena::new(0, PAGE, PAGE);
        let at = arena.allocate(100).unwrap();
        assert!(!arena.free(at + ALIGN) && arena.free(at) && !arena.free(at));
    }

    #[test]
    fn blocks_never_overlap_and_all_memory_returns() {
        let mut random = ChaCha8Rng::seed_from_u64(1);
        let mut arena = Arena::new(0, 64 * PAGE, PAGE);
        let mut blocks: Vec<(usize, usize)> = Vec::new();
        for _ in 0..5000 {
            if random.random_bool(0.5) {
                let len = random.random_range(1..2 * PAGE);
                let Some(at) = arena.allocate(len) else {
                    continue;
                };
                let is_apart =
                    |&(other, size): &(usize, usize)| at + len <= other || other + size <= at;
                assert!(at + len <= 64 * PAGE && blocks.iter().all(is_apart));
                blocks.push((at, len));
            } else if !blocks.is_empty() {
                let (at, _) = blocks.swap_remove(random.random_range(0..blocks.len()));
                assert!(arena.free(at));
            }
        }
        for (at, _) in blocks {
            assert!(arena.free(at));
        }
        assert_eq!(arena.allocate(64 * PAGE), Some(0));
    }
}
