// SPDX-License-Identifier: MIT OR Apache-2.0
//! Removing peers: nothing more is sent to one from then on, and what was sent before arrives.
//!
//! The one invariant: a peer is forgotten only when nothing of it is under way, or it is gone.

use super::Endpoint;
use crate::raw::PeerIndex;
use portolan_proto::{Cause, Instant, PeerId, PeerStatus};
use std::time::Duration;

/// The session with a removed peer stays for so long at least: what the peer was told is sent may be
/// on its way, and a loaded host takes as long to send it.
const STAY: Duration = Duration::from_secs(1);

/// A peer that was removed and is not forgotten yet.
pub(super) struct Leaver {
    peer: PeerId,
    /// Not before: what it has sent may be on its way.
    earliest: Instant,
}

impl Endpoint {
    /// Ends what this endpoint has to do with `peer`, but for what is under way. Nothing more can be
    /// sent to it, and receives that name it end; what was sent still arrives, injected messages
    /// included, and operations that were accepted end as they would have. When all that is over,
    /// after a second at the earliest, or when the peer is gone, its session ends. Messages that
    /// have come from it stay.
    ///
    /// Inserting its address again before that takes the removal back, and gives the same number.
    pub fn remove(&mut self, peer: PeerIndex) {
        self.engine.enter().meet_fresh();
        let peer = PeerId(peer.0);
        if self.is_forked() || !self.directory.remove(peer) {
            return;
        }
        let mut engine = self.engine.enter();
        let inner = &mut engine.inner;
        inner.set_removed(peer, true);
        let earliest = inner.read_clock() + STAY;
        self.leavers.push(Leaver { peer, earliest });
        match inner.core.peer_status(peer) {
            PeerStatus::Up | PeerStatus::Connecting => {
                inner.core.end_receives_from(peer, Cause::Closed);
                engine.drain();
                engine.flush();
            }
            // Nothing was ever said to it, or it is gone.
            _ => {
                drop(engine);
                self.see_off();
            }
        }
    }

    /// Whether nothing is under way that only `peer` can end: what was sent to it, asked of its memory, or
    /// is to be received from it by name. What its receiver will find in shared memory has arrived.
    #[must_use]
    pub fn is_settled(&self, peer: PeerIndex) -> bool {
        self.has_settled(PeerId(peer.0))
    }

    /// Whether the session with `peer` has ended, by either side: nothing more comes from it.
    #[must_use]
    pub fn is_gone(&self, peer: PeerIndex) -> bool {
        let status = self.engine.look().inner.core.peer_status(PeerId(peer.0));
        matches!(status, PeerStatus::Failed(_))
    }

    /// Ends the session with `peer` at once: what only it could have ended, ends as with a peer that
    /// has closed, and nothing more can be sent to it. Messages that have come whole stay.
    pub fn sever(&mut self, peer: PeerIndex) {
        self.engine.enter().meet_fresh();
        let peer = PeerId(peer.0);
        if !self.is_forked() && self.directory.remove(peer) {
            self.engine.enter().inner.set_removed(peer, true);
            self.forget(peer);
        }
    }

    /// Takes the removal of `peer` back; `false` if its session has ended: it is forgotten then.
    pub(super) fn take_back(&mut self, peer: PeerId) -> bool {
        let status = self.engine.look().inner.core.peer_status(peer);
        if let PeerStatus::Failed(_) = status {
            self.directory.remove(peer);
            self.see_off();
            return false;
        }
        self.leavers.retain(|leaver| leaver.peer != peer);
        self.engine.enter().inner.set_removed(peer, false);
        true
    }

    /// Forgets the removed peers with which nothing is under way any more.
    #[cold]
    pub(super) fn see_off(&mut self) {
        let mut index = 0;
        while let Some(leaver) = self.leavers.get(index) {
            if self.is_over(leaver) {
                let Leaver { peer, .. } = self.leavers.swap_remove(index);
                self.forget(peer);
            } else {
                index += 1;
            }
        }
    }

    fn is_over(&self, leaver: &Leaver) -> bool {
        let inner = &self.engine.look().inner;
        match inner.core.peer_status(leaver.peer) {
            PeerStatus::Up | PeerStatus::Connecting => {
                inner.last_look() >= leaver.earliest && self.has_settled(leaver.peer)
            }
            _ => true,
        }
    }

    fn has_settled(&self, peer: PeerId) -> bool {
        let inner = &self.engine.look().inner;
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
