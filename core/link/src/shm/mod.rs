// SPDX-License-Identifier: MIT OR Apache-2.0
//! The link between processes of one host: a ring in shared memory for each direction of a pair.
//!
//! Each process listens on an abstract unix socket. A sender connects to its peer's on first use,
//! makes a memory file with a ring, and passes it with an authenticated hello. It may fill the ring
//! before the peer has accepted, so connecting waits for nobody. The socket then carries the
//! doorbell, in both directions, and its hang-up says that the other end is gone. Nothing has a
//! name that could be left behind: the kernel removes sockets and memory files with their process.
//!
//! Control path: `control` (open, connect, notices, departures), `accept`, `hello` (the greeting),
//! `pull` (reading a peer's memory). Data path: `data` (transmit, receive), `sleep` (arm, disarm).
//! The ring itself is `portolan_sys::ring`.
//!
//! A peer that has left may connect again before it was forgotten here; its connection is kept back
//! until [`Link::disconnect`].
//!
//! The one invariant: a peer is in at most one `outbound` and one `inbound`, both belong to a peer
//! that is not gone, and what cannot be trusted is checked before it becomes either.

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
use portolan_sys::lack::Lack;
use portolan_sys::seqpacket::{SeqpacketListener, Spare};
use std::collections::{HashMap, VecDeque};
use std::ops::ControlFlow;

/// The shared memory link of one process.
pub struct Shm {
    caps: LinkCaps,

    // Data path.
    /// Rings to peers, by rank.
    outbound: Vec<Option<Outbound>>,
    /// Rings from peers, dense: each turn looks at all of them.
    inbound: Vec<Inbound>,
    /// Where in `inbound` the next turn begins.
    cursor: usize,
    /// Frames that may yet be taken there before the next ring has its turn.
    turn_left: usize,
    scratch: Box<Scratch>,

    // Control path.
    config: ShmConfig,
    key: HelloKey,
    host: HostId,
    uid: u32,
    name: String,
    listener: SeqpacketListener,
    /// The listener and all sockets.
    epoll: Epoll,
    ready: Vec<Ready>,
    /// Accepted, but have not said who they are.
    greetings: Vec<Greeting>,
    greeting_next: u32,
    /// For want of descriptors; the listener is not watched meanwhile.
    accept_pause: Option<Pause>,
    /// For the moment when there is no other left: who waits is then told so.
    spare: Spare,
    /// What this process has told its peers that it lacks.
    lack: Option<Lack>,
    peers: HashMap<PeerId, Peer>,
    /// Connected again before they were forgotten; at most one connection each.
    returning: Vec<Returning>,
    /// Hung up, but frames of theirs may wait.
    leaving: Vec<PeerId>,
    /// Peers whose backlog was full when we connected.
    pending: Vec<PeerId>,
    notices: VecDeque<Notice>,
    can_pull: bool,
}

impl Shm {
    /// [`Link::transmit`], compiled into its caller.
    ///
    /// # Errors
    /// As [`Link::transmit`].
    #[inline(always)]
    pub fn transmit_now(&mut self, peer: PeerId, frame: &TxFrame<'_>) -> Result<(), TxError> {
        self.transmit_frame(peer, frame)
    }

    /// [`Link::receive`] for a sink whose type is known, which then costs no call. When `sink` breaks
    /// off, the frames behind stay in their ring until the next call.
    #[inline]
    pub fn receive_with(
        &mut self,
        budget: usize,
        sink: &mut impl FnMut(RxFrame<'_>) -> ControlFlow<()>,
    ) -> usize {
        self.receive_frames(budget, sink)
    }

    /// Whether frames that were transmitted would be lost if this process ended now, since their peer
    /// has not been told yet where they are.
    pub fn has_unsaid(&self) -> bool {
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
