// SPDX-License-Identifier: MIT OR Apache-2.0
//! Charts for two questions of papers on early adapters: the effect of shorter frames, and the
//! message length from which a transfer is faster than copying.

use crate::answers::float;
use crate::chart::{Axis, Ink, Line, Unit};
use crate::figures::{self, Figure};
use crate::systems::System;
use crate::units;
use portolan_bench::{Metric, Path, Report, Row, throughput};

/// Returns the charts for which `report` has figures.
pub(crate) fn figures(report: &Report) -> Vec<Figure> {
    let all = [end_to_end(report), streams(report), methods(report)];
    all.into_iter().flatten().collect()
}

/// Returns true if both methods of moving a message within a host were measured.
pub(crate) fn is_measured(report: &Report) -> bool {
    methods(report).is_some()
}

fn end_to_end(report: &Report) -> Option<Figure> {
    let lines = cut(report, Metric::Pingpong, throughput);
    let upwards = Axis::logarithmic("end-to-end throughput", Unit::MegabytesPerSecond);
    let caption = format!("Size over half the round trip. {}", costs(&lines)?);
    let title = "Shorter frames: end-to-end throughput";
    figures::sized("fragments-end-to-end", (title, caption), upwards, lines)
}

fn streams(report: &Report) -> Option<Figure> {
    let lines = cut(report, Metric::Stream, |row| row.mbytes_per_s);
    let upwards = Axis::logarithmic("throughput", Unit::MegabytesPerSecond);
    let title = "Shorter frames: stream in one direction";
    figures::sized("fragments-stream", (title, costs(&lines)?), upwards, lines)
}

/// Name of the reference line.
const UNCUT: &str = "frames as long as the MTU allows";

/// Returns the lines of Portolan over UDP by frame length, and of TCP; none if no frames were
/// shortened.
fn cut(report: &Report, metric: Metric, value: fn(&Row) -> f64) -> Vec<Line> {
    let is_cut = |row: &Row| row.conditions.frame_len_max > 0;
    let of_metric = report.results.iter().filter(|row| row.metric == metric);
    let mut lens: Vec<u32> = of_metric
        .clone()
        .filter(|row| is_cut(row))
        .map(|row| row.conditions.frame_len_max)
        .collect();
    lens.sort_unstable();
    lens.dedup();
    if lens.is_empty() {
        return Vec::new();
    }
    // Other sizes have nothing to compare with.
    let sizes: Vec<usize> = of_metric
        .clone()
        .filter(|row| is_cut(row))
        .map(|row| row.size)
        .collect();
    let shown = of_metric.filter(|row| sizes.contains(&row.size) && row.path == Path::Udp);
    figures::lines_of(
        shown,
        |row| frames(row, &lens),
        |row| Some((float(row.size), value(row))),
    )
}

/// Returns the line of `row`, by its frame length among `lens`. Rows with other conditions belong
/// to other charts.
fn frames(row: &Row, lens: &[u32]) -> Option<System> {
    /// Colours of the lines with shortened frames.
    const INKS: [Ink; 5] = [
        Ink::System(0),
        Ink::System(2),
        Ink::System(3),
        Ink::System(4),
        Ink::System(5),
    ];
    let mut others = row.conditions;
    others.frame_len_max = 0;
    if !others.describe().is_empty() {
        return None;
    }
    let len = row.conditions.frame_len_max;
    let (name, short, ink) = match row.system.as_str() {
        "tcp" => ("TCP".into(), "TCP".into(), Ink::KERNEL),
        "portolan" if len == 0 => (UNCUT.into(), "as the MTU".into(), Ink::System(1)),
        "portolan" => {
            let at = lens.iter().position(|known| *known == len)?;
            let words = units::bytes(f64::from(len));
            (format!("frames of {words}"), words, INKS[at % INKS.len()])
        }
        _ => return None,
    };
    Some(System {
        name,
        short,
        ink,
        is_limit: false,
    })
}

/// Describes the best and worst effect of short frames; returns `None` without lines.
fn costs(lines: &[Line]) -> Option<String> {
    let uncut = lines.iter().find(|line| line.name == UNCUT)?;
    let against = |line: &Line| {
        let shares: Vec<(f64, f64)> = line
            .points
            .iter()
            .filter_map(|(size, value)| {
                let same = uncut.points.iter().find(|point| point.0 == *size)?;
                Some((*size, value / same.1))
            })
            .collect();
        let best = shares.iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
        let worst = shares.iter().min_by(|a, b| a.1.total_cmp(&b.1))?;
        let share_at =
            |(size, share): &(f64, f64)| format!("{share:.2} times at {}", units::bytes(*size));
        Some(format!(
            "{} carry {} at best, {} at worst",
            line.name,
            share_at(best),
            share_at(worst)
        ))
    };
    let cut = lines
        .iter()
        .filter(|line| line.name.starts_with("frames of"));
    let sentences: Vec<String> = cut.filter_map(against).collect();
    let against = format!("Against {UNCUT}, {}", sentences.join("; "));
    Some(against).filter(|_| !sentences.is_empty())
}

/// Returns the chart of the two methods without a protocol to move a message between processes of a
/// host. It is copied into shared memory and out of it, or read by one system call.
fn methods(report: &Report) -> Option<Figure> {
    /// Methods: name in the JSON, full name, short name, colour.
    const METHODS: [(&str, &str, &str, Ink); 2] = [
        (
            "pipelined copy",
            "copied in and out by the processes",
            "copied",
            Ink::System(2),
        ),
        (
            "process_vm_readv",
            "read by a system call",
            "fetched",
            Ink::System(0),
        ),
    ];
    let all = report.results.iter().chain(&report.slower_variants);
    let bare = all.filter(|row| {
        row.metric == Metric::Stream
            && row.path == Path::Shm
            && matches!(row.system.as_str(), "limit" | "limit-single")
    });
    let method = |row: &Row| {
        let (_, name, short, ink) = METHODS
            .iter()
            .find(|(variant, ..)| *variant == row.variant)?;
        Some(System {
            name: (*name).into(),
            short: (*short).into(),
            ink: *ink,
            is_limit: false,
        })
    };
    let lines = figures::lines_of(bare, method, |row| {
        (row.mbytes_per_s > 0.0).then(|| (float(row.size), row.mbytes_per_s))
    });
    let [copied, fetched] = lines.as_slice() else {
        return None;
    };
    let caption = format!(
        "Streams within a host, without a protocol: {}. A pipelined copy moves each byte twice; a call has a fixed cost and moves each byte once",
        crossing(copied, fetched)
    );
    let title = "Two methods to move a message within a host";
    let upwards = Axis::logarithmic("throughput", Unit::MegabytesPerSecond);
    figures::sized("moving", (title, caption), upwards, lines)
}

/// Describes which of two lines is ahead in which range.
fn crossing(one: &Line, other: &Line) -> String {
    let leads = one.points.iter().filter_map(|(size, value)| {
        let beside = other.points.iter().find(|point| point.0 == *size)?;
        Some((*size, if *value >= beside.1 { one } else { other }))
    });
    let mut runs: Vec<(f64, &Line)> = Vec::new();
    for (size, leader) in leads {
        if runs
            .last()
            .is_none_or(|(_, known)| known.name != leader.name)
        {
            runs.push((size, leader));
        }
    }
    let sentences: Vec<String> = runs
        .iter()
        .map(|(from, leader)| format!("{} is ahead from {} on", leader.name, units::bytes(*from)))
        .collect();
    sentences.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::Chart;
    use crate::tests::{report, row};
    use serde_json::json;

    fn figures_of(rows: Vec<serde_json::Value>, slower: Vec<serde_json::Value>) -> Vec<Figure> {
        let mut json = report(rows);
        json["slower_variants"] = slower.into();
        figures(&serde_json::from_value(json).expect("a report"))
    }

    #[test]
    fn each_frame_length_is_a_line_and_the_caption_has_its_cost() {
        let mut rows = Vec::new();
        for size in [1024, 65536] {
            let stream = |len: u32, rate: f64| {
                let fields = json!({"frame_len_max": len, "mbytes_per_s": rate});
                row("portolan", "udp", "stream", size, &fields)
            };
            rows.extend([stream(0, 1000.0), stream(512, 250.0), stream(1024, 500.0)]);
            rows.push(row("tcp", "udp", "stream", size, &json!({})));
            rows.push(row(
                "portolan",
                "udp",
                "stream",
                size,
                &json!({"loss_ppm": 9}),
            ));
        }
        // A size without shortened frames.
        rows.push(row("portolan", "udp", "stream", 1 << 20, &json!({})));
        let figures = figures_of(rows, vec![]);
        let [figure] = figures.as_slice() else {
            panic!("{figures:?}");
        };
        assert_eq!(figure.name, "fragments-stream");
        let Chart::Lines(chart) = &figure.chart else {
            panic!("{figure:?}");
        };
        let names: Vec<&str> = chart.lines.iter().map(|line| line.name.as_str()).collect();
        assert_eq!(names, [UNCUT, "frames of 512 B", "frames of 1 KB", "TCP"]);
        assert!(chart.lines.iter().all(|line| line.points.len() == 2));
        assert!(
            figure
                .caption
                .contains("frames of 512 B carry 0.25 times at"),
            "{}",
            figure.caption
        );
    }

    #[test]
    fn message_variants_are_listed_with_their_crossover() {
        let method = |variant: &str, size: u64, rate: f64| {
            let fields = json!({"variant": variant, "mbytes_per_s": rate});
            let system = if size < 65536 {
                "limit-single"
            } else {
                "limit"
            };
            row(system, "shm", "stream", size, &fields)
        };
        let (copy, call) = ("pipelined copy", "process_vm_readv");
        let fastest = vec![
            method(copy, 64, 90.0),
            method(copy, 1024, 80.0),
            method(call, 65536, 70.0),
        ];
        let slower = vec![
            method(call, 64, 1.0),
            method(call, 1024, 9.0),
            method(copy, 65536, 60.0),
        ];
        let figures = figures_of(fastest, slower);
        let figure = figures.iter().find(|figure| figure.name == "moving");
        let caption = &figure.expect("the chart").caption;
        let expected = "copied in and out by the processes is ahead from 64 B on, read by a \
                    system call is ahead from 64 KB on";
        assert!(caption.contains(expected), "{caption}");
        let lone = row("limit", "shm", "stream", 64, &json!({}));
        assert_eq!(figures_of(vec![lone], vec![]), []);
    }
}
