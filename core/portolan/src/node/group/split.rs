// SPDX-License-Identifier: MIT OR Apache-2.0
//! Splitting a group, and the collective operations as methods of a group.

use super::{Group, SPLIT_ID_MIN};
use crate::buffer::Buffer;
use crate::error::Error;
use crate::node::{Node, ReduceOp, Reducible, Window};
use crate::ops::Request;
use bytemuck::Pod;
use std::fmt;

impl Group {
    /// Splits the group: members that pass the same `colour` form a new group, in the order of their
    /// `key`, and of this group for equal keys. A member that passes `None` takes part and gets
    /// none. All members call this, as any collective operation.
    ///
    /// The library chooses the number of the new groups. A process can do this 16,383 times.
    ///
    /// # Errors
    /// As [`Node::allreduce`]; [`Error::Setting`] when no number is left.
    ///
    /// # Examples
    /// ```
    /// use portolan::{Group, Node, ReduceOp};
    ///
    /// # fn main() -> Result<(), portolan::Error> {
    /// let mut node = Node::join()?;
    /// let all = Group::all(&node);
    /// let rank = node.rank();
    /// let colour = Some(rank % 2);
    /// if let Some(half) = all.split(&mut node, colour, rank)? {
    ///     let mut sum = [1_u32];
    ///     half.allreduce(&mut node, ReduceOp::Sum, &mut sum)?;
    ///     assert_eq!(sum[0], half.size());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn split(
        &self,
        node: &mut Node,
        colour: Option<u32>,
        key: u32,
    ) -> Result<Option<Group>, Error> {
        let size = self.size() as usize;
        // Each member fills its own places: its colour, from 1 on, and its key.
        let mut places = vec![0_u64; 2 * size + 1];
        let own = 2 * self.rank() as usize;
        let wanted = colour.map_or(0, |colour| u64::from(colour) + 1);
        (places[own], places[own + 1]) = (wanted, u64::from(key));
        places[2 * size] = u64::from(node.next_group_id);
        node.allreduce_of(self, ReduceOp::Max, &mut places)?;
        let id = u16::try_from(places[2 * size]).unwrap_or(u16::MAX);
        node.next_group_id = id.saturating_add(1);
        if colour.is_none() {
            return Ok(None);
        }
        let pairs = places.chunks_exact(2).zip(self.ranks());
        let same_colour = pairs.filter(|(place, _)| place[0] == wanted);
        let mut members: Vec<(u64, u32)> =
            same_colour.map(|(place, rank)| (place[1], *rank)).collect();
        // Stable, so that members with equal keys keep their order.
        members.sort_by_key(|(key, _)| *key);
        let ranks: Vec<u32> = members.into_iter().map(|(_, rank)| rank).collect();
        Group::with_id(node, id, SPLIT_ID_MIN, &ranks).map(Some)
    }

    /// Returns the ranks of the members, in the order of the group.
    ///
    /// # Examples
    /// ```
    /// # fn main() -> Result<(), portolan::Error> {
    /// use portolan::{Group, Node};
    ///
    /// let node = Node::join()?;
    /// let all = Group::all(&node);
    /// assert_eq!(all.ranks()[all.rank() as usize], node.rank());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn ranks(&self) -> &[u32] {
        self.members().ranks()
    }

    /// Waits until every member has called this, like [`Node::barrier`].
    ///
    /// # Errors
    /// As [`Node::barrier`].
    ///
    /// # Examples
    /// ```
    /// # fn main() -> Result<(), portolan::Error> {
    /// use portolan::{Group, Node};
    ///
    /// let mut node = Node::join()?;
    /// let all = Group::all(&node);
    /// all.barrier(&mut node)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn barrier(&self, node: &mut Node) -> Result<(), Error> {
        node.barrier_of(self)
    }

    /// Begins a barrier, like [`Node::ibarrier`].
    ///
    /// # Errors
    /// As [`Node::ibarrier`].
    ///
    /// # Examples
    /// ```
    /// # fn main() -> Result<(), portolan::Error> {
    /// use portolan::{Group, Node};
    ///
    /// let mut node = Node::join()?;
    /// let all = Group::all(&node);
    /// let barrier = all.ibarrier(&mut node)?;
    /// node.wait(barrier)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn ibarrier(&self, node: &mut Node) -> Result<Request, Error> {
        node.ibarrier_of(self)
    }

    /// Copies `bytes` of member `root` to those of all other members, like [`Node::broadcast`].
    ///
    /// # Errors
    /// As [`Node::broadcast`].
    ///
    /// # Examples
    /// ```
    /// # fn main() -> Result<(), portolan::Error> {
    /// use portolan::{Group, Node};
    ///
    /// let mut node = Node::join()?;
    /// let all = Group::all(&node);
    /// let mut word = *b"ahoy";
    /// all.broadcast(&mut node, 0, &mut word)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn broadcast(&self, node: &mut Node, root: u32, bytes: &mut [u8]) -> Result<(), Error> {
        node.broadcast_of(self, root, bytes)
    }

    /// Begins a broadcast, like [`Node::ibroadcast`].
    ///
    /// # Errors
    /// As [`Node::ibroadcast`].
    ///
    /// # Examples
    /// ```
    /// # fn main() -> Result<(), portolan::Error> {
    /// use portolan::{Group, Node};
    ///
    /// let mut node = Node::join()?;
    /// let all = Group::all(&node);
    /// let broadcast = all.ibroadcast(&mut node, 0, b"ahoy".to_vec())?;
    /// let word: Vec<u8> = node.wait(broadcast)?.into_vec()?;
    /// assert_eq!(word, b"ahoy");
    /// # Ok(())
    /// # }
    /// ```
    pub fn ibroadcast(
        &self,
        node: &mut Node,
        root: u32,
        buffer: impl Into<Buffer>,
    ) -> Result<Request, Error> {
        node.ibroadcast_of(self, root, buffer)
    }

    /// Combines the `values` of all members, like [`Node::allreduce`].
    ///
    /// # Errors
    /// As [`Node::allreduce`].
    ///
    /// # Examples
    /// ```
    /// # fn main() -> Result<(), portolan::Error> {
    /// use portolan::{Group, Node, ReduceOp};
    ///
    /// let mut node = Node::join()?;
    /// let all = Group::all(&node);
    /// let mut sum = [1_u32];
    /// all.allreduce(&mut node, ReduceOp::Sum, &mut sum)?;
    /// assert_eq!(sum[0], all.size());
    /// # Ok(())
    /// # }
    /// ```
    pub fn allreduce<T: Reducible>(
        &self,
        node: &mut Node,
        op: ReduceOp,
        values: &mut [T],
    ) -> Result<(), Error> {
        node.allreduce_of(self, op, values)
    }

    /// Begins to combine the `values` of all members, like [`Node::iallreduce`].
    ///
    /// # Errors
    /// As [`Node::iallreduce`].
    ///
    /// # Examples
    /// ```
    /// # fn main() -> Result<(), portolan::Error> {
    /// use portolan::{Group, Node, ReduceOp};
    ///
    /// let mut node = Node::join()?;
    /// let all = Group::all(&node);
    /// let sum = all.iallreduce(&mut node, ReduceOp::Sum, vec![1_u32])?;
    /// let sum: Vec<u32> = node.wait(sum)?.into_vec()?;
    /// assert_eq!(sum, [all.size()]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn iallreduce<T: Reducible>(
        &self,
        node: &mut Node,
        op: ReduceOp,
        values: Vec<T>,
    ) -> Result<Request, Error> {
        node.iallreduce_of(self, op, values)
    }

    /// Combines the `values` of all members at member `root`, like [`Node::reduce`].
    ///
    /// # Errors
    /// As [`Node::reduce`].
    ///
    /// # Examples
    /// ```
    /// # fn main() -> Result<(), portolan::Error> {
    /// use portolan::{Group, Node, ReduceOp};
    ///
    /// let mut node = Node::join()?;
    /// let all = Group::all(&node);
    /// let mut highest = [all.rank()];
    /// all.reduce(&mut node, 0, ReduceOp::Max, &mut highest)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn reduce<T: Reducible>(
        &self,
        node: &mut Node,
        root: u32,
        op: ReduceOp,
        values: &mut [T],
    ) -> Result<(), Error> {
        node.reduce_of(self, root, op, values)
    }

    /// Begins to combine the `values` of all members at member `root`, like [`Node::ireduce`].
    ///
    /// # Errors
    /// As [`Node::ireduce`].
    ///
    /// # Examples
    /// ```
    /// # fn main() -> Result<(), portolan::Error> {
    /// use portolan::{Group, Node, ReduceOp};
    ///
    /// let mut node = Node::join()?;
    /// let all = Group::all(&node);
    /// let highest = all.ireduce(&mut node, 0, ReduceOp::Max, vec![all.rank()])?;
    /// node.wait(highest)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn ireduce<T: Reducible>(
        &self,
        node: &mut Node,
        root: u32,
        op: ReduceOp,
        values: Vec<T>,
    ) -> Result<Request, Error> {
        node.ireduce_of(self, root, op, values)
    }

    /// Registers `len` zeroed elements at each member, like [`Node::window`].
    ///
    /// # Errors
    /// As [`Node::window`].
    ///
    /// # Examples
    /// ```
    /// # fn main() -> Result<(), portolan::Error> {
    /// use portolan::{Group, Node};
    ///
    /// let mut node = Node::join()?;
    /// let all = Group::all(&node);
    /// let window = all.window::<u64>(&mut node, 4)?;
    /// assert_eq!(window.len_of(0), 4);
    /// window.free(&mut node)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn window<T: Pod + fmt::Debug + Send + Sync>(
        &self,
        node: &mut Node,
        len: usize,
    ) -> Result<Window<T>, Error> {
        node.window_of(self, len)
    }
}
