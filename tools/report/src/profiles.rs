// SPDX-License-Identifier: MIT OR Apache-2.0
//! Charts of `portolan profile`: the time of each process, and the bytes between each pair.

use crate::chart::{Chart, Heat, Ink, Stacks};
use crate::figures::Figure;
use portolan_profile::{FORMAT, Process, Profile, World};
use serde_json::Value;
use std::path::Path;

/// Maximum rows of stacked bars. With more ranks, adjacent ones share a row.
const ROWS_MAX: usize = 32;
/// Maximum rows of cells. With more ranks, adjacent ones share a row.
const CELLS_MAX: usize = 64;
/// Kinds of calls with their own colour. Computation and the rest use the two other colours.
const KINDS_MAX: usize = 6;

/// Returns the charts of `json`; `None` if `portolan profile` did not write it. Of several
/// programs, the one with the longest run is drawn.
pub(crate) fn of_profile(json: &Value) -> Option<Vec<Figure>> {
    if json.get("format")? != FORMAT {
        return None;
    }
    Some(figures(&serde_json::from_value(json.clone()).ok()?))
}

/// Returns the charts of `profile`; see [`of_profile`].
pub(crate) fn figures(profile: &Profile) -> Vec<Figure> {
    let longest = |a: &&World, b: &&World| a.seconds.total_cmp(&b.seconds);
    let Some(world) = profile.worlds.iter().max_by(longest) else {
        return Vec::new();
    };
    [times(world), bytes(world)].into_iter().flatten().collect()
}

/// Returns a title with the program and the number of processes.
fn title(what: &str, world: &World) -> String {
    let name = Path::new(&world.program).file_name();
    let name = name.map_or(world.program.as_str().into(), |name| name.to_string_lossy());
    format!("{what}, {name}, {} processes", world.process_count)
}

/// Returns the label of ranks that share a row.
fn ranks(first: usize, count: usize, all: usize) -> String {
    match (first + count).min(all) - 1 {
        last if last == first => format!("{first}"),
        last => format!("{first}–{last}"),
    }
}

/// Returns the share of its time that `process` spent in calls of `kind`.
pub(crate) fn share(process: &Process, kind: &str) -> f64 {
    let found = process.kinds.iter().find(|known| known.kind == kind);
    let seconds = found.map_or(0.0, |found| found.seconds);
    if process.seconds > 0.0 {
        seconds / process.seconds
    } else {
        0.0
    }
}

/// Returns the mean of `of` over `processes`.
#[allow(clippy::cast_precision_loss, reason = "a count of processes")]
pub(crate) fn mean(processes: &[Process], of: impl Fn(&Process) -> f64) -> f64 {
    processes.iter().map(of).sum::<f64>() / processes.len() as f64
}

/// Returns the most expensive kinds of calls, in descending order of time.
fn kinds(world: &World) -> Vec<(String, f64)> {
    let mut kinds: Vec<(String, f64)> = Vec::new();
    for time in world.processes.iter().flat_map(|process| &process.kinds) {
        if !kinds.iter().any(|(known, _)| *known == time.kind) {
            let part = mean(&world.processes, |process| share(process, &time.kind));
            kinds.push((time.kind.clone(), part));
        }
    }
    kinds.sort_by(|a, b| b.1.total_cmp(&a.1));
    kinds
}

/// Returns the chart of the time spent, by rank.
fn times(world: &World) -> Option<Figure> {
    let computing = |process: &Process| {
        if process.seconds > 0.0 {
            process.computing_s / process.seconds
        } else {
            0.0
        }
    };
    let mut named: Vec<String> = kinds(world).into_iter().map(|(kind, _)| kind).collect();
    let others = named.split_off(named.len().min(KINDS_MAX));
    let mut legend = vec![("computation".to_owned(), Ink::System(0))];
    legend.extend(named.iter().cloned().zip((1..).map(Ink::System)));
    if !others.is_empty() {
        legend.push((others.join(", "), Ink::System(7)));
    }
    let step = world.processes.len().div_ceil(ROWS_MAX).max(1);
    let rows = world.processes.chunks(step).map(|processes| {
        let first = processes[0].rank as usize;
        let mut parts = vec![mean(processes, computing)];
        parts.extend(
            named
                .iter()
                .map(|kind| mean(processes, |process| share(process, kind))),
        );
        if !others.is_empty() {
            let rest = others
                .iter()
                .map(|kind| mean(processes, |process| share(process, kind)));
            parts.push(rest.sum());
        }
        (
            ranks(first, processes.len(), world.process_count as usize),
            parts,
        )
    });
    let rows: Vec<(String, Vec<f64>)> = rows.collect();
    if rows.is_empty() {
        return None;
    }
    let computed = mean(&world.processes, computing) * 100.0;
    let mut caption = format!("The processes compute {computed:.0} % of their time on average");
    if let Some((kind, part)) = kinds(world).first() {
        caption.push_str(&format!(
            "; {kind} takes most of the rest, {:.0} %",
            part * 100.0
        ));
    }
    Some(Figure {
        name: "time",
        chart: Chart::Stacks(Stacks {
            title: title("Time spent", world),
            across: "% of the time from MPI_Init to MPI_Finalize, by rank".into(),
            kinds: legend,
            rows,
        }),
        caption: caption + ".",
    })
}

/// Returns the chart of bytes between each pair, in messages and one-sided operations.
#[allow(
    clippy::cast_precision_loss,
    reason = "a shade and two digits need no more"
)]
fn bytes(world: &World) -> Option<Figure> {
    let count = world.process_count as usize;
    let step = count.div_ceil(CELLS_MAX).max(1);
    let side = count.div_ceil(step);
    let mut cells = vec![vec![0.0; side]; side];
    let (mut sum, mut pairs) = (0.0, 0);
    for process in &world.processes {
        for peer in &process.peers {
            let given = (peer.sent.bytes.saturating_add(peer.one_sided.bytes)) as f64;
            let to = peer.rank.map(|rank| rank as usize / step);
            let row = cells.get_mut(process.rank as usize / step);
            let cell = to.and_then(|to| row?.get_mut(to));
            if let Some(cell) = cell.filter(|_| given > 0.0) {
                *cell += given;
                sum += given;
                pairs += 1;
            }
        }
    }
    // Programs with only collective operations have no pairs.
    if pairs == 0 {
        return None;
    }
    let names = (0..side).map(|at| ranks(at * step, step, count)).collect();
    Some(Figure {
        name: "bytes",
        chart: Chart::Heat(Heat {
            title: title("Bytes by pair", world),
            axes: ["from rank".into(), "to rank".into()],
            names,
            cells,
        }),
        caption: format!(
            "{pairs} of {} pairs of processes exchange messages or access each other's memory: {} in total, without \
             collective operations.",
            count * count,
            crate::units::bytes(sum)
        ),
    })
}

#[cfg(test)]
pub(crate) mod tests;
