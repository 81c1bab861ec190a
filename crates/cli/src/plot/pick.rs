// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which charts a file of results has figures for.

use super::chart::{Bars, Lines, Series};
use crate::bench::{Metric, Report, Row, throughput};
use serde_json::Value;

/// Charts by name.
#[derive(Debug, Default)]
pub(super) struct Picked {
    pub(super) lines: Vec<(&'static str, Lines)>,
    pub(super) bars: Vec<(&'static str, Bars)>,
}

/// The charts of `json`; `None` if it is neither command's.
pub(super) fn pick(json: &Value) -> Option<Picked> {
    if let Ok(report) = serde_json::from_value::<Report>(json.clone()) {
        return Some(of_bench(&report));
    }
    of_tune(json)
}

fn of_bench(report: &Report) -> Picked {
    let mtu = report.machine.mtu;
    let rows = &report.results;
    let mut picked = Picked::default();
    let mut line = |name, title: &str, measure: &str, metric, value: fn(&Row) -> f64| {
        let series = series(rows, metric, value);
        if !series.is_empty() {
            let lines = Lines {
                title: format!("{title}, MTU {mtu}"),
                measure: measure.into(),
                series,
            };
            picked.lines.push((name, lines));
        }
    };
    line(
        "end-to-end",
        "End-to-end throughput",
        "MB/s",
        Metric::Pingpong,
        throughput,
    );
    line(
        "latency",
        "Half round trip",
        "µs",
        Metric::Pingpong,
        |row| row.p50_us,
    );
    line("throughput", "Stream", "MB/s", Metric::Stream, |row| {
        row.mbytes_per_s
    });
    let bars = [
        ("stream", stream(rows)),
        ("cpu", cpu(rows)),
        ("loaded", loaded(rows)),
        ("incast", incast(rows)),
    ];
    for (name, bars) in bars {
        let title = format!("{}, MTU {mtu}", bars.title);
        if !bars.groups.is_empty() {
            picked.bars.push((name, Bars { title, ..bars }));
        }
    }
    picked
}

/// What a row is called in a legend.
fn name(row: &Row) -> String {
    let conditions = row.conditions.describe();
    // A way of doing the work that was chosen for being the fastest would cut a series in pieces.
    let words = [format!("{} {}", row.system, row.path), conditions];
    words
        .into_iter()
        .filter(|words| !words.is_empty())
        .collect::<Vec<_>>()
        .join(", ")
}

/// One line a system, path and condition, of those with two sizes or more.
#[allow(clippy::cast_precision_loss, reason = "sizes stay below 2^30")]
fn series(rows: &[Row], metric: Metric, value: fn(&Row) -> f64) -> Vec<Series> {
    let mut all: Vec<Series> = Vec::new();
    for row in rows.iter().filter(|row| row.metric == metric) {
        let (name, point) = (name(row), (row.size as f64, value(row)));
        match all.iter_mut().find(|series| series.name == name) {
            Some(series) => series.points.push(point),
            None => all.push(Series {
                name,
                points: vec![point],
            }),
        }
    }
    all.retain(|series| series.points.len() > 1);
    for series in &mut all {
        series.points.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    all
}

fn bars(title: &str, measure: &str, legend: &[&str], groups: Vec<(String, Vec<f64>)>) -> Bars {
    Bars {
        title: title.into(),
        measure: measure.into(),
        legend: legend.iter().map(|&entry| entry.into()).collect(),
        groups,
        logarithmic: false,
    }
}

/// The largest size of each stream: placements, losses and interference side by side.
fn stream(rows: &[Row]) -> Bars {
    let groups = largest(rows)
        .map(|row| (name(row), vec![row.mbytes_per_s]))
        .collect();
    bars(
        "Stream by system and condition",
        "MB/s",
        &["throughput"],
        groups,
    )
}

fn cpu(rows: &[Row]) -> Bars {
    let of = |row: &Row| {
        let cpu = row.extra.cpu?;
        Some((name(row), vec![cpu.sender_s_per_gb, cpu.receiver_s_per_gb]))
    };
    let groups = largest(rows).filter_map(of).collect();
    bars(
        "Processor time of a stream",
        "s/GB",
        &["sender", "receiver"],
        groups,
    )
}

/// Rows of streams, of the largest size measured.
fn largest(rows: &[Row]) -> impl Iterator<Item = &Row> {
    let streams = rows.iter().filter(|row| row.metric == Metric::Stream);
    let size = streams.clone().map(|row| row.size).max();
    streams.filter(move |row| Some(row.size) == size)
}

fn loaded(rows: &[Row]) -> Bars {
    let rows = rows.iter().filter(|row| row.metric == Metric::Loaded);
    let groups = rows.filter_map(|row| {
        let idle = row.extra.idle?;
        Some((
            name(row),
            vec![idle.p50_us, idle.p99_us, row.p50_us, row.p99_us],
        ))
    });
    let legend = [
        "idle, median",
        "idle, 99 %",
        "beside a stream, median",
        "beside a stream, 99 %",
    ];
    Bars {
        logarithmic: true,
        ..bars(
            "Half round trip",
            "µs (logarithmic)",
            &legend,
            groups.collect(),
        )
    }
}

fn incast(rows: &[Row]) -> Bars {
    let rows = rows.iter().filter(|row| row.metric == Metric::Incast);
    let groups = rows.filter_map(|row| {
        Some((
            name(row),
            vec![row.extra.single_mbytes_per_s?, row.mbytes_per_s],
        ))
    });
    bars(
        "Incast",
        "MB/s",
        &["a single sender", "all senders"],
        groups.collect(),
    )
}

/// `portolan tune`: an array `points` of objects with `path`, `size`, `predicted_us` and
/// `measured_us`.
fn of_tune(json: &Value) -> Option<Picked> {
    let points = json.get("points")?.as_array()?;
    let mut series: Vec<Series> = Vec::new();
    for point in points {
        let path = point.get("path")?.as_str()?;
        let size = point.get("size")?.as_f64()?;
        for field in ["measured_us", "predicted_us"] {
            let name = format!("{path}, {}", field.trim_end_matches("_us"));
            let Some(us) = point
                .get(field)
                .and_then(Value::as_f64)
                .filter(|us| *us > 0.0)
            else {
                continue;
            };
            let place = series.iter().position(|series| series.name == name);
            let place = place.unwrap_or_else(|| {
                series.push(Series {
                    name,
                    points: Vec::new(),
                });
                series.len() - 1
            });
            series[place].points.push((size, size / us));
        }
    }
    series.retain(|series| series.points.len() > 1);
    for series in &mut series {
        series.points.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    let lines = Lines {
        title: "The model and what was measured".into(),
        measure: "MB/s end to end".into(),
        series,
    };
    Some(Picked {
        lines: vec![("model", lines)],
        bars: Vec::new(),
    })
}
