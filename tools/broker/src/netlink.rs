// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests to the kernel over netlink(7), and their acknowledgements.

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::{Socket, SocketAddr, protocols};
use std::collections::HashSet;
use std::io;
use std::ops::Range;

/// Opens a socket for interface requests in the calling thread's network namespace.
pub(crate) fn route_socket() -> io::Result<Socket> {
    socket(protocols::NETLINK_ROUTE)
}

/// Opens a socket for packet filter requests in the calling thread's network namespace.
pub(crate) fn filter_socket() -> io::Result<Socket> {
    socket(protocols::NETLINK_NETFILTER)
}

fn socket(protocol: isize) -> io::Result<Socket> {
    let mut socket = Socket::new(protocol)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    Ok(socket)
}

/// Requests one change of an interface and waits for its acknowledgement.
pub(crate) fn change(socket: &Socket, flags: u16, what: RouteNetlinkMessage) -> io::Result<()> {
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | NLM_F_ACK | flags;
    header.sequence_number = 1;
    let mut request = NetlinkMessage::new(header, NetlinkPayload::from(what));
    request.finalize();
    let mut bytes = vec![0; request.buffer_len()];
    request.serialize(&mut bytes);
    send(socket, &bytes, 1..2)
}

/// Sends `requests` and waits for the acknowledgements of those with `numbers`, which must all
/// request one.
pub(crate) fn send(socket: &Socket, requests: &[u8], numbers: Range<u32>) -> io::Result<()> {
    let sent = socket.send(requests, 0)?;
    if sent != requests.len() {
        return Err(io::ErrorKind::WriteZero.into());
    }
    let mut waited_for: HashSet<u32> = numbers.collect();
    while !waited_for.is_empty() {
        let (answer, _) = socket.recv_from_full()?;
        take_words(&answer, &mut waited_for)?;
    }
    Ok(())
}

/// Processes the acknowledgements in one datagram; returns the first error.
fn take_words(mut bytes: &[u8], waited_for: &mut HashSet<u32>) -> io::Result<()> {
    // Header of a message: length u32, type u16, flags u16, number u32, port u32. An NLMSG_ERROR
    // continues with the negative errno, which is 0 for success (linux/netlink.h).
    const HEADER_LEN: usize = 16;
    while let Some((header, rest)) = bytes.split_first_chunk::<HEADER_LEN>() {
        let [a, b, c, d, kind, kind_high, _, _, e, f, g, h, ..] = *header;
        if u16::from_ne_bytes([kind, kind_high]) == NLMSG_ERROR {
            let code = rest
                .first_chunk()
                .map_or(0, |code| i32::from_ne_bytes(*code));
            if code != 0 {
                return Err(io::Error::from_raw_os_error(-code));
            }
            waited_for.remove(&u32::from_ne_bytes([e, f, g, h]));
        }
        // Messages start at multiples of four bytes (NLMSG_ALIGN).
        let len = u32::from_ne_bytes([a, b, c, d]) as usize;
        let next = len.next_multiple_of(4).max(HEADER_LEN);
        bytes = bytes.get(next..).unwrap_or_default();
    }
    Ok(())
}

/// Type of the message with the result of a request.
const NLMSG_ERROR: u16 = 2;
