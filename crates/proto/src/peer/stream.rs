// SPDX-License-Identifier: MIT OR Apache-2.0
//! The stream to one peer, as far as the core knows of it: whether there is one, when to ask for it, and
//! which transfers are to go by it (`P15`).

use crate::base::context::Context;
use crate::base::time::Span;
use crate::bulk::trial::{Trial, Way};
use crate::{Event, Instant, PeerId, StreamUse};

/// How long after a failure a stream is asked for again: at first, and at last after failures in a row.
const RETRY_MIN: Span = Span::from_millis(1000);
const RETRY_MAX: Span = Span::from_millis(64_000);

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct StreamState {
    is_open: bool,
    /// It was asked for, and nothing was heard since.
    is_asked: bool,
    /// The link had no room.
    is_blocked: bool,
    /// Not asked for before, after failures.
    ask_at: Instant,
    retry: Span,
    trial: Trial,
}

impl StreamState {
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.is_open
    }

    /// Parts can be sent.
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

    /// The link may have room again; whether it had none.
    pub(crate) fn unblock(&mut self) -> bool {
        core::mem::take(&mut self.is_blocked)
    }

    /// The way of a transfer of `len` bytes that was granted its first bytes. `P15.1`
    pub(crate) fn choose(
        &mut self,
        now: Instant,
        ctx: &mut Context,
        peer: PeerId,
        len: u64,
    ) -> Way {
        let usage = ctx.limits().stream;
        if usage == StreamUse::Off {
            return Way::Fragments;
        }
        if self.is_open {
            return self.trial.choose(usage, len);
        }
        let is_slower = usage == StreamUse::Auto && self.trial.has_rejected_stream(len);
        if !self.is_asked && !is_slower && now >= self.ask_at {
            self.is_asked = true;
            ctx.emit(Event::StreamWanted(peer));
        }
        Way::Fragments
    }

    /// Where the ends of transfers are noted.
    pub(crate) fn trial(&mut self) -> &mut Trial {
        &mut self.trial
    }

    pub(crate) fn on_opened(&mut self) {
        self.is_open = true;
        self.is_asked = false;
        self.is_blocked = false;
    }

    /// It has ended, or could not be opened; `by_fault` unless it was not used any more.
    pub(crate) fn on_closed(&mut self, now: Instant, by_fault: bool) {
        self.is_open = false;
        self.is_asked = false;
        self.is_blocked = false;
        if by_fault {
            let retry = (self.retry + self.retry).max(RETRY_MIN).min(RETRY_MAX);
            (self.retry, self.ask_at) = (retry, now + retry);
            self.trial.forget();
        }
    }

    /// Parts have got through to their end.
    pub(crate) fn on_success(&mut self) {
        self.retry = Span::ZERO;
    }
}
