// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tree of processes, numbered from the source, rank 0.
//!
//! Invariant: a parent's rank is lower than its child's. Therefore failures can never form a cycle.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Form of the distribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Form {
    /// A tree in which each host forwards to this many children; 1 is a chain.
    Tree(u32),
    /// The source sends once to all hosts of one Ethernet.
    Multicast,
}

impl Form {
    /// A chain: each host forwards to one other.
    pub const CHAIN: Form = Form::Tree(1);
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Form::Tree(0 | 1) => f.write_str("chain"),
            Form::Tree(degree) => write!(f, "tree:{degree}"),
            Form::Multicast => f.write_str("multicast"),
        }
    }
}

/// A tree in which each process forwards to at most `degree` children; 1 is a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    /// Maximum number of children of a process; at least 1.
    pub degree: u32,
    /// Number of processes, including the source.
    pub size: u32,
}

impl Shape {
    /// Returns the tree of `size` processes. With multicast all other processes are children of the
    /// source.
    #[must_use]
    pub fn of(form: Form, size: u32) -> Shape {
        let degree = match form {
            Form::Tree(degree) => degree.max(1),
            Form::Multicast => size.saturating_sub(1).max(1),
        };
        Shape { degree, size }
    }

    /// Returns the parent of `rank` without failures; `None` for the source.
    #[must_use]
    pub fn parent(self, rank: u32) -> Option<u32> {
        (rank > 0).then(|| (rank - 1) / self.degree)
    }

    /// Returns the children of `rank` without failures.
    pub fn children(self, rank: u32) -> impl Iterator<Item = u32> {
        let first = u64::from(rank) * u64::from(self.degree) + 1;
        let end = (first + u64::from(self.degree)).min(u64::from(self.size));
        // Below `size`, so it fits a `u32`.
        (first..end).filter_map(|rank| u32::try_from(rank).ok())
    }

    /// Returns the number of hops from the source to the farthest process.
    #[must_use]
    pub fn depth(self) -> u32 {
        let mut rank = self.size.saturating_sub(1);
        let mut hops = 0;
        while let Some(parent) = self.parent(rank) {
            (rank, hops) = (parent, hops + 1);
        }
        hops
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parents_and_children_agree() {
        for degree in 1..5 {
            for size in 1..40 {
                let shape = Shape { degree, size };
                for rank in 1..size {
                    let parent = shape.parent(rank).unwrap();
                    assert!(parent < rank);
                    assert!(shape.children(parent).any(|child| child == rank));
                }
                let edges: usize = (0..size).map(|rank| shape.children(rank).count()).sum();
                assert_eq!(edges, size as usize - 1);
            }
        }
    }

    #[test]
    fn chain_depth_is_its_length() {
        let depth = |degree, size| Shape { degree, size }.depth();
        assert_eq!(
            (depth(1, 9), depth(2, 9), depth(8, 9), depth(1, 1)),
            (8, 3, 1, 0)
        );
    }
}
