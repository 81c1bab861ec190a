// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls with a reply.

use crate::error::Failure;
use crate::node::Node;
use crate::request::Request;
use crate::shared::timeout_of;
use crate::view::View;
use portolan::{Error, ReplyTo, Target};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::sync::Arc;
use std::time::Duration;

/// Status of the reply after the server's handler has raised an exception.
const RAISED: u16 = u16::MAX;

/// A request to a server, with the name under which it is answered.
#[pyclass(frozen, module = "portolan")]
pub(crate) struct Call {
    to: ReplyTo,
    data: Py<PyBytes>,
}

#[pymethods]
impl Call {
    /// Rank of the caller.
    #[getter]
    fn source(&self) -> u32 {
        self.to.rank()
    }

    /// Bytes of the request.
    #[getter]
    fn data(&self, py: Python<'_>) -> Py<PyBytes> {
        self.data.clone_ref(py)
    }
}

/// Runs the handler, and returns its reply: status and bytes, or nothing if it replies later.
fn ask(py: Python<'_>, handler: &Py<PyAny>, call: Call) -> PyResult<Option<(u16, Vec<u8>)>> {
    let answer = handler.bind(py).call1((call,))?;
    if answer.is_none() {
        return Ok(None);
    }
    if let Ok((status, bytes)) = answer.extract::<(u16, Bound<'_, PyAny>)>() {
        return Ok(Some((status, View::read(&bytes)?.bytes().to_vec())));
    }
    Ok(Some((0, View::read(&answer)?.bytes().to_vec())))
}

#[pymethods]
impl Node {
    /// Calls `port` of process `rank` and returns the status and the bytes of the reply. Raises
    /// TimedOut at the timeout.
    #[pyo3(signature = (rank, port, data, *, timeout = None))]
    fn call<'py>(
        &self,
        py: Python<'py>,
        rank: u32,
        port: u16,
        data: &Bound<'_, PyAny>,
        timeout: Option<f64>,
    ) -> PyResult<(u16, Bound<'py, PyBytes>)> {
        let view = View::read(data)?;
        let timeout = timeout_of(timeout)?;
        let to = Target::new(rank, port);
        let request = self
            .shared()
            .enter(py, |node| Ok(node.call(to, view.bytes()).begin()?))?;
        // Dropped at the timeout or by Ctrl-C, which cancels the call.
        let pending = Request::new(self.shared(), request);
        let reply = self.shared().wait(py, timeout, |node, slice| {
            let slice = slice.unwrap_or(Duration::MAX);
            let done = node.wait_timeout(request, slice)?;
            Ok(done.map(portolan::Reply::from))
        });
        match reply? {
            Some(reply) => {
                pending.forget();
                Ok((reply.status, PyBytes::new(py, &reply.bytes)))
            }
            None => Err(Failure::from(Error::TimedOut {
                rank,
                timeout: timeout.unwrap_or_default(),
            })
            .into()),
        }
    }

    /// Starts a call without waiting. The status of the request has the reply in `data`, and its
    /// status in `imm`.
    fn begin_call(
        &self,
        py: Python<'_>,
        rank: u32,
        port: u16,
        data: &Bound<'_, PyAny>,
    ) -> PyResult<Request> {
        let view = View::read(data)?;
        let to = Target::new(rank, port);
        let request = Request::begin(self.shared(), py, |node| {
            node.call(to, view.bytes()).begin()
        })?;
        Ok(request.of_call())
    }

    /// Opens `port` for calls. `handler` gets each as a `Call`, and returns the bytes of the reply,
    /// or a status and the bytes, or None to use `reply` later. If it raises an exception, the
    /// caller gets the status 65535 and the exception's text.
    fn serve(&self, py: Python<'_>, port: u16, handler: Py<PyAny>) -> PyResult<()> {
        let raised = Arc::clone(self.shared().raised());
        self.shared().enter(py, |node| {
            Ok(node.serve(port, move |context, call| {
                let to = call.reply_to();
                let bytes = call.bytes();
                let answer = raised.run(context, |py| {
                    let data = PyBytes::new(py, bytes).unbind();
                    ask(py, &handler, Call { to, data }).or_else(|error| {
                        let text = error.to_string().into_bytes();
                        raised.record(error);
                        Ok(Some((RAISED, text)))
                    })
                });
                match answer.flatten() {
                    Some((status, bytes)) => context.reply(to, status, bytes),
                    None => Ok(()),
                }
            })?)
        })
    }

    /// Waits for the next call to `port`, which was opened with `open`. Returns None at the timeout.
    #[pyo3(signature = (port, *, timeout = None))]
    fn recv_call(&self, py: Python<'_>, port: u16, timeout: Option<f64>) -> PyResult<Option<Call>> {
        let got = self
            .shared()
            .wait(py, timeout_of(timeout)?, |node, slice| {
                Ok(node.recv_call(port, slice)?)
            })?;
        Ok(got.map(|call| Call {
            to: call.reply_to(),
            data: PyBytes::new(py, call.bytes()).unbind(),
        }))
    }

    /// Answers a call.
    #[pyo3(signature = (call, data, *, status = 0))]
    fn reply(
        &self,
        py: Python<'_>,
        call: &Bound<'_, Call>,
        data: &Bound<'_, PyAny>,
        status: u16,
    ) -> PyResult<()> {
        let (to, bytes) = (call.get().to, View::read(data)?.bytes().to_vec());
        if let Some(handler) = self.shared().raised().context() {
            let sent = handler.call(|context| context.reply(to, status, bytes));
            return Ok(sent.map_err(Failure::from)?);
        }
        self.shared()
            .enter(py, |node| Ok(node.reply(to, status, bytes)?))
    }
}
