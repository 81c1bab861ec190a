// SPDX-License-Identifier: MIT OR Apache-2.0
//! Profiles as text: the tables of the NPB paper (the first three correspond to its Tables 4 and 3
//! and its Figure 3), then processes, pairs and functions.

use crate::profile::{End, PeerCounts, Process, Profile, SizeClass, Tally, World};
use std::fmt::Write;
use std::path::Path;

/// Maximum rows of a table of processes, pairs or functions. The JSON has all.
const ROWS_MAX: usize = 16;
const MEGA: f64 = 1e6;
const KILO: f64 = 1e3;

/// Kinds of calls in the order of the paper's Figure 3, followed by others.
const KINDS: [&str; 12] = [
    "Send",
    "Recv",
    "Isend",
    "Irecv",
    "Sendrecv",
    "Wait",
    "Test",
    "Start",
    "Probe",
    "Collective",
    "One-sided",
    "Other",
];

/// Returns the whole profile as text. Writing to a `String` cannot fail.
#[must_use]
pub fn render(profile: &Profile) -> String {
    let mut text = String::new();
    for world in &profile.worlds {
        head(&mut text, world);
        if !world.processes.is_empty() {
            sizes(&mut text, world);
            volume(&mut text, world);
            times(&mut text, world);
            processes(&mut text, world);
            pairs(&mut text, world);
            functions(&mut text, world);
        }
        endings(&mut text, world);
    }
    for note in &profile.notes {
        let _ = writeln!(text, "note: {note}");
    }
    text
}

/// Formats a count as `1 process` or `2 processes`.
fn counted(count: usize, one: &str, many: &str) -> String {
    let word = if count == 1 { one } else { many };
    format!("{count} {word}")
}

fn head(text: &mut String, world: &World) {
    let name = Path::new(&world.program).file_name();
    let name = name.map_or(world.program.as_str().into(), |name| name.to_string_lossy());
    let processes = counted(world.process_count as usize, "process", "processes");
    let hosts = counted(world.hosts.len(), "host", "hosts");
    let _ = writeln!(
        text,
        "{name}: {processes} on {hosts}, {}, {:.3} s from MPI_Init to MPI_Finalize",
        world.library, world.seconds
    );
}

/// Writes the equivalent of Table 4 of the NPB paper.
fn sizes(text: &mut String, world: &World) {
    let _ = write!(text, "\n{:24}", "messages by bytes");
    for class in &world.sizes.messages {
        let name = match class.to {
            Some(to) => format!("{}-{to}", class.from),
            None => format!("{} or more", class.from),
        };
        let _ = write!(text, " {name:>14}");
    }
    text.push('\n');
    let sizes = &world.sizes;
    let mut row = |name: &str, counts: &[u64]| {
        let _ = write!(text, "{name:24}");
        for count in counts {
            let _ = write!(text, " {count:>14}");
        }
        text.push('\n');
    };
    let counts = |of: &[SizeClass]| of.iter().map(|class| class.tally.count).collect::<Vec<_>>();
    let [messages, one_sided, collectives] =
        [&sizes.messages, &sizes.one_sided, &sizes.of_collectives].map(|of| counts(of));
    row("between two processes", &messages);
    row("one-sided", &one_sided);
    row("in collectives (*)", &collectives);
    let sums = messages.iter().zip(&one_sided).zip(&collectives);
    let sums: Vec<u64> = sums
        .map(|((a, b), c)| a.saturating_add(*b).saturating_add(*c))
        .collect();
    row("all", &sums);
    let _ = writeln!(text, "(*) counted as the messages of a simple algorithm");
}

/// Writes the equivalent of Table 3 of the NPB paper.
fn volume(text: &mut String, world: &World) {
    let _ = writeln!(
        text,
        "\n{:24} {:>14} {:>14} {:>14} {:>14}",
        "volume", "messages", "MB", "average KB", "MB/s/process"
    );
    let mut all = Tally::default();
    let rows = [
        ("between two processes", &world.sizes.messages),
        ("one-sided", &world.sizes.one_sided),
        ("in collectives (*)", &world.sizes.of_collectives),
    ];
    for (name, of) in rows {
        let mut sum = Tally::default();
        for class in of {
            sum.add(class.tally);
        }
        all.add(sum);
        volume_row(text, name, sum, world);
    }
    volume_row(text, "all", all, world);
}

fn volume_row(text: &mut String, name: &str, sum: Tally, world: &World) {
    let bytes = number(sum.bytes);
    let rate = bytes / world.seconds / world.processes.len() as f64;
    let _ = writeln!(
        text,
        "{name:24} {:>14} {:>14.3} {:>14.3} {:>14.3}",
        sum.count,
        bytes / MEGA,
        if sum.count == 0 {
            0.0
        } else {
            bytes / number(sum.count) / KILO
        },
        if rate.is_finite() { rate / MEGA } else { 0.0 }
    );
}

#[allow(
    clippy::cast_precision_loss,
    reason = "a millionth of a part is enough of a figure to read"
)]
fn number(count: u64) -> f64 {
    count as f64
}

/// Returns the percentage of its time that a process spent on an activity.
fn share(seconds: f64, process: &Process) -> f64 {
    if process.seconds > 0.0 {
        seconds / process.seconds * 100.0
    } else {
        0.0
    }
}

/// Writes the equivalent of Figure 3 of the NPB paper: the time spent by processes.
fn times(text: &mut String, world: &World) {
    let _ = writeln!(
        text,
        "\n{:24} {:>14} {:>14} {:>20} {:>20}",
        "time", "calls", "mean %", "least % (rank)", "most % (rank)"
    );
    let mut kinds: Vec<&str> = KINDS.to_vec();
    let own = world.processes.iter().flat_map(|process| &process.kinds);
    for kind in own {
        if !kinds.contains(&kind.kind.as_str()) {
            kinds.push(&kind.kind);
        }
    }
    time_row(text, world, "computation", |process| {
        (0, process.computing_s)
    });
    for kind in kinds {
        time_row(text, world, kind, |process| {
            let found = process.kinds.iter().find(|known| known.kind == kind);
            found.map_or((0, 0.0), |found| (found.calls, found.seconds))
        });
    }
    imbalance(text, world);
}

/// Writes a row of [`times`]. `of` returns the calls and seconds of a process.
fn time_row(text: &mut String, world: &World, name: &str, of: impl Fn(&Process) -> (u64, f64)) {
    let rows: Vec<(u64, f64, u32)> = world
        .processes
        .iter()
        .map(|process| {
            let (calls, seconds) = of(process);
            (calls, share(seconds, process), process.rank)
        })
        .collect();
    let calls: u64 = rows.iter().map(|(calls, ..)| calls).sum();
    let by_share = |a: &&(u64, f64, u32), b: &&(u64, f64, u32)| a.1.total_cmp(&b.1);
    let (Some(least), Some(most)) = (rows.iter().min_by(by_share), rows.iter().max_by(by_share))
    else {
        return;
    };
    if calls == 0 && most.1 == 0.0 {
        return;
    }
    let mean = rows.iter().map(|(_, share, _)| share).sum::<f64>() / rows.len() as f64;
    let calls = if calls > 0 {
        calls.to_string()
    } else {
        String::new()
    };
    let [least, most] = [least, most].map(|(_, share, rank)| format!("{share:.1} ({rank})"));
    let _ = writeln!(
        text,
        "{name:24} {calls:>14} {mean:>14.1} {least:>20} {most:>20}"
    );
}

/// Writes how much longer than the mean the process with the most computation computes.
fn imbalance(text: &mut String, world: &World) {
    let by_time = |a: &&Process, b: &&Process| a.computing_s.total_cmp(&b.computing_s);
    let Some(most) = world.processes.iter().max_by(by_time) else {
        return;
    };
    let sum: f64 = world
        .processes
        .iter()
        .map(|process| process.computing_s)
        .sum();
    let mean = sum / world.processes.len() as f64;
    if world.processes.len() > 1 && mean > 0.0 {
        let _ = writeln!(
            text,
            "imbalance: rank {} computes {:.1} % longer than the mean",
            most.rank,
            (most.computing_s / mean - 1.0) * 100.0
        );
    }
}

fn processes(text: &mut String, world: &World) {
    let _ = writeln!(
        text,
        "\n{:>6} {:24} {:>9} {:>9} {:>7} {:>11} {:>11} {:>11} {:>11} {:>11} {:>11}",
        "rank",
        "host",
        "seconds",
        "compute %",
        "MPI %",
        "sent",
        "MB",
        "received",
        "MB",
        "one-sided",
        "MB"
    );
    for process in world.processes.iter().take(ROWS_MAX) {
        let _ = write!(
            text,
            "{:>6} {:24} {:>9.3} {:>9.1} {:>7.1}",
            process.rank,
            process.host,
            process.seconds,
            share(process.computing_s, process),
            share(process.in_mpi_s(), process)
        );
        for tally in process.exchanged() {
            let _ = write!(
                text,
                " {:>11} {:>11.3}",
                tally.count,
                number(tally.bytes) / MEGA
            );
        }
        text.push('\n');
    }
    note_omitted_rows(text, world.processes.len(), "processes");
}

/// Writes a note if a table of `count` rows is incomplete.
fn note_omitted_rows(text: &mut String, count: usize, what: &str) {
    if count > ROWS_MAX {
        let _ = writeln!(text, "… {count} {what} in total; --json has all");
    }
}

/// Writes the pairs with the most bytes.
fn pairs(text: &mut String, world: &World) {
    let ranks = world.processes.iter();
    let mut pairs: Vec<(u32, &PeerCounts)> = ranks
        .flat_map(|process| process.peers.iter().map(|peer| (process.rank, peer)))
        .filter(|(_, peer)| peer.sent.count + peer.one_sided.count > 0)
        .collect();
    if pairs.is_empty() {
        return;
    }
    // The sort is stable, so equal pairs stay in the order of ranks.
    pairs.sort_by_key(|(_, peer)| {
        std::cmp::Reverse(peer.sent.bytes.saturating_add(peer.one_sided.bytes))
    });
    let _ = writeln!(
        text,
        "\n{:>6} {:>6} {:>14} {:>14} {:>14} {:>14}",
        "from", "to", "messages", "MB", "one-sided", "MB"
    );
    for (from, peer) in pairs.iter().take(ROWS_MAX) {
        let to = peer
            .rank
            .map_or("other".to_owned(), |rank| rank.to_string());
        let _ = writeln!(
            text,
            "{from:>6} {to:>6} {:>14} {:>14.3} {:>14} {:>14.3}",
            peer.sent.count,
            number(peer.sent.bytes) / MEGA,
            peer.one_sided.count,
            number(peer.one_sided.bytes) / MEGA
        );
    }
    note_omitted_rows(text, pairs.len(), "pairs");
}

/// Writes the functions with the most time over all processes.
fn functions(text: &mut String, world: &World) {
    let mut sums: Vec<(&str, u64, f64, u64)> = Vec::new();
    for call in world.processes.iter().flat_map(|process| &process.calls) {
        let time = &call.time;
        match sums.iter_mut().find(|(name, ..)| *name == call.name) {
            Some((_, calls, seconds, bytes)) => {
                *calls += time.calls;
                *seconds += time.seconds;
                *bytes = bytes.saturating_add(time.bytes);
            }
            None => sums.push((&call.name, time.calls, time.seconds, time.bytes)),
        }
    }
    sums.sort_by(|a, b| b.2.total_cmp(&a.2));
    let _ = writeln!(
        text,
        "\n{:24} {:>14} {:>14} {:>14} {:>14}",
        "function", "calls", "seconds (sum)", "us a call", "MB"
    );
    for (name, calls, seconds, bytes) in sums.iter().take(ROWS_MAX) {
        let _ = writeln!(
            text,
            "{name:24} {calls:>14} {seconds:>14.3} {:>14.2} {:>14.3}",
            seconds / number(*calls) * 1e6,
            number(*bytes) / MEGA
        );
    }
    note_omitted_rows(text, sums.len(), "functions");
}

/// Writes the processes that did not finalize, and those without a record.
fn endings(text: &mut String, world: &World) {
    for process in &world.processes {
        let how = match process.end {
            End::Finalized => continue,
            End::Aborted => "called MPI_Abort",
            End::Lost => "ended without MPI_Finalize",
        };
        let place = match &process.ended_in {
            Some(function) => format!(", in {function}"),
            None => String::new(),
        };
        let _ = writeln!(
            text,
            "rank {} {how}{place}: its figures extend to its last call",
            process.rank
        );
    }
    if world.processes.iter().any(|process| process.has_threads) {
        let _ = writeln!(
            text,
            "several threads may call MPI: their times are summed, and computation is the remaining time"
        );
    }
    if let [first, ..] = world.missing.as_slice() {
        let _ = writeln!(
            text,
            "{} of {} left no record, rank {first} first: on several hosts, name a directory that \
             all share with --keep",
            counted(world.missing.len(), "process", "processes"),
            world.process_count
        );
    }
    text.push('\n');
}

#[cfg(test)]
mod tests;
