// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which peers are dormant, and when others may become so.

use crate::base::time::Span;
use crate::peer::dormant::DormantPeer;
use crate::{Core, Instant, PeerId};
use alloc::boxed::Box;

/// How long a peer must have been quiet: reviving costs two allocations, which once a second cannot be
/// felt.
const DORMANT_AFTER: Span = Span::from_millis(1000);

impl Core {
    /// When to look whether a peer may become dormant.
    #[inline]
    pub(crate) fn dormancy_timer(&self) -> Instant {
        self.awake.front().map_or(Instant::NEVER, |&(at, _)| at)
    }

    /// A session with `peer` begins, or goes on: looks after it from `at` on.
    pub(crate) fn watch_quiet(&mut self, at: Instant, peer: PeerId) {
        if let Some(Some(state)) = self.peers.get_mut(peer.index())
            && state.mark_watched()
        {
            self.awake.push_back((at, peer));
        }
    }

    /// Makes those dormant that have been quiet.
    pub(crate) fn retire_the_quiet(&mut self, now: Instant) {
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
        self.left_counts.update(peer.note_left());
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
        // The time is not known here; it is when they are looked at next.
        self.watch_quiet(Instant::default(), peer);
        true
    }

    /// Whether `peer` is there; revives it if it is dormant.
    #[inline]
    pub(crate) fn is_live(&mut self, peer: PeerId) -> bool {
        matches!(self.peers.get(peer.index()), Some(Some(_))) || self.revive(peer)
    }

    /// How many peers are dormant.
    #[must_use]
    pub fn dormant_count(&self) -> usize {
        self.dormant.len()
    }
}
