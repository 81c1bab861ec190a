// SPDX-License-Identifier: MIT OR Apache-2.0
//! Gaps between polls: times in which this process did not look at its links, because it computed or
//! had no core. What came in meanwhile waited here, nobody knows how long, and the network is not to
//! blame (`P3.7`).
//!
//! The caller knows them; who never says so has none.

use crate::Instant;

/// `delay_us` of an acknowledgement that cannot tell how long it, or what it echoes, has waited.
pub(crate) const DELAY_UNKNOWN: u16 = u16::MAX;

/// The last time in which frames were handled that may have waited.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PollGap {
    from: Instant,
    to: Instant,
}

impl Default for PollGap {
    fn default() -> PollGap {
        PollGap {
            from: Instant::NEVER,
            to: Instant::NEVER,
        }
    }
}

impl PollGap {
    /// What was handled at `at` may have waited.
    #[inline]
    pub(crate) fn covers(&self, at: Instant) -> bool {
        self.from <= at && at <= self.to && at != Instant::NEVER
    }

    #[cold]
    pub(crate) fn begin(&mut self, now: Instant) {
        if self.to != Instant::NEVER || self.from == Instant::NEVER {
            self.from = now;
        }
        self.to = Instant::NEVER;
    }

    #[cold]
    pub(crate) fn end(&mut self, now: Instant) {
        self.to = now;
    }
}
