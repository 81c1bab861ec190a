// SPDX-License-Identifier: MIT OR Apache-2.0
//! Peers that are held back by unread messages, and the time for which the program has waited
//! without progress for messages behind those (`P4.14`, `P4.15`).

use crate::base::time::Span;
use crate::{Instant, OpError, PeerId};
use alloc::vec::Vec;
use core::time::Duration;

/// Time without a taken message after which a program that makes calls counts as waiting. A program
/// that reads its messages receives more often than this. The delay occurs at most once per half
/// megabyte, so it is negligible.
const RETURN_CREDIT_AFTER: Span = Span::from_millis(1);
/// Time between checks while memory is full. The checks of a program that computes for longer
/// between calls are late and do not count.
const CHECK_INTERVAL: Span = Span::from_millis(20);
/// Time with full memory and without progress after which receives fail. Progress is a message
/// taken or delivered, or a receive posted. A program that keeps polling is unlikely to compute for
/// longer.
const STUCK_FOR: Duration = Duration::from_secs(5);
/// Minimum number of engine turns between two checks of a program that only polls. If a check is
/// late after so many turns, the system has stalled the process.
const POLLING_TURNS: u32 = 64;
/// Maximum time that one check counts for; a process may have been stopped before it.
const CHECK_SPAN_MAX: Duration = Duration::from_secs(1);

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Shortage {
    /// Peers that may be held back; each is marked.
    peers: Vec<PeerId>,
    /// Time of the next check; `None` if the time is not known, which means at once.
    due: Option<Instant>,
    /// Number of waiting messages that were taken.
    taken: u64,
    /// `taken`, and the number of delivered messages, at the last check.
    seen: (u64, u64),
    /// Time for which memory has been full without progress.
    stuck_for: Duration,
    /// Engine turns so far, and whether the program waits in a call.
    turn: u32,
    in_call: bool,
    /// Time and turn of the last check, and what passed since the check before it.
    last: (Instant, u32),
    passed: (Duration, u32),
    /// Set while another thread makes the calls for the program, which computes.
    away: bool,
    /// Error for receives that search for a message without being posted.
    error: Option<OpError>,
}

impl Default for Shortage {
    fn default() -> Self {
        Shortage {
            peers: Vec::new(),
            due: Some(Instant::NEVER),
            taken: 0,
            seen: (0, 0),
            stuck_for: Duration::ZERO,
            turn: 0,
            in_call: false,
            last: (Instant::default(), 0),
            passed: (Duration::ZERO, 0),
            away: false,
            error: None,
        }
    }
}

impl Shortage {
    /// Returns the time of the next check.
    #[inline]
    pub(crate) fn timer(&self) -> Instant {
        self.due.unwrap_or_default()
    }

    /// Adds a peer that may be held back and is not listed yet.
    #[cold]
    pub(crate) fn note(&mut self, peer: PeerId) {
        self.peers.push(peer);
        if self.due == Some(Instant::NEVER) {
            self.due = None;
        }
    }

    /// Returns the number of waiting messages taken so far.
    #[inline]
    pub(crate) fn taken(&self) -> u64 {
        self.taken
    }

    /// Counts a waiting message that was taken.
    #[inline]
    pub(crate) fn on_taken(&mut self) {
        self.taken += 1;
    }

    /// See [`crate::Core::set_away`].
    pub(crate) fn set_away(&mut self, away: bool) {
        self.away = away;
    }

    /// See [`crate::Core::note_turn`].
    pub(crate) fn note_turn(&mut self, turn: u32, in_call: bool) {
        (self.turn, self.in_call) = (turn, in_call);
    }

    /// See [`crate::Core::shortage`].
    pub(crate) fn error(&self) -> Option<OpError> {
        self.error
    }

    pub(crate) fn set_error(&mut self, error: Option<OpError>) {
        self.error = error;
    }

    /// Returns the time at which the current check was due, if one is.
    pub(crate) fn begin_check(&mut self, now: Instant) -> Option<Instant> {
        if self.due.is_some_and(|due| now < due) {
            return None;
        }
        let (time, turn) = core::mem::replace(&mut self.last, (now, self.turn));
        self.passed = (now.since(time), self.turn.wrapping_sub(turn));
        let Some(due) = self.due else {
            self.due = Some(now + RETURN_CREDIT_AFTER);
            return None;
        };
        if self.away {
            self.due = Some(now + CHECK_INTERVAL);
            return None;
        }
        Some(due)
    }

    /// Removes peers that are no longer held back; returns `false` if none is left.
    pub(crate) fn retain(&mut self, is_held_back: impl FnMut(&PeerId) -> bool) -> bool {
        self.peers.retain(is_held_back);
        if self.peers.is_empty() {
            self.due = Some(Instant::NEVER);
            self.error = None;
        }
        !self.peers.is_empty()
    }

    /// Returns the peers that may be held back.
    pub(crate) fn peers(&self) -> Vec<PeerId> {
        self.peers.clone()
    }

    /// Records the number of messages `given` to the program. Returns `None` if it has taken a
    /// message since the last check, otherwise whether it was given none either.
    pub(crate) fn on_progress(&mut self, now: Instant, given: u64) -> Option<bool> {
        let seen = (self.taken, given);
        let before = core::mem::replace(&mut self.seen, seen);
        if before.0 != seen.0 {
            self.stuck_for = Duration::ZERO;
            self.due = Some(now + RETURN_CREDIT_AFTER);
            return None;
        }
        Some(before == seen)
    }

    /// Ends a check that was `due`. `returned_early` is set if credit was returned early, `stuck`
    /// if peers appear to be stuck for good. Returns true if that has lasted long enough to fail
    /// their receives.
    pub(crate) fn end_check(
        &mut self,
        (now, due): (Instant, Instant),
        returned_early: bool,
        stuck: bool,
    ) -> bool {
        let next = if returned_early {
            RETURN_CREDIT_AFTER
        } else {
            CHECK_INTERVAL
        };
        self.due = Some(now + next);
        let (passed, turns) = self.passed;
        let ends = stuck && {
            let waits = self.in_call || turns >= POLLING_TURNS;
            self.stuck_for += match waits {
                true => passed.min(CHECK_SPAN_MAX),
                false if now <= due + CHECK_INTERVAL => CHECK_INTERVAL.into(),
                false => Duration::ZERO,
            };
            self.stuck_for >= STUCK_FOR
        };
        if !stuck {
            self.error = None;
        }
        if !stuck || ends {
            self.stuck_for = Duration::ZERO;
        }
        ends
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Number of checks, 100 ms apart, until receives fail.
    fn checks(in_call: bool, turns: u32) -> Option<u32> {
        let mut shortage = Shortage::default();
        shortage.note(PeerId(1));
        let mut now = Instant::from_nanos(1_000_000_000);
        assert_eq!(shortage.begin_check(now), None);
        (1..1000).find(|check| {
            now = now + Span::from_millis(100);
            shortage.note_turn(check * turns, in_call);
            let due = shortage.begin_check(now).unwrap();
            shortage.end_check((now, due), false, true)
        })
    }

    // P4.15
    #[test]
    fn late_checks_count_elapsed_time_while_waiting() {
        assert_eq!(checks(true, 1), Some(50));
        assert_eq!(checks(false, POLLING_TURNS), Some(50));
        assert_eq!(checks(false, 1), None, "it computes between its calls");
    }
}
