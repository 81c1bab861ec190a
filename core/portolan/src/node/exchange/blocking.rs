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
    /// As [`Node::barrier_of`]; [`Error::CollectiveMismatch`] when lengths, roots or operators differ;
    /// [`Error::Setting`] when lengths and counts do not fit each other.
    pub fn allgather<T: Pod>(
        &self,
        node: &mut Node,
        mine: &[T],
        all: &mut [T],
    ) -> Result<(), Error> {
        let lens = vec![size_of_val(mine); self.size() as usize];
        let operation = super::allgather(self, lens[0], size_of_val(all), &lens)?;
        operation.perform(node, self, cast_slice(mine), cast_slice_mut(all))
    }

    /// Collects the blocks of all members at every member. All pass the same `counts`, the
    /// numbers of elements of the members' blocks.
    ///
    /// # Errors
    /// As [`Node::barrier_of`]; [`Error::CollectiveMismatch`] when lengths, roots or operators differ;
    /// [`Error::Setting`] when lengths and counts do not fit each other.
    pub fn allgatherv<T: Pod>(
        &self,
        node: &mut Node,
        mine: &[T],
        all: &mut [T],
        counts: &[usize],
    ) -> Result<(), Error> {
        let (lens, len) = (bytes_of::<T>(counts), size_of_val(all));
        let operation = super::allgather(self, size_of_val(mine), len, &lens)?;
        operation.perform(node, self, cast_slice(mine), cast_slice_mut(all))
    }

    /// Collects the blocks of all members, of equal lengths, at member `root`. Other members pass an
    /// empty slice as `all`.
    ///
    /// # Errors
    /// As [`Node::barrier_of`]; [`Error::CollectiveMismatch`] when lengths, roots or operators differ;
    /// [`Error::Setting`] when lengths and counts do not fit each other.
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
    /// As [`Node::barrier_of`]; [`Error::CollectiveMismatch`] when lengths, roots or operators differ;
    /// [`Error::Setting`] when lengths and counts do not fit each other.
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
    /// As [`Node::barrier_of`]; [`Error::CollectiveMismatch`] when lengths, roots or operators differ;
    /// [`Error::Setting`] when lengths and counts do not fit each other.
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
    /// As [`Node::barrier_of`]; [`Error::CollectiveMismatch`] when lengths, roots or operators differ;
    /// [`Error::Setting`] when lengths and counts do not fit each other.
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
    /// As [`Node::barrier_of`]; [`Error::CollectiveMismatch`] when lengths, roots or operators differ;
    /// [`Error::Setting`] when lengths and counts do not fit each other.
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
    /// As [`Node::barrier_of`]; [`Error::CollectiveMismatch`] when lengths, roots or operators differ;
    /// [`Error::Setting`] when lengths and counts do not fit each other.
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
    /// As [`Node::barrier_of`]; [`Error::CollectiveMismatch`] when lengths, roots or operators differ;
    /// [`Error::Setting`] when lengths and counts do not fit each other.
    pub fn reduce_scatter<T: Pod>(
        &self,
        node: &mut Node,
        operator: Operator,
        values: &[T],
        own: &mut [T],
    ) -> Result<(), Error> {
        let lens = vec![size_of_val(own); self.size() as usize];
        let operation = super::reduce_scatter(self, operator, size_of_val(values), lens[0], &lens)?;
        operation.perform(node, self, cast_slice(values), cast_slice_mut(own))
    }

    /// Combines values like [`Group::reduce_scatter`], and gives each member as many as `counts` has
    /// for it. All members pass the same `counts`.
    ///
    /// # Errors
    /// As [`Node::barrier_of`]; [`Error::CollectiveMismatch`] when lengths, roots or operators differ;
    /// [`Error::Setting`] when lengths and counts do not fit each other.
    pub fn reduce_scatterv<T: Pod>(
        &self,
        node: &mut Node,
        operator: Operator,
        values: &[T],
        own: &mut [T],
        counts: &[usize],
    ) -> Result<(), Error> {
        let (lens, len) = (bytes_of::<T>(counts), size_of_val(values));
        let operation = super::reduce_scatter(self, operator, len, size_of_val(own), &lens)?;
        operation.perform(node, self, cast_slice(values), cast_slice_mut(own))
    }

    /// Combines the `values` of this member and all before it, element by element, in place.
    ///
    /// # Errors
    /// As [`Node::barrier_of`]; [`Error::CollectiveMismatch`] when lengths, roots or operators differ;
    /// [`Error::Setting`] when lengths and counts do not fit each other.
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
    pub fn exscan<T: Pod>(
        &self,
        node: &mut Node,
        operator: Operator,
        values: &mut [T],
    ) -> Result<(), Error> {
        let operation = super::exscan(self, operator, size_of_val(values))?;
        operation.perform(node, self, &[], cast_slice_mut(values))
    }

    /// Combines the `values` of all members like [`Node::allreduce_of`], by any operator.
    ///
    /// # Errors
    /// As [`Node::barrier_of`]; [`Error::CollectiveMismatch`] when lengths, roots or operators differ;
    /// [`Error::Setting`] when lengths and counts do not fit each other.
    pub fn allreduce_by<T: Pod>(
        &self,
        node: &mut Node,
        operator: Operator,
        values: &mut [T],
    ) -> Result<(), Error> {
        let operation = super::allreduce(self, operator, size_of_val(values))?;
        operation.perform(node, self, &[], cast_slice_mut(values))
    }

    /// Combines the `values` of all members like [`Node::reduce_of`], by any operator.
    ///
    /// # Errors
    /// As [`Node::barrier_of`]; [`Error::CollectiveMismatch`] when lengths, roots or operators differ;
    /// [`Error::Setting`] when lengths and counts do not fit each other.
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
    pub fn allgather<T: Pod>(&mut self, mine: &[T], all: &mut [T]) -> Result<(), Error> {
        let group = Group::all(self);
        group.allgather(self, mine, all)
    }

    /// Calls [`Group::allgatherv`] for the group of all processes.
    ///
    /// # Errors
    /// As [`Group::allgatherv`].
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
    pub fn gather<T: Pod>(&mut self, root: u32, mine: &[T], all: &mut [T]) -> Result<(), Error> {
        let group = Group::all(self);
        group.gather(self, root, mine, all)
    }

    /// Calls [`Group::gatherv`] for the group of all processes.
    ///
    /// # Errors
    /// As [`Group::gatherv`].
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
    pub fn scatter<T: Pod>(&mut self, root: u32, all: &[T], mine: &mut [T]) -> Result<(), Error> {
        let group = Group::all(self);
        group.scatter(self, root, all, mine)
    }

    /// Calls [`Group::scatterv`] for the group of all processes.
    ///
    /// # Errors
    /// As [`Group::scatterv`].
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
    pub fn alltoall<T: Pod>(&mut self, mine: &[T], theirs: &mut [T]) -> Result<(), Error> {
        let group = Group::all(self);
        group.alltoall(self, mine, theirs)
    }

    /// Calls [`Group::alltoallv`] for the group of all processes.
    ///
    /// # Errors
    /// As [`Group::alltoallv`].
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
    pub fn scan<T: Pod>(&mut self, operator: Operator, values: &mut [T]) -> Result<(), Error> {
        let group = Group::all(self);
        group.scan(self, operator, values)
    }

    /// Calls [`Group::exscan`] for the group of all processes.
    ///
    /// # Errors
    /// As [`Group::exscan`].
    pub fn exscan<T: Pod>(&mut self, operator: Operator, values: &mut [T]) -> Result<(), Error> {
        let group = Group::all(self);
        group.exscan(self, operator, values)
    }

    /// Calls [`Group::allreduce_by`] for the group of all processes.
    ///
    /// # Errors
    /// As [`Group::allreduce_by`].
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
