// SPDX-License-Identifier: MIT OR Apache-2.0
//! Dormant peers. Of a peer that has been quiet for a while, only the state that cannot be
//! reconstructed is kept: a third of the memory of a busy peer. Its next frame, or the next
//! operation for it, revives it.
//!
//! Dormancy is invisible on the wire. A peer on shared memory is never dormant: its rings are
//! larger than its state here.
//!
//! Invariant: a peer becomes dormant only when nothing is in flight in either direction, all credit
//! was returned, and no timer runs. All state that is dropped then equals that of a new peer.

use super::Peer;
use super::eager_stream::StreamNumbers;
use crate::base::config::Times;
use crate::lane::DormantLanes;
use crate::path::dormant::DormantPaths;
use crate::session::SessionState;
use crate::shared::Shared;
use crate::{CreditStatus, Instant, LinkId, PathStatus, PeerId};
use portolan_wire::LaneId;

/// State kept of a peer; see the module documentation.
#[derive(Debug)]
pub(crate) struct DormantPeer {
    session: SessionState,
    last_seen: Instant,
    lanes: DormantLanes,
    paths: DormantPaths,
    stream_numbers: StreamNumbers,
}

impl Peer {
    /// Returns the time of the last frame from the peer or to it.
    pub(crate) fn last_used(&self) -> Instant {
        self.last_seen.max(self.paths.last_sent_at())
    }

    /// Returns true if nothing is in flight, due or pending.
    pub(crate) fn is_settled(&self, times: &Times) -> bool {
        self.session.is_settled()
            && !self.queued
            && self.timer(times) == Instant::NEVER
            && !self.has_control()
            && self.send_queue.is_empty()
            && !self.stream.is_open()
            && !self.stream.eager().has_kept()
            && self.lanes.are_settled()
            && self.paths.are_settled()
    }
}

impl From<Peer> for DormantPeer {
    /// Each field is named, so that a new one is not forgotten.
    fn from(peer: Peer) -> DormantPeer {
        let Peer {
            id: _,
            session,
            paths,
            // Meaningless while nothing is due.
            ack_waited: _,
            lanes,
            // Nothing waits; the transfer of the last grant has ended.
            control: _,
            send_queue: _,
            // There is none; the results of earlier trials are measured again.
            stream,
            last_seen,
            queued: _,
            direct: _,
            timed: _,
            watched: _,
            // No work is left.
            pending_work: _,
        } = peer;
        DormantPeer {
            session,
            last_seen,
            lanes: lanes.into_dormant(),
            paths: paths.into_dormant(),
            stream_numbers: stream.eager().numbers(),
        }
    }
}

impl DormantPeer {
    pub(crate) fn revive(self, id: PeerId, sh: &Shared) -> Peer {
        let mut peer = Peer::new(id, self.session, sh.ctx.credit_len());
        peer.last_seen = self.last_seen;
        peer.lanes = self.lanes.revive(sh.ctx.credit_len());
        peer.paths = self.paths.revive(&sh.ctx);
        peer.stream.eager_mut().restore(self.stream_numbers);
        peer
    }

    pub(crate) fn session(&self) -> &SessionState {
        &self.session
    }

    pub(crate) fn last_seen(&self) -> Instant {
        self.last_seen
    }

    pub(crate) fn path_status(&self, link: LinkId) -> Option<PathStatus> {
        self.paths.status(link)
    }

    pub(crate) fn credit(&self, lane: LaneId) -> CreditStatus {
        self.lanes.credit(lane)
    }
}
