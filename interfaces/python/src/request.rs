// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests: operations that do not wait.

use crate::error::Failure;
use crate::node::Node;
use crate::shared::{Shared, timeout_of};
use crate::status::Status;
use parking_lot::Mutex;
use portolan::{Completion, Ended, Failed};
use pyo3::prelude::*;
use pyo3::types::PyList;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// An operation that was started without waiting. Its memory stays exported until it is complete.
/// If a request is dropped before that, a receive is cancelled.
#[pyclass(frozen, module = "portolan")]
pub(crate) struct Request {
    shared: Arc<Shared>,
    is_call: bool,
    state: Mutex<State>,
}

enum State {
    Pending(portolan::Request),
    Complete(Status),
    /// Shared, so that Python uses the exception only after the lock is released. Python may give up
    /// its own lock then.
    Failed(Arc<PyErr>),
}

/// Result of an operation, without its buffer.
pub(crate) type Outcome = Result<Status, Failure>;

impl Request {
    pub(crate) fn new(shared: &Arc<Shared>, request: portolan::Request) -> Request {
        Request {
            shared: Arc::clone(shared),
            is_call: false,
            state: Mutex::new(State::Pending(request)),
        }
    }

    /// Starts an operation.
    pub(crate) fn begin(
        shared: &Arc<Shared>,
        py: Python<'_>,
        begin: impl FnOnce(&mut portolan::Node) -> Result<portolan::Request, portolan::Error> + Send,
    ) -> PyResult<Request> {
        let request = shared.enter(py, |node| Ok(begin(node)?))?;
        Ok(Request::new(shared, request))
    }

    /// Marks the request as a call: its completion has the reply.
    pub(crate) fn of_call(mut self) -> Request {
        self.is_call = true;
        self
    }

    /// Forgets an operation after its result was taken elsewhere.
    pub(crate) fn forget(&self) {
        self.settle(Err(Failure::from(portolan::Error::StaleRequest)));
    }

    pub(crate) fn pending(&self) -> Option<portolan::Request> {
        match &*self.state.lock() {
            State::Pending(request) => Some(*request),
            State::Complete(_) | State::Failed(_) => None,
        }
    }

    /// Returns the result if the operation has ended. Can be called repeatedly.
    fn result(&self, py: Python<'_>) -> PyResult<Option<Status>> {
        let error = match &*self.state.lock() {
            State::Pending(_) => return Ok(None),
            State::Complete(status) => return Ok(Some(status.clone())),
            State::Failed(error) => Arc::clone(error),
        };
        Err(error.clone_ref(py))
    }

    pub(crate) fn outcome(&self, done: Result<Completion, Failed>) -> Outcome {
        let done = done?;
        Ok(match self.is_call {
            true => Status::of_call(done),
            false => Status::from(&done),
        })
    }

    pub(crate) fn settle(&self, outcome: Outcome) {
        let mut state = self.state.lock();
        // Another thread may have had the result first.
        if matches!(*state, State::Pending(_)) {
            *state = match outcome {
                Ok(status) => State::Complete(status),
                Err(failure) => State::Failed(Arc::new(failure.into())),
            };
        }
    }

    /// Waits for the end, and returns the result; `None` at the timeout.
    pub(crate) fn finish(
        &self,
        py: Python<'_>,
        timeout: Option<Duration>,
    ) -> PyResult<Option<Status>> {
        if self.pending().is_some() {
            self.shared.wait(py, timeout, |node, slice| {
                // The thread that watches requests may have settled it.
                let Some(request) = self.pending() else {
                    return Ok(Some(()));
                };
                let done = match slice {
                    Some(slice) => node.wait_timeout(request, slice).transpose(),
                    None => Some(node.wait(request)),
                };
                Ok(done.map(|done| self.settle(self.outcome(done))))
            })?;
        }
        self.result(py)
    }
}

#[pymethods]
impl Request {
    /// Waits until the operation has ended. Returns its status, or None at the timeout.
    #[pyo3(signature = (timeout = None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<Status>> {
        self.finish(py, timeout_of(timeout)?)
    }

    /// Makes progress once. Returns the status if the operation has ended.
    fn test(&self, py: Python<'_>) -> PyResult<Option<Status>> {
        if self.pending().is_some() {
            self.shared.enter(py, |node| {
                let done = self.pending().map(|request| node.test(request).transpose());
                if let Some(Some(done)) = done {
                    self.settle(self.outcome(done));
                }
                Ok(())
            })?;
        }
        self.result(py)
    }

    /// Lets a thread of the package complete the request while the program computes. The thread calls
    /// `function` with the request when the operation has ended, or after `timeout`.
    #[pyo3(signature = (function = None, timeout = None))]
    fn then(
        slf: &Bound<'_, Self>,
        function: Option<Py<PyAny>>,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        let (py, shared) = (slf.py(), &slf.get().shared);
        shared.check_owner()?;
        shared.watch(slf.clone().unbind(), function, timeout_of(timeout)?)?;
        shared.refresh_watch(py);
        Ok(())
    }

    /// Cancels a receive, or a call without a reply. Returns whether it did.
    fn cancel(&self, py: Python<'_>) -> PyResult<bool> {
        self.shared.enter(py, |node| {
            let Some(request) = self.pending() else {
                return Ok(false);
            };
            let is_cancelled = node.cancel(request);
            if is_cancelled && let Some(done) = node.test(request).transpose() {
                self.settle(self.outcome(done));
            }
            Ok(is_cancelled)
        })
    }

    /// True once the operation has ended and its result is known. Reading it makes no progress.
    #[getter]
    fn done(&self) -> bool {
        self.pending().is_none()
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        if let State::Pending(request) = *self.state.get_mut() {
            self.shared.on_dropped(request);
        }
    }
}

/// The pending requests of one list.
struct Listed<'a> {
    /// Position of each in the list.
    indices: Vec<usize>,
    requests: Vec<&'a Request>,
    raw: Vec<portolan::Request>,
}

impl<'a> Listed<'a> {
    fn new(all: &'a [Bound<'_, Request>]) -> Listed<'a> {
        let mut listed = Listed {
            indices: Vec::with_capacity(all.len()),
            requests: Vec::with_capacity(all.len()),
            raw: Vec::with_capacity(all.len()),
        };
        for (index, request) in all.iter().enumerate() {
            if let Some(raw) = request.get().pending() {
                listed.indices.push(index);
                listed.requests.push(request.get());
                listed.raw.push(raw);
            }
        }
        listed
    }

    /// Stores the result of a request, and returns its position in the list. The caller has the
    /// node: the thread that watches requests would take the request for a stale one.
    fn settle(&self, ended: Ended) -> usize {
        let request = self.requests[ended.index];
        request.settle(request.outcome(ended.result));
        self.indices[ended.index]
    }
}

/// Returns the first request that has its result.
fn first_done<'a, 'py>(all: &'a [Bound<'py, Request>]) -> Option<&'a Bound<'py, Request>> {
    all.iter().find(|one| one.get().pending().is_none())
}

/// Removes a request from the list, which another thread may have changed meanwhile.
fn take<'py>(
    list: &Bound<'py, PyList>,
    request: &Bound<'py, Request>,
) -> PyResult<Bound<'py, PyAny>> {
    if let Some(index) = list.iter().position(|one| one.is(request)) {
        list.del_item(index)?;
    }
    Ok(request.clone().into_any())
}

#[pymethods]
impl Node {
    /// Waits until one of the requests has ended. Removes it from the list and returns it; None at
    /// the timeout, or if the list is empty.
    #[pyo3(signature = (requests, timeout = None))]
    fn wait_any<'py>(
        &self,
        py: Python<'py>,
        requests: &Bound<'py, PyList>,
        timeout: Option<f64>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let all = requests.extract::<Vec<Bound<'py, Request>>>()?;
        // Before the test: another thread may settle a request between the two.
        let listed = Listed::new(&all);
        if let Some(done) = first_done(&all) {
            return take(requests, done).map(Some);
        }
        if listed.raw.is_empty() {
            return Ok(None);
        }
        let ended = self
            .shared()
            .wait(py, timeout_of(timeout)?, |node, slice| {
                let mut raw = listed.raw.clone();
                let ended = match slice {
                    Some(slice) => node.wait_any_timeout(&mut raw, slice),
                    None => node.wait_any(&mut raw),
                };
                Ok(ended.map(|ended| listed.settle(ended)))
            })?;
        ended.map(|index| take(requests, &all[index])).transpose()
    }

    /// Waits until at least one of the requests has ended. Removes and returns all that have.
    #[pyo3(signature = (requests, timeout = None))]
    fn wait_some<'py>(
        &self,
        py: Python<'py>,
        requests: &Bound<'py, PyList>,
        timeout: Option<f64>,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let mut ended = Vec::new();
        let mut next = self.wait_any(py, requests, timeout)?;
        while let Some(one) = next {
            ended.push(one);
            next = self.test_any(py, requests)?;
        }
        Ok(ended)
    }

    /// Waits until all requests have ended. Returns their statuses; None at the timeout. A failure is
    /// raised after all have ended.
    #[pyo3(signature = (requests, timeout = None))]
    fn wait_all(
        &self,
        py: Python<'_>,
        requests: Vec<Bound<'_, Request>>,
        timeout: Option<f64>,
    ) -> PyResult<Option<Vec<Status>>> {
        let timeout = timeout_of(timeout)?;
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut statuses = Vec::with_capacity(requests.len());
        let mut failure = None;
        for request in requests {
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            match request.get().finish(py, left) {
                Ok(Some(status)) => statuses.push(status),
                Ok(None) => return Ok(None),
                Err(error) if request.get().pending().is_some() => return Err(error),
                Err(error) => _ = failure.get_or_insert(error),
            }
        }
        match failure {
            None => Ok(Some(statuses)),
            Some(error) => Err(error),
        }
    }

    /// Makes progress once. If one of the requests has ended, removes it from the list and returns
    /// it.
    fn test_any<'py>(
        &self,
        py: Python<'py>,
        requests: &Bound<'py, PyList>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let all = requests.extract::<Vec<Bound<'py, Request>>>()?;
        let listed = Listed::new(&all);
        if let Some(done) = first_done(&all) {
            return take(requests, done).map(Some);
        }
        let ended = self.shared().enter(py, |node| {
            let ended = node.test_any(&mut listed.raw.clone());
            Ok(ended.map(|ended| listed.settle(ended)))
        })?;
        ended.map(|index| take(requests, &all[index])).transpose()
    }
}
