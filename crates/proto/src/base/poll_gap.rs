// SPDX-License-Identifier: MIT OR Apache-2.0
//! Times in which this process did not look at its links, because it computed or had no core: what
//! came in meanwhile waited here, nobody knows how long, and the network is not to blame (`P3.7`).
//!
//! The caller knows them; who never says so has none.

use crate::{Core, Instant};

/// `delay_us` of an acknowledgement that cannot tell how long it, or what it echoes, has waited.
pub(crate) const DELAY_UNKNOWN: u16 = u16::MAX;

/// The last time in which frames were handled that may have waited.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lapse {
    from: Instant,
    to: Instant,
}

impl Default for Lapse {
    fn default() -> Lapse {
        Lapse {
            from: Instant::NEVER,
            to: Instant::NEVER,
        }
    }
}

impl Lapse {
    /// What was handled at `at` may have waited.
    #[inline]
    pub(crate) fn covers(&self, at: Instant) -> bool {
        self.from <= at && at <= self.to && at != Instant::NEVER
    }
}

impl Core {
    /// Says that frames handed in from now on may have waited for this process.
    #[cold]
    pub fn begin_lapse(&mut self, now: Instant) {
        if self.sh.lapse.to != Instant::NEVER || self.sh.lapse.from == Instant::NEVER {
            self.sh.lapse.from = now;
        }
        self.sh.lapse.to = Instant::NEVER;
    }

    /// Says that all those have been handed in.
    #[cold]
    pub fn end_lapse(&mut self, now: Instant) {
        self.sh.lapse.to = now;
    }
}
