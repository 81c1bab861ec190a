// SPDX-License-Identifier: MIT OR Apache-2.0
//! Removing peers: nothing more is sent to a removed peer, and what was sent before still arrives.
//!
//! Invariant: a peer is forgotten only when nothing from or to it is in flight, or after it has
//! failed.

use super::Endpoint;
use crate::raw::PeerIndex;
use portolan_proto::{Cause, Instant, PeerId, PeerStatus};
use std::time::Duration;

/// Minimum time for which the session with a removed peer stays open. The peer's last messages may
/// be in flight, and a loaded host takes as long to send them.
const REMOVAL_LINGER: Duration = Duration::from_secs(1);

/// Removed peer that is not forgotten yet.
pub(super) struct RemovedPeer {
    peer: PeerId,
    /// Time before which it is not forgotten, because its messages may be in flight.
    earliest: Instant,
}

impl Endpoint {
    /// Removes `peer`. Nothing more can be sent to it, and receives that name it fail. Messages
    /// that were sent still arrive, injected ones included, and accepted operations complete as
    /// usual. The session ends when all of them have completed, after one second at the earliest,
    /// or when the peer fails. Messages that have arrived from it stay.
    ///
    /// Inserting its address again before then undoes the removal and returns the same number.
    pub fn remove(&mut self, peer: PeerIndex) {
        self.engine.enter().register_fresh();
        let peer = PeerId(peer.0);
        if self.is_forked() || !self.directory.remove(peer) {
            return;
        }
        let mut engine = self.engine.enter();
        let inner = &mut engine.inner;
        inner.set_removed(peer, true);
        let earliest = inner.read_clock() + REMOVAL_LINGER;
        self.removed_peers.push(RemovedPeer { peer, earliest });
        match inner.core.peer_status(peer) {
            PeerStatus::Up | PeerStatus::Connecting => {
                inner.core.end_receives_from(peer, Cause::Closed);
                engine.drain();
                engine.flush();
            }
            // Nothing was ever sent to it, or it has failed.
            _ => {
                drop(engine);
                self.forget_removed();
            }
        }
    }

    /// Tests whether no operation is pending that `peer` alone can complete: a send to it, an
    /// access to its memory, or a receive from it by name. A message in shared memory counts as
    /// arrived once its receiver can find it.
    #[must_use]
    pub fn is_settled(&self, peer: PeerIndex) -> bool {
        self.has_settled(PeerId(peer.0))
    }

    /// Returns `true` if either side has ended the session with `peer`. No further message arrives
    /// from it.
    #[must_use]
    pub fn is_gone(&self, peer: PeerIndex) -> bool {
        let status = self.engine.read().inner.core.peer_status(PeerId(peer.0));
        matches!(status, PeerStatus::Failed(_))
    }

    /// Ends the session with `peer` at once. Operations that only it could complete fail as for a
    /// peer that has closed, and nothing more can be sent to it. Complete messages from it stay.
    pub fn sever(&mut self, peer: PeerIndex) {
        self.engine.enter().register_fresh();
        let peer = PeerId(peer.0);
        if !self.is_forked() && self.directory.remove(peer) {
            self.engine.enter().inner.set_removed(peer, true);
            self.forget(peer);
        }
    }

    /// Undoes the removal of `peer`. Returns `false` if its session has ended; it is then
    /// forgotten.
    pub(super) fn take_back(&mut self, peer: PeerId) -> bool {
        let status = self.engine.read().inner.core.peer_status(peer);
        if let PeerStatus::Failed(_) = status {
            self.directory.remove(peer);
            self.forget_removed();
            return false;
        }
        self.removed_peers.retain(|removed| removed.peer != peer);
        self.engine.enter().inner.set_removed(peer, false);
        true
    }

    /// Forgets the removed peers without pending operations.
    #[cold]
    pub(super) fn forget_removed(&mut self) {
        let mut index = 0;
        while let Some(removed) = self.removed_peers.get(index) {
            if self.is_over(removed) {
                let RemovedPeer { peer, .. } = self.removed_peers.swap_remove(index);
                self.forget(peer);
            } else {
                index += 1;
            }
        }
    }

    fn is_over(&self, removed: &RemovedPeer) -> bool {
        let inner = &self.engine.read().inner;
        match inner.core.peer_status(removed.peer) {
            PeerStatus::Up | PeerStatus::Connecting => {
                inner.last_clock_read() >= removed.earliest && self.has_settled(removed.peer)
            }
            _ => true,
        }
    }

    fn has_settled(&self, peer: PeerId) -> bool {
        let inner = &self.engine.read().inner;
        match inner.core.peer_status(peer) {
            PeerStatus::Up | PeerStatus::Connecting => {
                !inner.is_awaited(peer) && !inner.core.has_unfinished_with(peer)
            }
            _ => true,
        }
    }

    fn forget(&mut self, peer: PeerId) {
        self.directory.forget(peer);
        self.engine.enter().dismiss(peer);
    }
}
