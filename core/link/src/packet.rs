// SPDX-License-Identifier: MIT OR Apache-2.0
//! The link for small messages on one Ethernet: raw frames of EtherType 0x88B5 (IEEE Std 802, local
//! experimental) that bypass IP and UDP.
//!
//! ```text
//! 0             6             12      14         16         18
//! +-------------+-------------+-------+----------+----------+------- - -
//! | destination | source      | 88 B5 | dst      | src      | frame
//! | address     | address     |       | endpoint | endpoint |
//! +-------------+-------------+-------+----------+----------+------- - -
//! ```
//! Endpoints are big-endian and identify the process behind an interface; 0xFFFF addresses all of
//! them. A socket filter in the kernel passes only the process's own frames. Any number of
//! processes therefore share an interface, and IP is not affected.
//!
//! There is no length field. Ethernet pads frames to 60 bytes, so a received frame may have up to
//! 42 bytes of padding. The frame must contain its own length.
//!
//! Frames between two processes behind one interface do not arrive, except on the loopback, because
//! an Ethernet does not send frames back. Shared memory serves these processes.
//!
//! A process without the privilege may get its socket from a broker (`packet/lease.rs`). The broker
//! chooses the endpoint and restricts the process to it with kernel rules. Such a socket cannot
//! broadcast.
//!
//! This file is the control path. The data path is in `packet/data.rs` and `packet/receiving.rs`,
//! the filter in `packet/filter.rs`.

mod data;
mod filter;
pub mod lease;
mod receiving;

pub use crate::ethernet::{ENDPOINT_ALL, ETHER_TYPE, InterfaceRef};
use crate::ethernet::{Errors, GATHER_MAX, HEADER_LEN, Header, frame_len_max, header};

use crate::peers::PeerTable;
use crate::place::Unplanned;
use crate::{
    Link, LinkAddr, LinkCaps, LinkError, LinkKind, Notice, PeerId, Receiver, RxFrame, TxError,
    TxFrame, WakeSet,
};
use lease::Request;
use portolan_sys::net::{self, Interface, MacAddr, PacketRing};
use portolan_sys::seqpacket::Seqpacket;
use receiving::Intake;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// Broadcast peer: all processes behind all other interfaces of the Ethernet. Always connected.
pub const BROADCAST: PeerId = PeerId::MAX;

const ERRORS: Errors = Errors(LinkKind::Packet);

/// Default receive buffer in bytes: a ring of 2,560 frames at an MTU of 1500, or a burst of 1.5 ms.
/// Their headers and short frames still fit in a core's cache.
const RECEIVE_BUFFER_LEN: usize = 4 << 20;

/// Method of receiving frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReceiveBy {
    /// A mapped ring; one call per frame if there is no memory for a ring.
    #[default]
    Ring,
    /// One system call per frame.
    Call,
}

/// Settings of a [`Packet`] link.
#[derive(Clone, Debug)]
pub struct PacketConfig {
    /// Interface to use.
    pub interface: InterfaceRef,
    /// Number of this process behind the interface, unique there, such as the process's UDP port.
    /// Must not be [`ENDPOINT_ALL`].
    pub endpoint: u16,
    /// Receive buffer in bytes. The kernel allocates a ring at once; a socket buffer is granted up
    /// to `net.core.rmem_max`. Default 4 MiB.
    pub receive_buffer_len: usize,
    /// Method of receiving frames. Default [`ReceiveBy::Ring`].
    pub receive_by: ReceiveBy,
    /// Address of the broker that opens the socket if this process may not: a path, or `@NAME` in
    /// the abstract namespace. The broker then chooses the endpoint. Default: no broker.
    pub broker: Option<String>,
}

impl PacketConfig {
    /// Returns the defaults for a process on an interface.
    #[must_use]
    pub fn new(interface: InterfaceRef, endpoint: u16) -> Self {
        PacketConfig {
            interface,
            endpoint,
            receive_buffer_len: RECEIVE_BUFFER_LEN,
            receive_by: ReceiveBy::default(),
            broker: None,
        }
    }
}

/// The raw Ethernet link.
pub struct Packet {
    caps: LinkCaps,
    mac: MacAddr,
    endpoint: u16,
    interface_index: u32,
    socket: OwnedFd,
    /// Header of the frames to each peer.
    peers: PeerTable<Header>,
    broadcast: Header,
    tx_buf: Box<[u8]>,
    intake: Intake,
    /// Sends refused by a full queue since the last accepted one.
    refusals: u32,
    /// Frames dropped by the kernel, to be reported as notices.
    drops_pending: u32,
    /// An error of the interface, to be reported.
    down: Option<io::Error>,
    /// Connection to the broker that owns the socket. It keeps the lease alive.
    lease: Option<Seqpacket>,
}

/// A ready socket with its properties.
struct Opened {
    socket: OwnedFd,
    intake: Intake,
    mac: MacAddr,
    endpoint: u16,
    mtu: usize,
    lease: Option<Seqpacket>,
}

impl Packet {
    /// Opens the link.
    ///
    /// [`LinkError::System`] without `CAP_NET_RAW` and without a broker's help, or if the interface
    /// does not exist, is down, or is not an Ethernet.
    pub fn open(config: &PacketConfig) -> Result<Self, LinkError> {
        let name = &config.interface;
        ERRORS.check_endpoint(config.endpoint, name)?;
        let interface = ERRORS.find_interface(name)?;
        let opened = match open_own(&interface, config) {
            Err(LinkError::System { errno, .. })
                if errno.raw_os_error() == Some(libc::EPERM) && config.broker.is_some() =>
            {
                open_leased(&interface, config)?
            }
            other => other?,
        };
        let (mac, endpoint) = (opened.mac, opened.endpoint);
        Ok(Packet {
            caps: caps(opened.mtu, &opened.intake),
            mac,
            endpoint,
            interface_index: interface.index,
            socket: opened.socket,
            peers: PeerTable::new(),
            broadcast: header(mac, endpoint, MacAddr([0xff; 6]), ENDPOINT_ALL),
            tx_buf: vec![0; HEADER_LEN + frame_len_max(opened.mtu)].into_boxed_slice(),
            intake: opened.intake,
            drops_pending: 0,
            refusals: 0,
            down: None,
            lease: opened.lease,
        })
    }

    /// Returns `true` if a broker opened the socket.
    #[must_use]
    pub fn is_leased(&self) -> bool {
        self.lease.is_some()
    }

    /// Receives as [`Link::receive_placed`] does, without calls by pointer.
    #[inline]
    pub fn receive_for<R: Receiver + ?Sized>(&mut self, budget: usize, receiver: &mut R) -> usize {
        match (self.intake).receive(self.socket.as_fd(), budget, receiver) {
            Ok(count) => count,
            Err(error) => {
                self.down = Some(error);
                0
            }
        }
    }

    /// Returns the bytes of the largest frame at present, after a send was refused as too long.
    fn frame_len_max_now(&self) -> usize {
        let all = net::interfaces().unwrap_or_default();
        let own = all
            .iter()
            .find(|interface| interface.index == self.interface_index);
        own.map_or(0, |interface| frame_len_max(interface.mtu))
    }
}

impl Link for Packet {
    fn caps(&self) -> &LinkCaps {
        &self.caps
    }

    fn local_addr(&self) -> LinkAddr {
        LinkAddr::Packet {
            mac: self.mac.0,
            endpoint: self.endpoint,
        }
    }

    fn connect(&mut self, peer: PeerId, addr: &LinkAddr) -> Result<(), LinkError> {
        let (mac, endpoint) = ERRORS.reach(peer, addr)?;
        let header = header(self.mac, self.endpoint, mac, endpoint);
        self.peers.insert(LinkKind::Packet, peer, header)
    }

    fn disconnect(&mut self, peer: PeerId) {
        self.peers.remove(peer);
    }

    #[inline]
    fn transmit(&mut self, peer: PeerId, frame: &TxFrame<'_>) -> Result<(), TxError> {
        self.send_frame(peer, frame)
    }

    #[inline]
    fn send(&mut self, peer: PeerId, frame: &[u8]) -> Result<(), TxError> {
        self.send_pieces(peer, frame, &[])
    }

    #[inline]
    fn receive(&mut self, budget: usize, sink: &mut dyn FnMut(RxFrame<'_>)) -> usize {
        self.receive_for(budget, &mut Unplanned(sink))
    }

    #[inline]
    fn receive_placed(&mut self, budget: usize, receiver: &mut dyn Receiver) -> usize {
        self.receive_for(budget, receiver)
    }

    fn poll_notice(&mut self) -> Option<Notice> {
        let socket = self.socket.as_fd();
        if let Some(error) = self.down.take().or_else(|| self.intake.error(socket)) {
            return Some(Notice::Down(error));
        }
        if self.intake.refused > 0 {
            self.intake.refused -= 1;
            return Some(Notice::Dropped("packet_bad_length"));
        }
        if self.drops_pending == 0 {
            self.drops_pending = self.intake.drops(socket);
        }
        self.drops_pending = self.drops_pending.checked_sub(1)?;
        Some(Notice::Dropped("packet_receive_buffer_full"))
    }

    fn arm(&mut self, wake: &mut WakeSet) -> bool {
        wake.fds.push(self.socket.as_raw_fd());
        !self.intake.has_frame(self.socket.as_fd()) && self.down.is_none()
    }
}

/// Opens the socket with this process's own privilege.
fn open_own(interface: &Interface, config: &PacketConfig) -> Result<Opened, LinkError> {
    let mac = ERRORS.mac_of(interface)?;
    let prepare = || prepare_socket(interface, mac, config);
    let (socket, intake) = receiving::open(config, interface, &prepare)?;
    // The filter is already attached, so no foreign frame ever arrives.
    net::bind_packet(socket.as_fd(), interface.index, ETHER_TYPE).map_err(|source| {
        let what = format!("bind a raw socket to {}", interface.name);
        ERRORS.system(what, source, "check that it exists and is up")
    })?;
    Ok(Opened {
        socket,
        intake,
        mac,
        endpoint: config.endpoint,
        mtu: interface.mtu,
        lease: None,
    })
}

/// Gets the socket from the broker, which has prepared and bound it.
fn open_leased(interface: &Interface, config: &PacketConfig) -> Result<Opened, LinkError> {
    let name = &interface.name;
    let request = Request {
        interface: name.clone(),
        ring_len: u32::try_from(config.receive_buffer_len).unwrap_or(u32::MAX),
    };
    let broker = config.broker.as_deref().unwrap_or_default();
    let lease = lease::acquire(broker, &request).map_err(|error| {
        let errno = io::Error::from_raw_os_error(libc::EPERM);
        let what =
            format!("open a raw socket on {name} without CAP_NET_RAW; broker at {broker}: {error}");
        ERRORS.system(what, errno, PRIVILEGE_REMEDY)
    })?;
    let ring = PacketRing::map(lease.socket.as_fd(), &lease.grant.ring).map_err(|errno| {
        let what = format!("map the receive ring that the broker created on {name}");
        ERRORS.system(what, errno, "use one version of Portolan and its broker")
    })?;
    let mtu = usize::try_from(lease.grant.mtu).unwrap_or(0);
    Ok(Opened {
        socket: lease.socket,
        intake: Intake::by_ring(ring, mtu),
        mac: lease.grant.mac,
        endpoint: lease.grant.endpoint,
        mtu,
        lease: Some(lease.connection),
    })
}

/// Advice for users with neither privilege nor broker.
const PRIVILEGE_REMEDY: &str = "give the program CAP_NET_RAW (`setcap cap_net_raw+ep PROGRAM`), run \
     `portolan broker` on this host, or use the udp link, which needs no privilege";

/// Returns a socket that still has to be bound; it receives nothing before that.
fn prepare_socket(
    interface: &Interface,
    mac: MacAddr,
    config: &PacketConfig,
) -> Result<OwnedFd, LinkError> {
    let name = &interface.name;
    let socket = net::packet_socket().map_err(|source| {
        let what = format!("open a raw socket on {name} without CAP_NET_RAW");
        ERRORS.system(what, source, PRIVILEGE_REMEDY)
    })?;
    let fd = socket.as_fd();
    let prepared = net::attach_filter(fd, &filter::accepting(config.endpoint, mac))
        .and_then(|()| net::bypass_qdisc(fd))
        .and_then(|()| net::request_receive_buffer(fd, config.receive_buffer_len));
    prepared.map_err(|source| {
        ERRORS.system(
            format!("set options of the raw socket on {name}"),
            source,
            "use a newer kernel",
        )
    })?;
    // Refused by old kernels. There, too, a socket for one EtherType receives no outgoing frames.
    let _ = net::ignore_outgoing(fd);
    Ok(socket)
}

fn caps(mtu: usize, intake: &Intake) -> LinkCaps {
    LinkCaps {
        kind: LinkKind::Packet,
        frame_len_max: frame_len_max(mtu),
        segments_max: 1,
        gather_max: GATHER_MAX,
        lossless: false,
        pull: false,
        placement: false,
        polls_memory: intake.is_ring(),
        rx_buffer_len: intake.buffer_len,
    }
}

#[cfg(test)]
mod tests;
