// SPDX-License-Identifier: MIT OR Apache-2.0
//! Groups of processes: barrier and broadcast; for reductions see [`crate::reduce`].
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

use super::{Node, Sending, Task, Wait};
use crate::buffer::Buffer;
use crate::collective::{CollectiveKind, Head, Members};
use crate::error::Error;
use multicast::MulticastWait;
use portolan_proto::group::{
    barrier_partners, barrier_rounds, broadcast_children, broadcast_parent,
};

/// Number of groups in a job. Each has two of the 2^16 system ports; the last port receives
/// notices.
const GROUP_MAX: u16 = 32_767;
const _: () = assert!(GROUP_MAX == u16::MAX / Members::PORTS);

/// Number of the group of all processes of a job.
const JOB_ID: u16 = 0;

/// An ordered subset of the processes of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    members: Members,
    own: u32,
}

impl Group {
    /// Returns the group of all processes of the job, in the order of their ranks. Its number is 0.
    #[must_use]
    pub fn all(node: &Node) -> Group {
        node.all.clone()
    }

    /// Returns the group of a job of `size` processes, in which this process is `rank`.
    pub(crate) fn of_job(rank: u32, size: u32) -> Group {
        Group {
            members: Members::new(JOB_ID, (0..size).collect()),
            own: rank,
        }
    }

    /// Creates the group of the processes `ranks` with the number `id`. All members, and no other
    /// group, must use this number, and name the same ranks in the same order.
    ///
    /// # Errors
    /// [`Error::NoSuchRank`]; [`Error::Setting`] when this process is not among them, a rank occurs
    /// twice, or the number is 0 or above 32,766.
    pub fn new(node: &Node, id: u16, ranks: &[u32]) -> Result<Group, Error> {
        let setting = |name, value: String, why: &str| {
            Err(Error::Setting {
                name,
                value,
                why: why.to_owned(),
            })
        };
        if id == JOB_ID || id >= GROUP_MAX {
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
            members: Members::new(id, ranks.into()),
            own: u32::try_from(own).unwrap_or(0),
        })
    }

    /// Returns the number of members.
    #[must_use]
    pub fn size(&self) -> u32 {
        u32::try_from(self.members.ranks().len()).unwrap_or(u32::MAX)
    }

    /// Returns this process's index in the group.
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

/// A pending barrier, for programs that do other work meanwhile.
#[derive(Debug)]
pub struct Barrier {
    task: Task,
    round: u32,
    /// Wait for the message of the preceding member; `None` when all members have arrived.
    waiting: Option<Wait>,
}

/// A pending broadcast, for programs that do other work meanwhile.
#[derive(Debug)]
pub struct Broadcast {
    task: Task,
    /// Members to send to, in reverse order.
    children: Vec<u32>,
    step: Option<Step>,
    /// Wait for long data that follow their header.
    data: Option<Wait>,
    buffer: Option<Buffer>,
    /// Member that sends to this one.
    from: u32,
}

/// State of a broadcast.
#[derive(Debug)]
enum Step {
    Head(Wait),
    Data(Wait),
    Send(Wait),
    Multicast(MulticastWait),
}

impl Node {
    /// Begins a barrier of `group`; [`Node::poll_barrier`] completes it. A group has at most two
    /// pending collective operations, which all members begin in the same order.
    ///
    /// # Errors
    /// As [`Node::barrier_of`].
    pub fn begin_barrier(&mut self, group: &Group) -> Result<Barrier, Error> {
        let task = self.begin_task(group, Head::new(CollectiveKind::Barrier, 0, 0))?;
        let mut barrier = Barrier {
            task,
            round: 0,
            waiting: None,
        };
        let begun = self.begin_round(&mut barrier);
        self.end_on_failure(&barrier.task, begun)?;
        Ok(barrier)
    }

    fn begin_round(&mut self, barrier: &mut Barrier) -> Result<(), Error> {
        let Barrier { task, round, .. } = barrier;
        let (own, size) = (task.group().rank(), task.group().size());
        if *round == barrier_rounds(size) {
            return Ok(());
        }
        let (to, from) = barrier_partners(own, size, *round);
        barrier.waiting = Some(self.post_head_of(task, from)?);
        self.begin_send(task, to, &[]).map(|_| ())
    }

    /// Waits until every member has reached `barrier`, or `stop` returns true. Returns `true` when
    /// they have. `stop` must depend on what handlers or other threads change.
    ///
    /// # Errors
    /// As [`Node::barrier_of`]; the barrier has ended then.
    pub fn poll_barrier(
        &mut self,
        barrier: &mut Barrier,
        stop: impl Fn() -> bool,
    ) -> Result<bool, Error> {
        let result = self.try_barrier(barrier, &stop);
        if let Ok(false) = result {
            return result;
        }
        if let Some(waiting) = barrier.waiting.take() {
            self.give_up(&waiting);
        }
        self.end_task(&barrier.task, result)
    }

    fn try_barrier(
        &mut self,
        barrier: &mut Barrier,
        stop: &dyn Fn() -> bool,
    ) -> Result<bool, Error> {
        if barrier.waiting.is_none() && barrier.round < barrier_rounds(barrier.task.group().size())
        {
            self.check_intact(&barrier.task)?;
        }
        while let Some(waiting) = &mut barrier.waiting {
            if !self.wait_task(&barrier.task, waiting, stop)? {
                return Ok(false);
            }
            if let Some(done) = barrier.waiting.take() {
                self.finish_inline(&barrier.task, &done, &mut [])?;
            }
            barrier.round += 1;
            self.begin_round(barrier)?;
        }
        Ok(true)
    }

    /// Begins to copy `buffer` of member `root` to those of all other members of `group`;
    /// [`Node::poll_broadcast`] completes it. See [`Node::begin_barrier`].
    ///
    /// # Errors
    /// As [`Node::broadcast`]; [`Error::BufferShared`].
    pub fn begin_broadcast(
        &mut self,
        group: &Group,
        root: u32,
        buffer: impl Into<Buffer>,
    ) -> Result<Broadcast, Error> {
        let mut buffer = buffer.into();
        let (own, size) = (group.rank(), group.size());
        check_root(root, group)?;
        if own != root && buffer.as_mut_slice().is_none() {
            return Err(Error::BufferShared);
        }
        let head = Head::new(CollectiveKind::Broadcast, root, buffer.len());
        let task = self.begin_task(group, head)?;
        let mut children: Vec<u32> = broadcast_children(own, root, size).collect();
        children.reverse();
        let mut broadcast = Broadcast {
            task,
            children,
            step: None,
            data: None,
            buffer: Some(buffer),
            from: root,
        };
        let begun = match broadcast_parent(own, root, size) {
            Some(parent) => self.begin_receiving(&mut broadcast, parent),
            None => self.begin_multicast(&mut broadcast),
        };
        if begun.is_err() {
            self.take_memory_back(&mut broadcast);
        }
        self.end_on_failure(&broadcast.task, begun)?;
        Ok(broadcast)
    }

    fn begin_receiving(&mut self, broadcast: &mut Broadcast, parent: u32) -> Result<(), Error> {
        let head = self.post_head_of(&broadcast.task, parent)?;
        broadcast.step = Some(Step::Head(head));
        broadcast.from = parent;
        // The next message may be the header of a later broadcast.
        if self.may_be_announced(broadcast.task.group(), broadcast.task.head()) {
            return Ok(());
        }
        self.begin_receiving_data(broadcast, parent)
    }

    /// Posts the buffer for long data, so that they are received directly into their place.
    fn begin_receiving_data(
        &mut self,
        broadcast: &mut Broadcast,
        parent: u32,
    ) -> Result<(), Error> {
        if broadcast
            .buffer
            .as_ref()
            .is_some_and(|buffer| !Task::is_inline(buffer.len()))
            && let Some(buffer) = broadcast.buffer.take()
        {
            broadcast.data = self.post_data_of(&broadcast.task, parent, buffer)?;
        }
        Ok(())
    }

    /// Waits until this process has completed its part of `broadcast`, or `stop` returns true.
    /// Returns the buffer once, when it has. `stop` must depend on what handlers or other threads
    /// change.
    ///
    /// # Errors
    /// As [`Node::broadcast`]; the broadcast has ended then.
    pub fn poll_broadcast(
        &mut self,
        broadcast: &mut Broadcast,
        stop: impl Fn() -> bool,
    ) -> Result<Option<Buffer>, Error> {
        let result = self.try_broadcast(broadcast, &stop);
        if let Ok(None) = result {
            return result;
        }
        self.take_memory_back(broadcast);
        self.end_task(&broadcast.task, result)
    }

    /// Cancels pending operations, which releases the buffer.
    fn take_memory_back(&mut self, broadcast: &mut Broadcast) {
        let step = match broadcast.step.take() {
            Some(Step::Head(wait) | Step::Data(wait) | Step::Send(wait)) => Some(wait),
            Some(Step::Multicast(wait)) => {
                self.end_multicast(&wait);
                None
            }
            None => None,
        };
        for wait in step.into_iter().chain(broadcast.data.take()) {
            self.give_up(&wait);
        }
    }

    fn try_broadcast(
        &mut self,
        broadcast: &mut Broadcast,
        stop: &dyn Fn() -> bool,
    ) -> Result<Option<Buffer>, Error> {
        loop {
            let has_ended = match &mut broadcast.step {
                Some(Step::Head(wait) | Step::Data(wait) | Step::Send(wait)) => {
                    self.wait_task(&broadcast.task, wait, stop)?
                }
                Some(Step::Multicast(wait)) => self.wait_multicast(&broadcast.task, wait, stop)?,
                None => true,
            };
            if !has_ended {
                return Ok(None);
            }
            match broadcast.step.take() {
                Some(Step::Head(wait)) => {
                    self.take_head(broadcast, &wait)?;
                    continue;
                }
                Some(Step::Data(wait) | Step::Send(wait)) => {
                    broadcast.buffer = self.finish_wait(&wait)?.buffer;
                }
                Some(Step::Multicast(wait)) => {
                    self.finish_multicast(broadcast, &wait)?;
                    continue;
                }
                None => {}
            }
            let Some(buffer) = broadcast.buffer.take() else {
                // The broadcast has ended before: it completed, or the group broke.
                self.check_intact(&broadcast.task)?;
                return Ok(None);
            };
            let Some(child) = broadcast.children.pop() else {
                return Ok(Some(buffer));
            };
            match self.begin_send_buffer(&broadcast.task, child, buffer)? {
                Sending::Done(buffer) => broadcast.buffer = Some(buffer),
                Sending::UnderWay(wait) => broadcast.step = Some(Step::Send(wait)),
            }
        }
    }

    /// Handles a received header, with the data if they are short.
    fn take_head(&mut self, broadcast: &mut Broadcast, wait: &Wait) -> Result<(), Error> {
        let len = usize::try_from(broadcast.task.head().len).unwrap_or(usize::MAX);
        if !Task::is_inline(len) {
            return self.take_long_head(broadcast, wait);
        }
        let place = match &mut broadcast.buffer {
            Some(buffer) => buffer.as_mut_slice().unwrap_or(&mut []),
            None => &mut [],
        };
        self.finish_inline(&broadcast.task, wait, place)
    }

    /// Waits until every process of the job has called this.
    ///
    /// # Errors
    /// [`Error::PeerGone`] for a process that the barrier needs, [`Error::CollectiveMismatch`] when
    /// another is in another operation, [`Error::GroupBusy`].
    pub fn barrier(&mut self) -> Result<(), Error> {
        let all = Group::all(self);
        self.barrier_of(&all)
    }

    /// Waits until every member of `group` has called this.
    ///
    /// # Errors
    /// As [`Node::barrier`].
    pub fn barrier_of(&mut self, group: &Group) -> Result<(), Error> {
        let task = self.begin_task(group, Head::new(CollectiveKind::Barrier, 0, 0))?;
        let result = self.perform_barrier(&task);
        self.end_task(&task, result)
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
    /// length.
    ///
    /// # Errors
    /// [`Error::NoSuchRank`], [`Error::PeerGone`], [`Error::GroupBusy`];
    /// [`Error::CollectiveMismatch`] when lengths or roots differ, or another process is in another
    /// operation. Unless the data use multicast, the root does not wait for all, and may get the
    /// error from its next call.
    pub fn broadcast(&mut self, root: u32, bytes: &mut [u8]) -> Result<(), Error> {
        let all = Group::all(self);
        self.broadcast_of(&all, root, bytes)
    }

    /// Copies `bytes` of member `root` to those of all other members of `group`.
    ///
    /// # Errors
    /// As [`Node::broadcast`].
    pub fn broadcast_of(
        &mut self,
        group: &Group,
        root: u32,
        bytes: &mut [u8],
    ) -> Result<(), Error> {
        check_root(root, group)?;
        let head = Head::new(CollectiveKind::Broadcast, root, bytes.len());
        if self.may_be_announced(group, &head) {
            return self.broadcast_borrowed(group, root, bytes);
        }
        let task = self.begin_task(group, head)?;
        let result = self.perform_broadcast(&task, root, bytes);
        self.end_task(&task, result)
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
        (false, JOB_ID) => Err(Error::NoSuchRank { rank: root, size }),
        (false, _) => Err(Error::NoSuchMember { member: root, size }),
    }
}
