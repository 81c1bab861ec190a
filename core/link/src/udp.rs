// SPDX-License-Identifier: MIT OR Apache-2.0
//! The link for any network: UDP, with segmentation offload if the kernel supports it.
//!
//! One unconnected, non-blocking socket receives from all peers, and one connected socket serves a
//! busy peer (`udp/socket.rs`). Peers with addresses of the other family have a second link
//! (`udp/second.rs`).
//!
//! A single frame is one `sendto`. A run of segments is one `sendto`, or one `sendmsg` if it is not
//! contiguous; the kernel or the NIC cuts it into datagrams (`UDP_SEGMENT`). Runs that the kernel
//! merged on the receiving side (`UDP_GRO`) arrive by one `recvfrom` and are divided by the length
//! in the first frame. Alternatively they arrive by one `recvmsg`, which also returns the length
//! and marks. IP never fragments a datagram of this link.
//!
//! This file is the control path: opening, connecting, errors and notices. The data path is in
//! `udp/data.rs`.
//!
//! Invariant: an error that the network reports about an earlier datagram becomes a [`Notice`]. It
//! never costs a frame that is being sent or received at that moment.

mod capacity;
mod data;
mod place;
mod second;
mod socket;

use crate::peers::PeerTable;
use crate::place::Unplanned;
use crate::{
    Link, LinkAddr, LinkCaps, LinkError, LinkKind, Notice, PeerId, Receiver, RxFrame, TxError,
    TxFrame, WakeSet,
};
use capacity::CapacityMeter;
use place::Slots;
use portolan_sys::memory::PageBuf;
use portolan_sys::net::{
    self, ErrorOrigin, Interface, PortRange, Scatter, Sender, SockAddr, SocketError,
};
use second::Second;
use socket::{BUSY, BusyPeer, COMMON, Socket};
use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// Bytes of the largest UDP payload: 65535 less the headers of IPv4 and UDP.
const DATAGRAM_LEN_MAX: usize = 65507;

/// Segments that every kernel with `UDP_SEGMENT` accepts in one call (`UDP_MAX_SEGMENTS` of
/// include/linux/udp.h, 128 in newer kernels).
const SEGMENTS_MAX: usize = 64;

/// Maximum number of slices in a gather list. A run needs one piece per header, one per slice, and
/// one more per frame boundary inside a slice. The sum stays far below the limit of one call
/// ([`Sender::PIECES_MAX`]).
const GATHER_MAX: usize = 256;

/// Maximum number of notices queued for `poll_notice`. Errors repeat while their cause lasts, so
/// later ones may be dropped.
const NOTICES_MAX: usize = 64;

/// Smallest MTU that is accepted (RFC 791: every host must take datagrams of 576 bytes). ICMP
/// messages can be forged, and a tiny MTU would be a cheap way to slow a job down.
const MTU_MIN: u32 = 576;

/// Function that returns the length of the datagram that begins with the given bytes.
pub type DatagramLen = fn(&[u8]) -> Option<usize>;

/// Settings of a [`Udp`] link.
#[derive(Clone, Debug)]
pub struct UdpConfig {
    /// Address of one of this host's interfaces. An unspecified address works, but peers then
    /// cannot use [`Link::local_addr`].
    pub bind: IpAddr,
    /// Address of the other family for a second socket with the same port. Default: none.
    pub also: Option<IpAddr>,
    /// MTU to assume if `bind` is unspecified. Default: the smallest MTU of the host's interfaces.
    pub mtu: Option<usize>,
    /// Port; 0, the default, selects a free port of `ports`.
    pub port: u16,
    /// Ports to choose from if `port` is 0. By default the system chooses.
    pub ports: PortRange,
    /// Requested receive buffer in bytes. A larger one loses fewer frames while the process
    /// computes. The kernel grants at most `net.core.rmem_max`. Default 8 MiB.
    pub receive_buffer_len: usize,
    /// Requested send buffer in bytes. A larger one lets more calls run ahead of a slow NIC. The
    /// kernel grants at most `net.core.wmem_max`. Default 4 MiB.
    pub send_buffer_len: usize,
    /// Bytes of the largest frame, if less than the interface's MTU allows. Default: none.
    pub frame_len_max: Option<usize>,
    /// Use segmentation offload if the kernel supports it. Default true; false serves comparisons.
    pub offload: bool,
    /// Reads the length of the first datagram from its own bytes, where several are contiguous.
    /// Default none: each call then requests the length from the kernel, which costs more.
    pub datagram_len: Option<DatagramLen>,
}

impl UdpConfig {
    /// Returns the defaults for one of this host's addresses.
    #[must_use]
    pub fn new(bind: IpAddr) -> Self {
        UdpConfig {
            bind,
            also: None,
            mtu: None,
            port: 0,
            ports: PortRange::default(),
            receive_buffer_len: 8 << 20,
            send_buffer_len: 4 << 20,
            frame_len_max: None,
            offload: true,
            datagram_len: None,
        }
    }
}

/// The UDP link.
pub struct Udp {
    caps: LinkCaps,
    config: UdpConfig,
    local: SocketAddr,
    /// Common socket, and the busy peer's socket if there is one.
    sockets: Vec<Socket>,
    busy: BusyPeer,
    peers: PeerTable<SockAddr>,
    /// Set if the kernel cuts runs into segments.
    segmentation: bool,
    sender: Sender,
    rx_buf: PageBuf,
    scatter: Scatter,
    slots: Slots,
    capacity_meter: CapacityMeter,
    notices: VecDeque<Notice>,
    /// Drops not reported yet.
    drops_pending: u32,
    /// Payload received when drops were last counted.
    drops_counted_at: usize,
    /// Sends refused by a full queue since the last accepted one.
    refusals: u32,
    /// Link for peers with addresses of the other family.
    second: Option<Second>,
}

impl Udp {
    /// Opens the link.
    ///
    /// # Errors
    /// [`LinkError::System`] if the address is not this host's, or the port is taken.
    pub fn open(config: &UdpConfig) -> Result<Self, LinkError> {
        match config.also {
            Some(also) => second::open(config, also),
            None => Udp::open_one(config),
        }
    }

    /// Opens the link for the family of `config.bind`.
    fn open_one(config: &UdpConfig) -> Result<Self, LinkError> {
        let target = match config.port {
            0 if !config.ports.is_any() => format!("{} port {}", config.bind, config.ports),
            port => SocketAddr::new(config.bind, port).to_string(),
        };
        let failed = |what: String| {
            move |errno: io::Error| {
                let remedy = remedy_for(&errno);
                LinkError::System {
                    kind: LinkKind::Udp,
                    what,
                    errno,
                    remedy,
                }
            }
        };
        let bind = |port| net::bind_datagram(SocketAddr::new(config.bind, port), false);
        let socket = match config.port {
            0 => config.ports.open(bind),
            port => bind(port),
        };
        let socket = socket.map_err(failed(format!("bind {target}")))?;
        let fd = socket.as_fd();
        prepare(fd, config).map_err(failed(format!("set options of the socket on {target}")))?;
        let local = socket.local_addr().map_err(failed(format!(
            "read the address of the socket on {target}"
        )))?;
        let interfaces = net::interfaces().map_err(failed("list the network interfaces".into()))?;
        let segmentation = config.offload && net::segmentation_supported(fd);
        let charged_max =
            net::receive_buffer_len(fd).map_err(failed("read buffer lengths".into()))?;
        let caps = caps(config, &interfaces, charged_max);
        let rx_buffer_len = caps.rx_buffer_len;
        Ok(Udp {
            caps,
            config: config.clone(),
            local,
            sockets: vec![Socket::new(socket)],
            busy: BusyPeer::new(),
            peers: PeerTable::new(),
            segmentation,
            sender: Sender::new(),
            // Also the longest run that the kernel merges (GRO_LEGACY_MAX_SIZE).
            rx_buf: PageBuf::zeroed(1 << 16),
            scatter: Scatter::new(place::PIECES_MAX),
            slots: Slots::new(),
            capacity_meter: CapacityMeter::new(charged_max, rx_buffer_len),
            notices: VecDeque::with_capacity(NOTICES_MAX),
            drops_pending: 0,
            drops_counted_at: 0,
            refusals: 0,
            second: None,
        })
    }

    /// Converts all entries of the error queues to notices. Returns the largest frame that passes
    /// towards `to`, if an entry reported it.
    fn drain_errors(&mut self, to: Option<IpAddr>) -> Option<usize> {
        let places = 0..self.sockets.len();
        let drain = |place| self.drain_errors_of(place, to);
        places.filter_map(drain).last()
    }

    fn drain_errors_of(&mut self, place: usize, to: Option<IpAddr>) -> Option<usize> {
        let mut passes = None;
        // The queue is short because the kernel charges its entries to the receive buffer. The
        // bound protects against a flood of ICMP messages that arrive faster than they are read.
        for _ in 0..NOTICES_MAX {
            let Ok(Some(error)) = net::recv_error(self.sockets[place].as_fd()) else {
                break;
            };
            let Some(destination) = error.destination else {
                continue;
            };
            match (error.errno, error.origin) {
                (libc::ECONNREFUSED, ErrorOrigin::Icmp) => self.notice_refusal(destination),
                (libc::EMSGSIZE, _) => {
                    let frame_len_max = self.frame_len_passing(&error);
                    if Some(destination.ip()) == to {
                        passes = Some(frame_len_max);
                    }
                    self.notice_mtu(destination.ip(), frame_len_max);
                }
                // A host or network is temporarily unreachable: the datagrams are lost, as any
                // frame may be, and the protocol recovers.
                _ => {}
            }
        }
        passes
    }

    fn notice_refusal(&mut self, destination: SocketAddr) {
        let there = self
            .peers
            .matching(|to| to.to_std() == Some(destination))
            .next();
        if let Some(peer) = there {
            self.push_notice(Notice::Refused(peer));
        }
    }

    /// Reports an MTU for all peers on `host`. (If this host's own kernel reports it, the port is
    /// not even known.)
    fn notice_mtu(&mut self, host: IpAddr, frame_len_max: usize) {
        let left = NOTICES_MAX - self.notices.len();
        let there = self
            .peers
            .matching(|to| to.to_std().is_some_and(|to| to.ip() == host));
        let notices = there.map(|peer| Notice::MtuShrunk {
            peer,
            frame_len_max,
        });
        self.notices.extend(notices.take(left));
    }

    fn frame_len_passing(&self, error: &SocketError) -> usize {
        let passing = error.info.max(MTU_MIN) as usize - headers_len(self.local.ip());
        passing.min(self.caps.frame_len_max)
    }

    #[cold]
    fn enable_mark_reports(&mut self, place: usize) {
        let socket = &mut self.sockets[place];
        socket.reports_marks = true;
        if let Err(error) = net::report_marks(socket.as_fd(), self.local.is_ipv6()) {
            log::debug!("cannot enable reports of congestion marks: {error}");
        }
    }

    /// Opens a connected socket for the busy peer at `to`. If datagrams may be waiting at the
    /// previous busy socket, the change is deferred until they were received.
    #[cold]
    fn on_busy(&mut self, peer: PeerId, to: &SockAddr) {
        let has_waiting = self.sockets.get(BUSY).is_some_and(|old| !old.polled_empty);
        if has_waiting {
            return self.busy.set(self.busy.peer());
        }
        self.leave_busy();
        match socket::open_connected(&self.sockets[COMMON], to, &self.config) {
            Ok(socket) => {
                self.sockets.push(socket);
                self.busy.set(Some(peer));
            }
            Err(error) => log::debug!("cannot open a socket connected to peer {peer}: {error}"),
        }
    }

    /// Closes the busy peer's socket. Its drops are still reported.
    fn leave_busy(&mut self) {
        if let Some(mut socket) = self.sockets.drain(BUSY..).next() {
            self.drops_pending += socket.drops();
            socket.close_connected();
        }
        self.busy.set(None);
    }

    fn push_notice(&mut self, notice: Notice) {
        if self.notices.len() < NOTICES_MAX {
            self.notices.push_back(notice);
        }
    }

    /// Returns a notice for each datagram that the kernel dropped since the last check. Without data
    /// received since then, no buffer was full.
    fn poll_drops(&mut self) -> Option<Notice> {
        let received = self.capacity_meter.received();
        if self.drops_pending == 0 && self.drops_counted_at != received {
            self.drops_counted_at = received;
            self.drops_pending = self.sockets.iter_mut().map(Socket::drops).sum();
        }
        self.drops_pending = self.drops_pending.checked_sub(1)?;
        Some(Notice::Dropped("udp_receive_buffer_full"))
    }
}

impl Link for Udp {
    fn caps(&self) -> &LinkCaps {
        &self.caps
    }

    fn local_addr(&self) -> LinkAddr {
        LinkAddr::Udp { socket: self.local }
    }

    fn connect(&mut self, peer: PeerId, addr: &LinkAddr) -> Result<(), LinkError> {
        let unreachable = |why| LinkError::Unreachable {
            kind: LinkKind::Udp,
            peer,
            why,
        };
        let LinkAddr::Udp { socket } = addr else {
            return Err(unreachable("its address is not a UDP one"));
        };
        self.disconnect(peer);
        if socket.is_ipv4() != self.local.is_ipv4() {
            return match &mut self.second {
                Some(second) => second.connect(peer, addr),
                None => Err(unreachable(
                    "one side has an IPv4 address and the other an IPv6 address",
                )),
            };
        }
        if socket.ip().is_unspecified() || socket.port() == 0 {
            return Err(unreachable("its address is unspecified"));
        }
        self.peers.insert(LinkKind::Udp, peer, (*socket).into())
    }

    fn disconnect(&mut self, peer: PeerId) {
        if self.busy.peer() == Some(peer) {
            self.leave_busy();
        }
        self.peers.remove(peer);
        if let Some(second) = &mut self.second {
            second.disconnect(peer);
        }
    }

    #[inline]
    fn transmit(&mut self, peer: PeerId, frame: &TxFrame<'_>) -> Result<(), TxError> {
        match (self.send_frame(peer, frame), &mut self.second) {
            (Err(TxError::NotConnected(_)), Some(second)) => second.transmit(peer, frame),
            (result, _) => result,
        }
    }

    #[inline]
    fn send(&mut self, peer: PeerId, frame: &[u8]) -> Result<(), TxError> {
        match (self.send_whole(peer, frame), &mut self.second) {
            (Err(TxError::NotConnected(_)), Some(second)) => second.send(peer, frame),
            (result, _) => result,
        }
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
        // Errors answer frames that were sent. The polls of the socket report later ones.
        if self.notices.is_empty() && self.busy.take_sent() {
            self.drain_errors(None);
        }
        self.notices
            .pop_front()
            .or_else(|| self.capacity_meter.take_change().map(Notice::Capacity))
            .or_else(|| self.poll_drops())
            .or_else(|| self.second.as_mut()?.poll_notice())
    }

    fn arm(&mut self, wake: &mut WakeSet) -> bool {
        let mut has_waiting = false;
        for place in 0..self.sockets.len() {
            let ready = net::readiness(self.sockets[place].as_fd());
            if ready.error {
                // An entry in the error queue wakes every poll until it is read.
                self.drain_errors_of(place, None);
            }
            has_waiting |= ready.readable;
            wake.fds.push(self.sockets[place].as_fd().as_raw_fd());
        }
        let is_quiet = self.second.as_mut().is_none_or(|second| second.arm(wake));
        is_quiet && !has_waiting && self.notices.is_empty()
    }
}

fn prepare(fd: BorrowedFd<'_>, config: &UdpConfig) -> io::Result<()> {
    let ipv6 = config.bind.is_ipv6();
    net::request_receive_buffer(fd, config.receive_buffer_len)?;
    net::request_send_buffer(fd, config.send_buffer_len)?;
    net::probe_path_mtu(fd, ipv6)?;
    net::enable_error_queue(fd, ipv6)?;
    net::set_ecn(fd, ipv6, net::ECN_CAPABLE)?;
    if config.offload {
        // Refused by old kernels, which then deliver datagrams one by one.
        let _ = net::enable_receive_offload(fd);
    }
    Ok(())
}

fn caps(config: &UdpConfig, interfaces: &[Interface], charged_max: usize) -> LinkCaps {
    let named = config.mtu.filter(|_| config.bind.is_unspecified());
    let mtu = named.unwrap_or_else(|| mtu_of(interfaces, config.bind));
    let frame_len_max = mtu
        .saturating_sub(headers_len(config.bind))
        .min(DATAGRAM_LEN_MAX)
        .min(config.frame_len_max.unwrap_or(usize::MAX));
    LinkCaps {
        kind: LinkKind::Udp,
        frame_len_max,
        // Any run of this many frames fits one call, at any frame length. Without kernel
        // segmentation it is one sendmmsg.
        segments_max: (DATAGRAM_LEN_MAX / frame_len_max.max(1)).clamp(1, SEGMENTS_MAX),
        gather_max: GATHER_MAX,
        lossless: false,
        pull: false,
        placement: true,
        polls_memory: false,
        rx_buffer_len: payload_capacity(charged_max),
    }
}

/// Returns the payload that certainly fits a receive buffer of `charged_len` bytes, the kernel's
/// doubled value. `CapacityMeter` later measures the actual capacity.
///
/// The kernel charges each datagram with its `truesize`: a full frame of 1472 bytes costs 2304
/// bytes with drivers that use 2 KiB buffers, and up to 4352 bytes with drivers that give each
/// frame a page. Up to a quarter of the buffer stays charged after it was read, because
/// `udp_rmem_release` returns memory in batches. A quarter of the charged value, which is half of
/// the granted size, covers both. Frames much shorter than the MTU cost more, at least 768 bytes
/// each.
fn payload_capacity(charged_len: usize) -> usize {
    charged_len / 4
}

/// Returns the MTU of the interface that has address `ip`. For an unspecified address, returns the
/// smallest MTU of the non-loopback interfaces, since any of them may be used.
fn mtu_of(interfaces: &[Interface], ip: IpAddr) -> usize {
    let has = |interface: &&Interface| {
        let networks = &interface.networks;
        // All of 127.0.0.0/8 is local, even if an address is not listed.
        networks
            .iter()
            .any(|net| net.addr == ip || (interface.loopback && net.contains(ip)))
    };
    let is_external = |interface: &&Interface| interface.up && !interface.loopback;
    let owner = interfaces.iter().find(has);
    let smallest = || {
        interfaces
            .iter()
            .filter(is_external)
            .min_by_key(|found| found.mtu)
    };
    let any = || interfaces.iter().find(|interface| interface.loopback);
    // RFC 894: the MTU of an Ethernet, as the fallback.
    owner
        .or_else(smallest)
        .or_else(any)
        .map_or(1500, |interface| interface.mtu)
}

/// Returns the bytes of the IP header without options and the UDP header.
fn headers_len(ip: IpAddr) -> usize {
    if ip.is_ipv4() { 20 + 8 } else { 40 + 8 }
}

fn remedy_for(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse if error.get_ref().is_some() => {
            "each process of a host takes two ports of each of its addresses, and connections take more"
        }
        io::ErrorKind::AddrInUse => "choose another port, or 0 for any that is free",
        io::ErrorKind::AddrNotAvailable => "choose an address that `ip address` lists on this host",
        io::ErrorKind::PermissionDenied => "choose a port from 1024 upwards, or 0 for any",
        _ => "check the host's limits on sockets and memory",
    }
}

#[cfg(test)]
mod tests;
