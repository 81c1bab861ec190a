// SPDX-License-Identifier: MIT OR Apache-2.0
//! Broadcast that sends its data by multicast (P17). The header travels down the tree, followed by
//! an announcement; the data reach all members at once.
//!
//! The one invariant: a member that gets no announcement, or cannot follow it, gets the data by
//! messages as usual.

use super::{Broadcast, Group, Node, Step, Task};
use crate::buffer::Buffer;
use crate::collective::{GroupNotice, Head};
use crate::engine::multicast_id;
use crate::error::Error;
use crate::multicast::{Announcement, Ended, Id};
use crate::node::Wait;
use crate::node::collective::NOTIFY_AFTER;
use portolan_proto::{Instant, PeerId};

/// Wait for the end of a broadcast's multicast.
#[derive(Debug)]
pub(super) struct MulticastWait {
    id: Id,
    /// Time at which the awaited members are notified, and whether they were.
    notify_at: Instant,
    notified: bool,
}

impl Node {
    /// Returns whether a broadcast of `len` bytes in `group` may use multicast.
    pub(super) fn may_multicast(&mut self, group: &Group, len: usize) -> bool {
        let inner = &mut self.engine.enter().inner;
        inner.may_multicast(group.members(), len)
    }

    /// Returns whether an announcement may follow the header of a broadcast, whatever the settings
    /// of its root are.
    pub(super) fn may_be_announced(&mut self, group: &Group, head: &Head) -> bool {
        let len = usize::try_from(head.len).unwrap_or(usize::MAX);
        let inner = &mut self.engine.enter().inner;
        inner.may_be_announced(group.members(), len)
    }

    /// Announces the data of this process to all members, if they are to use multicast.
    pub(super) fn begin_multicast(&mut self, broadcast: &mut Broadcast) -> Result<(), Error> {
        let (members, head) = (broadcast.task.group().members(), broadcast.task.head());
        let len = broadcast.buffer.as_ref().map_or(0, |buffer| buffer.len());
        if !self.may_multicast(broadcast.task.group(), len) {
            return Ok(());
        }
        let Some(buffer) = broadcast.buffer.take() else {
            return Ok(());
        };
        let begun = self
            .engine
            .enter()
            .inner
            .begin_multicast(members, head, buffer);
        match begun {
            Ok(announcement) => self.announce_on(broadcast, &announcement),
            Err(buffer) => {
                broadcast.buffer = Some(buffer);
                Ok(())
            }
        }
    }

    /// Sends the announcement to this member's children. From then on the data are sent or received
    /// by multicast.
    fn announce_on(
        &mut self,
        broadcast: &mut Broadcast,
        announcement: &Announcement,
    ) -> Result<(), Error> {
        let now = self.engine.enter().inner.read_clock();
        broadcast.step = Some(Step::Multicast(MulticastWait {
            id: multicast_id(broadcast.task.group().members(), broadcast.task.head()),
            notify_at: now + NOTIFY_AFTER,
            notified: false,
        }));
        while let Some(child) = broadcast.children.pop() {
            self.begin_short(&broadcast.task, child, &announcement.to_bytes())?;
        }
        Ok(())
    }

    /// Handles the header of long data, with the announcement if one follows.
    pub(super) fn take_long_head(
        &mut self,
        broadcast: &mut Broadcast,
        wait: &Wait,
    ) -> Result<(), Error> {
        let Some(announcement) = self.finish_announced(&broadcast.task, wait)? else {
            if broadcast.data.is_none() {
                self.begin_receiving_data(broadcast, broadcast.from)?;
            }
            broadcast.step = broadcast.data.take().map(Step::Data);
            return Ok(());
        };
        let data = broadcast.data.take();
        let buffer = match data {
            Some(data) => self.take_back(&data),
            None => broadcast.buffer.take(),
        };
        let Some(buffer) = buffer else {
            // The buffer received data that no header announced.
            let what = "data of a broadcast beside its announcement";
            return Err(self.violation(wait.peer(), what));
        };
        self.announce_on(broadcast, &announcement)?;
        let (members, head) = (broadcast.task.group().members(), broadcast.task.head());
        let begun = {
            let inner = &mut self.engine.enter().inner;
            let begun = inner.begin_receiving(members, head, &announcement, buffer);
            inner.work_on_multicasts();
            begun
        };
        self.flush();
        match begun {
            Ok(()) => Ok(()),
            Err(buffer) => self.receive_from_root(broadcast, buffer),
        }
    }

    /// Receives the data by messages directly from the root, not through the tree.
    fn receive_from_root(
        &mut self,
        broadcast: &mut Broadcast,
        buffer: Buffer,
    ) -> Result<(), Error> {
        broadcast.buffer = Some(buffer);
        let root = broadcast.task.head().root;
        self.begin_receiving(broadcast, root)
    }

    /// Drives the engine until the multicast is complete, or `stop` returns true. Returns whether
    /// it is complete.
    pub(super) fn wait_multicast(
        &mut self,
        task: &Task,
        wait: &mut MulticastWait,
        stop: &dyn Fn() -> bool,
    ) -> Result<bool, Error> {
        let (id, group) = (wait.id, task.group().members().id());
        loop {
            let notify_at = (!wait.notified).then_some(wait.notify_at);
            let engine = &mut *self.engine.enter();
            engine.inner.check_intact(group)?;
            let about = engine.inner.multicast_awaits(id);
            let awaited = task.awaited(about.first().copied());
            self.waiter.until(engine, &about, awaited, |inner| {
                inner.is_multicast_settled(id)
                    || inner.is_broken(group)
                    || stop()
                    || notify_at.is_some_and(|at| inner.last_clock_read() >= at)
            });
            engine.inner.check_intact(group)?;
            engine.inner.check_multicast(id)?;
            if engine.inner.is_multicast_settled(id) {
                return Ok(true);
            }
            if !wait.notified && engine.inner.last_clock_read() >= wait.notify_at {
                wait.notified = true;
                let notice = GroupNotice::Waiting {
                    group,
                    head: *task.head(),
                };
                let waited_for: Vec<PeerId> = engine.inner.multicast_awaits(id);
                for peer in waited_for {
                    engine.inner.send_notice(peer, &notice);
                }
                engine.inner.check_unread(task.group().members())?;
                engine.flush();
            }
            if stop() {
                return Ok(false);
            }
        }
    }

    /// Continues after the multicast. The root sends the data by messages to members that could not
    /// use multicast; such a member receives them.
    pub(super) fn finish_multicast(
        &mut self,
        broadcast: &mut Broadcast,
        wait: &MulticastWait,
    ) -> Result<(), Error> {
        let Some(ended) = self.end_multicast(wait) else {
            return Ok(());
        };
        let Ended {
            buffer,
            direct,
            is_direct,
        } = ended;
        if is_direct {
            return self.receive_from_root(broadcast, buffer);
        }
        broadcast.buffer = Some(buffer);
        let ranks = broadcast.task.group().members().ranks();
        let places = (0..).zip(ranks).filter(|(_, rank)| direct.contains(rank));
        broadcast.children = places.map(|(member, _)| member).collect();
        Ok(())
    }

    /// Removes a broadcast from the pending multicasts.
    pub(super) fn end_multicast(&mut self, wait: &MulticastWait) -> Option<Ended> {
        self.engine.enter().inner.end_multicast(wait.id)
    }

    /// Broadcasts borrowed `bytes`, which are released before it returns.
    pub(super) fn broadcast_borrowed(
        &mut self,
        group: &Group,
        root: u32,
        bytes: &mut [u8],
    ) -> Result<(), Error> {
        // SAFETY: the guard takes the memory back before the borrow of `bytes` ends, and nothing
        // else uses the bytes until then.
        let buffer = unsafe { Buffer::from_raw_mut(bytes.as_mut_ptr(), bytes.len()) };
        let broadcast = self.begin_broadcast(group, root, buffer)?;
        let mut guard = MemoryGuard {
            node: self,
            broadcast,
        };
        let MemoryGuard { node, broadcast } = &mut guard;
        while node.poll_broadcast(broadcast, || false)?.is_none() {}
        Ok(())
    }
}

/// Takes borrowed memory back if a broadcast ends early.
struct MemoryGuard<'a> {
    node: &'a mut Node,
    broadcast: Broadcast,
}

impl Drop for MemoryGuard<'_> {
    fn drop(&mut self) {
        self.node.take_memory_back(&mut self.broadcast);
    }
}
