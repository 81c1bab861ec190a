// SPDX-License-Identifier: MIT OR Apache-2.0
//! The messages of collective operations, to and from the library's own ports, by the high lane, so
//! that a barrier does not wait behind the program's data.
//!
//! Data come with a head that says which operation they are of (P14.2). Whoever waits long tells whom
//! it waits for (P14.4), and whoever finds a failure tells all members (P14.5). The one invariant: no
//! wait here goes on when the group is broken.

use super::Group;
use super::{INBOX_LEN_MAX, Node};
use crate::buffer::{self, Buffer};
use crate::collective::{HEAD_LEN, Head, News};
use crate::engine::{Submitted, system_spec};
use crate::error::Error;
use crate::multicast::Announcement;
use crate::ops::{Completion, OpKind, Request};
use portolan_proto::{Cause, Instant, OpId, PeerId, PortId, Wanted};
use std::time::Duration;

/// How long a member waits for another before it tells that one what it waits in: longer than
/// members are apart in a healthy program, shorter than a person's patience.
pub(super) const TELL_AFTER: Duration = Duration::from_millis(100);

/// Bytes that travel in one message with their head; more come as a message of their own.
const INLINE_LEN_MAX: usize = INBOX_LEN_MAX - HEAD_LEN;

/// A collective operation that is under way in this process.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    group: Group,
    head: Head,
}

impl Task {
    pub(super) fn group(&self) -> &Group {
        &self.group
    }

    pub(super) fn head(&self) -> &Head {
        &self.head
    }

    fn port(&self) -> PortId {
        PortId::system(self.group.members().port(self.head.slot()))
    }

    fn group_id(&self) -> u16 {
        self.group.members().id()
    }

    pub(crate) fn is_inline(len: usize) -> bool {
        len <= INLINE_LEN_MAX
    }

    /// Head and data in one message.
    fn whole<'a>(&self, place: &'a mut [u8; INBOX_LEN_MAX], bytes: &[u8]) -> &'a [u8] {
        let len = HEAD_LEN + bytes.len();
        place[..HEAD_LEN].copy_from_slice(&self.head.to_bytes());
        place[HEAD_LEN..len].copy_from_slice(bytes);
        &place[..len]
    }
}

/// A wait for the end of one message's operation.
#[derive(Debug)]
pub(crate) struct Wait {
    op: OpId,
    peer: PeerId,
    /// When that peer is told, and whether it was.
    tell_at: Instant,
    told: bool,
}

impl Wait {
    /// For whom it waits.
    pub(super) fn peer(&self) -> PeerId {
        self.peer
    }
}

impl Node {
    /// Begins an operation of `group`: `call` says which.
    pub(crate) fn begin_task(&mut self, group: &Group, call: Head) -> Result<Task, Error> {
        let mut engine = self.engine.enter();
        let begun = engine.inner.begin_collective(group.members(), &call);
        engine.flush_if_wanted();
        Ok(Task {
            group: group.clone(),
            head: begun?,
        })
    }

    /// The operation has ended, well or with an error that all members are told of.
    pub(crate) fn end_task<T>(
        &mut self,
        task: &Task,
        result: Result<T, Error>,
    ) -> Result<T, Error> {
        let engine = &mut *self.engine.enter();
        let (inner, group) = (&mut engine.inner, task.group.members());
        inner.end_collective(group, &task.head);
        let result = match result {
            Ok(value) => inner.check_unread(group).map(|()| value),
            // One that heard of the first cause may be gone now: what it told before counts.
            Err(error) => Err(inner.check_whole(group.id()).err().unwrap_or(error)),
        };
        if let Err(error) = &result
            && !inner.is_broken(group.id())
        {
            let (rank, why) = blame(inner.rank(), error);
            inner.break_group(group.id(), rank, why);
        }
        engine.flush_if_wanted();
        result
    }

    /// [`Node::end_task`] for an operation that goes on unless `result` is an error.
    pub(crate) fn end_on_failure<T>(
        &mut self,
        task: &Task,
        result: Result<T, Error>,
    ) -> Result<T, Error> {
        match result {
            Err(_) => self.end_task(task, result),
            going_on => going_on,
        }
    }

    /// An error if the group is broken.
    pub(crate) fn check_whole(&mut self, task: &Task) -> Result<(), Error> {
        self.engine.enter().inner.check_whole(task.group_id())
    }

    fn wait_for(&mut self, op: OpId, peer: PeerId) -> Wait {
        Wait {
            op,
            peer,
            tell_at: self.engine.enter().inner.read_clock() + TELL_AFTER,
            told: false,
        }
    }

    /// Drives the engine until the operation of `wait` has ended, or `stop` says so: whether it has
    /// ended.
    pub(crate) fn wait_task(
        &mut self,
        task: &Task,
        wait: &mut Wait,
        stop: &dyn Fn() -> bool,
    ) -> Result<bool, Error> {
        loop {
            let (op, group) = (wait.op, task.group_id());
            let tell_at = (!wait.told).then_some(wait.tell_at);
            let engine = &mut *self.engine.enter();
            engine.inner.check_whole(group)?;
            self.waiter.until(engine, &[wait.peer], |inner| {
                inner.ops.is_done(op)
                    || inner.is_broken(group)
                    || stop()
                    || tell_at.is_some_and(|at| inner.last_look() >= at)
            });
            if engine.inner.ops.is_done(op) {
                return Ok(true);
            }
            engine.inner.check_whole(group)?;
            if !wait.told && engine.inner.last_look() >= wait.tell_at {
                wait.told = true;
                let head = task.head;
                engine.inner.tell(wait.peer, &News::Waiting { group, head });
                engine.inner.check_unread(task.group.members())?;
                engine.flush();
            }
            if stop() {
                // A program that polls finds out what a wait finds out.
                engine.look_from(Some(wait.peer));
                return Ok(false);
            }
        }
    }

    pub(super) fn peer_of(&self, task: &Task, member: u32) -> Result<PeerId, Error> {
        self.engine
            .look()
            .inner
            .check_rank(task.group.rank_of(member))
    }

    /// Sends `bytes` to `member`, and waits until they may be used again.
    pub(crate) fn send_data(
        &mut self,
        task: &Task,
        member: u32,
        bytes: &[u8],
    ) -> Result<(), Error> {
        let peer = self.peer_of(task, member)?;
        let mut place = [0; INBOX_LEN_MAX];
        if Task::is_inline(bytes.len()) {
            return self.send_message(task, peer, task.whole(&mut place, bytes));
        }
        self.send_message(task, peer, task.whole(&mut place, &[]))?;
        self.send_message(task, peer, bytes)
    }

    fn send_message(&mut self, task: &Task, peer: PeerId, bytes: &[u8]) -> Result<(), Error> {
        let spec = system_spec(task.port());
        let mut engine = self.engine.enter();
        if engine.send_direct(peer, &spec, bytes) {
            return Ok(());
        }
        if engine.inner.try_eager(peer, &spec, &[bytes])? == Submitted::Accepted {
            engine.flush();
            return Ok(());
        }
        // SAFETY: the guard takes the memory back before the borrow of `bytes` ends.
        let op = unsafe { engine.inner.ops.lent(OpKind::Send(peer), bytes) };
        engine.inner.submit_op(peer, spec, op);
        engine.flush();
        drop(engine);
        self.finish_data(task, op, peer).map(|_| ())
    }

    /// Waits for an operation on lent memory, which is taken back whatever happens.
    fn finish_data(&mut self, task: &Task, op: OpId, peer: PeerId) -> Result<usize, Error> {
        let guard = LentGuard { node: self, op };
        let mut wait = guard.node.wait_for(op, peer);
        guard.node.wait_task(task, &mut wait, &|| false)?;
        let done = guard.node.engine.enter().inner.ops.finish_lent(op);
        done.unwrap_or(Err(Error::StaleRequest))
            .map(|received| received.len)
    }

    /// Begins to send a copy of `bytes` to `member`; long ones must be waited for.
    pub(crate) fn begin_send(
        &mut self,
        task: &Task,
        member: u32,
        bytes: &[u8],
    ) -> Result<Option<Wait>, Error> {
        let peer = self.peer_of(task, member)?;
        self.begin_head(task, peer, bytes)?;
        if Task::is_inline(bytes.len()) {
            return Ok(None);
        }
        let copy = Buffer::from(buffer::gathered("a copy of a message", &[bytes])?);
        self.begin_payload(task, peer, copy).map(Some)
    }

    /// The same with `buffer`, which comes back at once or with the end of the wait.
    pub(crate) fn begin_send_buffer(
        &mut self,
        task: &Task,
        member: u32,
        buffer: Buffer,
    ) -> Result<Sending, Error> {
        let peer = self.peer_of(task, member)?;
        self.begin_head(task, peer, &buffer)?;
        if Task::is_inline(buffer.len()) {
            return Ok(Sending::Done(buffer));
        }
        self.begin_payload(task, peer, buffer)
            .map(Sending::UnderWay)
    }

    /// Sends a head with `inline` behind it to `member`.
    pub(crate) fn begin_short(
        &mut self,
        task: &Task,
        member: u32,
        inline: &[u8],
    ) -> Result<(), Error> {
        let peer = self.peer_of(task, member)?;
        self.begin_message(task, peer, inline)
    }

    fn begin_head(&mut self, task: &Task, peer: PeerId, bytes: &[u8]) -> Result<(), Error> {
        let is_inline = Task::is_inline(bytes.len());
        self.begin_message(task, peer, if is_inline { bytes } else { &[] })
    }

    fn begin_message(&mut self, task: &Task, peer: PeerId, inline: &[u8]) -> Result<(), Error> {
        let mut place = [0; INBOX_LEN_MAX];
        let message = task.whole(&mut place, inline);
        let engine = &mut *self.engine.enter();
        let spec = system_spec(task.port());
        let sent = engine.inner.send_copy_spec(peer, spec, message);
        engine.flush();
        sent
    }

    fn begin_payload(&mut self, task: &Task, peer: PeerId, buffer: Buffer) -> Result<Wait, Error> {
        let mut engine = self.engine.enter();
        let begun = engine
            .inner
            .isend_spec(peer, system_spec(task.port()), buffer);
        engine.flush();
        drop(engine);
        Ok(self.wait_for(begun?.0, peer))
    }

    /// Waits for what fills `into` from `member`.
    pub(crate) fn receive_data(
        &mut self,
        task: &Task,
        member: u32,
        into: &mut [u8],
    ) -> Result<(), Error> {
        let peer = self.peer_of(task, member)?;
        if !Task::is_inline(into.len()) {
            return self.receive_long(task, peer, into);
        }
        let mut place = [0; INBOX_LEN_MAX];
        let len = self.receive_message(task, peer, &mut place)?;
        self.take_inline(task, peer, &place[..len], into)
    }

    fn receive_message(
        &mut self,
        task: &Task,
        peer: PeerId,
        place: &mut [u8],
    ) -> Result<usize, Error> {
        let (port, source) = (task.port(), Some(peer));
        let mut engine = self.engine.enter();
        let wanted = Wanted::Port(port, source);
        if engine.inner.core.is_quiet(&wanted)
            && let Some(taken) = engine.recv_at_once(wanted, place, || false)
        {
            return Ok(taken.received.len);
        }
        let len = place.len() as u64;
        let inner = &mut engine.inner;
        // SAFETY: as in `send_message`; `place` is not used before the operation is done.
        let op = unsafe { inner.ops.lent_mut(OpKind::Recv { port, source }, place) };
        inner.core.post_recv(port, op, len, source);
        engine.drain();
        drop(engine);
        self.finish_data(task, op, peer)
    }

    /// Head and data come one behind the other, and a buffer is posted for each before: long data
    /// find their place when they come.
    fn receive_long(&mut self, task: &Task, peer: PeerId, into: &mut [u8]) -> Result<(), Error> {
        let mut head = self.post_head(task, peer)?;
        let (port, source) = (task.port(), Some(peer));
        let len = into.len() as u64;
        let mut engine = self.engine.enter();
        // SAFETY: as in `receive_message`.
        let op = unsafe {
            engine
                .inner
                .ops
                .lent_mut(OpKind::Recv { port, source }, into)
        };
        engine.inner.core.post_recv(port, op, len, source);
        drop(engine);
        let guard = LentGuard { node: self, op };
        guard.node.engine.enter().drain();
        guard.node.finish_head(task, &mut head)?;
        let node = &mut *guard.node;
        let got = node.finish_data(task, op, peer)?;
        node.check_len(peer, got as u64, len)
    }

    /// Waits for a head alone and checks it.
    fn finish_head(&mut self, task: &Task, wait: &mut Wait) -> Result<(), Error> {
        let waited = self.wait_task(task, wait, &|| false);
        if waited.is_err() {
            self.give_up(wait);
        }
        waited?;
        let message = self.finish_message(wait)?;
        self.take_inline(task, wait.peer, &message, &mut [])
    }

    /// Posts a buffer for a head, and what short data come with it.
    pub(crate) fn post_head(&mut self, task: &Task, peer: PeerId) -> Result<Wait, Error> {
        self.post_data(task, peer, Buffer::from(vec![0; INBOX_LEN_MAX]))
    }

    /// The same by the place of the sender in the group.
    pub(crate) fn post_head_of(&mut self, task: &Task, member: u32) -> Result<Wait, Error> {
        let peer = self.peer_of(task, member)?;
        self.post_head(task, peer)
    }

    /// Posts a buffer for long data, behind that for their head.
    pub(crate) fn post_data_of(
        &mut self,
        task: &Task,
        member: u32,
        buffer: Buffer,
    ) -> Result<Option<Wait>, Error> {
        let peer = self.peer_of(task, member)?;
        self.post_data(task, peer, buffer).map(Some)
    }

    fn post_data(&mut self, task: &Task, peer: PeerId, buffer: Buffer) -> Result<Wait, Error> {
        let mut engine = self.engine.enter();
        let posted = engine.inner.post_recv(task.port(), buffer, Some(peer))?;
        engine.drain();
        drop(engine);
        Ok(self.wait_for(posted.0, peer))
    }

    /// What a finished wait has brought.
    pub(crate) fn finish_wait(&mut self, wait: &Wait) -> Result<Completion, Error> {
        self.wait(Request(wait.op))
    }

    fn finish_message(&mut self, wait: &Wait) -> Result<Vec<u8>, Error> {
        let done = self.finish_wait(wait)?;
        let mut message = done.buffer.map(Buffer::into_vec).unwrap_or_default();
        message.truncate(done.len);
        Ok(message)
    }

    /// Takes short data out of the message that a finished wait for a head has brought.
    pub(crate) fn finish_inline(
        &mut self,
        task: &Task,
        wait: &Wait,
        into: &mut [u8],
    ) -> Result<(), Error> {
        let message = self.finish_message(wait)?;
        self.take_inline(task, wait.peer, &message, into)
    }

    /// What is behind the head of long data that a finished wait for it has brought: nothing, or an
    /// announcement that they come by multicast.
    pub(crate) fn finish_announced(
        &mut self,
        task: &Task,
        wait: &Wait,
    ) -> Result<Option<Announcement>, Error> {
        let message = self.finish_message(wait)?;
        let behind = self.check_head(task, wait.peer, &message)?;
        if behind.is_empty() {
            return Ok(None);
        }
        let announcement = Announcement::parse(behind);
        let what = "a broadcast's announcement that is none";
        let violation = || self.violation(wait.peer, what);
        announcement.map(Some).ok_or_else(violation)
    }

    fn take_inline(
        &mut self,
        task: &Task,
        peer: PeerId,
        message: &[u8],
        into: &mut [u8],
    ) -> Result<(), Error> {
        let data = self.check_head(task, peer, message)?;
        self.check_len(peer, data.len() as u64, into.len() as u64)?;
        into.copy_from_slice(data);
        Ok(())
    }

    /// What is behind the head of a message, which must be that of `task`.
    fn check_head<'a>(
        &mut self,
        task: &Task,
        peer: PeerId,
        message: &'a [u8],
    ) -> Result<&'a [u8], Error> {
        let Some(theirs) = Head::parse(message) else {
            return Err(self.violation(peer, "a collective operation's data without a head"));
        };
        let group = task.group_id();
        let (theirs, own) = (&theirs, &task.head);
        self.engine
            .enter()
            .inner
            .check_data(group, peer, theirs, own)?;
        Ok(&message[HEAD_LEN..])
    }

    fn check_len(&self, peer: PeerId, got: u64, announced: u64) -> Result<(), Error> {
        if got == announced {
            return Ok(());
        }
        Err(self.violation(
            peer,
            "a collective operation's data of another length than its head says",
        ))
    }

    pub(super) fn violation(&self, peer: PeerId, what: &'static str) -> Error {
        self.engine
            .look()
            .inner
            .gone_error(peer, Cause::Violation(what))
    }

    /// Withdraws a receive to which nothing comes, and gives its buffer back.
    pub(crate) fn take_back(&mut self, wait: &Wait) -> Option<Buffer> {
        let inner = &mut self.engine.enter().inner;
        let is_withdrawn = inner.withdraw(wait.op);
        is_withdrawn.then(|| inner.ops.reclaim(wait.op)).flatten()
    }

    /// Withdraws an operation whose end nobody waits for any more.
    pub(crate) fn give_up(&mut self, wait: &Wait) {
        self.engine.enter().inner.give_up_op(wait.op);
    }
}

/// Takes lent memory back if the wait for its operation ends early.
struct LentGuard<'a> {
    node: &'a mut Node,
    op: OpId,
}

impl Drop for LentGuard<'_> {
    fn drop(&mut self) {
        self.node.engine.enter().inner.take_back(self.op);
    }
}

/// A send that has begun.
pub(crate) enum Sending {
    Done(Buffer),
    UnderWay(Wait),
}

/// Whom the other members are told to be gone, and why, when an operation has failed with `error` at
/// rank `me`.
fn blame(me: u32, error: &Error) -> (u32, String) {
    match error {
        Error::PeerGone { rank, reason, .. } => (*rank, reason.to_string()),
        Error::NoPath { rank, .. } | Error::NoAnswer { rank, .. } => (*rank, error.to_string()),
        other => (me, other.to_string()),
    }
}
