// SPDX-License-Identifier: MIT OR Apache-2.0
//! Groups of processes: barrier and broadcast; for reductions see [`crate::reduce`].
//!
//! The messages go to ports of the library's own number space, so that no program's port is in the
//! way, and any number of groups may be in collective operations at once.

use crate::buffer::Buffer;
use crate::error::Error;
use crate::node::Node;
use crate::ops::Request;
use portolan_proto::group::{
    barrier_partners, barrier_rounds, broadcast_children, broadcast_parent,
};

/// Ports per group: one for each kind of operation.
const PORTS: u16 = 2;
const BARRIER: u16 = 0;
const BROADCAST: u16 = 1;

/// Groups in a job: the 2^16 system ports, by [`PORTS`].
const GROUP_MAX: u16 = u16::MAX / PORTS;

/// Some of the processes of a job, in an order of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    id: u16,
    ranks: Vec<u32>,
    own: u32,
}

impl Group {
    /// All processes of the job, in the order of their ranks. Its number is 0.
    #[must_use]
    pub fn all(node: &Node) -> Group {
        Group {
            id: 0,
            ranks: (0..node.size()).collect(),
            own: node.rank(),
        }
    }

    /// The processes `ranks` under the number `id`, which all members, and no other group, must
    /// use. Members must name the same ranks in the same order.
    ///
    /// # Errors
    /// [`Error::NoSuchRank`]; [`Error::Setting`] when this process is not among them, one is there
    /// twice, or the number is 0 or above 32,766.
    pub fn new(node: &Node, id: u16, ranks: &[u32]) -> Result<Group, Error> {
        let setting = |name, value: String, why: &str| {
            Err(Error::Setting {
                name,
                value,
                why: why.to_owned(),
            })
        };
        if id == 0 || id >= GROUP_MAX {
            return setting(
                "group id",
                id.to_string(),
                "take one from 1 to 32766; 0 is the job",
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
            id,
            ranks: ranks.to_vec(),
            own: u32::try_from(own).unwrap_or(0),
        })
    }

    /// Members.
    #[must_use]
    pub fn size(&self) -> u32 {
        u32::try_from(self.ranks.len()).unwrap_or(u32::MAX)
    }

    /// This process's place in the group.
    #[must_use]
    pub fn rank(&self) -> u32 {
        self.own
    }

    fn port(&self, kind: u16) -> u16 {
        self.id * PORTS + kind
    }

    /// Where reductions go, too: members take part in the collective operations of a group in the
    /// same order, so messages between two of them are never confused.
    pub(crate) fn values_port(&self) -> u16 {
        self.port(BROADCAST)
    }

    pub(crate) fn rank_of(&self, member: u32) -> u32 {
        self.ranks[member as usize]
    }
}

/// A barrier that is under way, for programs that do other things meanwhile.
#[derive(Debug)]
pub struct Barrier {
    group: Group,
    round: u32,
    /// What this process waits for, and its own word to the next, while that has to wait.
    receiving: Option<Request>,
    sending: Option<Request>,
}

/// A broadcast that is under way, for programs that do other things meanwhile.
#[derive(Debug)]
pub struct Broadcast {
    group: Group,
    /// Members that have to be sent to, the first last.
    children: Vec<u32>,
    /// The receive, or a send; it has the buffer.
    under_way: Option<Request>,
    buffer: Option<Buffer>,
}

impl Node {
    /// Begins a barrier of `group`, to be ended by [`Node::poll_barrier`]. A group has one barrier
    /// at a time.
    ///
    /// # Errors
    /// As [`Node::barrier_of`].
    pub fn begin_barrier(&mut self, group: &Group) -> Result<Barrier, Error> {
        let mut barrier = Barrier {
            group: group.clone(),
            round: 0,
            receiving: None,
            sending: None,
        };
        self.begin_round(&mut barrier)?;
        Ok(barrier)
    }

    fn begin_round(&mut self, barrier: &mut Barrier) -> Result<(), Error> {
        let Barrier { group, round, .. } = barrier;
        if *round == barrier_rounds(group.size()) {
            return Ok(());
        }
        let (to, from) = barrier_partners(group.rank(), group.size(), *round);
        let port = group.port(BARRIER);
        let (to, from) = (group.rank_of(to), group.rank_of(from));
        barrier.receiving = Some(self.system_post_recv(from, port, Buffer::from(Vec::new()))?);
        barrier.sending = self.system_isend(to, port, &[])?;
        Ok(())
    }

    /// Waits until every member has come to `barrier`, or `stop` says so: `true` when they have.
    /// `stop` must depend on what handlers or other threads change.
    ///
    /// # Errors
    /// As [`Node::barrier_of`]; the barrier cannot end then.
    pub fn poll_barrier(
        &mut self,
        barrier: &mut Barrier,
        stop: impl Fn() -> bool,
    ) -> Result<bool, Error> {
        while let Some(request) = barrier.receiving {
            if self.wait_or(request, &stop)?.is_none() {
                return Ok(false);
            }
            barrier.receiving = None;
            if let Some(sent) = barrier.sending.take() {
                self.wait(sent)?;
            }
            barrier.round += 1;
            self.begin_round(barrier)?;
        }
        Ok(true)
    }

    /// Begins to copy `buffer` of member `root` into those of all other members of `group`, to be
    /// ended by [`Node::poll_broadcast`]. A group has one broadcast or reduction at a time.
    ///
    /// # Errors
    /// As [`Node::broadcast`]; [`Error::BufferShared`].
    pub fn begin_broadcast(
        &mut self,
        group: &Group,
        root: u32,
        buffer: impl Into<Buffer>,
    ) -> Result<Broadcast, Error> {
        let (own, size) = (group.rank(), group.size());
        if root >= size {
            return Err(Error::NoSuchRank { rank: root, size });
        }
        let mut children: Vec<u32> = broadcast_children(own, root, size).collect();
        children.reverse();
        let (mut under_way, mut buffer) = (None, Some(buffer.into()));
        if let Some(parent) = broadcast_parent(own, root, size)
            && let Some(empty) = buffer.take()
        {
            let (parent, port) = (group.rank_of(parent), group.port(BROADCAST));
            under_way = Some(self.system_post_recv(parent, port, empty)?);
        }
        Ok(Broadcast {
            group: group.clone(),
            children,
            under_way,
            buffer,
        })
    }

    /// Waits until this process has done its part of `broadcast`, or `stop` says so: the buffer when
    /// it has, once. `stop` must depend on what handlers or other threads change.
    ///
    /// # Errors
    /// As [`Node::broadcast`]; the broadcast cannot end then.
    pub fn poll_broadcast(
        &mut self,
        broadcast: &mut Broadcast,
        stop: impl Fn() -> bool,
    ) -> Result<Option<Buffer>, Error> {
        loop {
            if let Some(request) = broadcast.under_way {
                let Some(done) = self.wait_or(request, &stop)? else {
                    return Ok(None);
                };
                broadcast.under_way = None;
                broadcast.buffer = done.buffer;
            }
            let Some(buffer) = broadcast.buffer.take() else {
                return Ok(None);
            };
            let Some(child) = broadcast.children.pop() else {
                return Ok(Some(buffer));
            };
            let group = &broadcast.group;
            let (child, port) = (group.rank_of(child), group.port(BROADCAST));
            broadcast.under_way = Some(self.system_isend_buffer(child, port, buffer)?);
        }
    }

    /// Waits until every process of the job has come here.
    ///
    /// # Errors
    /// [`Error::PeerGone`] for a process without which the barrier cannot end.
    pub fn barrier(&mut self) -> Result<(), Error> {
        let all = Group::all(self);
        self.barrier_of(&all)
    }

    /// Waits until every member of `group` has come here.
    ///
    /// # Errors
    /// [`Error::PeerGone`].
    pub fn barrier_of(&mut self, group: &Group) -> Result<(), Error> {
        let (own, size) = (group.rank(), group.size());
        for round in 0..barrier_rounds(size) {
            let (to, from) = barrier_partners(own, size, round);
            let port = group.port(BARRIER);
            self.system_send(&[group.rank_of(to)], port, &[])?;
            self.system_recv(group.rank_of(from), port, &mut [])?;
        }
        Ok(())
    }

    /// Copies `bytes` of process `root` into those of all others, which must have the same length.
    ///
    /// # Errors
    /// [`Error::NoSuchRank`], [`Error::PeerGone`]; [`Error::Truncated`] when lengths differ.
    pub fn broadcast(&mut self, root: u32, bytes: &mut [u8]) -> Result<(), Error> {
        let all = Group::all(self);
        self.broadcast_of(&all, root, bytes)
    }

    /// Copies `bytes` of member `root` into those of all other members of `group`.
    ///
    /// # Errors
    /// As [`Node::broadcast`].
    pub fn broadcast_of(
        &mut self,
        group: &Group,
        root: u32,
        bytes: &mut [u8],
    ) -> Result<(), Error> {
        let (own, size) = (group.rank(), group.size());
        if root >= size {
            return Err(Error::NoSuchRank { rank: root, size });
        }
        let port = group.port(BROADCAST);
        if let Some(parent) = broadcast_parent(own, root, size) {
            self.system_recv(group.rank_of(parent), port, bytes)?;
        }
        let children: Vec<u32> = broadcast_children(own, root, size)
            .map(|child| group.rank_of(child))
            .collect();
        self.system_send(&children, port, bytes)
    }
}
