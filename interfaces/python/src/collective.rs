// SPDX-License-Identifier: MIT OR Apache-2.0
//! Groups and their collective operations. All work in place on the memory of their arguments.

use crate::node::Node;
use crate::request::Request;
use crate::shared::Shared;
use crate::view::{View, with_element};
use portolan::binding::Plumbing as _;
use portolan::{Operator, ReduceOp};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

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
fn op_of(name: &Bound<'_, PyAny>) -> PyResult<ReduceOp> {
    let name: String = name.extract()?;
    match name.as_str() {
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
        self.begin(py, |node, group| group.ibarrier(node))
    }

    fn broadcast(self, py: Python<'_>, buffer: &Bound<'_, PyAny>, root: u32) -> PyResult<Request> {
        let buffer = match self.group.rank() == root {
            true => View::read(buffer)?.into_source(),
            false => View::write(buffer)?.into_place(),
        };
        self.begin(py, |node, group| group.ibroadcast(node, root, buffer))
    }

    /// Returns the operator for elements like those of `view`: a name, or a function of the program.
    fn operator(self, view: &View, op: Option<&Bound<'_, PyAny>>) -> PyResult<Operator> {
        match op {
            Some(op) if op.is_callable() => {
                let function = op.clone().unbind();
                let (raised, format) = (Arc::clone(self.shared.raised()), view.format());
                let has_failed = AtomicBool::new(false);
                let combine = move |lower: &[u8], upper: &mut [u8]| {
                    // The exception is raised once, and the result is lost.
                    if !has_failed.load(Ordering::Relaxed) {
                        let combined =
                            raised.run_alone(|py| combine_by(py, &function, &format, lower, upper));
                        has_failed.store(combined.is_none(), Ordering::Relaxed);
                    }
                };
                Ok(Operator::of_bytes(view.element_len(), combine))
            }
            op => {
                let op = op.map_or(Ok(ReduceOp::Sum), op_of)?;
                Ok(with_element!(view.element()?, T => Operator::new::<T>(op)))
            }
        }
    }

    fn allreduce(
        self,
        py: Python<'_>,
        values: &Bound<'_, PyAny>,
        op: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Request> {
        let view = View::write(values)?;
        if let Some(function) = op.filter(|op| op.is_callable()) {
            let operator = self.operator(&view, Some(function))?;
            let place = view.into_place();
            return self.begin(py, |node, group| group.iallreduce_by(node, operator, place));
        }
        let (op, element) = (op.map_or(Ok(ReduceOp::Sum), op_of)?, view.element()?);
        self.begin(py, |node, group| {
            let buffer = view.into_place();
            with_element!(element, T => node.iallreduce_buffer::<T>(group, op, buffer))
        })
    }

    fn reduce(
        self,
        py: Python<'_>,
        values: &Bound<'_, PyAny>,
        op: Option<&Bound<'_, PyAny>>,
        root: u32,
    ) -> PyResult<Request> {
        let view = View::write(values)?;
        if let Some(function) = op.filter(|op| op.is_callable()) {
            let operator = self.operator(&view, Some(function))?;
            let place = view.into_place();
            return self.begin(py, |node, group| {
                group.ireduce_by(node, root, operator, place)
            });
        }
        let (op, element) = (op.map_or(Ok(ReduceOp::Sum), op_of)?, view.element()?);
        self.begin(py, |node, group| {
            let buffer = view.into_place();
            with_element!(element, T => node.ireduce_buffer::<T>(group, root, op, buffer))
        })
    }

    fn scan(
        self,
        py: Python<'_>,
        values: &Bound<'_, PyAny>,
        op: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Request> {
        let view = View::write(values)?;
        let operator = self.operator(&view, op)?;
        let place = view.into_place();
        self.begin(py, |node, group| group.iscan(node, operator, place))
    }

    fn reduce_scatter(
        self,
        py: Python<'_>,
        (values, own): (&Bound<'_, PyAny>, &Bound<'_, PyAny>),
        counts: Option<&[usize]>,
        op: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Request> {
        let (values, own) = (View::read(values)?, View::write(own)?);
        let operator = self.operator(&values, op)?;
        let lens = counts.map(|counts| lens_of(&values, counts));
        let (values, own) = (values.into_source(), own.into_place());
        self.begin(py, |node, group| match lens {
            Some(lens) => group.ireduce_scatterv(node, operator, values, own, &lens),
            None => group.ireduce_scatter(node, operator, values, own),
        })
    }

    fn allgather(
        self,
        py: Python<'_>,
        (mine, all): (&Bound<'_, PyAny>, &Bound<'_, PyAny>),
        counts: Option<&[usize]>,
    ) -> PyResult<Request> {
        let (mine, all) = (View::read(mine)?, View::write(all)?);
        let lens = counts.map(|counts| lens_of(&all, counts));
        let (mine, all) = (mine.into_source(), all.into_place());
        self.begin(py, |node, group| match lens {
            Some(lens) => group.iallgatherv(node, mine, all, &lens),
            None => group.iallgather(node, mine, all),
        })
    }

    fn gather(
        self,
        py: Python<'_>,
        (mine, all): (&Bound<'_, PyAny>, Option<&Bound<'_, PyAny>>),
        counts: Option<Option<&[usize]>>,
        root: u32,
    ) -> PyResult<Request> {
        let mine = View::read(mine)?;
        let all = all.map(View::write).transpose()?;
        let lens = counts.map(|counts| match (&all, counts) {
            (Some(all), Some(counts)) => lens_of(all, counts),
            _ => Vec::new(),
        });
        let (mine, all) = (
            mine.into_source(),
            all.map_or_else(nothing, View::into_place),
        );
        self.begin(py, |node, group| match lens {
            Some(lens) => group.igatherv(node, root, mine, all, &lens),
            None => group.igather(node, root, mine, all),
        })
    }

    fn scatter(
        self,
        py: Python<'_>,
        (all, mine): (Option<&Bound<'_, PyAny>>, &Bound<'_, PyAny>),
        counts: Option<Option<&[usize]>>,
        root: u32,
    ) -> PyResult<Request> {
        let mine = View::write(mine)?;
        let all = all.map(View::read).transpose()?;
        let lens = counts.map(|counts| match (&all, counts) {
            (Some(all), Some(counts)) => lens_of(all, counts),
            _ => Vec::new(),
        });
        let (mine, all) = (
            mine.into_place(),
            all.map_or_else(nothing, View::into_source),
        );
        self.begin(py, |node, group| match lens {
            Some(lens) => group.iscatterv(node, root, all, &lens, mine),
            None => group.iscatter(node, root, all, mine),
        })
    }

    fn alltoall(
        self,
        py: Python<'_>,
        (mine, theirs): (&Bound<'_, PyAny>, &Bound<'_, PyAny>),
        counts: Option<(&[usize], &[usize])>,
    ) -> PyResult<Request> {
        let (mine, theirs) = (View::read(mine)?, View::write(theirs)?);
        let lens = counts
            .map(|(counts, their_counts)| (lens_of(&mine, counts), lens_of(&theirs, their_counts)));
        let (mine, theirs) = (mine.into_source(), theirs.into_place());
        self.begin(py, |node, group| match lens {
            Some((lens, their_lens)) => group.ialltoallv(node, mine, &lens, theirs, &their_lens),
            None => group.ialltoall(node, mine, theirs),
        })
    }
}

/// Converts numbers of elements to bytes.
fn lens_of(view: &View, counts: &[usize]) -> Vec<usize> {
    let bytes = |count: &usize| count.saturating_mul(view.element_len());
    counts.iter().map(bytes).collect()
}

fn nothing() -> portolan::Buffer {
    portolan::Buffer::from(Vec::new())
}

/// Calls a function of the program with views of both operands, and stores its result.
fn combine_by(
    py: Python<'_>,
    function: &Py<PyAny>,
    format: &str,
    lower: &[u8],
    upper: &mut [u8],
) -> PyResult<()> {
    let operand = |bytes: &[u8]| {
        let view = PyMemoryView::from(&PyBytes::new(py, bytes))?;
        view.call_method1("cast", (format,))
    };
    let result = function
        .bind(py)
        .call1((operand(lower)?, operand(upper)?))?;
    let result = View::read(&result)?;
    if result.len() != upper.len() {
        return Err(PyValueError::new_err(format!(
            "the function of a reduction has returned {} bytes instead of {}; return as many \
             elements as it gets, of the same type",
            result.len(),
            upper.len()
        )));
    }
    upper.copy_from_slice(result.bytes());
    Ok(())
}

/// Returns the group of all processes, for operations.
fn whole_job(node: &Node) -> Scope<'_> {
    Scope {
        shared: node.shared(),
        group: node.everybody(),
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
            /// result in place. `op` is 'sum', 'product', 'min', 'max', or a function of two
            /// memoryviews, the values of lower and of upper members, that returns their result.
            #[pyo3(signature = (values, op = None))]
            fn allreduce(
                &$self,
                py: Python<'_>,
                values: &Bound<'_, PyAny>,
                op: Option<&Bound<'_, PyAny>>,
            ) -> PyResult<()> {
                finish(py, $scope.allreduce(py, values, op))
            }

            /// Starts a reduction like `allreduce` without waiting.
            #[pyo3(signature = (values, op = None))]
            fn iallreduce(
                &$self,
                py: Python<'_>,
                values: &Bound<'_, PyAny>,
                op: Option<&Bound<'_, PyAny>>,
            ) -> PyResult<Request> {
                $scope.allreduce(py, values, op)
            }

            /// Combines the `values` of all members at member `root`, in place. At the others they
            /// are partial results afterwards.
            #[pyo3(signature = (values, op = None, root = 0))]
            fn reduce(
                &$self,
                py: Python<'_>,
                values: &Bound<'_, PyAny>,
                op: Option<&Bound<'_, PyAny>>,
                root: u32,
            ) -> PyResult<()> {
                finish(py, $scope.reduce(py, values, op, root))
            }

            /// Starts a reduction like `reduce` without waiting.
            #[pyo3(signature = (values, op = None, root = 0))]
            fn ireduce(
                &$self,
                py: Python<'_>,
                values: &Bound<'_, PyAny>,
                op: Option<&Bound<'_, PyAny>>,
                root: u32,
            ) -> PyResult<Request> {
                $scope.reduce(py, values, op, root)
            }
        }
    };
}

/// Defines the operations that move or combine blocks.
macro_rules! block_collectives {
    ($class:ty, $self:ident => $scope:expr) => {
        #[pymethods]
        impl $class {            /// Collects the blocks `mine` of all members, of equal lengths, in `all` of every member.
            #[pyo3(signature = (mine, all))]
            fn allgather(
                &$self,
                py: Python<'_>,
                mine: &Bound<'_, PyAny>,
                all: &Bound<'_, PyAny>,
            ) -> PyResult<()> {
                finish(py, $scope.allgather(py, (mine, all), None))
            }

            /// Starts `allgather` without waiting.
            #[pyo3(signature = (mine, all))]
            fn iallgather(
                &$self,
                py: Python<'_>,
                mine: &Bound<'_, PyAny>,
                all: &Bound<'_, PyAny>,
            ) -> PyResult<Request> {
                $scope.allgather(py, (mine, all), None)
            }

            /// Collects blocks like `allgather`; `counts` has the numbers of elements.
            #[pyo3(signature = (mine, all, counts))]
            fn allgatherv(
                &$self,
                py: Python<'_>,
                mine: &Bound<'_, PyAny>,
                all: &Bound<'_, PyAny>,
                counts: Vec<usize>,
            ) -> PyResult<()> {
                finish(py, $scope.allgather(py, (mine, all), Some(&counts)))
            }

            /// Starts `allgatherv` without waiting.
            #[pyo3(signature = (mine, all, counts))]
            fn iallgatherv(
                &$self,
                py: Python<'_>,
                mine: &Bound<'_, PyAny>,
                all: &Bound<'_, PyAny>,
                counts: Vec<usize>,
            ) -> PyResult<Request> {
                $scope.allgather(py, (mine, all), Some(&counts))
            }

            /// Collects the blocks `mine` of all members, of equal lengths, in `all` of member `root`.
            #[pyo3(signature = (mine, all = None, root = 0))]
            fn gather(
                &$self,
                py: Python<'_>,
                mine: &Bound<'_, PyAny>,
                all: Option<&Bound<'_, PyAny>>,
                root: u32,
            ) -> PyResult<()> {
                finish(py, $scope.gather(py, (mine, all), None, root))
            }

            /// Starts `gather` without waiting.
            #[pyo3(signature = (mine, all = None, root = 0))]
            fn igather(
                &$self,
                py: Python<'_>,
                mine: &Bound<'_, PyAny>,
                all: Option<&Bound<'_, PyAny>>,
                root: u32,
            ) -> PyResult<Request> {
                $scope.gather(py, (mine, all), None, root)
            }

            /// Collects blocks like `gather`; member `root` passes the numbers of elements in `counts`.
            #[pyo3(signature = (mine, all = None, counts = None, root = 0))]
            fn gatherv(
                &$self,
                py: Python<'_>,
                mine: &Bound<'_, PyAny>,
                all: Option<&Bound<'_, PyAny>>,
                counts: Option<Vec<usize>>,
                root: u32,
            ) -> PyResult<()> {
                finish(py, $scope.gather(py, (mine, all), Some(counts.as_deref()), root))
            }

            /// Starts `gatherv` without waiting.
            #[pyo3(signature = (mine, all = None, counts = None, root = 0))]
            fn igatherv(
                &$self,
                py: Python<'_>,
                mine: &Bound<'_, PyAny>,
                all: Option<&Bound<'_, PyAny>>,
                counts: Option<Vec<usize>>,
                root: u32,
            ) -> PyResult<Request> {
                $scope.gather(py, (mine, all), Some(counts.as_deref()), root)
            }

            /// Distributes the blocks `all` of member `root`, of equal lengths, to `mine` of the members.
            #[pyo3(signature = (all, mine, root = 0))]
            fn scatter(
                &$self,
                py: Python<'_>,
                all: Option<&Bound<'_, PyAny>>,
                mine: &Bound<'_, PyAny>,
                root: u32,
            ) -> PyResult<()> {
                finish(py, $scope.scatter(py, (all, mine), None, root))
            }

            /// Starts `scatter` without waiting.
            #[pyo3(signature = (all, mine, root = 0))]
            fn iscatter(
                &$self,
                py: Python<'_>,
                all: Option<&Bound<'_, PyAny>>,
                mine: &Bound<'_, PyAny>,
                root: u32,
            ) -> PyResult<Request> {
                $scope.scatter(py, (all, mine), None, root)
            }

            /// Distributes blocks like `scatter`; member `root` passes the numbers of elements in `counts`.
            #[pyo3(signature = (all, counts, mine, root = 0))]
            fn scatterv(
                &$self,
                py: Python<'_>,
                all: Option<&Bound<'_, PyAny>>,
                counts: Option<Vec<usize>>,
                mine: &Bound<'_, PyAny>,
                root: u32,
            ) -> PyResult<()> {
                finish(py, $scope.scatter(py, (all, mine), Some(counts.as_deref()), root))
            }

            /// Starts `scatterv` without waiting.
            #[pyo3(signature = (all, counts, mine, root = 0))]
            fn iscatterv(
                &$self,
                py: Python<'_>,
                all: Option<&Bound<'_, PyAny>>,
                counts: Option<Vec<usize>>,
                mine: &Bound<'_, PyAny>,
                root: u32,
            ) -> PyResult<Request> {
                $scope.scatter(py, (all, mine), Some(counts.as_deref()), root)
            }

            /// Sends each member its block of `mine`, and receives those for this member in `theirs`.
            #[pyo3(signature = (mine, theirs))]
            fn alltoall(
                &$self,
                py: Python<'_>,
                mine: &Bound<'_, PyAny>,
                theirs: &Bound<'_, PyAny>,
            ) -> PyResult<()> {
                finish(py, $scope.alltoall(py, (mine, theirs), None))
            }

            /// Starts `alltoall` without waiting.
            #[pyo3(signature = (mine, theirs))]
            fn ialltoall(
                &$self,
                py: Python<'_>,
                mine: &Bound<'_, PyAny>,
                theirs: &Bound<'_, PyAny>,
            ) -> PyResult<Request> {
                $scope.alltoall(py, (mine, theirs), None)
            }

            /// Exchanges blocks like `alltoall`, of `counts` and `their_counts` elements.
            #[pyo3(signature = (mine, counts, theirs, their_counts))]
            fn alltoallv(
                &$self,
                py: Python<'_>,
                mine: &Bound<'_, PyAny>,
                counts: Vec<usize>,
                theirs: &Bound<'_, PyAny>,
                their_counts: Vec<usize>,
            ) -> PyResult<()> {
                finish(py, $scope.alltoall(py, (mine, theirs), Some((&counts, &their_counts))))
            }

            /// Starts `alltoallv` without waiting.
            #[pyo3(signature = (mine, counts, theirs, their_counts))]
            fn ialltoallv(
                &$self,
                py: Python<'_>,
                mine: &Bound<'_, PyAny>,
                counts: Vec<usize>,
                theirs: &Bound<'_, PyAny>,
                their_counts: Vec<usize>,
            ) -> PyResult<Request> {
                $scope.alltoall(py, (mine, theirs), Some((&counts, &their_counts)))
            }

            /// Combines the `values` of all members; each gets an equal part of the result in `own`.
            #[pyo3(signature = (values, own, op = None))]
            fn reduce_scatter(
                &$self,
                py: Python<'_>,
                values: &Bound<'_, PyAny>,
                own: &Bound<'_, PyAny>,
                op: Option<&Bound<'_, PyAny>>,
            ) -> PyResult<()> {
                finish(py, $scope.reduce_scatter(py, (values, own), None, op))
            }

            /// Starts `reduce_scatter` without waiting.
            #[pyo3(signature = (values, own, op = None))]
            fn ireduce_scatter(
                &$self,
                py: Python<'_>,
                values: &Bound<'_, PyAny>,
                own: &Bound<'_, PyAny>,
                op: Option<&Bound<'_, PyAny>>,
            ) -> PyResult<Request> {
                $scope.reduce_scatter(py, (values, own), None, op)
            }

            /// Combines values like `reduce_scatter`, in parts of `counts` elements.
            #[pyo3(signature = (values, own, counts, op = None))]
            fn reduce_scatterv(
                &$self,
                py: Python<'_>,
                values: &Bound<'_, PyAny>,
                own: &Bound<'_, PyAny>,
                counts: Vec<usize>,
                op: Option<&Bound<'_, PyAny>>,
            ) -> PyResult<()> {
                finish(py, $scope.reduce_scatter(py, (values, own), Some(&counts), op))
            }

            /// Starts `reduce_scatterv` without waiting.
            #[pyo3(signature = (values, own, counts, op = None))]
            fn ireduce_scatterv(
                &$self,
                py: Python<'_>,
                values: &Bound<'_, PyAny>,
                own: &Bound<'_, PyAny>,
                counts: Vec<usize>,
                op: Option<&Bound<'_, PyAny>>,
            ) -> PyResult<Request> {
                $scope.reduce_scatter(py, (values, own), Some(&counts), op)
            }

            /// Combines the `values` of this member and all before it, in place.
            #[pyo3(signature = (values, op = None))]
            fn scan(
                &$self,
                py: Python<'_>,
                values: &Bound<'_, PyAny>,
                op: Option<&Bound<'_, PyAny>>,
            ) -> PyResult<()> {
                finish(py, $scope.scan(py, values, op))
            }

            /// Starts `scan` without waiting.
            #[pyo3(signature = (values, op = None))]
            fn iscan(
                &$self,
                py: Python<'_>,
                values: &Bound<'_, PyAny>,
                op: Option<&Bound<'_, PyAny>>,
            ) -> PyResult<Request> {
                $scope.scan(py, values, op)
            }
        }
    };
}

collectives!(Group, self => self.scope());
collectives!(Node, self => whole_job(self));
block_collectives!(Group, self => self.scope());
block_collectives!(Node, self => whole_job(self));
