// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sentences with the main results for the user.

use crate::data::{Comparison, Data, Pair};
use crate::systems::path_name;
use crate::units;
use portolan_bench::{Metric, Path, compare};

/// Returns sentences about speed: the sizes at which Portolan is faster, and by how much.
pub(crate) fn answers(data: &Data<'_>) -> Vec<String> {
    let mut sentences = Vec::new();
    for within in [false, true] {
        sentences.extend(latency(data, within));
        sentences.extend(sizes(data, Metric::Pingpong, within));
    }
    for metric in [Metric::Stream, Metric::Bidir] {
        for within in [false, true] {
            sentences.extend(throughput(data, metric, within));
        }
    }
    sentences.extend(
        [false, true]
            .into_iter()
            .filter_map(|within| rate(data, within)),
    );
    sentences
}

fn place(within: bool) -> &'static str {
    if within {
        "within a host"
    } else {
        "between two hosts"
    }
}

/// Describes the latency of the smallest message on each path and over TCP.
fn latency(data: &Data<'_>, within: bool) -> Option<String> {
    let size = *data
        .sizes(Metric::Pingpong)
        .iter()
        .find(|size| **size > 0)?;
    let tcp = data.tcp(Metric::Pingpong, within, size)?;
    let paths: &[Path] = if within {
        &[Path::Shm]
    } else {
        &[Path::Packet, Path::Udp]
    };
    let over = |path: &Path| {
        let row = data.row(Metric::Pingpong, ("portolan", *path), size)?;
        Some(format!(
            "{} over {} ({})",
            units::time(row.p50_us),
            path_name(*path),
            match compare(row, tcp).and_then(|versus| versus.distinguishable) {
                Some(false) => "not distinguishable from TCP".into(),
                _ => times(tcp.p50_us / row.p50_us),
            }
        ))
    };
    let parts: Vec<String> = paths.iter().filter_map(over).collect();
    let of_message = format!(
        "A message of {} {}",
        units::bytes(float(size)),
        place(within)
    );
    (!parts.is_empty()).then(|| {
        format!(
            "{of_message} takes {}; TCP takes {}.",
            parts.join(" and "),
            units::time(tcp.p50_us)
        )
    })
}

/// Formats a ratio as `1.8 times faster than TCP`.
fn times(advantage: f64) -> String {
    /// Differences below two significant digits are not reported.
    const SAME: f64 = 1.05;
    if advantage >= SAME {
        format!("{} times faster than TCP", units::ratio(advantage))
    } else if advantage <= 1.0 / SAME {
        format!("{} times slower than TCP", units::ratio(1.0 / advantage))
    } else {
        "as fast as TCP".into()
    }
}

/// Describes the sizes at which Portolan is faster.
fn sizes(data: &Data<'_>, metric: Metric, within: bool) -> Option<String> {
    let pairs = data.pairs(metric, within);
    if pairs.len() < 2 {
        return None;
    }
    let mut runs: Vec<(Comparison, Vec<Pair<'_>>)> = Vec::new();
    for pair in pairs {
        match runs.last_mut() {
            Some((comparison, run)) if *comparison == pair.comparison() => run.push(pair),
            _ => runs.push((pair.comparison(), vec![pair])),
        }
    }
    let parts: Vec<String> = runs
        .iter()
        .filter_map(|(comparison, run)| part(*comparison, run))
        .collect();
    let place = place(within);
    let place = place[..1].to_uppercase() + &place[1..];
    Some(format!("{place} Portolan is {}.", parts.join("; ")))
}

fn part(comparison: Comparison, run: &[Pair<'_>]) -> Option<String> {
    let (first, last) = (run.first()?, run.last()?);
    let range = if first.size == last.size {
        format!("at {}", units::bytes(float(first.size)))
    } else {
        format!(
            "from {} to {}",
            units::bytes(float(first.size)),
            units::bytes(float(last.size))
        )
    };
    let of = |pair: &Pair<'_>| match comparison {
        Comparison::Worse => 1.0 / pair.advantage(),
        _ => pair.advantage(),
    };
    let (least, most) = run
        .iter()
        .map(of)
        .fold((f64::INFINITY, 0.0_f64), |(least, most), of| {
            (least.min(of), most.max(of))
        });
    let (least, most) = (units::ratio(least), units::ratio(most));
    let by = if least == most {
        least
    } else {
        format!("{least} to {most}")
    };
    Some(match comparison {
        Comparison::Better => format!("{by} times faster than TCP {range}"),
        Comparison::Worse => format!("{by} times slower than TCP {range}"),
        Comparison::Alike => format!("not distinguishable from TCP {range}"),
    })
}

/// Describes the throughput of a stream's longest messages.
fn throughput(data: &Data<'_>, metric: Metric, within: bool) -> Option<String> {
    let pair = data.pairs(metric, within).pop()?;
    let what = if metric == Metric::Bidir {
        "Streams in both directions at once"
    } else {
        "A stream in one direction"
    };
    let verdict = match pair.comparison() {
        Comparison::Alike => "not distinguishable from TCP's".to_owned(),
        _ if pair.advantage() < 1.0 => {
            format!(
                "TCP's is {} times that",
                units::ratio(1.0 / pair.advantage())
            )
        }
        _ => format!("{} times TCP's", units::ratio(pair.advantage())),
    };
    Some(format!(
        "{what}, {}, of messages of {}: {} ({verdict}); TCP moves {}.",
        place(within),
        units::bytes(float(pair.size)),
        units::rate(pair.portolan.mbytes_per_s),
        units::rate(pair.tcp.mbytes_per_s)
    ))
}

fn rate(data: &Data<'_>, within: bool) -> Option<String> {
    let pair = data.pairs(Metric::Rate, within).into_iter().next()?;
    Some(format!(
        "Messages of {} per second, {}: {}; over TCP {} ({}).",
        units::bytes(float(pair.size)),
        place(within),
        units::count(pair.portolan.msgs_per_s),
        units::count(pair.tcp.msgs_per_s),
        pair.tcp.variant
    ))
}

#[allow(clippy::cast_precision_loss, reason = "sizes stay below 2^30")]
pub(crate) fn float(size: usize) -> f64 {
    size as f64
}
