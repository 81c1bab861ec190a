// SPDX-License-Identifier: MIT OR Apache-2.0
//! The setting `peer_timeout`: time to wait for silent peers.

use crate::error::Error;
use crate::launch::Job;
use crate::settings;
use std::ops::RangeInclusive;
use std::time::Duration;

/// Valid range. A shorter timeout detects death sooner, but declares a host dead that was merely
/// not scheduled. Two probes must fit in it.
const PEER_TIMEOUTS: RangeInclusive<Duration> =
    Duration::from_millis(100)..=Duration::from_secs(1000);

/// Returns the job's timeout for silent peers, if it is set.
pub(crate) fn peer_timeout(job: &Job) -> Result<Option<Duration>, Error> {
    let Some(value) = settings::PEER_TIMEOUT.of(job) else {
        return Ok(None);
    };
    let time = portolan_link::fault::parse_time(&value);
    time.filter(|time| PEER_TIMEOUTS.contains(time))
        .map(Some)
        .ok_or_else(|| Error::Setting {
            name: "peer_timeout",
            value,
            why: "write a time from 100ms to 1000s".to_owned(),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_time_is_refused_by_name() {
        let mut job = Job::alone([0; 16], [0; 32]);
        assert_eq!(peer_timeout(&job).unwrap(), None);
        for (value, time) in [("100ms", 100), ("5s", 5000), ("1000s", 1_000_000)] {
            job.options.insert("peer_timeout".into(), value.into());
            assert_eq!(
                peer_timeout(&job).unwrap(),
                Some(Duration::from_millis(time))
            );
        }
        for value in ["", "5", "99ms", "1001s", "-1s", "soon"] {
            job.options.insert("peer_timeout".into(), value.into());
            let text = peer_timeout(&job).unwrap_err().to_string();
            assert!(
                text.contains("peer_timeout") && text.contains("100ms"),
                "{text}"
            );
        }
    }
}
