// SPDX-License-Identifier: MIT OR Apache-2.0
//! Broadcast that sends its data by multicast (P17). The header travels down the tree, followed by
//! an announcement; the data reach all members at once.
//!
//! The one invariant: a member that gets no announcement, or cannot follow it, gets the data by
//! messages as usual.

use super::nonblocking::{Broadcast, Step};
use super::{Group, Task};
use crate::buffer::Buffer;
use crate::collective::Head;
use crate::engine::{Engine, multicast_id};
use crate::error::Error;
use crate::multicast::{Announcement, Ended, Id};
use crate::node::Wait;
use crate::node::collective::NOTIFY_AFTER;
use portolan_proto::Instant;

/// Wait for the end of a broadcast's multicast.
#[derive(Debug)]
pub(super) struct MulticastWait {
    id: Id,
    /// Time at which the awaited members are notified, and whether they were.
    notify_at: Instant,
    notified: bool,
}

impl Engine {
    /// Returns whether a broadcast of `len` bytes in `group` may use multicast.
    pub(super) fn may_multicast(&mut self, group: &Group, len: usize) -> bool {
        let inner = &mut self.inner;
        inner.may_multicast(group.members(), len)
    }

    /// Returns whether an announcement may follow the header of a broadcast, whatever the settings
    /// of its root are.
    pub(super) fn may_be_announced(&mut self, group: &Group, head: &Head) -> bool {
        let len = usize::try_from(head.len).unwrap_or(usize::MAX);
        let inner = &mut self.inner;
        inner.may_be_announced(group.members(), len)
    }

    /// Returns whether the multicast is complete, without waiting.
    pub(super) fn poll_multicast(
        &mut self,
        task: &Task,
        wait: &mut MulticastWait,
    ) -> Result<bool, Error> {
        self.check_intact(task)?;
        let awaited = self.inner.multicast_awaits(wait.id);
        self.inner.check_multicast(wait.id)?;
        if self.inner.is_multicast_settled(wait.id) {
            return Ok(true);
        }
        if !wait.notified && self.inner.last_clock_read() >= wait.notify_at {
            wait.notified = true;
            self.notify_waiting(task, &awaited)?;
        }
        for peer in awaited {
            self.watch_background(peer);
        }
        Ok(false)
    }

    /// Removes a broadcast from the pending multicasts.
    pub(super) fn end_multicast(&mut self, wait: &MulticastWait) -> Option<Ended> {
        self.inner.end_multicast(wait.id)
    }
}

impl Broadcast {
    /// Announces the data of this process to all members, if they are to use multicast.
    pub(super) fn begin_multicast(
        &mut self,
        engine: &mut Engine,
        task: &Task,
    ) -> Result<(), Error> {
        let (members, head) = (task.group().members(), task.head());
        let len = self.buffer.as_ref().map_or(0, |buffer| buffer.len());
        if !engine.may_multicast(task.group(), len) {
            return Ok(());
        }
        let Some(buffer) = self.buffer.take() else {
            return Ok(());
        };
        let begun = engine.inner.begin_multicast(members, head, buffer);
        match begun {
            Ok(announcement) => self.announce_on(engine, task, &announcement),
            Err(buffer) => {
                self.buffer = Some(buffer);
                Ok(())
            }
        }
    }

    /// Sends the announcement to this member's children. From then on the data are sent or received
    /// by multicast.
    fn announce_on(
        &mut self,
        engine: &mut Engine,
        task: &Task,
        announcement: &Announcement,
    ) -> Result<(), Error> {
        let now = engine.inner.read_clock();
        self.step = Step::Multicast(MulticastWait {
            id: multicast_id(task.group().members(), task.head()),
            notify_at: now + NOTIFY_AFTER,
            notified: false,
        });
        while let Some(child) = self.children.pop() {
            engine.begin_short(task, child, &announcement.to_bytes())?;
        }
        Ok(())
    }

    /// Handles the header of long data, with the announcement if one follows.
    pub(super) fn take_long_head(
        &mut self,
        engine: &mut Engine,
        task: &Task,
        wait: &Wait,
    ) -> Result<(), Error> {
        let Some(announcement) = engine.finish_announced(task, wait)? else {
            if self.data.is_none() {
                self.begin_receiving_data(engine, task, self.from)?;
            }
            if let Some(data) = self.data.take() {
                self.step = Step::Data(data);
            }
            return Ok(());
        };
        if let Some(data) = self.data.take() {
            self.buffer = engine.take_back(&data);
            if self.buffer.is_none() {
                // The buffer received data that no header announced. The end of the operation takes
                // it back.
                self.data = Some(data);
                let what = "data of a broadcast beside its announcement";
                return Err(engine.violation(wait.peer(), what));
            }
        }
        self.announce_on(engine, task, &announcement)?;
        let buffer = self.buffer.take().ok_or(Error::Cancelled)?;
        let (members, head) = (task.group().members(), task.head());
        let begun = {
            let inner = &mut engine.inner;
            let begun = inner.begin_receiving(members, head, &announcement, buffer);
            inner.work_on_multicasts();
            begun
        };
        engine.flush();
        match begun {
            Ok(()) => Ok(()),
            Err(buffer) => self.receive_from_root(engine, task, buffer),
        }
    }

    /// Receives the data by messages directly from the root, not through the tree.
    fn receive_from_root(
        &mut self,
        engine: &mut Engine,
        task: &Task,
        buffer: Buffer,
    ) -> Result<(), Error> {
        self.buffer = Some(buffer);
        let root = task.head().root;
        self.begin_receiving(engine, task, root)
    }

    /// Continues after the multicast. The root sends the data by messages to members that could not
    /// use multicast; such a member receives them.
    pub(super) fn finish_multicast(
        &mut self,
        engine: &mut Engine,
        task: &Task,
        wait: &MulticastWait,
    ) -> Result<(), Error> {
        let Some(ended) = engine.end_multicast(wait) else {
            return Ok(());
        };
        let Ended {
            buffer,
            direct,
            is_direct,
        } = ended;
        if is_direct {
            return self.receive_from_root(engine, task, buffer);
        }
        self.buffer = Some(buffer);
        let ranks = task.group().members().ranks();
        let places = (0..).zip(ranks).filter(|(_, rank)| direct.contains(rank));
        self.children = places.map(|(member, _)| member).collect();
        Ok(())
    }
}
