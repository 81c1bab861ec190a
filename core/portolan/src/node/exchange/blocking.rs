// SPDX-License-Identifier: MIT OR Apache-2.0
//! Blocking forms.

use super::Operator;
use crate::error::Error;
use crate::node::{Group, Node};
use bytemuck::{Pod, cast_slice, cast_slice_mut};

/// Converts numbers of elements to bytes.
fn bytes_of<T>(counts: &[usize]) -> Vec<usize> {
    let bytes = |count: &usize| count.saturating_mul(size_of::<T>());
    counts.iter().map(bytes).collect()
}

impl Group {
    /// Collects the blocks of all members, of equal lengths, at every member.
    ///
    /// # Errors
    /// As [`Node::barrier`]; [`Error::CollectiveMismatch`] when lengths, roots or operators differ;
    /// [`Error::Setting`] when lengths and counts do not fit each other.
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// # let all = Group::all(&node); let size = all.size() as usize;
    /// let mut ranks = vec![0; size];
    /// let mine = [node.rank()];
    /// all.allgather(&mut node, &mine, &mut ranks)?;
    /// assert_eq!(ranks, all.ranks());
    /// # Ok(()) }
    /// ```
    pub fn allgather<T: Pod>(
        &self,
        node: &mut Node,
        mine: &[T],
        all: &mut [T],
    ) -> Result<(), Error> {
        let operation = super::allgather(self, size_of_val(mine), size_of_val(all))?;
        operation.perform(node, self, cast_slice(mine), cast_slice_mut(all))
    }

    /// Collects the blocks of all members at every member. All pass the same `counts`, the
    /// numbers of elements of the members' blocks.
    ///
    /// # Errors
    /// As [`Node::barrier`]; [`Error::CollectiveMismatch`] when lengths, roots or operators differ;
    /// [`Error::Setting`] when lengths and counts do not fit each other.
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// # let all = Group::all(&node); let size = all.size() as usize;
    /// let mut bytes = vec![0_u8; 2 * size];
    /// all.allgatherv(&mut node, &[1, 2], &mut bytes, &vec![2; size])?;
    /// assert_eq!(&bytes[..2], [1, 2]);
    /// # Ok(()) }
    /// ```
    pub fn allgatherv<T: Pod>(
        &self,
        node: &mut Node,
        mine: &[T],
        all: &mut [T],
        counts: &[usize],
    ) -> Result<(), Error> {
        let (lens, len) = (bytes_of::<T>(counts), size_of_val(all));
        let operation = super::allgatherv(self, size_of_val(mine), len, &lens)?;
        operation.perform(node, self, cast_slice(mine), cast_slice_mut(all))
    }

    /// Collects the blocks of all members, of equal lengths, at member `root`. Other members pass an
    /// empty slice as `all`.
    ///
    /// # Errors
    /// As [`Node::barrier`]; [`Error::CollectiveMismatch`] when lengths, roots or operators differ;
    /// [`Error::Setting`] when lengths and counts do not fit each other.
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// # let all = Group::all(&node); let size = all.size() as usize;
    /// let mut ranks = vec![0; if node.rank() == 0 { size } else { 0 }];
    /// let mine = [node.rank()];
    /// all.gather(&mut node, 0, &mine, &mut ranks)?;
    /// println!("{ranks:?}");
    /// # Ok(()) }
    /// ```
    pub fn gather<T: Pod>(
        &self,
        node: &mut Node,
        root: u32,
        mine: &[T],
        all: &mut [T],
    ) -> Result<(), Error> {
        let operation = super::gather(self, root, size_of_val(mine), size_of_val(all))?;
        operation.perform(node, self, cast_slice(mine), cast_slice_mut(all))
    }

    /// Collects the blocks of all members at member `root`, which alone passes `all` and `counts`.
    ///
    /// # Errors
    /// As [`Node::barrier`]; [`Error::CollectiveMismatch`] when lengths, roots or operators differ;
    /// [`Error::Setting`] when lengths and counts do not fit each other.
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// # let all = Group::all(&node); let size = all.size() as usize;
    /// let (counts, len) = if node.rank() == 0 { (vec![2; size], 2 * size) } else { (vec![], 0) };
    /// let mut bytes = vec![0_u8; len];
    /// all.gatherv(&mut node, 0, &[1, 2], &mut bytes, &counts)?;
    /// println!("{bytes:?}");
    /// # Ok(()) }
    /// ```
    pub fn gatherv<T: Pod>(
        &self,
        node: &mut Node,
        root: u32,
        mine: &[T],
        all: &mut [T],
        counts: &[usize],
    ) -> Result<(), Error> {
        let (lens, len) = (bytes_of::<T>(counts), size_of_val(all));
        let operation = super::gatherv(self, root, size_of_val(mine), len, &lens)?;
        operation.perform(node, self, cast_slice(mine), cast_slice_mut(all))
    }

    /// Distributes the blocks of member `root`, of equal lengths. Other members pass an empty slice as
    /// `all`.
    ///
    /// # Errors
    /// As [`Node::barrier`]; [`Error::CollectiveMismatch`] when lengths, roots or operators differ;
    /// [`Error::Setting`] when lengths and counts do not fit each other.
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// # let all = Group::all(&node); let size = all.size() as usize;
    /// let (parts, mut mine) = (vec![7_u32; if node.rank() == 0 { size } else { 0 }], [0]);
    /// all.scatter(&mut node, 0, &parts, &mut mine)?;
    /// assert_eq!(mine, [7]);
    /// # Ok(()) }
    /// ```
    pub fn scatter<T: Pod>(
        &self,
        node: &mut Node,
        root: u32,
        all: &[T],
        mine: &mut [T],
    ) -> Result<(), Error> {
        let operation = super::scatter(self, root, size_of_val(all), size_of_val(mine))?;
        operation.perform(node, self, cast_slice(all), cast_slice_mut(mine))
    }

    /// Distributes the blocks of member `root`, which alone passes `all` and `counts`.
    ///
    /// # Errors
    /// As [`Node::barrier`]; [`Error::CollectiveMismatch`] when lengths, roots or operators differ;
    /// [`Error::Setting`] when lengths and counts do not fit each other.
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// # let all = Group::all(&node); let size = all.size() as usize;
    /// let counts = vec![2; if node.rank() == 0 { size } else { 0 }];
    /// let (parts, mut mine) = (vec![7_u8; 2 * counts.len()], [0; 2]);
    /// all.scatterv(&mut node, 0, &parts, &counts, &mut mine)?;
    /// assert_eq!(mine, [7, 7]);
    /// # Ok(()) }
    /// ```
    pub fn scatterv<T: Pod>(
        &self,
        node: &mut Node,
        root: u32,
        all: &[T],
        counts: &[usize],
        mine: &mut [T],
    ) -> Result<(), Error> {
        let (lens, len) = (bytes_of::<T>(counts), size_of_val(all));
        let operation = super::scatterv(self, root, len, &lens, size_of_val(mine))?;
        operation.perform(node, self, cast_slice(all), cast_slice_mut(mine))
    }

    /// Sends each member its block of `mine`, and receives the block of each member for this one.
    /// All blocks have equal lengths.
    ///
    /// # Errors
    /// As [`Node::barrier`]; [`Error::CollectiveMismatch`] when lengths, roots or operators differ;
    /// [`Error::Setting`] when lengths and counts do not fit each other.
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// # let all = Group::all(&node); let size = all.size() as usize;
    /// let (mine, mut theirs) = (vec![node.rank(); size], vec![0; size]);
    /// all.alltoall(&mut node, &mine, &mut theirs)?;
    /// assert_eq!(theirs, all.ranks());
    /// # Ok(()) }
    /// ```
    pub fn alltoall<T: Pod>(
        &self,
        node: &mut Node,
        mine: &[T],
        theirs: &mut [T],
    ) -> Result<(), Error> {
        let operation = super::alltoall(self, size_of_val(mine), size_of_val(theirs))?;
        operation.perform(node, self, cast_slice(mine), cast_slice_mut(theirs))
    }

    /// Sends each member its block of `mine`, of `counts` elements, and receives the block of each
    /// member for this one, of `their_counts` elements.
    ///
    /// # Errors
    /// As [`Node::barrier`]; [`Error::CollectiveMismatch`] when lengths, roots or operators differ;
    /// [`Error::Setting`] when lengths and counts do not fit each other.
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// # let all = Group::all(&node); let size = all.size() as usize;
    /// let counts = vec![2; size];
    /// let (mine, mut theirs) = (vec![5_u8; 2 * size], vec![0; 2 * size]);
    /// all.alltoallv(&mut node, &mine, &counts, &mut theirs, &counts)?;
    /// assert_eq!(theirs, mine);
    /// # Ok(()) }
    /// ```
    pub fn alltoallv<T: Pod>(
        &self,
        node: &mut Node,
        mine: &[T],
        counts: &[usize],
        theirs: &mut [T],
        their_counts: &[usize],
    ) -> Result<(), Error> {
        let (lens, their_lens) = (bytes_of::<T>(counts), bytes_of::<T>(their_counts));
        let sending = (size_of_val(mine), &lens[..]);
        let receiving = (size_of_val(theirs), &their_lens[..]);
        let operation = super::alltoallv(self, sending, receiving)?;
        operation.perform(node, self, cast_slice(mine), cast_slice_mut(theirs))
    }

    /// Combines the `values` of all members, element by element, and gives each member an equal part
    /// of the result.
    ///
    /// # Errors
    /// As [`Node::barrier`]; [`Error::CollectiveMismatch`] when lengths, roots or operators differ;
    /// [`Error::Setting`] when lengths and counts do not fit each other.
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// # let all = Group::all(&node); let size = all.size() as usize;
    /// let sum = Operator::new::<u32>(ReduceOp::Sum);
    /// let (values, mut own_sum) = (vec![1_u32; size], [0]);
    /// all.reduce_scatter(&mut node, sum, &values, &mut own_sum)?;
    /// assert_eq!(own_sum, [all.size()]);
    /// # Ok(()) }
    /// ```
    pub fn reduce_scatter<T: Pod>(
        &self,
        node: &mut Node,
        operator: Operator,
        values: &[T],
        own: &mut [T],
    ) -> Result<(), Error> {
        let (len, own_len) = (size_of_val(values), size_of_val(own));
        let operation = super::reduce_scatter(self, operator, len, own_len)?;
        operation.perform(node, self, cast_slice(values), cast_slice_mut(own))
    }

    /// Combines values like [`Group::reduce_scatter`], and gives each member as many as `counts` has
    /// for it. All members pass the same `counts`.
    ///
    /// # Errors
    /// As [`Node::barrier`]; [`Error::CollectiveMismatch`] when lengths, roots or operators differ;
    /// [`Error::Setting`] when lengths and counts do not fit each other.
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// # let all = Group::all(&node); let size = all.size() as usize;
    /// let sum = Operator::new::<u32>(ReduceOp::Sum);
    /// let (values, mut own_sum) = (vec![1_u32; size], [0]);
    /// all.reduce_scatterv(&mut node, sum, &values, &mut own_sum, &vec![1; size])?;
    /// assert_eq!(own_sum, [all.size()]);
    /// # Ok(()) }
    /// ```
    pub fn reduce_scatterv<T: Pod>(
        &self,
        node: &mut Node,
        operator: Operator,
        values: &[T],
        own: &mut [T],
        counts: &[usize],
    ) -> Result<(), Error> {
        let (lens, len) = (bytes_of::<T>(counts), size_of_val(values));
        let operation = super::reduce_scatterv(self, operator, len, size_of_val(own), &lens)?;
        operation.perform(node, self, cast_slice(values), cast_slice_mut(own))
    }

    /// Combines the `values` of this member and all before it, element by element, in place.
    ///
    /// # Errors
    /// As [`Node::barrier`]; [`Error::CollectiveMismatch`] when lengths, roots or operators differ;
    /// [`Error::Setting`] when lengths and counts do not fit each other.
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// # let all = Group::all(&node); let size = all.size() as usize;
    /// let sum = Operator::new::<u32>(ReduceOp::Sum);
    /// let mut number = [1_u32];
    /// all.scan(&mut node, sum, &mut number)?;
    /// assert_eq!(number, [node.rank() + 1]);
    /// # Ok(()) }
    /// ```
    pub fn scan<T: Pod>(
        &self,
        node: &mut Node,
        operator: Operator,
        values: &mut [T],
    ) -> Result<(), Error> {
        let operation = super::scan(self, operator, size_of_val(values))?;
        operation.perform(node, self, &[], cast_slice_mut(values))
    }

    /// Combines the values of all members before this one, element by element, into `values`, which
    /// has those of this member. Member 0 keeps its values.
    ///
    /// # Errors
    /// As [`Group::scan`].
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// let all = Group::all(&node);
    /// let mut before = [1_u32];
    /// all.exscan(&mut node, Operator::new::<u32>(ReduceOp::Sum), &mut before)?;
    /// assert_eq!(before, [node.rank().max(1)]);
    /// # Ok(()) }
    /// ```
    pub fn exscan<T: Pod>(
        &self,
        node: &mut Node,
        operator: Operator,
        values: &mut [T],
    ) -> Result<(), Error> {
        let operation = super::exscan(self, operator, size_of_val(values))?;
        operation.perform(node, self, &[], cast_slice_mut(values))
    }

    /// Combines the `values` of all members like [`Node::allreduce`], by any operator.
    ///
    /// # Errors
    /// As [`Node::barrier`]; [`Error::CollectiveMismatch`] when lengths, roots or operators differ;
    /// [`Error::Setting`] when lengths and counts do not fit each other.
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// # let all = Group::all(&node); let size = all.size() as usize;
    /// let longest = Operator::by(|one: u32, other: u32| one.max(other));
    /// let mut value = [node.rank()];
    /// all.allreduce_by(&mut node, longest, &mut value)?;
    /// assert_eq!(value, [node.size() - 1]);
    /// # Ok(()) }
    /// ```
    pub fn allreduce_by<T: Pod>(
        &self,
        node: &mut Node,
        operator: Operator,
        values: &mut [T],
    ) -> Result<(), Error> {
        let operation = super::allreduce(self, operator, size_of_val(values))?;
        operation.perform(node, self, &[], cast_slice_mut(values))
    }

    /// Combines the `values` of all members like [`Node::reduce`], by any operator.
    ///
    /// # Errors
    /// As [`Node::barrier`]; [`Error::CollectiveMismatch`] when lengths, roots or operators differ;
    /// [`Error::Setting`] when lengths and counts do not fit each other.
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// # let all = Group::all(&node); let size = all.size() as usize;
    /// let longest = Operator::by(|one: u32, other: u32| one.max(other));
    /// let mut value = [node.rank()];
    /// all.reduce_by(&mut node, 0, longest, &mut value)?;
    /// println!("{value:?} at rank 0");
    /// # Ok(()) }
    /// ```
    pub fn reduce_by<T: Pod>(
        &self,
        node: &mut Node,
        root: u32,
        operator: Operator,
        values: &mut [T],
    ) -> Result<(), Error> {
        let operation = super::reduce(self, root, operator, size_of_val(values))?;
        operation.perform(node, self, &[], cast_slice_mut(values))
    }
}

impl Node {
    /// Calls [`Group::allgather`] for the group of all processes.
    ///
    /// # Errors
    /// As [`Group::allgather`].
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// # let all = Group::all(&node); let size = all.size() as usize;
    /// let mut ranks = vec![0; size];
    /// let mine = [node.rank()];
    /// node.allgather(&mine, &mut ranks)?;
    /// assert_eq!(ranks, all.ranks());
    /// # Ok(()) }
    /// ```
    pub fn allgather<T: Pod>(&mut self, mine: &[T], all: &mut [T]) -> Result<(), Error> {
        let group = Group::all(self);
        group.allgather(self, mine, all)
    }

    /// Calls [`Group::allgatherv`] for the group of all processes.
    ///
    /// # Errors
    /// As [`Group::allgatherv`].
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// # let all = Group::all(&node); let size = all.size() as usize;
    /// let mut bytes = vec![0_u8; 2 * size];
    /// node.allgatherv(&[1, 2], &mut bytes, &vec![2; size])?;
    /// assert_eq!(&bytes[..2], [1, 2]);
    /// # Ok(()) }
    /// ```
    pub fn allgatherv<T: Pod>(
        &mut self,
        mine: &[T],
        all: &mut [T],
        counts: &[usize],
    ) -> Result<(), Error> {
        let group = Group::all(self);
        group.allgatherv(self, mine, all, counts)
    }

    /// Calls [`Group::gather`] for the group of all processes.
    ///
    /// # Errors
    /// As [`Group::gather`].
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// # let all = Group::all(&node); let size = all.size() as usize;
    /// let mut ranks = vec![0; if node.rank() == 0 { size } else { 0 }];
    /// let mine = [node.rank()];
    /// node.gather(0, &mine, &mut ranks)?;
    /// println!("{ranks:?}");
    /// # Ok(()) }
    /// ```
    pub fn gather<T: Pod>(&mut self, root: u32, mine: &[T], all: &mut [T]) -> Result<(), Error> {
        let group = Group::all(self);
        group.gather(self, root, mine, all)
    }

    /// Calls [`Group::gatherv`] for the group of all processes.
    ///
    /// # Errors
    /// As [`Group::gatherv`].
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// # let all = Group::all(&node); let size = all.size() as usize;
    /// let (counts, len) = if node.rank() == 0 { (vec![2; size], 2 * size) } else { (vec![], 0) };
    /// let mut bytes = vec![0_u8; len];
    /// node.gatherv(0, &[1, 2], &mut bytes, &counts)?;
    /// println!("{bytes:?}");
    /// # Ok(()) }
    /// ```
    pub fn gatherv<T: Pod>(
        &mut self,
        root: u32,
        mine: &[T],
        all: &mut [T],
        counts: &[usize],
    ) -> Result<(), Error> {
        let group = Group::all(self);
        group.gatherv(self, root, mine, all, counts)
    }

    /// Calls [`Group::scatter`] for the group of all processes.
    ///
    /// # Errors
    /// As [`Group::scatter`].
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// # let all = Group::all(&node); let size = all.size() as usize;
    /// let (parts, mut mine) = (vec![7_u32; if node.rank() == 0 { size } else { 0 }], [0]);
    /// node.scatter(0, &parts, &mut mine)?;
    /// assert_eq!(mine, [7]);
    /// # Ok(()) }
    /// ```
    pub fn scatter<T: Pod>(&mut self, root: u32, all: &[T], mine: &mut [T]) -> Result<(), Error> {
        let group = Group::all(self);
        group.scatter(self, root, all, mine)
    }

    /// Calls [`Group::scatterv`] for the group of all processes.
    ///
    /// # Errors
    /// As [`Group::scatterv`].
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// # let all = Group::all(&node); let size = all.size() as usize;
    /// let counts = vec![2; if node.rank() == 0 { size } else { 0 }];
    /// let (parts, mut mine) = (vec![7_u8; 2 * counts.len()], [0; 2]);
    /// node.scatterv(0, &parts, &counts, &mut mine)?;
    /// assert_eq!(mine, [7, 7]);
    /// # Ok(()) }
    /// ```
    pub fn scatterv<T: Pod>(
        &mut self,
        root: u32,
        all: &[T],
        counts: &[usize],
        mine: &mut [T],
    ) -> Result<(), Error> {
        let group = Group::all(self);
        group.scatterv(self, root, all, counts, mine)
    }

    /// Calls [`Group::alltoall`] for the group of all processes.
    ///
    /// # Errors
    /// As [`Group::alltoall`].
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// # let all = Group::all(&node); let size = all.size() as usize;
    /// let (mine, mut theirs) = (vec![node.rank(); size], vec![0; size]);
    /// node.alltoall(&mine, &mut theirs)?;
    /// assert_eq!(theirs, all.ranks());
    /// # Ok(()) }
    /// ```
    pub fn alltoall<T: Pod>(&mut self, mine: &[T], theirs: &mut [T]) -> Result<(), Error> {
        let group = Group::all(self);
        group.alltoall(self, mine, theirs)
    }

    /// Calls [`Group::alltoallv`] for the group of all processes.
    ///
    /// # Errors
    /// As [`Group::alltoallv`].
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// # let all = Group::all(&node); let size = all.size() as usize;
    /// let counts = vec![2; size];
    /// let (mine, mut theirs) = (vec![5_u8; 2 * size], vec![0; 2 * size]);
    /// node.alltoallv(&mine, &counts, &mut theirs, &counts)?;
    /// assert_eq!(theirs, mine);
    /// # Ok(()) }
    /// ```
    pub fn alltoallv<T: Pod>(
        &mut self,
        mine: &[T],
        counts: &[usize],
        theirs: &mut [T],
        their_counts: &[usize],
    ) -> Result<(), Error> {
        let group = Group::all(self);
        group.alltoallv(self, mine, counts, theirs, their_counts)
    }

    /// Calls [`Group::reduce_scatter`] for the group of all processes.
    ///
    /// # Errors
    /// As [`Group::reduce_scatter`].
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// # let all = Group::all(&node); let size = all.size() as usize;
    /// let sum = Operator::new::<u32>(ReduceOp::Sum);
    /// let (values, mut own_sum) = (vec![1_u32; size], [0]);
    /// node.reduce_scatter(sum, &values, &mut own_sum)?;
    /// assert_eq!(own_sum, [all.size()]);
    /// # Ok(()) }
    /// ```
    pub fn reduce_scatter<T: Pod>(
        &mut self,
        operator: Operator,
        values: &[T],
        own: &mut [T],
    ) -> Result<(), Error> {
        let group = Group::all(self);
        group.reduce_scatter(self, operator, values, own)
    }

    /// Calls [`Group::reduce_scatterv`] for the group of all processes.
    ///
    /// # Errors
    /// As [`Group::reduce_scatterv`].
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// # let all = Group::all(&node); let size = all.size() as usize;
    /// let sum = Operator::new::<u32>(ReduceOp::Sum);
    /// let (values, mut own_sum) = (vec![1_u32; size], [0]);
    /// node.reduce_scatterv(sum, &values, &mut own_sum, &vec![1; size])?;
    /// assert_eq!(own_sum, [all.size()]);
    /// # Ok(()) }
    /// ```
    pub fn reduce_scatterv<T: Pod>(
        &mut self,
        operator: Operator,
        values: &[T],
        own: &mut [T],
        counts: &[usize],
    ) -> Result<(), Error> {
        let group = Group::all(self);
        group.reduce_scatterv(self, operator, values, own, counts)
    }

    /// Calls [`Group::scan`] for the group of all processes.
    ///
    /// # Errors
    /// As [`Group::scan`].
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// # let all = Group::all(&node); let size = all.size() as usize;
    /// let sum = Operator::new::<u32>(ReduceOp::Sum);
    /// let mut number = [1_u32];
    /// node.scan(sum, &mut number)?;
    /// assert_eq!(number, [node.rank() + 1]);
    /// # Ok(()) }
    /// ```
    pub fn scan<T: Pod>(&mut self, operator: Operator, values: &mut [T]) -> Result<(), Error> {
        let group = Group::all(self);
        group.scan(self, operator, values)
    }

    /// Calls [`Group::exscan`] for the group of all processes.
    ///
    /// # Errors
    /// As [`Group::exscan`].
    ///
    /// # Examples
    /// See [`Group::exscan`].
    pub fn exscan<T: Pod>(&mut self, operator: Operator, values: &mut [T]) -> Result<(), Error> {
        let group = Group::all(self);
        group.exscan(self, operator, values)
    }

    /// Calls [`Group::allreduce_by`] for the group of all processes.
    ///
    /// # Errors
    /// As [`Group::allreduce_by`].
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// # let all = Group::all(&node); let size = all.size() as usize;
    /// let longest = Operator::by(|one: u32, other: u32| one.max(other));
    /// let mut value = [node.rank()];
    /// node.allreduce_by(longest, &mut value)?;
    /// assert_eq!(value, [node.size() - 1]);
    /// # Ok(()) }
    /// ```
    pub fn allreduce_by<T: Pod>(
        &mut self,
        operator: Operator,
        values: &mut [T],
    ) -> Result<(), Error> {
        let group = Group::all(self);
        group.allreduce_by(self, operator, values)
    }

    /// Calls [`Group::reduce_by`] for the group of all processes.
    ///
    /// # Errors
    /// As [`Group::reduce_by`].
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// # let all = Group::all(&node); let size = all.size() as usize;
    /// let longest = Operator::by(|one: u32, other: u32| one.max(other));
    /// let mut value = [node.rank()];
    /// node.reduce_by(0, longest, &mut value)?;
    /// println!("{value:?} at rank 0");
    /// # Ok(()) }
    /// ```
    pub fn reduce_by<T: Pod>(
        &mut self,
        root: u32,
        operator: Operator,
        values: &mut [T],
    ) -> Result<(), Error> {
        let group = Group::all(self);
        group.reduce_by(self, root, operator, values)
    }
}
