// SPDX-License-Identifier: MIT OR Apache-2.0
//! Communication patterns of collective operations: senders and receivers of each round. The
//! messages themselves are ordinary ones to system ports.

use super::narrow::narrow;

/// Returns the number of rounds of a dissemination barrier of `size` processes (Hensgen, Finkel and
/// Manber, 1988): the logarithm to base 2, rounded up.
#[must_use]
pub fn barrier_rounds(size: u32) -> u32 {
    size.next_power_of_two().trailing_zeros()
}

/// Returns the rank that `rank` notifies, and the rank that it waits for, in `round` of a barrier.
///
/// # Panics
/// Panics if `rank` is not below `size`.
#[must_use]
pub fn barrier_partners(rank: u32, size: u32, round: u32) -> (u32, u32) {
    assert!(rank < size);
    let step = (1u64 << round) % u64::from(size);
    let (rank, size) = (u64::from(rank), u64::from(size));
    let modulo = |value: u64| narrow(value % size);
    (modulo(rank + step), modulo(rank + size - step))
}

/// Returns the parent of `rank` in the binomial broadcast tree rooted at `root`; `None` for the
/// root.
///
/// # Panics
/// Panics if `rank` or `root` is not below `size`.
#[must_use]
pub fn broadcast_parent(rank: u32, root: u32, size: u32) -> Option<u32> {
    let relative = to_relative(rank, root, size);
    // Clearing the lowest set bit leads towards the root.
    (relative != 0).then(|| to_rank(relative & (relative - 1), root, size))
}

/// Returns the children of `rank` in the same tree, the one with the largest subtree first.
pub fn broadcast_children(rank: u32, root: u32, size: u32) -> impl Iterator<Item = u32> {
    let relative = to_relative(rank, root, size);
    let reach = match relative {
        0 => barrier_rounds(size),
        _ => relative.trailing_zeros(),
    };
    (0..reach).rev().filter_map(move |bit| {
        let child = relative.checked_add(1 << bit)?;
        (child < size).then(|| to_rank(child, root, size))
    })
}

fn to_relative(rank: u32, root: u32, size: u32) -> u32 {
    assert!(rank < size && root < size);
    if rank >= root {
        rank - root
    } else {
        rank + (size - root)
    }
}

fn to_rank(relative: u32, root: u32, size: u32) -> u32 {
    if relative < size - root {
        relative + root
    } else {
        relative - (size - root)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn all_rounds_reach_every_rank() {
        for size in 1..40u32 {
            let mut received: vec::Vec<u64> = (0..size).map(|rank| 1 << rank).collect();
            for round in 0..barrier_rounds(size) {
                let before = received.clone();
                for rank in 0..size {
                    let (to, from) = barrier_partners(rank, size, round);
                    assert_eq!(barrier_partners(to, size, round).1, rank);
                    received[rank as usize] |= before[from as usize];
                }
            }
            assert!(
                received.iter().all(|&set| set == (1u64 << size) - 1),
                "{size} processes"
            );
        }
    }

    #[test]
    fn tree_reaches_each_rank_once() {
        for size in 1..40u32 {
            for root in 0..size {
                let mut reached = vec![0; size as usize];
                let mut queue = vec![root];
                while let Some(rank) = queue.pop() {
                    reached[rank as usize] += 1;
                    for child in broadcast_children(rank, root, size) {
                        assert_eq!(broadcast_parent(child, root, size), Some(rank));
                        queue.push(child);
                    }
                }
                assert_eq!(reached, vec![1; size as usize]);
                assert_eq!(broadcast_parent(root, root, size), None);
            }
        }
    }
}
