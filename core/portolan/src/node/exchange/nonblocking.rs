// SPDX-License-Identifier: MIT OR Apache-2.0
//! Non-blocking forms. They use buffers of bytes, and all lengths are in bytes.
//!
//! The completion returns the buffer for the result. The other one is dropped.

use super::Operator;
use crate::buffer::Buffer;
use crate::error::Error;
use crate::node::{Group, Node};
use crate::ops::Request;

impl Group {
    /// Begins [`Group::allgather`]; see [`Node::ibarrier`].
    ///
    /// # Errors
    /// As [`Group::allgather`]; [`Error::BufferShared`]. Some are reported by the request.
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// # let all = Group::all(&node); let size = all.size() as usize;
    /// let request = all.iallgather(&mut node, vec![1; 4], vec![0; 4 * size])?;
    /// assert_eq!(node.wait(request)?.buffer.unwrap().len(), 4 * size);
    /// # Ok(()) }
    /// ```
    pub fn iallgather(
        &self,
        node: &mut Node,
        mine: impl Into<Buffer>,
        all: impl Into<Buffer>,
    ) -> Result<Request, Error> {
        let (mine, all) = (mine.into(), all.into());
        let operation = super::allgather(self, mine.len(), all.len())?;
        operation.begin(node, self, mine, all)
    }

    /// Begins [`Group::allgatherv`]; see [`Node::ibarrier`].
    ///
    /// # Errors
    /// As [`Group::allgatherv`]; [`Error::BufferShared`]. Some are reported by the request.
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// # let all = Group::all(&node); let size = all.size() as usize;
    /// let counts = vec![2; size];
    /// let request = all.iallgatherv(&mut node, vec![1; 2], vec![0; 2 * size], &counts)?;
    /// node.wait(request)?;
    /// # Ok(()) }
    /// ```
    pub fn iallgatherv(
        &self,
        node: &mut Node,
        mine: impl Into<Buffer>,
        all: impl Into<Buffer>,
        lens: &[usize],
    ) -> Result<Request, Error> {
        let (mine, all) = (mine.into(), all.into());
        let operation = super::allgatherv(self, mine.len(), all.len(), lens)?;
        operation.begin(node, self, mine, all)
    }

    /// Begins [`Group::gather`]; see [`Node::ibarrier`].
    ///
    /// # Errors
    /// As [`Group::gather`]; [`Error::BufferShared`]. Some are reported by the request.
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// # let all = Group::all(&node); let size = all.size() as usize;
    /// let len = if node.rank() == 0 { 4 * size } else { 0 };
    /// let request = all.igather(&mut node, 0, vec![1; 4], vec![0; len])?;
    /// node.wait(request)?;
    /// # Ok(()) }
    /// ```
    pub fn igather(
        &self,
        node: &mut Node,
        root: u32,
        mine: impl Into<Buffer>,
        all: impl Into<Buffer>,
    ) -> Result<Request, Error> {
        let (mine, all) = (mine.into(), all.into());
        let operation = super::gather(self, root, mine.len(), all.len())?;
        operation.begin(node, self, mine, all)
    }

    /// Begins [`Group::gatherv`]; see [`Node::ibarrier`].
    ///
    /// # Errors
    /// As [`Group::gatherv`]; [`Error::BufferShared`]. Some are reported by the request.
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// # let all = Group::all(&node); let size = all.size() as usize;
    /// let (counts, len) = if node.rank() == 0 { (vec![2; size], 2 * size) } else { (vec![], 0) };
    /// let request = all.igatherv(&mut node, 0, vec![1; 2], vec![0; len], &counts)?;
    /// node.wait(request)?;
    /// # Ok(()) }
    /// ```
    pub fn igatherv(
        &self,
        node: &mut Node,
        root: u32,
        mine: impl Into<Buffer>,
        all: impl Into<Buffer>,
        lens: &[usize],
    ) -> Result<Request, Error> {
        let (mine, all) = (mine.into(), all.into());
        let operation = super::gatherv(self, root, mine.len(), all.len(), lens)?;
        operation.begin(node, self, mine, all)
    }

    /// Begins [`Group::scatter`]; see [`Node::ibarrier`].
    ///
    /// # Errors
    /// As [`Group::scatter`]; [`Error::BufferShared`]. Some are reported by the request.
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// # let all = Group::all(&node); let size = all.size() as usize;
    /// let parts = vec![7; if node.rank() == 0 { 4 * size } else { 0 }];
    /// let request = all.iscatter(&mut node, 0, parts, vec![0; 4])?;
    /// node.wait(request)?;
    /// # Ok(()) }
    /// ```
    pub fn iscatter(
        &self,
        node: &mut Node,
        root: u32,
        all: impl Into<Buffer>,
        mine: impl Into<Buffer>,
    ) -> Result<Request, Error> {
        let (all, mine) = (all.into(), mine.into());
        let operation = super::scatter(self, root, all.len(), mine.len())?;
        operation.begin(node, self, all, mine)
    }

    /// Begins [`Group::scatterv`]; see [`Node::ibarrier`].
    ///
    /// # Errors
    /// As [`Group::scatterv`]; [`Error::BufferShared`]. Some are reported by the request.
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// # let all = Group::all(&node); let size = all.size() as usize;
    /// let counts = vec![2; if node.rank() == 0 { size } else { 0 }];
    /// let parts = vec![7; 2 * counts.len()];
    /// let request = all.iscatterv(&mut node, 0, parts, &counts, vec![0; 2])?;
    /// node.wait(request)?;
    /// # Ok(()) }
    /// ```
    pub fn iscatterv(
        &self,
        node: &mut Node,
        root: u32,
        all: impl Into<Buffer>,
        lens: &[usize],
        mine: impl Into<Buffer>,
    ) -> Result<Request, Error> {
        let (all, mine) = (all.into(), mine.into());
        let operation = super::scatterv(self, root, all.len(), lens, mine.len())?;
        operation.begin(node, self, all, mine)
    }

    /// Begins [`Group::alltoall`]; see [`Node::ibarrier`].
    ///
    /// # Errors
    /// As [`Group::alltoall`]; [`Error::BufferShared`]. Some are reported by the request.
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// # let all = Group::all(&node); let size = all.size() as usize;
    /// let request = all.ialltoall(&mut node, vec![1; 4 * size], vec![0; 4 * size])?;
    /// node.wait(request)?;
    /// # Ok(()) }
    /// ```
    pub fn ialltoall(
        &self,
        node: &mut Node,
        mine: impl Into<Buffer>,
        theirs: impl Into<Buffer>,
    ) -> Result<Request, Error> {
        let (mine, theirs) = (mine.into(), theirs.into());
        let operation = super::alltoall(self, mine.len(), theirs.len())?;
        operation.begin(node, self, mine, theirs)
    }

    /// Begins [`Group::alltoallv`]; see [`Node::ibarrier`].
    ///
    /// # Errors
    /// As [`Group::alltoallv`]; [`Error::BufferShared`]. Some are reported by the request.
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// # let all = Group::all(&node); let size = all.size() as usize;
    /// let lens = vec![2; size];
    /// let (mine, theirs) = (vec![5; 2 * size], vec![0; 2 * size]);
    /// let request = all.ialltoallv(&mut node, mine, &lens, theirs, &lens)?;
    /// node.wait(request)?;
    /// # Ok(()) }
    /// ```
    pub fn ialltoallv(
        &self,
        node: &mut Node,
        mine: impl Into<Buffer>,
        lens: &[usize],
        theirs: impl Into<Buffer>,
        their_lens: &[usize],
    ) -> Result<Request, Error> {
        let (mine, theirs) = (mine.into(), theirs.into());
        let receiving = (theirs.len(), their_lens);
        let operation = super::alltoallv(self, (mine.len(), lens), receiving)?;
        operation.begin(node, self, mine, theirs)
    }

    /// Begins [`Group::reduce_scatter`]; see [`Node::ibarrier`].
    ///
    /// # Errors
    /// As [`Group::reduce_scatter`]; [`Error::BufferShared`]. Some are reported by the request.
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// # let all = Group::all(&node); let size = all.size() as usize;
    /// let sum = Operator::new::<u32>(ReduceOp::Sum);
    /// let request = all.ireduce_scatter(&mut node, sum, vec![1; 4 * size], vec![0; 4])?;
    /// node.wait(request)?;
    /// # Ok(()) }
    /// ```
    pub fn ireduce_scatter(
        &self,
        node: &mut Node,
        operator: Operator,
        values: impl Into<Buffer>,
        own: impl Into<Buffer>,
    ) -> Result<Request, Error> {
        let (values, own) = (values.into(), own.into());
        let operation = super::reduce_scatter(self, operator, values.len(), own.len())?;
        operation.begin(node, self, values, own)
    }

    /// Begins [`Group::reduce_scatterv`]; see [`Node::ibarrier`].
    ///
    /// # Errors
    /// As [`Group::reduce_scatterv`]; [`Error::BufferShared`]. Some are reported by the request.
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// # let all = Group::all(&node); let size = all.size() as usize;
    /// let sum = Operator::new::<u32>(ReduceOp::Sum);
    /// let lens = vec![4; size];
    /// let request = all.ireduce_scatterv(&mut node, sum, vec![1; 4 * size], vec![0; 4], &lens)?;
    /// node.wait(request)?;
    /// # Ok(()) }
    /// ```
    pub fn ireduce_scatterv(
        &self,
        node: &mut Node,
        operator: Operator,
        values: impl Into<Buffer>,
        own: impl Into<Buffer>,
        lens: &[usize],
    ) -> Result<Request, Error> {
        let (values, own) = (values.into(), own.into());
        let operation = super::reduce_scatterv(self, operator, values.len(), own.len(), lens)?;
        operation.begin(node, self, values, own)
    }

    /// Begins [`Group::scan`]; see [`Node::ibarrier`].
    ///
    /// # Errors
    /// As [`Group::scan`]; [`Error::BufferShared`]. Some are reported by the request.
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// # let all = Group::all(&node); let size = all.size() as usize;
    /// let sum = Operator::new::<u32>(ReduceOp::Sum);
    /// let request = all.iscan(&mut node, sum, vec![0; 4])?;
    /// node.wait(request)?;
    /// # Ok(()) }
    /// ```
    pub fn iscan(
        &self,
        node: &mut Node,
        operator: Operator,
        values: impl Into<Buffer>,
    ) -> Result<Request, Error> {
        let values = values.into();
        let operation = super::scan(self, operator, values.len())?;
        operation.begin(node, self, Buffer::from(Vec::new()), values)
    }

    /// Begins [`Group::exscan`]; see [`Node::ibarrier`].
    ///
    /// # Errors
    /// As [`Group::exscan`]; [`Error::BufferShared`]. Some are reported by the request.
    ///
    /// # Examples
    /// See [`Group::exscan`].
    pub fn iexscan(
        &self,
        node: &mut Node,
        operator: Operator,
        values: impl Into<Buffer>,
    ) -> Result<Request, Error> {
        let values = values.into();
        let operation = super::exscan(self, operator, values.len())?;
        operation.begin(node, self, Buffer::from(Vec::new()), values)
    }

    /// Begins [`Group::allreduce_by`]; see [`Node::ibarrier`].
    ///
    /// # Errors
    /// As [`Group::allreduce_by`]; [`Error::BufferShared`]. Some are reported by the request.
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// # let all = Group::all(&node); let size = all.size() as usize;
    /// let longest = Operator::by(|one: u32, other: u32| one.max(other));
    /// let request = all.iallreduce_by(&mut node, longest, vec![0; 4])?;
    /// node.wait(request)?;
    /// # Ok(()) }
    /// ```
    pub fn iallreduce_by(
        &self,
        node: &mut Node,
        operator: Operator,
        values: impl Into<Buffer>,
    ) -> Result<Request, Error> {
        let values = values.into();
        let operation = super::allreduce(self, operator, values.len())?;
        operation.begin(node, self, Buffer::from(Vec::new()), values)
    }

    /// Begins [`Group::reduce_by`]; see [`Node::ibarrier`].
    ///
    /// # Errors
    /// As [`Group::reduce_by`]; [`Error::BufferShared`]. Some are reported by the request.
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// # let all = Group::all(&node); let size = all.size() as usize;
    /// let longest = Operator::by(|one: u32, other: u32| one.max(other));
    /// let request = all.ireduce_by(&mut node, 0, longest, vec![0; 4])?;
    /// node.wait(request)?;
    /// # Ok(()) }
    /// ```
    pub fn ireduce_by(
        &self,
        node: &mut Node,
        root: u32,
        operator: Operator,
        values: impl Into<Buffer>,
    ) -> Result<Request, Error> {
        let values = values.into();
        let operation = super::reduce(self, root, operator, values.len())?;
        operation.begin(node, self, Buffer::from(Vec::new()), values)
    }
}
