// SPDX-License-Identifier: MIT OR Apache-2.0
//! Peers that are held back because of what the program has not read, and for how long it has waited in
//! vain for what is behind that (`P4.14`, `P4.15`).

use crate::base::time::Span;
use crate::{Instant, OpError, PeerId};
use alloc::vec::Vec;
use core::time::Duration;

/// After so long without a message being taken, a program that makes calls counts as waiting: above
/// the time between two receives of a program that reads, and not felt once in half a megabyte.
const LEND_AFTER: Span = Span::from_millis(1);
/// Between looks while memory is full. A program that computes for longer between calls is slow, and
/// such looks do not count.
const LOOK_EVERY: Span = Span::from_millis(20);
/// Time that memory was full while nothing was taken, delivered or posted, before receives end: longer
/// than a program that polls all the while is likely to compute.
const STUCK_FOR: Duration = Duration::from_secs(5);
/// Turns between two looks by which a program is known to do nothing but poll: if the look comes late,
/// it is the system that has kept the process waiting.
const POLLING_TURNS: u32 = 64;
/// Most that one look counts for: a process may have been stopped before it.
const LOOK_MAX: Duration = Duration::from_secs(1);

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Shortage {
    /// Peers that may be held back; each is marked.
    peers: Vec<PeerId>,
    /// The next look; at once when the time is not known.
    due: Option<Instant>,
    /// Messages that waited and were taken.
    taken: u64,
    /// The same, and what the program was given, at the last look.
    seen: (u64, u64),
    /// For how long memory has been full while nothing moved.
    stuck_for: Duration,
    /// Turns of the engine so far, and whether the program waits in a call.
    turn: u32,
    in_call: bool,
    /// Time and turn of the last look, and what passed since the one before it.
    last: (Instant, u32),
    passed: (Duration, u32),
    /// Somebody carries on for the program, which computes.
    away: bool,
    /// Receives that were looked for, not posted, end with this.
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
    /// When to look.
    #[inline]
    pub(crate) fn timer(&self) -> Instant {
        self.due.unwrap_or_default()
    }

    /// A peer may be held back, which is not listed yet.
    #[cold]
    pub(crate) fn note(&mut self, peer: PeerId) {
        self.peers.push(peer);
        if self.due == Some(Instant::NEVER) {
            self.due = None;
        }
    }

    /// Messages that waited and were taken so far.
    #[inline]
    pub(crate) fn taken(&self) -> u64 {
        self.taken
    }

    /// A message that waited has been taken.
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

    /// When the look was due that is to be made now, if one is.
    pub(crate) fn begin_look(&mut self, now: Instant) -> Option<Instant> {
        if self.due.is_some_and(|due| now < due) {
            return None;
        }
        let (time, turn) = core::mem::replace(&mut self.last, (now, self.turn));
        self.passed = (now.since(time), self.turn.wrapping_sub(turn));
        let Some(due) = self.due else {
            self.due = Some(now + LEND_AFTER);
            return None;
        };
        if self.away {
            self.due = Some(now + LOOK_EVERY);
            return None;
        }
        Some(due)
    }

    /// Takes peers off the list that are no longer held back; `false` if none is left: then there is
    /// nothing to look after.
    pub(crate) fn retain(&mut self, is_held_back: impl FnMut(&PeerId) -> bool) -> bool {
        self.peers.retain(is_held_back);
        if self.peers.is_empty() {
            self.due = Some(Instant::NEVER);
            self.error = None;
        }
        !self.peers.is_empty()
    }

    /// The peers that may be held back.
    pub(crate) fn peers(&self) -> Vec<PeerId> {
        self.peers.clone()
    }

    /// Notes what the program was `given` so far. `None` if it has taken a message since the last
    /// look; else whether it was given none either.
    pub(crate) fn on_progress(&mut self, now: Instant, given: u64) -> Option<bool> {
        let seen = (self.taken, given);
        let before = core::mem::replace(&mut self.seen, seen);
        if before.0 != seen.0 {
            self.stuck_for = Duration::ZERO;
            self.due = Some(now + LEND_AFTER);
            return None;
        }
        Some(before == seen)
    }

    /// Ends a look that was `due`: something was `lent`, and peers are `stuck` for good, for all that
    /// one look can see. Whether it has lasted long enough for their receives to end.
    pub(crate) fn end_look(
        &mut self,
        (now, due): (Instant, Instant),
        lent: bool,
        stuck: bool,
    ) -> bool {
        let next = if lent { LEND_AFTER } else { LOOK_EVERY };
        self.due = Some(now + next);
        let (passed, turns) = self.passed;
        let ends = stuck && {
            let waits = self.in_call || turns >= POLLING_TURNS;
            self.stuck_for += match waits {
                true => passed.min(LOOK_MAX),
                false if now <= due + LOOK_EVERY => LOOK_EVERY.into(),
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

    /// Looks, 100 ms apart, until receives end.
    fn looks(in_call: bool, turns: u32) -> Option<u32> {
        let mut shortage = Shortage::default();
        shortage.note(PeerId(1));
        let mut now = Instant::from_nanos(1_000_000_000);
        assert_eq!(shortage.begin_look(now), None);
        (1..1000).find(|look| {
            now = now + Span::from_millis(100);
            shortage.note_turn(look * turns, in_call);
            let due = shortage.begin_look(now).unwrap();
            shortage.end_look((now, due), false, true)
        })
    }

    // P4.15
    #[test]
    fn late_looks_of_a_program_that_waits_count_for_the_time_that_has_passed() {
        assert_eq!(looks(true, 1), Some(50));
        assert_eq!(looks(false, POLLING_TURNS), Some(50));
        assert_eq!(looks(false, 1), None, "it computes between its calls");
    }
}
