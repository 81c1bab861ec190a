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
}

/// A class with collective operations.
trait Scoped {
    fn scope(&self) -> Scope<'_>;
}

impl Scoped for Group {
    fn scope(&self) -> Scope<'_> {
        Scope {
            shared: self.node.get().shared(),
            group: &self.group,
        }
    }
}

/// The group of all processes.
impl Scoped for Node {
    fn scope(&self) -> Scope<'_> {
        Scope {
            shared: self.shared(),
            group: self.everybody(),
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
        "and" => Ok(ReduceOp::And),
        "or" => Ok(ReduceOp::Or),
        "xor" => Ok(ReduceOp::Xor),
        _ => Err(PyValueError::new_err(format!(
            "unknown reduction '{name}'; use 'sum', 'product', 'min', 'max', 'and', 'or' or 'xor'"
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

    fn exscan(
        self,
        py: Python<'_>,
        values: &Bound<'_, PyAny>,
        op: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Request> {
        let view = View::write(values)?;
        let operator = self.operator(&view, op)?;
        let place = view.into_place();
        self.begin(py, |node, group| group.iexscan(node, operator, place))
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

    /// Number of the group, by which its members name it; 0 for the whole job.
    #[getter]
    fn id(&self) -> u16 {
        self.group.id()
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

/// Defines the blocking and the non-blocking form of operations of a class.
macro_rules! operations {
    ($class:ty: $(
        $(#[$doc:meta])*
        $name:ident, $nonblocking:ident($($signature:tt)*) [$($parameter:tt)*]
            => $method:ident($($argument:expr),*);
    )*) => {
        #[pymethods]
        impl $class {
            $(
                $(#[$doc])*
                #[pyo3(signature = ($($signature)*))]
                fn $name(&self, py: Python<'_>, $($parameter)*) -> PyResult<()> {
                    let request = self.scope().$method(py $(, $argument)*)?;
                    request.finish(py, None).map(drop)
                }

                #[doc = concat!("Starts `", stringify!($name), "` without waiting.")]
                #[pyo3(signature = ($($signature)*))]
                fn $nonblocking(&self, py: Python<'_>, $($parameter)*) -> PyResult<Request> {
                    self.scope().$method(py $(, $argument)*)
                }
            )*
        }
    };
}

/// Defines the collective operations of a class.
macro_rules! collectives {
    ($class:ty) => {
        operations! { $class:
            /// Waits until every member has called this.
            barrier, ibarrier()
                []
                => barrier();

            /// Copies `buffer` of member `root` to those of all other members.
            broadcast, ibroadcast(buffer, root = 0)
                [buffer: &Bound<'_, PyAny>, root: u32]
                => broadcast(buffer, root);

            /// Combines the `values` of all members, element by element. Every member gets the
            /// result in place. `op` is 'sum', 'product', 'min', 'max', or a function of two
            /// memoryviews, the values of lower and of upper members, that returns their result.
            allreduce, iallreduce(values, op = None)
                [values: &Bound<'_, PyAny>, op: Option<&Bound<'_, PyAny>>]
                => allreduce(values, op);

            /// Combines the `values` of all members at member `root`, in place. At the others they
            /// are partial results afterwards.
            reduce, ireduce(values, op = None, root = 0)
                [values: &Bound<'_, PyAny>, op: Option<&Bound<'_, PyAny>>, root: u32]
                => reduce(values, op, root);

            /// Collects the blocks `mine` of all members, of equal lengths, in `all` of every member.
            allgather, iallgather(mine, all)
                [mine: &Bound<'_, PyAny>, all: &Bound<'_, PyAny>]
                => allgather((mine, all), None);

            /// Collects blocks like `allgather`; `counts` has the numbers of elements.
            allgatherv, iallgatherv(mine, all, counts)
                [mine: &Bound<'_, PyAny>, all: &Bound<'_, PyAny>, counts: Vec<usize>]
                => allgather((mine, all), Some(&counts));

            /// Collects the blocks `mine` of all members, of equal lengths, in `all` of member `root`.
            gather, igather(mine, all = None, root = 0)
                [mine: &Bound<'_, PyAny>, all: Option<&Bound<'_, PyAny>>, root: u32]
                => gather((mine, all), None, root);

            /// Collects blocks like `gather`; member `root` passes the numbers of elements in `counts`.
            gatherv, igatherv(mine, all = None, counts = None, root = 0)
                [mine: &Bound<'_, PyAny>,
                 all: Option<&Bound<'_, PyAny>>,
                 counts: Option<Vec<usize>>,
                 root: u32]
                => gather((mine, all), Some(counts.as_deref()), root);

            /// Distributes the blocks `all` of member `root`, of equal lengths, to `mine` of the members.
            scatter, iscatter(all, mine, root = 0)
                [all: Option<&Bound<'_, PyAny>>, mine: &Bound<'_, PyAny>, root: u32]
                => scatter((all, mine), None, root);

            /// Distributes blocks like `scatter`; member `root` passes the numbers of elements in `counts`.
            scatterv, iscatterv(all, counts, mine, root = 0)
                [all: Option<&Bound<'_, PyAny>>,
                 counts: Option<Vec<usize>>,
                 mine: &Bound<'_, PyAny>,
                 root: u32]
                => scatter((all, mine), Some(counts.as_deref()), root);

            /// Sends each member its block of `mine`, and receives those for this member in `theirs`.
            alltoall, ialltoall(mine, theirs)
                [mine: &Bound<'_, PyAny>, theirs: &Bound<'_, PyAny>]
                => alltoall((mine, theirs), None);

            /// Exchanges blocks like `alltoall`, of `counts` and `their_counts` elements.
            alltoallv, ialltoallv(mine, counts, theirs, their_counts)
                [mine: &Bound<'_, PyAny>,
                 counts: Vec<usize>,
                 theirs: &Bound<'_, PyAny>,
                 their_counts: Vec<usize>]
                => alltoall((mine, theirs), Some((&counts, &their_counts)));

            /// Combines the `values` of all members; each gets an equal part of the result in `own`.
            reduce_scatter, ireduce_scatter(values, own, op = None)
                [values: &Bound<'_, PyAny>, own: &Bound<'_, PyAny>, op: Option<&Bound<'_, PyAny>>]
                => reduce_scatter((values, own), None, op);

            /// Combines values like `reduce_scatter`, in parts of `counts` elements.
            reduce_scatterv, ireduce_scatterv(values, own, counts, op = None)
                [values: &Bound<'_, PyAny>,
                 own: &Bound<'_, PyAny>,
                 counts: Vec<usize>,
                 op: Option<&Bound<'_, PyAny>>]
                => reduce_scatter((values, own), Some(&counts), op);

            /// Combines the `values` of this member and all before it, in place.
            scan, iscan(values, op = None)
                [values: &Bound<'_, PyAny>, op: Option<&Bound<'_, PyAny>>]
                => scan(values, op);

            /// Combines the `values` of all members before this one, in place. The first member keeps
            /// its values.
            exscan, iexscan(values, op = None)
                [values: &Bound<'_, PyAny>, op: Option<&Bound<'_, PyAny>>]
                => exscan(values, op);
        }
    };
}

collectives!(Group);
collectives!(Node);
