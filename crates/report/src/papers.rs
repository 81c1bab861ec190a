// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tables of five papers on fast messages, as printed, with today's figures below.
//!
//! A table is there if the run holds a figure for it. "Then" is between two hosts; so is "now",
//! but for what is named as shared memory.

use crate::answers::float;
use crate::data::Data;
use crate::systems::way;
use crate::units;
use portolan_bench::{HalfPower, Metric, Path, Row};

/// A table with the printed figures above today's.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Table {
    /// What it is about.
    pub(crate) title: String,
    /// Where the printed figures are from.
    pub(crate) source: &'static str,
    pub(crate) head: Vec<&'static str>,
    pub(crate) then: Vec<Vec<String>>,
    pub(crate) now: Vec<Vec<String>>,
    /// What is seen.
    pub(crate) caption: String,
}

const GAMMA_GIGABIT: &str =
    "GAMMA on the GNIC-II and the GA620, Gigabit Ethernet; Tables 1 to 3, Figures 1 to 4";
const GAMMA_PAGE: &str = "The GAMMA project's page, figures for Gigabit Ethernet adapters";
const MYRINET: &str = "GM, GM+ and BIP on Myrinet, Table 1";
const VIA: &str = "Fast Ethernet, VIA and Myrinet under the NAS benchmarks, Figure 1";
const SPECULATIVE: &str = "Speculative defragmentation on Gigabit Ethernet, Figures 1 and 5";
const INTERFERENCE: &str = "Speculative defragmentation on Gigabit Ethernet, Table 1";

/// A system and its path.
type System = (&'static str, Path);

/// Portolan's paths and TCP, as rows of a table.
const SYSTEMS: [System; 5] = [
    ("portolan", Path::Packet),
    ("portolan", Path::Udp),
    ("portolan", Path::Shm),
    ("tcp", Path::Packet),
    ("tcp", Path::Udp),
];

/// The tables that `data` has figures for.
pub(crate) fn tables(data: &Data<'_>) -> Vec<Table> {
    let all = [
        latencies(data),
        definitions(data),
        logp(data),
        two_sizes(data),
        copies(data),
        interference(data),
    ];
    all.into_iter().flatten().collect()
}

/// What is not among [`tables`], and how to measure it.
pub(crate) fn missing(data: &Data<'_>) -> Vec<&'static str> {
    let has = |metric| data.report.results.iter().any(|row| row.metric == metric);
    let disturbed = data
        .report
        .results
        .iter()
        .any(|row| row.conditions.interfere > 0);
    let all = [
        (
            has(Metric::Pingpong),
            "latency and throughput by size: portolan bench pingpong --size 0,1,8,64,1k,4k,16k,64k,256k,1M",
        ),
        (has(Metric::Logp), "LogP: portolan bench logp"),
        (
            has(Metric::Bidir),
            "bidirectional bandwidth: portolan bench bidir",
        ),
        (
            has(Metric::Stream),
            "streams: portolan bench stream --placement all",
        ),
        (
            disturbed,
            "interference: portolan bench stream --path udp --placement speculative --interfere 1000,10",
        ),
    ];
    all.into_iter()
        .filter(|(held, _)| !held)
        .map(|(_, what)| what)
        .collect()
}

pub(crate) fn words<const N: usize>(rows: &[[&str; N]]) -> Vec<Vec<String>> {
    rows.iter()
        .map(|row| row.iter().map(|&word| word.into()).collect())
        .collect()
}

/// `Portolan over UDP`, `TCP`.
fn name((system, path): System) -> String {
    match system {
        "portolan" => format!("Portolan over {}", way(path)),
        _ => "TCP".into(),
    }
}

/// Today's rows by `figures`, TCP once.
fn now(figures: impl Fn(System) -> Option<Vec<String>>) -> Vec<Vec<String>> {
    let mut rows: Vec<Vec<String>> = Vec::new();
    for of in SYSTEMS {
        let Some(figures) = figures(of) else { continue };
        let name = name(of);
        if rows.iter().all(|row| row[0] != name) {
            rows.push([vec![name], figures].concat());
        }
    }
    rows
}

fn table(table: Table) -> Option<Table> {
    (!table.now.is_empty()).then_some(table)
}

/// The throughput of the longest stream, or of the longest ping-pong.
fn peak(data: &Data<'_>, of: System) -> Option<f64> {
    // TCP is measured once for all network paths.
    let same = |row: &&Row| {
        row.system == of.0 && (row.path == of.1 || of.0 == "tcp" && row.path != Path::Shm)
    };
    let rows = data.rows(Metric::Stream).filter(same);
    rows.map(|row| row.mbytes_per_s).reduce(f64::max)
}

fn latencies(data: &Data<'_>) -> Option<Table> {
    let shortest = |of: System| {
        let row = data.at_least(Metric::Pingpong, of, 0)?;
        let peak = peak(data, of).map_or_else(|| "–".into(), units::rate);
        let size = units::bytes(float(row.size.max(usize::from(of.0 == "tcp"))));
        Some(vec![size, units::time(row.p50_us), peak])
    };
    let now = now(shortest);
    let best = |of| data.at_least(Metric::Pingpong, of, 0).map(|row| row.p50_us);
    let ours = best(("portolan", Path::Packet)).or_else(|| best(("portolan", Path::Udp)));
    let caption = ours.map_or_else(String::new, |us| {
        format!(
            "GAMMA's best was 9.5 µs and its kernel's TCP 14 times that; today's best is {}.",
            units::time(us)
        )
    });
    table(Table {
        title: "Latency of the shortest message, and best throughput".into(),
        source: GAMMA_GIGABIT,
        head: vec!["system", "message", "latency", "throughput"],
        then: words(&[
            ["GAMMA, Packet Engines GNIC-II", "0 B", "9.5 µs", "97 MB/s"],
            ["MPI over GAMMA, GNIC-II", "0 B", "12.1 µs", "–"],
            ["TCP, GNIC-II, Linux 2.2", "1 B", "132 µs", "42 MB/s"],
            ["MPICH over TCP, GNIC-II", "0 B", "321 µs", "–"],
            ["GAMMA, Netgear GA620", "0 B", "32 µs", "103.5 MB/s"],
            ["TCP, GA620", "1 B", "65 µs", "87 MB/s"],
            ["BIP, Myrinet", "–", "4.3 µs", "126 MB/s"],
            ["FM, Myrinet", "–", "9 µs", "92 MB/s"],
            ["PM, Myrinet", "–", "7.5 µs", "113.5 MB/s"],
            ["GM, Myrinet", "–", "9–21 µs", "100 MB/s"],
        ]),
        now,
        caption,
    })
}

/// Latency, asymptotic bandwidth and half-power point by GAMMA's definitions.
fn definitions(data: &Data<'_>) -> Option<Table> {
    let of = |point: &HalfPower| {
        vec![
            units::time(point.latency_us),
            units::rate(point.asymptotic_mbytes_per_s),
            point
                .asymptotic_half_power_bytes
                .map_or_else(|| "–".into(), |bytes| units::bytes(bytes.round())),
        ]
    };
    let figures = |(system, path): System| {
        let same = |point: &&HalfPower| point.system == system && point.path == path;
        data.report.half_power.iter().find(same).map(of)
    };
    table(Table {
        title: "Latency, asymptotic bandwidth, half-power point".into(),
        source: GAMMA_PAGE,
        head: vec![
            "system",
            "latency D(S_min)",
            "bandwidth B",
            "T(S) = B / 2 at",
        ],
        then: words(&[
            ["GAMMA, Intel PRO/1000", "6.1 µs", "123.4 MB/s", "1820 B"],
            [
                "GAMMA, Broadcom NetXtreme",
                "14.6 µs",
                "119.4 MB/s",
                "3705 B",
            ],
        ]),
        now: now(figures),
        caption:
            "D is half the round trip, T(S) = S / D(S), B = (S − S_min) / (D(S) − D(S_min)) of \
                  the longest message. A large half-power point beside a small latency says that \
                  long messages got faster by more than short ones."
                .into(),
    })
}

fn logp(data: &Data<'_>) -> Option<Table> {
    let size = *data.sizes(Metric::Logp).first()?;
    let figures = |of: System| {
        let row: &Row = data.row(Metric::Logp, of, size)?;
        let logp = row.extra.logp?;
        let all = [row.p50_us, logp.g_us, logp.os_us, logp.or_us, logp.l_us];
        Some(all.map(units::time).to_vec())
    };
    table(Table {
        title: format!("LogP at {}", units::bytes(float(size))),
        source: MYRINET,
        head: vec!["system", "RTT / 2", "g", "o_s", "o_r", "L"],
        then: words(&[
            ["GM, 8 B", "14.76 µs", "18.23 µs", "0.86 µs", "1.93 µs", "11.91 µs"],
            ["GM+, 8 B", "12.78 µs", "8.55 µs", "2.02 µs", "1.29 µs", "9.47 µs"],
            ["BIP, 8 B", "6.65 µs", "5.65 µs", "5.04 µs", "0.48 µs", "1.13 µs"],
        ]),
        now: now(figures),
        caption: "Then the adapter carried a message and the processor was free; today, through the \
                  kernel of one machine, nearly all of the time is work of the two processors, and \
                  what is left for the wire is small or, where they work at once, negative. g is far \
                  below o_s where messages that are ready together share a frame."
            .into(),
    })
}

/// The two points that the VIA paper gives in its text.
fn two_sizes(data: &Data<'_>) -> Option<Table> {
    const LONG: usize = 31_487;
    let figures = |of: System| {
        let short = data.at_least(Metric::Pingpong, of, 1)?;
        let long = data.at_least(Metric::Pingpong, of, LONG)?;
        Some(vec![
            format!(
                "{} ({})",
                units::time(short.p50_us),
                units::bytes(float(short.size))
            ),
            format!(
                "{} ({})",
                units::rate(portolan_bench::throughput(long)),
                units::bytes(float(long.size))
            ),
        ])
    };
    table(Table {
        title: "A short and a long message".into(),
        source: VIA,
        head: vec!["system", "latency", "throughput"],
        then: words(&[
            ["TCP, Fast Ethernet", "57 µs (1 B)", "10.5 MB/s (31,487 B)"],
            [
                "M-VIA, Fast Ethernet",
                "40 µs (1 B)",
                "11.2 MB/s (31,487 B)",
            ],
            ["VIA, Giganet", "7.92 µs (1 B)", "98.28 MB/s (31,487 B)"],
            ["GM, Myrinet", "9.33 µs (1 B)", "108.44 MB/s (31,487 B)"],
        ]),
        now: now(figures),
        caption: "Throughput is the size over half the round trip.".into(),
    })
}

/// Streams by where their payload is received.
fn copies(data: &Data<'_>) -> Option<Table> {
    let streams = data.report.results.iter().filter(|row| {
        row.metric == Metric::Stream
            && (row.conditions.loss_ppm, row.conditions.interfere) == (0, 0)
            && row.conditions.describe().starts_with("placement ")
    });
    let size = streams.clone().map(|row| row.size).max()?;
    let mut now: Vec<Vec<String>> = streams
        .filter(|row| row.size == size && row.path != Path::Auto)
        .map(|row| {
            let name = format!(
                "{}, {}",
                name(("portolan", row.path)),
                row.conditions.describe()
            );
            vec![name, units::rate(row.mbytes_per_s)]
        })
        .collect();
    let tcp = data.tcp(Metric::Stream, false, size);
    now.extend(tcp.map(|row| vec!["TCP".to_owned(), units::rate(row.mbytes_per_s)]));
    table(Table {
        title: "Streams with and without a copy at the receiver".into(),
        source: SPECULATIVE,
        head: vec!["system", "throughput"],
        then: words(&[
            ["TCP, Gigabit Ethernet", "42 MB/s"],
            ["speculation alone", "45 MB/s"],
            ["speculation, pages remapped", "65 MB/s"],
            ["speculation, fbufs", "75 MB/s"],
        ]),
        now,
        caption: format!("Messages of {}.", units::bytes(float(size))),
    })
}

fn interference(data: &Data<'_>) -> Option<Table> {
    const MESSAGES: f64 = 1e5;
    let rows = data.report.results.iter().filter(|row| {
        row.metric == Metric::Stream && row.system == "portolan" && row.conditions.loss_ppm == 0
    });
    let disturbed = rows.clone().any(|row| row.conditions.interfere > 0);
    let now = rows.map(|row| {
        let foreign = match row.conditions.interfere {
            0 => 0.0,
            each => MESSAGES / f64::from(each),
        };
        let mut plain = row.conditions;
        plain.interfere = 0;
        let setting = plain.describe();
        let setting = if setting.is_empty() {
            "as it chooses".into()
        } else {
            setting
        };
        vec![
            format!("{}, {setting}", name(("portolan", row.path))),
            units::digits(foreign),
            units::rate(row.mbytes_per_s),
        ]
    });
    let now = if disturbed { now.collect() } else { Vec::new() };
    table(Table {
        title: "Packets from elsewhere among those of a stream".into(),
        source: INTERFERENCE,
        head: vec!["system", "of 100,000 from elsewhere", "throughput"],
        then: words(&[
            ["speculation", "0", "75 MB/s"],
            ["speculation", "100", "73 MB/s"],
            ["speculation", "10,000", "63 MB/s"],
        ]),
        now,
        caption:
            "A packet from elsewhere lands where one of the stream was expected, and the guess \
                  has failed."
                .into(),
    })
}
