// SPDX-License-Identifier: MIT OR Apache-2.0
//! Events of peers, for programs that continue after a process fails.
//!
//! Invariant: each loss is queued once. It is queued after the report of the peer's agent, if there is
//! one, and in a standalone process after the event that the peer has joined. Peers of an endpoint have
//! no events; endpoints report losses by themselves.

use super::{Engine, Inner, PeerInfo};
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

impl PeerEvents {
    /// Queues the end of `peer`, once. With `must_join`, the end of a peer that has not joined waits
    /// for that event: links may notice the death of a process before the thread that connects has
    /// reported its arrival.
    fn note_end(&mut self, peer: PeerId, info: &mut PeerInfo, cause: Cause, must_join: bool) {
        if must_join && !info.has_joined {
            info.early_end.get_or_insert(cause);
        } else if !std::mem::replace(&mut info.is_event_noted, true) {
            self.queue.push_back((peer, Some(cause)));
        }
    }

    /// Queues the event that `peer` has joined, and its end if that came first.
    fn note_joined(&mut self, peer: PeerId, info: &mut PeerInfo) {
        info.has_joined = true;
        self.queue.push_back((peer, None));
        if let Some(cause) = info.early_end.take() {
            self.note_end(peer, info, cause, true);
        }
    }
}

impl Inner {
    /// Queues the event that `peer` was given up for `cause`.
    pub(super) fn note_event(&mut self, peer: PeerId, cause: Cause) {
        let is_relation = self.end_relation_later(peer);
        if !is_relation && self.directory.is_some() {
            return;
        }
        let has_agents = self.silence_limits.has_agents;
        let info = &mut self.peers[peer.0 as usize];
        if has_agents && cause == Cause::ProcessExited && !info.has_ended {
            // The report of its agent follows, and states whether the process has failed.
            return;
        }
        self.peer_events.note_end(peer, info, cause, is_relation);
    }

    /// Queues the event that `peer` has joined.
    pub(super) fn note_joined(&mut self, peer: PeerId) {
        let info = &mut self.peers[peer.0 as usize];
        self.peer_events.note_joined(peer, info);
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

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: PeerId = PeerId(3);
    const DIED: Cause = Cause::ProcessExited;

    #[test]
    fn end_that_comes_first_is_queued_behind_the_arrival() {
        let (mut events, mut info) = (PeerEvents::default(), PeerInfo::default());
        events.note_end(PEER, &mut info, DIED, true);
        events.note_end(PEER, &mut info, Cause::Closed, true);
        assert_eq!(events.queue, []);
        events.note_joined(PEER, &mut info);
        events.note_end(PEER, &mut info, DIED, true);
        assert_eq!(events.queue, [(PEER, None), (PEER, Some(DIED))]);
    }

    #[test]
    fn end_of_a_peer_that_never_joins_is_no_event() {
        let (mut events, mut info) = (PeerEvents::default(), PeerInfo::default());
        events.note_end(PEER, &mut info, DIED, true);
        // The thread that connects reports it as unwelcome.
        info.is_event_noted = true;
        info.on_up();
        events.note_end(PEER, &mut info, DIED, true);
        assert_eq!(events.queue, []);
    }

    #[test]
    fn member_of_a_job_needs_no_arrival() {
        let (mut events, mut info) = (PeerEvents::default(), PeerInfo::default());
        events.note_end(PEER, &mut info, DIED, false);
        events.note_end(PEER, &mut info, DIED, false);
        assert_eq!(events.queue, [(PEER, Some(DIED))]);
    }
}
