// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which charts a file of results has figures for.

use super::chart::{Bars, Lines, Series};
use portolan_bench::{Metric, Report, Row, throughput};
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
    tidy(all)
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
    let groups: Vec<_> = largest(rows)
        .map(|row| (name(row), vec![row.mbytes_per_s]))
        .collect();
    // TCP under heavy loss would be a bar without height.
    let logarithmic = largest(rows).any(|row| row.conditions.loss_ppm > 0);
    let measure = if logarithmic {
        "MB/s (logarithmic)"
    } else {
        "MB/s"
    };
    Bars {
        logarithmic,
        ..bars(
            "Stream by system and condition",
            measure,
            &["throughput"],
            groups,
        )
    }
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

/// `portolan tune`: `rows` hold what was predicted beside what was measured, `pieces` whole messages
/// beside pieces.
fn of_tune(json: &Value) -> Option<Picked> {
    let rows = json.get("rows")?.as_array()?;
    let pieces = json.get("pieces").and_then(Value::as_array);
    let of_model = |field: &str| {
        let usual = |row: &&Value| row["kind"] == "lone" && row["variant"] == "usual";
        let point = |row: &Value| point(row, &row[field], row["path"].as_str()?);
        let name = field.trim_end_matches("_us");
        collect(rows.iter().filter(usual).filter_map(point), name)
    };
    let of_pieces = |load: &str| {
        let of = |manner: &str| {
            let field = format!("{load}_{manner}");
            let point = |row: &Value| point(row, &row[&field]["measured_us"], load);
            collect(pieces.into_iter().flatten().filter_map(point), manner)
        };
        [of("whole"), of("pieces")].concat()
    };
    let charts = [
        (
            "model",
            "The model beside what was measured",
            [of_model("measured_us"), of_model("predicted_us")].concat(),
        ),
        (
            "pieces-lone",
            "A lone message, whole and in pieces",
            of_pieces("lone"),
        ),
        (
            "pieces-stream",
            "A stream, whole messages and pieces",
            of_pieces("stream"),
        ),
    ];
    let lines = charts
        .into_iter()
        .filter(|(_, _, series)| !series.is_empty())
        .map(|(name, title, series)| {
            (
                name,
                Lines {
                    title: title.into(),
                    measure: "MB/s".into(),
                    series,
                },
            )
        });
    Some(Picked {
        lines: lines.collect(),
        bars: Vec::new(),
    })
}

/// What a row of `tune` says about the throughput of its length: name, length, 10^6 bytes a second.
fn point(row: &Value, us: &Value, name: &str) -> Option<(String, (f64, f64))> {
    let (len, us) = (row["len"].as_f64()?, us.as_f64()?);
    (us > 0.0).then(|| (name.to_owned(), (len, len / us)))
}

/// Lines of two points or more, by name.
fn collect(points: impl Iterator<Item = (String, (f64, f64))>, suffix: &str) -> Vec<Series> {
    let mut all: Vec<Series> = Vec::new();
    for (name, point) in points {
        let name = format!("{name}, {suffix}");
        match all.iter_mut().find(|series| series.name == name) {
            Some(series) => series.points.push(point),
            None => all.push(Series {
                name,
                points: vec![point],
            }),
        }
    }
    tidy(all)
}

/// Without lines of one point; sizes in ascending order.
fn tidy(mut all: Vec<Series>) -> Vec<Series> {
    all.retain(|series| series.points.len() > 1);
    for series in &mut all {
        series.points.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    all
}
