// SPDX-License-Identifier: MIT OR Apache-2.0
//! Poll gaps: times in which this process did not poll its links, because it computed or had no
//! core. Frames that arrived in a gap waited here for an unknown time. That delay must not be
//! attributed to the network (`P3.7`).
//!
//! The caller reports the gaps; without reports there are none.

use crate::Instant;

/// Value of `delay_us` in an acknowledgement if its own delay or that of the echoed frame is
/// unknown.
pub(crate) const DELAY_UNKNOWN: u16 = u16::MAX;

/// Last period in which the handled frames may have waited.
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
    /// Returns true if a frame handled at `at` may have waited.
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
