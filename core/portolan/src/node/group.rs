// SPDX-License-Identifier: MIT OR Apache-2.0
//! Groups of processes: barrier and broadcast; for reductions see [`crate::node::reduce`].
//!
//! The messages use ports of the library's own number space, so they do not conflict with ports of
//! the program. Any number of groups may have pending collective operations.
//!
//! All members make the same calls in the same order, as in MPI. If they do not, or a member dies,
//! the call of every member ends with an error that names the member and the cause. A member that
//! had completed its part gets the error from its next call, or when it leaves the job. The same
//! happens to a member that created the group with other members or another order. The group can
//! then no longer be used, and every later call on it returns an error. The remaining processes may
//! create a group with another number.

mod cast;
mod multicast;
mod nonblocking;
mod split;

use super::{Node, Sending, Task, Wait};
use crate::collective::{CollectiveKind, Head, Members};
use crate::error::Error;
use portolan_proto::group::{
    barrier_partners, barrier_rounds, broadcast_children, broadcast_parent,
};

/// Number of groups in a job. Each has two of the 2^16 system ports; the last port receives
/// notices.
const GROUP_MAX: u16 = 32_767;
const _: () = assert!(GROUP_MAX == u16::MAX / Members::PORTS);

/// Smallest number of the groups that [`Group::split`] makes.
pub(crate) const SPLIT_ID_MIN: u16 = 16_384;

/// Shortest broadcast along a chain, in bytes: a few blocks for each member of a small group. All
/// members pass the same length, and so come to the same result.
const CHAIN_LEN_MIN: usize = 4 << 20;

/// An ordered subset of the processes of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    members: Members,
    own: u32,
}

impl Group {
    /// Returns the group of all processes of the job, in the order of their ranks. Its number is 0.
    ///
    /// # Examples
    /// See [`Group::split`].
    #[must_use]
    pub fn all(node: &Node) -> Group {
        node.all.clone()
    }

    /// Returns the group of a job of `size` processes, in which this process is `rank`.
    pub(crate) fn of_job(rank: u32, size: u32) -> Group {
        Group {
            members: Members::new(Members::JOB_ID, (0..size).collect()),
            own: rank,
        }
    }

    /// Creates the group of the processes `ranks` with the number `id`. All members, and no other
    /// group, must use this number, and name the same ranks in the same order.
    ///
    /// # Errors
    /// [`Error::NoSuchRank`]; [`Error::Setting`] when this process is not among them, a rank occurs
    /// twice, or the number is 0 or above 16,383.
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// let ranks: Vec<u32> = (0..node.size()).rev().collect();
    /// let backwards = Group::new(&node, 5, &ranks)?;
    /// assert_eq!(backwards.rank(), node.size() - 1 - node.rank());
    /// # Ok(()) }
    /// ```
    pub fn new(node: &Node, id: u16, ranks: &[u32]) -> Result<Group, Error> {
        Group::with_id(node, id, Members::JOB_ID + 1, ranks)
    }

    /// Creates a group like [`Group::new`], with a number starting at `id_min`.
    fn with_id(node: &Node, id: u16, id_min: u16, ranks: &[u32]) -> Result<Group, Error> {
        let setting = |name, value: String, why: &str| {
            Err(Error::Setting {
                name,
                value,
                why: why.to_owned(),
            })
        };
        let id_end = if id_min < SPLIT_ID_MIN {
            SPLIT_ID_MIN
        } else {
            GROUP_MAX
        };
        if !(id_min..id_end).contains(&id) {
            return setting(
                "group id",
                id.to_string(),
                "take one from 1 to 16383; 0 is the job, and higher ones are those of split groups",
            );
        }
        if let Some(&rank) = ranks.iter().find(|&&rank| rank >= node.size()) {
            return Err(Error::NoSuchRank {
                rank,
                size: node.size(),
            });
        }
        let mut sorted = ranks.to_vec();
        sorted.sort_unstable();
        if sorted.windows(2).any(|pair| pair[0] == pair[1]) {
            return setting("group ranks", format!("{ranks:?}"), "name each rank once");
        }
        let Some(own) = ranks.iter().position(|&rank| rank == node.rank()) else {
            return setting(
                "group ranks",
                format!("{ranks:?}"),
                "this process must be a member",
            );
        };
        Ok(Group {
            members: Members::new(id, ranks.into()),
            own: u32::try_from(own).unwrap_or(0),
        })
    }

    /// Returns the number of the group, by which its members name it; 0 for the whole job.
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let node = Node::join()?;
    /// assert_eq!(Group::all(&node).id(), 0);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn id(&self) -> u16 {
        self.members.id()
    }

    /// Returns the number of members.
    ///
    /// # Examples
    /// See [`Group::new`].
    #[must_use]
    pub fn size(&self) -> u32 {
        u32::try_from(self.members.ranks().len()).unwrap_or(u32::MAX)
    }

    /// Returns this process's index in the group.
    ///
    /// # Examples
    /// See [`Group::new`].
    #[must_use]
    pub fn rank(&self) -> u32 {
        self.own
    }

    pub(crate) fn members(&self) -> &Members {
        &self.members
    }

    pub(crate) fn rank_of(&self, member: u32) -> u32 {
        self.members.ranks()[member as usize]
    }
}

impl Node {
    /// Waits until every process of the job has called this.
    ///
    /// # Errors
    /// [`Error::PeerGone`] for a process that the barrier needs, [`Error::CollectiveMismatch`] when
    /// another is in another operation, [`Error::GroupBusy`].
    ///
    /// # Examples
    /// ```
    /// # fn main() -> Result<(), portolan::Error> {
    /// let mut node = portolan::Node::join()?;
    /// node.barrier()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn barrier(&mut self) -> Result<(), Error> {
        let all = Group::all(self);
        self.barrier_of(&all)
    }

    pub(super) fn barrier_of(&mut self, group: &Group) -> Result<(), Error> {
        let head = Head::new(CollectiveKind::Barrier, 0, 0);
        let task = self.engine.enter().begin_task(group, head)?;
        let result = self.perform_barrier(&task);
        self.engine.enter().end_task(&task, result)
    }

    fn perform_barrier(&mut self, task: &Task) -> Result<(), Error> {
        let (own, size) = (task.group().rank(), task.group().size());
        for round in 0..barrier_rounds(size) {
            let (to, from) = barrier_partners(own, size, round);
            self.send_data(task, to, &[])?;
            self.receive_data(task, from, &mut [])?;
        }
        Ok(())
    }

    /// Copies `bytes` of process `root` to those of all other processes, which must have the same
    /// length. From 4 MiB on, more than two processes form a chain, in which each passes on blocks
    /// while it receives further ones.
    ///
    /// # Errors
    /// [`Error::NoSuchRank`], [`Error::PeerGone`], [`Error::GroupBusy`];
    /// [`Error::CollectiveMismatch`] when lengths or roots differ, or another process is in another
    /// operation. Unless the data use multicast, the root does not wait for all, and may get the
    /// error from its next call.
    ///
    /// # Examples
    /// ```
    /// # fn main() -> Result<(), portolan::Error> {
    /// let mut node = portolan::Node::join()?;
    /// let mut word = if node.rank() == 0 { *b"ahoy" } else { [0; 4] };
    /// node.broadcast(0, &mut word)?;
    /// assert_eq!(&word, b"ahoy");
    /// # Ok(())
    /// # }
    /// ```
    pub fn broadcast(&mut self, root: u32, bytes: &mut [u8]) -> Result<(), Error> {
        let all = Group::all(self);
        self.broadcast_of(&all, root, bytes)
    }

    pub(super) fn broadcast_of(
        &mut self,
        group: &Group,
        root: u32,
        bytes: &mut [u8],
    ) -> Result<(), Error> {
        check_root(root, group)?;
        let head = Head::new(CollectiveKind::Broadcast, root, bytes.len());
        if self.engine.enter().may_be_announced(group, &head) {
            return self.broadcast_borrowed(group, root, bytes);
        }
        if bytes.len() >= CHAIN_LEN_MIN && group.size() > 2 {
            return self.broadcast_by_chain(group, root, bytes);
        }
        let task = self.engine.enter().begin_task(group, head)?;
        let result = self.perform_broadcast(&task, root, bytes);
        self.engine.enter().end_task(&task, result)
    }

    fn perform_broadcast(&mut self, task: &Task, root: u32, bytes: &mut [u8]) -> Result<(), Error> {
        let (own, size) = (task.group().rank(), task.group().size());
        if let Some(parent) = broadcast_parent(own, root, size) {
            self.receive_data(task, parent, bytes)?;
        }
        for child in broadcast_children(own, root, size) {
            self.send_data(task, child, bytes)?;
        }
        Ok(())
    }
}

/// Refuses a root that is not a member.
pub(crate) fn check_root(root: u32, group: &Group) -> Result<(), Error> {
    let size = group.size();
    match (root < size, group.members.id()) {
        (true, _) => Ok(()),
        (false, Members::JOB_ID) => Err(Error::NoSuchRank { rank: root, size }),
        (false, _) => Err(Error::NoSuchMember { member: root, size }),
    }
}
