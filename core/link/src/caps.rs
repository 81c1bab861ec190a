// SPDX-License-Identifier: MIT OR Apache-2.0
//! Capabilities of links.

use std::fmt;

/// Kind of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LinkKind {
    /// Shared memory rings between processes of one host.
    Shm,
    /// UDP datagrams, with segmentation offload if the kernel supports it.
    Udp,
    /// AF_PACKET sockets on one Ethernet.
    Packet,
    /// AF_XDP sockets on one Ethernet.
    Xdp,
    /// Kernel TCP connections that transmit user pages without a copy.
    Stream,
    /// In-memory network for tests.
    Sim,
}

impl fmt::Display for LinkKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LinkKind::Shm => "shm",
            LinkKind::Udp => "udp",
            LinkKind::Packet => "packet",
            LinkKind::Xdp => "xdp",
            LinkKind::Stream => "stream",
            LinkKind::Sim => "sim",
        })
    }
}

/// Capability record of a link; constant after opening.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkCaps {
    /// Kind of link.
    pub kind: LinkKind,
    /// Bytes of the largest frame (header and payload) that one datagram or ring entry carries.
    pub frame_len_max: usize,
    /// Datagrams that one [`crate::Link::transmit`] may carry; 1 without segmentation offload.
    pub segments_max: usize,
    /// Entries of a gather list in one transmit call, the link's own headers not counted.
    pub gather_max: usize,
    /// Set if the link never loses, duplicates, reorders or corrupts frames. The core then uses no
    /// packet numbers.
    pub lossless: bool,
    /// Set if [`crate::Link::pull`] may work with some peers.
    pub pull: bool,
    /// Set if [`crate::Link::receive_placed`] follows plans.
    pub placement: bool,
    /// Set if an empty poll reads memory only and makes no system call.
    pub polls_memory: bool,
    /// Bytes of payload that the receive side buffers while no process receives (socket buffer or
    /// ring).
    pub rx_buffer_len: usize,
}
