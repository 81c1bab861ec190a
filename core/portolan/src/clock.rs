// SPDX-License-Identifier: MIT OR Apache-2.0
//! Clock of the engine, in the form that the protocol core uses.

use portolan_proto::Instant;

/// Monotonic clock in nanoseconds since the system started. It avoids the arithmetic of
/// [`std::time::Instant`], because it is read for each frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock;

impl Clock {
    pub(crate) fn new() -> Self {
        Clock
    }

    #[inline]
    pub(crate) fn now(&self) -> Instant {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let (seconds, nanos) = (time.tv_sec.cast_unsigned(), time.tv_nsec.cast_unsigned());
        Instant::from_nanos(seconds.wrapping_mul(1_000_000_000).wrapping_add(nanos))
    }
}
