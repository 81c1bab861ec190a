// SPDX-License-Identifier: MIT OR Apache-2.0
//! Monotonic clock that is chosen once, when its owner is created: the system's clock, or the
//! virtual clock of a simulation.

use rustix::time::{ClockId, clock_gettime};
use std::cell::Cell;

thread_local! {
    static VIRTUAL_NS: Cell<u64> = const { Cell::new(0) };
}

/// Monotonic clock; see the module documentation.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    is_virtual: bool,
}

impl Clock {
    /// Returns the clock of the system, which counts nanoseconds since the system started.
    #[must_use]
    pub fn system() -> Clock {
        Clock { is_virtual: false }
    }

    /// Returns the virtual clock of the thread that reads it. It stands still until that thread
    /// calls [`set_virtual_ns`].
    #[must_use]
    pub fn simulated() -> Clock {
        Clock { is_virtual: true }
    }

    /// Reads the clock, in nanoseconds.
    #[inline]
    #[must_use]
    pub fn now_ns(self) -> u64 {
        if self.is_virtual {
            return virtual_ns();
        }
        let time = clock_gettime(ClockId::Monotonic);
        let (seconds, nanos) = (time.tv_sec.cast_unsigned(), time.tv_nsec.cast_unsigned());
        seconds.wrapping_mul(1_000_000_000).wrapping_add(nanos)
    }
}

/// Sets the virtual clock of this thread.
pub fn set_virtual_ns(now_ns: u64) {
    VIRTUAL_NS.set(now_ns);
}

/// Returns the virtual clock of this thread.
#[cold]
#[must_use]
pub fn virtual_ns() -> u64 {
    VIRTUAL_NS.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_clock_does_not_go_back() {
        let (first, second) = (Clock::system().now_ns(), Clock::system().now_ns());
        assert!(0 < first && first <= second);
    }

    #[test]
    fn virtual_clock_moves_only_when_set_by_its_thread() {
        let clock = Clock::simulated();
        assert_eq!(clock.now_ns(), 0);
        set_virtual_ns(1_500_000_000);
        assert_eq!(clock.now_ns(), 1_500_000_000);
        let elsewhere = std::thread::spawn(move || clock.now_ns()).join().unwrap();
        assert_eq!(elsewhere, 0);
    }
}
