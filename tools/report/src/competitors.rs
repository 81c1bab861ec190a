// SPDX-License-Identifier: MIT OR Apache-2.0
//! Charts of other libraries (libfabric's providers and UCX) beside Portolan, between hosts and
//! within a host.
//!
//! They have separate charts, because together with all of Portolan's paths and limits there would
//! be more lines than colours.

use crate::answers::float;
use crate::chart::{Axis, Ink, Line, Unit};
use crate::figures::{self, Figure};
use crate::systems::{self, System};
use crate::units;
use portolan_bench::{Metric, Path, Report, Row};

/// Libraries: name in the JSON, full name, short name, colour. Libraries with equal colours never
/// share a chart.
const LIBRARIES: [(&str, &str, &str, Ink); 4] = [
    ("libfabric-tcp", "libfabric, TCP", "lf TCP", Ink::System(4)),
    ("libfabric-rxd", "libfabric, UDP", "lf UDP", Ink::System(5)),
    (
        "libfabric-shm",
        "libfabric, shared memory",
        "lf memory",
        Ink::System(4),
    ),
    ("ucx", "UCX", "UCX", Ink::KERNEL_LOCAL),
];

/// Returns the system of `row` if it belongs to such a library.
pub(crate) fn system(row: &Row) -> Option<System> {
    let mut libraries = LIBRARIES.iter();
    let (_, name, short, ink) = libraries.find(|(system, ..)| *system == row.system)?;
    let within = row.path == Path::Shm && row.system == "ucx";
    let name = if within { "UCX, shared memory" } else { name };
    Some(systems::kernel(name, short, *ink))
}

/// Returns true if `row` belongs to such a library.
pub(crate) fn is_competitor(row: &Row) -> bool {
    system(row).is_some()
}

/// Returns the charts for which `report` has figures.
pub(crate) fn figures(report: &Report) -> Vec<Figure> {
    let both = [false, true].into_iter();
    both.flat_map(|within| [latency(report, within), stream(report, within)])
        .flatten()
        .collect()
}

fn latency(report: &Report, within: bool) -> Option<Figure> {
    let (name, title) = match within {
        true => (
            "libraries-shm-latency",
            "Other libraries within a host: half round trip",
        ),
        false => (
            "libraries-latency",
            "Other libraries between hosts: half round trip",
        ),
    };
    let lines = lines(report, within, Metric::Pingpong, |row| row.p50_us);
    let upwards = Axis::logarithmic("half round trip, median", Unit::Micros);
    let caption = figures::ends_of_all(&lines, units::time);
    figures::sized(name, (title, caption), upwards, lines)
}

fn stream(report: &Report, within: bool) -> Option<Figure> {
    let (name, title) = match within {
        true => (
            "libraries-shm-stream",
            "Other libraries within a host: stream in one direction",
        ),
        false => (
            "libraries-stream",
            "Other libraries between hosts: stream in one direction",
        ),
    };
    let lines = lines(report, within, Metric::Stream, |row| row.mbytes_per_s);
    let upwards = Axis::linear("throughput", Unit::MegabytesPerSecond);
    let caption = figures::ends_of_all(&lines, units::rate);
    figures::sized(name, (title, caption), upwards, lines)
}

/// Returns the lines of Portolan, TCP between hosts, and the libraries; none if there is no
/// library.
fn lines(report: &Report, within: bool, metric: Metric, value: fn(&Row) -> f64) -> Vec<Line> {
    let is_here = |row: &&Row| row.metric == metric && (row.path == Path::Shm) == within;
    let rows: Vec<&Row> = report.results.iter().filter(is_here).collect();
    if !rows.iter().any(|row| is_competitor(row)) {
        return Vec::new();
    }
    let shown = |row: &&Row| {
        let is_tcp = row.system == "tcp" && !within;
        row.system == "portolan" || is_tcp || is_competitor(row)
    };
    let rows = rows.into_iter().filter(shown);
    figures::lines_of(rows, systems::of, |row| Some((float(row.size), value(row))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{report, row};
    use serde_json::json;

    #[test]
    fn each_library_has_a_chart_and_a_colour() {
        let mut rows = Vec::new();
        for size in [8, 64, 1024] {
            for system in ["portolan", "tcp", "libfabric-tcp", "libfabric-rxd", "ucx"] {
                rows.push(row(system, "udp", "half_rtt", size, &json!({})));
            }
        }
        let report: Report = serde_json::from_value(report(rows)).expect("a report");
        let lines = lines(&report, false, Metric::Pingpong, |row| row.p50_us);
        let mut inks: Vec<_> = lines.iter().map(|line| format!("{:?}", line.ink)).collect();
        inks.sort();
        inks.dedup();
        assert_eq!((lines.len(), inks.len()), (5, 5));
        let names: Vec<_> = figures(&report).iter().map(|figure| figure.name).collect();
        assert_eq!(names, ["libraries-latency"]);
        assert!(figures::of_bench(&report).iter().all(|figure| {
            let svg = format!("{:?}", figure.chart);
            figure.name.starts_with("libraries") || !svg.contains("UCX")
        }));
    }
}
