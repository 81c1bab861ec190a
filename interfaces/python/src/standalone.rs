// SPDX-License-Identifier: MIT OR Apache-2.0
//! Servers and clients without a launcher.

use crate::error::{Failure, exception};
use crate::node::Node;
use crate::shared::{SLICE, Shared, timeout_of};
use parking_lot::Mutex;
use portolan::{EndpointConfig, PeerEventKind};
use pyo3::prelude::*;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// Interval between two checks of an attempt to connect, which takes a few milliseconds.
const CHECK_INTERVAL: Duration = Duration::from_millis(1);

/// Default timeout of an attempt to connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// An attempt to connect. Dropping it gives it up.
#[pyclass(frozen, module = "portolan")]
pub(crate) struct Connecting {
    shared: Arc<Shared>,
    state: Mutex<State>,
}

/// State of an attempt.
struct State {
    /// Set until the attempt has ended.
    pending: Option<portolan::Connecting>,
    /// Rank of the peer, or the error; `None` before the end.
    ended: Option<Result<u32, portolan::Error>>,
}

impl State {
    fn advance(&mut self, node: &mut portolan::Node) -> Result<Option<u32>, Failure> {
        if self.pending.is_some() {
            node.progress()?;
        }
        let is_over = |attempt: &mut portolan::Connecting| node.has_connected(attempt);
        if let Some(attempt) = self.pending.take_if(is_over) {
            self.ended = Some(node.end_connect(attempt).map(|peer| peer.rank()));
        }
        match &self.ended {
            None => Ok(None),
            Some(Ok(rank)) => Ok(Some(*rank)),
            Some(Err(error)) => Err(Failure::Python(exception(error))),
        }
    }
}

impl Connecting {
    /// Returns the rank of the peer if the attempt has ended.
    fn advance(&self, node: &mut portolan::Node) -> Result<Option<u32>, Failure> {
        self.state.lock().advance(node)
    }
}

#[pymethods]
impl Connecting {
    /// Makes progress once. Returns None until the attempt has ended. From then on, it returns the
    /// rank of the peer, or raises the error of the attempt.
    fn test(&self, py: Python<'_>) -> PyResult<Option<u32>> {
        self.shared.enter(py, |node| self.advance(node))
    }
}

impl Drop for Connecting {
    fn drop(&mut self) {
        if let Some(attempt) = self.state.get_mut().pending.take() {
            self.shared.on_dropped_attempt(attempt);
        }
    }
}

#[pymethods]
impl Node {
    /// Creates a process without a launcher, as rank 0 of a job of its own. It finds its peers with
    /// `listen` and `connect`. With `encrypt`, which both sides need, messages between hosts are
    /// encrypted.
    #[staticmethod]
    #[pyo3(signature = (*, encrypt = false))]
    fn standalone(py: Python<'_>, encrypt: bool) -> PyResult<Node> {
        let mut config = EndpointConfig::default();
        config.encrypt = encrypt;
        let node = py.detach(|| portolan::Node::standalone_with(&config));
        Node::of_standalone(node.map_err(Failure::from)?)
    }

    /// Listens for peers at `address`, "HOST:PORT", from now on. Returns the address in use, with
    /// the port that the system has chosen for port 0. Peers need the same `secret`, of 16 random
    /// bytes or more.
    fn listen(&self, py: Python<'_>, address: &str, secret: &[u8]) -> PyResult<String> {
        self.shared()
            .enter(py, |node| Ok(node.listen(address, secret)?.to_string()))
    }

    /// Connects to the process that listens at `address`, which may start later. Returns its rank.
    #[pyo3(signature = (address, secret, *, timeout = None))]
    fn connect(
        &self,
        py: Python<'_>,
        address: &str,
        secret: &[u8],
        timeout: Option<f64>,
    ) -> PyResult<u32> {
        // Dropped by Ctrl-C, which gives the attempt up.
        let attempt = self.begin_connect(py, address, secret, timeout)?;
        let connected = self.shared().wait(py, None, |node, _| {
            let ended = attempt.advance(node)?;
            if ended.is_none() {
                thread::sleep(CHECK_INTERVAL);
            }
            Ok(ended)
        })?;
        connected.ok_or_else(|| Failure::Closed.into())
    }

    /// Starts to connect as `connect` does, without waiting.
    #[pyo3(signature = (address, secret, *, timeout = None))]
    fn begin_connect(
        &self,
        py: Python<'_>,
        address: &str,
        secret: &[u8],
        timeout: Option<f64>,
    ) -> PyResult<Connecting> {
        let timeout = timeout_of(timeout)?.unwrap_or(CONNECT_TIMEOUT);
        let attempt = self
            .shared()
            .enter(py, |node| Ok(node.begin_connect(address, secret, timeout)?))?;
        Ok(Connecting {
            shared: Arc::clone(self.shared()),
            state: Mutex::new(State {
                pending: Some(attempt),
                ended: None,
            }),
        })
    }

    /// Ends the relation with the peer `rank` after everything that was sent has arrived. Returns
    /// False at the timeout: the peer stays connected. Does nothing if there is no such peer.
    #[pyo3(signature = (rank, *, timeout = None))]
    fn disconnect(&self, py: Python<'_>, rank: u32, timeout: Option<f64>) -> PyResult<bool> {
        let Some(peer) = self.shared().enter(py, |node| Ok(node.peer(rank)))? else {
            return Ok(true);
        };
        let ended = self
            .shared()
            .wait(py, timeout_of(timeout)?, |node, slice| {
                let slice = slice.unwrap_or(SLICE);
                Ok(node.disconnect_timeout(peer, slice)?.then_some(()))
            })?;
        Ok(ended.is_some())
    }

    /// Returns the next event of a peer: its rank, and "joined", "left" or "lost". Returns None if
    /// there is none; does not wait.
    fn next_peer_event(&self, py: Python<'_>) -> PyResult<Option<(u32, &'static str)>> {
        self.shared().enter(py, |node| {
            let event = node.next_peer_event();
            Ok(event.map(|event| (event.rank, name_of(event.kind))))
        })
    }
}

fn name_of(kind: PeerEventKind) -> &'static str {
    match kind {
        PeerEventKind::Joined => "joined",
        PeerEventKind::Lost => "lost",
        _ => "left",
    }
}
