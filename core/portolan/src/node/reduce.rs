// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reductions of small vectors over groups.
//!
//! Every member gets the same bits: at each step the lower part of the group stands on the left,
//! whoever computes it. Between groups of different sizes sums of floating-point numbers may differ
//! in the last bits, as the order of additions does.

use super::group::{Group, check_root};
use super::{Node, Task};
use crate::buffer;
use crate::collective::{CollectiveKind, Head};
use crate::error::Error;
use portolan_proto::group::{broadcast_children, broadcast_parent};

/// How two elements become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReduceOp {
    /// The sum; integers wrap around.
    Sum,
    /// The product; integers wrap around.
    Product,
    /// The lesser; a number rather than a NaN.
    Min,
    /// The greater; a number rather than a NaN.
    Max,
}

mod sealed {
    use super::ReduceOp;

    pub trait Element: Copy {
        const LEN: usize;
        /// Its number in heads (P14.2).
        const CODE: u8;
        fn combine(op: ReduceOp, lower: Self, upper: Self) -> Self;
        fn write(self, bytes: &mut [u8]);
        fn read(bytes: &[u8]) -> Self;
    }
}

/// What can be reduced: integers of 32 and 64 bits, `f32` and `f64`.
pub trait Reducible: sealed::Element {}

macro_rules! reducible {
    ($($type:ty, $code:literal: $sum:expr, $product:expr;)*) => {$(
        impl sealed::Element for $type {
            const LEN: usize = size_of::<$type>();
            const CODE: u8 = $code;

            fn combine(op: ReduceOp, lower: Self, upper: Self) -> Self {
                match op {
                    ReduceOp::Sum => $sum(lower, upper),
                    ReduceOp::Product => $product(lower, upper),
                    ReduceOp::Min => lower.min(upper),
                    ReduceOp::Max => lower.max(upper),
                }
            }

            fn write(self, bytes: &mut [u8]) {
                bytes.copy_from_slice(&self.to_le_bytes());
            }

            fn read(bytes: &[u8]) -> Self {
                let mut own = [0; size_of::<$type>()];
                own.copy_from_slice(bytes);
                <$type>::from_le_bytes(own)
            }
        }

        impl Reducible for $type {}
    )*};
}

reducible! {
    i32, 1: i32::wrapping_add, i32::wrapping_mul;
    i64, 2: i64::wrapping_add, i64::wrapping_mul;
    u32, 3: u32::wrapping_add, u32::wrapping_mul;
    u64, 4: u64::wrapping_add, u64::wrapping_mul;
    f32, 5: |a, b| a + b, |a, b| a * b;
    f64, 6: |a, b| a + b, |a, b| a * b;
}

/// Which part of the group another member's values stand for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Lower,
    Upper,
}

/// A member's values on their way through a reduction.
struct Reduction<'a, T> {
    task: &'a Task,
    op: ReduceOp,
    values: &'a mut [T],
    /// The same as bytes, for messages.
    bytes: Vec<u8>,
}

impl<'a, T: Reducible> Reduction<'a, T> {
    fn new(task: &'a Task, op: ReduceOp, values: &'a mut [T]) -> Result<Self, Error> {
        let bytes = buffer::zeroed("the values of a reduction", values.len() * T::LEN)?;
        Ok(Reduction {
            task,
            op,
            values,
            bytes,
        })
    }

    fn send(&mut self, node: &mut Node, member: u32) -> Result<(), Error> {
        self.pack();
        node.send_data(self.task, member, &self.bytes)
    }

    fn pack(&mut self) {
        for (value, place) in self.values.iter().zip(self.bytes.chunks_exact_mut(T::LEN)) {
            value.write(place);
        }
    }

    fn receive(&mut self, node: &mut Node, member: u32) -> Result<(), Error> {
        node.receive_data(self.task, member, &mut self.bytes)
    }

    /// Takes another's values instead of the own ones.
    fn replace(&mut self, node: &mut Node, member: u32) -> Result<(), Error> {
        self.receive(node, member)?;
        for (value, bytes) in self.values.iter_mut().zip(self.bytes.chunks_exact(T::LEN)) {
            *value = T::read(bytes);
        }
        Ok(())
    }

    /// Joins another's values with the own ones.
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

    /// Sends the own values to `member` and joins its values with them. Neither waits for the
    /// other's receive before it begins its own.
    fn swap(&mut self, node: &mut Node, member: u32, side: Side) -> Result<(), Error> {
        self.pack();
        let sent = node.begin_send(self.task, member, &self.bytes)?;
        let joined = self.join(node, member, side);
        let Some(mut sent) = sent else {
            return joined;
        };
        let ended = joined.and_then(|()| node.wait_task(self.task, &mut sent, &|| false));
        if ended.is_err() {
            node.give_up(&sent);
        }
        ended?;
        node.finish_wait(&sent).map(|_| ())
    }

    /// Recursive doubling. What a power of two leaves over joins its neighbour before, and hears the
    /// result after.
    fn allreduce(&mut self, node: &mut Node) -> Result<(), Error> {
        let (own, size) = (self.task.group().rank(), self.task.group().size());
        let power = 1 << size.ilog2();
        let extra = size - power;
        let paired = own < 2 * extra;
        if paired && own.is_multiple_of(2) {
            self.send(node, own + 1)?;
            return self.replace(node, own + 1);
        }
        if paired {
            self.join(node, own - 1, Side::Lower)?;
        }
        let place = if paired { own / 2 } else { own - extra };
        for bit in (0..size.ilog2()).map(|round| 1 << round) {
            let other = place ^ bit;
            let member = if other < extra {
                2 * other + 1
            } else {
                other + extra
            };
            let side = if other < place {
                Side::Lower
            } else {
                Side::Upper
            };
            self.swap(node, member, side)?;
        }
        if paired {
            self.send(node, own - 1)?;
        }
        Ok(())
    }

    /// Up the tree in which a broadcast would go down.
    fn reduce(&mut self, node: &mut Node, root: u32) -> Result<(), Error> {
        let (own, size) = (self.task.group().rank(), self.task.group().size());
        let mut children: Vec<u32> = broadcast_children(own, root, size).collect();
        // The child with the smallest subtree is done first.
        children.reverse();
        for child in children {
            self.join(node, child, Side::Upper)?;
        }
        match broadcast_parent(own, root, size) {
            Some(parent) => self.send(node, parent),
            None => Ok(()),
        }
    }
}

fn head<T: Reducible>(kind: CollectiveKind, root: u32, op: ReduceOp, values: &[T]) -> Head {
    let op = match op {
        ReduceOp::Sum => 1,
        ReduceOp::Product => 2,
        ReduceOp::Min => 3,
        ReduceOp::Max => 4,
    };
    Head {
        op,
        datatype: T::CODE,
        ..Head::new(kind, root, size_of_val(values))
    }
}

impl Node {
    /// Combines the `values` of all members of `group`, element by element; every member gets the
    /// result in their place. All must give the same number of values and the same `op`.
    ///
    /// # Errors
    /// [`Error::PeerGone`], [`Error::GroupBusy`]; [`Error::CollectiveMismatch`] when another gave more
    /// or fewer, or others, or is in another operation. The values are parts of the result then.
    pub fn allreduce_of<T: Reducible>(
        &mut self,
        group: &Group,
        op: ReduceOp,
        values: &mut [T],
    ) -> Result<(), Error> {
        let task = self.begin_task(group, head(CollectiveKind::Allreduce, 0, op, values))?;
        let reduction = Reduction::new(&task, op, values);
        let result = reduction.and_then(|mut reduction| reduction.allreduce(self));
        self.end_task(&task, result)
    }

    /// Combines the `values` of all processes of the job; see [`Node::allreduce_of`].
    ///
    /// # Errors
    /// As [`Node::allreduce_of`].
    pub fn allreduce<T: Reducible>(&mut self, op: ReduceOp, values: &mut [T]) -> Result<(), Error> {
        let all = Group::all(self);
        self.allreduce_of(&all, op, values)
    }

    /// Combines the `values` of all members of `group`, element by element; member `root` gets the
    /// result in their place, at all others they hold parts of it afterwards.
    ///
    /// # Errors
    /// As [`Node::allreduce_of`]; [`Error::NoSuchRank`]. Who is not the root does not wait for all: it
    /// may hear of a failure from its next call.
    pub fn reduce_of<T: Reducible>(
        &mut self,
        group: &Group,
        root: u32,
        op: ReduceOp,
        values: &mut [T],
    ) -> Result<(), Error> {
        check_root(root, group)?;
        let task = self.begin_task(group, head(CollectiveKind::Reduce, root, op, values))?;
        let reduction = Reduction::new(&task, op, values);
        let result = reduction.and_then(|mut reduction| reduction.reduce(self, root));
        self.end_task(&task, result)
    }

    /// Combines the `values` of all processes of the job at rank `root`; see [`Node::reduce_of`].
    ///
    /// # Errors
    /// As [`Node::reduce_of`].
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
