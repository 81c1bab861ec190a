// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages to ports and by tag.

use crate::error::Failure;
use crate::node::Node;
use crate::request::Request;
use crate::shared::timeout_of;
use crate::status::Status;
use crate::view::View;
use portolan::{Lane, Received, TagMatch, TagTarget, Target};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::time::Duration;

/// Converts the name of a lane.
pub(crate) fn lane_of(name: &str) -> PyResult<Lane> {
    match name {
        "low" => Ok(Lane::Low),
        "high" => Ok(Lane::High),
        _ => Err(PyValueError::new_err(format!(
            "there is no lane '{name}'; take 'low' or 'high'"
        ))),
    }
}

/// Returns the criteria of a tagged receive; without a tag, any tag matches.
fn match_of(tag: Option<u64>, ignore: u64, source: Option<u32>) -> TagMatch {
    TagMatch {
        tag: tag.unwrap_or(0),
        ignore: if tag.is_some() { ignore } else { u64::MAX },
        source,
    }
}

/// Sends the bytes of `view`, and returns `false` at the timeout. A message to this process itself
/// is copied, and not waited for.
fn send_by(
    node: &Node,
    py: Python<'_>,
    (rank, view): (u32, View),
    timeout: Option<Duration>,
    try_send: impl Fn(&mut portolan::Node, &[u8], Option<Duration>) -> Result<bool, portolan::Error>
    + Send
    + Sync,
    begin: impl FnOnce(
        &mut portolan::Node,
        portolan::Buffer,
    ) -> Result<portolan::Request, portolan::Error>
    + Send,
) -> PyResult<bool> {
    let shared = node.shared();
    let is_to_itself = rank == node.own_rank();
    if view.len() <= portolan::Node::BUFFERED_LEN_MAX || timeout.is_some() || is_to_itself {
        let sent = shared.wait(py, timeout, |node, slice| {
            let sent = try_send(node, view.bytes(), slice.filter(|_| !is_to_itself))?;
            Ok(sent.then_some(()))
        })?;
        return Ok(sent.is_some());
    }
    // A request, because Ctrl-C can end the wait for it while the library still needs the memory.
    let request = shared.enter(py, |node| Ok(begin(node, view.into_source())?))?;
    Request::new(shared, request).finish(py, None)?;
    Ok(true)
}

#[pymethods]
impl Node {
    /// Sends `data` to `port` of process `rank`. The memory may be reused when this returns.
    #[pyo3(signature = (rank, port, data, *, lane = "low", timeout = None))]
    fn send(
        &self,
        py: Python<'_>,
        rank: u32,
        port: u16,
        data: &Bound<'_, PyAny>,
        lane: &str,
        timeout: Option<f64>,
    ) -> PyResult<bool> {
        let (view, timeout) = (View::read(data)?, timeout_of(timeout)?);
        let to = Target::new(rank, port).lane(lane_of(lane)?);
        if let Some(handler) = self.shared().raised().context() {
            let sent = handler.call(|context| context.send(to, view.bytes()));
            sent.map_err(Failure::from)?;
            return Ok(true);
        }
        send_by(
            self,
            py,
            (rank, view),
            timeout,
            |node, bytes, slice| match slice {
                Some(slice) => node.send_timeout(to, bytes, slice),
                None => node.send(to, bytes).map(|()| true),
            },
            |node, buffer| node.isend(to, buffer),
        )
    }

    /// Starts a send of `data` without waiting. Its memory must not be changed before the request
    /// is complete.
    #[pyo3(signature = (rank, port, data, *, lane = "low"))]
    fn isend(
        &self,
        py: Python<'_>,
        rank: u32,
        port: u16,
        data: &Bound<'_, PyAny>,
        lane: &str,
    ) -> PyResult<Request> {
        let view = View::read(data)?;
        let to = Target::new(rank, port).lane(lane_of(lane)?);
        Request::begin(self.shared(), py, |node| node.isend(to, view.into_source()))
    }

    /// Waits for the next message to `port`. Returns its bytes and its sender, or None at the
    /// timeout.
    #[pyo3(signature = (port, *, source = None, timeout = None))]
    fn recv<'py>(
        &self,
        py: Python<'py>,
        port: u16,
        source: Option<u32>,
        timeout: Option<f64>,
    ) -> PyResult<Option<(Bound<'py, PyBytes>, u32)>> {
        let got = self
            .shared()
            .wait(py, timeout_of(timeout)?, |node, slice| {
                Ok(match (source, slice) {
                    (None, None) => Some(node.recv_vec::<u8>(port)?),
                    (None, Some(slice)) => node.recv_vec_timeout::<u8>(port, slice)?,
                    (Some(source), None) => Some((node.recv_vec_from(source, port)?, source)),
                    (Some(source), Some(slice)) => {
                        match node.probe_from_timeout(source, port, slice)? {
                            Some(_) => Some((node.recv_vec_from(source, port)?, source)),
                            None => None,
                        }
                    }
                })
            })?;
        Ok(got.map(|(bytes, source)| (PyBytes::new(py, &bytes), source)))
    }

    /// Waits for the next message to `port`, and receives it into `buffer`.
    #[pyo3(signature = (port, buffer, *, source = None, timeout = None))]
    fn recv_into(
        &self,
        py: Python<'_>,
        port: u16,
        buffer: &Bound<'_, PyAny>,
        source: Option<u32>,
        timeout: Option<f64>,
    ) -> PyResult<Option<Status>> {
        let mut view = View::write(buffer)?;
        let got = self
            .shared()
            .wait(py, timeout_of(timeout)?, |node, slice| {
                let bytes = view.bytes_mut();
                Ok(match (source, slice) {
                    (None, None) => Some(node.recv(port, bytes)?),
                    (None, Some(slice)) => node.recv_timeout(port, bytes, slice)?,
                    (Some(source), None) => Some(node.recv_from(source, port, bytes)?),
                    (Some(source), Some(slice)) => {
                        node.recv_from_timeout(source, port, bytes, slice)?
                    }
                })
            })?;
        Ok(got.map(Status::from))
    }

    /// Posts `buffer` for the next message to `port` without waiting.
    #[pyo3(signature = (port, buffer, *, source = None))]
    fn post_recv(
        &self,
        py: Python<'_>,
        port: u16,
        buffer: &Bound<'_, PyAny>,
        source: Option<u32>,
    ) -> PyResult<Request> {
        let view = View::write(buffer)?;
        Request::begin(self.shared(), py, |node| match source {
            Some(source) => node.post_recv_from(source, port, view.into_place()),
            None => node.post_recv(port, view.into_place()),
        })
    }

    /// Waits until a message waits at `port`. The message stays available.
    #[pyo3(signature = (port, *, source = None, timeout = None))]
    fn probe(
        &self,
        py: Python<'_>,
        port: u16,
        source: Option<u32>,
        timeout: Option<f64>,
    ) -> PyResult<Option<Status>> {
        let found: Option<Received> =
            self.shared()
                .wait(py, timeout_of(timeout)?, |node, slice| {
                    Ok(match (source, slice) {
                        (None, None) => Some(node.probe(port)?),
                        (None, Some(slice)) => node.probe_timeout(port, slice)?,
                        (Some(source), None) => Some(node.probe_from(source, port)?),
                        (Some(source), Some(slice)) => {
                            node.probe_from_timeout(source, port, slice)?
                        }
                    })
                })?;
        Ok(found.map(Status::from))
    }
}

#[pymethods]
impl Node {
    /// Sends `data` with a tag, like `send`. `imm` is a word beside the message.
    #[pyo3(signature = (rank, tag, data, *, imm = None, lane = "low", timeout = None))]
    #[allow(clippy::too_many_arguments, reason = "keyword arguments of Python")]
    fn send_tagged(
        &self,
        py: Python<'_>,
        rank: u32,
        tag: u64,
        data: &Bound<'_, PyAny>,
        imm: Option<u64>,
        lane: &str,
        timeout: Option<f64>,
    ) -> PyResult<bool> {
        let (view, timeout) = (View::read(data)?, timeout_of(timeout)?);
        let mut to = TagTarget::new(rank, tag).lane(lane_of(lane)?);
        to.imm = imm;
        if let Some(handler) = self.shared().raised().context() {
            let sent = handler.call(|context| context.send_tagged(to, view.bytes()));
            sent.map_err(Failure::from)?;
            return Ok(true);
        }
        send_by(
            self,
            py,
            (rank, view),
            timeout,
            |node, bytes, slice| match slice {
                Some(slice) => node.send_tagged_timeout(to, bytes, slice),
                None => node.send_tagged(to, bytes).map(|()| true),
            },
            |node, buffer| node.isend_tagged(to, buffer),
        )
    }

    /// Starts a tagged send without waiting, like `isend`.
    #[pyo3(signature = (rank, tag, data, *, imm = None, lane = "low"))]
    fn isend_tagged(
        &self,
        py: Python<'_>,
        rank: u32,
        tag: u64,
        data: &Bound<'_, PyAny>,
        imm: Option<u64>,
        lane: &str,
    ) -> PyResult<Request> {
        let view = View::read(data)?;
        let mut to = TagTarget::new(rank, tag).lane(lane_of(lane)?);
        to.imm = imm;
        Request::begin(self.shared(), py, |node| {
            node.isend_tagged(to, view.into_source())
        })
    }

    /// Waits for the first message that matches. Returns its bytes and its status, or None at the
    /// timeout.
    #[pyo3(signature = (tag = None, *, ignore = 0, source = None, timeout = None))]
    fn recv_tagged<'py>(
        &self,
        py: Python<'py>,
        tag: Option<u64>,
        ignore: u64,
        source: Option<u32>,
        timeout: Option<f64>,
    ) -> PyResult<Option<(Bound<'py, PyBytes>, Status)>> {
        let which = match_of(tag, ignore, source);
        let got = self
            .shared()
            .wait(py, timeout_of(timeout)?, |node, slice| {
                if let Some(slice) = slice
                    && node.probe_tagged_timeout(which, slice)?.is_none()
                {
                    return Ok(None);
                }
                Ok(Some(node.recv_vec_tagged::<u8>(which)?))
            })?;
        Ok(got.map(|(bytes, envelope)| (PyBytes::new(py, &bytes), envelope.into())))
    }

    /// Waits for the first message that matches, and receives it into `buffer`.
    #[pyo3(signature = (buffer, tag = None, *, ignore = 0, source = None, timeout = None))]
    fn recv_tagged_into(
        &self,
        py: Python<'_>,
        buffer: &Bound<'_, PyAny>,
        tag: Option<u64>,
        ignore: u64,
        source: Option<u32>,
        timeout: Option<f64>,
    ) -> PyResult<Option<Status>> {
        let mut view = View::write(buffer)?;
        let which = match_of(tag, ignore, source);
        let got = self
            .shared()
            .wait(py, timeout_of(timeout)?, |node, slice| {
                let bytes = view.bytes_mut();
                Ok(match slice {
                    None => Some(node.recv_tagged(which, bytes)?),
                    Some(slice) => node.recv_tagged_timeout(which, bytes, slice)?,
                })
            })?;
        Ok(got.map(Status::from))
    }

    /// Posts `buffer` for the first message that matches, without waiting.
    #[pyo3(signature = (buffer, tag = None, *, ignore = 0, source = None))]
    fn post_recv_tagged(
        &self,
        py: Python<'_>,
        buffer: &Bound<'_, PyAny>,
        tag: Option<u64>,
        ignore: u64,
        source: Option<u32>,
    ) -> PyResult<Request> {
        let view = View::write(buffer)?;
        let which = match_of(tag, ignore, source);
        Request::begin(self.shared(), py, |node| {
            node.post_recv_tagged(which, view.into_place())
        })
    }

    /// Waits until a message waits that matches. The message stays available.
    #[pyo3(signature = (tag = None, *, ignore = 0, source = None, timeout = None))]
    fn probe_tagged(
        &self,
        py: Python<'_>,
        tag: Option<u64>,
        ignore: u64,
        source: Option<u32>,
        timeout: Option<f64>,
    ) -> PyResult<Option<Status>> {
        let which = match_of(tag, ignore, source);
        let found = self
            .shared()
            .wait(py, timeout_of(timeout)?, |node, slice| {
                Ok(match slice {
                    None => Some(node.probe_tagged(which)?),
                    Some(slice) => node.probe_tagged_timeout(which, slice)?,
                })
            })?;
        Ok(found.map(Status::from))
    }
}
