// SPDX-License-Identifier: MIT OR Apache-2.0
//! Non-blocking reductions, as state machines.

use super::{
    ReduceOp, Reducible, Side, Step, allreduce_steps, check_op, combine, head, head_of_len,
    reduce_steps,
};
use crate::buffer::Buffer;
use crate::collective::{CollectiveKind, Head};
use crate::engine::Engine;
use crate::error::Error;
use crate::node::exchange::{Operator, is_long_reduction};
use crate::node::group::{Group, check_root};
use crate::node::running::Machine;
use crate::node::{Node, Task, Wait};
use crate::ops::Request;
use std::vec;

/// A pending reduction.
struct Reduction {
    combine: fn(ReduceOp, Side, &mut [u8], &[u8]),
    op: ReduceOp,
    steps: vec::IntoIter<Step>,
    /// The values, which the completion returns.
    buffer: Buffer,
    current: Option<Current>,
}

/// Pending step.
struct Current {
    step: Step,
    sending: Option<Wait>,
    head: Option<Wait>,
    data: Option<Wait>,
    /// Bytes of the other member, once they are here.
    other: Option<Vec<u8>>,
}

impl Reduction {
    fn bytes(&mut self) -> &mut [u8] {
        self.buffer.as_mut_slice().unwrap_or(&mut [])
    }

    fn begin(&mut self, engine: &mut Engine, task: &Task, step: Step) -> Result<(), Error> {
        let (to, from) = match step {
            Step::Send(member) => (Some(member), None),
            Step::Join(member, _) | Step::Replace(member) => (None, Some(member)),
            Step::Swap(member, _) => (Some(member), Some(member)),
        };
        let current = self.current.insert(Current {
            step,
            sending: None,
            head: None,
            data: None,
            other: None,
        });
        if let Some(from) = from {
            current.head = Some(engine.post_head_of(task, from)?);
            if !Task::is_inline(self.buffer.len()) {
                let place = Buffer::from(vec![0; self.buffer.len()]);
                current.data = engine.post_data_of(task, from, place)?;
            }
        }
        if let Some(to) = to {
            current.sending = engine.begin_send(task, to, &self.buffer)?;
        }
        Ok(())
    }

    /// Ends a step after its messages have arrived.
    fn finish(&mut self, current: Current) {
        let (op, combine) = (self.op, self.combine);
        let Some(other) = current.other else { return };
        match current.step {
            Step::Join(_, side) | Step::Swap(_, side) => combine(op, side, self.bytes(), &other),
            Step::Replace(_) => self.bytes().copy_from_slice(&other),
            Step::Send(_) => {}
        }
    }
}

impl Current {
    /// Returns whether all messages of the step have arrived.
    fn poll(&mut self, engine: &mut Engine, task: &Task, len: usize) -> Result<bool, Error> {
        if let Some(head) = &mut self.head {
            if !engine.poll_task(task, head)? {
                return Ok(false);
            }
            let is_long = self.data.is_some();
            let mut inline = vec![0; if is_long { 0 } else { len }];
            if let Some(head) = self.head.take() {
                engine.finish_inline(task, &head, &mut inline)?;
            }
            self.other = (!is_long).then_some(inline);
        }
        if let Some(data) = &mut self.data {
            if !engine.poll_task(task, data)? {
                return Ok(false);
            }
            if let Some(data) = self.data.take() {
                let done = engine.finish_wait(&data)?;
                engine.check_len(data.peer(), done.len as u64, len as u64)?;
                self.other = done.buffer.map(Buffer::into_vec);
            }
        }
        if let Some(sending) = &mut self.sending {
            if !engine.poll_task(task, sending)? {
                return Ok(false);
            }
            if let Some(sending) = self.sending.take() {
                engine.finish_wait(&sending)?;
            }
        }
        Ok(true)
    }
}

impl Machine for Reduction {
    fn step(&mut self, engine: &mut Engine, task: &Task) -> Result<Option<Buffer>, Error> {
        loop {
            if let Some(current) = &mut self.current {
                if !current.poll(engine, task, self.buffer.len())? {
                    return Ok(None);
                }
                if let Some(current) = self.current.take() {
                    self.finish(current);
                }
            }
            match self.steps.next() {
                Some(step) => self.begin(engine, task, step)?,
                None => {
                    engine.check_intact(task)?;
                    let empty = Buffer::from(Vec::new());
                    return Ok(Some(std::mem::replace(&mut self.buffer, empty)));
                }
            }
        }
    }

    fn give_up(&mut self, engine: &mut Engine) -> Option<Buffer> {
        if let Some(current) = self.current.take() {
            let waits = [current.sending, current.head, current.data];
            waits
                .iter()
                .flatten()
                .for_each(|wait| engine.give_up_wait(wait));
        }
        let empty = Buffer::from(Vec::new());
        Some(std::mem::replace(&mut self.buffer, empty))
    }
}

impl Node {
    /// Begins [`Node::allreduce`]. The completion returns the result; see [`Node::ibarrier`].
    ///
    /// # Errors
    /// As [`Node::allreduce`]. Some are reported by the request.
    ///
    /// # Examples
    /// ```
    /// use portolan::{Node, ReduceOp};
    ///
    /// # fn main() -> Result<(), portolan::Error> {
    /// let mut node = Node::join()?;
    /// let sum = node.iallreduce(ReduceOp::Sum, vec![1.5, 2.0])?;
    /// let sums: Vec<f64> = node.wait(sum)?.into_vec()?;
    /// assert_eq!(sums[0], 1.5 * f64::from(node.size()));
    /// # Ok(())
    /// # }
    /// ```
    pub fn iallreduce<T: Reducible>(
        &mut self,
        op: ReduceOp,
        values: Vec<T>,
    ) -> Result<Request, Error> {
        let all = Group::all(self);
        self.iallreduce_of(&all, op, values)
    }

    pub(in crate::node) fn iallreduce_of<T: Reducible>(
        &mut self,
        group: &Group,
        op: ReduceOp,
        values: Vec<T>,
    ) -> Result<Request, Error> {
        check_op::<T>(op)?;
        let head = head(CollectiveKind::Allreduce, 0, op, &values);
        if is_long_reduction(group.size(), size_of_val(&values[..])) {
            return group.iallreduce_by(self, Operator::new::<T>(op), Buffer::typed(values));
        }
        let steps = allreduce_steps(group.rank(), group.size()).collect();
        self.begin_reduction::<T>(group, head, op, Buffer::typed(values), steps)
    }

    /// Begins [`Node::reduce`]. The completion returns the values; see [`Node::ibarrier`].
    ///
    /// # Errors
    /// As [`Node::reduce`]. Some are reported by the request.
    ///
    /// # Examples
    /// ```
    /// use portolan::{Node, ReduceOp};
    ///
    /// # fn main() -> Result<(), portolan::Error> {
    /// let mut node = Node::join()?;
    /// let highest = node.ireduce(0, ReduceOp::Max, vec![node.rank()])?;
    /// let highest: Vec<u32> = node.wait(highest)?.into_vec()?;
    /// if node.rank() == 0 {
    ///     assert_eq!(highest, [node.size() - 1]);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn ireduce<T: Reducible>(
        &mut self,
        root: u32,
        op: ReduceOp,
        values: Vec<T>,
    ) -> Result<Request, Error> {
        let all = Group::all(self);
        self.ireduce_of(&all, root, op, values)
    }

    pub(in crate::node) fn ireduce_of<T: Reducible>(
        &mut self,
        group: &Group,
        root: u32,
        op: ReduceOp,
        values: Vec<T>,
    ) -> Result<Request, Error> {
        check_root(root, group)?;
        check_op::<T>(op)?;
        if is_long_reduction(group.size(), size_of_val(&values[..])) {
            return group.ireduce_by(self, root, Operator::new::<T>(op), Buffer::typed(values));
        }
        let head = head(CollectiveKind::Reduce, root, op, &values);
        let steps = reduce_steps(group.rank(), root, group.size());
        self.begin_reduction::<T>(group, head, op, Buffer::typed(values), steps)
    }

    pub(crate) fn iallreduce_bytes<T: Reducible>(
        &mut self,
        group: &Group,
        op: ReduceOp,
        mut buffer: Buffer,
    ) -> Result<Request, Error> {
        let head = bytes_head::<T>(CollectiveKind::Allreduce, 0, op, &mut buffer)?;
        if is_long_reduction(group.size(), buffer.len()) {
            return group.iallreduce_by(self, Operator::new::<T>(op), buffer);
        }
        let steps = allreduce_steps(group.rank(), group.size()).collect();
        self.begin_reduction::<T>(group, head, op, buffer, steps)
    }

    pub(crate) fn ireduce_bytes<T: Reducible>(
        &mut self,
        group: &Group,
        root: u32,
        op: ReduceOp,
        mut buffer: Buffer,
    ) -> Result<Request, Error> {
        check_root(root, group)?;
        let head = bytes_head::<T>(CollectiveKind::Reduce, root, op, &mut buffer)?;
        if is_long_reduction(group.size(), buffer.len()) {
            return group.ireduce_by(self, root, Operator::new::<T>(op), buffer);
        }
        let steps = reduce_steps(group.rank(), root, group.size());
        self.begin_reduction::<T>(group, head, op, buffer, steps)
    }

    fn begin_reduction<T: Reducible>(
        &mut self,
        group: &Group,
        head: Head,
        op: ReduceOp,
        buffer: Buffer,
        steps: Vec<Step>,
    ) -> Result<Request, Error> {
        let engine = &mut *self.engine.enter();
        let machine = Reduction {
            combine: combine::<T>,
            op,
            steps: steps.into_iter(),
            buffer,
            current: None,
        };
        engine.run(group, head, machine)
    }
}

/// Checks a buffer of values of type `T`, and returns the header of their reduction.
fn bytes_head<T: Reducible>(
    kind: CollectiveKind,
    root: u32,
    op: ReduceOp,
    buffer: &mut Buffer,
) -> Result<Head, Error> {
    check_op::<T>(op)?;
    let len = buffer.as_mut_slice().ok_or(Error::BufferShared)?.len();
    if !len.is_multiple_of(T::LEN) {
        let element_len = T::LEN;
        return Err(Error::PartialElement { len, element_len });
    }
    Ok(head_of_len::<T>(kind, root, op, len))
}
