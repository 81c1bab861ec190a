// SPDX-License-Identifier: MIT OR Apache-2.0
//! Clock, warm-up and statistics that all rows share.
//!
//! A row is a sequence of *passes*: a batch of round trips, or a window of messages with its
//! acknowledgement. The clock is read once per pass, so a pass must be long compared with a clock
//! read (8 to 25 ns). Rows through shared memory put [`SHM_BATCH`] round trips into one pass and
//! report the mean of each batch.

use crate::costs::Costs;
use crate::cpu::process_time;
use crate::extra::{Account, Extra};
use crate::percentiles::{PS_PER_US, Tail, packed};
use anyhow::{Context, Result};
use hdrhistogram::Histogram;
use portolan::binding::Usage;
use quanta::Clock;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Round trips per pass through shared memory. A clock read adds less than 1 % to 64 round trips of
/// 130 ns.
pub(crate) const SHM_BATCH: u64 = 64;

/// Fraction of a row's time or count that runs before recording starts. It warms up caches, page
/// tables and the clock frequency.
pub(crate) const WARM_UP: f64 = 0.1;

/// Longest recorded time in picoseconds (10 s); longer times are recorded as this value. No end
/// waits that long for the other. Picoseconds are needed because 0.1 ns is significant in the 65 ns
/// of a cache line transfer.
const PASS_PS_MAX: u64 = 10_000_000_000_000;

/// Significant digits of recorded times. The machine's noise is larger than the rounding.
const DIGITS: u8 = 3;

/// Description of the clock in the JSON.
pub(crate) const CLOCK_NAME: &str =
    "quanta (time stamp counter calibrated against CLOCK_MONOTONIC), read once per pass";

/// Duration of a row.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Pace {
    /// A time in seconds.
    Seconds(f64),
    /// A number of measured messages, rounded up to whole passes.
    Iterations(u64),
}

/// Contents of a pass.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pass {
    /// Messages in a pass; round trips in a ping-pong.
    pub(crate) messages: u64,
    /// Divisor of the time of one message: 2 for half a round trip, otherwise 1.
    pub(crate) halves: u64,
}

impl Pass {
    /// Returns a pass of messages in one direction.
    pub(crate) fn one_way(messages: u64) -> Pass {
        Pass {
            messages,
            halves: 1,
        }
    }

    /// Returns a pass of messages that are answered one by one.
    pub(crate) fn round_trips(messages: u64) -> Pass {
        Pass {
            messages,
            halves: 2,
        }
    }

    /// Records a pass that took `pass_ns`.
    fn record(self, times: &mut Histogram<u64>, pass_ns: u64) {
        let pass_ps = pass_ns.saturating_mul(1000);
        times.saturating_record(pass_ps / (self.messages * self.halves));
    }

    /// Returns the figures of `passes` passes, which took `elapsed` in total.
    #[allow(clippy::cast_precision_loss, reason = "three digits are reported")]
    fn sample(self, times: &Histogram<u64>, passes: u64, elapsed: Duration) -> Sample {
        let messages = passes * self.messages;
        let parts = (messages * self.halves) as f64;
        Sample {
            iterations: messages,
            p50_us: times.value_at_quantile(0.5) as f64 / PS_PER_US,
            p99_us: times.value_at_quantile(0.99) as f64 / PS_PER_US,
            mean_us: elapsed.as_secs_f64() * 1e6 / parts,
            min_us: times.min() as f64 / PS_PER_US,
            msgs_per_s: parts / elapsed.as_secs_f64(),
            tail: Tail::of(times),
            ..Sample::default()
        }
    }
}

/// Figures of one row in one round. Times are per message, or half a round trip.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Sample {
    /// Number of measured messages.
    pub(crate) iterations: u64,
    /// Median, in microseconds.
    pub(crate) p50_us: f64,
    /// 99th percentile, in microseconds.
    pub(crate) p99_us: f64,
    pub(crate) mean_us: f64,
    pub(crate) min_us: f64,
    /// Messages per second over the whole measurement.
    pub(crate) msgs_per_s: f64,
    /// Further percentiles.
    #[serde(flatten)]
    pub(crate) tail: Tail,
    /// All times in picoseconds, as a packed HdrHistogram.
    #[serde(default)]
    pub(crate) times: Vec<u8>,
    /// Processor seconds of the measuring process over the whole measurement.
    #[serde(default)]
    pub(crate) cpu_s: f64,
    /// Processor seconds of the receiver per 10^9 bytes, if it measured them.
    #[serde(default)]
    pub(crate) receiver_cpu_s_per_gb: Option<f64>,
    /// Figures that only some rows have.
    #[serde(default)]
    pub(crate) extra: Extra,
}

impl Sample {
    /// Adds the receiver's account.
    pub(crate) fn take(&mut self, account: Account) {
        self.receiver_cpu_s_per_gb = account.cpu_s_per_gb;
        self.extra.costs.add(account.costs);
        self.add("receiver", account.counters);
    }

    pub(crate) fn add(&mut self, end: &str, counters: BTreeMap<String, u64>) {
        let named = counters
            .into_iter()
            .map(|(name, count)| (format!("{end}: {name}"), count));
        self.extra.counters.extend(named);
    }
}

/// Runs `pass` for a warm-up, then until `pace` is used up, then once more with `true`. In the last
/// pass payloads are compared in full, and its time is not recorded.
///
/// # Errors
/// The first error of a pass.
pub(crate) fn drive(
    pace: Pace,
    shape: Pass,
    mut pass: impl FnMut(bool) -> Result<()>,
) -> Result<Sample> {
    let clock = Clock::new();
    warm_up(pace, shape, &mut pass)?;
    let mut times = histogram()?;
    let spent_before = process_time();
    let effort_before = Usage::of_this_thread();
    let start = Instant::now();
    let mut passes = 0_u64;
    let mut before = clock.raw();
    let mut spent = Duration::ZERO;
    while !enough(pace, passes * shape.messages, spent) {
        pass(false)?;
        let now = clock.raw();
        let pass_ns = clock.delta_as_nanos(before, now);
        shape.record(&mut times, pass_ns);
        spent += Duration::from_nanos(pass_ns);
        before = now;
        passes += 1;
    }
    let elapsed = start.elapsed();
    let cpu_s = (process_time() - spent_before).as_secs_f64();
    let effort = Usage::of_this_thread().since(&effort_before);
    pass(true)?;
    let mut sample = shape.sample(&times, passes, elapsed);
    sample.cpu_s = cpu_s;
    sample.times = packed(&times)?;
    sample.extra.costs = Costs::of("sender", &effort, passes * shape.messages);
    Ok(sample)
}

/// Returns the figures of passes with these times in nanoseconds.
///
/// # Errors
/// The times cannot be packed.
pub(crate) fn sample_of(shape: Pass, passes_ns: &[u64]) -> Result<Sample> {
    let mut times = histogram()?;
    for pass_ns in passes_ns {
        shape.record(&mut times, *pass_ns);
    }
    let elapsed = Duration::from_nanos(passes_ns.iter().sum());
    let mut sample = shape.sample(&times, passes_ns.len() as u64, elapsed);
    sample.times = packed(&times)?;
    Ok(sample)
}

fn histogram() -> Result<Histogram<u64>> {
    Histogram::new_with_bounds(1, PASS_PS_MAX, DIGITS).context("cannot create a histogram")
}

fn warm_up(pace: Pace, shape: Pass, pass: &mut impl FnMut(bool) -> Result<()>) -> Result<()> {
    let start = Instant::now();
    let mut messages = 0_u64;
    loop {
        pass(false)?;
        messages += shape.messages;
        let done = match pace {
            Pace::Seconds(seconds) => start.elapsed().as_secs_f64() >= seconds * WARM_UP,
            #[allow(clippy::cast_precision_loss, reason = "a tenth need not be exact")]
            Pace::Iterations(count) => messages as f64 >= count as f64 * WARM_UP,
        };
        if done {
            return Ok(());
        }
    }
}

fn enough(pace: Pace, messages: u64, spent: Duration) -> bool {
    match pace {
        Pace::Seconds(seconds) => messages > 0 && spent.as_secs_f64() >= seconds,
        Pace::Iterations(count) => messages >= count,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn count_is_rounded_up_to_whole_passes() {
        let mut passes = 0;
        let shape = Pass::round_trips(64);
        let sample = drive(Pace::Iterations(100), shape, |_| {
            passes += 1;
            Ok(())
        })
        .expect("no pass fails");
        assert_eq!(sample.iterations, 128);
        assert_eq!(passes, 1 + 2 + 1, "warm-up, measured, last");
    }

    #[test]
    fn only_the_final_pass_is_last() {
        let mut seen = Vec::new();
        let shape = Pass::one_way(1);
        drive(Pace::Iterations(3), shape, |last| {
            seen.push(last);
            Ok(())
        })
        .expect("no pass fails");
        assert_eq!(seen, [false, false, false, false, true]);
    }

    #[test]
    fn timed_loop_ends() {
        let shape = Pass::one_way(1);
        let sample = drive(Pace::Seconds(0.01), shape, |_| Ok(())).expect("no pass fails");
        assert!(sample.iterations > 0);
        assert!(sample.min_us <= sample.p50_us && sample.p50_us <= sample.p99_us);
    }

    #[test]
    fn times_are_in_microseconds_per_message() {
        let shape = Pass::round_trips(5);
        let mut times = histogram().expect("valid bounds");
        for pass_ns in [10_000_000, 20_000_000, 30_000_000] {
            shape.record(&mut times, pass_ns);
        }
        let sample = shape.sample(&times, 3, Duration::from_millis(60));
        assert_eq!(sample.iterations, 15);
        // The histogram rounds to 0.1 %.
        let is_near = |us: f64, wanted: f64| (us / wanted - 1.0).abs() < 0.002;
        assert!(is_near(sample.min_us, 1000.0), "{sample:?}");
        assert!(is_near(sample.p50_us, 2000.0), "{sample:?}");
        assert!(is_near(sample.p99_us, 3000.0), "{sample:?}");
        assert!(is_near(sample.mean_us, 2000.0), "{sample:?}");
        assert!(is_near(sample.msgs_per_s, 500.0), "{sample:?}");
    }

    #[test]
    fn pass_error_is_returned() {
        let shape = Pass::one_way(1);
        let error = drive(Pace::Iterations(5), shape, |_| anyhow::bail!("lost"));
        assert_eq!(error.expect_err("fails").to_string(), "lost");
    }
}
