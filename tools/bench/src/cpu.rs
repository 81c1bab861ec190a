// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processor time per byte at each end.
//!
//! It is the time of the whole process in user and kernel mode, from `getrusage`. It includes the
//! kernel's softirqs as far as they ran on top of this process. For example, a veth pair runs the
//! receiver's half of the network stack on the sender's core and charges it there. It excludes
//! softirqs on an idle core or in `ksoftirqd`. It does not distinguish work from spinning: a
//! spinning end costs a core for as long as the transfer lasts.

use nix::sys::resource::{UsageWho, getrusage};
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// Time between two readings while bytes arrive. A reading is a system call of about 0.3 µs, so its
/// cost is below 0.1 %.
const READ_INTERVAL: Duration = Duration::from_millis(1);

/// Processor time per 10^9 bytes of payload.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cpu {
    /// Seconds at the sender.
    pub sender_s_per_gb: f64,
    /// Seconds at the receiver.
    pub receiver_s_per_gb: f64,
}

/// Returns the processor time of this process so far; zero if the system does not report it.
pub(crate) fn process_time() -> Duration {
    let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) else {
        return Duration::ZERO;
    };
    [usage.user_time(), usage.system_time()]
        .into_iter()
        .map(|time| {
            let micros = time.tv_sec() * 1_000_000 + time.tv_usec();
            Duration::from_micros(u64::try_from(micros).unwrap_or(0))
        })
        .sum()
}

/// Returns the seconds per 10^9 bytes; `None` for no bytes.
pub(crate) fn per_gb(seconds: f64, bytes: u64) -> Option<f64> {
    #[allow(clippy::cast_precision_loss, reason = "three digits are reported")]
    let gigabytes = bytes as f64 / 1e9;
    (bytes > 0).then(|| seconds / gigabytes)
}

/// Processor time of the receiver. The receiver cannot distinguish which passes the sender
/// measures, so it includes all except the first and the last. In those two, payloads are compared
/// in full.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    bytes: u64,
    first: Option<Reading>,
    latest: Option<Reading>,
}

#[derive(Clone, Copy, Debug)]
struct Reading {
    at: Instant,
    spent: Duration,
    bytes: u64,
}

impl Meter {
    /// Adds the payload of a pass. It is called after each pass except the last.
    pub(crate) fn pass(&mut self, bytes: u64) {
        self.bytes += bytes;
        let now = Instant::now();
        let due = self
            .latest
            .is_none_or(|latest| now - latest.at >= READ_INTERVAL);
        if !due {
            return;
        }
        let reading = Reading {
            at: now,
            spent: process_time(),
            bytes: self.bytes,
        };
        self.first.get_or_insert(reading);
        self.latest = Some(reading);
    }

    /// Returns the payload bytes of all passes so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the seconds per 10^9 bytes; `None` if there were too few passes.
    pub(crate) fn s_per_gb(&self) -> Option<f64> {
        let (first, latest) = (self.first?, self.latest?);
        per_gb(
            (latest.spent - first.spent).as_secs_f64(),
            latest.bytes - first.bytes,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn burn(time: Duration) {
        let end = process_time() + time;
        while process_time() < end {}
    }

    #[test]
    fn cpu_time_counts_work_but_not_sleep() {
        let mut meter = Meter::default();
        meter.pass(1);
        burn(Duration::from_millis(5));
        meter.pass(1_000_000);
        let busy = meter.s_per_gb().expect("two passes");
        // Other tests run in the same process, so only the lower bound is certain.
        assert!(busy >= 4.9, "{busy}");
    }

    #[test]
    fn one_pass_is_too_few() {
        let mut meter = Meter::default();
        assert_eq!(meter.s_per_gb(), None);
        meter.pass(100);
        assert_eq!(meter.s_per_gb(), None);
        assert_eq!(per_gb(1.0, 0), None);
        assert_eq!(per_gb(1.0, 2_000_000_000), Some(0.5));
    }
}
