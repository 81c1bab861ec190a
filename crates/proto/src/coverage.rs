// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which bytes of a message have arrived. A part that is sent again on another path, or cut
//! otherwise, covers what an earlier one has covered: it counts once (`P3.12`).

use alloc::vec::Vec;

/// See the module documentation. What comes in order allocates nothing.
#[derive(Debug, Default)]
pub(crate) struct Coverage {
    /// All bytes below have arrived.
    prefix: u64,
    /// What has arrived beyond: disjoint, not touching, in order.
    ranges: Vec<(u64, u64)>,
}

impl Coverage {
    /// Notes `start..end` and returns how many of these bytes are new.
    pub(crate) fn insert(&mut self, start: u64, end: u64) -> u64 {
        let start = start.max(self.prefix);
        if start >= end {
            return 0;
        }
        if self.ranges.is_empty() && start == self.prefix {
            self.prefix = end;
            return end - start;
        }
        let first = self.ranges.partition_point(|range| range.1 < start);
        let last = self.ranges.partition_point(|range| range.0 <= end);
        let (mut low, mut high, mut known) = (start, end, 0);
        for range in &self.ranges[first..last] {
            (low, high) = (low.min(range.0), high.max(range.1));
            known += range.1 - range.0;
        }
        self.ranges.splice(first..last, [(low, high)]);
        if self.ranges[0].0 == self.prefix {
            self.prefix = self.ranges.remove(0).1;
        }
        high - low - known
    }

    /// Nothing has arrived from here on.
    pub(crate) fn end(&self) -> u64 {
        self.ranges.last().map_or(self.prefix, |range| range.1)
    }

    /// Nothing has arrived.
    pub(crate) fn is_empty(&self) -> bool {
        self.prefix == 0 && self.ranges.is_empty()
    }

    /// The first `len` bytes have arrived, all of them.
    pub(crate) fn reaches(&self, len: u64) -> bool {
        self.prefix >= len
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    #[test]
    fn coverage_agrees_with_a_table_of_bytes() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        for _ in 0..200 {
            let mut coverage = Coverage::default();
            let mut table = vec![false; 500];
            while !coverage.reaches(500) {
                let start = rng.random_range(0..500usize);
                let end = rng.random_range(start..=500.min(start + 60));
                let fresh = table[start..end].iter().filter(|byte| !**byte).count();
                table[start..end].fill(true);
                assert_eq!(coverage.insert(start as u64, end as u64), fresh as u64);
                let beyond = table.iter().rposition(|byte| *byte).map_or(0, |at| at + 1);
                assert_eq!(coverage.end(), beyond as u64);
                let whole = table.iter().all(|byte| *byte);
                assert_eq!(coverage.reaches(500), whole);
            }
            assert!(coverage.ranges.is_empty());
        }
    }

    #[test]
    fn what_comes_in_order_allocates_nothing() {
        let mut coverage = Coverage::default();
        assert!(coverage.is_empty());
        for at in 0..100 {
            assert_eq!(coverage.insert(at * 10, at * 10 + 10), 10);
        }
        assert_eq!(coverage.ranges.capacity(), 0);
    }
}
