// SPDX-License-Identifier: MIT OR Apache-2.0
//! The links of this process, and the peers to which each is connected.

mod network;
mod plan;
mod selection;
mod simulated;
mod usable;

pub(crate) use plan::{LinkSettings, Plan, candidates, ports, two_networks};
pub(crate) use simulated::simulated_address;
pub use simulated::{simulated_liveness, simulated_port};

use crate::checksum::{self, Sums};
use crate::streams::Streams;
use portolan_link::packet::Packet;
use portolan_link::shm::{NextFrame, Shm};
use portolan_link::udp::Udp;
use portolan_link::xdp::XdpMode;
use portolan_link::{
    Link, LinkAddr, LinkError, Notice, Receiver, RxFrame, TxError, TxFrame, WakeSet,
};
use portolan_proto::{LinkId, LinkParams, PeerId};
use portolan_sys::usage;
use portolan_wire::CheckedFrame;
use std::ops::ControlFlow;

/// Turns between polls of a link without a connected peer: one system call in 5 µs of turns.
const DORMANT_INTERVAL: u32 = 256;

/// Turns in which all links are polled after a sleep: enough for a burst on two links.
const POLL_ALL_TURNS: u32 = 16;

/// A link. Links that carry short messages have variants of their own, because calls by pointer
/// would cost more than their few instructions.
pub(crate) enum AnyLink {
    Shm(Box<Shm>),
    Packet(Box<Packet>),
    Udp(Box<Udp>),
    Other(Box<dyn Link + Send>),
}

impl AnyLink {
    #[inline]
    fn transmit(&mut self, peer: u32, frame: &TxFrame<'_>) -> Result<(), TxError> {
        self.as_dyn_mut().transmit(peer, frame)
    }

    #[inline(always)]
    fn send(&mut self, peer: u32, frame: &[u8]) -> Result<(), TxError> {
        match self {
            AnyLink::Packet(packet) => packet.send(peer, frame),
            AnyLink::Udp(udp) => udp.send(peer, frame),
            other => other.as_dyn_mut().send(peer, frame),
        }
    }

    /// Receives frames. When `sink` returns `Break`, shared memory keeps the remaining frames.
    /// Other links have already received theirs, and pass them to `sink` all the same.
    #[inline]
    pub(crate) fn receive(
        &mut self,
        budget: usize,
        mut sink: impl FnMut(RxFrame<'_>) -> ControlFlow<()>,
    ) -> usize {
        match self {
            AnyLink::Shm(shm) => shm.receive_with(budget, &mut sink),
            other => other.as_dyn_mut().receive(budget, &mut |frame| {
                let _ = sink(frame);
            }),
        }
    }

    #[inline]
    pub(crate) fn receive_placed(&mut self, budget: usize, receiver: &mut impl Receiver) -> usize {
        match self {
            AnyLink::Packet(packet) => packet.receive_for(budget, receiver),
            AnyLink::Udp(udp) => udp.receive_for(budget, receiver),
            other => other.as_dyn_mut().receive_placed(budget, receiver),
        }
    }

    fn as_dyn(&self) -> &dyn Link {
        match self {
            AnyLink::Shm(shm) => &**shm,
            AnyLink::Packet(packet) => &**packet,
            AnyLink::Udp(udp) => &**udp,
            AnyLink::Other(link) => link,
        }
    }

    fn as_dyn_mut(&mut self) -> &mut dyn Link {
        match self {
            AnyLink::Shm(shm) => &mut **shm,
            AnyLink::Packet(packet) => &mut **packet,
            AnyLink::Udp(udp) => &mut **udp,
            AnyLink::Other(link) => link,
        }
    }
}

/// Turns in which a link that moved a frame is polled every time. A system call on a silent link
/// costs as much as ten polls of shared memory.
pub(crate) const HOT_TURNS: u32 = 4096;

/// An open link.
pub(crate) struct OpenLink {
    id: LinkId,
    lossless: bool,
    link: AnyLink,
    /// Set if this side requires checksums on the link.
    checksum: bool,
    sums: Sums,
    /// Set if polling the link needs no system call.
    polls_memory: bool,
    /// Turn until which it is polled every time.
    hot_until: u32,
    /// Set while no peer is connected by it. Frames of unsolicited peers may still arrive.
    dormant: bool,
    connected: Vec<bool>,
}

impl OpenLink {
    #[inline]
    pub(crate) fn id(&self) -> LinkId {
        self.id
    }

    #[inline]
    pub(crate) fn is_lossless(&self) -> bool {
        self.lossless
    }

    #[inline]
    pub(crate) fn link_mut(&mut self) -> &mut AnyLink {
        &mut self.link
    }

    #[inline]
    fn is_hot(&self, turn: u32) -> bool {
        self.hot_until.wrapping_sub(turn) < 1 << 31
    }

    #[inline]
    pub(crate) fn heat(&mut self, turn: u32, turns: u32) {
        self.hot_until = turn.wrapping_add(turns);
    }
}

/// The open links of this process.
pub(crate) struct Links {
    open: Vec<OpenLink>,
    /// Indices in `open`, by the protocol's number of the link.
    places: [Option<usize>; LinkId::COUNT],
    has_lossy: bool,
    /// Transfers by stream, which is not a link of frames.
    streams: Option<Box<Streams>>,
    /// Carrier of raw Ethernet frames, unless it is a packet socket that this process opened
    /// itself.
    raw_by: Option<RawBy>,
}

/// Carrier of raw Ethernet frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RawBy {
    /// A packet socket that the broker opened.
    Broker,
    /// AF_XDP.
    Xdp(XdpMode),
}

impl Links {
    /// Returns whether any link may lose frames.
    #[inline]
    pub(crate) fn has_lossy(&self) -> bool {
        self.has_lossy
    }

    #[inline]
    pub(crate) fn has_streams(&self) -> bool {
        self.streams.is_some()
    }

    #[inline]
    pub(crate) fn streams(&mut self) -> Option<&mut Streams> {
        self.streams.as_deref_mut()
    }

    /// Returns the number of bytes that a stream buffers, if there are streams.
    pub(crate) fn stream_buffer_len(&self) -> Option<usize> {
        self.streams.as_ref().map(|streams| streams.buffer_len())
    }

    /// Returns the carrier of raw Ethernet frames, unless it is a packet socket that this process
    /// opened itself.
    pub(crate) fn raw_by(&self) -> Option<RawBy> {
        self.raw_by
    }

    /// Creates the value without any link.
    pub(crate) fn none() -> Links {
        Links {
            open: Vec::new(),
            places: [None; LinkId::COUNT],
            has_lossy: false,
            streams: None,
            raw_by: None,
        }
    }

    fn add(&mut self, id: LinkId, checksum: bool, link: AnyLink) {
        let caps = link.as_dyn().caps();
        let (lossless, polls_memory) = (caps.lossless, caps.polls_memory);
        self.has_lossy |= !lossless;
        let open = OpenLink {
            id,
            lossless,
            checksum,
            sums: Sums::default(),
            link,
            polls_memory,
            hot_until: 0,
            dormant: false,
            connected: Vec::new(),
        };
        // Links that are polled in memory come first, and shared memory before all.
        let at = match (&open.link, polls_memory) {
            (AnyLink::Shm(_), _) => 0,
            (_, true) => self
                .open
                .iter()
                .take_while(|open| open.polls_memory)
                .count(),
            (_, false) => self.open.len(),
        };
        self.open.insert(at, open);
        for (place, open) in self.open.iter().enumerate() {
            self.places[open.id.index()] = Some(place);
        }
    }

    /// Returns the core's parameters of each link.
    pub(crate) fn params(&self) -> impl Iterator<Item = (LinkId, LinkParams)> + '_ {
        self.open.iter().map(|open| {
            let caps = open.link.as_dyn().caps();
            let params = LinkParams {
                frame_len_max: caps.frame_len_max,
                segments_max: caps.segments_max,
                lossless: caps.lossless,
                pull: caps.pull,
                checksum: open.checksum,
                sum: Some(checksum::sum_of_frame),
                rx_buffer_len: caps.rx_buffer_len,
            };
            (open.id, params)
        })
    }

    pub(crate) fn addrs(&self) -> Vec<LinkAddr> {
        let places = self.places.iter().flatten();
        places
            .map(|&place| self.open[place].link.as_dyn().local_addr())
            .collect()
    }

    /// Marks network links as dormant until a peer is connected by one. They are polled seldom
    /// then, and need no clock reads.
    pub(crate) fn rest_networks(&mut self) {
        for open in self.open.iter_mut().filter(|open| !open.lossless) {
            open.dormant = true;
        }
        self.has_lossy = false;
    }

    /// Polls all links in the next turns, because one of them may have received a wake-up.
    pub(crate) fn poll_all(&mut self, turn: u32) {
        for open in self.open.iter_mut().filter(|open| !open.is_hot(turn)) {
            open.heat(turn, POLL_ALL_TURNS);
        }
    }

    /// Polls all links in the next turn.
    pub(crate) fn heat(&mut self, turn: u32) {
        for open in &mut self.open {
            open.heat(turn, 1);
        }
    }

    /// Returns whether a link holds transmitted data that would be lost if this process exited now.
    pub(crate) fn has_unsent(&self) -> bool {
        let unsent = |open: &OpenLink| matches!(&open.link, AnyLink::Shm(shm) if shm.has_pending_connections());
        self.open.iter().any(unsent)
    }

    /// Returns the number of links. Those that are polled without a system call come first.
    #[inline]
    pub(crate) fn count(&self) -> usize {
        self.open.len()
    }

    /// Returns the link at `place`, if it is polled in this turn. Hot links, and connected ones that
    /// are polled without a system call, are polled every time. Other connected links are polled
    /// only when `cold_is_due`, if empty polls should be avoided.
    #[inline]
    pub(crate) fn due_at(
        &mut self,
        place: usize,
        turn: u32,
        cold_is_due: impl FnOnce() -> bool,
    ) -> Option<&mut OpenLink> {
        let open = &self.open[place];
        let is_due = open.is_hot(turn)
            || match open.dormant {
                true => turn.is_multiple_of(DORMANT_INTERVAL),
                false => open.polls_memory || !self.avoid_empty_polls(turn) || cold_is_due(),
            };
        is_due.then(|| &mut self.open[place])
    }

    /// Returns whether polls that find nothing should be avoided: frames are expected on a link, or
    /// one is polled without a system call.
    fn avoid_empty_polls(&self, turn: u32) -> bool {
        let avoids = |open: &OpenLink| open.is_hot(turn) || open.polls_memory && !open.dormant;
        self.open.iter().any(avoids)
    }

    /// Returns the number of peers that are connected by `link`.
    pub(crate) fn connected_count(&self, link: LinkId) -> usize {
        let place = self.places[link.index()];
        place.map_or(0, |place| {
            let connected = self.open[place].connected.iter();
            connected.filter(|is| **is).count()
        })
    }

    pub(crate) fn is_connected(&self, peer: PeerId, link: LinkId) -> bool {
        let place = self.places[link.index()];
        place.is_some_and(|place| {
            self.open[place]
                .connected
                .get(peer.0 as usize)
                .copied()
                .unwrap_or(false)
        })
    }

    pub(crate) fn connect(
        &mut self,
        peer: PeerId,
        link: LinkId,
        addr: &LinkAddr,
    ) -> Result<(), LinkError> {
        let Some(place) = self.places[link.index()] else {
            return Ok(());
        };
        let open = &mut self.open[place];
        open.link.as_dyn_mut().connect(peer.0, addr)?;
        let index = peer.0 as usize;
        if index >= open.connected.len() {
            open.connected.resize(index + 1, false);
        }
        open.connected[index] = true;
        open.dormant = false;
        self.has_lossy |= !open.lossless;
        Ok(())
    }

    pub(crate) fn disconnect(&mut self, peer: PeerId, link: LinkId) {
        let Some(place) = self.places[link.index()] else {
            return;
        };
        let open = &mut self.open[place];
        if let Some(connected) = open.connected.get_mut(peer.0 as usize) {
            *connected = false;
        }
        open.link.as_dyn_mut().disconnect(peer.0);
    }

    /// Returns the next frame of shared memory, if one is there.
    #[inline(always)]
    pub(crate) fn next_frame(&mut self) -> Option<NextFrame<'_>> {
        match &mut self.open.first_mut()?.link {
            AnyLink::Shm(shm) => shm.next_frame(),
            _ => None,
        }
    }

    /// Sends a message of a header and a payload by shared memory. Always inlined: calls between
    /// the layers would be most of the cost of a short message.
    #[inline(always)]
    pub(crate) fn send_message<const N: usize>(
        &mut self,
        peer: PeerId,
        header: &[u8; N],
        payload: &[u8],
    ) -> Result<(), TxError> {
        let shm = self.open.first_mut().map(|open| &mut open.link);
        let Some(AnyLink::Shm(shm)) = shm else {
            return Err(TxError::NotConnected(peer.0));
        };
        // Copied into the ring.
        usage::count_copy();
        shm.transmit_message(peer.0, header, payload)
    }

    /// Sends a frame.
    #[inline]
    pub(crate) fn send(
        &mut self,
        turn: u32,
        peer: PeerId,
        link: LinkId,
        frame: &TxFrame<'_>,
    ) -> Result<(), TxError> {
        let Some(place) = self.places[link.index()] else {
            return Err(TxError::NotConnected(peer.0));
        };
        let open = &mut self.open[place];
        let result = match open.lossless {
            true => {
                // Copied into the ring.
                usage::count_copy();
                open.link.transmit(peer.0, frame)
            }
            false => {
                let send = |frame: &TxFrame<'_>| open.link.transmit(peer.0, frame);
                open.sums.transmit(frame, send)
            }
        };
        if result.is_ok() {
            // An answer is likely to arrive by the same link.
            open.heat(turn, HOT_TURNS);
        }
        result
    }

    /// Sends one frame that lies in one piece.
    #[inline(always)]
    pub(crate) fn send_whole(
        &mut self,
        turn: u32,
        (peer, link): (PeerId, LinkId),
        frame: &[u8],
    ) -> Result<(), TxError> {
        let Some(place) = self.places[link.index()] else {
            return Err(TxError::NotConnected(peer.0));
        };
        let open = &mut self.open[place];
        if open.lossless || CheckedFrame::needs_sum(frame) {
            return self.send(turn, peer, link, &TxFrame::contiguous(frame));
        }
        open.link.send(peer.0, frame)?;
        open.heat(turn, HOT_TURNS);
        Ok(())
    }

    pub(crate) fn pull(&mut self, peer: PeerId, remote_addr: u64, dst: &mut [u8]) -> bool {
        let Some(place) = self.places[LinkId::SHM.index()] else {
            return false;
        };
        match self.open[place]
            .link
            .as_dyn_mut()
            .pull(peer.0, remote_addr, dst)
        {
            Ok(()) => true,
            Err(error) => {
                log::debug!("pull from {peer}: {error}");
                false
            }
        }
    }

    /// Returns the address in this process of the message that `peer` is pulling, if this process
    /// may copy a part of it.
    #[inline]
    pub(crate) fn offered(&self, peer: PeerId) -> Option<u64> {
        let place = self.places[LinkId::SHM.index()]?;
        self.open[place].link.as_dyn().offered(peer.0)
    }

    /// Copies a part of the message `memory` to `peer`, which is pulling it. Returns whether it
    /// did.
    pub(crate) fn help(&mut self, peer: PeerId, memory: &[u8]) -> bool {
        let place = self.places[LinkId::SHM.index()];
        place.is_some_and(|place| self.open[place].link.as_dyn_mut().help(peer.0, memory))
    }

    pub(crate) fn poll_notice(&mut self) -> Option<(LinkId, Notice)> {
        self.open
            .iter_mut()
            .find_map(|open| Some((open.id, open.link.as_dyn_mut().poll_notice()?)))
    }

    /// Prepares all links for sleep. Returns `false` if one has frames waiting.
    pub(crate) fn arm(&mut self, wake: &mut WakeSet) -> bool {
        let mut quiet = true;
        for open in &mut self.open {
            quiet &= open.link.as_dyn_mut().arm(wake);
        }
        if let Some(streams) = &mut self.streams {
            quiet &= streams.arm(wake);
        }
        quiet
    }

    pub(crate) fn disarm(&mut self) {
        for open in &mut self.open {
            open.link.as_dyn_mut().disarm();
        }
    }
}
