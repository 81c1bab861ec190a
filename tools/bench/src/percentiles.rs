// SPDX-License-Identifier: MIT OR Apache-2.0
//! Percentiles of a row's times, and log files in the format of HdrHistogram's tools.

use crate::args::Metric;
use crate::measure::Sample;
use crate::rounds::median;
use anyhow::{Context, Result};
use hdrhistogram::Histogram;
use hdrhistogram::serialization::interval_log::IntervalLogWriterBuilder;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Recorded picoseconds per microsecond, the unit of the figures.
pub(crate) const PS_PER_US: f64 = 1e6;

/// Percentiles beside the median and the 99th, in microseconds. If a pass has several messages,
/// they are percentiles of the passes' means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tail {
    /// 90th percentile.
    #[serde(default)]
    pub p90_us: f64,
    /// 99.9th percentile.
    #[serde(default)]
    pub p99_9_us: f64,
    /// 99.99th percentile.
    #[serde(default)]
    pub p99_99_us: f64,
    /// Maximum of all rounds.
    #[serde(default)]
    pub max_us: f64,
}

impl Tail {
    /// Returns the percentiles of the recorded `times`.
    #[allow(clippy::cast_precision_loss, reason = "three digits are reported")]
    pub(crate) fn of(times: &Histogram<u64>) -> Tail {
        let at = |quantile| times.value_at_quantile(quantile) as f64 / PS_PER_US;
        Tail {
            p90_us: at(0.9),
            p99_9_us: at(0.999),
            p99_99_us: at(0.9999),
            max_us: times.max() as f64 / PS_PER_US,
        }
    }

    /// Returns the medians of `rounds`, and the maximum of all.
    pub(crate) fn of_rounds(rounds: &[Sample]) -> Tail {
        let of = |field: fn(&Tail) -> f64| {
            median(rounds.iter().map(|sample| field(&sample.tail)).collect())
        };
        Tail {
            p90_us: of(|tail| tail.p90_us),
            p99_9_us: of(|tail| tail.p99_9_us),
            p99_99_us: of(|tail| tail.p99_99_us),
            max_us: rounds
                .iter()
                .fold(0.0, |max, sample| sample.tail.max_us.max(max)),
        }
    }
}

/// Serializes `times` for the end that collects them.
///
/// # Errors
/// None are expected.
pub(crate) fn packed(times: &Histogram<u64>) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let packed = V2DeflateSerializer::new().serialize(times, &mut bytes);
    packed.map_err(|error| anyhow::anyhow!("cannot pack a histogram: {error}"))?;
    Ok(bytes)
}

/// Writes one log per measurement, `METRIC-SIZE-NAME.hlog`, with one interval per round.
pub(crate) struct Logs {
    directory: Option<PathBuf>,
    began: Instant,
    rounds: BTreeMap<String, Vec<Round>>,
}

struct Round {
    ended: Duration,
    lasted: Duration,
    times: Vec<u8>,
}

impl Logs {
    /// Creates logs in `directory`. Without a directory, samples are discarded.
    pub(crate) fn new(directory: Option<PathBuf>) -> Logs {
        Logs {
            directory,
            began: Instant::now(),
            rounds: BTreeMap::new(),
        }
    }

    /// Keeps a round of the measurement `name`.
    pub(crate) fn add(&mut self, (metric, size): (Metric, usize), name: &str, sample: &Sample) {
        if self.directory.is_none() || sample.times.is_empty() {
            return;
        }
        let name = format!("{metric}-{size}-{}", file_name(name));
        #[allow(clippy::cast_precision_loss, reason = "a time to be read by people")]
        let lasted = sample.iterations as f64 * sample.mean_us / 1e6;
        self.rounds.entry(name).or_default().push(Round {
            ended: self.began.elapsed(),
            lasted: Duration::from_secs_f64(lasted.max(0.0)),
            times: sample.times.clone(),
        });
    }

    /// Writes the logs.
    ///
    /// # Errors
    /// A file cannot be written.
    pub(crate) fn write(&self) -> Result<()> {
        let Some(directory) = &self.directory else {
            return Ok(());
        };
        fs::create_dir_all(directory)
            .with_context(|| format!("cannot create the directory {}", directory.display()))?;
        for (name, rounds) in &self.rounds {
            let path = directory.join(format!("{name}.hlog"));
            write_log(&path, rounds).with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(())
    }
}

/// Returns the letters and digits of `name`, joined by hyphens.
fn file_name(name: &str) -> String {
    let words = name.split(|letter: char| !letter.is_ascii_alphanumeric());
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    words.join("-").to_lowercase()
}

fn write_log(path: &std::path::Path, rounds: &[Round]) -> Result<()> {
    let mut file = File::create(path)?;
    let mut serializer = V2DeflateSerializer::new();
    let mut builder = IntervalLogWriterBuilder::new();
    // The readable columns are in microseconds; the histograms are in picoseconds.
    let mut log = builder
        .add_comment("portolan bench: times in picoseconds, one interval a round")
        .with_max_value_divisor(PS_PER_US)
        .begin_log_with(&mut file, &mut serializer)?;
    for round in rounds {
        let times: Histogram<u64> = Deserializer::new()
            .deserialize(&mut round.times.as_slice())
            .map_err(|error| anyhow::anyhow!("a received histogram is damaged: {error}"))?;
        let start = round.ended.saturating_sub(round.lasted);
        log.write_histogram(&times, start, round.lasted, None)
            .map_err(|error| anyhow::anyhow!("{error:?}"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};

    fn times() -> Histogram<u64> {
        let mut times = Histogram::new_with_bounds(1, 1 << 40, 3).expect("bounds");
        for us in 1..=10_000 {
            times.record(us * 1_000_000).expect("within them");
        }
        times
    }

    #[test]
    fn tail_is_in_microseconds() {
        let tail = Tail::of(&times());
        let is_near = |us: f64, wanted: f64| (us / wanted - 1.0).abs() < 0.002;
        assert!(
            is_near(tail.p90_us, 9000.0) && is_near(tail.p99_9_us, 9990.0),
            "{tail:?}"
        );
        assert!(
            is_near(tail.p99_99_us, 9999.0) && is_near(tail.max_us, 10_000.0),
            "{tail:?}"
        );
    }

    #[test]
    fn log_has_one_interval_per_round_and_parses() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut logs = Logs::new(Some(directory.path().join("new")));
        let sample = Sample {
            iterations: 100,
            mean_us: 10.0,
            times: packed(&times()).expect("packs"),
            ..Sample::default()
        };
        for _ in 0..3 {
            logs.add(
                (Metric::Pingpong, 64),
                "TCP (spinning, TCP_NODELAY)",
                &sample,
            );
        }
        logs.write().expect("written");
        let file = directory
            .path()
            .join("new/pingpong-64-tcp-spinning-tcp-nodelay.hlog");
        let text = fs::read(file).expect("is there");
        let intervals = IntervalLogIterator::new(&text)
            .filter(|entry| matches!(entry, Ok(LogEntry::Interval(_))))
            .count();
        assert_eq!(intervals, 3);
    }
}
