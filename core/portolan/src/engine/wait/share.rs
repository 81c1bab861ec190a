// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sharing a core with others: after how long in vain who polls yields it.
//!
//! Who wants the core cannot be counted: peers in other namespaces, threads of this process and
//! programs of others all may. So yields are tried, and each is judged by how long it took and by
//! what was there afterwards. One that brings what is waited for is made early; one that lets nobody
//! run, or somebody who computes for long, is made rarely.

use std::time::Duration;

/// How long one polls in vain before a yield that pays: longer than an answer takes in shared memory.
const PATIENCE_MIN: Duration = Duration::from_micros(1);
/// The same before one that does not: a slice of the scheduler, after which the core would be lost
/// anyway.
const PATIENCE_MAX: Duration = Duration::from_millis(2);

/// A yield that is over sooner has let nobody run: two switches between processes take longer.
const ALONE: Duration = Duration::from_nanos(800);
/// A yield that takes longer went to somebody who computes; processes that poll and yield as well
/// are through sooner, several of them, too.
const LONG: Duration = Duration::from_micros(200);

/// See the module documentation.
pub(super) struct Share {
    patience: Duration,
    /// How long the last yield took, until it is known what it brought.
    yielded: Option<Duration>,
}

impl Default for Share {
    fn default() -> Share {
        Share {
            patience: PATIENCE_MIN,
            yielded: None,
        }
    }
}

impl Share {
    /// How long to poll in vain before a yield.
    pub(super) fn patience(&self) -> Duration {
        self.patience
    }

    /// Whether others use the core, as far as is known.
    pub(super) fn is_crowded(&self) -> bool {
        self.patience == PATIENCE_MIN
    }

    /// A yield is over, and took so long.
    pub(super) fn on_yield(&mut self, took: Duration) {
        self.yielded = Some(took);
    }

    /// A turn has brought something.
    #[inline]
    pub(super) fn on_found(&mut self) {
        if let Some(took) = self.yielded.take() {
            self.judge(took, true);
        }
    }

    /// Some turns have brought nothing.
    pub(super) fn on_nothing(&mut self) {
        if let Some(took) = self.yielded.take() {
            self.judge(took, false);
        }
    }

    /// More endpoints than cores are known to be here: whoever polls keeps another from its turn.
    pub(super) fn on_crowd(&mut self) {
        self.patience = PATIENCE_MIN;
    }

    fn judge(&mut self, took: Duration, has_found: bool) {
        if took < ALONE || took > LONG && !has_found {
            self.patience = (self.patience * 2).min(PATIENCE_MAX);
        } else if has_found {
            self.patience = PATIENCE_MIN;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_micros(5);

    /// `times` yields of this length, each with or without something behind it.
    fn yields(share: &mut Share, times: u32, took: Duration, has_found: bool) -> Duration {
        for _ in 0..times {
            share.on_yield(took);
            match has_found {
                true => share.on_found(),
                false => share.on_nothing(),
            }
        }
        share.patience()
    }

    #[test]
    fn a_core_of_its_own_is_hardly_ever_yielded() {
        let mut share = Share::default();
        assert_eq!(share.patience(), PATIENCE_MIN, "the first is tried at once");
        assert_eq!(yields(&mut share, 20, Duration::ZERO, true), PATIENCE_MAX);
        assert_eq!(yields(&mut share, 20, Duration::ZERO, false), PATIENCE_MAX);
    }

    #[test]
    fn a_yield_that_brings_something_is_repeated_early() {
        let mut share = Share::default();
        yields(&mut share, 20, Duration::ZERO, false);
        assert_eq!(yields(&mut share, 1, SHORT, true), PATIENCE_MIN);
        yields(&mut share, 20, Duration::ZERO, false);
        assert_eq!(yields(&mut share, 1, LONG * 10, true), PATIENCE_MIN);
    }

    #[test]
    fn others_that_poll_and_yield_keep_it_early() {
        let mut share = Share::default();
        assert_eq!(yields(&mut share, 100, SHORT, false), PATIENCE_MIN);
    }

    #[test]
    fn a_core_that_went_to_a_long_computation_for_nothing_is_kept_longer() {
        let mut share = Share::default();
        assert_eq!(yields(&mut share, 20, LONG * 10, false), PATIENCE_MAX);
        share.on_crowd();
        assert_eq!(share.patience(), PATIENCE_MIN);
    }

    #[test]
    fn what_comes_later_is_no_merit_of_the_yield() {
        let mut share = Share::default();
        share.on_yield(LONG * 10);
        share.on_nothing();
        let patience = share.patience();
        share.on_found();
        assert_eq!(share.patience(), patience);
    }
}
