// SPDX-License-Identifier: MIT OR Apache-2.0
//! What members of a group tell one another of their collective operations (chapter P14 of
//! docs/protocol.md): heads in front of data, and news of waits and failures.
//!
//! Records and bookkeeping only; `node/collective.rs` sends and receives. The one invariant: a
//! group in which two members were in different operations is broken at all members, for good, and
//! every call on it says why.

mod record;

pub(crate) use record::{HEAD_LEN, Head, News};

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Weak};

/// Kind of a collective operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CollectiveKind {
    /// [`crate::Node::barrier`].
    Barrier,
    /// [`crate::Node::broadcast`].
    Broadcast,
    /// [`crate::Node::allreduce`].
    Allreduce,
    /// [`crate::Node::reduce`].
    Reduce,
    /// [`crate::Node::cast`].
    Cast,
}

/// A collective operation as one member called it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CollectiveCall {
    /// What it is.
    pub kind: CollectiveKind,
    /// The root, as a member of the group; 0 where there is none.
    pub root: u32,
    /// Bytes that the member gave.
    pub len: u64,
    /// Of reductions: what is done with the values, and their type, such as "Sum of f64".
    pub values: Option<&'static str>,
}

impl fmt::Display for CollectiveCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            CollectiveKind::Barrier => return f.write_str("barrier"),
            CollectiveKind::Broadcast => "broadcast",
            CollectiveKind::Allreduce => "allreduce",
            CollectiveKind::Reduce => "reduce",
            CollectiveKind::Cast => "cast",
        })?;
        if let Some(values) = self.values {
            write!(f, " ({values})")?;
        }
        write!(f, " of {} bytes", self.len)?;
        match self.kind {
            CollectiveKind::Broadcast | CollectiveKind::Cast => {
                write!(f, " from member {}", self.root)
            }
            CollectiveKind::Reduce => write!(f, " to member {}", self.root),
            _ => Ok(()),
        }
    }
}

/// Two members of a group that did not call the same operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CollectiveMismatch {
    /// Number of the group; 0 is the job.
    pub group: u16,
    /// Rank of the one, and what it called.
    pub first: (u32, CollectiveCall),
    /// Rank of the other, and what it called.
    pub second: (u32, CollectiveCall),
    /// Which operations of the group these were, counted from 1 by each of the two.
    pub numbers: (u64, u64),
    /// Whether the group has the same members, in the same order, for both.
    pub has_same_members: bool,
}

impl CollectiveMismatch {
    /// Whether they differ in nothing but the length.
    #[must_use]
    pub fn is_of_length(&self) -> bool {
        let (_, first) = self.first;
        let (_, second) = self.second;
        first.len != second.len
            && self.has_same_members
            && self.numbers.0 == self.numbers.1
            && CollectiveCall {
                len: second.len,
                ..first
            } == second
    }
}

impl fmt::Display for CollectiveMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (one, first) = self.first;
        let (other, second) = self.second;
        if !self.has_same_members {
            return write!(
                f,
                "group {} has other members, or the same in another order, for rank {one}, which \
                 called {first}, than for rank {other}, which called {second}; give all members the \
                 same list of ranks, and another group another number: this one cannot be used any \
                 more",
                self.group
            );
        }
        write!(
            f,
            "members of group {} called different collective operations: rank {one} {first} (its \
             call {}), rank {other} {second} (its call {}); all members must make the same calls in \
             the same order, and this group cannot be used any more",
            self.group, self.numbers.0, self.numbers.1
        )
    }
}

/// Why a group cannot be used any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Members were in different operations.
    Mismatch(CollectiveMismatch),
    /// An operation needed a member that is gone; the text says why.
    Gone {
        rank: u32,
        /// The member that has told it; `None`: this process has found out.
        by: Option<u32>,
        why: String,
    },
}

/// Operations of a group that may be under way at once in a process: each has one of two ports.
pub(crate) const AT_ONCE: usize = 2;

/// Who is in a group, in their order, and its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Members {
    id: u16,
    ranks: Arc<[u32]>,
    digest: u64,
}

impl Members {
    /// Ports per group: one for each operation that may be under way.
    #[allow(clippy::cast_possible_truncation, reason = "it is 2")]
    pub(crate) const PORTS: u16 = AT_ONCE as u16;

    pub(crate) fn new(id: u16, ranks: Arc<[u32]>) -> Members {
        let bytes = ranks.iter().flat_map(|rank| rank.to_le_bytes());
        // FNV-1a of 64 bits (Fowler, Noll, Vo): what differs by mistake shows, which is all it is for.
        let digest = bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        Members { id, ranks, digest }
    }

    pub(crate) fn id(&self) -> u16 {
        self.id
    }

    pub(crate) fn ranks(&self) -> &[u32] {
        &self.ranks
    }

    /// By which it is seen when the program has dropped the group.
    pub(crate) fn handles(&self) -> Weak<[u32]> {
        Arc::downgrade(&self.ranks)
    }

    /// Of the ranks, in their order. `P14`
    pub(crate) fn digest(&self) -> u64 {
        self.digest
    }

    /// The system port of the operations whose numbers end with `slot`.
    pub(crate) fn port(&self, slot: usize) -> u16 {
        self.id * Self::PORTS + u16::from(slot != 0)
    }
}

/// Operations that are remembered, to be compared with those that others say they are in. One that
/// is further behind hears of a difference when its data comes.
const HISTORY_LEN: usize = 16;

/// The operations of one group, as this process has called them.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// The latest last.
    history: VecDeque<Head>,
    /// The numbers of those that are under way, by their lowest bits.
    under_way: [Option<u64>; AT_ONCE],
    /// What others wait in that this process has not come to, by rank.
    waiting: BTreeMap<u32, Head>,
    broken: Option<Fault>,
}

/// The group has as many operations under way as it can have.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Busy;

impl State {
    /// Why the group is broken, if it is.
    pub(crate) fn broken(&self) -> Option<&Fault> {
        self.broken.as_ref()
    }

    /// The group is broken; the first cause counts. Whether this is the first.
    pub(crate) fn break_by(&mut self, fault: Fault) -> bool {
        let is_first = self.broken.is_none();
        self.broken.get_or_insert(fault);
        is_first
    }

    fn last_seq(&self) -> u64 {
        self.history.back().map_or(0, |head| head.seq)
    }

    /// Begins `call`: its head.
    pub(crate) fn begin(&mut self, call: &Head) -> Result<Head, Busy> {
        let head = Head {
            seq: self.last_seq() + 1,
            ..*call
        };
        let under_way = &mut self.under_way[head.slot()];
        if under_way.is_some() {
            return Err(Busy);
        }
        *under_way = Some(head.seq);
        if self.history.len() == HISTORY_LEN {
            self.history.pop_front();
        }
        self.history.push_back(head);
        Ok(head)
    }

    /// Ends an operation, once.
    pub(crate) fn end(&mut self, head: &Head) {
        let under_way = &mut self.under_way[head.slot()];
        if *under_way == Some(head.seq) {
            *under_way = None;
        }
    }

    /// Whether the head in front of data from `rank` is that of `own`, which this process, `me`, is in.
    pub(crate) fn check_data(
        &self,
        me: u32,
        rank: u32,
        theirs: &Head,
        own: &Head,
    ) -> Result<(), Pair> {
        if theirs == own {
            return Ok(());
        }
        // Data of another operation than its own of that number says more.
        let same = self.history.iter().find(|head| head.seq == theirs.seq);
        let own = same.filter(|same| *same != theirs).unwrap_or(own);
        Err(Pair((rank, *theirs), (me, *own)))
    }

    /// `rank` waits for this process, `me`, in `theirs`.
    pub(crate) fn on_waiting(&mut self, me: u32, rank: u32, theirs: &Head) -> Result<(), Pair> {
        if theirs.seq > self.last_seq() {
            self.waiting.insert(rank, *theirs);
            return Ok(());
        }
        self.compare(me, rank, theirs).unwrap_or(Ok(()))
    }

    /// Data of `rank` lie at a port of the group, and this process, `me`, has not asked for them.
    pub(crate) fn on_unread(&self, me: u32, rank: u32, theirs: &Head) -> Result<(), Pair> {
        match (self.compare(me, rank, theirs), self.history.back()) {
            (Some(compared), _) => compared,
            // Whatever was to be taken then has been.
            (None, Some(last)) if theirs.seq < last.seq => Err(Pair((rank, *theirs), (me, *last))),
            // This process has not come to it yet.
            (None, _) => Ok(()),
        }
    }

    /// Whether this process has called the same of that number, if that is remembered.
    fn compare(&self, me: u32, rank: u32, theirs: &Head) -> Option<Result<(), Pair>> {
        let own = self.history.iter().find(|head| head.seq == theirs.seq)?;
        Some(match own == theirs {
            true => Ok(()),
            false => Err(Pair((rank, *theirs), (me, *own))),
        })
    }

    /// Whether others wait in other operations of the number of `own`, which has just begun.
    pub(crate) fn check_waiting(&mut self, me: u32, own: &Head) -> Result<(), Pair> {
        let different = |(rank, theirs): (&u32, &Head)| {
            (theirs.seq == own.seq && theirs != own).then_some((*rank, *theirs))
        };
        let found = self.waiting.iter().find_map(different);
        self.waiting.retain(|_, theirs| theirs.seq > own.seq);
        found.map_or(Ok(()), |other| Err(Pair(other, (me, *own))))
    }
}

/// Two ranks and their heads, which differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pair(pub(crate) (u32, Head), pub(crate) (u32, Head));

impl Pair {
    pub(crate) fn fault(&self, group: u16) -> Fault {
        let Pair((one, first), (other, second)) = self;
        Fault::Mismatch(CollectiveMismatch {
            group,
            first: (*one, first.call()),
            second: (*other, second.call()),
            numbers: (first.seq, second.seq),
            has_same_members: first.members == second.members,
        })
    }

    pub(crate) fn news(&self, group: u16) -> News {
        let Pair(first, second) = *self;
        News::Mismatch {
            group,
            first,
            second,
        }
    }
}

#[cfg(test)]
mod tests;
