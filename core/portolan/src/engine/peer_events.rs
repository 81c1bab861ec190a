// SPDX-License-Identifier: MIT OR Apache-2.0
//! Events of peers, for programs that continue after a process fails.
//!
//! Invariant: each loss is queued once. Peers of an endpoint have no events; endpoints report losses
//! by themselves.

use super::{Engine, Inner};
use crate::error::Reason;
use portolan_proto::{Cause, PeerId, PeerStatus};
use std::collections::VecDeque;

/// Event of a peer. It is reported even if no operation needed the peer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PeerEvent {
    /// The peer.
    pub rank: u32,
    /// Number of peers of this standalone process that had the same rank before; 0 in a job.
    pub generation: u32,
    /// Its host.
    pub host: String,
    /// Kind of the event.
    pub kind: PeerEventKind,
    /// Evidence for the event. For [`PeerEventKind::Joined`] it has no meaning.
    pub reason: Reason,
}

/// Kind of a [`PeerEvent`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PeerEventKind {
    /// A process has become a peer of this standalone process.
    Joined,
    /// The peer has left the job in order, or has closed its session with this process. A peer of a
    /// standalone process has disconnected.
    Left,
    /// The peer has failed or has become unreachable.
    Lost,
}

/// Events that the program has not taken, at most one of each kind for a peer.
#[derive(Debug, Default)]
pub(crate) struct PeerEvents {
    /// Peers with the cause of their loss; `None` for one that has joined.
    queue: VecDeque<(PeerId, Option<Cause>)>,
    /// Set once the program takes events. Other programs must be able to sleep with events in the
    /// queue.
    is_used: bool,
}

impl Inner {
    /// Queues the event that `peer` was given up for `cause`.
    pub(super) fn note_event(&mut self, peer: PeerId, cause: Cause) {
        if !self.end_relation_later(peer) && self.directory.is_some() {
            return;
        }
        let info = &mut self.peers[peer.0 as usize];
        if !std::mem::replace(&mut info.is_event_noted, true) {
            self.peer_events.queue.push_back((peer, Some(cause)));
        }
    }

    /// Queues the event that `peer` has joined.
    pub(super) fn note_joined(&mut self, peer: PeerId) {
        self.peer_events.queue.push_back((peer, None));
    }

    /// Drops the events of `peer` before its number is reused.
    pub(super) fn forget_events(&mut self, peer: PeerId) {
        self.peer_events.queue.retain(|(other, _)| *other != peer);
    }

    /// Tests whether the program takes events.
    pub(super) fn takes_peer_events(&self) -> bool {
        self.peer_events.is_used
    }

    /// Tests whether an event of `peer` is queued.
    pub(super) fn has_event_of(&self, peer: PeerId) -> bool {
        let mut queued = self.peer_events.queue.iter();
        queued.any(|(other, _)| *other == peer)
    }

    /// Tests whether the program takes events and one is queued.
    pub(crate) fn has_peer_events(&self) -> bool {
        self.peer_events.is_used && !self.peer_events.queue.is_empty()
    }

    fn next_event(&mut self) -> Option<PeerEvent> {
        let (peer, noted) = self.peer_events.queue.pop_front()?;
        let directory = self.directory.as_ref();
        let generation = directory.map_or(0, |directory| directory.generation_of(peer));
        let Some(noted) = noted else {
            return Some(PeerEvent {
                rank: peer.0,
                generation,
                host: self.host_of(peer),
                kind: PeerEventKind::Joined,
                reason: Reason {
                    cause: Cause::Closed,
                    report: Some("it has connected".to_owned()),
                },
            });
        };
        let cause = match self.core.peer_status(peer) {
            // The launcher may have reported a more exact cause since.
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
            generation,
            host: self.host_of(peer),
            kind,
            reason: Reason { cause, report },
        })
    }
}

impl Engine {
    /// Returns the next event of a peer. Polls the links and the launcher if the queue is empty.
    pub(crate) fn next_peer_event(&mut self) -> Option<PeerEvent> {
        self.inner.peer_events.is_used = true;
        if !self.inner.has_peer_events() {
            self.handle_notices();
            self.drain();
        }
        self.inner.next_event()
    }
}
