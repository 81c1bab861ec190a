// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is known of whether one peer lives.
//!
//! Evidence is dated by the question that it answers: a nonce is the time at which the asker asked.
//! So an answer that was recorded proves again what it proved before, and nothing newer, and it
//! does not matter in which order evidence comes in.

use portolan_proto::Instant;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A peer that is said to be gone, and has answered no question since, is gone after this. Longer
/// than a round trip, and than the answering thread of a loaded host waits for a core; with the
/// engine's sleeps before and behind, short enough to be named within a second. It counts only
/// where reports do not quote the question, which is proof after one round trip.
pub(super) const CONFIRM_WITHIN: Duration = Duration::from_millis(400);

/// How a peer stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Nothing speaks against it.
    Trusted,
    /// Somebody says that it is gone; it has been asked.
    Doubted,
    /// Its process is gone.
    Gone,
}

/// Written by the thread that answers and by the engine; each word stands for itself.
#[derive(Debug, Default)]
pub(super) struct Life {
    /// When the newest question was asked that the peer has answered.
    answered: AtomicU64,
    /// When the newest question was asked that came back as not deliverable, with proof.
    refused: AtomicU64,
    /// When the peer was first said to be gone, since its last sign of life.
    doubted: AtomicU64,
}

impl Life {
    pub(super) fn seen(&self) -> Instant {
        Instant::from_nanos(self.answered.load(Ordering::Relaxed))
    }

    /// The question of that time was answered. `P9.2`: one that was not asked yet cannot have been.
    pub(super) fn on_answer(&self, asked: u64, now: Instant) {
        if asked <= now.as_nanos() {
            self.answered.fetch_max(asked, Ordering::Relaxed);
        }
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

    /// `P9.4`: what somebody says counts when a question that was asked afterwards bears it out.
    pub(super) fn standing(&self, now: Instant) -> Standing {
        let doubted = self.doubted.load(Ordering::Relaxed);
        if doubted <= self.answered.load(Ordering::Relaxed) {
            return Standing::Trusted;
        }
        let is_refused = self.refused.load(Ordering::Relaxed) >= doubted;
        if is_refused || now.since(Instant::from_nanos(doubted)) >= CONFIRM_WITHIN {
            return Standing::Gone;
        }
        Standing::Doubted
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
        assert_eq!(life.standing(at(SECOND)), Standing::Trusted);
        life.on_refusal(SECOND);
        assert!(life.doubt(at(SECOND + 10)), "the first is news");
        assert!(!life.doubt(at(SECOND + 11)));
        assert_eq!(life.standing(at(SECOND + 12)), Standing::Doubted);
        // Of a question before the doubt: the same word again.
        life.on_refusal(SECOND + 5);
        assert_eq!(life.standing(at(SECOND + 13)), Standing::Doubted);
        life.on_refusal(SECOND + 20);
        assert_eq!(life.standing(at(SECOND + 25)), Standing::Gone);
    }

    #[test]
    fn an_answer_to_a_later_question_ends_doubt_and_refusal() {
        let life = Life::default();
        life.on_refusal(SECOND);
        life.doubt(at(SECOND + 10));
        life.on_refusal(SECOND + 15);
        assert_eq!(life.standing(at(SECOND + 16)), Standing::Gone);
        life.on_answer(SECOND + 20, at(SECOND + 30));
        assert_eq!(life.standing(at(9 * SECOND)), Standing::Trusted);
        assert!(life.doubt(at(9 * SECOND)), "later doubt is news again");
        assert_eq!(life.standing(at(9 * SECOND)), Standing::Doubted);
    }

    #[test]
    fn silence_bears_doubt_out_and_replayed_answers_do_not_break_it() {
        let life = Life::default();
        life.on_answer(SECOND, at(SECOND + 5));
        assert!(life.doubt(at(2 * SECOND)));
        life.on_answer(SECOND, at(2 * SECOND + 5));
        assert_eq!(life.seen(), at(SECOND));
        let end = at(2 * SECOND) + CONFIRM_WITHIN;
        assert_eq!(life.standing(at(end.as_nanos() - 1)), Standing::Doubted);
        assert_eq!(life.standing(end), Standing::Gone);
    }

    #[test]
    fn a_question_of_the_future_was_not_asked() {
        let life = Life::default();
        life.on_answer(SECOND + 1, at(SECOND));
        assert_eq!(life.seen(), Instant::default());
    }
}
