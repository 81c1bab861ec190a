// SPDX-License-Identifier: MIT OR Apache-2.0
//! Evidence that one peer is alive or dead.
//!
//! An answer is as old as its probe: the nonce is the time when the probe was sent. A replayed
//! answer therefore proves nothing new, and the order of arrival does not matter. Silence is no
//! evidence here: [`portolan_proto::liveness`] decides how long it may last.

use portolan_proto::Instant;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The newest answer of a peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Answer {
    /// Time of its probe; zero before the first.
    pub(crate) probed_at: Instant,
    /// Time from the probe to the answer.
    pub(crate) delay: Duration,
    /// Time since the peer's program had last polled its links.
    pub(crate) idle: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PeerState {
    /// No evidence of death.
    Trusted,
    /// Reported dead by an unverified message; a probe was sent.
    Doubted,
    /// The peer's kernel has refused a probe that was sent after the report of its death.
    Gone,
}

/// Evidence about one peer. Written by the liveness thread and by the engine; each word is valid by
/// itself.
#[derive(Debug, Default)]
pub(super) struct Life {
    /// Time of the newest probe that the peer has answered.
    answered: AtomicU64,
    /// Fields of that answer, see [`Answer`].
    delay: AtomicU64,
    idle: AtomicU64,
    /// Time of the newest probe that was verifiably returned as undeliverable.
    refused: AtomicU64,
    /// Time of the first report of the peer's death since its last answer.
    doubted: AtomicU64,
}

impl Life {
    pub(super) fn seen(&self) -> Instant {
        Instant::from_nanos(self.answered.load(Ordering::Relaxed))
    }

    pub(super) fn answer(&self) -> Answer {
        let duration = |word: &AtomicU64| Duration::from_nanos(word.load(Ordering::Relaxed));
        Answer {
            probed_at: self.seen(),
            delay: duration(&self.delay),
            idle: duration(&self.idle),
        }
    }

    /// Records an answer to the probe of time `probed_at`. `P9.2`: a time in the future cannot be
    /// genuine.
    pub(super) fn on_answer(&self, probed_at: u64, idle: Duration, now: Instant) {
        if probed_at > now.as_nanos() || probed_at <= self.answered.load(Ordering::Relaxed) {
            return;
        }
        let idle = u64::try_from(idle.as_nanos()).unwrap_or(u64::MAX);
        self.idle.store(idle, Ordering::Relaxed);
        self.delay
            .store(now.as_nanos() - probed_at, Ordering::Relaxed);
        self.answered.store(probed_at, Ordering::Relaxed);
    }

    /// Records that the probe of time `probed_at` was returned as undeliverable.
    pub(super) fn on_refusal(&self, probed_at: u64) {
        self.refused.fetch_max(probed_at, Ordering::Relaxed);
    }

    /// Records a report of the peer's death. Returns `true` if the report is new, so that the peer
    /// must be probed at once.
    pub(super) fn doubt(&self, now: Instant) -> bool {
        let open = self.doubted.load(Ordering::Relaxed);
        let is_open = open > self.answered.load(Ordering::Relaxed);
        !is_open
            && self
                .doubted
                .compare_exchange(open, now.as_nanos(), Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }

    /// Returns the state of the peer. `P9.4`: a report counts only when the peer's kernel confirms
    /// it, by a refusal that quotes a probe sent after the report.
    pub(super) fn state(&self) -> PeerState {
        let doubted = self.doubted.load(Ordering::Relaxed);
        if doubted <= self.answered.load(Ordering::Relaxed) {
            return PeerState::Trusted;
        }
        match self.refused.load(Ordering::Relaxed) >= doubted {
            true => PeerState::Gone,
            false => PeerState::Doubted,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    #[test]
    fn report_causes_doubt_and_refusal_confirms_death() {
        let life = Life::default();
        assert_eq!(life.state(), PeerState::Trusted);
        life.on_refusal(SECOND);
        assert!(life.doubt(at(SECOND + 10)), "the first report is new");
        assert!(!life.doubt(at(SECOND + 11)));
        assert_eq!(life.state(), PeerState::Doubted);
        // A refusal of a probe from before the report confirms nothing.
        life.on_refusal(SECOND + 5);
        assert_eq!(life.state(), PeerState::Doubted);
        life.on_refusal(SECOND + 20);
        assert_eq!(life.state(), PeerState::Gone);
    }

    #[test]
    fn later_answer_clears_doubt_and_refusal() {
        let life = Life::default();
        life.on_refusal(SECOND);
        life.doubt(at(SECOND + 10));
        life.on_refusal(SECOND + 15);
        assert_eq!(life.state(), PeerState::Gone);
        life.on_answer(SECOND + 20, Duration::ZERO, at(SECOND + 30));
        assert_eq!(life.state(), PeerState::Trusted);
        assert!(life.doubt(at(9 * SECOND)), "a later report is new again");
        assert_eq!(life.state(), PeerState::Doubted);
    }

    #[test]
    fn silence_and_replayed_answers_do_not_change_doubt() {
        let life = Life::default();
        life.on_answer(SECOND, Duration::ZERO, at(SECOND + 5));
        assert!(life.doubt(at(2 * SECOND)));
        life.on_answer(SECOND, Duration::ZERO, at(2 * SECOND + 5));
        assert_eq!(life.seen(), at(SECOND));
        assert_eq!(life.answer().delay, Duration::from_nanos(5));
        assert_eq!(life.state(), PeerState::Doubted);
    }

    #[test]
    fn answer_to_a_future_probe_is_ignored() {
        let life = Life::default();
        life.on_answer(SECOND + 1, Duration::ZERO, at(SECOND));
        assert_eq!(life.seen(), Instant::default());
    }
}
