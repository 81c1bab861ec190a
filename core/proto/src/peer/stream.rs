// SPDX-License-Identifier: MIT OR Apache-2.0
//! State of the stream to one peer in the core: whether it is open, when to request one, and which
//! transfers use it (`P15`).

use super::Peer;
use super::eager_stream::EagerStream;
use crate::base::context::Context;
use crate::base::time::Span;
use crate::bulk::push::{EarlyStart, PUSHES_MAX, PushRequest};
use crate::bulk::trial::{Carrier, Trial};
use crate::path::Path;
use crate::path::control::Control;
use crate::shared::Shared;
use crate::{Event, Instant, PeerId, StreamUse};
use alloc::boxed::Box;
use portolan_wire::{Done, DoneStatus};

/// Pause before a stream is requested again after a failure; doubles with consecutive failures.
const RETRY_MIN: Span = Span::from_millis(1000);
const RETRY_MAX: Span = Span::from_millis(64_000);

/// Consecutive misses that are counted. A miss costs the transmission of one part, or a delay of a
/// completion; with this limit, at most one of 64 messages is delayed by it.
const MISSES_MAX: u32 = 6;

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct StreamState {
    is_open: bool,
    /// Set if one was requested and the result is pending.
    is_requested: bool,
    /// Set while the link has no room.
    is_blocked: bool,
    /// Created when needed, since most peers exchange no long messages.
    history: Option<Box<History>>,
    eager: EagerStream,
}

/// Results of earlier streams.
#[derive(Debug, Default)]
struct History {
    /// Earliest time of the next request, after failures.
    request_at: Instant,
    retry: Span,
    trial: Trial,
    /// Consecutive pushed parts that the receiver discarded, and the number of lone messages to
    /// announce before the next push.
    missed_count: u32,
    unpushed_left: u32,
    /// Consecutive completions that waited for the program's next call and then left in a frame of
    /// their own, and the number of completions to send at once before the next one waits.
    lone_done_count: u32,
    prompt_dones_left: u32,
    /// Transfers that may be pushed behind one another, less one. Doubles with each part that the
    /// receiver takes.
    pushed_behind_max: usize,
}

impl StreamState {
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.is_open
    }

    /// Returns true if parts can be sent.
    #[inline]
    pub(crate) fn takes_parts(&self) -> bool {
        self.is_open && !self.is_blocked
    }

    pub(crate) fn is_blocked(&self) -> bool {
        self.is_blocked
    }

    pub(crate) fn block(&mut self) {
        self.is_blocked = true;
    }

    /// Clears the mark of a full link; returns whether it was set.
    pub(crate) fn unblock(&mut self) -> bool {
        core::mem::take(&mut self.is_blocked)
    }

    /// Chooses the carrier of a transfer of `len` bytes at its first grant. `P15.1`
    pub(crate) fn choose(
        &mut self,
        now: Instant,
        ctx: &mut Context,
        peer: PeerId,
        len: u64,
    ) -> Carrier {
        let usage = ctx.limits().stream;
        if usage == StreamUse::Off {
            return Carrier::Fragments;
        }
        let history = self.history.get_or_insert_default();
        if self.is_open {
            return history.trial.choose(usage, (len, false));
        }
        let is_slower = usage == StreamUse::Auto && history.trial.has_rejected_stream(len);
        if !is_slower {
            self.request(now, ctx, peer);
        }
        Carrier::Fragments
    }

    /// Chooses the carrier of a transfer that is alone, while the stream is open. Returns `None` if
    /// the receiver discarded the last pushed parts. `P15.13`
    fn choose_alone(&mut self, usage: StreamUse, len: u64) -> Option<EarlyStart> {
        let history = self.history.get_or_insert_default();
        if history.unpushed_left > 0 {
            history.unpushed_left -= 1;
            return None;
        }
        let carrier = history.trial.choose(usage, (len, true));
        let is_trial = usage == StreamUse::Auto && !history.trial.is_decided((len, true));
        Some(EarlyStart::alone(carrier, is_trial))
    }

    /// Returns true if a completion may wait for the program's next call, because the last ones
    /// left with its answer. `P15.16`
    fn awaits_answer(&mut self) -> bool {
        let history = self.history.get_or_insert_default();
        let is_due = history.prompt_dones_left == 0;
        history.prompt_dones_left = history.prompt_dones_left.saturating_sub(1);
        is_due
    }

    /// Records that a delayed completion has left: with other data (`is_with_answer`) or in a frame
    /// of its own. After each lone one, twice as many completions are sent at once.
    pub(super) fn on_late_done_sent(&mut self, is_with_answer: bool) {
        let history = self.history.get_or_insert_default();
        if is_with_answer {
            history.lone_done_count = 0;
        } else {
            history.lone_done_count = (history.lone_done_count + 1).min(MISSES_MAX);
            history.prompt_dones_left = 1 << history.lone_done_count;
        }
    }

    /// Records whether the receiver took the pushed part of a transfer. After each miss, twice as
    /// many messages are not pushed.
    fn on_push_answered(&mut self, is_missed: bool) {
        let Some(history) = &mut self.history else {
            return;
        };
        if is_missed {
            history.missed_count = (history.missed_count + 1).min(MISSES_MAX);
            history.unpushed_left = 1 << history.missed_count;
            history.pushed_behind_max = 0;
        } else {
            history.missed_count = 0;
            let most = 2 * history.pushed_behind_max + 1;
            history.pushed_behind_max = most.min(PUSHES_MAX - 1);
        }
    }

    /// Returns how many transfers may be pushed without an answer when another one is pushed behind
    /// them, of `len` bytes.
    fn pushes_max(&self, usage: StreamUse, len: u64) -> usize {
        let Some(history) = &self.history else {
            return 0;
        };
        let is_chosen = usage == StreamUse::On || history.trial.prefers_stream(len);
        match is_chosen && self.is_open {
            true => history.pushed_behind_max + 1,
            false => 0,
        }
    }

    /// Requests a stream to `peer`, unless one was requested or has just failed. `P15.1`
    pub(super) fn request(&mut self, now: Instant, ctx: &mut Context, peer: PeerId) {
        let history = self.history.get_or_insert_default();
        if !self.is_requested && now >= history.request_at {
            self.is_requested = true;
            ctx.emit(Event::StreamNeeded(peer));
        }
    }

    /// Returns the eager messages by stream.
    #[inline]
    pub(crate) fn eager(&self) -> &EagerStream {
        &self.eager
    }

    #[inline]
    pub(crate) fn eager_mut(&mut self) -> &mut EagerStream {
        &mut self.eager
    }

    /// Returns the trial that records completed transfers, if there is or was a stream.
    pub(crate) fn trial(&mut self) -> Option<&mut Trial> {
        Some(&mut self.history.as_mut()?.trial)
    }

    pub(crate) fn on_opened(&mut self) {
        self.is_open = true;
        self.is_requested = false;
        self.is_blocked = false;
    }

    /// Handles a stream that has closed or could not be opened. `by_fault` is not set if it was
    /// idle.
    pub(crate) fn on_closed(&mut self, now: Instant, by_fault: bool) {
        self.is_open = false;
        self.is_requested = false;
        self.is_blocked = false;
        if by_fault {
            let history = self.history.get_or_insert_default();
            let retry = (history.retry + history.retry)
                .max(RETRY_MIN)
                .min(RETRY_MAX);
            (history.retry, history.request_at) = (retry, now + retry);
            history.trial.forget();
        }
    }

    /// Records that parts have arrived and completed.
    pub(crate) fn on_success(&mut self) {
        if let Some(history) = &mut self.history {
            history.retry = Span::ZERO;
        }
    }
}

impl Peer {
    /// Returns true if no message starts on a stream, because a second network works. A stream uses
    /// only the first one, which may also have failed. `P6.8`
    #[inline]
    pub(crate) fn avoids_stream(&self, ctx: &Context) -> bool {
        self.paths.has_second() && ctx.limits().stream == StreamUse::Auto
    }

    /// Chooses how a transfer of `len` bytes that is about to be announced begins, if it may use the
    /// stream before it is granted. `P15.13`
    pub(crate) fn early_start(&mut self, sh: &Shared, len: u64) -> Option<EarlyStart> {
        let usage = sh.ctx.limits().stream;
        let is_lossy = |path: Option<&Path>| path.is_some_and(|path| !path.is_lossless());
        let is_allowed = usage != StreamUse::Off
            && self.stream.is_open()
            && !self.stream.eager.has_unsent()
            && !sh.ctx.is_latency_sensitive()
            && !self.avoids_stream(&sh.ctx)
            && is_lossy(self.paths.small_path())
            && is_lossy(self.paths.bulk_path());
        if !is_allowed {
            return None;
        }
        if sh.transfers.is_sending_nothing() {
            return self.stream.choose_alone(usage, len);
        }
        let most = self.stream.pushes_max(usage, len);
        let may_follow = most > 1 && sh.transfers.may_push_behind(self.id, len, most);
        may_follow.then(EarlyStart::pushed_behind)
    }

    /// Handles the receiver's answer to a pushed part. After a miss, the parts that have not left
    /// are announced instead.
    pub(crate) fn on_push_answered(&mut self, sh: &mut Shared, is_missed: bool) {
        self.stream.on_push_answered(is_missed);
        if is_missed {
            for request in sh.transfers.retract_pushes(self.id) {
                self.move_push(sh, &request, None);
            }
        }
    }

    /// Queues the completion of a transfer that the peer has pushed. `P15.16`
    pub(crate) fn push_late_done(&mut self, transfer: u32) {
        match self.stream.awaits_answer() {
            true => self.control.push_late_done(transfer),
            false => self.control.push_done(transfer, DoneStatus::Complete),
        }
    }

    /// Sends a pushed request on a path, and the completion that left with it.
    pub(crate) fn move_push(&mut self, sh: &mut Shared, request: &PushRequest, done: Option<Done>) {
        match request {
            PushRequest::Message(rts) => self.stage_request(sh, rts),
            PushRequest::Reply(source) => self.control.push(Control::Source(*source)),
        }
        if let Some(done) = done {
            self.control.push(Control::Done(done));
        }
    }

    /// Sends the requests that a stream may not have carried on a path. `P15.15`
    pub(super) fn move_pushed_requests(&mut self, sh: &mut Shared) {
        for (request, done) in sh.transfers.take_pushed(self.id) {
            self.move_push(sh, &request, done);
        }
    }
}
