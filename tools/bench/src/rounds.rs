// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rounds of measurements. Each round runs every measurement once, so disturbances affect all of
//! them alike. Rows report the medians of the rounds.

use crate::args::Metric;
use crate::cpu::{Cpu, per_gb};
use crate::extra::Extra;
use crate::measure::Sample;
use crate::percentiles::Tail;
use crate::plan::{Measurement, PlannedRow, measurements};
use crate::schema::Row;
use anyhow::Result;

/// Result of the rows for one metric and one size.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// The fastest variant of each row.
    pub(crate) rows: Vec<Row>,
    /// The slower variants.
    pub(crate) slower: Vec<Row>,
    /// Failed measurements, each with the reason.
    pub(crate) failures: Vec<(Measurement, String)>,
}

/// Runs all measurements of `planned` `rounds` times through `measure`. A failed measurement is not
/// repeated, and its earlier figures are discarded. No further measurement starts once `stopped`
/// returns true.
pub(crate) fn run(
    planned: &[PlannedRow],
    (metric, size): (Metric, usize),
    rounds: u32,
    stopped: impl Fn() -> bool,
    mut measure: impl FnMut(&Measurement) -> Result<Sample>,
) -> Outcome {
    let mut outcome = Outcome::default();
    let mut taken: Vec<(Measurement, Vec<Sample>)> = measurements(planned)
        .into_iter()
        .map(|measurement| (measurement, Vec::new()))
        .collect();
    for _ in 0..rounds {
        taken.retain_mut(|(measurement, samples)| {
            if stopped() {
                return true;
            }
            match measure(measurement) {
                Ok(sample) => samples.push(sample),
                // An interrupt of the command also stops the current row.
                Err(_) if stopped() => {}
                Err(error) => {
                    outcome.failures.push((*measurement, format!("{error:#}")));
                    return false;
                }
            }
            true
        });
    }
    taken.retain(|(_, samples)| !samples.is_empty());
    for row in planned {
        let candidates = row.candidates.iter().filter_map(|candidate| {
            let (_, samples) = taken
                .iter()
                .find(|(measurement, _)| measurement == candidate)?;
            Some(summarize(row, candidate, (metric, size), samples))
        });
        outcome.add(candidates.collect());
    }
    outcome
}

impl Outcome {
    fn add(&mut self, mut candidates: Vec<Row>) {
        let mut best = 0;
        for index in 1..candidates.len() {
            if candidates[index].beats(&candidates[best]) {
                best = index;
            }
        }
        if !candidates.is_empty() {
            self.rows.push(candidates.swap_remove(best));
            self.slower.append(&mut candidates);
        }
    }
}

fn summarize(
    row: &PlannedRow,
    measurement: &Measurement,
    (metric, size): (Metric, usize),
    samples: &[Sample],
) -> Row {
    let of = |field: fn(&Sample) -> f64| median(samples.iter().map(field).collect());
    let msgs_per_s = of(|sample| sample.msgs_per_s);
    #[allow(clippy::cast_precision_loss, reason = "sizes stay below 2^30")]
    let megabytes = size as f64 / 1e6;
    let mut summary = Row {
        system: row.system.into(),
        path: row.path,
        metric,
        size,
        variant: measurement.variant(),
        conditions: measurement.conditions,
        iterations: samples.iter().map(|sample| sample.iterations).sum(),
        p50_us: of(|sample| sample.p50_us),
        p99_us: of(|sample| sample.p99_us),
        mean_us: of(|sample| sample.mean_us),
        min_us: samples
            .iter()
            .map(|sample| sample.min_us)
            .fold(f64::INFINITY, f64::min),
        tail: Tail::of_rounds(samples),
        mbytes_per_s: msgs_per_s * megabytes,
        msgs_per_s,
        per_round: Vec::new(),
        extra: Extra::of_rounds(&extras(metric, size, samples)),
    };
    summary.per_round = samples
        .iter()
        .map(|sample| match metric {
            Metric::Pingpong | Metric::Logp => sample.p50_us,
            Metric::Stream | Metric::Incast | Metric::Bidir => sample.msgs_per_s * megabytes,
            Metric::Loaded => sample.p99_us,
            Metric::Rate => sample.msgs_per_s,
        })
        .collect();
    summary
}

/// Returns the extra figures of each round, including processor time per byte of a stream.
fn extras(metric: Metric, size: usize, samples: &[Sample]) -> Vec<Extra> {
    let of = |sample: &Sample| {
        let mut extra = sample.extra.clone();
        if matches!(metric, Metric::Stream | Metric::Bidir) {
            let sender = per_gb(sample.cpu_s, sample.iterations * size as u64);
            extra.cpu = sender
                .zip(sample.receiver_cpu_s_per_gb)
                .map(|(sender, receiver)| Cpu {
                    sender_s_per_gb: sender,
                    receiver_s_per_gb: receiver,
                });
        }
        extra
    };
    samples.iter().map(of).collect()
}

/// Returns the median: the mean of the two middle values for an even number of values, and 0 for
/// none.
#[must_use]
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => 0.0,
        len if len % 2 == 1 => values[middle],
        _ => f64::midpoint(values[middle - 1], values[middle]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Path;
    use crate::conditions::Conditions;
    use crate::spec::{Lines, Program};
    use anyhow::bail;

    fn sample(p50_us: f64) -> Sample {
        let msgs_per_s = 1e6 / p50_us;
        Sample {
            iterations: 10,
            p50_us,
            p99_us: p50_us,
            mean_us: p50_us,
            min_us: p50_us,
            msgs_per_s,
            ..Sample::default()
        }
    }

    fn measurement(program: Program) -> Measurement {
        Measurement {
            program,
            between_hosts: true,
            conditions: Conditions::default(),
            congestion: None,
        }
    }

    fn planned() -> Vec<PlannedRow> {
        let row = |system, programs: &[Program]| PlannedRow {
            system,
            path: Path::Packet,
            candidates: programs.iter().copied().map(measurement).collect(),
        };
        let lines = [
            Program::ShmPingpong(Lines::One),
            Program::ShmPingpong(Lines::Two),
        ];
        vec![row("limit", &lines), row("tcp", &[Program::TcpPingpong])]
    }

    #[test]
    fn rounds_interleave_and_medians_are_reported() {
        let mut order = Vec::new();
        let outcome = run(
            &planned(),
            (Metric::Pingpong, 64),
            3,
            || false,
            |m| {
                order.push(m.program);
                // 1, 2, 3 | 4, 5, 6 | 7, 8, 9
                Ok(sample(f64::from(u32::try_from(order.len())?)))
            },
        );
        assert_eq!(order[..3], order[3..6]);
        assert_eq!(order.len(), 9);
        let [limit, tcp] = &outcome.rows[..] else {
            panic!("two rows")
        };
        assert_eq!((limit.p50_us, tcp.p50_us), (4.0, 6.0));
        assert_eq!(limit.per_round, [1.0, 4.0, 7.0]);
        assert_eq!(limit.iterations, 30);
        assert_eq!(outcome.slower.len(), 1);
        assert_eq!(outcome.slower[0].p50_us, 5.0);
    }

    #[test]
    fn stream_limit_is_the_variant_with_more_bytes() {
        let outcome = run(
            &planned()[..1],
            (Metric::Stream, 1 << 20),
            1,
            || false,
            |m| {
                Ok(sample(if m.program == Program::ShmPingpong(Lines::Two) {
                    1.0
                } else {
                    2.0
                }))
            },
        );
        assert_eq!(
            outcome.rows[0].variant,
            Program::ShmPingpong(Lines::Two).variant()
        );
    }

    #[test]
    fn failing_row_is_reported_once_and_not_repeated() {
        let mut calls = 0;
        let outcome = run(
            &planned()[1..],
            (Metric::Pingpong, 64),
            3,
            || false,
            |_| {
                calls += 1;
                if calls == 2 {
                    bail!("refused")
                } else {
                    Ok(sample(1.0))
                }
            },
        );
        assert_eq!(calls, 2);
        assert!(outcome.rows.is_empty());
        assert_eq!(
            outcome.failures,
            [(measurement(Program::TcpPingpong), "refused".into())]
        );
    }

    #[test]
    fn completed_rounds_survive_a_stop() {
        let calls = std::cell::Cell::new(0);
        let stopped = || calls.get() >= 4;
        // A round has three variants. The fourth measurement is interrupted.
        let outcome = run(&planned(), (Metric::Pingpong, 64), 3, stopped, |_| {
            calls.set(calls.get() + 1);
            if calls.get() == 4 {
                bail!("interrupted")
            } else {
                Ok(sample(1.0))
            }
        });
        assert_eq!(calls.get(), 4);
        assert!(outcome.failures.is_empty());
        assert_eq!(outcome.rows.len(), 2);
        assert_eq!(outcome.rows[0].per_round, [1.0]);
    }

    #[test]
    fn median_of_even_count_is_the_mean_of_the_middle() {
        assert_eq!(median(vec![4.0, 1.0, 3.0, 2.0]), 2.5);
        assert_eq!(median(vec![]), 0.0);
    }
}
