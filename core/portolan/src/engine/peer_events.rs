// SPDX-License-Identifier: MIT OR Apache-2.0
//! Events of peers, for programs that go on after a death.
//!
//! Invariant: each loss is queued once. Only peers of a job have events; endpoints report losses by themselves.

use super::{Engine, Inner};
use crate::error::Reason;
use portolan_proto::{Cause, PeerId, PeerStatus};
use std::collections::VecDeque;

/// Event of a peer, whether an operation needed the peer or not.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PeerEvent {
    /// The peer.
    pub rank: u32,
    /// Its host.
    pub host: String,
    /// Kind of the event.
    pub kind: PeerEventKind,
    /// How the event is known.
    pub reason: Reason,
}

/// Kind of a [`PeerEvent`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PeerEventKind {
    /// It has left the job well, or has ended its session with this process.
    Left,
    /// It has failed, or cannot be reached any more.
    Lost,
}

/// Peers with an event that the program has not taken, each at most once.
#[derive(Debug, Default)]
pub(crate) struct PeerEvents {
    queue: VecDeque<(PeerId, Cause)>,
    /// The program has asked for events. Others must be able to sleep although nobody takes them.
    is_used: bool,
}

impl Inner {
    /// Queues the event that `peer` was given up for `cause`.
    pub(super) fn note_event(&mut self, peer: PeerId, cause: Cause) {
        if self.directory.is_some() {
            return;
        }
        let info = &mut self.peers[peer.0 as usize];
        if !std::mem::replace(&mut info.is_event_noted, true) {
            self.peer_events.queue.push_back((peer, cause));
        }
    }

    /// Tests whether the program takes events, and has one to take.
    pub(crate) fn has_peer_events(&self) -> bool {
        self.peer_events.is_used && !self.peer_events.queue.is_empty()
    }

    fn next_event(&mut self) -> Option<PeerEvent> {
        let (peer, noted) = self.peer_events.queue.pop_front()?;
        let cause = match self.core.peer_status(peer) {
            // The launcher may have said more since.
            PeerStatus::Failed(cause) => cause,
            _ => noted,
        };
        let info = &self.peers[peer.0 as usize];
        let kind = match cause {
            Cause::Closed => PeerEventKind::Left,
            _ if info.has_left => PeerEventKind::Left,
            _ => PeerEventKind::Lost,
        };
        let report = info.report_text();
        Some(PeerEvent {
            rank: peer.0,
            host: self.host_of(peer),
            kind,
            reason: Reason { cause, report },
        })
    }
}

impl Engine {
    /// Returns the next event of a peer, after a look at the links and the launcher.
    pub(crate) fn next_peer_event(&mut self) -> Option<PeerEvent> {
        self.inner.peer_events.is_used = true;
        if !self.inner.has_peer_events() {
            self.hear();
            self.drain();
        }
        self.inner.next_event()
    }
}
