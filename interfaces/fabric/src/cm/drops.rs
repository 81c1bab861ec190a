// SPDX-License-Identifier: MIT OR Apache-2.0
//! Callers that are hung up on without an answer: why, and how many.

use std::net::SocketAddr;

/// Why a caller was dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DropReason {
    /// It has said nothing for long.
    Silent,
    /// Others came, who were silent, too; it was the oldest.
    Crowded,
    /// What it said is no request, or it hung up before it had said one.
    NoRequest,
    /// Its listener was closed.
    Unheard,
    /// The system could not do what it takes.
    System,
}

const REASON_COUNT: usize = DropReason::System as usize + 1;

/// How many, for each reason.
#[derive(Default)]
pub(super) struct Drops([u64; REASON_COUNT]);

impl Drops {
    /// Count one, and say so now and then: strangers could fill a log.
    pub(super) fn count(&mut self, reason: DropReason, who: Option<SocketAddr>) {
        let count = &mut self.0[reason as usize];
        *count += 1;
        if !count.is_power_of_two() {
            return;
        }
        let who = who.map_or_else(|| "somebody who has gone".to_owned(), |who| who.to_string());
        let why = match reason {
            DropReason::Silent => "it did not ask for a connection in time",
            DropReason::Crowded => "too many others have connected and ask for nothing",
            DropReason::NoRequest => "what it said is no request for a connection",
            DropReason::Unheard => "the passive endpoint was closed",
            DropReason::System => "there is no memory, or no descriptor, for it",
        };
        log::warn!("hung up on {who} without an answer: {why} ({count} so far)");
    }

    #[cfg(test)]
    pub(super) fn of(&self, reason: DropReason) -> u64 {
        self.0[reason as usize]
    }
}
