// SPDX-License-Identifier: MIT OR Apache-2.0
//! Windows: memory of all members of a group that each of them can reach.
//!
//! `docs/guide/remote-memory.md` has the memory model.

use super::{Group, Node, ReduceOp, Registration, RemoteKey, RemoteTarget};
use crate::atomic::{AtomicOp, Number};
use crate::buffer::Buffer;
use crate::error::Error;
use bytemuck::Pod;
use portolan_proto::Access;
use std::fmt;
use std::marker::PhantomData;

/// Elements of all members of a group, with one part at each member.
///
/// An index beyond a member's part gets [`Error::RemoteRefused`].
#[derive(Debug)]
#[must_use = "only `free` returns registered memory"]
pub struct Window<T> {
    registration: Registration,
    group: Group,
    keys: Vec<RemoteKey>,
    lens: Vec<u64>,
    element: PhantomData<fn() -> T>,
}

impl Node {
    /// Registers `len` zeroed elements at each process of the job, and exchanges their keys. All
    /// processes call this, as any collective operation; each chooses its own length.
    ///
    /// # Errors
    /// As [`Node::allreduce`]; [`Error::NoMemory`].
    ///
    /// # Examples
    /// ```
    /// use portolan::Node;
    ///
    /// # fn main() -> Result<(), portolan::Error> {
    /// let mut node = Node::join()?;
    /// let counters = node.window::<u64>(4)?;
    /// let before = counters.fetch_add(&mut node, 0, 3, 5)?;
    /// node.barrier()?;
    /// if node.rank() == 0 {
    ///     assert_eq!(counters.local(&node)[3], 5 * u64::from(node.size()));
    /// }
    /// # let _ = before;
    /// counters.free(&mut node)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn window<T: Pod + fmt::Debug + Send + Sync>(
        &mut self,
        len: usize,
    ) -> Result<Window<T>, Error> {
        let all = Group::all(self);
        self.window_of(&all, len)
    }

    pub(super) fn window_of<T: Pod + fmt::Debug + Send + Sync>(
        &mut self,
        group: &Group,
        len: usize,
    ) -> Result<Window<T>, Error> {
        let memory = vec![T::zeroed(); len];
        let access = Access {
            read: true,
            write: true,
        };
        let registration = self.register(Buffer::typed(memory), access)?;
        let size = group.size() as usize;
        let mut words = vec![0_u64; 2 * size];
        let own = group.rank() as usize;
        words[own] = u64::from_le_bytes(registration.key().to_bytes());
        words[size + own] = len as u64;
        if let Err(error) = self.allreduce_of(group, ReduceOp::Max, &mut words) {
            self.deregister(registration);
            return Err(error);
        }
        let (keys, lens) = words.split_at(size);
        let key = |word: &u64| RemoteKey::from_bytes(word.to_le_bytes());
        Ok(Window {
            registration,
            group: group.clone(),
            keys: keys.iter().map(key).collect(),
            lens: lens.to_vec(),
            element: PhantomData,
        })
    }

    /// Adds `value` to a number in the memory of another process, and returns the previous one.
    ///
    /// # Errors
    /// As [`Node::atomic`].
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// # let window = node.window::<u64>(4)?;
    /// let place = window.target(0, 3)?;
    /// let before = node.fetch_add(place, 5_u64)?;
    /// # window.free(&mut node)?;
    /// # Ok(()) }
    /// ```
    pub fn fetch_add<T: Number>(&mut self, at: RemoteTarget, value: T) -> Result<T, Error> {
        let mut before = [T::ZERO];
        self.fetch_atomic(at, AtomicOp::Sum, &[value], &mut before)?;
        Ok(before[0])
    }

    /// Replaces a number in the memory of another process by `new` if it equals `expected`. Returns
    /// the previous number.
    ///
    /// # Errors
    /// As [`Node::atomic`].
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// # let window = node.window::<u64>(4)?;
    /// let place = window.target(0, 3)?;
    /// let before = node.compare_swap(place, 0_u64, 5)?;
    /// # window.free(&mut node)?;
    /// # Ok(()) }
    /// ```
    pub fn compare_swap<T: Number>(
        &mut self,
        at: RemoteTarget,
        expected: T,
        new: T,
    ) -> Result<T, Error> {
        let mut before = [T::ZERO];
        self.fetch_atomic(at, AtomicOp::SwapIfEqual, &[new, expected], &mut before)?;
        Ok(before[0])
    }
}

impl<T: Pod> Window<T> {
    /// Returns the group of the window.
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// # let window = node.window::<u64>(4)?;
    /// assert_eq!(window.group().size(), node.size());
    /// # window.free(&mut node)?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn group(&self) -> &Group {
        &self.group
    }

    /// Returns the number of elements of `member`; 0 if there is no such member.
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// # let window = node.window::<u64>(4)?;
    /// assert_eq!(window.len_of(0), 4);
    /// # window.free(&mut node)?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn len_of(&self, member: u32) -> u64 {
        self.lens.get(member as usize).copied().unwrap_or(0)
    }

    /// Returns the place of element `index` of `member`, for the operations of [`Node`].
    ///
    /// # Errors
    /// [`Error::NoSuchMember`].
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// # let window = node.window::<u64>(4)?;
    /// let place = window.target(0, 3)?.notify(5);
    /// node.put(place, &7_u64.to_ne_bytes())?;
    /// # window.free(&mut node)?;
    /// # Ok(()) }
    /// ```
    pub fn target(&self, member: u32, index: u64) -> Result<RemoteTarget, Error> {
        let Some(key) = self.keys.get(member as usize) else {
            let size = self.group.size();
            return Err(Error::NoSuchMember { member, size });
        };
        let offset = index.saturating_mul(size_of::<T>() as u64);
        Ok(RemoteTarget::new(self.group.rank_of(member), *key, offset))
    }

    /// Puts `elements` at `index` of `member`. They are in place when this returns.
    ///
    /// # Errors
    /// As [`Node::put`]; [`Error::NoSuchMember`].
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// # let window = node.window::<u64>(4)?;
    /// window.put(&mut node, 0, 2, &[7, 8])?;
    /// let mut back = [0; 2];
    /// window.get(&mut node, 0, 2, &mut back)?;
    /// assert_eq!(back, [7, 8]);
    /// # window.free(&mut node)?;
    /// # Ok(()) }
    /// ```
    pub fn put(
        &self,
        node: &mut Node,
        member: u32,
        index: u64,
        elements: &[T],
    ) -> Result<(), Error> {
        let to = self.target(member, index)?;
        node.put(to, bytemuck::cast_slice(elements))
    }

    /// Gets elements from `index` of `member` on.
    ///
    /// # Errors
    /// As [`Node::get`]; [`Error::NoSuchMember`].
    ///
    /// # Examples
    /// See [`Window::put`].
    pub fn get(
        &self,
        node: &mut Node,
        member: u32,
        index: u64,
        elements: &mut [T],
    ) -> Result<(), Error> {
        let from = self.target(member, index)?;
        node.get(from, bytemuck::cast_slice_mut(elements))
    }

    /// Returns the own elements. They do not change before the next call of the library.
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// # let window = node.window::<u64>(4)?;
    /// window.local_mut(&mut node)[1] = 9;
    /// assert_eq!(window.local(&node)[1], 9);
    /// let memory: Vec<u64> = window.free(&mut node)?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn local<'a>(&self, node: &'a Node) -> &'a [T] {
        bytemuck::cast_slice(node.registered(&self.registration))
    }

    /// Returns the own elements for writing.
    ///
    /// # Examples
    /// See [`Window::local`].
    #[must_use]
    pub fn local_mut<'a>(&self, node: &'a mut Node) -> &'a mut [T] {
        bytemuck::cast_slice_mut(node.registered_mut(&self.registration))
    }

    /// Waits until all members have called this, and returns the own elements. Operations of all
    /// members on the window have then ended.
    ///
    /// # Errors
    /// As [`Node::barrier`]. The memory is then lost with the window.
    ///
    /// # Examples
    /// See [`Window::local`].
    pub fn free(self, node: &mut Node) -> Result<Vec<T>, Error> {
        let all_done = node.barrier_of(&self.group);
        let memory = node.deregister(self.registration);
        all_done?;
        memory.into_typed()
    }
}

impl<T: Pod + Number> Window<T> {
    /// Adds `value` to element `index` of `member`, and returns the previous number.
    ///
    /// # Errors
    /// As [`Node::atomic`]; [`Error::NoSuchMember`].
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// # let window = node.window::<u64>(4)?;
    /// let before = window.fetch_add(&mut node, 0, 3, 5)?;
    /// # window.free(&mut node)?;
    /// # Ok(()) }
    /// ```
    pub fn fetch_add(
        &self,
        node: &mut Node,
        member: u32,
        index: u64,
        value: T,
    ) -> Result<T, Error> {
        node.fetch_add(self.target(member, index)?, value)
    }

    /// Replaces element `index` of `member` by `new` if it equals `expected`. Returns the previous
    /// number.
    ///
    /// # Errors
    /// As [`Node::atomic`]; [`Error::NoSuchMember`].
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// # let window = node.window::<u64>(4)?;
    /// let before = window.compare_swap(&mut node, 0, 3, 0, 5)?;
    /// # window.free(&mut node)?;
    /// # Ok(()) }
    /// ```
    pub fn compare_swap(
        &self,
        node: &mut Node,
        member: u32,
        index: u64,
        expected: T,
        new: T,
    ) -> Result<T, Error> {
        node.compare_swap(self.target(member, index)?, expected, new)
    }
}
