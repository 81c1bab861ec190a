// SPDX-License-Identifier: MIT OR Apache-2.0
//! Clock of one process: starts at any time and runs slightly fast or slow.

use portolan_proto::Instant;

const MILLION: i128 = 1_000_000;

/// Conversion between the run's time (nanoseconds) and a process's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Clock {
    pub(crate) offset_ns: u64,
    pub(crate) drift_ppm: i32,
}

impl Clock {
    pub(crate) fn local(self, now_ns: u64) -> Instant {
        let run = i128::from(now_ns) * (MILLION + i128::from(self.drift_ppm)) / MILLION;
        Instant::from_nanos(
            self.offset_ns
                .saturating_add(u64::try_from(run).unwrap_or(u64::MAX)),
        )
    }

    /// Returns the first instant of the run at which the process's clock shows `at`.
    pub(crate) fn global(self, at: Instant) -> u64 {
        if at == Instant::NEVER {
            return u64::MAX;
        }
        let run = i128::from(at.as_nanos().saturating_sub(self.offset_ns)) * MILLION;
        let rate = MILLION + i128::from(self.drift_ppm);
        u64::try_from((run + rate - 1) / rate).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timer_fires_when_virtual_time_reaches_it() {
        for drift_ppm in [-500, 0, 1, 333] {
            let clock = Clock {
                offset_ns: 77,
                drift_ppm,
            };
            for ns in [1, 999_999, 1_234_567_891, 30_000_000_000] {
                let at = clock.local(ns);
                let back = clock.global(at);
                assert!(clock.local(back) >= at);
                // Not later, except for rounding in both directions.
                assert!(back <= ns + 1);
                assert!(back == 0 || clock.local(back - 1) < at);
            }
        }
    }
}
