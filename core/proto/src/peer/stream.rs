// SPDX-License-Identifier: MIT OR Apache-2.0
//! The stream to one peer, as far as the core knows of it: whether there is one, when to ask for it, and
//! which transfers are to go by it (`P15`).

use crate::base::context::Context;
use crate::base::time::Span;
use crate::bulk::trial::{Trial, Way};
use crate::{Event, Instant, PeerId, StreamUse};
use alloc::boxed::Box;

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
    /// Made when there is something to keep: most peers exchange no long messages.
    history: Option<Box<History>>,
}

/// What earlier streams have taught.
#[derive(Debug, Default)]
struct History {
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
        let history = self.history.get_or_insert_default();
        if self.is_open {
            return history.trial.choose(usage, len);
        }
        let is_slower = usage == StreamUse::Auto && history.trial.has_rejected_stream(len);
        if !self.is_asked && !is_slower && now >= history.ask_at {
            self.is_asked = true;
            ctx.emit(Event::StreamWanted(peer));
        }
        Way::Fragments
    }

    /// Where the ends of transfers are noted, if there is or was a stream.
    pub(crate) fn trial(&mut self) -> Option<&mut Trial> {
        Some(&mut self.history.as_mut()?.trial)
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
            let history = self.history.get_or_insert_default();
            let retry = (history.retry + history.retry)
                .max(RETRY_MIN)
                .min(RETRY_MAX);
            (history.retry, history.ask_at) = (retry, now + retry);
            history.trial.forget();
        }
    }

    /// Parts have got through to their end.
    pub(crate) fn on_success(&mut self) {
        if let Some(history) = &mut self.history {
            history.retry = Span::ZERO;
        }
    }
}
