// SPDX-License-Identifier: MIT OR Apache-2.0
//! Addresses of a process, as the launcher distributes them.

use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// A host: one boot of a kernel, one network namespace.
///
/// Two processes may share memory only if both fields are equal. Hosts of a lab on one machine
/// therefore never share memory.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct HostId {
    /// `/proc/sys/kernel/random/boot_id`.
    pub boot_id: String,
    /// Inode number of `/proc/self/ns/net`.
    pub netns: u64,
}

/// The address of one end of one link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "link", rename_all = "lowercase")]
pub enum LinkAddr {
    /// Shared memory on one host: the name of an abstract Unix socket.
    Shm {
        /// Host of the process; shared memory works only within one host.
        host: HostId,
        /// User that owns the process; peers of another user are refused.
        uid: u32,
        /// Process id, for `process_vm_readv`.
        pid: u32,
        /// Abstract Unix socket name, without the leading zero byte.
        name: String,
    },
    /// UDP.
    Udp {
        /// Socket on which the process receives.
        socket: SocketAddr,
    },
    /// Raw Ethernet frames of EtherType 0x88B5.
    Packet {
        /// Hardware address of the interface.
        mac: [u8; 6],
        /// Process behind that interface (the demultiplexing word after the EtherType).
        endpoint: u16,
    },
    /// In-memory network between links of one process, for tests.
    Sim {
        /// Index of the port on the simulated switch.
        port: u32,
    },
}
