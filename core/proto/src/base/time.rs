// SPDX-License-Identifier: MIT OR Apache-2.0
//! Time as provided by the caller.

use core::ops::{Add, Div, Mul, Sub};
use core::time::Duration;

/// Nanoseconds since a start that the caller chooses; never goes backwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Instant {
    ns: u64,
}

impl Instant {
    /// Instant that never comes (584 years after the start).
    pub const NEVER: Instant = Instant { ns: u64::MAX };

    /// Returns the instant `ns` nanoseconds after the start.
    #[inline]
    #[must_use]
    pub const fn from_nanos(ns: u64) -> Self {
        Instant { ns }
    }

    /// Returns the nanoseconds since the start.
    #[inline]
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.ns
    }

    /// Returns the time since `earlier`, or zero if that is in the future.
    #[inline]
    pub(crate) const fn span_since(self, earlier: Instant) -> Span {
        Span {
            ns: self.ns.saturating_sub(earlier.ns),
        }
    }

    /// Returns the time since `earlier`, or zero if that is in the future.
    #[inline]
    #[must_use]
    pub const fn since(self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.ns.saturating_sub(earlier.ns))
    }
}

/// Duration in nanoseconds, used inside the core. [`Duration`] stores seconds and nanoseconds
/// separately, which costs a division at each step of the data path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Span {
    ns: u64,
}

impl Span {
    pub(crate) const ZERO: Span = Span { ns: 0 };
    pub(crate) const MAX: Span = Span { ns: u64::MAX };

    pub(crate) const fn from_micros(us: u64) -> Span {
        Span { ns: us * 1000 }
    }

    pub(crate) const fn from_millis(ms: u64) -> Span {
        Span { ns: ms * 1_000_000 }
    }

    pub(crate) const fn as_micros(self) -> u64 {
        self.ns / 1000
    }

    pub(crate) const fn abs_diff(self, other: Span) -> Span {
        Span {
            ns: self.ns.abs_diff(other.ns),
        }
    }

    pub(crate) const fn saturating_sub(self, other: Span) -> Span {
        Span {
            ns: self.ns.saturating_sub(other.ns),
        }
    }

    pub(crate) const fn doubled(self, times: u32) -> Span {
        Span {
            ns: self.ns.saturating_mul(1 << times),
        }
    }
}

impl From<Duration> for Span {
    fn from(duration: Duration) -> Span {
        Span {
            ns: u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX),
        }
    }
}

impl From<Span> for Duration {
    fn from(span: Span) -> Duration {
        Duration::from_nanos(span.ns)
    }
}

impl Add for Span {
    type Output = Span;
    #[inline]
    fn add(self, rhs: Span) -> Span {
        Span {
            ns: self.ns.saturating_add(rhs.ns),
        }
    }
}

impl Mul<u64> for Span {
    type Output = Span;
    #[inline]
    fn mul(self, rhs: u64) -> Span {
        Span {
            ns: self.ns.saturating_mul(rhs),
        }
    }
}

impl Div for Span {
    type Output = u64;
    #[inline]
    fn div(self, rhs: Span) -> u64 {
        self.ns / rhs.ns.max(1)
    }
}

impl Div<u64> for Span {
    type Output = Span;
    #[inline]
    fn div(self, rhs: u64) -> Span {
        Span { ns: self.ns / rhs }
    }
}

impl Add<Span> for Instant {
    type Output = Instant;
    #[inline]
    fn add(self, rhs: Span) -> Instant {
        Instant {
            ns: self.ns.saturating_add(rhs.ns),
        }
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
