// SPDX-License-Identifier: MIT OR Apache-2.0
//! The class `Node`: joining and leaving, ports, and facts about the job.

use crate::collective::Group;
use crate::error::Failure;
use crate::shared::Shared;
use crate::store::Store;
use portolan::PortConfig;
use portolan::binding::Plumbing as _;
use pyo3::exceptions::{PyKeyError, PySystemExit, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};
use std::collections::BTreeMap;
use std::sync::Arc;

/// This process, as a member of its job. Joining is the constructor; `with` leaves at the end.
#[pyclass(frozen, weakref, module = "portolan")]
pub(crate) struct Node {
    shared: Arc<Shared>,
    all: portolan::Group,
    rank: u32,
    size: u32,
    job_id: [u8; 16],
}

impl Node {
    fn of(node: portolan::Node) -> PyResult<Node> {
        let is_alone = node.size() == 1;
        Node::with(node, is_alone)
    }

    /// Returns the object of a process without a launcher, which may get peers.
    pub(crate) fn of_standalone(node: portolan::Node) -> PyResult<Node> {
        Node::with(node, false)
    }

    fn with(node: portolan::Node, is_alone: bool) -> PyResult<Node> {
        Ok(Node {
            all: portolan::Group::all(&node),
            rank: node.rank(),
            size: node.size(),
            job_id: node.job_id(),
            shared: Arc::new(Shared::new(node, is_alone)?),
        })
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(crate) fn own_rank(&self) -> u32 {
        self.rank
    }

    pub(crate) fn everybody(&self) -> &portolan::Group {
        &self.all
    }
}

#[pymethods]
impl Node {
    #[new]
    fn new(py: Python<'_>) -> PyResult<Node> {
        let node = py.detach(portolan::Node::join).map_err(Failure::from)?;
        Node::of(node)
    }

    /// Joins the `size` processes that have `store` in common as number `rank`, whatever has started
    /// them. A store has the methods `set(key, value)` and `get(key)`, which waits for the value.
    #[staticmethod]
    fn join_over(py: Python<'_>, store: Py<PyAny>, rank: u32, size: u32) -> PyResult<Node> {
        let store = Store { store, rank, size };
        let joined = py.detach(|| portolan::Node::join_over(Box::new(store)));
        Node::of(joined.map_err(Failure::from)?)
    }

    /// Leaves the job after everything that was sent has arrived.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let Some(node) = self.shared.take(py)? else {
            return Ok(());
        };
        py.detach(|| node.close()).map_err(Failure::from)?;
        self.shared.raised().check()
    }

    /// Leaves the job at once, like a process that crashes. Messages that are not sent are lost.
    fn abandon(&self, py: Python<'_>) -> PyResult<()> {
        if self.shared.is_forked() {
            return Ok(());
        }
        if let Some(node) = self.shared.take(py)? {
            py.detach(|| node.abandon());
        }
        Ok(())
    }

    /// Ends the whole job with exit status `status`, because of `reason`.
    fn abort(&self, py: Python<'_>, status: i32, reason: &str) -> PyResult<()> {
        self.shared.enter(py, |node| {
            node.abort(status, reason);
            Ok(())
        })
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*exception))]
    fn __exit__(&self, py: Python<'_>, exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        if self.shared.is_forked() {
            // A forked child has nothing to leave, and must keep its exit status.
            return Ok(());
        }
        let kind = exception.get_item(0)?;
        // `sys.exit` ends a program in order.
        match kind.is_none() || kind.is(py.get_type::<PySystemExit>()) {
            true => self.close(py),
            false => self.abandon(py),
        }
    }

    /// Rank of this process, from 0.
    #[getter]
    fn rank(&self) -> u32 {
        self.rank
    }

    /// Number of processes in the job.
    #[getter]
    fn size(&self) -> u32 {
        self.size
    }

    /// Random number of the job, the same in all its processes.
    #[getter]
    fn job_id<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.job_id)
    }

    /// The group of all processes.
    #[getter]
    fn all(slf: &Bound<'_, Self>) -> Group {
        let node = slf.get();
        Group::new(slf.clone().unbind(), node.all.clone())
    }

    /// Creates the group of the processes `ranks` with the number `id`, which all members choose.
    fn group(slf: &Bound<'_, Self>, id: u16, ranks: Vec<u32>) -> PyResult<Group> {
        let made = slf
            .get()
            .shared
            .enter(slf.py(), |node| Ok(portolan::Group::new(node, id, &ranks)?))?;
        Ok(Group::new(slf.clone().unbind(), made))
    }

    /// Returns the address of this host's interface for the job's traffic; None on one host.
    fn network_addr(&self, py: Python<'_>) -> PyResult<Option<String>> {
        let addr = self.shared.enter(py, |node| Ok(node.network_addr()))?;
        Ok(addr.map(|addr| addr.to_string()))
    }

    /// Returns the name of the host of process `rank`.
    fn host_name(&self, py: Python<'_>, rank: u32) -> PyResult<Option<String>> {
        self.shared.enter(py, |node| Ok(node.host_name(rank)))
    }

    /// Returns the program's own option, given with `portolan run --option app.NAME=VALUE`.
    fn option(&self, py: Python<'_>, name: &str) -> PyResult<String> {
        let found = self
            .shared
            .enter(py, |node| Ok(node.option(name).map(str::to_owned)))?;
        found.ok_or_else(|| PyKeyError::new_err(name.to_owned()))
    }

    /// Returns the number of drops of the protocol and the links, by reason.
    fn drops(&self, py: Python<'_>) -> PyResult<BTreeMap<&'static str, u64>> {
        self.shared.enter(py, |node| Ok(node.drops()))
    }

    /// Returns descriptions of the paths to process `rank` that were tried so far.
    fn paths(&self, py: Python<'_>, rank: u32) -> PyResult<Vec<String>> {
        self.shared.enter(py, |node| {
            let paths = node.paths(rank);
            Ok(paths.iter().map(ToString::to_string).collect())
        })
    }

    /// Opens `port` for receives.
    fn open(&self, py: Python<'_>, port: u16) -> PyResult<()> {
        self.shared
            .enter(py, |node| Ok(node.open(port, PortConfig::default())?))
    }

    /// Opens `port` with a handler, which is called with the sender's rank and the bytes of each
    /// message.
    fn open_active(&self, py: Python<'_>, port: u16, handler: Py<PyAny>) -> PyResult<()> {
        let raised = Arc::clone(self.shared.raised());
        self.shared.enter(py, |node| {
            Ok(
                node.open_active(port, PortConfig::in_place(), move |context, message| {
                    raised.run(context, |py| {
                        let bytes = PyBytes::new(py, message.bytes());
                        handler.call1(py, (message.source(), bytes)).map(drop)
                    });
                })?,
            )
        })
    }

    fn __repr__(&self) -> String {
        format!("<portolan.Node rank {} of {}>", self.rank, self.size)
    }

    /// A node belongs to its process.
    fn __reduce__(&self) -> PyResult<Py<PyDict>> {
        Err(PyTypeError::new_err(
            "a Node cannot be pickled: it belongs to its process",
        ))
    }
}

impl Drop for Node {
    /// Leaves the job without Python's lock, because other processes may be waited for.
    fn drop(&mut self) {
        let shared = &self.shared;
        Python::try_attach(|py| {
            if let Ok(Some(node)) = shared.take(py) {
                py.detach(|| drop(node));
            }
        });
    }
}
