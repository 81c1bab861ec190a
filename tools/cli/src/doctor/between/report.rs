// SPDX-License-Identifier: MIT OR Apache-2.0
//! Data of `doctor --between`: addresses that the two processes exchange, and the report of each.

use portolan_link::LinkAddr;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// Addresses of one process. The other process receives them before any probe.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Offer {
    /// A random number, by which the other process recognizes the sender of a datagram.
    pub(super) token: u64,
    pub(super) ends: Vec<End>,
}

/// An address of a host, in the order in which a job would try them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct End {
    pub(super) interface: String,
    pub(super) index: u32,
    pub(super) addr: IpAddr,
    pub(super) prefix_len: u8,
    pub(super) mtu: usize,
    /// Port number for UDP and TCP.
    pub(super) port: u16,
    /// Set if another interface of this host has an address of the same subnet, so that the system
    /// could send from either.
    pub(super) is_ambiguous: bool,
    /// Address for raw frames; only for the first end on an interface.
    pub(super) raw: Option<LinkAddr>,
}

/// An interface of a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Nic {
    pub(super) name: String,
    pub(super) up: bool,
    pub(super) running: bool,
    /// Set for the loopback and for software interfaces of containers or virtual machines on this
    /// host.
    pub(super) is_inner: bool,
    pub(super) addrs: Vec<IpAddr>,
}

/// Protocol of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum By {
    Udp,
    Tcp,
    Raw,
}

/// Protocol, and indices of the sending and the receiving end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct ProbePath {
    pub(super) by: By,
    pub(super) from: usize,
    pub(super) to: usize,
}

/// Reason for which sending failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Failure {
    pub(super) errno: i32,
    /// Reported by another host (ICMP or a reset), not by the sender's own kernel.
    pub(super) is_remote: bool,
}

/// Report of one process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct HostReport {
    pub(super) host: String,
    pub(super) nics: Vec<Nic>,
    pub(super) ends: Vec<End>,
    /// Reason for which raw Ethernet cannot be used here.
    pub(super) raw_refused: Option<String>,
    /// Value of the setting `ports`, if it is set.
    pub(super) ports: Option<String>,
    /// Paths by which a packet came from the other process, with the bytes of the longest packet.
    pub(super) arrived: Vec<(ProbePath, usize)>,
    /// Paths by which sending to the other process failed.
    pub(super) failed: Vec<(ProbePath, Failure)>,
}

impl HostReport {
    /// Returns the bytes of the longest packet that came by `path`.
    pub(super) fn arrived(&self, path: ProbePath) -> Option<usize> {
        let mut arrived = self.arrived.iter();
        arrived.find(|(at, _)| *at == path).map(|(_, len)| *len)
    }

    pub(super) fn failure(&self, path: ProbePath) -> Option<Failure> {
        let mut failed = self.failed.iter();
        failed.find(|(at, _)| *at == path).map(|(_, why)| *why)
    }
}

/// Bytes of a [`Mark`].
pub(super) const MARK_LEN: usize = 16;

/// First bytes of every packet.
const MAGIC: [u8; 4] = *b"PtDr";

/// Header of a datagram, a frame or a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) token: u64,
    pub(super) from: u8,
    pub(super) to: u8,
    /// Length of the whole packet in bytes, including this mark.
    pub(super) len: u16,
}

impl Mark {
    pub(super) fn to_bytes(self) -> [u8; MARK_LEN] {
        let mut bytes = [0; MARK_LEN];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..12].copy_from_slice(&self.token.to_le_bytes());
        (bytes[12], bytes[13]) = (self.from, self.to);
        bytes[14..].copy_from_slice(&self.len.to_le_bytes());
        bytes
    }

    /// Parses the mark of a received packet; `None` if another program sent it.
    pub(super) fn parse(bytes: &[u8]) -> Option<Mark> {
        let bytes: &[u8; MARK_LEN] = bytes.first_chunk()?;
        let (magic, rest) = bytes.split_first_chunk::<4>()?;
        let (token, rest) = rest.split_first_chunk::<8>()?;
        let &[from, to, low, high] = rest else {
            return None;
        };
        (*magic == MAGIC).then(|| Mark {
            token: u64::from_le_bytes(*token),
            from,
            to,
            len: u16::from_le_bytes([low, high]),
        })
    }
}
