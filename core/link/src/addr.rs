// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where a process can be reached, as the launcher distributes it.

use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// A host: one boot of a kernel, one network namespace.
///
/// Two processes may share memory only when both parts are equal, so that the hosts of a lab on
/// one machine never do.
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
    /// Shared memory on one host: the name of an abstract unix socket.
    Shm {
        /// The host; shared memory exists only between equal ones.
        host: HostId,
        /// User that owns the process; others are refused.
        uid: u32,
        /// Process id, for `process_vm_readv`.
        pid: u32,
        /// Abstract unix socket name, without the leading zero byte.
        name: String,
    },
    /// UDP.
    Udp {
        /// Socket the peer receives on.
        socket: SocketAddr,
    },
    /// Raw Ethernet frames of EtherType 0x88B5.
    Packet {
        /// Hardware address of the interface.
        mac: [u8; 6],
        /// Which of the processes behind that interface (the demultiplexing word behind the EtherType).
        endpoint: u16,
    },
    /// In-memory network between links of one process, for tests.
    Sim {
        /// Index of the port on the simulated switch.
        port: u32,
    },
}
