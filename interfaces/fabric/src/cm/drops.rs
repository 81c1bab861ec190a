// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reasons for and counts of callers that were dropped without an answer.

use std::net::SocketAddr;

/// Reason for dropping a caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DropReason {
    /// It sent nothing for too long.
    Silent,
    /// Too many silent callers were connected, and it was the oldest.
    Crowded,
    /// Its bytes were not a request, or it disconnected before it sent a complete one.
    NoRequest,
    /// Its listener was closed.
    Unheard,
    /// A system call failed.
    System,
}

const REASON_COUNT: usize = DropReason::System as usize + 1;

/// Number of dropped callers for each reason.
#[derive(Default)]
pub(super) struct Drops([u64; REASON_COUNT]);

impl Drops {
    /// Counts a drop. Only counts that are powers of two are logged, so that strangers cannot fill
    /// a log.
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
