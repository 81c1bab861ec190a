// SPDX-License-Identifier: MIT OR Apache-2.0
//! Relief of peers that are held back while the program waits for messages behind those it has not
//! read (`P4.14`, `P4.15`).

use crate::matching::port::Posted;
use crate::{Core, Event, Instant, OpError, PeerId};
use alloc::vec::Vec;

impl Core {
    /// Checks the peers that are held back, if a check is due.
    pub(crate) fn check_shortage(&mut self, now: Instant) {
        let Some(due) = self.sh.shortage.begin_check(now) else {
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
        let (stuck, returned_early) = self.relieve_waited_for();
        let awaited = self.sh.matching.lists().forget_missed();
        let is_stuck = is_idle && !stuck.is_empty();
        if self
            .sh
            .shortage
            .end_check((now, due), returned_early, is_stuck)
        {
            self.end_stuck(&stuck, awaited);
        }
    }

    /// Sets whether another thread makes the following calls for the program, which computes and
    /// waits for nothing.
    pub fn set_away(&mut self, away: bool) {
        self.sh.shortage.set_away(away);
    }

    /// Records the number of the engine's turn, for the following timers, and whether the program
    /// waits in a call. `P4.15`
    pub fn note_turn(&mut self, turn: u32, in_call: bool) {
        self.sh.shortage.note_turn(turn, in_call);
    }

    /// Returns the reason why a message cannot arrive for a receive that searches without being
    /// posted; `None` while it may. `P4.15`
    #[must_use]
    pub fn shortage(&self) -> Option<OpError> {
        self.sh.shortage.error()
    }

    /// Returns credit early to peers from which something is awaited. Returns the peers for which
    /// that was impossible, and whether any other received some.
    fn relieve_waited_for(&mut self) -> (Vec<PeerId>, bool) {
        let (mut stuck, mut returned_early) = (Vec::new(), false);
        for id in self.sh.shortage.peers() {
            let Some(Some(peer)) = self.peers.get_mut(id.index()) else {
                continue;
            };
            let awaited = self.sh.matching.expects_from(id);
            // A program that waits to send, to a peer that does the same, takes no messages either.
            if !awaited && !peer.is_starved() {
                continue;
            }
            let (lanes, env) = &mut peer.lanes(&mut self.sh);
            if lanes.relieve(env) {
                returned_early = true;
                self.touch(id);
            } else if self.sh.is_full() {
                stuck.push(id);
            }
        }
        (stuck, returned_early)
    }

    /// Fails the receives that messages of these peers could have satisfied. `P4.15`
    fn end_stuck(&mut self, stuck: &[PeerId], awaited: bool) {
        let error = OpError::MemoryFull {
            held_len: self.sh.unexpected_len() as u64,
            limit: self.sh.ctx.limits().held_len_max as u64,
        };
        let is_selected =
            |posted: &Posted| posted.source.is_none_or(|source| stuck.contains(&source));
        let ops = self.sh.matching.take_where(is_selected);
        self.sh.shortage.set_error(awaited.then_some(error));
        self.sh.ctx.emit(Event::MemoryFull {
            peer: stuck[0],
            error,
        });
        for op in ops {
            self.sh.ctx.emit(Event::RecvFailed { op, error });
        }
    }
}
