// SPDX-License-Identifier: MIT OR Apache-2.0
//! One turn of the engine: receives from the links, handles the events, and sends what is ready.
//! Some turns also read the clock.

use super::pace::is_reached;
use super::place::Intake;
use super::{Engine, Inbox, Inner};
use crate::canary::Canary;
use crate::links::HOT_TURNS;
use portolan_proto::{Instant, PeerId, PortId};
use portolan_sys::usage;
use portolan_wire::MESSAGE_LEN;
use std::ops::ControlFlow;
use std::time::Duration;

/// Maximum number of frames taken from one link per turn. A burst is received in few turns, while
/// other links wait only microseconds.
const RECEIVE_BUDGET: usize = 64;

/// Maximum number of frames taken from a network per turn. It is less than one call of segmentation
/// offload brings, so that acknowledgements leave between two batches. A sender's window is a few
/// calls.
const NETWORK_BUDGET: usize = 32;

/// Minimum number of turns between clock reads. A read takes 25 ns, and 32 turns about 32 × 20 ns.
pub(crate) const CLOCK_TURNS: u32 = 32;

/// Interval, in turns that fill a receive, between turns that do all work. The checks and the
/// system calls on silent links are then rare, and a frame that arrives on one waits for at most 32
/// messages, or about 2 µs.
const ALL_WORK_TURNS: u32 = 32;

/// Time between clock reads after which frames may have queued here. A shorter time does not reduce
/// a window (the delay target of P3.13).
const POLL_GAP: Duration = Duration::from_micros(150);

/// Turns after which all queued frames have been received. Each turn takes one budget from each
/// link.
const POLL_GAP_TURNS: u32 = 2 * CLOCK_TURNS;

/// Interval between polls for notices, new connections and launcher messages. They take about three
/// system calls.
const SLOW_INTERVAL: Duration = Duration::from_micros(200);

/// Interval at which a program that only sends, and only over networks, checks for ended peers. It
/// is longer than a burst of sends, which the check would interrupt.
const SENDING_INTERVAL: Duration = Duration::from_millis(20);

impl Engine {
    /// Makes one turn. Returns the number of frames that moved.
    #[inline]
    pub(crate) fn progress(&mut self) -> usize {
        self.progress_into(None)
    }

    /// Makes one turn with a receive that waits for its message.
    #[inline]
    pub(crate) fn progress_into(&mut self, inbox: Option<&mut Inbox<'_>>) -> usize {
        self.work(inbox) + self.leave()
    }

    /// Takes the next message of shared memory for a receive at a port where nothing waits, instead
    /// of a turn. The other work of a turn is done in one of [`ALL_WORK_TURNS`]. Returns the sender
    /// and the length.
    #[inline(always)]
    pub(crate) fn take_next(
        &mut self,
        port: PortId,
        source: Option<PeerId>,
        bytes: &mut [u8],
    ) -> Option<(PeerId, usize)> {
        let turn = self.inner.turn.wrapping_add(1);
        if turn.is_multiple_of(ALL_WORK_TURNS) {
            return None;
        }
        let frame = self.links.next_frame()?;
        let rest_len = frame.frame_len().checked_sub(MESSAGE_LEN)?;
        let from = PeerId(frame.from());
        let is_wanted = source.is_none_or(|source| source == from) && rest_len <= bytes.len();
        let mut header = [0; MESSAGE_LEN];
        frame.copy_to(0, &mut header);
        let Inner { core, now, .. } = &mut self.inner;
        if !is_wanted || !core.take_frame(*now, from, &header, rest_len, port) {
            return None;
        }
        // From the ring to the receiver's memory.
        usage::count_copy();
        frame.copy_to(MESSAGE_LEN, &mut bytes[..rest_len]);
        frame.consume();
        self.inner.turn = turn;
        self.pace.on_moved(turn);
        Some((from, rest_len))
    }

    /// Runs the first half of a turn: receives frames and handles the events.
    #[inline]
    pub(crate) fn work(&mut self, inbox: Option<&mut Inbox<'_>>) -> usize {
        if self.inner.owner.is_another() {
            return self.abandon();
        }
        self.settle_rest();
        let turn = self.inner.turn.wrapping_add(1);
        self.inner.turn = turn;
        let (mut moved, is_filled) = self.receive(turn, inbox);
        if moved > 0 {
            self.pace.on_moved(turn);
        }
        if is_filled && !turn.is_multiple_of(ALL_WORK_TURNS) {
            return moved;
        }
        if self.has_deferred() && !self.inner.is_away {
            moved += self.run_deferred();
        }
        if self.links.has_streams() {
            moved += self.work_on_streams(turn);
        }
        if self.inner.multicasts.is_busy() {
            moved += self.inner.work_on_multicasts();
        }
        if self.pace.clock_is_due(turn) || self.inner.core.is_timing() {
            self.check_clock();
        }
        if !self.inner.pulls.is_empty() {
            self.pull();
        }
        if !self.inner.exposed.is_empty() {
            moved += self.help();
        }
        if !self.inner.pending.is_empty() {
            // The events name the peers to retry.
            self.drain();
            self.inner.retry_pending();
        }
        moved
    }

    /// Runs the second half of a turn: sends what is ready.
    #[inline]
    pub(crate) fn leave(&mut self) -> usize {
        if self.inner.core.needs_transmit() || self.full_mask != 0 {
            return self.flush();
        }
        0
    }

    /// Ends a turn in which a wait has completed; replaces [`Engine::leave`]. Acknowledgements of
    /// short messages are left to the program's next call. Most programs answer now, and an
    /// acknowledgement piggybacked on the answer saves a system call at both ends.
    #[inline]
    pub(crate) fn leave_to_caller(&mut self) {
        if self.inner.core.needs_transmit() && self.inner.core.has_urgent_tx() {
            self.flush();
        }
    }

    /// Receives from each link. Once a receive is filled, the other links are skipped, except in
    /// one of [`ALL_WORK_TURNS`] turns. Returns the number of frames, and whether a receive was
    /// filled.
    #[inline]
    pub(super) fn receive(
        &mut self,
        turn: u32,
        mut inbox: Option<&mut Inbox<'_>>,
    ) -> (usize, bool) {
        // Frames of an unregistered peer would be dropped, and frames of shared memory are never
        // retransmitted.
        self.register_fresh();
        let mut moved = 0;
        let mut cold_due = None;
        for place in 0..self.links.count() {
            let cold_is_due = || *cold_due.get_or_insert_with(|| self.pace.cold_is_due(turn));
            let Some(open) = self.links.due_at(place, turn, cold_is_due) else {
                continue;
            };
            let (inner, handlers) = (&mut self.inner, &mut self.handlers);
            let id = open.id();
            let count = if open.is_lossless() {
                open.link_mut().receive(RECEIVE_BUDGET, |frame| {
                    inner.on_frame(handlers, id, &frame, inbox.as_deref_mut());
                    // A frame left in its ring costs less than a copy in held memory.
                    match &inbox {
                        Some(inbox) if inbox.got.is_some() => ControlFlow::Break(()),
                        _ => ControlFlow::Continue(()),
                    }
                })
            } else {
                // A receive that another link has filled must not stop this link.
                let open_inbox = inbox.as_deref_mut().filter(|inbox| inbox.got.is_none());
                let mut intake = Intake::new(inner, handlers, id, open_inbox);
                let count = open.link_mut().receive_placed(NETWORK_BUDGET, &mut intake);
                let is_filled = intake.is_filled();
                inner.placement.end_batch();
                if is_filled {
                    inner.extend_poll_gap();
                }
                count
            };
            if count > 0 {
                open.heat(turn, HOT_TURNS);
                moved += count;
                let is_filled = inbox.as_ref().is_some_and(|inbox| inbox.got.is_some());
                if is_filled && !turn.is_multiple_of(ALL_WORK_TURNS) {
                    return (moved, true);
                }
            }
        }
        (moved, inbox.is_some_and(|inbox| inbox.got.is_some()))
    }

    fn pull(&mut self) {
        for job in std::mem::take(&mut self.inner.pulls) {
            let len = usize::try_from(job.len).unwrap_or(usize::MAX);
            let off = usize::try_from(job.off).unwrap_or(usize::MAX);
            let dst = self.inner.ops.bytes_mut(job.op).get_mut(off..);
            let dst = dst.and_then(|dst| dst.get_mut(..len));
            let ok = dst.is_some_and(|dst| self.links.pull(job.peer, job.remote_addr, dst));
            self.inner.core.pull_done(job.transfer, ok);
            self.inner.drain(&mut self.handlers, None);
        }
    }

    #[inline]
    fn check_clock(&mut self) {
        let now = self.inner.read_clock();
        self.pace.adapt(self.inner.turn, now);
        if let Some(end) = self.inner.poll_gap_end
            && is_reached(self.inner.turn, end)
        {
            self.inner.end_poll_gap();
        }
        self.on_timeout();
        if now >= self.slow_at {
            self.run_slow_checks();
        }
    }

    /// Runs the checks that need system calls and seldom find anything.
    pub(crate) fn run_slow_checks(&mut self) {
        self.slow_at = self.inner.now + SLOW_INTERVAL;
        self.sending_at = self.slow_at + SENDING_INTERVAL;
        self.handle_notices();
        self.scout();
        if self.links.has_streams() {
            self.check_streams();
        }
        if !self.inner.unopened.is_empty() {
            self.inner.report_unopened();
        }
        let now = self.inner.now;
        if self.inner.multicasts.is_close_due(now) {
            self.inner.multicasts.close_unused(now);
        }
        self.check_watched();
        self.inner.pending.on_time(self.inner.now);
        self.inner.drain(&mut self.handlers, None);
        self.publish_if_requested();
        // A program whose messages always arrive at once never waits long.
        self.advance_background();
    }

    /// Makes progress if [`SENDING_INTERVAL`] has passed. A send that has room returns without a
    /// turn, so a program that only sends would not detect that the peer has ended.
    #[inline]
    pub(crate) fn progress_between_sends(&mut self) {
        if self.inner.now >= self.sending_at {
            self.progress_slow();
        }
    }

    #[cold]
    fn progress_slow(&mut self) {
        self.progress();
        self.run_slow_checks();
    }

    /// Handles the core's timers that have expired.
    pub(crate) fn on_timeout(&mut self) {
        let now = self.inner.now;
        if now >= self.inner.core.poll_timeout() && !Canary::NoTimers.strikes() {
            let Inner { turn, awaited, .. } = self.inner;
            self.inner.core.note_turn(turn, awaited.is_some());
            self.inner.core.handle_timeout(now);
            self.inner.drain(&mut self.handlers, None);
        }
    }
}

impl Inner {
    #[inline]
    pub(crate) fn read_clock(&mut self) -> Instant {
        let before = self.now;
        self.now = self.clock.now();
        #[cfg(test)]
        {
            self.clock_count += 1;
        }
        if self.now.since(before) > POLL_GAP {
            self.begin_poll_gap();
        }
        self.now
    }

    /// Begins a poll gap: the links were not polled for a while, so frames received now may have
    /// waited.
    #[cold]
    fn begin_poll_gap(&mut self) {
        self.poll_gap_end = Some(self.turn.wrapping_add(POLL_GAP_TURNS));
        self.core.begin_poll_gap(self.now);
    }

    /// Extends a poll gap by one turn. The turn has left frames on a link because its receive was
    /// filled, so it does not count towards emptying the links.
    #[inline]
    fn extend_poll_gap(&mut self) {
        if let Some(end) = &mut self.poll_gap_end {
            *end = end.wrapping_add(1);
        }
    }

    /// Ends the poll gap, since the links have been emptied.
    #[cold]
    fn end_poll_gap(&mut self) {
        self.poll_gap_end = None;
        self.core.end_poll_gap(self.now);
    }
}
