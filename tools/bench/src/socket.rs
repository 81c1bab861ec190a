// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sockets of the bare rows, opened and connected to each other.

use crate::control::Offer;
use crate::end::End;
use crate::spec::Hook;
use crate::sys::{Ring, Xdp, bind_packet, packet_mac, packet_socket};
use anyhow::{Context, Result, ensure};
use nix::sys::socket::{setsockopt, sockopt};
use portolan_sys::net;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// Bytes of an Ethernet header.
pub(crate) const ETHERNET: usize = 14;
/// Bytes of the IPv4 and UDP headers.
pub(crate) const IP_UDP: usize = 28;

/// EtherTypes that the driver and the answerer receive: IEEE 802's two for local experiments. The
/// ends use different types, because on a loopback interface both see every frame of a type.
const ETHER_TYPES: [u16; 2] = [0x88b5, 0x88b6];

/// Requested receive buffer of UDP sockets in bytes. Without privileges the kernel grants at most
/// `net.core.rmem_max`, 208 KB by default, and reserves twice as much.
const RECEIVE_BUFFER: usize = 1 << 20;

/// Largest payload of one UDP send over IPv4.
const UDP_SEND_MAX: usize = 65_507;

/// Opens this end's raw Ethernet socket. Returns it with the header of frames to the other end.
///
/// # Errors
/// The process has no CAP_NET_RAW, or the interface does not exist.
pub(crate) fn packet(end: &mut End) -> Result<(OwnedFd, [u8; ETHERNET])> {
    let socket = open_packet(end)?;
    let header = exchange_macs(end, &socket)?;
    Ok((socket, header))
}

/// Opens this end's raw Ethernet socket with a receive ring for frames of `frame_len` bytes.
///
/// # Errors
/// As [`packet`], or there is no memory for the ring.
pub(crate) fn packet_ring(
    end: &mut End,
    frame_len: usize,
) -> Result<(OwnedFd, Ring, [u8; ETHERNET])> {
    let socket = open_packet(end)?;
    let ring = Ring::new(&socket, frame_len).context("PACKET_RX_RING is not available")?;
    let header = exchange_macs(end, &socket)?;
    Ok((socket, ring, header))
}

/// Opens this end's AF_XDP socket, which takes received frames before the kernel processes them.
///
/// # Errors
/// The process has no CAP_NET_RAW, CAP_NET_ADMIN or CAP_BPF, or the interface does not exist.
pub(crate) fn xdp(end: &mut End, hook: Hook) -> Result<(Xdp, [u8; ETHERNET])> {
    let interface = end.here().interface;
    let ether_type = ETHER_TYPES[end.spec.role.index()];
    let xdp = Xdp::open(&interface, ether_type, hook == Hook::Native).with_context(|| {
        format!(
            "cannot open an AF_XDP socket on {interface}; it needs CAP_NET_RAW, CAP_NET_ADMIN and \
             CAP_BPF"
        )
    })?;
    // Used only for its hardware address.
    let socket = open_packet(end)?;
    let header = exchange_macs(end, &socket)?;
    Ok((xdp, header))
}

fn open_packet(end: &End) -> Result<OwnedFd> {
    packet_socket().with_context(|| {
        format!(
            "cannot open a raw Ethernet socket on {}; it needs CAP_NET_RAW (run as root, or: \
             setcap cap_net_raw+ep portolan)",
            end.here().interface
        )
    })
}

fn exchange_macs(end: &mut End, socket: &OwnedFd) -> Result<[u8; ETHERNET]> {
    let interface = end.here().interface;
    bind_packet(socket, &interface, ETHER_TYPES[end.spec.role.index()])
        .with_context(|| format!("cannot bind a raw Ethernet socket to {interface}"))?;
    let mac = packet_mac(socket.as_fd()).context("cannot read the hardware address")?;
    let peer = end.exchange(&Offer {
        mac: Some(mac),
        ..Offer::default()
    })?;
    let peer_mac = peer.mac.context("the other end sent no hardware address")?;
    let mut header = [0; ETHERNET];
    header[..6].copy_from_slice(&peer_mac);
    header[6..12].copy_from_slice(&mac);
    header[12..].copy_from_slice(&ETHER_TYPES[end.spec.role.peer().index()].to_be_bytes());
    Ok(header)
}

/// Opens this end's UDP socket and connects it to the other end's. With `segment_len`, enables
/// segmentation offload with segments of that many bytes.
///
/// # Errors
/// A system call fails.
pub(crate) fn udp(end: &mut End, segment_len: Option<usize>) -> Result<OwnedFd> {
    let (socket, to) = udp_apart(end, segment_len)?;
    socket.connect(to)?;
    Ok(socket.into())
}

/// Opens this end's UDP socket without connecting it. Returns it with the other end's address.
///
/// # Errors
/// A system call fails.
pub(crate) fn udp_apart(
    end: &mut End,
    segment_len: Option<usize>,
) -> Result<(UdpSocket, SocketAddr)> {
    let ports = portolan::binding::port_range()?;
    let here = end.here().addr;
    let socket = ports.open(|port| UdpSocket::bind(SocketAddr::new(here, port)));
    let socket = socket.with_context(|| format!("cannot bind to {}", end.here().addr))?;
    if let Some(len) = segment_len {
        let len = i32::try_from(len)?;
        setsockopt(&socket, sockopt::UdpGsoSegment, &len)
            .context("UDP_SEGMENT is not available")?;
        setsockopt(&socket, sockopt::UdpGroSegment, &true).context("UDP_GRO is not available")?;
    }
    // Set before the other end may send, because datagrams that do not fit are lost.
    setsockopt(&socket, sockopt::RcvBuf, &RECEIVE_BUFFER).context("SO_RCVBUF")?;
    socket.set_nonblocking(true)?;
    let port = socket.local_addr()?.port();
    let peer = end.exchange(&Offer {
        port: Some(port),
        ..Offer::default()
    })?;
    let port = peer.port.context("the other end sent no port")?;
    Ok((socket, SocketAddr::new(end.there().addr, port)))
}

/// Returns the maximum payload bytes of a datagram for this MTU.
pub(crate) fn datagram_len(mtu: usize) -> usize {
    mtu - IP_UDP
}

/// Returns the number of datagrams of `segment_len` bytes that one call with segmentation offload
/// carries.
pub(crate) fn segments_max(segment_len: usize) -> usize {
    /// The kernel's limit: `UDP_MAX_SEGMENTS` of include/linux/udp.h before it was raised to 128.
    const SEGMENTS_MAX: usize = 64;
    (UDP_SEND_MAX / segment_len).clamp(1, SEGMENTS_MAX)
}

/// Opens this end's TCP connection without Nagle's algorithm. The kernel tunes its buffers.
///
/// # Errors
/// A system call fails.
pub(crate) fn tcp(end: &mut End) -> Result<TcpStream> {
    let [stream] = connections(end)?;
    Ok(stream)
}

/// Opens two connections, in the same order at both ends.
///
/// # Errors
/// A system call fails.
pub(crate) fn tcp_pair(end: &mut End) -> Result<[TcpStream; 2]> {
    connections(end)
}

/// Connects, and retries after a timeout. The kernel would retransmit a SYN that artificial packet
/// loss dropped only after 1 s, 2 s and 4 s.
fn connect(to: &SocketAddr) -> Result<TcpStream> {
    /// Number of attempts. If a third of them fail, all fail for about one connection in 6,600.
    const ATTEMPTS: usize = 8;
    /// Longer than any round trip of a lab or a loopback interface.
    const CONNECT_TIMEOUT: Duration = Duration::from_millis(900);
    let ports = portolan::binding::port_range()?;
    let mut attempt = net::connect_within(*to, ports, CONNECT_TIMEOUT);
    for _ in 1..ATTEMPTS {
        match &attempt {
            Err(error) if error.kind() == ErrorKind::TimedOut => {
                attempt = net::connect_within(*to, ports, CONNECT_TIMEOUT);
            }
            _ => break,
        }
    }
    attempt.context("cannot connect")
}

/// Opens `N` connections. The listener accepts them in the order in which they were made.
fn connections<const N: usize>(end: &mut End) -> Result<[TcpStream; N]> {
    let mut streams = Vec::with_capacity(N);
    if end.drives() {
        let peer = end.exchange(&Offer::default())?;
        let port = peer.port.context("the other end sent no port")?;
        let to = SocketAddr::new(end.there().addr, port);
        for _ in 0..N {
            streams.push(connect(&to)?);
        }
    } else {
        let ports = portolan::binding::port_range()?;
        let here = end.here().addr;
        let listener = ports.open(|port| TcpListener::bind(SocketAddr::new(here, port)));
        let listener = listener.with_context(|| format!("cannot bind to {}", end.here().addr))?;
        let port = listener.local_addr()?.port();
        end.exchange(&Offer {
            port: Some(port),
            ..Offer::default()
        })?;
        for _ in 0..N {
            let (stream, from) = listener.accept().context("cannot accept")?;
            ensure!(
                from.ip() == end.there().addr,
                "accepted a connection from {from}, not from the other end"
            );
            streams.push(stream);
        }
    }
    for stream in &streams {
        if let Some(congestion) = end.spec.congestion {
            congestion.set(stream)?;
        }
        stream.set_nodelay(true)?;
    }
    streams
        .try_into()
        .ok()
        .context("the requested number of connections")
}
