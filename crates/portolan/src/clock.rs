// SPDX-License-Identifier: MIT OR Apache-2.0
//! The engine's clock, as the protocol core wants it.

use portolan_proto::Instant;
use std::time;

/// Monotonic nanoseconds since it was made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: time::Instant,
}

impl Clock {
    pub(crate) fn new() -> Self {
        Clock {
            start: time::Instant::now(),
        }
    }

    #[inline]
    pub(crate) fn now(&self) -> Instant {
        let elapsed = self.start.elapsed();
        Instant::from_nanos(
            elapsed.as_secs().wrapping_mul(1_000_000_000) + u64::from(elapsed.subsec_nanos()),
        )
    }
}
