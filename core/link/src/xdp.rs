// SPDX-License-Identifier: MIT OR Apache-2.0
//! The raw Ethernet link by AF_XDP: the frames of `packet`, exchanged between driver and process
//! without the kernel's network stack.
//!
//! A small BPF program at the interface redirects frames for endpoints that have a socket here. It
//! leaves all others to the kernel, so IP and processes that use `packet` are not affected. Both
//! links interoperate.
//!
//! In generic mode the program runs on the kernel's socket buffers. In native mode it runs in the
//! driver; on some drivers this disables offloads for all users of the interface (on a veth,
//! segmentation offload). Frames are copied between kernel and process, unless the driver supports
//! zero-copy in native mode. The driver decides that; it was not tested on hardware.
//!
//! All processes on an interface use one mode and queue 0, to which NICs deliver non-IP frames by
//! default. `xdp/group.rs` describes the sharing. There is no broadcast.
//!
//! This file is the control path, with `xdp/group.rs` and `xdp/program.rs`. `xdp/data.rs` has the
//! data path, `xdp/chunks.rs` the memory.

mod chunks;
mod data;
mod group;
mod program;

use crate::ethernet::{ETHERNET_LEN, Errors, GATHER_MAX, HEADER_LEN, Header, InterfaceRef};
use crate::ethernet::{frame_len_max, header};
use crate::peers::PeerTable;
use crate::{
    Link, LinkAddr, LinkCaps, LinkError, LinkKind, Notice, PeerId, RxFrame, TxError, TxFrame,
    WakeSet,
};
use chunks::{Chunks, RX_LEN, TX_LEN};
use group::{Group, Purpose, Server};
use libc::xdp_desc;
use portolan_sys::bpf;
use portolan_sys::fork::Owner;
use portolan_sys::net::{self, ConsumerRing, MacAddr, ProducerRing, XdpSocket};
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::str::FromStr;
use std::sync::Arc;

const ERRORS: Errors = Errors(LinkKind::Xdp);

/// Queue of the interface that the sockets use.
const QUEUE: u8 = 0;

/// Bytes that the kernel reserves before a received frame (`XDP_PACKET_HEADROOM`).
const HEADROOM: usize = 256;

/// Possible chunk lengths in bytes. The smaller one that fits a frame is used; the kernel
/// accepts none longer than a page.
const CHUNK_LENS: [u32; 2] = [2048, 4096];

/// Requested send buffer. The kernel charges a full frame with about 2,300 bytes until it has left.
const SEND_BUFFER_LEN: usize = TX_LEN as usize * 4096;

/// Attachment point of the program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum XdpMode {
    /// On the kernel's socket buffers; works on any interface.
    #[default]
    Generic,
    /// In the driver, if supported.
    Native,
}

impl XdpMode {
    fn to_byte(self) -> u8 {
        match self {
            XdpMode::Generic => 1,
            XdpMode::Native => 2,
        }
    }

    fn from_byte(byte: u8) -> Option<XdpMode> {
        match byte {
            1 => Some(XdpMode::Generic),
            2 => Some(XdpMode::Native),
            _ => None,
        }
    }
}

impl fmt::Display for XdpMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            XdpMode::Generic => "generic",
            XdpMode::Native => "native",
        })
    }
}

impl FromStr for XdpMode {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<XdpMode, &'static str> {
        match text {
            "generic" => Ok(XdpMode::Generic),
            "native" => Ok(XdpMode::Native),
            _ => Err("write generic or native"),
        }
    }
}

/// Settings of an [`Xdp`] link.
#[derive(Clone, Debug)]
pub struct XdpConfig {
    /// Interface to use.
    pub interface: InterfaceRef,
    /// Number of this process behind the interface, as for `packet`; unique there.
    pub endpoint: u16,
    /// Attachment point of the program; the same for all processes on the interface. Default
    /// [`XdpMode::Generic`].
    pub mode: XdpMode,
}

impl XdpConfig {
    /// Returns the defaults for a process on an interface.
    #[must_use]
    pub fn new(interface: InterfaceRef, endpoint: u16) -> Self {
        XdpConfig {
            interface,
            endpoint,
            mode: XdpMode::default(),
        }
    }
}

/// The AF_XDP link. Fields are dropped in declaration order: sockets before the resources they
/// belong to.
pub struct Xdp {
    caps: LinkCaps,
    mac: MacAddr,
    endpoint: u16,
    socket: XdpSocket,
    rx: ConsumerRing<xdp_desc>,
    tx: ProducerRing<xdp_desc>,
    chunks: Chunks,
    /// Header of the frames to each peer.
    peers: PeerTable<Header>,
    /// Copy of a received frame, where no other process writes.
    rx_buf: Box<[u8]>,
    /// Set if the ring holds frames that the kernel has not accepted yet.
    unsent: bool,
    /// Sends refused by the driver since the last accepted one.
    refusals: u32,
    /// Frames received in a row without an empty poll.
    backlog: usize,
    /// Set if the kernel may have dropped frames since the last check.
    may_have_dropped: bool,
    /// Drops reported by the kernel, and the part of them still to be reported here.
    drops_reported: u64,
    drops_pending: u64,
    /// Received frames refused by this link, to be reported as notices.
    refused: u32,
    /// Set if the program's map contains the socket.
    is_listed: bool,
    owner: Owner,
    _server: Server,
    group: Arc<Group>,
}

impl Xdp {
    /// Opens the link. The first process on an interface attaches the program.
    ///
    /// # Errors
    /// [`LinkError::System`]:
    /// - without CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF
    /// - if the interface does not exist, is down, is not an Ethernet, has frames longer than a
    ///   page, or has another XDP program
    /// - if other processes use another mode there, or all places are taken
    pub fn open(config: &XdpConfig) -> Result<Self, LinkError> {
        let name = &config.interface;
        ERRORS.check_endpoint(config.endpoint, name)?;
        let interface = ERRORS.find_interface(name)?;
        let mac = ERRORS.mac_of(&interface)?;
        let frame_len = ETHERNET_LEN + interface.mtu;
        let fits = |len: &u32| frame_len + HEADROOM <= *len as usize;
        let chunk_len = CHUNK_LENS.into_iter().find(fits).ok_or_else(|| {
            let what = format!("frames of {frame_len} bytes on {name}");
            let errno = io::Error::from_raw_os_error(libc::EMSGSIZE);
            ERRORS.system(what, errno, "lower its MTU to 3826, or use the packet link")
        })?;
        let group = Group::enter(&Purpose {
            interface: &interface,
            mac,
            mode: config.mode,
            chunk_len,
        })?;
        check_same_settings(&group, config, chunk_len)?;
        let (socket, rx, tx) = open_socket(&group, interface.index).map_err(|errno| {
            let what = format!("open an AF_XDP socket on {name}");
            ERRORS.system(what, errno, "give the program CAP_NET_RAW")
        })?;
        let chunks = take_place(&group, name)?;
        let group = Arc::new(group);
        let server = Server::start(&group).map_err(|errno| {
            let what = format!("start the thread that lets others join on {name}");
            ERRORS.system(what, errno, "raise the limit of processes (`ulimit -u`)")
        })?;
        let mut link = Xdp {
            caps: caps(interface.mtu),
            mac,
            endpoint: config.endpoint,
            socket,
            rx,
            tx,
            chunks,
            peers: PeerTable::new(),
            rx_buf: vec![0; frame_len].into_boxed_slice(),
            unsent: false,
            refusals: 0,
            backlog: 0,
            may_have_dropped: false,
            drops_reported: 0,
            drops_pending: 0,
            refused: 0,
            is_listed: false,
            owner: Owner::this_process(),
            _server: server,
            group,
        };
        // Frames arrive from here on.
        link.enlist().map_err(|errno| {
            let what = format!("register endpoint {} on {name}", config.endpoint);
            ERRORS.system(
                what,
                errno,
                "choose an endpoint that no other process there has",
            )
        })?;
        Ok(link)
    }

    /// Returns the attachment point of the program.
    #[must_use]
    pub fn mode(&self) -> XdpMode {
        self.group.mode
    }

    fn enlist(&mut self) -> io::Result<()> {
        let endpoint = u32::from(self.endpoint);
        bpf::insert_socket(self.group.map.as_fd(), endpoint, self.socket.as_fd())?;
        self.is_listed = true;
        Ok(())
    }
}

/// Returns the member's chunks and place, so that the rest of the group is not affected.
impl Drop for Xdp {
    fn drop(&mut self) {
        if self.owner.is_another() {
            return;
        }
        if self.is_listed {
            // If this fails, closing the socket has the same effect.
            let _ = bpf::remove_socket(self.group.map.as_fd(), u32::from(self.endpoint));
        }
        while let Some(desc) = self.rx.take() {
            self.chunks.return_chunk(desc.addr);
        }
        self.chunks.leave();
    }
}

impl Link for Xdp {
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
        self.peers.insert(LinkKind::Xdp, peer, header)
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
        self.receive_frames(budget, sink)
    }

    fn poll_notice(&mut self) -> Option<Notice> {
        if self.refused > 0 {
            self.refused -= 1;
            return Some(Notice::Dropped("xdp_bad_length"));
        }
        if std::mem::take(&mut self.may_have_dropped) {
            let drops = self.socket.drops().unwrap_or(self.drops_reported);
            self.drops_pending += drops.saturating_sub(self.drops_reported);
            self.drops_reported = drops;
        }
        self.drops_pending = self.drops_pending.checked_sub(1)?;
        Some(Notice::Dropped("xdp_receive_ring_full"))
    }

    fn arm(&mut self, wake: &mut WakeSet) -> bool {
        wake.fds.push(self.socket.as_fd().as_raw_fd());
        if self.unsent {
            self.push_unsent();
        }
        !self.rx.has_entry() && !self.unsent
    }
}

/// Checks the settings against those of the group's founder, which all members share.
fn check_same_settings(group: &Group, config: &XdpConfig, chunk_len: u32) -> Result<(), LinkError> {
    let (name, theirs) = (&config.interface, group.mode);
    let busy = || io::Error::from_raw_os_error(libc::EBUSY);
    if theirs != config.mode {
        let what = format!(
            "{} mode on {name}, where other processes use {theirs} mode",
            config.mode
        );
        return Err(ERRORS.system(what, busy(), "use one mode for all processes of a host"));
    }
    if group.layout.chunk_len < chunk_len {
        let what = format!("the MTU of {name} was raised after other processes opened it");
        return Err(ERRORS.system(what, busy(), "end those processes first"));
    }
    Ok(())
}

type Opened = (XdpSocket, ConsumerRing<xdp_desc>, ProducerRing<xdp_desc>);

fn open_socket(group: &Group, interface: u32) -> io::Result<Opened> {
    let socket = XdpSocket::open()?;
    socket.make_rx_ring(RX_LEN)?;
    socket.make_tx_ring(TX_LEN)?;
    net::request_send_buffer(socket.as_fd(), SEND_BUFFER_LEN)?;
    socket.bind_shared(&group.owner, interface, u32::from(QUEUE))?;
    let (rx, tx) = (socket.rx_ring(RX_LEN)?, socket.tx_ring(TX_LEN)?);
    Ok((socket, rx, tx))
}

fn take_place(group: &Group, name: &InterfaceRef) -> Result<Chunks, LinkError> {
    let taken = Chunks::take_place(group.layout, group.file.as_fd(), &group.owner);
    let failed = |errno, remedy| {
        let what = format!("take a place among the processes that use AF_XDP on {name}");
        ERRORS.system(what, errno, remedy)
    };
    match taken {
        Ok(Some(chunks)) => Ok(chunks),
        Ok(None) => Err(failed(
            io::Error::from_raw_os_error(libc::EUSERS),
            "there are as many places as cores, at least 8, and those of killed processes are lost until \
             all have ended; start fewer processes, or use the packet link",
        )),
        Err(errno) => Err(failed(errno, "mount /proc, and raise the memory limits")),
    }
}

fn caps(mtu: usize) -> LinkCaps {
    LinkCaps {
        kind: LinkKind::Xdp,
        frame_len_max: frame_len_max(mtu),
        segments_max: 1,
        gather_max: GATHER_MAX,
        lossless: false,
        pull: false,
        placement: false,
        polls_memory: true,
        rx_buffer_len: RX_LEN as usize * frame_len_max(mtu),
    }
}

#[cfg(test)]
mod tests;
