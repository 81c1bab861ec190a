// SPDX-License-Identifier: MIT OR Apache-2.0
//! Dormancy of peers: the transitions, and their timers.

use crate::base::time::Span;
use crate::peer::dormant::DormantPeer;
use crate::{Core, Instant, PeerId};
use alloc::boxed::Box;

/// Time without traffic before a peer becomes dormant. Reviving costs two allocations, negligible
/// once per second.
const DORMANT_AFTER: Span = Span::from_millis(1000);

impl Core {
    /// Returns the time of the next check whether a peer can become dormant.
    #[inline]
    pub(crate) fn dormancy_timer(&self) -> Instant {
        self.awake.front().map_or(Instant::NEVER, |&(at, _)| at)
    }

    /// Watches `peer` for dormancy starting at `at`, when a session with it begins or continues.
    pub(crate) fn watch_quiet(&mut self, at: Instant, peer: PeerId) {
        if let Some(Some(state)) = self.peers.get_mut(peer.index())
            && state.mark_watched()
        {
            self.awake.push_back((at, peer));
        }
    }

    /// Moves peers that were idle for `DORMANT_AFTER` to dormant form.
    pub(crate) fn retire_quiet_peers(&mut self, now: Instant) {
        while let Some(&(at, id)) = self.awake.front()
            && now >= at
        {
            self.awake.pop_front();
            if self.may_retire(now, id)
                && let Some(peer) = self.peers[id.index()].take()
            {
                self.timed.retain(|&timed| timed != id);
                self.dormant.insert(id, Box::new(DormantPeer::from(*peer)));
            } else if let Some(Some(peer)) = self.peers.get_mut(id.index()) {
                peer.unmark_watched();
                self.watch_quiet(now + DORMANT_AFTER, id);
            }
        }
    }

    fn may_retire(&mut self, now: Instant, id: PeerId) -> bool {
        let Some(Some(peer)) = self.peers.get_mut(id.index()) else {
            return false;
        };
        self.pending_counts.update(peer.update_pending_work());
        let peer = &*peer;
        let quiet = now >= peer.last_used() + DORMANT_AFTER && peer.is_settled(self.sh.ctx.times());
        // Nothing outside the peer's own state waits for it or for its credit.
        quiet && !self.sh.transfers.has_any_with(id) && !self.sh.matching.has_waiting_from(id)
    }

    /// Revives `peer` if it is dormant.
    #[cold]
    pub(crate) fn revive(&mut self, peer: PeerId) -> bool {
        let Some(kept) = self.dormant.remove(&peer) else {
            return false;
        };
        self.peers[peer.index()] = Some(Box::new(kept.revive(peer, &self.sh)));
        // The time is unknown here; the next check sets it.
        self.watch_quiet(Instant::default(), peer);
        true
    }

    /// Returns true if `peer` has state; revives it if it is dormant.
    #[inline]
    pub(crate) fn is_live(&mut self, peer: PeerId) -> bool {
        matches!(self.peers.get(peer.index()), Some(Some(_))) || self.revive(peer)
    }

    /// Returns the number of dormant peers.
    #[must_use]
    pub fn dormant_count(&self) -> usize {
        self.dormant.len()
    }
}
