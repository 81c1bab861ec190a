// SPDX-License-Identifier: MIT OR Apache-2.0
//! Resting: of a peer that has been quiet for a while only what cannot be made anew is kept, a third
//! of the memory of one that is busy. Its next frame, or the next operation for it, wakes it.
//!
//! Nothing of it shows on a wire. A peer on shared memory never rests: its rings are larger than
//! anything here.
//!
//! The one invariant: a peer rests only when nothing is under way in either direction, all credit
//! was given back, and no timer runs; so what is left out is what a new peer begins with.

use super::SessionState;
use crate::base::config::Times;
use crate::base::time::Span;
use crate::lane::LaneMemory;
use crate::lane::tx::LaneTx;
use crate::path::Path;
use crate::path::dormant::DormantPaths;
use crate::peer::Peer;
use crate::shared::Shared;
use crate::{Core, Instant, LinkId, PathStatus, PeerId};
use alloc::boxed::Box;

/// How long a peer must have been quiet: waking costs two allocations, which once a second cannot be
/// felt.
const REST_AFTER: Span = Span::from_millis(1000);

/// What is kept of a peer; see the module documentation.
#[derive(Debug)]
pub(crate) struct Rested {
    pub(crate) session: SessionState,
    pub(crate) last_heard: Instant,
    pub(crate) lanes_tx: [LaneTx; 2],
    pub(crate) lanes_rx: [LaneMemory; 2],
    paths: DormantPaths,
}

impl Core {
    /// When to look whether somebody may rest.
    #[inline]
    pub(crate) fn rest_timer(&self) -> Instant {
        self.awake.front().map_or(Instant::NEVER, |&(at, _)| at)
    }

    /// A session with `peer` begins, or goes on: looks after it from `at` on.
    pub(crate) fn watch_for_rest(&mut self, at: Instant, peer: PeerId) {
        if let Some(Some(state)) = self.peers.get_mut(peer.index())
            && !state.watched
            && !state.paths.iter().any(Path::is_lossless)
        {
            state.watched = true;
            self.awake.push_back((at, peer));
        }
    }

    /// Lets those rest that have been quiet.
    pub(crate) fn rest_the_quiet(&mut self, now: Instant) {
        while let Some(&(at, id)) = self.awake.front()
            && now >= at
        {
            self.awake.pop_front();
            if self.may_rest(now, id)
                && let Some(peer) = self.peers[id.index()].take()
            {
                self.timed.retain(|&timed| timed != id);
                self.resting.insert(id, Box::new(Rested::from(*peer)));
            } else if let Some(Some(peer)) = self.peers.get_mut(id.index()) {
                peer.watched = false;
                self.watch_for_rest(now + REST_AFTER, id);
            }
        }
    }

    fn may_rest(&mut self, now: Instant, id: PeerId) -> bool {
        let Some(Some(peer)) = self.peers.get_mut(id.index()) else {
            return false;
        };
        peer.note_outstanding(&mut self.sh);
        let peer = &*peer;
        let quiet = now >= peer.last_used() + REST_AFTER && peer.is_at_rest(self.sh.ctx.times());
        // Nothing outside the peer's own state waits for it or for its credit.
        quiet && !self.sh.transfers.has_any_with(id) && !self.sh.matching.has_waiting_from(id)
    }

    /// Wakes `peer` if it rests.
    #[cold]
    pub(crate) fn awaken(&mut self, peer: PeerId) -> bool {
        let Some(rested) = self.resting.remove(&peer) else {
            return false;
        };
        self.peers[peer.index()] = Some(Box::new(rested.wake(peer, &self.sh)));
        // The time is not known here; it is when they are looked at next.
        self.watch_for_rest(Instant::default(), peer);
        true
    }

    /// Whether `peer` is there, awake; wakes it if it rests.
    #[inline]
    pub(crate) fn is_awake(&mut self, peer: PeerId) -> bool {
        matches!(self.peers.get(peer.index()), Some(Some(_))) || self.awaken(peer)
    }

    /// How many peers rest.
    #[must_use]
    pub fn resting_count(&self) -> usize {
        self.resting.len()
    }
}

impl Peer {
    /// When something was last heard from the peer, or sent to it.
    fn last_used(&self) -> Instant {
        self.last_heard.max(self.paths.last_sent_at())
    }

    fn is_at_rest(&self, times: &Times) -> bool {
        self.session.is_settled()
            && !self.queued
            && self.timer(times) == Instant::NEVER
            && !self.has_control()
            && self.send_queue.is_empty()
            && !self.is_starved()
            && self.lanes_rx.iter().all(|lane| lane.memory().is_some())
            && self.paths.are_settled()
    }
}

impl From<Peer> for Rested {
    /// Each field is named, so that a new one is not forgotten.
    fn from(peer: Peer) -> Rested {
        let Peer {
            id: _,
            session,
            paths,
            // Of no meaning while nothing is due.
            ack_waited: _,
            lanes_tx,
            lanes_rx,
            credit_due: _,
            // Nothing waits; the transfer of the last grant has ended.
            control: _,
            send_queue: _,
            last_heard,
            queued: _,
            timed: _,
            watched: _,
            // Nothing is.
            is_outstanding: _,
            held_back: _,
        } = peer;
        Rested {
            session,
            last_heard,
            lanes_tx,
            lanes_rx: lanes_rx.map(|lane| lane.memory().unwrap_or_default()),
            paths: paths.into_dormant(),
        }
    }
}

impl Rested {
    fn wake(self, id: PeerId, sh: &Shared) -> Peer {
        let mut peer = Peer::new(id, self.session, sh.ctx.credit_len());
        peer.paths = self.paths.revive(&sh.ctx);
        peer.last_heard = self.last_heard;
        peer.lanes_tx = self.lanes_tx;
        for (lane, memory) in peer.lanes_rx.iter_mut().zip(self.lanes_rx) {
            lane.recall(memory);
        }
        peer
    }

    /// As of a peer that is awake.
    pub(crate) fn path_status(&self, link: LinkId) -> Option<PathStatus> {
        self.paths.status(link)
    }
}
