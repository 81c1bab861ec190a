// SPDX-License-Identifier: MIT OR Apache-2.0
//! Charts of `portolan tune`: the model and the measurements, and whole messages and fragments.

use crate::chart::{Axis, Chart, Ink, Line, Lines, Unit};
use crate::figures::Figure;
use crate::units;
use serde_json::Value;

/// Returns the charts of `json`; `None` if it is not from `tune`.
pub(crate) fn of_tune(json: &Value) -> Option<Vec<Figure>> {
    let rows = json.get("rows")?.as_array()?;
    let pieces = json.get("pieces").and_then(Value::as_array);
    let of_model = |field: &str| {
        let usual = |row: &&Value| row["kind"] == "lone" && row["variant"] == "usual";
        let point = |row: &Value| point(row, &row[field], row["path"].as_str()?);
        let manner = field.trim_end_matches("_us");
        collect(rows.iter().filter(usual).filter_map(point), manner)
    };
    let of_pieces = |load: &str| {
        let of = |manner: &str| {
            let field = format!("{load}_{manner}");
            let point = |row: &Value| {
                let pieces = match row["call_len"].as_f64().filter(|_| manner == "pieces") {
                    Some(len) => format!("pieces of {}", units::bytes(len)),
                    None => manner.into(),
                };
                point(row, &row[&field]["measured_us"], &pieces)
            };
            collect(pieces.into_iter().flatten().filter_map(point), "")
        };
        numbered([of("whole"), of("pieces")].concat())
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
    let drawn = charts.into_iter().filter(|(.., lines)| !lines.is_empty());
    Some(
        drawn
            .map(|(name, title, lines)| figure(name, title, lines))
            .collect(),
    )
}

fn figure(name: &'static str, title: &str, lines: Vec<Line>) -> Figure {
    let chart = Lines {
        title: title.into(),
        across: Axis::logarithmic("message size", Unit::Bytes),
        upwards: Axis::linear("throughput", Unit::MegabytesPerSecond),
        lines,
        mark: None,
    };
    Figure {
        name,
        chart: Chart::Lines(chart),
        caption: String::new(),
    }
}

/// Returns the throughput of a row: name, length, and 10^6 bytes per second.
fn point(row: &Value, us: &Value, name: &str) -> Option<(String, (f64, f64))> {
    let (len, us) = (row["len"].as_f64()?, us.as_f64()?);
    (us > 0.0).then(|| (name.to_owned(), (len, len / us)))
}

/// Returns lines with at least two points, by name. Predictions are dashed.
fn collect(points: impl Iterator<Item = (String, (f64, f64))>, manner: &str) -> Vec<Line> {
    let mut all: Vec<Line> = Vec::new();
    for (of, point) in points {
        let name = match manner {
            "" => of.clone(),
            _ => format!("{of}, {manner}"),
        };
        match all.iter_mut().find(|line| line.name == name) {
            // Whole messages are repeated for each length of fragments.
            Some(line) if line.points.iter().any(|known| known.0 == point.0) => {}
            Some(line) => line.points.push(point),
            None => all.push(Line {
                short: name.clone(),
                name,
                ink: ink(&of),
                dashed: manner == "predicted",
                points: vec![point],
            }),
        }
    }
    all.retain(|line| line.points.len() > 1);
    for line in &mut all {
        line.points.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    all
}

/// Assigns a different colour to each line.
fn numbered(mut lines: Vec<Line>) -> Vec<Line> {
    for (index, line) in lines.iter_mut().enumerate() {
        line.ink = Ink::System(index);
    }
    lines
}

fn ink(path: &str) -> Ink {
    Ink::System(match path {
        "packet" => 0,
        "udp" => 1,
        _ => 2,
    })
}
