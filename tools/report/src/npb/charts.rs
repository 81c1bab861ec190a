// SPDX-License-Identifier: MIT OR Apache-2.0
//! Charts of speed-ups by network and by number of processes, and of the time spent: Figures 2 and
//! 3 of the paper.

use super::{Network, Npb, NpbRun, PROGRAMS};
use crate::chart::{Axis, Bars, Chart, Group, Ink, Line, Stacks, Unit};
use crate::figures::{self, Figure};
use crate::profiles::{mean, share};
use crate::units;

/// Names of the charts of each program, in the order of [`PROGRAMS`].
const NAMES: [[&str; 2]; 4] = [
    ["npb-speed-up-is", "npb-time-is"],
    ["npb-speed-up-mg", "npb-time-mg"],
    ["npb-speed-up-cg", "npb-time-cg"],
    ["npb-speed-up-ep", "npb-time-ep"],
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
    let mut all: Vec<Figure> = speed_ups(npb).into_iter().collect();
    for (program, [speed_up, time]) in PROGRAMS.iter().zip(NAMES) {
        all.extend(by_count(npb, program, speed_up));
        all.extend(breakdown(npb, program, time));
    }
    all
}

/// Returns the networks with measurements.
fn networks(npb: &Npb) -> Vec<Network> {
    let ran = |network: &Network| npb.runs.iter().any(|run| run.network == Some(*network));
    Network::ALL.into_iter().filter(ran).collect()
}

/// Returns the chart of all programs with the most processes.
fn speed_ups(npb: &Npb) -> Option<Figure> {
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
        name: "npb-speed-up",
        chart: Chart::Bars(Bars {
            title: format!("Speed-up on {most} processes by network"),
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
fn by_count(npb: &Npb, program: &str, name: &'static str) -> Option<Figure> {
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
    let title = format!("{program}: speed-up by the number of processes");
    let caption = "Dashed: ideal speed-up.".to_owned();
    figures::figure(name, (&title, caption), axes, lines)
}

/// Returns the chart of the time spent by one program's processes, with one bar per network.
fn breakdown(npb: &Npb, program: &str, name: &'static str) -> Option<Figure> {
    let most = npb.most()?;
    let runs: Vec<(Network, &NpbRun)> = networks(npb)
        .into_iter()
        .filter_map(|network| Some((network, npb.run(program, network, most)?)))
        .collect();
    let all: Vec<Vec<f64>> = runs.iter().map(|(_, run)| parts(run)).collect();
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
        (network.name(), parts.collect())
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
fn parts(run: &NpbRun) -> Vec<f64> {
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
    1.0 - parts(run)[0]
}
