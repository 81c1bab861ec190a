// SPDX-License-Identifier: MIT OR Apache-2.0
//! The contents of a completion queue.
//!
//! It has no bound of its own: every entry stems from an operation that was accepted, and those are
//! bounded. So nothing is lost, which `FI_RM_ENABLED` promises.

use std::collections::VecDeque;

use super::wake::Wake;
use crate::errno::Errno;

/// A completion, as the longest format tells it.
#[derive(Clone, Copy, Default)]
pub(crate) struct Entry {
    pub(crate) context: usize,
    pub(crate) flags: u64,
    pub(crate) len: usize,
    pub(crate) buf: usize,
    pub(crate) data: u64,
    pub(crate) tag: u64,
    /// Where a message came from, by the address vector; `ADDR_NOTAVAIL` for an unsolicited peer.
    pub(crate) source: u64,
}

/// An operation that failed.
pub(crate) struct Failure {
    pub(crate) entry: Entry,
    /// Bytes of the message that did not fit.
    pub(crate) beyond: usize,
    pub(crate) errno: Errno,
    /// One sentence, with the peer and the cause.
    pub(crate) text: String,
}

/// A completion queue.
pub(crate) struct Queue {
    /// Bytes of an entry in the format that the application reads.
    pub(crate) entry_len: usize,
    /// Entries that have to be there before a waiting read returns, where the application says so.
    pub(crate) thresholds: bool,
    /// The endpoints that report here, each once.
    pub(crate) eps: Vec<usize>,
    /// Somebody called `fi_cq_signal`.
    pub(crate) signalled: bool,
    /// The text of the failure that was read last, which `readerr` lent out.
    pub(crate) last_text: String,
    pub(crate) wake: Option<Wake>,
    entries: VecDeque<Entry>,
    failures: VecDeque<Failure>,
}

impl Queue {
    pub(crate) fn new(entry_len: usize, thresholds: bool, capacity: usize) -> Queue {
        Queue {
            entry_len,
            thresholds,
            eps: Vec::new(),
            signalled: false,
            last_text: String::new(),
            wake: None,
            entries: VecDeque::with_capacity(capacity),
            failures: VecDeque::new(),
        }
    }

    #[inline]
    pub(crate) fn push(&mut self, entry: Entry) {
        self.entries.push_back(entry);
        if let Some(wake) = &mut self.wake {
            wake.ring();
        }
    }

    #[cold]
    pub(crate) fn fail(&mut self, failure: Failure) {
        self.failures.push_back(failure);
        if let Some(wake) = &mut self.wake {
            wake.ring();
        }
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Entry> {
        self.entries.pop_front()
    }

    pub(crate) fn pop_failure(&mut self) -> Option<Failure> {
        self.failures.pop_front()
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    #[inline]
    pub(crate) fn has_failed(&self) -> bool {
        !self.failures.is_empty()
    }

    /// Whether a read would return something.
    #[inline]
    pub(crate) fn has_news(&self) -> bool {
        !self.entries.is_empty() || self.has_failed()
    }
}
