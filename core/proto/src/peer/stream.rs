// SPDX-License-Identifier: MIT OR Apache-2.0
//! State of the stream to one peer in the core: whether it is open, when to request one, and which
//! transfers use it (`P15`).

use super::eager_stream::EagerStream;
use crate::base::context::Context;
use crate::base::time::Span;
use crate::bulk::trial::{Carrier, Trial};
use crate::{Event, Instant, PeerId, StreamUse};
use alloc::boxed::Box;

/// Pause before a stream is requested again after a failure; doubles with consecutive failures.
const RETRY_MIN: Span = Span::from_millis(1000);
const RETRY_MAX: Span = Span::from_millis(64_000);

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
            return history.trial.choose(usage, len);
        }
        let is_slower = usage == StreamUse::Auto && history.trial.has_rejected_stream(len);
        if !is_slower {
            self.request(now, ctx, peer);
        }
        Carrier::Fragments
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
