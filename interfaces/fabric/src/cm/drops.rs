// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reasons for and counts of callers that were dropped without a reply.

use std::net::SocketAddr;

/// Reason for dropping a caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DropReason {
    /// It sent nothing for too long.
    Silent,
    /// Too many silent callers were connected, and it was the oldest.
    TooMany,
    /// Its bytes were not a request, or it disconnected before it sent a complete one.
    NoRequest,
    ListenerClosed,
    /// A system call failed.
    System,
}

const REASON_COUNT: usize = DropReason::System as usize + 1;

/// Number of dropped callers for each reason.
#[derive(Default)]
pub(super) struct Drops([u64; REASON_COUNT]);

impl Drops {
    /// Counts a drop. Only counts that are powers of two are logged, so that callers cannot fill
    /// a log.
    pub(super) fn count(&mut self, reason: DropReason, who: Option<SocketAddr>) {
        let count = &mut self.0[reason as usize];
        *count += 1;
        if !count.is_power_of_two() {
            return;
        }
        let who = who.map_or_else(|| "a disconnected caller".to_owned(), |who| who.to_string());
        let why = match reason {
            DropReason::Silent => "it did not send a request in time",
            DropReason::TooMany => "too many callers without a request are connected",
            DropReason::NoRequest => "its data is not a connection request",
            DropReason::ListenerClosed => "the passive endpoint was closed",
            DropReason::System => "memory or descriptors are exhausted",
        };
        log::warn!("dropped the connection from {who} without a reply: {why} ({count} so far)");
    }

    #[cfg(test)]
    pub(super) fn of(&self, reason: DropReason) -> u64 {
        self.0[reason as usize]
    }
}
