// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is known of whether one peer lives.
//!
//! Evidence is dated by the question that it answers: a nonce is the time at which the asker asked.
//! So an answer that was recorded proves again what it proved before, and nothing newer, and it
//! does not matter in which order evidence comes in. Silence proves nothing here: how long it may last
//! is [`portolan_proto::liveness`]'s to decide.

use portolan_proto::Instant;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The newest answer of a peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Answer {
    /// When its question was asked; zero before the first.
    pub(crate) asked: Instant,
    /// Time from the question to the answer.
    pub(crate) delay: Duration,
    /// For how long the peer's program had not looked at its links.
    pub(crate) idle: Duration,
}

/// How a peer stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Nothing speaks against it.
    Trusted,
    /// Somebody says that it is gone; it has been asked.
    Doubted,
    /// Its kernel has refused a question that was asked since.
    Gone,
}

/// Written by the thread that answers and by the engine; each word stands for itself.
#[derive(Debug, Default)]
pub(super) struct Life {
    /// When the newest question was asked that the peer has answered.
    answered: AtomicU64,
    /// Of that answer, see [`Answer`].
    delay: AtomicU64,
    idle: AtomicU64,
    /// When the newest question was asked that came back as not deliverable, with proof.
    refused: AtomicU64,
    /// When the peer was first said to be gone, since its last sign of life.
    doubted: AtomicU64,
}

impl Life {
    pub(super) fn seen(&self) -> Instant {
        Instant::from_nanos(self.answered.load(Ordering::Relaxed))
    }

    pub(super) fn answer(&self) -> Answer {
        let duration = |word: &AtomicU64| Duration::from_nanos(word.load(Ordering::Relaxed));
        Answer {
            asked: self.seen(),
            delay: duration(&self.delay),
            idle: duration(&self.idle),
        }
    }

    /// The question of that time was answered. `P9.2`: one that was not asked yet cannot have been.
    pub(super) fn on_answer(&self, asked: u64, idle: Duration, now: Instant) {
        if asked > now.as_nanos() || asked <= self.answered.load(Ordering::Relaxed) {
            return;
        }
        let idle = u64::try_from(idle.as_nanos()).unwrap_or(u64::MAX);
        self.idle.store(idle, Ordering::Relaxed);
        self.delay.store(now.as_nanos() - asked, Ordering::Relaxed);
        self.answered.store(asked, Ordering::Relaxed);
    }

    /// The question of that time came back as not deliverable.
    pub(super) fn on_refusal(&self, asked: u64) {
        self.refused.fetch_max(asked, Ordering::Relaxed);
    }

    /// The peer is said to be gone; `true` if that is news, and the peer must be asked at once.
    pub(super) fn doubt(&self, now: Instant) -> bool {
        let open = self.doubted.load(Ordering::Relaxed);
        let is_open = open > self.answered.load(Ordering::Relaxed);
        !is_open
            && self
                .doubted
                .compare_exchange(open, now.as_nanos(), Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }

    /// `P9.4`: what somebody says counts when the peer's kernel bears it out: by a refusal that quotes a
    /// question which was asked afterwards.
    pub(super) fn standing(&self) -> Standing {
        let doubted = self.doubted.load(Ordering::Relaxed);
        if doubted <= self.answered.load(Ordering::Relaxed) {
            return Standing::Trusted;
        }
        match self.refused.load(Ordering::Relaxed) >= doubted {
            true => Standing::Gone,
            false => Standing::Doubted,
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
    fn one_word_against_a_peer_is_doubt_and_a_second_one_the_end() {
        let life = Life::default();
        assert_eq!(life.standing(), Standing::Trusted);
        life.on_refusal(SECOND);
        assert!(life.doubt(at(SECOND + 10)), "the first is news");
        assert!(!life.doubt(at(SECOND + 11)));
        assert_eq!(life.standing(), Standing::Doubted);
        // Of a question before the doubt: the same word again.
        life.on_refusal(SECOND + 5);
        assert_eq!(life.standing(), Standing::Doubted);
        life.on_refusal(SECOND + 20);
        assert_eq!(life.standing(), Standing::Gone);
    }

    #[test]
    fn an_answer_to_a_later_question_ends_doubt_and_refusal() {
        let life = Life::default();
        life.on_refusal(SECOND);
        life.doubt(at(SECOND + 10));
        life.on_refusal(SECOND + 15);
        assert_eq!(life.standing(), Standing::Gone);
        life.on_answer(SECOND + 20, Duration::ZERO, at(SECOND + 30));
        assert_eq!(life.standing(), Standing::Trusted);
        assert!(life.doubt(at(9 * SECOND)), "later doubt is news again");
        assert_eq!(life.standing(), Standing::Doubted);
    }

    #[test]
    fn silence_bears_no_doubt_out_and_replayed_answers_do_not_break_it() {
        let life = Life::default();
        life.on_answer(SECOND, Duration::ZERO, at(SECOND + 5));
        assert!(life.doubt(at(2 * SECOND)));
        life.on_answer(SECOND, Duration::ZERO, at(2 * SECOND + 5));
        assert_eq!(life.seen(), at(SECOND));
        assert_eq!(life.answer().delay, Duration::from_nanos(5));
        assert_eq!(life.standing(), Standing::Doubted);
    }

    #[test]
    fn a_question_of_the_future_was_not_asked() {
        let life = Life::default();
        life.on_answer(SECOND + 1, Duration::ZERO, at(SECOND));
        assert_eq!(life.seen(), Instant::default());
    }
}
