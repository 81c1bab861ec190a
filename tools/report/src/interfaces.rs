// SPDX-License-Identifier: MIT OR Apache-2.0
//! Charts of the papers' interfaces (`portolan bench --interface`), each over its own library, beside
//! Portolan's ports: half round trip, end-to-end throughput, and streams in one and both directions,
//! between hosts and within a host.

use crate::answers::float;
use crate::chart::{Axis, Ink, Line, Unit};
use crate::figures::{self, Figure};
use crate::systems::{self, System};
use crate::units;
use portolan_bench::{Metric, Path, Report, Row, throughput};

/// Interfaces: name in the JSON, name in a chart, colour.
const INTERFACES: [(&str, &str, Ink); 5] = [
    ("bip", "BIP", Ink::System(3)),
    ("gamma", "GAMMA", Ink::System(4)),
    ("gm", "GM", Ink::System(5)),
    ("gm+", "GM+", Ink::KERNEL),
    ("vipl", "VIPL", Ink::KERNEL_LOCAL),
];

/// A chart: its names between hosts and within a host, its title, its rows and the drawn value.
struct Kind {
    names: [&'static str; 2],
    title: &'static str,
    metric: Metric,
    value: fn(&Row) -> f64,
    is_time: bool,
}

const KINDS: [Kind; 4] = [
    Kind {
        names: ["interfaces-latency", "interfaces-shm-latency"],
        title: "half round trip",
        metric: Metric::Pingpong,
        value: |row| row.p50_us,
        is_time: true,
    },
    Kind {
        names: ["interfaces-end-to-end", "interfaces-shm-end-to-end"],
        title: "end-to-end throughput",
        metric: Metric::Pingpong,
        value: throughput,
        is_time: false,
    },
    Kind {
        names: ["interfaces-stream", "interfaces-shm-stream"],
        title: "stream in one direction",
        metric: Metric::Stream,
        value: |row| row.mbytes_per_s,
        is_time: false,
    },
    Kind {
        names: ["interfaces-bidir", "interfaces-shm-bidir"],
        title: "streams in both directions at once",
        metric: Metric::Bidir,
        value: |row| row.mbytes_per_s,
        is_time: false,
    },
];

/// Returns the name of the interface of `row`, if it has one.
pub(crate) fn name(row: &Row) -> Option<&'static str> {
    let (_, name, _) = INTERFACES
        .iter()
        .find(|(system, ..)| *system == row.system)?;
    Some(name)
}

/// Returns the charts for which `report` has figures.
pub(crate) fn figures(report: &Report) -> Vec<Figure> {
    let both = [false, true].into_iter();
    both.flat_map(|within| KINDS.iter().map(move |kind| chart(report, kind, within)))
        .flatten()
        .collect()
}

fn chart(report: &Report, kind: &Kind, within: bool) -> Option<Figure> {
    let lines = lines(report, kind, within);
    let place = if within {
        "within a host"
    } else {
        "between hosts"
    };
    let title = format!("Interfaces of the papers {place}: {}", kind.title);
    let (upwards, write): (Axis, fn(f64) -> String) = match kind.is_time {
        true => (
            Axis::logarithmic("half round trip, median", Unit::Micros),
            units::time,
        ),
        false => (
            Axis::linear("throughput", Unit::MegabytesPerSecond),
            units::rate,
        ),
    };
    let caption = figures::ends_of_all(&lines, write);
    let name = kind.names[usize::from(within)];
    figures::sized(name, (&title, caption), upwards, lines)
}

/// Returns the lines of Portolan's ports and the interfaces; none if there is no interface. Between
/// hosts an interface is drawn on its first path.
fn lines(report: &Report, kind: &Kind, within: bool) -> Vec<Line> {
    let is_here = |row: &&Row| row.metric == kind.metric && (row.path == Path::Shm) == within;
    let rows: Vec<&Row> = report.results.iter().filter(is_here).collect();
    let Some(path) = rows
        .iter()
        .find(|row| name(row).is_some())
        .map(|row| row.path)
    else {
        return Vec::new();
    };
    let rows = rows.into_iter().filter(|row| row.path == path);
    figures::lines_of(rows, system, |row| {
        Some((float(row.size), (kind.value)(row)))
    })
}

fn system(row: &Row) -> Option<System> {
    let found = INTERFACES.iter().find(|(system, ..)| *system == row.system);
    match found {
        Some((_, name, ink)) => Some(systems::kernel(name, name, *ink)),
        None if row.system == "portolan" && row.conditions.describe().is_empty() => {
            Some(systems::portolan(row.path))
        }
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{report, row};
    use serde_json::json;

    #[test]
    fn each_interface_has_a_line_in_charts_of_its_own() {
        let mut rows = Vec::new();
        for (path, metric) in [
            ("packet", "half_rtt"),
            ("udp", "half_rtt"),
            ("shm", "bidir"),
        ] {
            for system in ["portolan", "bip", "gamma", "gm", "gm+", "vipl"] {
                for size in [8, 1024] {
                    rows.push(row(system, path, metric, size, &json!({})));
                }
            }
        }
        let report: Report = serde_json::from_value(report(rows)).expect("a report");
        let names: Vec<_> = figures(&report).iter().map(|figure| figure.name).collect();
        let all = [
            "interfaces-latency",
            "interfaces-end-to-end",
            "interfaces-shm-bidir",
        ];
        assert_eq!(names, all);
        let lines = lines(&report, &KINDS[0], false);
        let mut inks: Vec<_> = lines.iter().map(|line| format!("{:?}", line.ink)).collect();
        inks.sort();
        inks.dedup();
        assert_eq!((lines.len(), inks.len()), (6, 6));
        assert!(figures::of_bench(&report).iter().all(|figure| {
            let svg = format!("{:?}", figure.chart);
            figure.name.starts_with("interfaces") || !svg.contains("VIPL")
        }));
    }
}
