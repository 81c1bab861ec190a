// SPDX-License-Identifier: MIT OR Apache-2.0
//! Servers and clients without a launcher.

use crate::error::Failure;
use crate::node::Node;
use crate::shared::timeout_of;
use portolan::{EndpointConfig, PeerEventKind};
use pyo3::prelude::*;
use std::thread;
use std::time::Duration;

/// Interval between two checks of an attempt to connect, which takes a few milliseconds.
const CHECK_INTERVAL: Duration = Duration::from_millis(1);

/// Default timeout of an attempt to connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

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
        let timeout = timeout_of(timeout)?.unwrap_or(CONNECT_TIMEOUT);
        let connecting = self
            .shared()
            .enter(py, |node| Ok(node.begin_connect(address, secret, timeout)?))?;
        let waited = self.shared().wait(py, None, |node, _| {
            if node.has_connected(&connecting) {
                return Ok(Some(()));
            }
            node.progress()?;
            thread::sleep(CHECK_INTERVAL);
            Ok(None)
        });
        // This also gives up an attempt that Ctrl-C has ended.
        let peer = self
            .shared()
            .enter(py, |node| Ok(node.end_connect(connecting)?));
        waited?;
        Ok(peer?.rank())
    }

    /// Ends the relation with the peer `rank` after everything that was sent has arrived. Does nothing
    /// if there is no such peer.
    fn disconnect(&self, py: Python<'_>, rank: u32) -> PyResult<()> {
        self.shared()
            .enter_detached(py, |node| match node.peer(rank) {
                Some(peer) => Ok(node.disconnect(peer)?),
                None => Ok(()),
            })
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
