// SPDX-License-Identifier: MIT OR Apache-2.0
//! Collective operations as messages, with the usual algorithms of MPIs: trees and doubling for
//! short data, rings and pairs for long (Thakur, Rabenseifner and Gropp 2005). MPIs differ in the
//! length at which they switch algorithms. The dependencies between processes and the bytes on each
//! link are the same.

use crate::trace::Shape;

/// Maximum bytes before a broadcast is split into parts, or a reduction to all works on parts.
/// MPICH's limits are 12 KB and 2 KB; one value in between is used for both.
const SHORT_MAX: u64 = 8 << 10;

/// Concurrent sends and receives of a member, which waits for all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Round {
    /// Receiving members, each with the number of bytes.
    pub(crate) sends: Vec<(usize, u64)>,
    /// Sending members.
    pub(crate) receives: Vec<usize>,
}

impl Round {
    fn exchange(to: usize, from: usize, bytes: u64) -> Round {
        Round {
            sends: vec![(to, bytes)],
            receives: vec![from],
        }
    }

    fn send(to: usize, bytes: u64) -> Round {
        Round {
            sends: vec![(to, bytes)],
            receives: vec![],
        }
    }

    fn receive(from: usize) -> Round {
        Round {
            sends: vec![],
            receives: vec![from],
        }
    }
}

/// A member of an operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Member {
    /// Index of the member.
    pub(crate) index: usize,
    /// Number of members.
    pub(crate) count: usize,
    /// Source or destination of the data, for operations with a root.
    pub(crate) root: usize,
    /// Bytes contributed by this member; for a broadcast or scatter, by the root.
    pub(crate) bytes: u64,
}

impl Member {
    /// Returns the rounds of this member.
    pub(crate) fn rounds(self, shape: Shape) -> Vec<Round> {
        if self.count < 2 {
            return vec![];
        }
        match shape {
            Shape::Barrier => self.dissemination(),
            Shape::Broadcast if self.bytes > SHORT_MAX => {
                let mut rounds = self.scatter();
                rounds.extend(self.ring(self.bytes / self.count as u64));
                rounds
            }
            Shape::Broadcast => self.tree_down(|_| self.bytes),
            Shape::Reduce => self.tree_up(|_| self.bytes),
            Shape::Allreduce if self.bytes > SHORT_MAX => {
                let part = self.bytes / self.count as u64;
                let mut rounds = self.ring(part);
                rounds.extend(self.ring(part));
                rounds
            }
            Shape::Allreduce => self.doubling(|_| self.bytes),
            Shape::Gather => self.tree_up(|below| self.bytes * below as u64),
            Shape::Scatter => self.scatter(),
            Shape::Allgather if self.bytes * self.count as u64 > SHORT_MAX => self.ring(self.bytes),
            Shape::Allgather => self.doubling(|distance| self.bytes * distance as u64),
            Shape::Alltoall => self.pairs(self.bytes / self.count as u64),
            Shape::ReduceScatter => self.pairs(self.bytes / self.count as u64),
            Shape::Scan => self.chain(),
        }
    }

    /// Returns the rounds of a dissemination barrier: in round k each member notifies the one 2^k
    /// after it.
    fn dissemination(self) -> Vec<Round> {
        let (me, count) = (self.index, self.count);
        distances(count)
            .map(|distance| {
                Round::exchange((me + distance) % count, (me + count - distance) % count, 0)
            })
            .collect()
    }

    /// Returns the distance from the root, which has place 0.
    fn place(self) -> usize {
        (self.index + self.count - self.root) % self.count
    }

    fn at_place(self, place: usize) -> usize {
        (place + self.root) % self.count
    }

    /// Returns the children of this place in a binomial tree, nearest first. Each has the number of
    /// places in its subtree.
    fn below(self) -> Vec<(usize, usize)> {
        let place = self.place();
        distances(self.count)
            .take_while(|distance| place & distance == 0)
            .filter(|distance| place + distance < self.count)
            .map(|distance| {
                (
                    place + distance,
                    distance.min(self.count - place - distance),
                )
            })
            .collect()
    }

    /// Returns the parent of this place.
    fn above(self) -> Option<usize> {
        let place = self.place();
        (place > 0).then(|| place & (place - 1))
    }

    /// Returns the rounds of a binomial tree from the root. `bytes` returns the size of a message
    /// to a subtree with this many places.
    fn tree_down(self, bytes: impl Fn(usize) -> u64) -> Vec<Round> {
        let from = self
            .above()
            .map(|place| Round::receive(self.at_place(place)));
        let children = self.below();
        let to = children
            .iter()
            .rev()
            .map(|(place, count)| Round::send(self.at_place(*place), bytes(*count)));
        from.into_iter().chain(to).collect()
    }

    /// Returns the rounds of a binomial tree to the root. `bytes` returns the size of a message
    /// from a subtree with this many places.
    fn tree_up(self, bytes: impl Fn(usize) -> u64) -> Vec<Round> {
        let children = self.below();
        let count = 1 + children.iter().map(|(_, count)| count).sum::<usize>();
        let from = children
            .iter()
            .map(|(place, _)| Round::receive(self.at_place(*place)));
        let to = self
            .above()
            .map(|place| Round::send(self.at_place(place), bytes(count)));
        from.chain(to).collect()
    }

    fn scatter(self) -> Vec<Round> {
        self.tree_down(|count| self.bytes / self.count as u64 * count as u64)
    }

    /// Returns the rounds of a ring: each member forwards a part to the next until all have all
    /// parts.
    fn ring(self, part: u64) -> Vec<Round> {
        let (me, count) = (self.index, self.count);
        vec![Round::exchange((me + 1) % count, (me + count - 1) % count, part); count - 1]
    }

    /// Returns exchanges at distances of powers of two. Members beyond the largest power of two
    /// send their data to another member before, and receive the result after.
    fn doubling(self, bytes: impl Fn(usize) -> u64) -> Vec<Round> {
        let (me, whole) = (self.index, 1 << self.count.ilog2());
        if me >= whole {
            let other = me - whole;
            return vec![Round::send(other, bytes(1)), Round::receive(other)];
        }
        let extra = me + whole;
        let has_extra = extra < self.count;
        let mut rounds = Vec::new();
        if has_extra {
            rounds.push(Round::receive(extra));
        }
        rounds.extend(distances(whole).map(|distance| {
            let other = me ^ distance;
            Round::exchange(other, other, bytes(distance))
        }));
        if has_extra {
            rounds.push(Round::send(extra, bytes(whole)));
        }
        rounds
    }

    /// Returns the exchanges between all members: in round k each communicates with the members k
    /// before and after it.
    fn pairs(self, part: u64) -> Vec<Round> {
        let (me, count) = (self.index, self.count);
        (1..count)
            .map(|distance| {
                Round::exchange(
                    (me + distance) % count,
                    (me + count - distance) % count,
                    part,
                )
            })
            .collect()
    }

    fn chain(self) -> Vec<Round> {
        let from = self.index.checked_sub(1).map(Round::receive);
        let to = (self.index + 1 < self.count).then(|| Round::send(self.index + 1, self.bytes));
        from.into_iter().chain(to).collect()
    }
}

/// Returns the powers of two below `count`.
fn distances(count: usize) -> impl Iterator<Item = usize> {
    std::iter::successors(Some(1), |distance: &usize| distance.checked_mul(2))
        .take_while(move |distance| *distance < count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    const SHAPES: [Shape; 10] = [
        Shape::Barrier,
        Shape::Broadcast,
        Shape::Reduce,
        Shape::Allreduce,
        Shape::Gather,
        Shape::Scatter,
        Shape::Allgather,
        Shape::Alltoall,
        Shape::ReduceScatter,
        Shape::Scan,
    ];

    fn members(count: usize, root: usize, bytes: u64) -> impl Iterator<Item = Member> {
        (0..count).map(move |index| Member {
            index,
            count,
            root,
            bytes,
        })
    }

    /// Runs the rounds of all members until no member can proceed. Returns true if all completed,
    /// and for each the members that it has data from.
    fn run(all: &[Vec<Round>]) -> (bool, Vec<Vec<bool>>) {
        let count = all.len();
        let mut received_from: Vec<Vec<bool>> = (0..count)
            .map(|me| (0..count).map(|other| me == other).collect())
            .collect();
        let mut in_flight: BTreeMap<(usize, usize), Vec<Vec<bool>>> = BTreeMap::new();
        let mut next = vec![0; count];
        let mut sent = vec![false; count];
        loop {
            let mut is_moving = false;
            for me in 0..count {
                let Some(round) = all[me].get(next[me]) else {
                    continue;
                };
                if !sent[me] {
                    for (to, _) in &round.sends {
                        in_flight
                            .entry((me, *to))
                            .or_default()
                            .push(received_from[me].clone());
                    }
                    sent[me] = true;
                    is_moving = true;
                }
                let has_arrived = |from: &usize| {
                    in_flight
                        .get(&(*from, me))
                        .is_some_and(|queue| !queue.is_empty())
                };
                if round.receives.iter().all(has_arrived) {
                    for from in &round.receives {
                        let data = in_flight
                            .get_mut(&(*from, me))
                            .expect("has arrived")
                            .remove(0);
                        for (mine, theirs) in received_from[me].iter_mut().zip(data) {
                            *mine |= theirs;
                        }
                    }
                    next[me] += 1;
                    sent[me] = false;
                    is_moving = true;
                }
            }
            if !is_moving {
                break;
            }
        }
        let is_done =
            (0..count).all(|me| next[me] == all[me].len()) && in_flight.values().all(Vec::is_empty);
        (is_done, received_from)
    }

    #[test]
    fn every_operation_completes_with_its_result() {
        for shape in SHAPES {
            for count in 1..=17 {
                for root in [0, count - 1, count / 2] {
                    for bytes in [0, 8, 100_000] {
                        let all: Vec<_> = members(count, root, bytes)
                            .map(|one| one.rounds(shape))
                            .collect();
                        let (is_done, received_from) = run(&all);
                        assert!(is_done, "{shape:?} of {count}, root {root}, {bytes} bytes");
                        let has_all = |me: usize| received_from[me].iter().all(|known| *known);
                        let is_right = match shape {
                            Shape::Broadcast | Shape::Scatter => {
                                (0..count).all(|me| received_from[me][root])
                            }
                            Shape::Reduce | Shape::Gather => has_all(root),
                            Shape::Scan => (0..count)
                                .all(|me| received_from[me][..=me].iter().all(|known| *known)),
                            _ => (0..count).all(has_all),
                        };
                        assert!(is_right, "{shape:?} of {count}, root {root}, {bytes} bytes");
                    }
                }
            }
        }
    }

    /// Returns the bytes that all members send.
    fn sent(shape: Shape, count: usize, bytes: u64) -> u64 {
        let rounds = members(count, 0, bytes).flat_map(|one| one.rounds(shape));
        rounds
            .flat_map(|round| round.sends)
            .map(|(_, bytes)| bytes)
            .sum()
    }

    #[test]
    fn byte_counts_match_the_algorithms() {
        // One message for each member but the root.
        assert_eq!(sent(Shape::Broadcast, 8, 100), 700);
        // Seven eighths of the data in the parts of the tree: 4, 2 and 1 of eight, at each level.
        assert_eq!(sent(Shape::Scatter, 8, 800), 100 * (4 + 2 * 2 + 4));
        assert_eq!(sent(Shape::Gather, 8, 100), 100 * (4 + 2 * 2 + 4));
        // Three exchanges of each member.
        assert_eq!(sent(Shape::Allreduce, 8, 100), 2400);
        // Parts of an eighth, sent twice around the ring.
        assert_eq!(sent(Shape::Allreduce, 8, 80_000), 2 * 7 * 8 * 10_000);
        assert_eq!(sent(Shape::Alltoall, 4, 4_000), 4 * 3 * 1_000);
        assert_eq!(sent(Shape::Allgather, 8, 10), 8 * (10 + 20 + 40));
    }
}
