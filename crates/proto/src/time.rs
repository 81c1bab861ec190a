// SPDX-License-Identifier: MIT OR Apache-2.0
//! Time as the caller tells it.

use core::ops::{Add, Sub};
use core::time::Duration;

/// Nanoseconds since a start that the caller chose; never goes backwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Instant {
    ns: u64,
}

impl Instant {
    /// Later than any time that comes (584 years).
    pub const NEVER: Instant = Instant { ns: u64::MAX };

    /// `ns` nanoseconds after the start.
    #[inline]
    #[must_use]
    pub const fn from_nanos(ns: u64) -> Self {
        Instant { ns }
    }

    /// Nanoseconds since the start.
    #[inline]
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.ns
    }

    /// Time since `earlier`, zero if that is in the future.
    #[inline]
    #[must_use]
    pub const fn since(self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.ns.saturating_sub(earlier.ns))
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;
    #[inline]
    fn add(self, rhs: Duration) -> Instant {
        let ns = u64::try_from(rhs.as_nanos()).unwrap_or(u64::MAX);
        Instant {
            ns: self.ns.saturating_add(ns),
        }
    }
}

impl Sub<Duration> for Instant {
    type Output = Instant;
    #[inline]
    fn sub(self, rhs: Duration) -> Instant {
        let ns = u64::try_from(rhs.as_nanos()).unwrap_or(u64::MAX);
        Instant {
            ns: self.ns.saturating_sub(ns),
        }
    }
}
