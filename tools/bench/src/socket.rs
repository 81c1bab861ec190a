// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sockets of the bare rows, opened and introduced to one another.

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

/// EtherTypes that the driver and the answerer receive: IEEE 802's two for local experiments. One
/// each, because on a loopback interface both ends see every frame of a type.
const ETHER_TYPES: [u16; 2] = [0x88b5, 0x88b6];

/// Bytes of receive buffer that UDP sockets ask for. The kernel grants anybody up to
/// `net.core.rmem_max`, 208 KB unless it was raised, and sets aside twice as much.
const RECEIVE_BUFFER: usize = 1 << 20;

/// Largest payload of one UDP send over IPv4.
const UDP_SEND_MAX: usize = 65_507;

/// Opens this end's raw Ethernet socket; returns it with the header that takes frames to the other
/// end.
///
/// # Errors
/// No CAP_NET_RAW, or no such interface.
pub(crate) fn packet(end: &mut End) -> Result<(OwnedFd, [u8; ETHERNET])> {
    let socket = open_packet(end)?;
    let header = introduce_packet(end, &socket)?;
    Ok((socket, header))
}

/// The same with a receive ring for frames of `frame_len` bytes.
///
/// # Errors
/// Those, or no memory for the ring.
pub(crate) fn packet_ring(
    end: &mut End,
    frame_len: usize,
) -> Result<(OwnedFd, Ring, [u8; ETHERNET])> {
    let socket = open_packet(end)?;
    let ring = Ring::new(&socket, frame_len).context("no PACKET_RX_RING here")?;
    let header = introduce_packet(end, &socket)?;
    Ok((socket, ring, header))
}

/// The same by AF_XDP: the frames that come are taken out before the kernel looks at them.
///
/// # Errors
/// No CAP_NET_RAW, CAP_NET_ADMIN or CAP_BPF, or no such interface.
pub(crate) fn xdp(end: &mut End, hook: Hook) -> Result<(Xdp, [u8; ETHERNET])> {
    let interface = end.here().interface;
    let ether_type = ETHER_TYPES[end.spec.role.index()];
    let xdp = Xdp::open(&interface, ether_type, hook == Hook::Native).with_context(|| {
        format!("cannot open an AF_XDP socket on {interface}; it needs CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF")
    })?;
    // For its address only.
    let socket = open_packet(end)?;
    let header = introduce_packet(end, &socket)?;
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

fn introduce_packet(end: &mut End, socket: &OwnedFd) -> Result<[u8; ETHERNET]> {
    let interface = end.here().interface;
    bind_packet(socket, &interface, ETHER_TYPES[end.spec.role.index()])
        .with_context(|| format!("cannot bind a raw Ethernet socket to {interface}"))?;
    let mac = packet_mac(socket.as_fd()).context("cannot learn the hardware address")?;
    let peer = end.exchange(&Offer {
        mac: Some(mac),
        ..Offer::default()
    })?;
    let peer_mac = peer
        .mac
        .context("the other end did not say its hardware address")?;
    let mut header = [0; ETHERNET];
    header[..6].copy_from_slice(&peer_mac);
    header[6..12].copy_from_slice(&mac);
    header[12..].copy_from_slice(&ETHER_TYPES[end.spec.role.peer().index()].to_be_bytes());
    Ok(header)
}

/// Opens this end's UDP socket, connected to the other's, with segmentation offload in
/// `segment_len` bytes if that is given.
///
/// # Errors
/// The system refuses.
pub(crate) fn udp(end: &mut End, segment_len: Option<usize>) -> Result<OwnedFd> {
    let (socket, to) = udp_apart(end, segment_len)?;
    socket.connect(to)?;
    Ok(socket.into())
}

/// The same, but not connected; returns it with the address of the other's.
///
/// # Errors
/// The system refuses.
pub(crate) fn udp_apart(
    end: &mut End,
    segment_len: Option<usize>,
) -> Result<(UdpSocket, SocketAddr)> {
    let ports = portolan::port_range()?;
    let here = end.here().addr;
    let socket = ports.open(|port| UdpSocket::bind(SocketAddr::new(here, port)));
    let socket = socket.with_context(|| format!("cannot bind to {}", end.here().addr))?;
    if let Some(len) = segment_len {
        let len = i32::try_from(len)?;
        setsockopt(&socket, sockopt::UdpGsoSegment, &len).context("no UDP_SEGMENT here")?;
        setsockopt(&socket, sockopt::UdpGroSegment, &true).context("no UDP_GRO here")?;
    }
    // Before the other end may send: what does not fit is lost.
    setsockopt(&socket, sockopt::RcvBuf, &RECEIVE_BUFFER).context("SO_RCVBUF")?;
    socket.set_nonblocking(true)?;
    let port = socket.local_addr()?.port();
    let peer = end.exchange(&Offer {
        port: Some(port),
        ..Offer::default()
    })?;
    let port = peer.port.context("the other end did not say its port")?;
    Ok((socket, SocketAddr::new(end.there().addr, port)))
}

/// Bytes of the datagrams that an MTU lets pass.
pub(crate) fn datagram_len(mtu: usize) -> usize {
    mtu - IP_UDP
}

/// Datagrams of `segment_len` bytes that one call with segmentation offload carries.
pub(crate) fn segments_max(segment_len: usize) -> usize {
    /// The kernel's bound, `UDP_MAX_SEGMENTS` of include/linux/udp.h before it was raised to 128.
    const SEGMENTS_MAX: usize = 64;
    (UDP_SEND_MAX / segment_len).clamp(1, SEGMENTS_MAX)
}

/// Opens this end's TCP connection, without Nagle's algorithm; buffers are left to the kernel's
/// tuning.
///
/// # Errors
/// The system refuses.
pub(crate) fn tcp(end: &mut End) -> Result<TcpStream> {
    let [stream] = connections(end)?;
    Ok(stream)
}

/// Opens two connections at once, in the same order at both ends.
///
/// # Errors
/// The system refuses.
pub(crate) fn tcp_pair(end: &mut End) -> Result<[TcpStream; 2]> {
    connections(end)
}

/// Asks several times: where packets are lost on purpose, the kernel would repeat the question only
/// after one second, two, four.
fn connect(to: &SocketAddr) -> Result<TcpStream> {
    /// Of which all are lost once in 10,000 times where a third of the round trips fail.
    const ATTEMPTS: usize = 8;
    /// Longer than any round trip of a lab or a loopback interface.
    const PATIENCE: Duration = Duration::from_millis(900);
    let ports = portolan::port_range()?;
    let mut attempt = net::connect_within(*to, ports, PATIENCE);
    for _ in 1..ATTEMPTS {
        match &attempt {
            Err(error) if error.kind() == ErrorKind::TimedOut => {
                attempt = net::connect_within(*to, ports, PATIENCE);
            }
            _ => break,
        }
    }
    attempt.context("cannot connect")
}

/// The listener takes connections in the order in which they were made.
fn connections<const N: usize>(end: &mut End) -> Result<[TcpStream; N]> {
    let mut streams = Vec::with_capacity(N);
    if end.drives() {
        let peer = end.exchange(&Offer::default())?;
        let port = peer.port.context("the other end did not say its port")?;
        let to = SocketAddr::new(end.there().addr, port);
        for _ in 0..N {
            streams.push(connect(&to)?);
        }
    } else {
        let ports = portolan::port_range()?;
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
                "a connection came from {from}: not the other end"
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
        .context("as many connections as asked for")
}
