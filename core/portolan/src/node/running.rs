// SPDX-License-Identifier: MIT OR Apache-2.0
//! Non-blocking collective operations, as requests.
//!
//! Each is a state machine, which every call that waits or makes progress advances. A group has two
//! operations in flight; later ones are queued and begin in their order. The one invariant: a request
//! completes with its buffer, whether it succeeds or fails.

use super::{Group, Node, Task};
use crate::buffer::Buffer;
use crate::collective::Head;
use crate::engine::{Background, Engine};
use crate::error::Error;
use crate::ops::{OpKind, Received, Request};
use portolan_proto::OpId;

/// State machine of a collective operation.
pub(super) trait Machine: Send {
    /// Continues without waiting. Returns the buffer once this process has completed its part.
    fn step(&mut self, engine: &mut Engine, task: &Task) -> Result<Option<Buffer>, Error>;

    /// Cancels pending messages and returns the buffer.
    fn give_up(&mut self, engine: &mut Engine) -> Option<Buffer>;
}

/// A collective operation with a request.
struct Running<M> {
    op: OpId,
    stage: Stage,
    machine: M,
}

enum Stage {
    /// Earlier operations of the group are pending.
    Queued(Group, Head),
    Begun(Task<'static>),
}

impl<M: Machine> Running<M> {
    /// Begins the operation if it is its turn. Returns whether it has begun.
    fn begin(&mut self, engine: &mut Engine) -> Result<bool, Error> {
        if let Stage::Queued(group, head) = &self.stage {
            match engine.begin_queued(self.op, group, *head)? {
                Some(task) => self.stage = Stage::Begun(task),
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    fn step(&mut self, engine: &mut Engine) -> Result<Option<Buffer>, Error> {
        match (self.begin(engine)?, &self.stage) {
            (true, Stage::Begun(task)) => self.machine.step(engine, task),
            _ => Ok(None),
        }
    }

    /// Ends the operation for the group.
    fn end(&self, engine: &mut Engine, result: Result<(), Error>) -> Result<(), Error> {
        match &self.stage {
            Stage::Begun(task) => engine.end_task(task, result),
            Stage::Queued(group, _) => {
                engine.inner.dequeue(group.members().id(), self.op);
                result
            }
        }
    }

    fn source(&self) -> u32 {
        match &self.stage {
            Stage::Begun(task) => task.root_rank(),
            Stage::Queued(group, head) => group.rank_of(head.root),
        }
    }
}

impl<M: Machine> Background for Running<M> {
    fn op(&self) -> OpId {
        self.op
    }

    fn advance(&mut self, engine: &mut Engine) -> bool {
        let step = self.step(engine);
        let Some(result) = step.transpose() else {
            return false;
        };
        let given_up = self.machine.give_up(engine);
        let (result, buffer) = match result {
            Ok(buffer) => (Ok(()), Some(buffer)),
            Err(error) => (Err(error), given_up),
        };
        let result = self.end(engine, result);
        let buffer = buffer.unwrap_or_else(|| Buffer::from(Vec::new()));
        let received = result.map(|()| Received {
            len: buffer.len(),
            source: self.source(),
        });
        let ops = &mut engine.inner.ops;
        ops.complete_with(self.op, buffer, received, None);
        true
    }

    fn give_up(&mut self, engine: &mut Engine) {
        self.machine.give_up(engine);
        let inner = &mut engine.inner;
        match &self.stage {
            Stage::Begun(task) => inner.end_collective(task.group().members(), task.head()),
            Stage::Queued(group, _) => inner.dequeue(group.members().id(), self.op),
        }
        inner.ops.forget(self.op);
    }
}

impl Engine {
    /// Starts `machine` for the operation of `group` that `call` describes, and returns its request.
    pub(super) fn run(
        &mut self,
        group: &Group,
        call: Head,
        machine: impl Machine + 'static,
    ) -> Result<Request, Error> {
        let stage = match self.begin_task(group, call) {
            Ok(task) => Stage::Begun(task.into_owned()),
            Err(Error::GroupBusy { .. }) => Stage::Queued(group.clone(), call),
            Err(error) => return Err(error),
        };
        let id = group.members().id();
        let op = (self.inner.ops).without_memory(OpKind::Collective { group: id });
        if let Stage::Queued(..) = &stage {
            self.inner.enqueue(id, op);
        }
        self.begin_background(Box::new(Running { op, stage, machine }));
        self.flush_if_wanted();
        Ok(Request(op))
    }

    /// Begins a queued operation. Returns `None` while earlier ones are pending.
    fn begin_queued(
        &mut self,
        op: OpId,
        group: &Group,
        call: Head,
    ) -> Result<Option<Task<'static>>, Error> {
        let id = group.members().id();
        if !self.inner.is_next(id, op) {
            return self.inner.check_intact(id).map(|()| None);
        }
        match self.begin_task_now(group, call) {
            Ok(task) => {
                self.inner.dequeue(id, op);
                Ok(Some(task.into_owned()))
            }
            Err(Error::GroupBusy { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Gives an operation up if the wait for it ends early. A completed one is not affected.
pub(super) struct RequestGuard<'a> {
    node: &'a mut Node,
    request: Request,
}

impl<'a> RequestGuard<'a> {
    pub(super) fn new(node: &'a mut Node, request: Request) -> RequestGuard<'a> {
        RequestGuard { node, request }
    }

    pub(super) fn node(&mut self) -> &mut Node {
        self.node
    }
}

impl Drop for RequestGuard<'_> {
    fn drop(&mut self) {
        let engine = &mut *self.node.engine.enter();
        engine.give_up_background(self.request.0);
    }
}
