// SPDX-License-Identifier: MIT OR Apache-2.0
//! Detects peers that have failed, among those that are awaited or that the network reports
//! unreachable (`P9`).
//!
//! [`portolan_proto::liveness`] decides; this module collects the evidence and acts on the
//! decision. Invariant: a peer is given up on evidence, or for silence while this process was
//! listening.

use super::{Engine, Inner};
use crate::error::Error;
use crate::launch::Launch;
use crate::liveness::{Liveness, PeerState};
use portolan_proto::liveness::{AgentReport, CheckTiming, Loss, PLAIN_PERIOD, Signs, Watch};
use portolan_proto::{Cause, Instant, LinkId, OpError, PeerId, PeerStatus};
use std::time::Duration;

/// Longest sleep of a process that waits for a peer. A peer that was silent for most of the sleep
/// is probed after it. The probe and its answer wake the process about 10 times a second. `P9.3`
const SLEEP_MAX: Duration = Duration::from_millis(200);

/// Interval between probes of a doubted peer, and the longest sleep meanwhile. `P9.4`
const DOUBT_PROBE_INTERVAL: Duration = Duration::from_millis(50);

/// Time without polls after which a program no longer waits for a peer. It is shorter than the
/// allowed silence of a peer, so that no peer is given up after its message was taken. `P9.3`
const POLLING_GAP_MAX: Duration = Duration::from_millis(500);

/// Time between polls of an operation from which each poll covers all links. Such a poll costs a
/// hundredth of that time.
const SLOW_POLL_INTERVAL: Duration = Duration::from_micros(10);

/// Time between polls of a program that also does other work. It is much longer than a turn and
/// much shorter than any peer's allowed silence.
const SPARSE_POLL_INTERVAL: Duration = Duration::from_millis(1);

impl Engine {
    /// Runs the checks that normally happen every so many turns. A program that sleeps between
    /// polls of an operation makes too few turns for them. `P9.3`
    pub(crate) fn catch_up(&mut self) {
        let before = self.inner.now;
        let passed = self.inner.read_clock().since(before);
        if passed >= SLOW_POLL_INTERVAL {
            self.links.poll_all(self.inner.turn);
        }
        if passed >= SPARSE_POLL_INTERVAL {
            self.run_slow_checks();
            self.on_timeout();
        }
    }

    /// Returns the number of liveness probes and answers sent so far.
    pub(crate) fn question_count(&self) -> u64 {
        self.liveness.as_ref().map_or(0, Liveness::sent)
    }

    /// Starts to count the silence of `peer`.
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

    /// Watches `peer` as [`Engine::watch`] does, but only while the program continues to poll.
    #[inline]
    pub(super) fn watch_while_polled(&mut self, peer: PeerId) {
        let now = self.inner.now;
        let info = &self.inner.peers[peer.0 as usize];
        if info.watched_since.is_none() {
            self.watch(peer, now);
        } else if info.last_polled_at.is_none() {
            return;
        }
        let info = &mut self.inner.peers[peer.0 as usize];
        info.last_polled_at = info.watched_since.map(|_| now);
    }

    /// Watches the peers of a wait that has a deadline. The program may repeat it.
    pub(super) fn catch_up_on(&mut self, about: &[PeerId]) {
        self.catch_up();
        for peer in about {
            if !self.inner.is_gone(*peer) {
                self.watch_while_polled(*peer);
            }
        }
    }

    /// Records that the network reports no listener at an address of `peer`. Any host can forge
    /// this report, so the peer itself is probed. `P9.4`
    pub(super) fn doubt(&mut self, peer: PeerId) {
        if let Some(liveness) = &self.liveness {
            liveness.doubt(peer);
            self.inner.peers[peer.0 as usize].is_doubted = true;
            self.inner.list(peer);
        }
    }

    /// Probes the awaited peers that are silent. Gives up those that stay silent, and doubted peers
    /// with a confirmed failure.
    pub(super) fn check_watched(&mut self) {
        if let Some(liveness) = &self.liveness {
            liveness.note_poll(self.inner.now);
        }
        self.inner.is_probing = false;
        if self.inner.watched.is_empty() || self.inner.is_away {
            return;
        }
        let listed = std::mem::take(&mut self.inner.watched);
        let mut is_other_probed = false;
        for peer in listed {
            let now = self.inner.now;
            let info = &mut self.inner.peers[peer.0 as usize];
            info.is_listed = false;
            if info
                .last_polled_at
                .is_some_and(|at| now.since(at) >= POLLING_GAP_MAX)
            {
                (info.watched_since, info.last_polled_at) = (None, None);
            }
            if info.watched_since.is_some() || info.is_doubted {
                self.inner.list(peer);
                is_other_probed |= self.check_one(peer, is_other_probed);
            } else {
                info.watch = None;
            }
        }
    }

    /// Checks one peer. `is_other_probed` is set if another peer is probed in this round. Returns
    /// `true` if this one is probed.
    fn check_one(&mut self, peer: PeerId, is_other_probed: bool) -> bool {
        let now = self.inner.now;
        if self.check_state(peer, now) == PeerState::Gone {
            let report = "its kernel refused the connection";
            self.inner.peers[peer.0 as usize]
                .report
                .get_or_insert_with(|| report.into());
            self.give_up(peer, Cause::ProcessExited);
            return false;
        }
        let info = &mut self.inner.peers[peer.0 as usize];
        let Some(since) = info.watched_since else {
            return false;
        };
        let status = self.inner.core.peer_status(peer);
        match status {
            PeerStatus::Up | PeerStatus::Unknown => info.is_opening = false,
            // The peer's hello may have begun it, and the peer may have ended since.
            PeerStatus::Connecting => info.is_opening = true,
            PeerStatus::Failed(_) => {}
        }
        let heard = self.inner.core.last_seen(peer).unwrap_or_default();
        self.check_peer(peer, now, heard.max(since), is_other_probed)
    }

    /// Returns the state of `peer`. A report of its end by the network counts only after its
    /// kernel has confirmed it. `P9.4`
    fn check_state(&mut self, peer: PeerId, now: Instant) -> PeerState {
        let Some(liveness) = &self.liveness else {
            return PeerState::Trusted;
        };
        let state = liveness.state(peer);
        let info = &mut self.inner.peers[peer.0 as usize];
        info.is_doubted = state == PeerState::Doubted;
        self.inner.is_probing |= info.is_doubted;
        // The first probe of the doubted peer, or its answer, may have been lost.
        if info.is_doubted {
            let watch = info.watch.get_or_insert_default();
            if now.since(watch.queried_at()) >= DOUBT_PROBE_INTERVAL {
                watch.note_query(now);
                liveness.probe(peer);
            }
        }
        state
    }

    /// Checks the silence of a peer (`P9.3`), or a session that does not open (`P9.5`). Parameters
    /// and result are as in [`Engine::check_one`].
    fn check_peer(
        &mut self,
        peer: PeerId,
        now: Instant,
        heard: Instant,
        is_other_probed: bool,
    ) -> bool {
        // The other side may have connected shared memory.
        self.pass_addresses(peer);
        let is_near = self.inner.is_near(peer);
        let Some(liveness) = &self.liveness else {
            return false;
        };
        let answer = liveness.answer(peer);
        let check_timing = self.inner.check_timing(is_other_probed);
        let info = &mut self.inner.peers[peer.0 as usize];
        let signs = Signs {
            last_seen: heard.max(answer.probed_at),
            is_near,
            is_opening: info.is_opening,
            last_reply: (answer.probed_at > Instant::default())
                .then_some((answer.probed_at, answer.idle)),
        };
        let since = info.watched_since.unwrap_or_default();
        let watch = info.watch.get_or_insert_default();
        if answer.probed_at > watch.last_seen().max(since) {
            self.inner.delays.note(answer.delay);
        }
        let (silence_limits, delays) = (&self.inner.silence_limits, &mut self.inner.delays);
        let verdict = watch.check(now, &signs, silence_limits, delays, check_timing);
        let opening_for = watch.opening_for();
        if verdict.query {
            liveness.probe(peer);
            // Also send a request of the protocol: a peer that has given up this session answers
            // so.
            self.inner.core.probe_peer(peer);
        }
        if let Some(launch) = &mut self.launch
            && verdict.inquire
        {
            launch.inquire(peer.0, now.as_nanos());
        }
        // Silence of a peer that was never heard from means that the addresses are wrong. `P9.11`
        let has_session = self.inner.core.peer_status(peer) == PeerStatus::Up
            || answer.probed_at > Instant::default();
        match verdict.loss {
            Some(Loss::Silent) if has_session => self.lose_silent(peer),
            Some(Loss::Unopened) => self.give_up_unreached(peer, opening_for),
            _ if self.is_refused(peer, opening_for) => self.give_up_unreached(peer, opening_for),
            _ => {}
        }
        verdict.query
    }

    /// Gives up a peer that has been silent for too long.
    #[cold]
    fn lose_silent(&mut self, peer: PeerId) {
        let links = self.inner.table.links_to(peer);
        let cause = Cause::Silent(links.first().copied().unwrap_or(LinkId::UDP));
        self.inner.report_silence(peer, cause);
        self.give_up(peer, cause);
    }

    /// Handles the answers of agents about silent peers.
    pub(super) fn handle_inquiry_replies(&mut self) {
        while let Some(reply) = self.launch.as_mut().and_then(Launch::poll_inquiry_reply) {
            let Some(info) = self.inner.peers.get_mut(reply.rank as usize) else {
                continue;
            };
            let sent = Instant::from_nanos(reply.asked);
            if let Some(watch) = &mut info.watch {
                watch.on_report(sent, reply.state.into());
            }
            self.inner.delays.note(self.inner.now.since(sent));
        }
    }

    /// Gives up `peer` as [`Inner::give_up`] does, and closes its ring, which notifies the peer.
    /// `P8.8`
    pub(crate) fn give_up(&mut self, peer: PeerId, cause: Cause) {
        self.inner.give_up(peer, cause);
        self.links.disconnect(peer, LinkId::SHM);
    }

    /// Gives up `peer` as [`Engine::give_up`] does, even if no operation has used it yet. Later
    /// operations then fail in the same way as earlier ones.
    pub(super) fn give_up_for_good(&mut self, peer: PeerId, cause: Cause) {
        if self.inner.core.peer_status(peer) == PeerStatus::Unknown {
            self.inner.core.connect(self.inner.now, peer);
        }
        self.give_up(peer, cause);
    }
}

impl Inner {
    /// Gives up `peer`. Operations that only it could complete fail with `cause`. `P9.6`
    pub(super) fn give_up(&mut self, peer: PeerId, cause: Cause) {
        self.core.fail_peer(peer, cause);
        self.fail_operations_of(peer);
    }

    /// Fails the operations that wait for `peer`, which was given up.
    pub(crate) fn fail_operations_of(&mut self, peer: PeerId) {
        let PeerStatus::Failed(cause) = self.core.peer_status(peer) else {
            return;
        };
        log::debug!("{peer} is given up: {cause:?}");
        self.multicasts.on_failed(peer.0);
        self.admissions.on_failed(peer);
        self.core.set_precedence(self.admissions.holder());
        self.note_event(peer, cause);
        let info = &mut self.peers[peer.0 as usize];
        (info.watched_since, info.is_doubted) = (None, false);
        for op in self.pending.take_peer(peer) {
            self.forget_queued_remote(op);
            self.complete_send(op, peer, Err(OpError::PeerFailed(peer, cause)));
        }
    }

    /// Counts the silence of `peer` starting at `since`.
    pub(crate) fn watch_since(&mut self, peer: PeerId, since: Instant) {
        let info = &mut self.peers[peer.0 as usize];
        info.last_polled_at = None;
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

    /// Returns the longest sleep while no peer is doubted.
    fn calm_sleep(&self) -> Duration {
        // Leaves time for three more probes before the peer is given up.
        SLEEP_MAX.min(self.silence_limits.fixed.unwrap_or(PLAIN_PERIOD) / 4)
    }

    /// Returns the longest sleep that still allows awaited peers to be probed in time.
    pub(crate) fn sleep_max(&self) -> Duration {
        match self.is_probing {
            true => DOUBT_PROBE_INTERVAL.min(self.calm_sleep()),
            false => self.calm_sleep(),
        }
    }

    /// Returns the intervals for a check. `is_other_probed` is set if another peer is probed in
    /// this round.
    fn check_timing(&self, is_other_probed: bool) -> CheckTiming {
        let sleep = self.calm_sleep();
        // Less than a sleep, after which the answer to the previous probe is that old.
        let query_after = sleep * 3 / 4;
        CheckTiming {
            // Longer than the longest sleep of a wait.
            step: sleep * 5 / 4,
            // Earlier if another peer is probed now, so that several peers wake this process no
            // more often than one.
            query_after: if is_other_probed {
                query_after / 2
            } else {
                query_after
            },
        }
    }

    /// Records that a sleep of at most `timeout` lasted `slept`. For the excess, this process
    /// waited for a core.
    pub(super) fn note_slept(&mut self, slept: Duration, timeout: Option<Duration>) {
        if let Some(late) = timeout.and_then(|timeout| slept.checked_sub(timeout)) {
            self.delays.note(late);
        }
    }

    /// Tests whether `peer` runs on this host.
    fn is_near(&mut self, peer: PeerId) -> bool {
        let info = &mut self.peers[peer.0 as usize];
        let table = &self.table;
        *info.is_near.get_or_insert_with(|| {
            let at = table.of(peer);
            at.is_some_and(|at| at.host == table.own().host)
        })
    }

    /// Writes the report of a silent peer: the length of the silence, the report of its agent, and
    /// the remedy.
    fn report_silence(&mut self, peer: PeerId, cause: Cause) {
        let now = self.now;
        let info = &mut self.peers[peer.0 as usize];
        let watch = info.watch.as_deref();
        let seconds = watch
            .map_or(Duration::ZERO, Watch::silent_for)
            .as_secs_f64();
        let agent = match watch.and_then(|watch| watch.report(now)) {
            Some(AgentReport::Running) => {
                "; its host's agent reports that it runs: check the network between the hosts"
            }
            Some(AgentReport::Stopped) => "; its host's agent reports that it is stopped",
            Some(AgentReport::Starting) => "; its host's agent reports that it is starting",
            None if self.silence_limits.has_agents && self.silence_limits.fixed.is_none() => {
                "; its host's agent does not answer either"
            }
            None => "",
        };
        let report = format!(
            "{cause}: no answer for {seconds:.1} s, in which this process ran{agent}; set peer_timeout to \
             wait longer"
        );
        info.report = Some(report.into());
    }
}
