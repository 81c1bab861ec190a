// SPDX-License-Identifier: MIT OR Apache-2.0
//! For how long a silent peer is waited for.

use crate::error::Error;
use crate::launch::Job;
use crate::settings;
use portolan_proto::Instant;
use std::ops::RangeInclusive;
use std::time::Duration;

/// Silence after which a peer that is waited for is given up. Just under a second, so that with the
/// sleep in between the error is there within one.
pub(crate) const PEER_TIMEOUT: Duration = Duration::from_millis(900);

/// The same between endpoints. Whoever brought their processes together tells of deaths, and so do
/// this host's and the peer's kernel (`P9.4`); what is left are hosts that are cut off, and processes
/// that are stopped, swapped out or looked at by a debugger, which programs that come from TCP or
/// InfiniBand expect to survive for half a minute at least.
pub(crate) const PEER_TIMEOUT_ENDPOINT: Duration = Duration::from_secs(60);

/// What it can be set to. Shorter ones find out sooner, and take a host for dead that was merely
/// not scheduled; two questions must fit in.
const PEER_TIMEOUTS: RangeInclusive<Duration> =
    Duration::from_millis(100)..=Duration::from_secs(1000);

/// For how long a peer has been silent while this process listened. `P9.3`
#[derive(Debug, Default)]
pub(crate) struct Silence {
    heard: Instant,
    looked: Instant,
    lasted_ns: u64,
}

/// What a look at a silent peer shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Look {
    /// How long it has been silent.
    pub(crate) silent_for: Duration,
    /// How long this process has not listened since the last look.
    pub(crate) missed: Duration,
}

impl Silence {
    /// Looks at `now` at a peer whose last sign of life was at `heard`. Of the time since the last look,
    /// `most` counts: a process that was stopped, or computed without making progress, has not listened
    /// meanwhile, and what it did not hear is not the peer's silence.
    pub(crate) fn look(&mut self, now: Instant, heard: Instant, most: Duration) -> Look {
        if heard > self.heard {
            (self.heard, self.lasted_ns) = (heard, 0);
        }
        let passed = now.since(self.looked.max(heard));
        let listened = passed.min(most);
        self.lasted_ns = self
            .lasted_ns
            .saturating_add(u64::try_from(listened.as_nanos()).unwrap_or(u64::MAX));
        self.looked = now;
        Look {
            silent_for: Duration::from_nanos(self.lasted_ns),
            missed: passed - listened,
        }
    }
}

/// The patience with silent peers that the job has chosen, or `default`.
pub(crate) fn peer_timeout(job: &Job, default: Duration) -> Result<Duration, Error> {
    let Some(value) = settings::PEER_TIMEOUT.of(job) else {
        return Ok(default);
    };
    let time = portolan_link::fault::parse_time(&value);
    time.filter(|time| PEER_TIMEOUTS.contains(time))
        .ok_or_else(|| Error::Setting {
            name: "peer_timeout",
            value,
            why: "write a time from 100ms to 1000s".to_owned(),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOK_MAX: Duration = Duration::from_millis(100);

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn silence_counts_from_the_last_sign_of_life_while_somebody_listens() {
        let mut silence = Silence::default();
        let mut look = |now, heard| silence.look(at(now), at(heard), LOOK_MAX);
        for now in (1020..=1900).step_by(20) {
            let silent_for = Duration::from_millis(now - 1000);
            let missed = Duration::ZERO;
            assert_eq!(look(now, 1000), Look { silent_for, missed });
        }
        let after = look(1920, 1910);
        assert_eq!(after.silent_for, Duration::from_millis(10));
    }

    #[test]
    fn who_was_away_for_long_has_heard_little_silence() {
        let mut silence = Silence::default();
        let mut look = |now, heard| silence.look(at(now), at(heard), LOOK_MAX);
        let first = look(61_000, 1000);
        assert_eq!(first.silent_for, LOOK_MAX);
        assert_eq!(first.missed, Duration::from_millis(59_900));
        assert_eq!(look(90_000, 1000).silent_for, LOOK_MAX * 2);
        look(90_010, 90_005);
        let silent_for = look(200_000, 90_005).silent_for;
        assert_eq!(silent_for, LOOK_MAX + Duration::from_millis(5));
    }

    #[test]
    fn a_time_without_a_unit_or_out_of_range_is_refused_by_name() {
        let mut job = Job::alone([0; 16], [0; 32]);
        let peer_timeout = |job: &Job| peer_timeout(job, PEER_TIMEOUT_ENDPOINT);
        assert_eq!(peer_timeout(&job).unwrap(), PEER_TIMEOUT_ENDPOINT);
        for (value, time) in [("100ms", 100), ("5s", 5000), ("1000s", 1_000_000)] {
            job.options.insert("peer_timeout".into(), value.into());
            assert_eq!(peer_timeout(&job).unwrap(), Duration::from_millis(time));
        }
        for value in ["", "5", "99ms", "1001s", "-1s", "soon"] {
            job.options.insert("peer_timeout".into(), value.into());
            let said = peer_timeout(&job).unwrap_err().to_string();
            assert!(
                said.contains("peer_timeout") && said.contains("100ms"),
                "{said}"
            );
        }
    }
}
