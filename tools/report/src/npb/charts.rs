// SPDX-License-Identifier: MIT OR Apache-2.0
//! Charts of speed-ups by network and by number of processes, and of the time spent: Figures 2 and
//! 3 of the paper.

use super::{Network, Npb, NpbRun, PROGRAMS, Wire, with_wire};
use crate::chart::{Axis, Bars, Chart, Group, Ink, Line, Stacks, Unit};
use crate::figures::{self, Figure};
use crate::profiles::{mean, share};
use crate::units;

/// Names of the charts of speed-ups: with unshaped wires, then in the order of [`Wire::ALL`].
macro_rules! speed_up_names {
    ($prefix:literal) => {
        [
            $prefix,
            concat!($prefix, "-fast-ethernet"),
            concat!($prefix, "-1g"),
            concat!($prefix, "-10g"),
        ]
    };
}

type SpeedUpNames = [&'static str; 1 + Wire::ALL.len()];

const ALL_NAMES: SpeedUpNames = speed_up_names!("npb-speed-up");

/// Names of the charts of each program, in the order of [`PROGRAMS`].
const NAMES: [(SpeedUpNames, &str); PROGRAMS.len()] = [
    (speed_up_names!("npb-speed-up-is"), "npb-time-is"),
    (speed_up_names!("npb-speed-up-mg"), "npb-time-mg"),
    (speed_up_names!("npb-speed-up-cg"), "npb-time-cg"),
    (speed_up_names!("npb-speed-up-sp"), "npb-time-sp"),
    (speed_up_names!("npb-speed-up-ep"), "npb-time-ep"),
    (speed_up_names!("npb-speed-up-lu"), "npb-time-lu"),
    (speed_up_names!("npb-speed-up-ft"), "npb-time-ft"),
    (speed_up_names!("npb-speed-up-bt"), "npb-time-bt"),
];

/// Calls that the paper distinguishes, with equivalent calls, and collective operations, which the
/// paper counts as their messages.
const KINDS: [(&str, &[&str]); 6] = [
    ("Send", &["Send"]),
    ("Recv, Sendrecv", &["Recv", "Sendrecv"]),
    ("Isend", &["Isend"]),
    ("Irecv", &["Irecv"]),
    ("Wait", &["Wait"]),
    ("collective", &["Collective"]),
];

/// Returns the charts for which `npb` has figures.
pub(crate) fn figures(npb: &Npb) -> Vec<Figure> {
    let wires = npb.wires().into_iter();
    let parts: Vec<Part> = wires.map(|wire| (wire, npb.over(wire))).collect();
    let of_all = parts
        .iter()
        .filter_map(|part| speed_ups(part, ALL_NAMES[position(part.0)]));
    let mut all: Vec<Figure> = of_all.collect();
    for (program, (names, time)) in PROGRAMS.iter().zip(NAMES) {
        let by_count = parts
            .iter()
            .filter_map(|part| by_count(part, program, names[position(part.0)]));
        all.extend(by_count);
        all.extend(breakdown(&parts, program, time));
    }
    all
}

/// A wire, and the measurements over it.
type Part = (Option<Wire>, Npb);

/// Returns the index of a wire in [`SpeedUpNames`].
fn position(wire: Option<Wire>) -> usize {
    let at = Wire::ALL.iter().position(|other| Some(*other) == wire);
    at.map_or(0, |at| 1 + at)
}

/// Returns the networks with measurements.
fn networks(npb: &Npb) -> Vec<Network> {
    let ran = |network: &Network| npb.runs.iter().any(|run| run.network == Some(*network));
    Network::ALL.into_iter().filter(ran).collect()
}

/// Returns the chart of all programs with the most processes.
fn speed_ups((wire, npb): &Part, name: &'static str) -> Option<Figure> {
    let most = npb.most()?;
    let networks = networks(npb);
    let groups = PROGRAMS.iter().filter_map(|program| {
        let values = networks.iter().map(|network| {
            let run = npb.run(program, *network, most)?;
            npb.speed_up(run)
        });
        Some(Group {
            name: (*program).to_owned(),
            ink: Ink::System(0),
            values: values.collect::<Option<Vec<f64>>>()?,
        })
    });
    let groups: Vec<Group> = groups.collect();
    let best = groups.iter().filter_map(|group| {
        let best = group.values.iter().copied().reduce(f64::max)?;
        Some(format!("{} {}", group.name, units::ratio(best)))
    });
    let best: Vec<String> = best.collect();
    (!groups.is_empty()).then(|| Figure {
        name,
        chart: Chart::Bars(Bars {
            title: with_wire(&format!("Speed-up on {most} processes by network"), *wire),
            across: Axis::linear("speed-up over one process", Unit::Times),
            kinds: networks
                .iter()
                .map(|network| (network.name(), network.ink()))
                .collect(),
            groups,
        }),
        caption: format!(
            "Time of one process divided by that of {most}; {most} would be ideal. Best: {}.",
            best.join(", ")
        ),
    })
}

/// Returns the chart of one program by the number of processes.
fn by_count((wire, npb): &Part, program: &str, name: &'static str) -> Option<Figure> {
    let counts = npb.counts();
    let line = |network: Network| {
        let points = counts.iter().filter_map(|count| {
            let run = npb.run(program, network, *count)?;
            Some((f64::from(*count), npb.speed_up(run)?))
        });
        Line {
            name: network.name(),
            short: network.name(),
            ink: network.ink(),
            dashed: false,
            points: points.collect(),
        }
    };
    let mut lines: Vec<Line> = networks(npb).into_iter().map(line).collect();
    lines.retain(|line| line.points.len() > 1);
    if lines.is_empty() {
        return None;
    }
    lines.push(Line {
        name: "ideal".into(),
        short: "ideal".into(),
        ink: Ink::Muted,
        dashed: true,
        points: counts
            .iter()
            .map(|count| (f64::from(*count), f64::from(*count)))
            .collect(),
    });
    let axes = (
        Axis::logarithmic("processes", Unit::Count),
        Axis::logarithmic("speed-up over one process", Unit::Times),
    );
    let title = with_wire(
        &format!("{program}: speed-up by the number of processes"),
        *wire,
    );
    let caption = "Dashed: ideal speed-up.".to_owned();
    figures::figure(name, (&title, caption), axes, lines)
}

/// Returns the chart of the time spent by one program's processes, with one bar per network and wire.
fn breakdown(parts: &[Part], program: &str, name: &'static str) -> Option<Figure> {
    let most = parts.iter().filter_map(|(_, npb)| npb.most()).max()?;
    let runs: Vec<(String, &NpbRun)> = parts
        .iter()
        .flat_map(|(wire, npb)| {
            let runs = networks(npb).into_iter().filter_map(move |network| {
                let name = with_wire(&network.name(), *wire);
                Some((name, npb.run(program, network, most)?))
            });
            runs.collect::<Vec<_>>()
        })
        .collect();
    let all: Vec<Vec<f64>> = runs.iter().map(|(_, run)| time_parts(run)).collect();
    let named = ["computation"]
        .into_iter()
        .chain(KINDS.map(|(kind, _)| kind))
        .chain(["others"]);
    let kinds = named
        .enumerate()
        .map(|(at, kind)| (kind.to_owned(), Ink::System(at)));
    // Kinds without any time are not in the legend.
    let is_seen = |at: usize| at == 0 || all.iter().any(|parts| parts[at] > 0.0005);
    let kinds: Vec<(usize, (String, Ink))> =
        kinds.enumerate().filter(|(at, _)| is_seen(*at)).collect();
    let rows = runs.iter().zip(&all).map(|((network, _), parts)| {
        let parts = kinds.iter().map(|(at, _)| parts[*at]);
        (network.clone(), parts.collect())
    });
    let rows: Vec<(String, Vec<f64>)> = rows.collect();
    let ends = |of: fn(f64, f64) -> f64| all.iter().map(|parts| 1.0 - parts[0]).reduce(of);
    let (least, greatest) = (ends(f64::min)?, ends(f64::max)?);
    let percent = |part: f64| format!("{:.0}", part * 100.0);
    let range = match (percent(least), percent(greatest)) {
        (least, greatest) if least == greatest => least,
        (least, greatest) => format!("{least} to {greatest}"),
    };
    Some(Figure {
        name,
        chart: Chart::Stacks(Stacks {
            title: format!("{program}: time spent on {most} processes"),
            across: "% of the time from MPI_Init to MPI_Finalize".into(),
            kinds: kinds.into_iter().map(|(_, kind)| kind).collect(),
            rows,
        }),
        caption: format!(
            "{program} communicates or waits for {range} % of its time, depending on the network, and \
             computes for the rest."
        ),
    })
}

/// Returns the parts of the time as means of all processes: computation, each of [`KINDS`], and the
/// rest.
fn time_parts(run: &NpbRun) -> Vec<f64> {
    let processes = &run.world.processes;
    let computing = mean(processes, |process| {
        if process.seconds > 0.0 {
            process.computing_s / process.seconds
        } else {
            0.0
        }
    });
    let mut parts = vec![computing];
    let part = |kinds: &[&str]| {
        mean(processes, |process| {
            kinds.iter().map(|kind| share(process, kind)).sum()
        })
    };
    parts.extend(KINDS.map(|(_, kinds)| part(kinds)));
    let others = 1.0 - parts.iter().sum::<f64>();
    parts.push(others.max(0.0));
    parts
}

/// Returns the share of its time that a program communicates.
pub(super) fn communication(run: &NpbRun) -> f64 {
    1.0 - time_parts(run)[0]
}
