// SPDX-License-Identifier: MIT OR Apache-2.0
//! The link for small messages on one Ethernet: raw frames of EtherType 0x88B5 (IEEE Std 802, local
//! experimental), past IP and UDP.
//!
//! ```text
//! 0             6             12      14         16         18
//! +-------------+-------------+-------+----------+----------+------- - -
//! | destination | source      | 88 B5 | dst      | src      | frame
//! | address     | address     |       | endpoint | endpoint |
//! +-------------+-------------+-------+----------+----------+------- - -
//! ```
//! Endpoints are big-endian and say which process behind an interface is meant; 0xFFFF means all of
//! them. A socket filter in the kernel lets only the process's own frames in, so any number of
//! processes share an interface, and IP does not notice.
//!
//! There is no length field: Ethernet pads frames to 60 bytes, and what is received may have up to
//! 42 bytes of padding behind the frame. The frame must know its own length.
//!
//! Frames between two processes behind one interface do not arrive, except on the loopback: an
//! Ethernet does not send back. That is what shared memory is for.
//!
//! A process without the privilege may have its socket of a broker, which chooses the endpoint and
//! whose kernel rules hold the process to it: `packet/lease.rs`. Such a socket sends to nobody but
//! single processes.
//!
//! This file is the control path; `packet/data.rs` and `packet/receiving.rs` have the data path,
//! `packet/filter.rs` the filter.

mod data;
mod filter;
pub mod lease;
mod receiving;

pub use crate::ethernet::{ENDPOINT_ALL, ETHER_TYPE, InterfaceRef};
use crate::ethernet::{
    ETHERNET_LEN, Errors, GATHER_MAX, HEADER_LEN, Header, frame_len_max, header,
};

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

/// The peer that is everyone: all processes behind all other interfaces of the Ethernet. It is
/// always connected.
pub const BROADCAST: PeerId = PeerId::MAX;

const ERRORS: Errors = Errors(LinkKind::Packet);

/// Bytes of receive buffer that a link has or wishes for: a ring of 2,560 frames at an MTU of 1500, a
/// burst of 1.5 ms of frames; their headers and short frames still fit in a core's cache.
const RECEIVE_BUFFER_LEN: usize = 4 << 20;

/// How frames come in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReceiveBy {
    /// By a mapped ring; by calls where there is no memory for one.
    #[default]
    Ring,
    /// By a system call for each frame.
    Call,
}

/// How to open a [`Packet`] link.
#[derive(Clone, Debug)]
pub struct PacketConfig {
    /// The interface.
    pub interface: InterfaceRef,
    /// This process's number behind the interface; no other process there may have it. The
    /// process's UDP port is such a number. Not [`ENDPOINT_ALL`].
    pub endpoint: u16,
    /// Bytes of receive buffer: of the ring, which the kernel gives at once, or to wish for, where it
    /// grants at most `net.core.rmem_max`. Default 4 MiB.
    pub receive_buffer_len: usize,
    /// How frames come in. Default [`ReceiveBy::Ring`].
    pub receive_by: ReceiveBy,
    /// Where a broker is asked for the socket if this process may not open one: a path, or `@NAME`
    /// in the abstract namespace. The broker then chooses the endpoint. Default: nobody is asked.
    pub broker: Option<String>,
}

impl PacketConfig {
    /// The defaults, for a process on an interface.
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
    /// Per peer the bytes in front of every frame to it.
    peers: PeerTable<Header>,
    broadcast: Header,
    tx_buf: Box<[u8]>,
    intake: Intake,
    /// Sends that were refused for want of room since the last that was not.
    refusals: u32,
    /// Frames that the kernel dropped, to be reported as notices.
    drops_pending: u32,
    /// An error of the interface, to be reported.
    down: Option<io::Error>,
    /// The connection to the broker that the socket is of; it stands for the socket.
    lease: Option<Seqpacket>,
}

/// A socket that is ready, and what it is tied to.
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
    /// # Errors
    /// [`LinkError::System`] without `CAP_NET_RAW` and a broker's help, or when the interface does not exist, is
    /// down, or is no Ethernet.
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
            tx_buf: vec![0; ETHERNET_LEN + opened.mtu].into_boxed_slice(),
            intake: opened.intake,
            drops_pending: 0,
            refusals: 0,
            down: None,
            lease: opened.lease,
        })
    }

    /// Whether the socket is a broker's.
    #[must_use]
    pub fn is_leased(&self) -> bool {
        self.lease.is_some()
    }

    /// Bytes of the largest frame at this moment, after a send was refused as too long.
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
    fn receive(&mut self, budget: usize, sink: &mut dyn FnMut(RxFrame<'_>)) -> usize {
        self.receive_frames(budget, &mut Unplanned(sink))
    }

    #[inline]
    fn receive_placed(&mut self, budget: usize, receiver: &mut dyn Receiver) -> usize {
        self.receive_frames(budget, receiver)
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

/// By this process's own privilege.
fn open_own(interface: &Interface, config: &PacketConfig) -> Result<Opened, LinkError> {
    let mac = ERRORS.mac_of(interface)?;
    let prepare = || prepare_socket(interface, mac, config);
    let (socket, intake) = receiving::open(config, interface, &prepare)?;
    // By now the filter is there, so that no foreign frame ever gets in.
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

/// Of the broker, which has prepared and bound it.
fn open_leased(interface: &Interface, config: &PacketConfig) -> Result<Opened, LinkError> {
    let name = &interface.name;
    let request = Request {
        interface: name.clone(),
        ring_len: u32::try_from(config.receive_buffer_len).unwrap_or(u32::MAX),
    };
    let broker = config.broker.as_deref().unwrap_or_default();
    let lease = lease::ask(broker, &request).map_err(|error| {
        let errno = io::Error::from_raw_os_error(libc::EPERM);
        let what = format!("raw socket on {name} without CAP_NET_RAW; at {broker} {error}");
        ERRORS.system(what, errno, PRIVILEGE_REMEDY)
    })?;
    let ring = PacketRing::map(lease.socket.as_fd(), &lease.grant.ring).map_err(|errno| {
        let what = format!("map the receive ring that the broker made on {name}");
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

/// For who has neither.
const PRIVILEGE_REMEDY: &str = "give the program CAP_NET_RAW (`setcap cap_net_raw+ep PROGRAM`), have \
     `portolan broker` run on this host, or do without: the udp link needs no privilege";

/// A socket that only lacks being bound: before that it hears nothing.
fn prepare_socket(
    interface: &Interface,
    mac: MacAddr,
    config: &PacketConfig,
) -> Result<OwnedFd, LinkError> {
    let name = &interface.name;
    let socket = net::packet_socket().map_err(|source| {
        let what = format!("raw socket on {name} without CAP_NET_RAW");
        ERRORS.system(what, source, PRIVILEGE_REMEDY)
    })?;
    let fd = socket.as_fd();
    let prepared = net::attach_filter(fd, &filter::accepting(config.endpoint, mac))
        .and_then(|()| net::bypass_qdisc(fd))
        .and_then(|()| net::wish_receive_buffer(fd, config.receive_buffer_len));
    prepared.map_err(|source| {
        ERRORS.system(
            format!("set options of the raw socket on {name}"),
            source,
            "use a newer kernel",
        )
    })?;
    // Refused by old kernels. A socket for one EtherType hears no outgoing frames there either.
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
        looks_at_memory: intake.is_ring(),
        rx_buffer_len: intake.buffer_len,
    }
}

#[cfg(test)]
mod tests;
