// SPDX-License-Identifier: MIT OR Apache-2.0
//! Non-blocking barrier and broadcast, as state machines.
#![allow(
    unsafe_code,
    reason = "a broadcast passes its slice to an operation; see `ops`"
)]

use super::multicast::MulticastWait;
use super::{Group, Node, check_root};
use crate::buffer::Buffer;
use crate::collective::{CollectiveKind, Head};
use crate::engine::Engine;
use crate::error::Error;
use crate::node::running::{Machine, RequestGuard};
use crate::node::{Task, Wait};
use crate::ops::Request;
use portolan_proto::group::{
    barrier_partners, barrier_rounds, broadcast_children, broadcast_parent,
};

/// A pending barrier.
#[derive(Default)]
struct Barrier {
    round: u32,
    /// Wait for the message of the preceding member; `None` between two rounds.
    waiting: Option<Wait>,
}

impl Machine for Barrier {
    fn step(&mut self, engine: &mut Engine, task: &Task) -> Result<Option<Buffer>, Error> {
        let (own, size) = (task.group().rank(), task.group().size());
        loop {
            match &mut self.waiting {
                Some(waiting) => {
                    if !engine.poll_task(task, waiting)? {
                        return Ok(None);
                    }
                    if let Some(done) = self.waiting.take() {
                        engine.finish_inline(task, &done, &mut [])?;
                    }
                    self.round += 1;
                }
                None => engine.check_intact(task)?,
            }
            if self.round == barrier_rounds(size) {
                return Ok(Some(Buffer::from(Vec::new())));
            }
            let (to, from) = barrier_partners(own, size, self.round);
            self.waiting = Some(engine.post_head_of(task, from)?);
            engine.begin_send(task, to, &[])?;
        }
    }

    fn give_up(&mut self, engine: &mut Engine) -> Option<Buffer> {
        if let Some(waiting) = self.waiting.take() {
            engine.give_up_wait(&waiting);
        }
        None
    }
}

/// A pending broadcast.
pub(super) struct Broadcast {
    /// Members to send to, in reverse order.
    pub(super) children: Vec<u32>,
    pub(super) step: Step,
    /// Wait for long data that follow their header.
    pub(super) data: Option<Wait>,
    pub(super) buffer: Option<Buffer>,
    /// Member that sends to this one.
    pub(super) from: u32,
}

/// State of a broadcast.
pub(super) enum Step {
    Begin,
    /// The data are here.
    Pass,
    Head(Wait),
    Data(Wait),
    Send(Wait),
    Multicast(MulticastWait),
}

impl Broadcast {
    fn new(group: &Group, root: u32, buffer: Buffer) -> Broadcast {
        let children = broadcast_children(group.rank(), root, group.size());
        let mut children: Vec<u32> = children.collect();
        children.reverse();
        Broadcast {
            children,
            step: Step::Begin,
            data: None,
            buffer: Some(buffer),
            from: root,
        }
    }

    fn begin(&mut self, engine: &mut Engine, task: &Task) -> Result<(), Error> {
        let (own, size) = (task.group().rank(), task.group().size());
        self.step = Step::Pass;
        match broadcast_parent(own, task.head().root, size) {
            Some(parent) => self.begin_receiving(engine, task, parent),
            None => self.begin_multicast(engine, task),
        }
    }

    pub(super) fn begin_receiving(
        &mut self,
        engine: &mut Engine,
        task: &Task,
        parent: u32,
    ) -> Result<(), Error> {
        self.step = Step::Head(engine.post_head_of(task, parent)?);
        self.from = parent;
        // The next message may be the header of a later broadcast.
        if engine.may_be_announced(task.group(), task.head()) {
            return Ok(());
        }
        self.begin_receiving_data(engine, task, parent)
    }

    /// Posts the buffer for long data, so that they are received directly into their place.
    pub(super) fn begin_receiving_data(
        &mut self,
        engine: &mut Engine,
        task: &Task,
        parent: u32,
    ) -> Result<(), Error> {
        let is_long = |buffer: &mut Buffer| !Task::is_inline(buffer.len());
        if let Some(buffer) = self.buffer.take_if(is_long) {
            self.data = engine.post_data_of(task, parent, buffer)?;
        }
        Ok(())
    }

    /// Handles a received header, with the data if they are short.
    fn take_head(&mut self, engine: &mut Engine, task: &Task, wait: &Wait) -> Result<(), Error> {
        let len = usize::try_from(task.head().len).unwrap_or(usize::MAX);
        if !Task::is_inline(len) {
            return self.take_long_head(engine, task, wait);
        }
        let place = match &mut self.buffer {
            Some(buffer) => buffer.as_mut_slice().unwrap_or(&mut []),
            None => &mut [],
        };
        engine.finish_inline(task, wait, place)
    }

    /// Sends the data to the next child. Returns the buffer if there is none.
    fn pass_on(&mut self, engine: &mut Engine, task: &Task) -> Result<Option<Buffer>, Error> {
        let Some(child) = self.children.pop() else {
            return self.buffer.take().ok_or(Error::Cancelled).map(Some);
        };
        match engine.begin_send_from(task, child, &mut self.buffer)? {
            Some(wait) => self.step = Step::Send(wait),
            None => self.step = Step::Pass,
        }
        Ok(None)
    }

    /// Takes the buffer back from an operation that has ended, even if it has failed.
    fn take_buffer(&mut self, engine: &mut Engine, wait: &Wait) -> Result<(), Error> {
        let (result, done) = match engine.finish_with_buffer(wait) {
            Ok(done) => (Ok(()), done),
            Err(failed) => {
                let (error, done) = failed.into_parts();
                (Err(error), done)
            }
        };
        self.buffer = done.buffer;
        result
    }
}

impl Machine for Broadcast {
    fn step(&mut self, engine: &mut Engine, task: &Task) -> Result<Option<Buffer>, Error> {
        loop {
            let has_ended = match &mut self.step {
                Step::Head(wait) | Step::Data(wait) | Step::Send(wait) => {
                    engine.poll_task(task, wait)?
                }
                Step::Multicast(wait) => engine.poll_multicast(task, wait)?,
                Step::Begin | Step::Pass => true,
            };
            if !has_ended {
                return Ok(None);
            }
            match std::mem::replace(&mut self.step, Step::Pass) {
                Step::Begin => self.begin(engine, task)?,
                Step::Head(wait) => self.take_head(engine, task, &wait)?,
                Step::Data(wait) | Step::Send(wait) => self.take_buffer(engine, &wait)?,
                Step::Multicast(wait) => self.finish_multicast(engine, task, &wait)?,
                Step::Pass => {
                    engine.check_intact(task)?;
                    let buffer = self.pass_on(engine, task)?;
                    if buffer.is_some() {
                        return Ok(buffer);
                    }
                }
            }
        }
    }

    fn give_up(&mut self, engine: &mut Engine) -> Option<Buffer> {
        let mut buffer = self.buffer.take();
        match std::mem::replace(&mut self.step, Step::Pass) {
            Step::Data(wait) | Step::Send(wait) => buffer = engine.take_memory(&wait).or(buffer),
            Step::Head(wait) => engine.give_up_wait(&wait),
            Step::Multicast(wait) => {
                let ended = engine.end_multicast(&wait);
                buffer = ended.map(|ended| ended.buffer).or(buffer);
            }
            Step::Begin | Step::Pass => {}
        }
        match self.data.take() {
            Some(wait) => engine.take_memory(&wait).or(buffer),
            None => buffer,
        }
    }
}

impl Node {
    /// Begins a barrier of all processes of the job. The request completes when all have begun it. All
    /// members begin the operations of a group in the same order. Two of them are in flight; later
    /// non-blocking ones are queued, and blocking ones then fail with [`Error::GroupBusy`].
    ///
    /// Every call that waits or makes progress advances it, whatever the call waits for.
    ///
    /// # Errors
    /// As [`Node::barrier`]. Some are reported by the request.
    ///
    /// # Examples
    /// ```
    /// # fn main() -> Result<(), portolan::Error> {
    /// let mut node = portolan::Node::join()?;
    /// let barrier = node.ibarrier()?;
    /// // Work that needs no other process.
    /// node.wait(barrier)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn ibarrier(&mut self) -> Result<Request, Error> {
        let all = Group::all(self);
        self.ibarrier_of(&all)
    }

    pub(super) fn ibarrier_of(&mut self, group: &Group) -> Result<Request, Error> {
        let head = Head::new(CollectiveKind::Barrier, 0, 0);
        let engine = &mut *self.engine.enter();
        engine.run(group, head, Barrier::default())
    }

    /// Begins to copy `buffer` of process `root` to those of all other processes, which all call
    /// this. The completion returns the buffer; see [`Node::ibarrier`].
    ///
    /// # Errors
    /// As [`Node::broadcast`]; [`Error::BufferShared`]. Some are reported by the request.
    ///
    /// # Examples
    /// ```
    /// # fn main() -> Result<(), portolan::Error> {
    /// let mut node = portolan::Node::join()?;
    /// let mut bytes = vec![0; 4];
    /// if node.rank() == 0 {
    ///     bytes.copy_from_slice(b"ahoy");
    /// }
    /// let broadcast = node.ibroadcast(0, bytes)?;
    /// let bytes = node.wait(broadcast)?.buffer.unwrap();
    /// assert_eq!(&bytes[..], b"ahoy");
    /// # Ok(())
    /// # }
    /// ```
    pub fn ibroadcast(&mut self, root: u32, buffer: impl Into<Buffer>) -> Result<Request, Error> {
        let all = Group::all(self);
        self.ibroadcast_of(&all, root, buffer)
    }

    pub(super) fn ibroadcast_of(
        &mut self,
        group: &Group,
        root: u32,
        buffer: impl Into<Buffer>,
    ) -> Result<Request, Error> {
        let mut buffer = buffer.into();
        check_root(root, group)?;
        if group.rank() != root && buffer.as_mut_slice().is_none() {
            return Err(Error::BufferShared);
        }
        let head = Head::new(CollectiveKind::Broadcast, root, buffer.len());
        let engine = &mut *self.engine.enter();
        engine.run(group, head, Broadcast::new(group, root, buffer))
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
        let request = self.ibroadcast_of(group, root, buffer)?;
        let mut guard = RequestGuard::new(self, request);
        guard.node().wait(request)?;
        Ok(())
    }
}
