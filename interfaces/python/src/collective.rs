// SPDX-License-Identifier: MIT OR Apache-2.0
//! Groups and their collective operations. All work in place on the memory of their arguments.

use crate::node::Node;
use crate::request::Request;
use crate::shared::Shared;
use crate::view::{View, with_element};
use portolan::ReduceOp;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::sync::Arc;

/// An ordered subset of the processes of a job.
#[pyclass(frozen, module = "portolan")]
pub(crate) struct Group {
    node: Py<Node>,
    group: portolan::Group,
}

impl Group {
    pub(crate) fn new(node: Py<Node>, group: portolan::Group) -> Group {
        Group { node, group }
    }

    pub(crate) fn node(&self) -> &Py<Node> {
        &self.node
    }

    pub(crate) fn library(&self) -> &portolan::Group {
        &self.group
    }

    fn scope(&self) -> Scope<'_> {
        Scope {
            shared: self.node.get().shared(),
            group: &self.group,
        }
    }
}

/// A group and its node, for operations.
#[derive(Clone, Copy)]
struct Scope<'a> {
    shared: &'a Arc<Shared>,
    group: &'a portolan::Group,
}

/// Converts the name of a reduction.
fn op_of(name: &str) -> PyResult<ReduceOp> {
    match name {
        "sum" => Ok(ReduceOp::Sum),
        "product" => Ok(ReduceOp::Product),
        "min" => Ok(ReduceOp::Min),
        "max" => Ok(ReduceOp::Max),
        _ => Err(PyValueError::new_err(format!(
            "there is no reduction '{name}'; take 'sum', 'product', 'min' or 'max'"
        ))),
    }
}

impl Scope<'_> {
    fn begin(
        self,
        py: Python<'_>,
        begin: impl FnOnce(
            &mut portolan::Node,
            &portolan::Group,
        ) -> Result<portolan::Request, portolan::Error>
        + Send,
    ) -> PyResult<Request> {
        Request::begin(self.shared, py, |node| begin(node, self.group))
    }

    fn barrier(self, py: Python<'_>) -> PyResult<Request> {
        self.begin(py, |node, group| node.ibarrier_of(group))
    }

    fn broadcast(self, py: Python<'_>, buffer: &Bound<'_, PyAny>, root: u32) -> PyResult<Request> {
        let buffer = match self.group.rank() == root {
            true => View::read(buffer)?.into_source(),
            false => View::write(buffer)?.into_place(),
        };
        self.begin(py, |node, group| node.ibroadcast_of(group, root, buffer))
    }

    fn allreduce(self, py: Python<'_>, values: &Bound<'_, PyAny>, op: &str) -> PyResult<Request> {
        let (view, op) = (View::write(values)?, op_of(op)?);
        let element = view.element()?;
        self.begin(py, |node, group| {
            let buffer = view.into_place();
            with_element!(element, T => node.iallreduce_buffer::<T>(group, op, buffer))
        })
    }

    fn reduce(
        self,
        py: Python<'_>,
        values: &Bound<'_, PyAny>,
        op: &str,
        root: u32,
    ) -> PyResult<Request> {
        let (view, op) = (View::write(values)?, op_of(op)?);
        let element = view.element()?;
        self.begin(py, |node, group| {
            let buffer = view.into_place();
            with_element!(element, T => node.ireduce_buffer::<T>(group, root, op, buffer))
        })
    }
}

fn finish(py: Python<'_>, request: PyResult<Request>) -> PyResult<()> {
    request?.finish(py, None).map(drop)
}

#[pymethods]
impl Group {
    /// Index of this process in the group.
    #[getter]
    fn rank(&self) -> u32 {
        self.group.rank()
    }

    /// Number of members.
    #[getter]
    fn size(&self) -> u32 {
        self.group.size()
    }

    /// Ranks of the members, in the order of the group.
    #[getter]
    fn ranks(&self) -> Vec<u32> {
        self.group.ranks().to_vec()
    }

    /// Splits the group: members that pass the same `colour` form a new group, ordered by `key`. A
    /// member that passes None takes part and gets None.
    #[pyo3(signature = (colour, key = 0))]
    fn split(&self, py: Python<'_>, colour: Option<u32>, key: u32) -> PyResult<Option<Group>> {
        let shared = self.node.get().shared();
        let part = shared.enter_detached(py, |node| Ok(self.group.split(node, colour, key)?))?;
        Ok(part.map(|part| Group::new(self.node.clone_ref(py), part)))
    }

    fn __repr__(&self) -> String {
        let (rank, size) = (self.group.rank(), self.group.size());
        format!("<portolan.Group member {rank} of {size}>")
    }
}

/// Defines the collective operations of a class.
macro_rules! collectives {
    ($class:ty, $self:ident => $scope:expr) => {
        #[pymethods]
        impl $class {
            /// Waits until every member has called this.
            fn barrier(&$self, py: Python<'_>) -> PyResult<()> {
                finish(py, $scope.barrier(py))
            }

            /// Starts a barrier without waiting.
            fn ibarrier(&$self, py: Python<'_>) -> PyResult<Request> {
                $scope.barrier(py)
            }

            /// Copies `buffer` of member `root` to those of all other members.
            #[pyo3(signature = (buffer, root = 0))]
            fn broadcast(
                &$self,
                py: Python<'_>,
                buffer: &Bound<'_, PyAny>,
                root: u32,
            ) -> PyResult<()> {
                finish(py, $scope.broadcast(py, buffer, root))
            }

            /// Starts a broadcast without waiting.
            #[pyo3(signature = (buffer, root = 0))]
            fn ibroadcast(
                &$self,
                py: Python<'_>,
                buffer: &Bound<'_, PyAny>,
                root: u32,
            ) -> PyResult<Request> {
                $scope.broadcast(py, buffer, root)
            }

            /// Combines the `values` of all members, element by element. Every member gets the
            /// result in place.
            #[pyo3(signature = (values, op = "sum"))]
            fn allreduce(&$self, py: Python<'_>, values: &Bound<'_, PyAny>, op: &str) -> PyResult<()> {
                finish(py, $scope.allreduce(py, values, op))
            }

            /// Starts a reduction like `allreduce` without waiting.
            #[pyo3(signature = (values, op = "sum"))]
            fn iallreduce(
                &$self,
                py: Python<'_>,
                values: &Bound<'_, PyAny>,
                op: &str,
            ) -> PyResult<Request> {
                $scope.allreduce(py, values, op)
            }

            /// Combines the `values` of all members at member `root`, in place. At the others they
            /// are partial results afterwards.
            #[pyo3(signature = (values, op = "sum", root = 0))]
            fn reduce(
                &$self,
                py: Python<'_>,
                values: &Bound<'_, PyAny>,
                op: &str,
                root: u32,
            ) -> PyResult<()> {
                finish(py, $scope.reduce(py, values, op, root))
            }

            /// Starts a reduction like `reduce` without waiting.
            #[pyo3(signature = (values, op = "sum", root = 0))]
            fn ireduce(
                &$self,
                py: Python<'_>,
                values: &Bound<'_, PyAny>,
                op: &str,
                root: u32,
            ) -> PyResult<Request> {
                $scope.reduce(py, values, op, root)
            }
        }
    };
}

collectives!(Group, self => self.scope());
collectives!(Node, self => Scope {
    shared: self.shared(),
    group: self.everybody(),
});
