// SPDX-License-Identifier: MIT OR Apache-2.0
//! Assembly of best-effort messages of several frames. Their parts gather in held memory until all
//! have arrived. A message that stays incomplete is dropped as a whole (`P7.7`, `P7.8`).
//!
//! Invariant: at most [`INCOMPLETE_MAX`] messages of a lane hold memory here, none for longer than
//! twice [`LIFETIME`], and none is visible before it is complete.

use super::best_effort::Seen;
use super::{Env, Lanes};
use crate::base::coverage::Coverage;
use crate::base::time::Span;
use crate::matching::port::{Match, Waiting};
use crate::mem::slot::FRAGMENTED_LEN_MAX;
use crate::{Data, Dest, DropReason, Event, HeldId, Instant, OpError, PortId};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Range;
use portolan_wire::{BestEffortPart, LaneId};

/// Maximum number of incomplete messages of one lane. The parts of a message are sent
/// consecutively, so more than one is incomplete only after reordering or loss.
const INCOMPLETE_MAX: usize = 4;

/// Maximum time that a message may be incomplete: hundreds of round trips of a local network, and
/// longer than usual scheduling delays.
const LIFETIME: Span = Span::from_millis(100);

/// Incomplete messages of one peer, and the numbers that have arrived, by lane.
#[derive(Debug, Default)]
pub(super) struct Assembly {
    lanes: [LaneAssembly; 2],
}

#[derive(Debug, Default)]
struct LaneAssembly {
    seen: Seen<32>,
    /// In the order of their first parts.
    incomplete: Vec<Incomplete>,
    /// Number of a message that a receive waits for without being posted.
    awaited: Option<u32>,
}

#[derive(Debug)]
struct Incomplete {
    number: u32,
    port: PortId,
    len: u32,
    held: HeldId,
    received: Coverage,
    expires_at: Instant,
    /// Set after the lifetime was extended because missing parts may be unread in a link. It is
    /// extended once: a process that sleeps until the expiry would find the same the next time.
    extended: bool,
}

impl Assembly {
    /// Returns true if no message is incomplete.
    pub(super) fn is_empty(&self) -> bool {
        self.lanes.iter().all(|lane| lane.incomplete.is_empty())
    }

    /// Returns the time when the first message expires.
    fn timer(&self) -> Instant {
        let all = self.lanes.iter().flat_map(|lane| &lane.incomplete);
        let first = all.map(|message| message.expires_at).min();
        first.unwrap_or(Instant::NEVER)
    }
}

impl LaneAssembly {
    /// Returns the index of the incomplete message that `part` belongs to. Adds it for its first
    /// part.
    fn place(
        &mut self,
        now: Instant,
        env: &mut Env<'_>,
        part: &BestEffortPart,
    ) -> Result<usize, DropReason> {
        let port = port_of(part);
        let known = self.incomplete.iter().position(|m| m.number == part.number);
        if let Some(index) = known {
            let message = &self.incomplete[index];
            let agrees = (message.len, message.port) == (part.message_len, port);
            return agrees.then_some(index).ok_or(DropReason::BadFragment);
        }
        if part.message_len as usize > FRAGMENTED_LEN_MAX {
            return Err(DropReason::BadFragment);
        }
        // Late parts of a message that was delivered or dropped are duplicates here.
        self.seen.admit(part.number)?.count(&mut env.sh.ctx);
        // P7.8
        if env.sh.is_full() {
            return Err(DropReason::NoMemory);
        }
        if self.incomplete.len() == INCOMPLETE_MAX {
            self.incomplete.remove(0).discard(env);
        }
        self.incomplete.push(Incomplete {
            number: part.number,
            port,
            len: part.message_len,
            held: env.sh.held.take(part.message_len as usize),
            received: Coverage::default(),
            expires_at: now + LIFETIME,
            extended: false,
        });
        Ok(self.incomplete.len() - 1)
    }

    /// Drops expired messages. `is_behind` is set if missing parts may be unread in this process's
    /// links.
    fn drop_expired(&mut self, now: Instant, env: &mut Env<'_>, is_behind: bool) {
        while let Some(index) = self.incomplete.iter().position(|m| m.expires_at <= now) {
            let message = &mut self.incomplete[index];
            if is_behind && !core::mem::replace(&mut message.extended, true) {
                message.expires_at = now + LIFETIME;
                continue;
            }
            self.incomplete.remove(index).discard(env);
        }
    }
}

impl Incomplete {
    #[cold]
    fn discard(self, env: &mut Env<'_>) {
        env.sh.forget_held(&[self.held]);
        env.sh.ctx.drop_for(DropReason::BestEffortIncomplete);
    }
}

impl Lanes {
    /// Handles a part of a best-effort message. `P7.7`
    pub(crate) fn on_best_effort_part(
        &mut self,
        now: Instant,
        env: &mut Env<'_>,
        part: &BestEffortPart,
        payload: Range<usize>,
    ) -> Result<(), DropReason> {
        let assembly = self.assembly.get_or_insert_with(Box::default);
        let rx = &mut assembly.lanes[part.lane.index()];
        let index = rx.place(now, env, part)?;
        let message = &mut rx.incomplete[index];
        let (start, end) = (part.offset, part.offset + u32::from(part.len));
        if message.received.insert(start.into(), end.into()) == 0 {
            return Err(DropReason::Duplicate);
        }
        let dest = Dest::Held(message.held, start as usize);
        env.sh.ctx.emit(Event::Place { dest, src: payload });
        if !message.received.reaches(message.len.into()) {
            return Ok(());
        }
        let message = rx.incomplete.remove(index);
        let is_awaited = rx.awaited.take_if(|number| *number == message.number);
        self.deliver_assembled(env, part.lane, &message, is_awaited.is_some())
    }

    /// Delivers a complete message.
    fn deliver_assembled(
        &mut self,
        env: &mut Env<'_>,
        lane: LaneId,
        message: &Incomplete,
        is_awaited: bool,
    ) -> Result<(), DropReason> {
        let (port, len, held) = (message.port, u64::from(message.len), message.held);
        let from = (env.peer, lane);
        let matching = &mut env.sh.matching;
        let (op, error) = match matching.find_at_port(port, env.peer, lane) {
            Match::InPlace => (None, None),
            Match::Posted(posted) => (Some(posted.op), OpError::truncated(len, posted.len)),
            Match::Nothing if is_awaited && matching.port(port).is_some_and(|p| p.is_quiet()) => {
                let (ctx, to) = (&mut env.sh.ctx, port.into());
                matching.queue_unexpected(ctx, from, &to, len, false, Waiting::Held(held));
                return Ok(());
            }
            // P7.3
            Match::Nothing | Match::Discarded => {
                env.sh.forget_held(&[held]);
                return Err(DropReason::BestEffortNoBuffer);
            }
        };
        self.deliver(env, lane, &port.into(), op, len, Data::Held(held), error);
        Ok(())
    }

    /// Notes that a receive waits, without being posted, for the message of `part`, which may then
    /// wait for that receive.
    pub(crate) fn await_assembled(&mut self, part: &BestEffortPart) {
        let assembly = self.assembly.get_or_insert_with(Box::default);
        assembly.lanes[part.lane.index()].awaited = Some(part.number);
    }

    /// Returns the time of the next [`Lanes::drop_incomplete`].
    #[inline]
    pub(crate) fn timer(&self) -> Instant {
        let assembly = self.assembly.as_ref();
        assembly.map_or(Instant::NEVER, |assembly| assembly.timer())
    }

    /// Drops messages that have been incomplete for too long. `P7.8`
    pub(crate) fn drop_incomplete(&mut self, now: Instant, env: &mut Env<'_>) {
        let is_behind = env.sh.ctx.poll_gap().covers(now);
        for lane in self.assembly.iter_mut().flat_map(|all| &mut all.lanes) {
            lane.drop_expired(now, env, is_behind);
        }
    }

    /// Drops all incomplete messages of a failed peer. `P9.7`
    pub(crate) fn end_incomplete(&mut self, env: &mut Env<'_>) {
        for lane in self.assembly.iter_mut().flat_map(|all| &mut all.lanes) {
            for message in lane.incomplete.drain(..) {
                message.discard(env);
            }
        }
    }
}

fn port_of(part: &BestEffortPart) -> PortId {
    PortId {
        number: part.port,
        system: part.system,
    }
}
