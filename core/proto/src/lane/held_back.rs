// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a peer is held back by: credit that its unread messages keep, or memory that is full
//! (`P4.14`). What is lent is accounted for here.

use super::{Env, Lanes};
use crate::Instant;
use crate::base::context::Context;
use crate::base::credit::charge;
use crate::base::time::Span;
use portolan_wire::LaneId;

/// A peer whose frame was refused for lack of memory sends it again within this: several times the
/// ceiling of the timeout.
const REFUSED_FOR: Span = Span::from_millis(500);

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

impl Lanes {
    /// A message that waited has been taken by a receive: what it cost comes back, but what was lent
    /// goes off first. `P4.4`, `P4.14`
    pub(crate) fn on_taken(
        &mut self,
        env: &mut Env<'_>,
        lane: LaneId,
        keeps_credit: bool,
        charge: u32,
    ) {
        env.sh.shortage.on_taken();
        if keeps_credit {
            let back = self.rx[lane.index()].end_waiting(charge);
            self.consume(env, lane, back);
        }
    }

    /// A message has left its lane and waits; `free`: its credit may come back while memory is ample.
    pub(crate) fn on_aside(&mut self, env: &mut Env<'_>, lane: LaneId, charge: u32, free: bool) {
        let lends = self.held_back.lends_at == Some(env.sh.shortage.taken()) && !env.sh.is_full();
        if free || lends {
            self.lend(env, lane, charge);
        } else if self.is_short(&env.sh.ctx, lane) {
            self.note_held_back(env);
        }
    }

    /// A frame of it was refused. `P3.10`
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

    /// Gives credit back ahead of its time.
    fn lend(&mut self, env: &mut Env<'_>, lane: LaneId, charge: u32) {
        let lent = self.rx[lane.index()].lend(charge);
        self.consume(env, lane, lent);
    }

    /// What waits of this lane may keep a message back: the longest that does not ask, or any, as a
    /// sender that was refused takes up its lane again with an eighth of the credit.
    fn is_short(&self, ctx: &Context, lane: LaneId) -> bool {
        let rx = &self.rx[lane.index()];
        let longest = charge(ctx.eager_taken_max());
        rx.keeps_credit() && !rx.has_room(longest.max(ctx.credit_len() / 8))
    }

    fn was_refused(&self, now: Instant) -> bool {
        let at = self.held_back.refused_at;
        at.is_some_and(|at| now.since(at) < REFUSED_FOR.into())
    }

    /// Whether it is, as far as is known; notes that it stands in the list while it is.
    pub(crate) fn check_held_back(&mut self, now: Instant, ctx: &Context, is_up: bool) -> bool {
        self.held_back.is_listed = is_up && self.is_held_back(now, ctx);
        self.held_back.is_listed
    }

    fn is_held_back(&self, now: Instant, ctx: &Context) -> bool {
        let short = LaneId::ALL.iter().any(|&lane| self.is_short(ctx, lane));
        short || self.was_refused(now)
    }

    /// Lends all that it can; `false` if that is nothing.
    pub(crate) fn relieve(&mut self, env: &mut Env<'_>) -> bool {
        if env.sh.is_full() {
            return false;
        }
        self.held_back.lends_at = Some(env.sh.shortage.taken());
        let mut any = false;
        for lane in LaneId::ALL {
            // P4.8
            if self.is_short(&env.sh.ctx, lane) && !self.rx[lane.index()].has_matched() {
                self.lend(env, lane, u32::MAX);
                self.credit_due[lane.index()] = true;
                any = true;
            }
        }
        any
    }
}
