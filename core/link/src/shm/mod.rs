// SPDX-License-Identifier: MIT OR Apache-2.0
//! The link between processes of one host: a ring in shared memory for each direction of a pair.
//!
//! Each process listens on an abstract Unix socket. On first use, a sender connects to the peer's
//! socket, creates a memory file with a ring, and passes it with an authenticated hello. It may
//! fill the ring before the peer has accepted, so connecting never waits. The socket then carries
//! the doorbell in both directions; its hang-up reports that the other end was closed. Nothing has
//! a name that could be left behind: the kernel removes sockets and memory files with their
//! process.
//!
//! Control path: `control` (open, connect, notices, departures), `accept`, `hello` (the greeting),
//! `pull` (reading a peer's memory). Data path: `data` (transmit, receive), `sleep` (arm, disarm).
//! The ring itself is `portolan_sys::ring`.
//!
//! A peer that left may connect again before the caller has removed it. Its new connection is held
//! until [`Link::disconnect`].
//!
//! Invariant: a peer has at most one `outbound` and one `inbound` entry. Both belong to a peer that
//! has not left, and all untrusted input is checked before it becomes an entry.

mod accept;
mod config;
mod control;
mod data;
mod directory;
mod hello;
mod peer;
mod pull;
mod sleep;
#[cfg(test)]
mod tests;

pub use config::{RING_LEN_DEFAULT, ShmConfig};
pub use data::NextFrame;
pub use directory::{Directory, ENDPOINT_ID_LEN, OpenConfig};

use crate::{
    HostId, Link, LinkAddr, LinkCaps, LinkError, Notice, PeerId, PullError, RxFrame, TxError,
    TxFrame, WakeSet,
};
use accept::{Greeting, Pause};
use data::Scratch;
use hello::HelloKey;
use peer::{Inbound, Outbound, Peer, Returning};
use portolan_sys::epoll::{Epoll, Ready};
use portolan_sys::seqpacket::{ReserveFd, SeqpacketListener};
use portolan_sys::shortage::Shortage;
use std::collections::{HashMap, VecDeque};
use std::ops::ControlFlow;

/// The shared memory link of one process.
pub struct Shm {
    caps: LinkCaps,

    // Data path.
    /// Rings to peers, by rank.
    outbound: Vec<Option<Outbound>>,
    /// Rings from peers, dense, because each receive polls all of them.
    inbound: Vec<Inbound>,
    /// Index in `inbound` at which the next receive begins.
    cursor: usize,
    /// Frames that may still be received there before the next ring is served.
    burst_left: usize,
    scratch: Box<Scratch>,

    // Control path.
    config: ShmConfig,
    key: HelloKey,
    host: HostId,
    uid: u32,
    name: String,
    listener: SeqpacketListener,
    /// Watches the listener and all sockets.
    epoll: Epoll,
    ready: Vec<Ready>,
    /// Accepted connections that have not identified themselves yet.
    greetings: Vec<Greeting>,
    greeting_next: u32,
    /// Set while descriptors are exhausted; the listener is not watched meanwhile.
    accept_pause: Option<Pause>,
    /// Reserve descriptor, used to inform waiting peers when no other is left.
    reserve: ReserveFd,
    /// Shortage that this process has reported to its peers.
    shortage: Option<Shortage>,
    peers: HashMap<PeerId, Peer>,
    /// Connections of peers that returned before they were removed; at most one per peer.
    returning: Vec<Returning>,
    /// Peers that hung up but may have frames waiting.
    leaving: Vec<PeerId>,
    /// Peers with a full backlog when this process connected.
    pending: Vec<PeerId>,
    notices: VecDeque<Notice>,
    can_pull: bool,
}

impl Shm {
    /// Same as [`Link::receive`], for a sink of a known type, which avoids an indirect call. If
    /// `sink` breaks off, the remaining frames stay in their ring until the next call.
    #[inline]
    pub fn receive_with(
        &mut self,
        budget: usize,
        sink: &mut impl FnMut(RxFrame<'_>) -> ControlFlow<()>,
    ) -> usize {
        self.receive_frames(budget, sink)
    }

    /// Returns `true` if transmitted frames would be lost if this process exited now, because their
    /// peer has not received the ring yet.
    pub fn has_pending_connections(&self) -> bool {
        !self.pending.is_empty()
    }
}

impl Link for Shm {
    fn caps(&self) -> &LinkCaps {
        &self.caps
    }

    fn local_addr(&self) -> LinkAddr {
        LinkAddr::Shm {
            host: self.host.clone(),
            uid: self.uid,
            pid: std::process::id(),
            name: self.name.clone(),
        }
    }

    fn connect(&mut self, peer: PeerId, addr: &LinkAddr) -> Result<(), LinkError> {
        self.connect_peer(peer, addr)
    }

    fn disconnect(&mut self, peer: PeerId) {
        self.forget(peer);
    }

    #[inline]
    fn transmit(&mut self, peer: PeerId, frame: &TxFrame<'_>) -> Result<(), TxError> {
        self.transmit_frame(peer, frame)
    }

    #[inline]
    fn receive(&mut self, budget: usize, sink: &mut dyn FnMut(RxFrame<'_>)) -> usize {
        self.receive_frames(budget, &mut |frame| {
            sink(frame);
            ControlFlow::Continue(())
        })
    }

    fn pull(&mut self, peer: PeerId, remote_addr: u64, dst: &mut [u8]) -> Result<(), PullError> {
        self.pull_from(peer, remote_addr, dst)
    }

    #[inline]
    fn offered(&self, peer: PeerId) -> Option<u64> {
        self.offered_by(peer)
    }

    fn help(&mut self, peer: PeerId, memory: &[u8]) -> bool {
        self.help_peer(peer, memory)
    }

    fn poll_notice(&mut self) -> Option<Notice> {
        if self.notices.is_empty() {
            self.service();
        }
        self.notices.pop_front()
    }

    fn arm(&mut self, wake: &mut WakeSet) -> bool {
        self.arm_rings(wake)
    }

    fn disarm(&mut self) {
        self.disarm_rings();
        self.service();
    }
}
