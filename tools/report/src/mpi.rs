// SPDX-License-Identifier: MIT OR Apache-2.0
//! Charts of MPI programs: an MPI over Portolan and over its own transport, with one chart per MPI.

use crate::answers::float;
use crate::chart::{Axis, Ink, Line, Unit};
use crate::figures::{self, Figure};
use crate::systems::{self, System};
use crate::units;
use portolan_bench::{Metric, Path, Report, Row};

/// MPI libraries: prefix of their systems, full name, and names of their charts.
const MPIS: [(&str, &str, [&str; 2]); 2] = [
    ("openmpi", "Open MPI", ["openmpi-latency", "openmpi-stream"]),
    ("mpich", "MPICH", ["mpich-latency", "mpich-stream"]),
];

/// Suffix of systems over Portolan.
const OVER_PORTOLAN: &str = "-portolan";

/// Returns true if `row` belongs to an MPI program.
pub(crate) fn is_mpi(row: &Row) -> bool {
    MPIS.iter().any(|(mpi, ..)| is_of(row, mpi))
}

/// Returns a name such as `Open MPI over Portolan, raw Ethernet` or `MPICH over its TCP`.
pub(crate) fn label(row: &Row) -> String {
    let found = MPIS.iter().find(|(mpi, ..)| is_of(row, mpi));
    let mpi = found.map_or(row.system.as_str(), |(_, label, _)| label);
    let over = system(row).map_or_else(String::new, |system| system.name);
    format!("{mpi} over {over}")
}

fn is_of(row: &Row, mpi: &str) -> bool {
    let rest = row.system.strip_prefix(mpi);
    rest.is_some_and(|rest| rest.is_empty() || rest == OVER_PORTOLAN)
}

/// Returns the charts for which `report` has figures.
pub(crate) fn figures(report: &Report) -> Vec<Figure> {
    let each = MPIS
        .iter()
        .flat_map(|mpi| [latency(report, mpi), stream(report, mpi)]);
    each.flatten().collect()
}

fn latency(
    report: &Report,
    (mpi, label, names): &(&str, &str, [&'static str; 2]),
) -> Option<Figure> {
    let lines = lines(report, mpi, Metric::Pingpong, |row| row.p50_us);
    let title = format!("{label}: half round trip by message size");
    let upwards = Axis::logarithmic("half round trip, median", Unit::Micros);
    let caption = figures::ends_of_all(&lines, units::time);
    figures::sized(names[0], (&title, caption), upwards, lines)
}

fn stream(
    report: &Report,
    (mpi, label, names): &(&str, &str, [&'static str; 2]),
) -> Option<Figure> {
    let lines = lines(report, mpi, Metric::Stream, |row| row.mbytes_per_s);
    let title = format!("{label}: bandwidth by message size, in windows");
    let upwards = Axis::linear("bandwidth", Unit::MegabytesPerSecond);
    let caption = figures::ends_of_all(&lines, units::rate);
    figures::sized(names[1], (&title, caption), upwards, lines)
}

fn lines(report: &Report, mpi: &str, metric: Metric, value: fn(&Row) -> f64) -> Vec<Line> {
    let rows = report.results.iter();
    let rows = rows.filter(|row| row.metric == metric && is_of(row, mpi));
    figures::lines_of(rows, system, |row| Some((float(row.size), value(row))))
}

/// Returns the system of `row`. For an MPI's own transport all paths between hosts repeat one
/// measurement.
fn system(row: &Row) -> Option<System> {
    if row.system.ends_with(OVER_PORTOLAN) {
        return Some(systems::portolan(row.path));
    }
    let system = match row.path {
        Path::Shm => systems::kernel("its shared memory", "own memory", Ink::KERNEL_LOCAL),
        _ => systems::kernel("its TCP", "own TCP", Ink::KERNEL),
    };
    Some(system)
}
