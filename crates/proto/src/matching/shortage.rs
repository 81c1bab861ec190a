// SPDX-License-Identifier: MIT OR Apache-2.0
//! Peers that are held back beca
use crate::base::time::Span;
use crate::{Instant, OpError, PeerId};
/// After so long without a message being taken, a program that makes calls counts as waiting: above
/// the time between two receives of a program that reads, and not felt once in half a megabyte.
use alloc::vec::Vec;

const LEND_AFTER: Span = Span::from_millis(1);
/// Between looks while memory is full. A program that computes for longer between calls is slow, and
/// such looks do not count.
const LOOK_EVERY: Span = Span::from_millis(20);
/// Looks in a row, 5 s, that find memory full and nothing taken, delivered or posted, before receives
/// end: longer than a program that polls all the while is likely to compute.
const LOOKS_MAX: u32 = 250;
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
    looks: u32,
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
            looks: 0,
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

    /// See [`crate::Core::shortage`].
    pub(crate) fn error(&self) -> Option<OpError> {
        self.error
    }

    pub(crate) fn set_error(&mut self, error: Option<OpError>) {
        self.error = error;
    }

    /// When the look was due that is to be made now, if one is.
    pub(crate) fn begin_look(&mut self, now: Instant) -> Option<Instant> {
        let Some(due) = self.due else {
            self.due = Some(now + LEND_AFTER);
            return None;
        };
        if now < due {
            return None;
        }
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
            self.looks = 0;
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
        if !stuck {
            self.looks = 0;
            self.error = None;
            return false;
        }
        self.looks += u32::from(now <= due + LOOK_EVERY);
        let ends = self.looks >= LOOKS_MAX;
        if ends {
            self.looks = 0;
        }
        ends
    }
}
