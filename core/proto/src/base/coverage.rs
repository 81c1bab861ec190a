// SPDX-License-Identifier: MIT OR Apache-2.0
//! Set of a message's bytes that have arrived. A part that is retransmitted on another path, or
//! refragmented, may overlap earlier parts; each byte counts once (`P3.12`).

use alloc::vec::Vec;

/// Maximum number of gaps. The gaps of an honest sender are frames in flight, at most 4096 on each
/// of three paths (P3.3), and frames to be retransmitted. Each gap takes 16 bytes.
const RANGES_MAX: usize = 1 << 14;

/// See the module documentation. In-order arrival allocates nothing.
#[derive(Debug, Default)]
pub(crate) struct Coverage {
    /// End of the gapless prefix; all bytes below it have arrived.
    prefix: u64,
    /// Ranges that have arrived beyond the prefix: disjoint, not touching, in order.
    ranges: Vec<(u64, u64)>,
}

impl Coverage {
    /// Records `start..end` and returns how many of these bytes are new. Records nothing, and
    /// returns 0, if that would exceed the maximum number of gaps.
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
        if first == last && self.ranges.len() >= RANGES_MAX {
            return 0;
        }
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

    /// Returns the end of the gapless prefix.
    pub(crate) fn prefix(&self) -> u64 {
        self.prefix
    }

    /// Returns the end of the highest byte that has arrived.
    pub(crate) fn end(&self) -> u64 {
        self.ranges.last().map_or(self.prefix, |range| range.1)
    }

    /// Returns true if nothing has arrived.
    pub(crate) fn is_empty(&self) -> bool {
        self.prefix == 0 && self.ranges.is_empty()
    }

    /// Returns true if all of the first `len` bytes have arrived.
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
                let complete = table.iter().all(|byte| *byte);
                assert_eq!(coverage.reaches(500), complete);
            }
            assert!(coverage.ranges.is_empty());
        }
    }

    // P1.8
    #[test]
    fn many_gaps_take_bounded_memory_and_can_be_filled() {
        let mut coverage = Coverage::default();
        for at in 1..=RANGES_MAX as u64 {
            assert_eq!(coverage.insert(at * 2, at * 2 + 1), 1);
        }
        let end = coverage.end();
        assert_eq!(coverage.insert(end + 1, end + 2), 0, "one gap more");
        assert_eq!((coverage.end(), coverage.ranges.len()), (end, RANGES_MAX));
        assert_eq!(coverage.insert(end, end + 5), 5, "no gap more");
        assert_eq!(coverage.insert(0, end), end - RANGES_MAX as u64);
        assert!(coverage.reaches(end + 5));
    }

    #[test]
    fn in_order_bytes_allocate_nothing() {
        let mut coverage = Coverage::default();
        assert!(coverage.is_empty());
        for at in 0..100 {
            assert_eq!(coverage.insert(at * 10, at * 10 + 10), 10);
        }
        assert_eq!(coverage.ranges.capacity(), 0);
    }
}
