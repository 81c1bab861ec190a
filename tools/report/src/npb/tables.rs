// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tables 2 to 5 of the paper, and the shares that its text gives for Figure 3, above current
//! figures.

use super::answers::MICROS;
use super::charts::communication;
use super::{Network, Npb, NpbRun, PROGRAMS, with_wire};
use crate::papers::{Table, words};
use crate::units;
use portolan_profile::Tally;

const PAPER: &str =
    "Fast Ethernet, VIA and Myrinet under the NAS benchmarks, class B on 16 hosts of 650 MHz";

const BYTES_PER_MB: f64 = 1e6;
const BYTES_PER_KB: f64 = 1e3;

/// Returns the tables for which `npb` has figures.
pub(super) fn tables(npb: &Npb) -> Vec<Table> {
    let first = npb.first_wire();
    let all = [
        alone(npb),
        speed_ups(npb),
        volume(&first),
        sizes(&first),
        shares(npb),
    ];
    all.into_iter()
        .filter(|table| !table.now.is_empty())
        .collect()
}

/// Returns one row for each program with `figures`.
fn by_program(npb: &Npb, figures: impl Fn(&str) -> Option<Vec<String>>) -> Vec<Vec<String>> {
    let rows = PROGRAMS.iter().filter_map(|program| {
        let name = format!("{program}, class\u{a0}{}", npb.class);
        Some([vec![name], figures(program)?].concat())
    });
    rows.collect()
}

/// Returns one row per network and wire, with one figure per program, for the most processes.
fn by_network(npb: &Npb, figure: impl Fn(&NpbRun) -> Option<String>) -> Vec<Vec<String>> {
    let most = npb.most();
    let mut rows = Vec::new();
    for wire in npb.wires() {
        let part = npb.over(wire);
        for network in Network::ALL {
            let figures = PROGRAMS.map(|program| figure(part.run(program, network, most?)?));
            if figures.iter().any(Option::is_some) {
                let figures = figures.map(|figure| figure.unwrap_or_else(|| "–".into()));
                let name = with_wire(&network.name(), wire);
                rows.push([vec![name], figures.to_vec()].concat());
            }
        }
    }
    rows
}

/// Returns the head of a table with one column per program.
fn program_columns() -> Vec<&'static str> {
    ["network"].into_iter().chain(PROGRAMS).collect()
}

/// Returns rows of the paper's figures, which has none of FT and BT.
fn published(rows: &[(&str, [&str; PROGRAMS.len() - 2])]) -> Vec<Vec<String>> {
    let row = |(network, figures): &(&str, [&str; PROGRAMS.len() - 2])| {
        let all = [*network].into_iter().chain(*figures).chain(["–", "–"]);
        all.map(str::to_owned).collect()
    };
    rows.iter().map(row).collect()
}

fn on_most(npb: &Npb) -> String {
    npb.most()
        .map_or_else(String::new, |most| format!("{most} processes"))
}

fn alone(npb: &Npb) -> Table {
    Table {
        title: "One process (Table 2)".into(),
        source: PAPER,
        head: vec!["program", "time"],
        then: words(&[
            ["IS, class B", "69.03 s"],
            ["MG, class B", "342.58 s"],
            ["CG, class B", "2346.07 s"],
            ["EP, class B", "1537.39 s"],
            ["SP, class B", "6783.32 s"],
            ["LU, class B", "7553.21 s"],
        ]),
        now: by_program(npb, |program| {
            let run = npb.alone(program)?;
            Some(vec![units::time(run.seconds * MICROS)])
        }),
        caption: format!(
            "Times without a network, which speed-ups are relative to; {}.",
            match npb.rounds {
                1 => "of one run".to_owned(),
                rounds => format!("medians of {rounds} runs"),
            }
        ),
    }
}

fn speed_ups(npb: &Npb) -> Table {
    Table {
        title: format!("Speed-up on {} (Table 5)", on_most(npb)),
        source: PAPER,
        head: program_columns(),
        then: published(&[
            (
                "TCP, Fast Ethernet",
                ["1.43", "10.95", "7.70", "–", "15.92", "12.76"],
            ),
            (
                "GM, Myrinet",
                ["11.85", "14.28", "14.11", "13.57", "16.01", "7.22"],
            ),
            (
                "M-VIA, Fast Ethernet",
                ["–", "12.36", "9.72", "11.93", "16.00", "15.16"],
            ),
            (
                "VIA, Giganet",
                ["–", "13.92", "13.36", "13.4", "16.02", "15.48"],
            ),
            (
                "VIA with RDMA, Giganet",
                ["13.95", "14.03", "13.59", "13.66", "16.02", "15.66"],
            ),
        ]),
        now: by_network(npb, |run| {
            npb.speed_up(run).map(|speed_up| format!("{speed_up:.2}"))
        }),
        caption: format!(
            "Then 16 would have been ideal; now {} would be.",
            npb.most().unwrap_or_default()
        ),
    }
}

#[allow(clippy::cast_precision_loss, reason = "two digits are shown")]
fn volume(npb: &Npb) -> Table {
    Table {
        title: format!("Messages and bytes on {} (Table 3)", on_most(npb)),
        source: PAPER,
        head: vec![
            "program",
            "messages",
            "MB",
            "KB per message",
            "MB/s per process",
        ],
        then: words(&[
            ["IS, class B", "5,420", "1281.19", "242.05", "16.18"],
            ["MG, class B", "42,776", "667.25", "15.97", "1.74"],
            ["CG, class B", "220,800", "13390.54", "62.1", "5.03"],
            ["EP, class B", "90", "0.003", "0.03", "0"],
            ["SP, class B", "153,600", "14504.17", "96.69", "1.82"],
            ["LU, class B", "1,212,060", "3525.70", "2.97", "0.45"],
        ]),
        now: by_program(npb, |program| {
            let run = npb.fastest(program)?;
            let Tally { count, bytes } = run.messages();
            let bytes = bytes as f64;
            let each_s = bytes / run.seconds / f64::from(run.processes) / BYTES_PER_MB;
            let figures = [
                bytes / BYTES_PER_MB,
                bytes / (count as f64).max(1.0) / BYTES_PER_KB,
                each_s,
            ];
            Some([vec![exact(count)], figures.map(units::digits).to_vec()].concat())
        }),
        caption: "They include the messages of collective operations, now as those of a simple \
                  algorithm, and the set-up before the timed part. MB/s refers to the time on the \
                  fastest network. Now MB and KB are 10⁶ and 10³ bytes; then a MB was 1024 KB."
            .into(),
    }
}

#[allow(clippy::cast_precision_loss, reason = "counts of messages")]
fn sizes(npb: &Npb) -> Table {
    Table {
        title: format!("Messages by size on {} (Table 4)", on_most(npb)),
        source: PAPER,
        head: vec![
            "program",
            "0–9 B",
            "10–99",
            "100–999",
            "10³–",
            "10⁴–",
            "10⁵ and more",
        ],
        then: words(&[
            ["IS, class B", "2,560", "0", "0", "300", "0", "2,560"],
            [
                "MG, class B",
                "760",
                "8,960",
                "9,920",
                "11,520",
                "9,664",
                "1,952",
            ],
            ["CG, class B", "124,800", "2,400", "0", "0", "0", "93,600"],
            ["EP, class B", "60", "30", "0", "0", "0", "0"],
            ["SP, class B", "0", "0", "0", "0", "57,600", "96,000"],
            [
                "LU, class B",
                "0",
                "60",
                "300,000",
                "900,000",
                "0",
                "12,000",
            ],
        ]),
        now: by_program(npb, |program| {
            let run = npb.fastest(program)?;
            let counts = run.classes().map(|class| exact(class.count));
            Some(counts.to_vec())
        }),
        caption: "The same is sent on every network. A smaller class sends as many messages an \
                  iteration, and shorter ones."
            .into(),
    }
}

/// Formats a count with thousands separators.
pub(crate) fn exact(count: u64) -> String {
    let plain = count.to_string();
    let mut text = String::new();
    for (at, digit) in plain.char_indices() {
        if at > 0 && (plain.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn shares(npb: &Npb) -> Table {
    Table {
        title: format!("Time spent communicating on {} (Figure 3)", on_most(npb)),
        source: PAPER,
        head: program_columns(),
        then: published(&[
            (
                "GM, Myrinet",
                [
                    "55 %",
                    "below 10 %",
                    "14 %",
                    "below 8 %",
                    "–",
                    "almost 40 %",
                ],
            ),
            (
                "VIA with RDMA, Giganet",
                ["48 %", "below 10 %", "16 %", "below 8 %", "–", "13.5 %"],
            ),
        ]),
        now: by_network(npb, |run| {
            Some(format!("{:.0} %", communication(run) * 100.0))
        }),
        caption: "Waiting for a process that computes longer is among it; the bars above say in \
                  which calls."
            .into(),
    }
}
