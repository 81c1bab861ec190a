// SPDX-License-Identifier: MIT OR Apache-2.0
//! Looks after peers that are held back, while the program waits for something behind what it has not
//! read (`P4.14`, `P4.15`).

use crate::matching::port::Posted;
use crate::{Core, Event, Instant, OpError, PeerId};
use alloc::vec::Vec;

impl Core {
    /// Does what is due for peers that are held back.
    pub(crate) fn look_at_shortage(&mut self, now: Instant) {
        let Some(due) = self.sh.shortage.begin_look(now) else {
            return;
        };
        let Core { peers, sh, .. } = self;
        let mut shortage = core::mem::take(&mut sh.shortage);
        let any = shortage.retain(|id| {
            let peer = peers.get_mut(id.index()).and_then(Option::as_deref_mut);
            peer.is_some_and(|peer| peer.check_held_back(now, &sh.ctx))
        });
        sh.shortage = shortage;
        if !any {
            self.sh.matching.lists().forget_missed();
            return;
        }
        let given = self.sh.ctx.counters().messages_received;
        let Some(is_idle) = self.sh.shortage.on_progress(now, given) else {
            return;
        };
        let (stuck, lent) = self.relieve_waited_for();
        let looked_for = self.sh.matching.lists().forget_missed();
        let is_stuck = is_idle && !stuck.is_empty();
        if self.sh.shortage.end_look((now, due), lent, is_stuck) {
            self.end_stuck(&stuck, looked_for);
        }
    }

    /// Tells whether the calls that follow are made by another than the program, while that computes and
    /// waits for nothing.
    pub fn set_away(&mut self, away: bool) {
        self.sh.shortage.set_away(away);
    }

    /// Notes which turn of its engine this is, for the timers that follow, and whether the program waits in
    /// a call. `P4.15`
    pub fn note_turn(&mut self, turn: u32, in_call: bool) {
        self.sh.shortage.note_turn(turn, in_call);
    }

    /// Why a message that is looked for, and not by a posted receive, cannot come; `None` while it may.
    /// `P4.15`
    #[must_use]
    pub fn shortage(&self) -> Option<OpError> {
        self.sh.shortage.error()
    }

    /// Lends to those from whom something is waited for; returns those to whom nothing can be lent, and
    /// whether to others something was.
    fn relieve_waited_for(&mut self) -> (Vec<PeerId>, bool) {
        let (mut stuck, mut lent) = (Vec::new(), false);
        for id in self.sh.shortage.peers() {
            let Some(Some(peer)) = self.peers.get_mut(id.index()) else {
                continue;
            };
            let awaited = self.sh.matching.wants_from(id);
            // A program that waits to send, to a peer that does the same, takes nothing either.
            if !awaited && !peer.is_starved() {
                continue;
            }
            let (lanes, env) = &mut peer.lanes(&mut self.sh);
            if lanes.relieve(env) {
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
        self.sh.shortage.set_error(looked_for.then_some(error));
        self.sh.ctx.emit(Event::MemoryFull {
            peer: stuck[0],
            error,
        });
        for op in ops {
            self.sh.ctx.emit(Event::RecvFailed { op, error });
        }
    }
}
