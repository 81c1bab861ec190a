// SPDX-License-Identifier: MIT OR Apache-2.0
//! Detects that a peer is held back by credit that its unread messages hold, or by full memory
//! (`P4.14`). Also returns credit early.

use super::{Env, Lanes};
use crate::Instant;
use crate::base::context::Context;
use crate::base::credit::charge;
use crate::base::time::Span;
use portolan_wire::LaneId;

/// Time within which a peer retransmits a frame that was refused for lack of memory: several times
/// the maximum timeout.
const REFUSED_FOR: Span = Span::from_millis(500);

/// State of one peer that may be held back.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HeldBack {
    /// Set while in the list of held-back peers.
    is_listed: bool,
    /// Time when a frame of the peer was last refused for lack of memory.
    refused_at: Option<Instant>,
    /// Count of taken messages when credit was last returned early. While the count is the same,
    /// the program takes no messages, and the credit of further ones is returned on arrival.
    returns_early_at: Option<u64>,
}

impl Lanes {
    /// Handles a waiting message that a receive has taken. Returns its credit to the peer, less the
    /// credit that was returned early. `P4.4`, `P4.14`
    #[inline(always)]
    pub(crate) fn on_taken(
        &mut self,
        env: &mut Env<'_>,
        lane: LaneId,
        holds_credit: bool,
        charge: u32,
    ) {
        env.sh.shortage.on_taken();
        if holds_credit {
            let back = self.rx[lane.index()].end_waiting(charge);
            self.consume(env, lane, back);
        }
    }

    /// Handles a message that was delivered in order and waits for a receive. `free` is set if its
    /// credit is returned at once, because memory is ample.
    pub(crate) fn on_unexpected(
        &mut self,
        env: &mut Env<'_>,
        lane: LaneId,
        charge: u32,
        free: bool,
    ) {
        let returns_early =
            self.held_back.returns_early_at == Some(env.sh.shortage.taken()) && !env.sh.is_full();
        if free || returns_early {
            self.return_early(env, lane, charge);
        } else if self.is_short(&env.sh.ctx, lane) {
            self.note_held_back(env);
        }
    }

    /// Records that a frame of the peer was refused. `P3.10`
    #[cold]
    pub(crate) fn on_refused(&mut self, now: Instant, env: &mut Env<'_>) {
        self.held_back.refused_at = Some(now);
        self.note_held_back(env);
    }

    #[cold]
    fn note_held_back(&mut self, env: &mut Env<'_>) {
        if !core::mem::replace(&mut self.held_back.is_listed, true) {
            env.sh.shortage.note(env.peer);
        }
    }

    /// Returns credit early.
    fn return_early(&mut self, env: &mut Env<'_>, lane: LaneId, charge: u32) {
        let returned_early = self.rx[lane.index()].return_early(charge);
        self.consume(env, lane, returned_early);
    }

    /// Returns true if the credit that waiting messages hold may block the peer. It needs enough
    /// for the longest eager message, and at least an eighth of the credit: a blocked sender
    /// resumes its lane only with that much.
    fn is_short(&self, ctx: &Context, lane: LaneId) -> bool {
        let rx = &self.rx[lane.index()];
        let longest = charge(ctx.eager_taken_max());
        rx.holds_credit() && !rx.has_room(longest.max(ctx.credit_len() / 8))
    }

    fn was_refused(&self, now: Instant) -> bool {
        let at = self.held_back.refused_at;
        at.is_some_and(|at| now.since(at) < REFUSED_FOR.into())
    }

    /// Checks whether the peer is held back, and updates its mark in the list.
    pub(crate) fn check_held_back(&mut self, now: Instant, ctx: &Context, is_up: bool) -> bool {
        self.held_back.is_listed = is_up && self.is_held_back(now, ctx);
        self.held_back.is_listed
    }

    fn is_held_back(&self, now: Instant, ctx: &Context) -> bool {
        let short = LaneId::ALL.iter().any(|&lane| self.is_short(ctx, lane));
        short || self.was_refused(now)
    }

    /// Gives back as much credit as possible early. Returns `false` if there is none to give back.
    pub(crate) fn relieve(&mut self, env: &mut Env<'_>) -> bool {
        if env.sh.is_full() {
            return false;
        }
        self.held_back.returns_early_at = Some(env.sh.shortage.taken());
        let mut any = false;
        for lane in LaneId::ALL {
            // P4.8
            if self.is_short(&env.sh.ctx, lane) && !self.rx[lane.index()].has_matched() {
                self.return_early(env, lane, u32::MAX);
                self.credit_due[lane.index()] = true;
                any = true;
            }
        }
        any
    }
}
