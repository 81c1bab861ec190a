// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reductions over groups: vectors that fit one message here, longer ones by `exchange`.
//!
//! Every member gets the same bits: at each step the lower part of the group is the left operand at
//! every member. Between groups of different sizes, floating-point sums may differ in the last
//! bits, because the order of additions differs.

mod element;
mod nonblocking;

pub use element::{Bf16, F16, Reducible};
pub(super) use element::{Side, check_op, combine};

use super::exchange::{Operator, is_long_reduction};
use super::group::{Group, check_root};
use super::{Node, Task};
use crate::buffer;
use crate::collective::{CollectiveKind, Head};
use crate::error::Error;
use portolan_proto::group::{broadcast_children, broadcast_parent};

/// Operation that combines two elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReduceOp {
    /// The sum; integers wrap around.
    Sum,
    /// The product; integers wrap around.
    Product,
    /// The smaller one; a number rather than a NaN.
    Min,
    /// The larger one; a number rather than a NaN.
    Max,
    /// The bits that both have; integers only.
    And,
    /// The bits that one of them has; integers only.
    Or,
    /// The bits that just one of them has; integers only.
    Xor,
}

/// A member's values during a reduction.
struct Reduction<'a, T> {
    task: &'a Task<'a>,
    op: ReduceOp,
    values: &'a mut [T],
    /// The values as bytes, for messages.
    bytes: &'a mut [u8],
}

/// Bytes of values that need no allocation.
const SHORT_LEN_MAX: usize = 64;

impl<T: Reducible> Reduction<'_, T> {
    fn send(&mut self, node: &mut Node, member: u32) -> Result<(), Error> {
        self.pack();
        node.send_data(self.task, member, self.bytes)
    }

    fn pack(&mut self) {
        for (value, place) in self.values.iter().zip(self.bytes.chunks_exact_mut(T::LEN)) {
            value.write(place);
        }
    }

    fn receive(&mut self, node: &mut Node, member: u32) -> Result<(), Error> {
        node.receive_data(self.task, member, self.bytes)
    }

    /// Replaces the own values with those of `member`.
    fn replace(&mut self, node: &mut Node, member: u32) -> Result<(), Error> {
        self.receive(node, member)?;
        for (value, bytes) in self.values.iter_mut().zip(self.bytes.chunks_exact(T::LEN)) {
            *value = T::read(bytes);
        }
        Ok(())
    }

    /// Combines the values of `member` with the own ones.
    fn join(&mut self, node: &mut Node, member: u32, side: Side) -> Result<(), Error> {
        self.receive(node, member)?;
        for (value, bytes) in self.values.iter_mut().zip(self.bytes.chunks_exact(T::LEN)) {
            let other = T::read(bytes);
            *value = match side {
                Side::Lower => T::combine(self.op, other, *value),
                Side::Upper => T::combine(self.op, *value, other),
            };
        }
        Ok(())
    }

    /// Sends the own values to `member` and combines its values with them. Both sends start before
    /// either receive is waited for.
    fn swap(&mut self, node: &mut Node, member: u32, side: Side) -> Result<(), Error> {
        self.pack();
        let sent = node.begin_data(self.task, member, self.bytes)?;
        let joined = self.join(node, member, side);
        let Some(mut sent) = sent else {
            return joined;
        };
        let ended = joined.and_then(|()| node.wait_task(self.task, &mut sent));
        let engine = &mut *node.engine.enter();
        if ended.is_err() {
            engine.give_up_wait(&sent);
        }
        ended?;
        engine.finish_wait(&sent).map(|_| ())
    }

    /// Performs the steps of a reduction one after the other.
    fn perform(
        &mut self,
        node: &mut Node,
        steps: impl IntoIterator<Item = Step>,
    ) -> Result<(), Error> {
        for step in steps {
            match step {
                Step::Send(member) => self.send(node, member)?,
                Step::Join(member, side) => self.join(node, member, side)?,
                Step::Replace(member) => self.replace(node, member)?,
                Step::Swap(member, side) => self.swap(node, member, side)?,
            }
        }
        Ok(())
    }
}

/// Step of a reduction with another member.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Send(u32),
    /// Combine the member's values with the own ones.
    Join(u32, Side),
    Replace(u32),
    /// Send the own values and combine the member's with them.
    Swap(u32, Side),
}

/// Returns the steps of recursive doubling at member `own`. Members beyond the largest power of two
/// join a neighbour first, and receive the result last.
pub(super) fn allreduce_steps(own: u32, size: u32) -> impl Iterator<Item = Step> {
    let power = 1 << size.ilog2();
    let extra = size - power;
    let is_paired = own < 2 * extra;
    let (first, rounds, last) = match (is_paired, own.is_multiple_of(2)) {
        (false, _) => (None, size.ilog2(), None),
        (true, true) => (Some(Step::Send(own + 1)), 0, Some(Step::Replace(own + 1))),
        (true, false) => {
            let join = Step::Join(own - 1, Side::Lower);
            (Some(join), size.ilog2(), Some(Step::Send(own - 1)))
        }
    };
    let place = if is_paired { own / 2 } else { own - extra };
    let swaps = (0..rounds).map(move |round| {
        let other = place ^ (1 << round);
        let member = match other < extra {
            true => 2 * other + 1,
            false => other + extra,
        };
        let side = match other < place {
            true => Side::Lower,
            false => Side::Upper,
        };
        Step::Swap(member, side)
    });
    first.into_iter().chain(swaps).chain(last)
}

/// Returns the steps that send values up the tree of a broadcast.
pub(super) fn reduce_steps(own: u32, root: u32, size: u32) -> Vec<Step> {
    let children: Vec<u32> = broadcast_children(own, root, size).collect();
    // The child with the smallest subtree finishes first.
    let joins = children.into_iter().rev();
    let joins = joins.map(|child| Step::Join(child, Side::Upper));
    let up = broadcast_parent(own, root, size).map(Step::Send);
    joins.chain(up).collect()
}

fn head<T: Reducible>(kind: CollectiveKind, root: u32, op: ReduceOp, values: &[T]) -> Head {
    head_of_len::<T>(kind, root, op, size_of_val(values))
}

/// Returns the header of a reduction of `len` bytes of values.
pub(super) fn head_of_len<T: Reducible>(
    kind: CollectiveKind,
    root: u32,
    op: ReduceOp,
    len: usize,
) -> Head {
    let op = match op {
        ReduceOp::Sum => 1,
        ReduceOp::Product => 2,
        ReduceOp::Min => 3,
        ReduceOp::Max => 4,
        // 5 is a function of the program.
        ReduceOp::And => 6,
        ReduceOp::Or => 7,
        ReduceOp::Xor => 8,
    };
    Head {
        op,
        datatype: T::CODE,
        ..Head::new(kind, root, len)
    }
}

impl Node {
    pub(super) fn allreduce_of<T: Reducible>(
        &mut self,
        group: &Group,
        op: ReduceOp,
        values: &mut [T],
    ) -> Result<(), Error> {
        check_op::<T>(op)?;
        if is_long_reduction(group.size(), size_of_val(values)) {
            return group.allreduce_by(self, Operator::new::<T>(op), values);
        }
        let steps = allreduce_steps(group.rank(), group.size());
        let head = head(CollectiveKind::Allreduce, 0, op, values);
        self.reduce_in_steps(group, head, op, values, steps)
    }

    /// Combines the `values` of all processes of the job, element by element. Every process gets the
    /// result in place. All must pass the same number of values and the same `op`.
    ///
    /// # Errors
    /// [`Error::PeerGone`], [`Error::GroupBusy`]; [`Error::CollectiveMismatch`] when another process
    /// passed another number or type of values, or is in another operation. The values are then
    /// partial results.
    ///
    /// # Examples
    /// ```
    /// use portolan::{Node, ReduceOp};
    ///
    /// # fn main() -> Result<(), portolan::Error> {
    /// let mut node = Node::join()?;
    /// let mut sum = [1_u32];
    /// node.allreduce(ReduceOp::Sum, &mut sum)?;
    /// assert_eq!(sum[0], node.size());
    /// # Ok(())
    /// # }
    /// ```
    pub fn allreduce<T: Reducible>(&mut self, op: ReduceOp, values: &mut [T]) -> Result<(), Error> {
        let all = Group::all(self);
        self.allreduce_of(&all, op, values)
    }

    pub(super) fn reduce_of<T: Reducible>(
        &mut self,
        group: &Group,
        root: u32,
        op: ReduceOp,
        values: &mut [T],
    ) -> Result<(), Error> {
        check_root(root, group)?;
        check_op::<T>(op)?;
        if is_long_reduction(group.size(), size_of_val(values)) {
            return group.reduce_by(self, root, Operator::new::<T>(op), values);
        }
        let steps = reduce_steps(group.rank(), root, group.size());
        let head = head(CollectiveKind::Reduce, root, op, values);
        self.reduce_in_steps(group, head, op, values, steps)
    }

    fn reduce_in_steps<T: Reducible>(
        &mut self,
        group: &Group,
        head: Head,
        op: ReduceOp,
        values: &mut [T],
        steps: impl IntoIterator<Item = Step>,
    ) -> Result<(), Error> {
        let len = match group.size() {
            1 => 0,
            _ => size_of_val(values),
        };
        let mut short = [0; SHORT_LEN_MAX];
        let mut long;
        let bytes = match short.get_mut(..len) {
            Some(short) => short,
            None => {
                long = buffer::zeroed("the values of a reduction", len)?;
                &mut long[..]
            }
        };
        let task = self.engine.enter().begin_task(group, head)?;
        let mut reduction = Reduction {
            task: &task,
            op,
            values,
            bytes,
        };
        let result = reduction.perform(self, steps);
        self.engine.enter().end_task(&task, result)
    }

    /// Combines the `values` of all processes of the job, element by element. Process `root` gets the
    /// result in place. The other processes have partial results afterwards.
    ///
    /// # Errors
    /// As [`Node::allreduce`]; [`Error::NoSuchRank`]. A process that is not the root does not wait
    /// for all, and may get the error from its next call.
    ///
    /// # Examples
    /// ```
    /// use portolan::{Node, ReduceOp};
    ///
    /// # fn main() -> Result<(), portolan::Error> {
    /// let mut node = Node::join()?;
    /// let mut highest = [node.rank()];
    /// node.reduce(0, ReduceOp::Max, &mut highest)?;
    /// if node.rank() == 0 {
    ///     assert_eq!(highest[0], node.size() - 1);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn reduce<T: Reducible>(
        &mut self,
        root: u32,
        op: ReduceOp,
        values: &mut [T],
    ) -> Result<(), Error> {
        let all = Group::all(self);
        self.reduce_of(&all, root, op, values)
    }
}
