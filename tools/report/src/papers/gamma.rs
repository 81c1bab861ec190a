// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tables of GAMMA on Gigabit Ethernet: latencies, throughput, half-power points, and
//! fragmentation.

use super::{System, Table, now, table, words};
use crate::answers::float;
use crate::data::Data;
use crate::mpi;
use crate::units;
use portolan_bench::{HalfPower, Metric, Path, Row};

const GIGABIT: &str =
    "GAMMA on the GNIC-II and the GA620, Gigabit Ethernet; Tables 1 to 3, Figures 1 to 4";
const FRAGMENTS: &str = "GAMMA on the GNIC-II, Table 4";
const PAGE: &str = "The GAMMA project's page, figures for Gigabit Ethernet adapters";

/// Returns the highest throughput of a stream.
fn peak(data: &Data<'_>, of: System) -> Option<f64> {
    // TCP is measured once for all network paths.
    let same = |row: &&Row| {
        row.system == of.0 && (row.path == of.1 || of.0 == "tcp" && row.path != Path::Shm)
    };
    let rows = data.rows(Metric::Stream).filter(same);
    rows.map(|row| row.mbytes_per_s).reduce(f64::max)
}

pub(super) fn latencies(data: &Data<'_>) -> Option<Table> {
    let shortest = |of: System| {
        let row = data.at_least(Metric::Pingpong, of, 0)?;
        let peak = peak(data, of).map_or_else(|| "–".into(), units::rate);
        let size = units::bytes(float(row.size.max(usize::from(of.0 == "tcp"))));
        Some(vec![size, units::time(row.p50_us), peak])
    };
    let mut now = now(shortest);
    now.extend(mpi_latencies(data));
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
        source: GIGABIT,
        head: vec!["system", "message", "latency", "throughput"],
        then: words(&[
            ["GAMMA, Packet Engines GNIC-II", "0 B", "9.5 µs", "97 MB/s"],
            ["MPI over GAMMA, GNIC-II", "0 B", "12.1 µs", "–"],
            ["TCP, GNIC-II, Linux 2.2", "1 B", "132 µs", "42 MB/s"],
            ["MPICH over TCP, GNIC-II", "0 B", "321 µs", "–"],
            ["GAMMA, Netgear GA620", "0 B", "32 µs", "103.5 MB/s"],
            ["MPI over GAMMA, GA620", "0 B", "35 µs", "–"],
            ["TCP, GA620", "1 B", "65 µs", "87 MB/s"],
            ["MPICH over TCP, GA620", "0 B", "112 µs", "–"],
            ["GAMMA, GNIC-II, with a switch", "0 B", "13.1 µs", "–"],
            ["BIP, Myrinet", "–", "4.3 µs", "126 MB/s"],
            ["FM, Myrinet", "–", "9 µs", "92 MB/s"],
            ["PM, Myrinet", "–", "7.5 µs", "113.5 MB/s"],
            ["GM, Myrinet", "–", "9–21 µs", "100 MB/s"],
        ]),
        now,
        caption,
    })
}

/// Returns the rows of MPI programs over Portolan and over their own transport, between hosts. Each
/// own transport has one row.
fn mpi_latencies(data: &Data<'_>) -> Vec<Vec<String>> {
    let between = data
        .rows(Metric::Pingpong)
        .filter(|row| mpi::is_mpi(row) && matches!(row.path, Path::Packet | Path::Udp));
    let between: Vec<&Row> = between.collect();
    let least = between.iter().map(|row| row.size).min();
    let mut rows: Vec<Vec<String>> = Vec::new();
    for row in between.into_iter().filter(|row| Some(row.size) == least) {
        let name = mpi::label(row);
        if rows.iter().all(|known| known[0] != name) {
            let size = units::bytes(float(row.size));
            rows.push(vec![name, size, units::time(row.p50_us), "–".into()]);
        }
    }
    rows
}

/// Returns the table of frames per message. GAMMA cut short messages on purpose.
#[allow(clippy::cast_precision_loss, reason = "counts of frames")]
pub(super) fn fragments(data: &Data<'_>) -> Option<Table> {
    let of = |row: &&Row| {
        let count = |what: &str| {
            let counted = row.extra.counters.get(&format!("sender: {what}"));
            counted.map_or(0.0, |count| *count as f64)
        };
        let messages = count("messages sent");
        let pieces = (count("transmits") - count("retransmits")) / messages;
        (messages > 0.0).then(|| {
            let name = super::name(("portolan", row.path));
            vec![
                format!("{name}, {}", units::bytes(float(row.size))),
                units::bytes((float(row.size) / pieces.max(1.0)).round()),
                format!("{pieces:.1}"),
            ]
        })
    };
    /// Shorter messages share a frame with other data.
    const SHORTEST: usize = 64;
    let mut rows: Vec<&Row> = data.rows(Metric::Pingpong).collect();
    rows.retain(|row| {
        row.system == "portolan"
            && matches!(row.path, Path::Packet | Path::Udp)
            && row.size >= SHORTEST
    });
    rows.sort_by_key(|row| (row.path != Path::Packet, row.size));
    rows.dedup_by_key(|row| (row.path != Path::Packet, row.size));
    table(Table {
        title: "Fragmentation of messages".into(),
        source: FRAGMENTS,
        head: vec!["message", "bytes per fragment", "fragments per message"],
        then: words(&[
            ["up to 512 B", "128 B", "1–4"],
            ["513 to 1664 B", "256 B", "3–7"],
            ["1665 to 5148 B", "384 B", "5–14"],
            ["5149 to 11,000 B", "768 B", "7–15"],
            ["11,001 to 12,000 B", "896 B", "13–14"],
            ["more", "1408 B", "9 and more"],
        ]),
        now: rows.iter().filter_map(of).collect(),
        caption: "GAMMA cut short messages into several frames, so that adapter, bus and wire worked at \
                  once: 64 % more end-to-end throughput at 1388 B, and less in streams (its Figures 5 and \
                  6; charts of shorter frames show it today). Now a piece is what the kernel is given at once, which cuts it into datagrams as long \
                  as the MTU allows. Counted at the sender of a ping-pong, without what was sent again; \
                  acknowledgements that found no message to go with are among the pieces."
            .into(),
    })
}

/// Returns the table of latency, asymptotic bandwidth and half-power point, as defined by GAMMA.
pub(super) fn definitions(data: &Data<'_>) -> Option<Table> {
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
        source: PAGE,
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
                  the longest message. A large half-power point beside a small latency means that \
                  long messages got faster by more than short ones."
                .into(),
    })
}
