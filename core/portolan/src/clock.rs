// SPDX-License-Identifier: MIT OR Apache-2.0
//! Clock of the engine, in the form that the protocol core uses.

use portolan_proto::Instant;
use portolan_sys::clock;

/// Monotonic clock in nanoseconds since the system started, or of a simulation. It avoids the
/// arithmetic of [`std::time::Instant`], because it is read for each frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock(clock::Clock);

impl Clock {
    pub(crate) fn new() -> Self {
        Clock(clock::Clock::system())
    }

    /// Returns the virtual clock of the thread that reads it.
    pub(crate) fn simulated() -> Self {
        Clock(clock::Clock::simulated())
    }

    #[inline]
    pub(crate) fn now(&self) -> Instant {
        Instant::from_nanos(self.0.now_ns())
    }
}
