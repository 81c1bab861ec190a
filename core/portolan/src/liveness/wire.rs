// SPDX-License-Identifier: MIT OR Apache-2.0
//! Carrier of probes and answers: a socket, or a simulation.

use super::message::LEN;
use std::fmt;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;

/// Carrier of liveness probes in a simulation, which delivers them with
/// [`SimulatedEndpoint::receive_probe`] and its like.
///
/// [`SimulatedEndpoint::receive_probe`]: crate::binding::simulated::SimulatedEndpoint::receive_probe
pub trait ProbeWire: fmt::Debug + Send + Sync {
    /// Sends a probe or an answer.
    fn send(&self, bytes: &[u8], to: SocketAddr);
}

/// Carrier of the probes and answers of this process.
#[derive(Debug)]
pub(super) enum Wire {
    Socket(Socket),
    Simulated(Arc<dyn ProbeWire>),
}

#[derive(Debug)]
pub(super) struct Socket {
    socket: UdpSocket,
    /// IPv4 addresses are passed to the socket as IPv4-mapped IPv6 addresses.
    is_v6: bool,
}

impl Socket {
    pub(super) fn new(socket: UdpSocket) -> Socket {
        let is_v6 = socket.local_addr().is_ok_and(|addr| addr.is_ipv6());
        Socket { socket, is_v6 }
    }

    fn send(&self, bytes: &[u8], to: SocketAddr) -> io::Result<()> {
        let to = match to {
            SocketAddr::V4(v4) if self.is_v6 => (v4.ip().to_ipv6_mapped(), v4.port()).into(),
            to => to,
        };
        let send = || self.socket.send_to(bytes, to).map(drop);
        // The first attempt may return the error of an earlier probe.
        send().or_else(|_| send()).inspect_err(|error| {
            log::debug!("sending a probe or an answer to {to}: {error}");
        })
    }
}

impl Wire {
    /// Returns the socket; `None` in a simulation.
    pub(super) fn socket(&self) -> Option<&UdpSocket> {
        match self {
            Wire::Socket(socket) => Some(&socket.socket),
            Wire::Simulated(_) => None,
        }
    }

    pub(super) fn send(&self, bytes: &[u8; LEN], to: SocketAddr) -> io::Result<()> {
        match self {
            Wire::Socket(socket) => socket.send(bytes, to),
            Wire::Simulated(wire) => {
                wire.send(bytes, to);
                Ok(())
            }
        }
    }
}
