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
    /// Begins [`Group::allgather`]; see [`Node::ibarrier_of`].
    ///
    /// # Errors
    /// As [`Group::allgather`]; [`Error::BufferShared`]. Some are reported by the request.
    pub fn iallgather(
        &self,
        node: &mut Node,
        mine: impl Into<Buffer>,
        all: impl Into<Buffer>,
    ) -> Result<Request, Error> {
        let (mine, all) = (mine.into(), all.into());
        let lens = vec![mine.len(); self.size() as usize];
        let operation = super::allgather(self, mine.len(), all.len(), &lens)?;
        operation.begin(node, self, mine, all)
    }

    /// Begins [`Group::allgatherv`]; see [`Node::ibarrier_of`].
    ///
    /// # Errors
    /// As [`Group::allgatherv`]; [`Error::BufferShared`]. Some are reported by the request.
    pub fn iallgatherv(
        &self,
        node: &mut Node,
        mine: impl Into<Buffer>,
        all: impl Into<Buffer>,
        lens: &[usize],
    ) -> Result<Request, Error> {
        let (mine, all) = (mine.into(), all.into());
        let operation = super::allgather(self, mine.len(), all.len(), lens)?;
        operation.begin(node, self, mine, all)
    }

    /// Begins [`Group::gather`]; see [`Node::ibarrier_of`].
    ///
    /// # Errors
    /// As [`Group::gather`]; [`Error::BufferShared`]. Some are reported by the request.
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

    /// Begins [`Group::gatherv`]; see [`Node::ibarrier_of`].
    ///
    /// # Errors
    /// As [`Group::gatherv`]; [`Error::BufferShared`]. Some are reported by the request.
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

    /// Begins [`Group::scatter`]; see [`Node::ibarrier_of`].
    ///
    /// # Errors
    /// As [`Group::scatter`]; [`Error::BufferShared`]. Some are reported by the request.
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

    /// Begins [`Group::scatterv`]; see [`Node::ibarrier_of`].
    ///
    /// # Errors
    /// As [`Group::scatterv`]; [`Error::BufferShared`]. Some are reported by the request.
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

    /// Begins [`Group::alltoall`]; see [`Node::ibarrier_of`].
    ///
    /// # Errors
    /// As [`Group::alltoall`]; [`Error::BufferShared`]. Some are reported by the request.
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

    /// Begins [`Group::alltoallv`]; see [`Node::ibarrier_of`].
    ///
    /// # Errors
    /// As [`Group::alltoallv`]; [`Error::BufferShared`]. Some are reported by the request.
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

    /// Begins [`Group::reduce_scatter`]; see [`Node::ibarrier_of`].
    ///
    /// # Errors
    /// As [`Group::reduce_scatter`]; [`Error::BufferShared`]. Some are reported by the request.
    pub fn ireduce_scatter(
        &self,
        node: &mut Node,
        operator: Operator,
        values: impl Into<Buffer>,
        own: impl Into<Buffer>,
    ) -> Result<Request, Error> {
        let (values, own) = (values.into(), own.into());
        let lens = vec![own.len(); self.size() as usize];
        let operation = super::reduce_scatter(self, operator, values.len(), own.len(), &lens)?;
        operation.begin(node, self, values, own)
    }

    /// Begins [`Group::reduce_scatterv`]; see [`Node::ibarrier_of`].
    ///
    /// # Errors
    /// As [`Group::reduce_scatterv`]; [`Error::BufferShared`]. Some are reported by the request.
    pub fn ireduce_scatterv(
        &self,
        node: &mut Node,
        operator: Operator,
        values: impl Into<Buffer>,
        own: impl Into<Buffer>,
        lens: &[usize],
    ) -> Result<Request, Error> {
        let (values, own) = (values.into(), own.into());
        let operation = super::reduce_scatter(self, operator, values.len(), own.len(), lens)?;
        operation.begin(node, self, values, own)
    }

    /// Begins [`Group::scan`]; see [`Node::ibarrier_of`].
    ///
    /// # Errors
    /// As [`Group::scan`]; [`Error::BufferShared`]. Some are reported by the request.
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

    /// Begins [`Group::exscan`]; see [`Node::ibarrier_of`].
    ///
    /// # Errors
    /// As [`Group::exscan`]; [`Error::BufferShared`]. Some are reported by the request.
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

    /// Begins [`Group::allreduce_by`]; see [`Node::ibarrier_of`].
    ///
    /// # Errors
    /// As [`Group::allreduce_by`]; [`Error::BufferShared`]. Some are reported by the request.
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

    /// Begins [`Group::reduce_by`]; see [`Node::ibarrier_of`].
    ///
    /// # Errors
    /// As [`Group::reduce_by`]; [`Error::BufferShared`]. Some are reported by the request.
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
