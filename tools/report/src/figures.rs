// SPDX-License-Identifier: MIT OR Apache-2.0
//! Charts of a run of `portolan bench`, with their captions.

use crate::answers::float;
use crate::chart::{Axis, Bars, Chart, Group, Ink, Line, Lines, Unit};
use crate::competitors;
use crate::data::Data;
use crate::interfaces;
use crate::moving;
use crate::mpi;
use crate::systems::{self, System};
use crate::units;
use portolan_bench::{Metric, Path, Report, Row, throughput};

/// A chart with its file name and caption.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// Part of the file name.
    pub name: &'static str,
    /// The chart.
    pub chart: Chart,
    /// Caption: the result, and the drawn quantities.
    pub caption: String,
}

/// Parts per million in a percent.
const PPM_PER_PERCENT: f64 = 10_000.0;

/// Returns the charts for which `report` has figures.
pub(crate) fn of_bench(report: &Report) -> Vec<Figure> {
    let all = [
        latency(report),
        advantage(report),
        end_to_end(report),
        stream(report),
        bidir(report),
        loss(report),
        interference(report),
        conditions(report),
        cpu(report),
        rate(report),
        loaded(report),
        incast(report),
    ];
    let moving = moving::figures(report).into_iter();
    let libraries = competitors::figures(report).into_iter();
    let interfaces = interfaces::figures(report).into_iter();
    let mpi = mpi::figures(report).into_iter();
    let own = all.into_iter().flatten();
    own.chain(moving)
        .chain(libraries)
        .chain(interfaces)
        .chain(mpi)
        .collect()
}

/// Returns true for rows without loss, interference or shortened frames. Rows with shortened frames
/// have separate charts.
fn undisturbed(row: &&Row) -> bool {
    let conditions = &row.conditions;
    (
        conditions.loss_ppm,
        conditions.interfere,
        conditions.frame_len_max,
    ) == (0, 0, 0)
}

/// Returns one line per system with at least two points. MPI programs, other libraries and the
/// papers' interfaces have separate charts.
fn lines<'a>(
    rows: impl Iterator<Item = &'a Row>,
    point: impl Fn(&Row) -> Option<(f64, f64)>,
) -> Vec<Line> {
    let has_charts_of_its_own = |row: &Row| {
        mpi::is_mpi(row) || competitors::is_competitor(row) || interfaces::name(row).is_some()
    };
    lines_of(
        rows.filter(|row| !has_charts_of_its_own(row)),
        systems::of,
        point,
    )
}

/// Returns one line per system with at least two points, with the systems given by `system`.
pub(crate) fn lines_of<'a>(
    rows: impl Iterator<Item = &'a Row>,
    system: impl Fn(&Row) -> Option<System>,
    point: impl Fn(&Row) -> Option<(f64, f64)>,
) -> Vec<Line> {
    let mut all: Vec<Line> = Vec::new();
    for row in rows {
        let (Some(system), Some(point)) = (system(row), point(row)) else {
            continue;
        };
        match all.iter_mut().find(|line| line.name == system.name) {
            // The kernel's rows are repeated for each path.
            Some(line) if line.points.iter().any(|known| known.0 == point.0) => {}
            Some(line) => line.points.push(point),
            None => all.push(Line {
                name: system.name,
                short: system.short,
                ink: system.ink,
                dashed: system.is_limit,
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

fn by_size<'a>(
    rows: impl Iterator<Item = &'a Row>,
    metric: Metric,
    value: impl Fn(&Row) -> f64,
) -> Vec<Line> {
    let rows = rows.filter(|row| row.metric == metric).filter(undisturbed);
    lines(rows, |row| {
        let value = value(row);
        (value > 0.0).then(|| (float(row.size), value))
    })
}

pub(crate) fn figure(
    name: &'static str,
    (title, caption): (&str, String),
    (across, upwards): (Axis, Axis),
    lines: Vec<Line>,
) -> Option<Figure> {
    let chart = Lines {
        title: title.into(),
        across,
        upwards,
        lines,
        mark: None,
    };
    (!chart.lines.is_empty()).then_some(Figure {
        name,
        chart: Chart::Lines(chart),
        caption,
    })
}

/// Returns a figure by message size. `caption` is a sentence without its full stop.
pub(crate) fn sized(
    name: &'static str,
    (title, caption): (&str, String),
    upwards: Axis,
    lines: Vec<Line>,
) -> Option<Figure> {
    let axes = (sizes_axis(), upwards);
    figure(name, (title, format!("{caption}.")), axes, lines)
}

pub(crate) fn sizes_axis() -> Axis {
    Axis::logarithmic("message size", Unit::Bytes)
}

/// Describes the first and the last point of the line with a name that begins with `name`.
fn ends(lines: &[Line], name: &str, write: impl Fn(f64) -> String) -> Option<String> {
    let line = lines.iter().find(|line| line.name.starts_with(name))?;
    let (first, last) = (line.points.first()?, line.points.last()?);
    Some(format!(
        "{}: {} at {}, {} at {}",
        line.name,
        write(first.1),
        units::bytes(first.0),
        write(last.1),
        units::bytes(last.0)
    ))
}

pub(crate) fn ends_of_all(lines: &[Line], write: impl Fn(f64) -> String) -> String {
    let systems = lines.iter().filter(|line| !line.dashed);
    let sentences: Vec<String> = systems
        .filter_map(|line| ends(lines, &line.name, &write))
        .collect();
    sentences.join(". ")
}

const DASHED: &str = "Dashed: the same work on the bare socket or memory, without a protocol.";

/// Returns `caption` with an explanation of dashed lines, if there are any.
fn with_limits(caption: String, lines: &[Line]) -> String {
    if lines.iter().any(|line| line.dashed) {
        format!("{caption}. {DASHED}")
    } else {
        format!("{caption}.")
    }
}

fn latency(report: &Report) -> Option<Figure> {
    let lines = by_size(report.results.iter(), Metric::Pingpong, |row| row.p50_us);
    let caption = with_limits(ends_of_all(&lines, units::time), &lines);
    figure(
        "latency",
        ("Half round trip by message size", caption),
        (
            sizes_axis(),
            Axis::logarithmic("half round trip, median", Unit::Micros),
        ),
        lines,
    )
}

/// Returns the chart of Portolan's speed relative to TCP; it is faster above 1.
fn advantage(report: &Report) -> Option<Figure> {
    let data = Data { report };
    let ours = data
        .rows(Metric::Pingpong)
        .filter(|row| row.system == "portolan");
    let lines = lines(ours, |row| {
        let tcp = data.tcp(Metric::Pingpong, row.path == Path::Shm, row.size)?;
        Some((float(row.size), tcp.p50_us / row.p50_us))
    });
    let caption = lines
        .iter()
        .map(|line| format!("{}: {}", line.name, ahead(&line.points)));
    let caption = caption.collect::<Vec<_>>().join(". ") + ".";
    let mut figure = figure(
        "advantage",
        ("How many times faster than TCP", caption),
        (
            sizes_axis(),
            Axis::logarithmic("TCP's half round trip, in Portolan's", Unit::Times),
        ),
        lines,
    )?;
    if let Chart::Lines(chart) = &mut figure.chart {
        chart.mark = Some((1.0, "as fast as TCP".into()));
    }
    Some(figure)
}

/// Describes the ranges in which a line is above 1.
fn ahead(points: &[(f64, f64)]) -> String {
    let mut runs: Vec<(f64, f64)> = Vec::new();
    let mut before = false;
    for (size, times) in points {
        match runs.last_mut() {
            Some(run) if before && *times >= 1.0 => run.1 = *size,
            _ if *times >= 1.0 => runs.push((*size, *size)),
            _ => {}
        }
        before = *times >= 1.0;
    }
    let range = |run: &(f64, f64)| match run {
        (first, last) if first == last => format!("at {}", units::bytes(*first)),
        (first, last) => format!("from {} to {}", units::bytes(*first), units::bytes(*last)),
    };
    if runs.is_empty() {
        return "behind TCP at all sizes".into();
    }
    let ranges: Vec<String> = runs.iter().map(range).collect();
    format!("ahead of TCP {}", ranges.join(" and "))
}

fn end_to_end(report: &Report) -> Option<Figure> {
    let lines = by_size(report.results.iter(), Metric::Pingpong, throughput);
    let caption = with_limits(
        format!(
            "Size over half the round trip: one message at a time, in both directions alternately. \
             {}",
            ends_of_all(&lines, units::rate)
        ),
        &lines,
    );
    figure(
        "end-to-end",
        ("End-to-end throughput by message size", caption),
        (
            sizes_axis(),
            Axis::linear("end-to-end throughput", Unit::MegabytesPerSecond),
        ),
        lines,
    )
}

fn stream(report: &Report) -> Option<Figure> {
    let lines = by_size(report.results.iter(), Metric::Stream, |row| {
        row.mbytes_per_s
    });
    let caption = with_limits(ends_of_all(&lines, units::rate), &lines);
    figure(
        "throughput",
        ("Stream in one direction by message size", caption),
        (
            sizes_axis(),
            Axis::linear("throughput", Unit::MegabytesPerSecond),
        ),
        lines,
    )
}

fn bidir(report: &Report) -> Option<Figure> {
    let lines = by_size(report.results.iter(), Metric::Bidir, |row| row.mbytes_per_s);
    let caption = with_limits(
        format!(
            "Sum of both directions. {}",
            ends_of_all(&lines, units::rate)
        ),
        &lines,
    );
    figure(
        "bidir",
        ("Streams in both directions at once", caption),
        (
            sizes_axis(),
            Axis::linear("throughput, both directions", Unit::MegabytesPerSecond),
        ),
        lines,
    )
}

/// Returns the rows of streams with the largest size among the rows selected by `is_selected`.
/// Other streams may have been measured with longer messages.
fn longest(report: &Report, is_selected: impl Fn(&Row) -> bool) -> impl Iterator<Item = &Row> {
    let streams = report
        .results
        .iter()
        .filter(|row| row.metric == Metric::Stream);
    let size = streams
        .clone()
        .filter(|row| is_selected(row))
        .map(|row| row.size)
        .max();
    streams.filter(move |row| Some(row.size) == size)
}

/// Selects all rows.
fn any(_: &Row) -> bool {
    true
}

fn loss(report: &Report) -> Option<Figure> {
    let rows = longest(report, |row| row.conditions.loss_ppm > 0);
    let rows = rows.filter(|row| row.conditions.interfere == 0 && row.system != "limit");
    let lines = lines(rows, |row| {
        let percent = f64::from(row.conditions.loss_ppm) / PPM_PER_PERCENT;
        (row.mbytes_per_s > 0.0).then_some((percent, row.mbytes_per_s))
    });
    let sentences = lines.iter().filter_map(|line| {
        let (first, last) = (line.points.first()?, line.points.last()?);
        Some(format!(
            "{}: {} without loss, {} at {} % lost",
            line.name,
            units::rate(first.1),
            units::rate(last.1),
            units::digits(last.0)
        ))
    });
    let caption = sentences.collect::<Vec<_>>().join(". ") + ".";
    figure(
        "loss",
        ("Goodput of a stream over random loss", caption),
        (
            Axis::logarithmic("packets lost in each direction", Unit::Percent),
            Axis::logarithmic("goodput", Unit::MegabytesPerSecond),
        ),
        lines,
    )
}

fn interference(report: &Report) -> Option<Figure> {
    const PERCENT: f64 = 100.0;
    let rows = longest(report, |row| row.conditions.interfere > 0);
    let rows = rows.filter(|row| row.conditions.loss_ppm == 0);
    let rows = rows.filter(|row| row.system == "portolan");
    let lines = lines(rows, |row| {
        let foreign = match row.conditions.interfere {
            0 => 0.0,
            each => PERCENT / f64::from(each),
        };
        Some((foreign, row.mbytes_per_s))
    });
    let caption =
        "Foreign datagrams among those of the stream; each invalidates the prediction of where \
                   the next ones belong."
            .into();
    figure(
        "interference",
        ("Throughput under interference", caption),
        (
            Axis::logarithmic(
                "foreign datagrams per datagram of the stream",
                Unit::Percent,
            ),
            Axis::linear("throughput", Unit::MegabytesPerSecond),
        ),
        lines,
    )
}

/// Returns the groups of bars, one per system.
fn groups<'a>(
    rows: impl Iterator<Item = &'a Row>,
    values: impl Fn(&Row) -> Option<Vec<f64>>,
) -> Vec<Group> {
    let mut all: Vec<Group> = Vec::new();
    for row in rows {
        let (Some(system), Some(values)) = (systems::of(row), values(row)) else {
            continue;
        };
        if all.iter().all(|known| known.name != system.name) {
            all.push(Group {
                name: system.name,
                ink: system.ink,
                values,
            });
        }
    }
    all
}

fn bars(
    name: &'static str,
    (title, caption): (String, &str),
    across: Axis,
    kinds: &[(&str, Ink)],
    groups: Vec<Group>,
) -> Option<Figure> {
    let kinds = kinds.iter().map(|(name, ink)| ((*name).to_owned(), *ink));
    let chart = Bars {
        title,
        across,
        kinds: kinds.collect(),
        groups,
    };
    (!chart.groups.is_empty()).then(|| Figure {
        name,
        chart: Chart::Bars(chart),
        caption: caption.into(),
    })
}

/// Inks of the two kinds in most bar charts.
const FIRST: Ink = Ink::System(0);
const SECOND: Ink = Ink::System(1);

/// Returns the chart of a stream of one size under several settings of Portolan.
fn conditions(report: &Report) -> Option<Figure> {
    let has_setting = |row: &Row| !row.conditions.describe().is_empty();
    let with_setting = |row: &Row| undisturbed(&row) && has_setting(row);
    let size = longest(report, with_setting).next()?.size;
    let rows = longest(report, with_setting).filter(undisturbed);
    let title = format!(
        "Stream of {} messages by setting",
        units::bytes(float(size))
    );
    bars(
        "stream",
        (title, "Systems and settings, each with its median."),
        Axis::linear("throughput", Unit::MegabytesPerSecond),
        &[("throughput", FIRST)],
        groups(rows, |row| Some(vec![row.mbytes_per_s])),
    )
}

fn cpu(report: &Report) -> Option<Figure> {
    let rows = longest(report, any).filter(undisturbed);
    let size = longest(report, any).next()?.size;
    bars(
        "cpu",
        (
            format!(
                "Processor time of a stream of {} messages",
                units::bytes(float(size))
            ),
            "Time of the whole process in user and kernel mode. A spinning end uses its core for the \
             whole transfer.",
        ),
        Axis::linear("processor seconds per 10⁹ bytes", Unit::SecondsPerGigabyte),
        &[("sender", FIRST), ("receiver", SECOND)],
        groups(rows, |row| {
            let cpu = row.extra.cpu?;
            Some(vec![cpu.sender_s_per_gb, cpu.receiver_s_per_gb])
        }),
    )
}

fn rate(report: &Report) -> Option<Figure> {
    let data = Data { report };
    let size = *data.sizes(Metric::Rate).first()?;
    let rows = data.rows(Metric::Rate).filter(move |row| row.size == size);
    bars(
        "rate",
        (
            format!("Messages of {} per second", units::bytes(float(size))),
            "In windows of 64 with an acknowledgement. Messages that are ready together share a frame. \
             TCP's figure is the better of one write per window and one per message.",
        ),
        Axis::logarithmic("messages per second", Unit::Messages),
        &[("messages", FIRST)],
        groups(rows, |row| Some(vec![row.msgs_per_s])),
    )
}

fn loaded(report: &Report) -> Option<Figure> {
    let rows = report
        .results
        .iter()
        .filter(|row| row.metric == Metric::Loaded);
    bars(
        "loaded",
        (
            "Half round trip alone, and beside a stream".into(),
            "The same ping-pong first alone, then while a stream runs between the same processes.",
        ),
        Axis::logarithmic("half round trip", Unit::Micros),
        &[
            ("alone, median", Ink::System(5)),
            ("alone, 99 %", FIRST),
            ("beside a stream, median", Ink::System(4)),
            ("beside a stream, 99 %", SECOND),
        ],
        groups(rows, |row| {
            let idle = row.extra.idle?;
            Some(vec![idle.p50_us, idle.p99_us, row.p50_us, row.p99_us])
        }),
    )
}

fn incast(report: &Report) -> Option<Figure> {
    let rows = report
        .results
        .iter()
        .filter(|row| row.metric == Metric::Incast);
    bars(
        "incast",
        (
            "Several senders, one receiver".into(),
            "Throughput of all senders together, beside that of a single one.",
        ),
        Axis::linear("throughput", Unit::MegabytesPerSecond),
        &[("a single sender", FIRST), ("all senders", SECOND)],
        groups(rows, |row| {
            Some(vec![row.extra.single_mbytes_per_s?, row.mbytes_per_s])
        }),
    )
}
