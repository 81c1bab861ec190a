// SPDX-License-Identifier: MIT OR Apache-2.0
//! Non-blocking collective operations, as requests.
//!
//! Each is a state machine, which every call that waits or makes progress advances. The one
//! invariant: its request completes with its buffer, whether it succeeds or fails.

use super::{Node, Task};
use crate::buffer::Buffer;
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
    task: Task,
    machine: M,
}

impl<M: Machine> Background for Running<M> {
    fn op(&self) -> OpId {
        self.op
    }

    fn advance(&mut self, engine: &mut Engine) -> bool {
        let step = self.machine.step(engine, &self.task);
        let Some(result) = step.transpose() else {
            return false;
        };
        let given_up = self.machine.give_up(engine);
        let (result, buffer) = match result {
            Ok(buffer) => (Ok(()), Some(buffer)),
            Err(error) => (Err(error), given_up),
        };
        let result = engine.end_task(&self.task, result);
        let buffer = buffer.unwrap_or_else(|| Buffer::from(Vec::new()));
        let received = result.map(|()| Received {
            len: buffer.len(),
            source: self.task.root_rank(),
        });
        let ops = &mut engine.inner.ops;
        ops.complete_with(self.op, buffer, received, None);
        true
    }

    fn give_up(&mut self, engine: &mut Engine) {
        self.machine.give_up(engine);
        engine
            .inner
            .end_collective(self.task.group().members(), self.task.head());
        engine.inner.ops.forget(self.op);
    }
}

impl Engine {
    /// Starts `machine` for an operation that has begun, and returns its request.
    pub(super) fn run(&mut self, task: Task, machine: impl Machine + 'static) -> Request {
        let group = task.group().members().id();
        let kind = OpKind::Collective { group };
        let op = self.inner.ops.without_memory(kind);
        self.begin_background(Box::new(Running { op, task, machine }));
        self.flush_if_wanted();
        Request(op)
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
