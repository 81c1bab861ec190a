// SPDX-License-Identifier: MIT OR Apache-2.0
//! Socket calls that the standard library lacks.
//!
//! Thin, safe wrappers of the system calls that links need: datagrams with segmentation offload,
//! the socket's error queue, raw Ethernet sockets, network namespaces, and the list of interfaces.
//! They contain no policy: the links choose buffer sizes and react to full queues.
//!
//! Invariant: every pointer passed to the kernel comes from a slice or a local that outlives the
//! call, and the kernel keeps none of them. (Of memory passed by reference in `stream`, it keeps
//! the pages.) Memory shared with the kernel is mapped by it (`packet_ring`, `xdp`).

mod addr;
mod connected;
mod datagram;
mod error_queue;
mod interfaces;
mod netns;
mod options;
mod packet;
mod packet_ring;
mod poll;
mod ports;
mod scatter;
mod stream;
mod wire_end;
mod xdp;
mod zero_copy;

pub use addr::SockAddr;
pub use connected::{close_connected, open_connected};
pub use datagram::{Received, Sender, recv, recv_segments, send, send_to};
pub use error_queue::{ErrorOrigin, SocketError, recv_error, recv_error_quoting};
pub use interfaces::{Interface, InterfaceKind, MacAddr, Network, interfaces, is_of_one_link};
pub use netns::enter_netns;
pub use options::{
    ECN_CAPABLE, ECN_CE, bind_datagram, enable_error_queue, enable_receive_offload, probe_path_mtu,
    receive_buffer_len, receive_charged_len, receive_drops, report_marks, request_receive_buffer,
    request_send_buffer, segmentation_supported, send_buffer_len, set_ecn, set_segment_len,
};
pub use packet::{
    FilterOp, attach_filter, bind_packet, bypass_qdisc, ignore_outgoing, lock_filter, packet_drops,
    packet_socket, pending_error, set_mark,
};
pub use packet_ring::{PacketRing, RingFrame, RingLayout};
pub use poll::{Readiness, readiness, sleep_until_readable, wait_readable, wait_writable};
pub use ports::{BadPortRange, PortRange, PortsUsedUp};
pub use scatter::Scatter;
pub use stream::{
    Pipe, abort_stream, begin_connect, connect_within, is_stream_connected, listen_server,
    listen_stream, prepare_stream, stream_timeouts,
};
pub use wire_end::{Arrived, WIRE_FRAME_LEN_MAX, WireEnd, wire_addresses, wire_frame};
pub use xdp::{Area, AreaLock, ConsumerRing, ProducerRing, XdpSocket, XdpSocketUse};
pub use zero_copy::{DirectReader, ZeroCopyWriter};

use std::io;

/// Converts a negative return value with an errno into a result.
#[inline]
fn checked_len(returned: isize) -> io::Result<usize> {
    usize::try_from(returned).map_err(|_| io::Error::last_os_error())
}

/// Same as [`checked_len`], for calls that return zero or an error.
fn checked(returned: libc::c_int) -> io::Result<()> {
    if returned < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Returns `size_of` in the kernel's type for lengths of addresses and options.
#[allow(
    clippy::cast_possible_truncation,
    reason = "socket structures are a few hundred bytes"
)]
const fn socklen_of<T>() -> libc::socklen_t {
    size_of::<T>() as libc::socklen_t
}
