// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finding out whether peers live that are waited for, or that the network says are gone (`P9`).
//!
//! The one invariant: a peer is given up for a sign, or for silence while it was listened for.

use super::{Engine, Inner};
use crate::error::Error;
use crate::liveness::{Liveness, Standing};
use portolan_proto::{Cause, Instant, LinkId, OpError, PeerId, PeerStatus};
use std::time::Duration;

/// Longest sleep of a process that waits for a peer, which is asked then if it was silent for most of it.
/// The question wakes this process, and the answer: some 10 times a second. `P9.3`
const SLEEP_MAX: Duration = Duration::from_millis(200);

/// A second question without an answer is repeated after this, and so on: longer than a loaded host takes
/// to answer, and many times within a peer's time to be silent, since questions and answers may be lost.
/// The first one is lost seldom, and is not worth a look of its own. `P9.3`
const ASK_AGAIN: Duration = Duration::from_millis(50);

/// A program that has not looked for so long does not wait any more. Less than a peer may be silent,
/// so that none is given up when its message has been taken. `P9.3`
const LOOKS_APART: Duration = Duration::from_millis(500);

/// Time between looks at an operation from which on each look is at all links: it costs a hundredth.
const SLOW: Duration = Duration::from_micros(10);

/// Time between two looks of a program that does more than look: far longer than a turn, far shorter
/// than anybody's patience.
const SELDOM: Duration = Duration::from_millis(1);

impl Engine {
    /// What turns do seldom, for a program that sleeps between its looks at an operation: few turns are
    /// then a long time. `P9.3`
    pub(crate) fn catch_up(&mut self) {
        let before = self.inner.now;
        let passed = self.inner.read_clock().since(before);
        if passed >= SLOW {
            self.links.rouse(self.inner.turn);
        }
        if passed >= SELDOM {
            self.look_around();
            self.on_timeout();
        }
    }

    /// Questions whether a peer lives, and answers, that were sent so far.
    pub(crate) fn question_count(&self) -> u64 {
        self.liveness.as_ref().map_or(0, Liveness::sent)
    }

    /// From now on, silence of `peer` counts.
    pub(crate) fn watch(&mut self, peer: PeerId, now: Instant) {
        self.inner.watch_since(peer, now);
        if peer.0 == self.inner.job.rank || self.inner.core.peer_status(peer) != PeerStatus::Unknown
        {
            return;
        }
        if let Err(error) = self.inner.connect(peer) {
            log::debug!("watching {peer}: {error}");
            if let Error::NoPath { why, .. } = error {
                // The peer cannot reach this process either.
                self.inner.peers[peer.0 as usize].report = Some(why.into());
                self.give_up_for_good(peer, Cause::NoPath);
            }
        }
    }

    pub(crate) fn unwatch(&mut self, peer: PeerId) {
        self.inner.peers[peer.0 as usize].watched_since = None;
    }

    /// As [`Engine::watch`], for as long as the program goes on looking.
    #[inline]
    pub(super) fn watch_from_look(&mut self, peer: PeerId) {
        let now = self.inner.now;
        let info = &self.inner.peers[peer.0 as usize];
        if info.watched_since.is_none() {
            self.watch(peer, now);
        } else if info.looked_for_at.is_none() {
            return;
        }
        let info = &mut self.inner.peers[peer.0 as usize];
        info.looked_for_at = info.watched_since.map(|_| now);
    }

    /// The network says that nobody listens at an address of `peer`. Anybody can say so; the peer
    /// itself is asked. `P9.4`
    pub(super) fn doubt(&mut self, peer: PeerId) {
        if let Some(liveness) = &self.liveness {
            liveness.doubt(peer);
            self.inner.peers[peer.0 as usize].is_doubted = true;
            self.inner.list(peer);
        }
    }

    /// Asks peers that are waited for, and have been silent, whether they live; gives up those that
    /// stay silent, and those that are doubted with reason.
    pub(super) fn check_watched(&mut self) {
        self.inner.is_asking = false;
        if self.inner.watched.is_empty() || self.inner.is_away {
            return;
        }
        let listed = std::mem::take(&mut self.inner.watched);
        let mut asks = false;
        for peer in listed {
            let now = self.inner.now;
            let info = &mut self.inner.peers[peer.0 as usize];
            info.is_listed = false;
            if info
                .looked_for_at
                .is_some_and(|at| now.since(at) >= LOOKS_APART)
            {
                (info.watched_since, info.looked_for_at) = (None, None);
            }
            if info.watched_since.is_some() || info.is_doubted {
                self.inner.list(peer);
                asks |= self.check_one(peer, asks);
            }
        }
    }

    /// `asks`: another peer is asked in this look. Returns whether this one is.
    fn check_one(&mut self, peer: PeerId, asks: bool) -> bool {
        let now = self.inner.now;
        if self.check_standing(peer, now) == Standing::Gone {
            self.give_up(peer, Cause::ProcessGone);
            return false;
        }
        let info = &mut self.inner.peers[peer.0 as usize];
        let Some(since) = info.watched_since else {
            return false;
        };
        let status = self.inner.core.peer_status(peer);
        if matches!(status, PeerStatus::Up | PeerStatus::Unknown) {
            info.connecting_since = None;
        }
        let heard = self.inner.core.last_heard(peer).unwrap_or_default();
        self.check_peer(peer, now, heard.max(since), asks)
    }

    /// Whether `peer` is gone, as the network says and its silence confirms. `P9.4`
    fn check_standing(&mut self, peer: PeerId, now: Instant) -> Standing {
        let Some(liveness) = &self.liveness else {
            return Standing::Trusted;
        };
        let standing = liveness.standing(peer, now);
        let info = &mut self.inner.peers[peer.0 as usize];
        info.is_doubted = standing == Standing::Doubted;
        self.inner.is_asking |= info.is_doubted;
        // The question that doubt has asked, or its answer, may have been lost.
        if info.is_doubted && now.since(info.asked_at) >= ASK_AGAIN {
            info.asked_at = now;
            liveness.ask(peer);
        }
        standing
    }

    /// `P9.3`, and `P9.5` for a session that does not open. As [`Engine::check_one`].
    fn check_peer(&mut self, peer: PeerId, now: Instant, heard: Instant, asks: bool) -> bool {
        // The other side may have connected shared memory.
        self.tell_ways(peer);
        let Some(liveness) = &self.liveness else {
            return false;
        };
        let seen = liveness.seen(peer);
        let was_seen = seen > Instant::default();
        let heard = heard.max(seen);
        let (sleep, ask_after) = (self.inner.calm_sleep(), self.inner.ask_after());
        let info = &mut self.inner.peers[peer.0 as usize];
        // Longer than the longest sleep of a wait.
        let look = info.silence.look(now, heard, sleep * 5 / 4);
        let silent_for = look.silent_for;
        // Nor could its side of a session be heard meanwhile.
        info.connecting_since = info.connecting_since.map(|since| since + look.missed);
        if info.asked_at <= heard {
            info.unanswered = 0;
        }
        let pause = match info.unanswered {
            1 => ask_after,
            _ => ASK_AGAIN.min(ask_after),
        };
        // Early beside another, so that several peers wake this process no more often than one.
        let is_silent = silent_for >= if asks { ask_after / 2 } else { ask_after };
        let asks = is_silent && now.since(info.asked_at) >= pause;
        if asks {
            info.asked_at = now;
            info.unanswered = info.unanswered.saturating_add(1);
            liveness.ask(peer);
            // Also by the protocol: a peer that has given this session up says so.
            self.inner.core.ask(peer);
        }
        self.inner.is_asking |= self.inner.peers[peer.0 as usize].unanswered > 1;
        // Silence of a peer that was never heard means that the addresses are wrong. `P9.11`
        let is_met = self.inner.core.peer_status(peer) == PeerStatus::Up || was_seen;
        if is_met && silent_for >= self.inner.peer_timeout {
            let links = self.inner.table.links_to(peer);
            let link = links.first().copied().unwrap_or(LinkId::UDP);
            self.give_up(peer, Cause::Silent(link));
            return asks;
        }
        let since = self.inner.peers[peer.0 as usize].connecting_since;
        let timeout = self.inner.connect_timeout;
        if let Some(since) = since
            && (now.since(since) >= timeout || self.is_refused(peer, since))
        {
            self.give_up_unreached(peer, since);
        }
        asks
    }

    /// As [`Inner::give_up`], and hangs up its ring, by which it learns that it was given up. `P8.8`
    pub(crate) fn give_up(&mut self, peer: PeerId, cause: Cause) {
        self.inner.give_up(peer, cause);
        self.links.disconnect(peer, LinkId::SHM);
    }

    /// The same, also for a peer that nothing was asked of yet: what is asked of it from now on ends like
    /// what was asked before.
    pub(super) fn give_up_for_good(&mut self, peer: PeerId, cause: Cause) {
        if self.inner.core.peer_status(peer) == PeerStatus::Unknown {
            self.inner.core.connect(self.inner.now, peer);
        }
        self.give_up(peer, cause);
    }
}

impl Inner {
    /// Gives `peer` up: what only it could have ended ends with `cause`. `P9.6`
    pub(super) fn give_up(&mut self, peer: PeerId, cause: Cause) {
        self.core.fail_peer(peer, cause);
        self.note_gone(peer);
    }

    /// A peer was given up: what waits for it ends.
    pub(crate) fn note_gone(&mut self, peer: PeerId) {
        let PeerStatus::Failed(cause) = self.core.peer_status(peer) else {
            return;
        };
        log::debug!("{peer} is given up: {cause:?}");
        self.multicasts.on_gone(peer.0);
        let info = &mut self.peers[peer.0 as usize];
        (info.watched_since, info.is_doubted) = (None, false);
        for op in self.pending.take_peer(peer) {
            self.forget_queued_remote(op);
            self.complete_send(op, peer, Err(OpError::PeerGone(peer, cause)));
        }
    }

    /// From `since` on, silence of `peer` counts.
    pub(crate) fn watch_since(&mut self, peer: PeerId, since: Instant) {
        let info = &mut self.peers[peer.0 as usize];
        info.looked_for_at = None;
        info.watched_since.get_or_insert(since);
        self.list(peer);
    }

    pub(super) fn list(&mut self, peer: PeerId) {
        let info = &mut self.peers[peer.0 as usize];
        if !info.is_listed {
            info.is_listed = true;
            self.watched.push(peer);
        }
    }

    /// Longest sleep while nobody that is waited for has left two questions unanswered.
    fn calm_sleep(&self) -> Duration {
        // Three more questions fit in before the peer is given up.
        SLEEP_MAX.min(self.peer_timeout / 4)
    }

    /// Silence after which a peer is asked: less than a sleep, at whose end the answer to the question
    /// before is that old.
    fn ask_after(&self) -> Duration {
        self.calm_sleep() * 3 / 4
    }

    /// Longest sleep after which a peer that is waited for is asked in time.
    pub(crate) fn sleep_max(&self) -> Duration {
        match self.is_asking {
            true => ASK_AGAIN.min(self.ask_after()),
            false => self.calm_sleep(),
        }
    }
}
