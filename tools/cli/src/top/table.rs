// SPDX-License-Identifier: MIT OR Apache-2.0
//! The processes and their peers as rows of text.

use super::sample::Sample;
use portolan::status::{PathState, PeerState};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Titles of the columns of processes.
pub(super) const TITLES: [&str; 10] = [
    "JOB", "RANK", "PID", "PROGRAM", "OUT/s", "IN/s", "MB/s IN", "RESENT", "GRANTS", "STATE",
];

/// Titles of the columns of a process's peers.
pub(super) const PEER_TITLES: [&str; 8] = [
    "PEER", "HOST", "PATH", "USE", "RTT µs", "FLIGHT", "GRANTS", "WHY",
];

/// Replaces the control characters of a text from another process, which a terminal would obey.
fn printable(text: &str) -> String {
    text.replace(char::is_control, "\u{fffd}")
}

/// Returns the cells of a process, one for each of [`TITLES`].
pub(super) fn row(sample: &Sample) -> [String; 10] {
    let status = &sample.status;
    let rate = |of: fn(&super::sample::Rates) -> f64| {
        let value = sample.rates.as_ref().map(of);
        value.map_or_else(|| "-".to_owned(), |value| format!("{value:.0}"))
    };
    let megabytes = sample.rates.map(|rates| rates.bytes_received / 1e6);
    let grants: u32 = status.peers.iter().map(|peer| peer.waiting_grants).sum();
    let count = |name: &str| status.counters.get(name).copied().unwrap_or(0);
    [
        printable(&status.job).chars().take(8).collect(),
        rank_of(sample),
        sample.pid.to_string(),
        printable(&sample.program),
        rate(|rates| rates.messages_sent),
        rate(|rates| rates.messages_received),
        megabytes.map_or_else(|| "-".to_owned(), |value| format!("{value:.1}")),
        count("retransmits").to_string(),
        grants.to_string(),
        state(sample),
    ]
}

fn rank_of(sample: &Sample) -> String {
    match (sample.rank, sample.status.rank) {
        (Some(rank), Some(_)) => format!("{rank}/{}", sample.status.size),
        (Some(rank), None) => rank.to_string(),
        (None, _) => "-".to_owned(),
    }
}

fn state(sample: &Sample) -> String {
    let waits = printable(&sample.status.waits);
    match sample.answered {
        true => waits,
        false => format!("no answer, last: {waits}"),
    }
}

/// Returns the rows of a process's peers, one for each path.
pub(super) fn peer_rows(sample: &Sample) -> Vec<[String; 8]> {
    let peers = sample.status.peers.iter();
    peers
        .flat_map(|peer| {
            let row = |path| peer_row(peer, path);
            peer.paths.iter().map(row).collect::<Vec<_>>()
        })
        .collect()
}

fn peer_row(peer: &PeerState, path: &PathState) -> [String; 8] {
    let used = match (path.up, path.small, path.bulk) {
        (false, ..) => "down",
        (_, true, true) => "all",
        (_, true, false) => "small",
        (_, false, true) => "bulk",
        _ => "none",
    };
    [
        peer.peer.to_string(),
        printable(&peer.host),
        printable(&path.link),
        used.to_owned(),
        path.rtt_min_us
            .map_or_else(|| "-".to_owned(), |rtt| format!("{rtt:.1}")),
        path.in_flight.to_string(),
        peer.waiting_grants.to_string(),
        printable(&path.why),
    ]
}

/// Returns how many peers use each link for small messages, such as `shm 3, udp 1`.
pub(super) fn links(sample: &Sample) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for path in sample.status.peers.iter().flat_map(|peer| &peer.paths) {
        if path.small {
            *counts.entry(&path.link).or_default() += 1;
        }
    }
    let texts: Vec<String> = counts
        .into_iter()
        .map(|(link, count)| format!("{link} {count}"))
        .collect();
    texts.join(", ")
}

/// Returns the processes as a table, each followed by its peers.
pub(super) fn text(samples: &[Sample]) -> String {
    if samples.is_empty() {
        return "no process of this user uses Portolan on this host, or none has answered\n".into();
    }
    let mut text = String::new();
    let rows: Vec<[String; 10]> = samples.iter().map(row).collect();
    let widths = widths(&TITLES, &rows);
    add_line(&mut text, &TITLES, &widths);
    for (sample, row) in samples.iter().zip(&rows) {
        add_line(&mut text, &row.each_ref().map(String::as_str), &widths);
        for peer in peer_rows(sample) {
            let [number, host, path, used, rtt, in_flight, grants, why] = peer;
            let _ = writeln!(
                text,
                "    peer {number} on {host}: {path} for {used}, round trip {rtt} µs, {in_flight} in \
                 flight, {grants} waiting for a grant: {why}"
            );
        }
    }
    text
}

/// Returns the widest cell of each column.
pub(super) fn widths<const N: usize>(titles: &[&str; N], rows: &[[String; N]]) -> [usize; N] {
    std::array::from_fn(|column| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.max().unwrap_or(0).max(titles[column].chars().count())
    })
}

fn add_line<const N: usize>(text: &mut String, cells: &[&str; N], widths: &[usize; N]) {
    for (cell, width) in cells.iter().zip(widths) {
        let _ = write!(text, "{cell:width$}  ");
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;
    use portolan::status::Status;

    fn sample() -> Sample {
        let path = PathState {
            link: "udp".to_owned(),
            up: true,
            small: true,
            bulk: true,
            why: "it is the only path that answers".to_owned(),
            rtt_min_us: Some(7.25),
            ..PathState::default()
        };
        Sample {
            pid: 77,
            program: "heat".to_owned(),
            rank: Some(3),
            answered: false,
            rates: None,
            status: Status {
                job: "0123456789abcdef".to_owned(),
                rank: Some(3),
                size: 4,
                waits: "has waited 2.0 s".to_owned(),
                peers: vec![PeerState {
                    peer: 1,
                    host: "h1".to_owned(),
                    waiting_grants: 2,
                    paths: vec![path],
                    ..PeerState::default()
                }],
                ..Status::default()
            },
        }
    }

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        let mut sample = sample();
        sample.program = "a\u{1b}[2J".to_owned();
        sample.status.waits = "b\nc".to_owned();
        let text = text(&[sample]);
        assert!(
            text.contains("a\u{fffd}[2J") && text.contains("b\u{fffd}c"),
            "{text}"
        );
    }

    #[test]
    fn table_has_processes_and_their_paths() {
        let text = text(&[sample()]);
        for part in [
            "01234567  3/4   77   heat",
            "no answer, last: has waited 2.0 s",
            "peer 1 on h1: udp for all, round trip 7.2 µs, 0 in flight, 2 waiting for a grant: it is the only",
        ] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
        assert_eq!(links(&sample()), "udp 1");
        assert!(super::text(&[]).starts_with("no process"));
    }
}
