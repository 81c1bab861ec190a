// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages of collective operations, between ports of the library, on the high lane, so that a
//! barrier does not wait behind the program's data.
//!
//! A header before the data names their operation (P14.2). A member that waits long notifies the
//! member that it waits for (P14.4). A member that detects a failure notifies all members (P14.5).
//! The one invariant: no wait here continues when the group is broken.

use super::Group;
use super::{INBOX_LEN_MAX, Node};
use crate::buffer::{self, Buffer};
use crate::collective::{GroupNotice, HEAD_LEN, Head, Layout};
use crate::engine::{Awaited, Engine, Submitted, system_spec};
use crate::error::Error;
use crate::multicast::Announcement;
use crate::ops::{Completion, Failed, OpKind};
use portolan_proto::{Cause, Instant, NotTaken, OpId, PeerId, PortId};
use std::borrow::Cow;
use std::time::Duration;

/// Time after which a member notifies the member that it waits for. Longer than members of a
/// healthy program are apart, and shorter than a user's patience.
pub(super) const NOTIFY_AFTER: Duration = Duration::from_millis(100);

/// Bytes that fit one message with their header. Longer data are a message of their own.
const INLINE_LEN_MAX: usize = INBOX_LEN_MAX - HEAD_LEN;

/// Bytes of a message with a few values. Its memory takes less time to prepare.
const SHORT_LEN_MAX: usize = 128;

/// A pending collective operation of this process.
#[derive(Debug)]
pub(crate) struct Task<'a> {
    group: Cow<'a, Group>,
    head: Head,
    /// Encoded `head`.
    bytes: [u8; HEAD_LEN],
}

impl Task<'_> {
    /// Returns the task with a copy of its group instead of a reference.
    pub(super) fn into_owned(self) -> Task<'static> {
        Task {
            group: Cow::Owned(self.group.into_owned()),
            ..self
        }
    }

    pub(super) fn group(&self) -> &Group {
        &self.group
    }

    pub(super) fn head(&self) -> &Head {
        &self.head
    }

    /// Returns the rank of the root.
    pub(super) fn root_rank(&self) -> u32 {
        self.group.rank_of(self.head.root)
    }

    fn port(&self) -> PortId {
        PortId::system(self.group.members().port(self.head.slot()))
    }

    fn group_id(&self) -> u16 {
        self.group.members().id()
    }

    /// Describes a wait for `peer`, or for members, for people.
    pub(super) fn awaited(&self, peer: Option<PeerId>) -> Awaited {
        Awaited::Member {
            group: self.group_id(),
            call: self.head.call(),
            seq: self.head.seq,
            peer,
        }
    }

    pub(crate) fn is_inline(len: usize) -> bool {
        len <= INLINE_LEN_MAX
    }

    /// Builds the message with these data.
    fn message<'a>(&self, layout: Layout, bytes: &[u8], place: &'a mut [u8]) -> &'a [u8] {
        layout.write(&self.bytes, bytes.len(), bytes, place)
    }
}

/// A wait for the completion of one message's operation.
#[derive(Debug)]
pub(crate) struct Wait {
    op: OpId,
    peer: PeerId,
    /// Time at which that peer is notified.
    notify_at: Instant,
    notified: bool,
}

impl Wait {
    /// Returns the peer that it waits for.
    pub(super) fn peer(&self) -> PeerId {
        self.peer
    }
}

impl Node {
    /// Drives the engine until the operation of `wait` has ended.
    pub(crate) fn wait_task(&mut self, task: &Task, wait: &mut Wait) -> Result<(), Error> {
        loop {
            let (op, group) = (wait.op, task.group_id());
            let notify_at = (!wait.notified).then_some(wait.notify_at);
            let engine = &mut *self.engine.enter();
            engine.inner.check_intact(group)?;
            let awaited = task.awaited(Some(wait.peer));
            self.waiter.until(engine, &[wait.peer], awaited, |inner| {
                inner.ops.is_done(op)
                    || inner.is_broken(group)
                    || notify_at.is_some_and(|at| inner.last_clock_read() >= at)
            });
            if engine.inner.ops.is_done(op) {
                return Ok(());
            }
            engine.inner.check_intact(group)?;
            if !wait.notified && engine.inner.last_clock_read() >= wait.notify_at {
                wait.notified = true;
                engine.notify_waiting(task, &[wait.peer])?;
            }
        }
    }

    /// Sends `bytes` to `member`, and waits until the caller may reuse them.
    pub(crate) fn send_data(
        &mut self,
        task: &Task,
        member: u32,
        bytes: &[u8],
    ) -> Result<(), Error> {
        if Task::is_inline(bytes.len()) {
            return self.send_inline(task, member, Layout::Whole, bytes);
        }
        self.send_inline(task, member, Layout::Whole, &[])?;
        let peer = self.engine.enter().peer_of(task, member)?;
        self.send_queued(task, peer, bytes)
    }

    /// Sends a head with data in one message.
    pub(super) fn send_inline(
        &mut self,
        task: &Task,
        member: u32,
        layout: Layout,
        bytes: &[u8],
    ) -> Result<(), Error> {
        let (mut short, mut long);
        let place = match layout.message_len(bytes.len()) <= SHORT_LEN_MAX {
            true => {
                short = [0; SHORT_LEN_MAX];
                &mut short[..]
            }
            false => {
                long = [0; INBOX_LEN_MAX];
                &mut long[..]
            }
        };
        let message = task.message(layout, bytes, place);
        let mut engine = self.engine.enter();
        let peer = engine.peer_of(task, member)?;
        if engine.send_direct(peer, &system_spec(task.port()), message) {
            return Ok(());
        }
        drop(engine);
        self.send_queued(task, peer, message)
    }

    /// Starts to send a copy of `bytes` to `member`; long ones must be waited for.
    pub(super) fn begin_data(
        &mut self,
        task: &Task,
        member: u32,
        bytes: &[u8],
    ) -> Result<Option<Wait>, Error> {
        let engine = &mut *self.engine.enter();
        let layout = Layout::Whole;
        if layout.message_len(bytes.len()) <= SHORT_LEN_MAX {
            let peer = engine.peer_of(task, member)?;
            let mut place = [0; SHORT_LEN_MAX];
            let message = task.message(layout, bytes, &mut place);
            if engine.send_direct(peer, &system_spec(task.port()), message) {
                return Ok(None);
            }
        }
        engine.begin_send(task, member, bytes)
    }

    /// Sends a message that may have to wait for earlier ones.
    #[inline(never)]
    fn send_queued(&mut self, task: &Task, peer: PeerId, bytes: &[u8]) -> Result<(), Error> {
        let spec = system_spec(task.port());
        let mut engine = self.engine.enter();
        if engine.inner.try_eager(peer, &spec, &[bytes])? == Submitted::Accepted {
            engine.flush();
            return Ok(());
        }
        // SAFETY: the guard takes the memory back before the borrow of `bytes` ends.
        let op = unsafe { engine.inner.ops.borrowed(OpKind::Send(peer), bytes) };
        engine.inner.submit_op(peer, spec, op);
        engine.flush();
        drop(engine);
        self.finish_data(task, op, peer).map(|_| ())
    }

    /// Waits for an operation on the caller's memory, and always detaches the memory.
    fn finish_data(&mut self, task: &Task, op: OpId, peer: PeerId) -> Result<usize, Error> {
        let guard = BorrowGuard { node: self, op };
        let mut wait = guard.node.engine.enter().begin_wait(op, peer);
        guard.node.wait_task(task, &mut wait)?;
        let done = guard.node.engine.enter().inner.ops.finish_borrowed(op);
        done.unwrap_or(Err(Error::StaleRequest))
            .map(|received| received.len)
    }

    /// Waits for the data of `member` that fill `into`.
    pub(crate) fn receive_data(
        &mut self,
        task: &Task,
        member: u32,
        into: &mut [u8],
    ) -> Result<(), Error> {
        match Task::is_inline(into.len()) {
            true => self.receive_inline(task, member, Layout::Whole, into),
            false => self.receive_long(task, member, into),
        }
    }

    /// Waits for data that fill `into`, in one message with their head.
    pub(super) fn receive_inline(
        &mut self,
        task: &Task,
        member: u32,
        layout: Layout,
        into: &mut [u8],
    ) -> Result<(), Error> {
        let mut engine = self.engine.enter();
        let peer = engine.peer_of(task, member)?;
        if layout.message_len(into.len()) <= SHORT_LEN_MAX {
            let mut place = [0; SHORT_LEN_MAX];
            if let Some(len) = engine.receive_soon(task, peer, &mut place) {
                return engine.take_inline(task, peer, layout, &place[..len], into);
            }
        }
        drop(engine);
        // A message of another operation may be longer.
        let mut place = [0; INBOX_LEN_MAX];
        let len = self.receive_message(task, peer, &mut place)?;
        let engine = &mut *self.engine.enter();
        engine.take_inline(task, peer, layout, &place[..len], into)
    }

    fn receive_message(
        &mut self,
        task: &Task,
        peer: PeerId,
        place: &mut [u8],
    ) -> Result<usize, Error> {
        let (port, source) = (task.port(), Some(peer));
        let mut engine = self.engine.enter();
        if let Some(len) = engine.receive_soon(task, peer, place) {
            return Ok(len);
        }
        let len = place.len() as u64;
        let inner = &mut engine.inner;
        // SAFETY: as in `send_queued`; `place` is not used before the operation is complete.
        let op = unsafe { inner.ops.borrowed_mut(OpKind::Recv { port, source }, place) };
        inner.core.post_recv(port, op, len, source);
        engine.drain();
        drop(engine);
        self.finish_data(task, op, peer)
    }

    /// Receives long data. Header and data arrive in order, and a buffer for each is posted in
    /// advance, so that long data are received directly into their place.
    fn receive_long(&mut self, task: &Task, member: u32, into: &mut [u8]) -> Result<(), Error> {
        let mut engine = self.engine.enter();
        let peer = engine.peer_of(task, member)?;
        let mut head = engine.post_head(task, peer)?;
        let (port, source) = (task.port(), Some(peer));
        let len = into.len() as u64;
        // SAFETY: as in `receive_message`.
        let op = unsafe {
            engine
                .inner
                .ops
                .borrowed_mut(OpKind::Recv { port, source }, into)
        };
        engine.inner.core.post_recv(port, op, len, source);
        drop(engine);
        let guard = BorrowGuard { node: self, op };
        guard.node.engine.enter().drain();
        guard.node.finish_head(task, &mut head)?;
        let node = &mut *guard.node;
        let got = node.finish_data(task, op, peer)?;
        node.engine.enter().check_len(peer, got as u64, len)
    }

    /// Waits for a header without data and checks it.
    fn finish_head(&mut self, task: &Task, wait: &mut Wait) -> Result<(), Error> {
        let waited = self.wait_task(task, wait);
        let engine = &mut *self.engine.enter();
        if waited.is_err() {
            engine.give_up_wait(wait);
        }
        waited?;
        engine.finish_inline(task, wait, &mut [])
    }
}

impl Engine {
    /// Receives the next message of `peer` if it is here, or arrives within the first turns, and
    /// fits `place`.
    #[inline]
    fn receive_soon(&mut self, task: &Task, peer: PeerId, place: &mut [u8]) -> Option<usize> {
        let (port, source) = (task.port(), Some(peer));
        match self.take_held(port, source, place) {
            Ok(received) => {
                self.leave_to_caller();
                Some(received.len)
            }
            Err(NotTaken::Nothing) => {
                let received = self.recv_next(port, source, place, || false);
                received.map(|received| received.len)
            }
            Err(NotTaken::Other) => None,
        }
    }

    /// Returns whether the operation of `wait` has ended, without waiting. Notifies the member that
    /// has been waited for for long.
    pub(super) fn poll_task(&mut self, task: &Task, wait: &mut Wait) -> Result<bool, Error> {
        self.inner.check_intact(task.group_id())?;
        if self.inner.ops.is_done(wait.op) {
            return Ok(true);
        }
        if !wait.notified && self.inner.last_clock_read() >= wait.notify_at {
            wait.notified = true;
            self.notify_waiting(task, &[wait.peer])?;
        }
        self.watch_background(wait.peer);
        Ok(false)
    }

    /// Notifies members that this process waits for them.
    pub(super) fn notify_waiting(&mut self, task: &Task, peers: &[PeerId]) -> Result<(), Error> {
        let (group, head) = (task.group_id(), task.head);
        for peer in peers {
            let notice = GroupNotice::Waiting { group, head };
            self.inner.send_notice(*peer, &notice);
        }
        self.inner.check_unread(task.group.members())?;
        self.flush();
        Ok(())
    }

    /// Takes the memory of an operation that is no longer waited for.
    pub(super) fn take_memory(&mut self, wait: &Wait) -> Option<Buffer> {
        match self.inner.ops.is_done(wait.op) || self.inner.withdraw(wait.op) {
            true => self.inner.ops.reclaim(wait.op),
            false => self.inner.ops.detach(wait.op),
        }
    }

    /// Begins the operation of `group` that `call` describes. Queued operations come first.
    pub(crate) fn begin_task<'a>(
        &mut self,
        group: &'a Group,
        call: Head,
    ) -> Result<Task<'a>, Error> {
        let id = group.members().id();
        match self.inner.has_queue(id) {
            true => Err(Error::GroupBusy { group: id }),
            false => self.begin_task_now(group, call),
        }
    }

    /// Begins an operation like [`Engine::begin_task`], ahead of queued ones.
    pub(super) fn begin_task_now<'a>(
        &mut self,
        group: &'a Group,
        call: Head,
    ) -> Result<Task<'a>, Error> {
        let begun = self.inner.begin_collective(group.members(), &call);
        self.flush_if_wanted();
        let head = begun?;
        Ok(Task {
            group: Cow::Borrowed(group),
            head,
            bytes: head.to_bytes(),
        })
    }

    /// Ends the operation; notifies all members if it ended with an error.
    pub(crate) fn end_task<T>(
        &mut self,
        task: &Task,
        result: Result<T, Error>,
    ) -> Result<T, Error> {
        let (inner, group) = (&mut self.inner, task.group.members());
        inner.end_collective(group, &task.head);
        let result = match result {
            Ok(value) => inner.check_next_unread(group).map(|()| value),
            // A member that reported the first cause may have ended since. Its report counts first.
            Err(error) => Err(inner.check_intact(group.id()).err().unwrap_or(error)),
        };
        if let Err(error) = &result
            && !inner.is_broken(group.id())
        {
            let (rank, why) = failed_member(inner.rank(), error);
            inner.break_group(group.id(), rank, why);
        }
        self.flush_if_wanted();
        result
    }

    /// Returns an error if the group is broken.
    pub(crate) fn check_intact(&mut self, task: &Task) -> Result<(), Error> {
        self.inner.check_intact(task.group_id())
    }

    fn begin_wait(&mut self, op: OpId, peer: PeerId) -> Wait {
        Wait {
            op,
            peer,
            notify_at: self.inner.read_clock() + NOTIFY_AFTER,
            notified: false,
        }
    }

    pub(super) fn peer_of(&self, task: &Task, member: u32) -> Result<PeerId, Error> {
        self.inner.check_rank(task.group.rank_of(member))
    }

    /// Starts to send a copy of `bytes` to `member`; long ones must be waited for.
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

    /// Starts a nonblocking send of `buffer`, which is returned at once or at the end of the wait.
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

    /// Starts to send `buffer` to `member`. Long data are taken out of it until the end of the wait.
    pub(crate) fn begin_send_from(
        &mut self,
        task: &Task,
        member: u32,
        buffer: &mut Option<Buffer>,
    ) -> Result<Option<Wait>, Error> {
        let peer = self.peer_of(task, member)?;
        self.begin_head(task, peer, buffer.as_deref().unwrap_or(&[]))?;
        match buffer.take_if(|buffer| !Task::is_inline(buffer.len())) {
            Some(long) => self.begin_payload(task, peer, long).map(Some),
            None => Ok(None),
        }
    }

    /// Starts a nonblocking send of a header with `inline` data to `member`.
    pub(crate) fn begin_short(
        &mut self,
        task: &Task,
        member: u32,
        inline: &[u8],
    ) -> Result<(), Error> {
        let peer = self.peer_of(task, member)?;
        let mut place = [0; INBOX_LEN_MAX];
        self.begin_message(task, peer, task.message(Layout::Whole, inline, &mut place))
    }

    /// Starts to send a part of an operation's data, with their length behind the head. Data that do
    /// not fit are sent from `long`, a buffer with the same bytes.
    pub(super) fn begin_part(
        &mut self,
        task: &Task,
        member: u32,
        bytes: &[u8],
        long: Option<Buffer>,
    ) -> Result<Option<Wait>, Error> {
        let peer = self.peer_of(task, member)?;
        let inline = if long.is_some() { &[] } else { bytes };
        let mut place = [0; INBOX_LEN_MAX];
        let message = Layout::Part.write(&task.bytes, bytes.len(), inline, &mut place);
        self.begin_message(task, peer, message)?;
        long.map(|long| self.begin_payload(task, peer, long))
            .transpose()
    }

    /// Checks the head of a part of `len` bytes after the wait for it, and copies its data if they
    /// are expected in the same message.
    pub(super) fn finish_part(
        &mut self,
        task: &Task,
        wait: &Wait,
        len: usize,
        inline: Option<&mut [u8]>,
    ) -> Result<(), Error> {
        let message = self.finish_message(wait)?;
        let into = inline.unwrap_or(&mut []);
        self.take_message(task, wait.peer, (Layout::Part, len), &message, into)
    }

    fn begin_head(&mut self, task: &Task, peer: PeerId, bytes: &[u8]) -> Result<(), Error> {
        let is_inline = Task::is_inline(bytes.len());
        let inline = if is_inline { bytes } else { &[] };
        let mut place = [0; INBOX_LEN_MAX];
        self.begin_message(task, peer, task.message(Layout::Whole, inline, &mut place))
    }

    fn begin_message(&mut self, task: &Task, peer: PeerId, message: &[u8]) -> Result<(), Error> {
        let spec = system_spec(task.port());
        let sent = self.inner.send_copy_spec(peer, spec, message);
        self.flush();
        sent
    }

    fn begin_payload(&mut self, task: &Task, peer: PeerId, buffer: Buffer) -> Result<Wait, Error> {
        let spec = system_spec(task.port());
        let begun = self.inner.isend_spec(peer, spec, buffer);
        self.flush();
        Ok(self.begin_wait(begun?.0, peer))
    }

    /// Posts a buffer for a header with short data.
    pub(crate) fn post_head(&mut self, task: &Task, peer: PeerId) -> Result<Wait, Error> {
        self.post_data(task, peer, Buffer::from(vec![0; INBOX_LEN_MAX]))
    }

    /// Posts a buffer for a header, by the sender's index in the group.
    pub(crate) fn post_head_of(&mut self, task: &Task, member: u32) -> Result<Wait, Error> {
        let peer = self.peer_of(task, member)?;
        self.post_head(task, peer)
    }

    /// Posts a buffer for long data, after the one for their header.
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
        let posted = self.inner.post_recv(task.port(), buffer, Some(peer))?;
        self.drain();
        Ok(self.begin_wait(posted.0, peer))
    }

    /// Returns the completion of a finished wait.
    pub(crate) fn finish_wait(&mut self, wait: &Wait) -> Result<Completion, Error> {
        self.finish_with_buffer(wait).map_err(Error::from)
    }

    /// Returns the completion of a finished wait, with the buffer even after a failure.
    pub(super) fn finish_with_buffer(&mut self, wait: &Wait) -> Result<Completion, Failed> {
        let done = self.inner.ops.finish(wait.op);
        done.unwrap_or_else(|| Err(self.inner.stale().into()))
    }

    fn finish_message(&mut self, wait: &Wait) -> Result<Vec<u8>, Error> {
        let done = self.finish_wait(wait)?;
        let mut message = done.buffer.map(Buffer::into_vec).unwrap_or_default();
        message.truncate(done.len);
        Ok(message)
    }

    /// Copies short data from the message of a finished wait for a header.
    pub(crate) fn finish_inline(
        &mut self,
        task: &Task,
        wait: &Wait,
        into: &mut [u8],
    ) -> Result<(), Error> {
        let message = self.finish_message(wait)?;
        self.take_inline(task, wait.peer, Layout::Whole, &message, into)
    }

    /// Returns what follows the header of long data after a finished wait for it: nothing, or an
    /// announcement that the data use multicast.
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
        let what = "malformed announcement of a broadcast";
        let violation = || self.violation(wait.peer, what);
        announcement.map(Some).ok_or_else(violation)
    }

    /// Checks a message, and copies its data, which must fill `into`.
    #[inline]
    fn take_inline(
        &mut self,
        task: &Task,
        peer: PeerId,
        layout: Layout,
        message: &[u8],
        into: &mut [u8],
    ) -> Result<(), Error> {
        self.take_message(task, peer, (layout, into.len()), message, into)
    }

    /// Checks a message about `len` bytes of data, and copies those that it contains.
    #[inline]
    fn take_message(
        &mut self,
        task: &Task,
        peer: PeerId,
        (layout, len): (Layout, usize),
        message: &[u8],
        into: &mut [u8],
    ) -> Result<(), Error> {
        let behind = self.check_head(task, peer, message)?;
        let Some((theirs, data)) = layout.split(len, behind) else {
            return Err(self.violation(peer, "part of a collective operation without length"));
        };
        let lens = (theirs, len as u64);
        (self.inner).check_part(task.group_id(), peer, &task.head, lens)?;
        self.check_len(peer, data.len() as u64, into.len() as u64)?;
        into.copy_from_slice(data);
        Ok(())
    }

    /// Returns the bytes after the header of a message. The header must belong to `task`.
    fn check_head<'a>(
        &mut self,
        task: &Task,
        peer: PeerId,
        message: &'a [u8],
    ) -> Result<&'a [u8], Error> {
        if Head::begins(message, &task.bytes) {
            return Ok(&message[HEAD_LEN..]);
        }
        let Some(theirs) = Head::parse(message) else {
            return Err(self.violation(peer, "data of a collective operation without a header"));
        };
        let group = task.group_id();
        let (theirs, own) = (&theirs, &task.head);
        self.inner.check_data(group, peer, theirs, own)?;
        Ok(&message[HEAD_LEN..])
    }

    pub(super) fn check_len(&self, peer: PeerId, got: u64, announced: u64) -> Result<(), Error> {
        if got == announced {
            return Ok(());
        }
        Err(self.violation(
            peer,
            "data of a collective operation with a length other than its header's",
        ))
    }

    pub(super) fn violation(&self, peer: PeerId, what: &'static str) -> Error {
        self.inner.peer_error(peer, Cause::Violation(what))
    }

    /// Cancels a receive without a message and returns its buffer.
    pub(crate) fn take_back(&mut self, wait: &Wait) -> Option<Buffer> {
        let inner = &mut self.inner;
        let is_withdrawn = inner.withdraw(wait.op);
        is_withdrawn.then(|| inner.ops.reclaim(wait.op)).flatten()
    }

    /// Cancels an operation that is no longer waited for.
    pub(crate) fn give_up_wait(&mut self, wait: &Wait) {
        self.inner.give_up_op(wait.op);
    }
}

/// Detaches the caller's memory if the wait for its operation ends early.
struct BorrowGuard<'a> {
    node: &'a mut Node,
    op: OpId,
}

impl Drop for BorrowGuard<'_> {
    fn drop(&mut self) {
        self.node.engine.enter().inner.take_back(self.op);
    }
}

/// A started send.
pub(crate) enum Sending {
    Done(Buffer),
    UnderWay(Wait),
}

/// Returns the rank to report as dead to the other members, and the reason, after an operation
/// failed with `error` at rank `me`.
fn failed_member(me: u32, error: &Error) -> (u32, String) {
    match error {
        Error::PeerGone { rank, reason, .. } => (*rank, reason.to_string()),
        Error::NoPath { rank, .. } | Error::NoAnswer { rank, .. } => (*rank, error.to_string()),
        other => (me, other.to_string()),
    }
}
