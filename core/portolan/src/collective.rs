// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records that members of a group exchange about collective operations: heads before the data, and
//! notices of waits and failures (chapter P14 of docs/reference/protocol.md).
//!
//! This module has records and bookkeeping only; `node/collective.rs` sends and receives.
//! Invariant: a group in which two members were in different operations is permanently broken at
//! all members, and every call on it reports the reason.

mod record;

pub(crate) use record::{GroupNotice, HEAD_LEN, Head, Layout, OWN_OP, PART_INLINE_LEN_MAX};

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
    /// Long [`crate::Node::broadcast`], along a chain.
    Cast,
    /// [`crate::Group::allgatherv`], also with equal counts.
    Allgather,
    /// [`crate::Group::gather`].
    Gather,
    /// [`crate::Group::gatherv`].
    Gatherv,
    /// [`crate::Group::scatter`].
    Scatter,
    /// [`crate::Group::scatterv`].
    Scatterv,
    /// [`crate::Group::alltoall`].
    Alltoall,
    /// [`crate::Group::alltoallv`].
    Alltoallv,
    /// [`crate::Group::reduce_scatterv`], also with equal counts.
    ReduceScatter,
    /// [`crate::Group::scan`].
    Scan,
    /// [`crate::Group::exscan`].
    Exscan,
}

impl CollectiveKind {
    /// Returns the kind of the same call with few bytes.
    fn of_short(self) -> CollectiveKind {
        match self {
            CollectiveKind::Cast => CollectiveKind::Broadcast,
            other => other,
        }
    }
}

/// Collective operation as one member called it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CollectiveCall {
    /// Kind of the operation.
    pub kind: CollectiveKind,
    /// Root, as a member of the group; 0 if there is none.
    pub root: u32,
    /// Length of the member's data in bytes. Members of a gatherv, scatterv or alltoallv pass
    /// different lengths: it is that of one message, if that was unexpected, and otherwise 0.
    pub len: u64,
    /// Operation and type of a reduction, such as "Sum of f64".
    pub values: Option<&'static str>,
}

impl fmt::Display for CollectiveCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            CollectiveKind::Barrier => return f.write_str("barrier"),
            CollectiveKind::Broadcast | CollectiveKind::Cast => "broadcast",
            CollectiveKind::Allreduce => "allreduce",
            CollectiveKind::Reduce => "reduce",
            CollectiveKind::Allgather => "allgather",
            CollectiveKind::Gather => "gather",
            CollectiveKind::Gatherv => "gatherv",
            CollectiveKind::Scatter => "scatter",
            CollectiveKind::Scatterv => "scatterv",
            CollectiveKind::Alltoall => "alltoall",
            CollectiveKind::Alltoallv => "alltoallv",
            CollectiveKind::ReduceScatter => "reduce-scatter",
            CollectiveKind::Scan => "scan",
            CollectiveKind::Exscan => "exscan",
        })?;
        if let Some(values) = self.values {
            write!(f, " ({values})")?;
        }
        write!(f, " of {} bytes", self.len)?;
        match self.kind {
            CollectiveKind::Broadcast
            | CollectiveKind::Cast
            | CollectiveKind::Scatter
            | CollectiveKind::Scatterv => write!(f, " from member {}", self.root),
            CollectiveKind::Reduce | CollectiveKind::Gather | CollectiveKind::Gatherv => {
                write!(f, " to member {}", self.root)
            }
            _ => Ok(()),
        }
    }
}

/// Report of two members of a group that did not call the same operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CollectiveMismatch {
    /// Number of the group; 0 is the job.
    pub group: u16,
    /// Rank of the first member, and its call.
    pub first: (u32, CollectiveCall),
    /// Rank of the second member, and its call.
    pub second: (u32, CollectiveCall),
    /// Numbers of the two operations in the group, counted from 1 by each member.
    pub numbers: (u64, u64),
    /// Set when both members see the same group members in the same order.
    pub has_same_members: bool,
}

impl CollectiveMismatch {
    /// Returns `true` if the two calls differ in nothing but the length.
    #[must_use]
    pub fn is_of_length(&self) -> bool {
        let (_, first) = self.first;
        let (_, second) = self.second;
        first.len != second.len
            && self.has_same_members
            && self.numbers.0 == self.numbers.1
            && CollectiveCall {
                len: second.len,
                kind: first.kind.of_short(),
                ..first
            } == CollectiveCall {
                kind: second.kind.of_short(),
                ..second
            }
    }
}

impl fmt::Display for CollectiveMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (one, first) = self.first;
        let (other, second) = self.second;
        if !self.has_same_members {
            return write!(
                f,
                "members of group {} have other members, or the same in another order: rank {one} called \
                 {first}, rank {other} called {second}; pass the same list of ranks at all members, and \
                 use a new group number: this group can no longer be used",
                self.group
            );
        }
        write!(
            f,
            "members of group {} called different collective operations: rank {one} {first} (its \
             call {}), rank {other} {second} (its call {}); all members must make the same calls in \
             the same order, and this group can no longer be used",
            self.group, self.numbers.0, self.numbers.1
        )
    }
}

/// Reason why a group can no longer be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Members were in different operations.
    Mismatch(CollectiveMismatch),
    /// An operation needed a member that has failed; the text contains the reason.
    Gone {
        rank: u32,
        /// Member that has reported it; `None` if this process has detected it.
        by: Option<u32>,
        why: String,
    },
}

/// Maximum number of pending operations of a group in a process. Each uses one of two ports.
pub(crate) const PENDING_OPS_MAX: usize = 2;

/// Members of a group in their order, and the group's number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Members {
    id: u16,
    ranks: Arc<[u32]>,
    digest: u64,
}

impl Members {
    /// Number of the group of all processes of a job.
    pub(crate) const JOB_ID: u16 = 0;

    /// Ports per group: one for each pending operation.
    #[allow(clippy::cast_possible_truncation, reason = "it is 2")]
    pub(crate) const PORTS: u16 = PENDING_OPS_MAX as u16;

    pub(crate) fn new(id: u16, ranks: Arc<[u32]>) -> Members {
        let bytes = ranks.iter().flat_map(|rank| rank.to_le_bytes());
        // FNV-1a of 64 bits (Fowler, Noll, Vo), which only has to detect accidental differences.
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

    /// Returns a handle that expires when the program has dropped the group.
    pub(crate) fn handles(&self) -> Weak<[u32]> {
        Arc::downgrade(&self.ranks)
    }

    /// Returns the digest of the ranks in their order. `P14`
    pub(crate) fn digest(&self) -> u64 {
        self.digest
    }

    /// Returns the system port of the operations with numbers that end with `slot`.
    pub(crate) fn port(&self, slot: usize) -> u16 {
        self.id * Self::PORTS + u16::from(slot != 0)
    }
}

/// Number of recent operations that are stored for comparison with those reported by other members.
/// A difference to an older one is detected when its data arrives.
const HISTORY_LEN: usize = 16;

/// Operations of one group, as this process has called them.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// Recent operations, newest last.
    history: VecDeque<Head>,
    /// Numbers of the pending operations, by their lowest bits.
    pending: [Option<u64>; PENDING_OPS_MAX],
    /// Operations in which other members wait and that this process has not reached, by rank.
    waiting: BTreeMap<u32, Head>,
    broken: Option<Fault>,
}

/// Error: the group has the maximum number of pending operations.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooManyPending;

impl State {
    /// Returns the reason for which the group is broken, if it is.
    pub(crate) fn broken(&self) -> Option<&Fault> {
        self.broken.as_ref()
    }

    /// Marks the group as broken. The first reason is retained. Returns `true` if this is the
    /// first.
    pub(crate) fn break_by(&mut self, fault: Fault) -> bool {
        let is_first = self.broken.is_none();
        self.broken.get_or_insert(fault);
        is_first
    }

    fn last_seq(&self) -> u64 {
        self.history.back().map_or(0, |head| head.seq)
    }

    /// Begins `call` and returns its head.
    pub(crate) fn begin(&mut self, call: &Head) -> Result<Head, TooManyPending> {
        let head = Head {
            seq: self.last_seq() + 1,
            ..*call
        };
        let pending = &mut self.pending[head.slot()];
        if pending.is_some() {
            return Err(TooManyPending);
        }
        *pending = Some(head.seq);
        if self.history.len() == HISTORY_LEN {
            self.history.pop_front();
        }
        self.history.push_back(head);
        Ok(head)
    }

    /// Ends an operation, once.
    pub(crate) fn end(&mut self, head: &Head) {
        let pending = &mut self.pending[head.slot()];
        if *pending == Some(head.seq) {
            *pending = None;
        }
    }

    /// Checks that the head before data from `rank` is `own`, the operation of this process, `me`.
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
        // A mismatch with this process's own operation of the same number is more informative.
        let same = self.history.iter().find(|head| head.seq == theirs.seq);
        let own = same.filter(|same| *same != theirs).unwrap_or(own);
        Err(Pair((rank, *theirs), (me, *own)))
    }

    /// Records that `rank` waits for this process, `me`, in `theirs`.
    pub(crate) fn on_waiting(&mut self, me: u32, rank: u32, theirs: &Head) -> Result<(), Pair> {
        if theirs.seq > self.last_seq() {
            self.waiting.insert(rank, *theirs);
            return Ok(());
        }
        self.compare(me, rank, theirs).unwrap_or(Ok(()))
    }

    /// Checks unread data of `rank` at a port of the group that this process, `me`, has not
    /// requested.
    pub(crate) fn on_unread(&self, me: u32, rank: u32, theirs: &Head) -> Result<(), Pair> {
        match (self.compare(me, rank, theirs), self.history.back()) {
            (Some(compared), _) => compared,
            // Everything that belonged to that operation has been received.
            (None, Some(last)) if theirs.seq < last.seq => Err(Pair((rank, *theirs), (me, *last))),
            // This process has not reached the operation yet.
            (None, _) => Ok(()),
        }
    }

    /// Compares `theirs` with this process's call of the same number, if that is still recorded.
    fn compare(&self, me: u32, rank: u32, theirs: &Head) -> Option<Result<(), Pair>> {
        let own = self.history.iter().find(|head| head.seq == theirs.seq)?;
        Some(match own == theirs {
            true => Ok(()),
            false => Err(Pair((rank, *theirs), (me, *own))),
        })
    }

    /// Checks that no member waits in a different operation with the number of `own`, which has
    /// just begun.
    pub(crate) fn check_waiting(&mut self, me: u32, own: &Head) -> Result<(), Pair> {
        if self.waiting.is_empty() {
            return Ok(());
        }
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

    pub(crate) fn notice(&self, group: u16) -> GroupNotice {
        let Pair(first, second) = *self;
        GroupNotice::Mismatch {
            group,
            first,
            second,
        }
    }
}

#[cfg(test)]
mod tests;
