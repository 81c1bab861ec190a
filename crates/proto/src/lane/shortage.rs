// SPDX-License-Identifier: MIT OR Apache-2.0
//! Peers that are held back because this program has not read what they sent: what is done for them
//! when it waits for something behind that (`P4.14`, `P4.15`).
//!
//! A program that is merely slow takes what waits, however seldom, and its credit comes back as it
//! does. One that waits takes nothing: the first look that finds this lends credit. With memory full
//! there is nothing to lend; when that lasts, the receives that cannot be filled end.
//!
//! The one invariant: no lane has more credit lent than its messages that wait have cost.

use crate::base::credit::charge;
use crate::base::time::Span;
use crate::matching::port::Posted;
use crate::peer::Peer;
use crate::shared::Shared;
use crate::{Core, Event, Instant, OpError, PeerId};
use alloc::vec::Vec;
use portolan_wire::LaneId;

/// After so long without a message being taken, a program that makes calls counts as waiting: above
/// the time between two receives of a program that reads, and not felt once in half a megabyte.
const LEND_AFTER: Span = Span::from_millis(1);
/// Between looks while memory is full. A program that computes for longer between calls is slow, and
/// such looks do not count.
const LOOK_EVERY: Span = Span::from_millis(20);
/// Looks in a row, 5 s, that find memory full and nothing taken, delivered or posted, before receives
/// end: longer than a program that polls all the while is likely to compute.
const LOOKS_MAX: u32 = 250;
/// A peer whose frame was refused for lack of memory sends it again within this: several times the
/// ceiling of the timeout.
const REFUSED_FOR: Span = Span::from_millis(500);

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

    #[cold]
    fn note(&mut self, peer: PeerId) {
        self.peers.push(peer);
        if self.due == Some(Instant::NEVER) {
            self.due = None;
        }
    }
}

/// What one peer is held back by.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HeldBack {
    /// It stands in the list.
    is_listed: bool,
    /// When a frame of it was refused for lack of memory.
    refused_at: Option<Instant>,
    /// What its messages cost comes back at once, until the program has taken more than then.
    lends_at: Option<u64>,
}

impl Peer {
    /// A message that waited has been taken by a receive: what it cost comes back, but what was lent
    /// goes off first. `P4.4`, `P4.14`
    pub(crate) fn on_taken(
        &mut self,
        sh: &mut Shared,
        lane: LaneId,
        keeps_credit: bool,
        charge: u32,
    ) {
        sh.shortage.taken += 1;
        if keeps_credit {
            let back = self.lanes_rx[lane.index()].end_waiting(charge);
            self.consume(sh, lane, back);
        }
    }

    /// A message has left its lane and waits; `free`: its credit may come back while memory is ample.
    pub(crate) fn on_aside(&mut self, sh: &mut Shared, lane: LaneId, charge: u32, free: bool) {
        let lends = self.held_back.lends_at == Some(sh.shortage.taken) && !sh.is_full();
        if free || lends {
            self.lend(sh, lane, charge);
        } else if self.is_short(sh, lane) {
            self.note_held_back(sh);
        }
    }

    /// A frame of it was refused. `P3.10`
    #[cold]
    pub(crate) fn on_refused(&mut self, now: Instant, sh: &mut Shared) {
        self.held_back.refused_at = Some(now);
        self.note_held_back(sh);
    }

    #[cold]
    fn note_held_back(&mut self, sh: &mut Shared) {
        if !core::mem::replace(&mut self.held_back.is_listed, true) {
            sh.shortage.note(self.id);
        }
    }

    /// Gives credit back ahead of its time.
    fn lend(&mut self, sh: &mut Shared, lane: LaneId, charge: u32) {
        let lent = self.lanes_rx[lane.index()].lend(charge);
        self.consume(sh, lane, lent);
    }

    /// What waits of this lane may keep a message back: the longest that does not ask, or any, as a
    /// sender that was refused takes up its lane again with an eighth of the credit.
    fn is_short(&self, sh: &Shared, lane: LaneId) -> bool {
        let rx = &self.lanes_rx[lane.index()];
        let longest = charge(sh.ctx.eager_taken_max());
        rx.keeps_credit() && !rx.has_room(longest.max(sh.ctx.credit_len() / 8))
    }

    fn was_refused(&self, now: Instant) -> bool {
        let at = self.held_back.refused_at;
        at.is_some_and(|at| now.since(at) < REFUSED_FOR.into())
    }

    fn is_held_back(&self, now: Instant, sh: &Shared) -> bool {
        let short = LaneId::ALL.iter().any(|&lane| self.is_short(sh, lane));
        self.session.up && (short || self.was_refused(now))
    }

    /// Lends all that it can; `false` if that is nothing.
    fn relieve(&mut self, sh: &mut Shared) -> bool {
        if sh.is_full() {
            return false;
        }
        self.held_back.lends_at = Some(sh.shortage.taken);
        let mut any = false;
        for lane in LaneId::ALL {
            // P4.8
            if self.is_short(sh, lane) && !self.lanes_rx[lane.index()].has_matched() {
                self.lend(sh, lane, u32::MAX);
                self.credit_due[lane.index()] = true;
                any = true;
            }
        }
        any
    }
}

impl Core {
    /// Does what is due for peers that are held back.
    pub(crate) fn look_at_shortage(&mut self, now: Instant) {
        let Some(due) = self.sh.shortage.due else {
            self.sh.shortage.due = Some(now + LEND_AFTER);
            return;
        };
        if now < due {
            return;
        }
        if self.sh.shortage.away {
            self.sh.shortage.due = Some(now + LOOK_EVERY);
            return;
        }
        self.forget_the_relieved(now);
        if self.sh.shortage.peers.is_empty() {
            self.sh.shortage.due = Some(Instant::NEVER);
            self.sh.shortage.error = None;
            self.sh.matching.lists().forget_missed();
            return;
        }
        let given = self.sh.ctx.counters_mut().messages_received;
        let seen = (self.sh.shortage.taken, given);
        let before = core::mem::replace(&mut self.sh.shortage.seen, seen);
        if before.0 != seen.0 {
            self.sh.shortage.looks = 0;
            self.sh.shortage.due = Some(now + LEND_AFTER);
            return;
        }
        let (stuck, lent) = self.relieve_waited_for();
        let next = if lent { LEND_AFTER } else { LOOK_EVERY };
        self.sh.shortage.due = Some(now + next);
        let looked_for = self.sh.matching.lists().forget_missed();
        if stuck.is_empty() || before != seen {
            self.sh.shortage.looks = 0;
            self.sh.shortage.error = None;
            return;
        }
        self.sh.shortage.looks += u32::from(now <= due + LOOK_EVERY);
        if self.sh.shortage.looks >= LOOKS_MAX {
            self.sh.shortage.looks = 0;
            self.end_stuck(&stuck, looked_for);
        }
    }

    /// Tells whether the calls that follow are made by another than the program, while that computes and
    /// waits for nothing.
    pub fn set_away(&mut self, away: bool) {
        self.sh.shortage.away = away;
    }

    /// Why a message that is looked for, and not by a posted receive, cannot come; `None` while it may.
    /// `P4.15`
    #[must_use]
    pub fn shortage(&self) -> Option<OpError> {
        self.sh.shortage.error
    }

    fn forget_the_relieved(&mut self, now: Instant) {
        let Core { peers, sh, .. } = self;
        let mut listed = core::mem::take(&mut sh.shortage.peers);
        listed.retain(|id| {
            let Some(Some(peer)) = peers.get_mut(id.index()) else {
                return false;
            };
            peer.held_back.is_listed = peer.is_held_back(now, sh);
            peer.held_back.is_listed
        });
        sh.shortage.peers = listed;
    }

    /// Lends to those from whom something is waited for; returns those to whom nothing can be lent, and
    /// whether to others something was.
    fn relieve_waited_for(&mut self) -> (Vec<PeerId>, bool) {
        let (mut stuck, mut lent) = (Vec::new(), false);
        for index in 0..self.sh.shortage.peers.len() {
            let id = self.sh.shortage.peers[index];
            let Some(Some(peer)) = self.peers.get_mut(id.index()) else {
                continue;
            };
            let awaited = self.sh.matching.wants_from(id);
            // A program that waits to send, to a peer that does the same, takes nothing either.
            if !awaited && !peer.is_starved() {
                continue;
            }
            if peer.relieve(&mut self.sh) {
                lent = true;
                self.touch(id);
            } else if self.sh.is_full() {
                stuck.push(id);
            }
        }
        (stuck, lent)
    }

    /// Ends the receives that messages of these peers could have filled. `P4.15`
    fn end_stuck(&mut self, stuck: &[PeerId], looked_for: bool) {
        let error = OpError::MemoryFull {
            held_len: self.sh.unexpected_len() as u64,
            limit: self.sh.ctx.limits().held_len_max as u64,
        };
        let wanted = |posted: &Posted| posted.source.is_none_or(|source| stuck.contains(&source));
        let ops = self.sh.matching.take_where(wanted);
        self.sh.shortage.error = looked_for.then_some(error);
        self.sh.ctx.emit(Event::MemoryFull {
            peer: stuck[0],
            error,
        });
        for op in ops {
            self.sh.ctx.emit(Event::RecvFailed { op, error });
        }
    }
}
