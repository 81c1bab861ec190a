// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sharing a core: the polling time after which a process yields it.
//!
//! Users of the core cannot be counted: peers in other namespaces, threads of this process and
//! unrelated programs. So yields are tried, and each is judged by its duration and by what had
//! arrived after it. A yield that brings the awaited event is made early. A yield that lets no
//! process run, or one that computes for long, is made rarely.

use std::time::Duration;

/// Polling time before a yield that pays: longer than an answer takes in shared memory.
const YIELD_INTERVAL_MIN: Duration = Duration::from_micros(1);
/// Polling time before a yield that does not pay: one slice of the scheduler, after which the core
/// would be lost anyway.
const YIELD_INTERVAL_MAX: Duration = Duration::from_millis(2);

/// Duration below which a yield has let no process run: two switches between processes take longer.
const ALONE: Duration = Duration::from_nanos(800);
/// Duration above which a yield went to a process that computes. Even several processes that poll
/// and yield take less time.
const LONG: Duration = Duration::from_micros(200);

/// Adaptive yield interval; see the module documentation.
pub(super) struct Share {
    yield_interval: Duration,
    /// Duration of the last yield, until its effect is known.
    yielded: Option<Duration>,
}

impl Default for Share {
    fn default() -> Share {
        Share {
            yield_interval: YIELD_INTERVAL_MIN,
            yielded: None,
        }
    }
}

impl Share {
    /// Returns the time to poll without an event before a yield.
    pub(super) fn yield_interval(&self) -> Duration {
        self.yield_interval
    }

    /// Returns `true` if other processes seem to use the core.
    pub(super) fn is_contended(&self) -> bool {
        self.yield_interval == YIELD_INTERVAL_MIN
    }

    /// Records a yield of length `took`.
    pub(super) fn on_yield(&mut self, took: Duration) {
        self.yielded = Some(took);
    }

    /// Records a turn that brought an event.
    #[inline]
    pub(super) fn on_found(&mut self) {
        if let Some(took) = self.yielded.take() {
            self.judge(took, true);
        }
    }

    /// Records that several turns brought nothing.
    pub(super) fn on_nothing(&mut self) {
        if let Some(took) = self.yielded.take() {
            self.judge(took, false);
        }
    }

    /// Records that more endpoints than cores are here, so polling keeps another endpoint from its
    /// turn.
    pub(super) fn on_contention(&mut self) {
        self.yield_interval = YIELD_INTERVAL_MIN;
    }

    fn judge(&mut self, took: Duration, has_found: bool) {
        if took < ALONE || took > LONG && !has_found {
            self.yield_interval = (self.yield_interval * 2).min(YIELD_INTERVAL_MAX);
        } else if has_found {
            self.yield_interval = YIELD_INTERVAL_MIN;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_micros(5);

    /// Makes `times` yields of length `took`, each followed by an event or by none. Returns the
    /// patience.
    fn yields(share: &mut Share, times: u32, took: Duration, has_found: bool) -> Duration {
        for _ in 0..times {
            share.on_yield(took);
            match has_found {
                true => share.on_found(),
                false => share.on_nothing(),
            }
        }
        share.yield_interval()
    }

    #[test]
    fn exclusive_core_is_rarely_yielded() {
        let mut share = Share::default();
        assert_eq!(
            share.yield_interval(),
            YIELD_INTERVAL_MIN,
            "the first is tried at once"
        );
        assert_eq!(
            yields(&mut share, 20, Duration::ZERO, true),
            YIELD_INTERVAL_MAX
        );
        assert_eq!(
            yields(&mut share, 20, Duration::ZERO, false),
            YIELD_INTERVAL_MAX
        );
    }

    #[test]
    fn productive_yield_is_repeated_early() {
        let mut share = Share::default();
        yields(&mut share, 20, Duration::ZERO, false);
        assert_eq!(yields(&mut share, 1, SHORT, true), YIELD_INTERVAL_MIN);
        yields(&mut share, 20, Duration::ZERO, false);
        assert_eq!(yields(&mut share, 1, LONG * 10, true), YIELD_INTERVAL_MIN);
    }

    #[test]
    fn competitors_that_yield_keep_yields_early() {
        let mut share = Share::default();
        assert_eq!(yields(&mut share, 100, SHORT, false), YIELD_INTERVAL_MIN);
    }

    #[test]
    fn long_unproductive_yield_delays_the_next() {
        let mut share = Share::default();
        assert_eq!(yields(&mut share, 20, LONG * 10, false), YIELD_INTERVAL_MAX);
        share.on_contention();
        assert_eq!(share.yield_interval(), YIELD_INTERVAL_MIN);
    }

    #[test]
    fn late_event_does_not_credit_the_yield() {
        let mut share = Share::default();
        share.on_yield(LONG * 10);
        share.on_nothing();
        let yield_interval = share.yield_interval();
        share.on_found();
        assert_eq!(share.yield_interval(), yield_interval);
    }
}
