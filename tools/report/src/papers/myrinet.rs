// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tables of GM, GM+ and BIP on Myrinet, and of VIA on three networks.

use super::{System, Table, now, table, words};
use crate::answers::float;
use crate::data::Data;
use crate::interfaces;
use crate::systems::path_name;
use crate::units;
use portolan_bench::{Metric, Path, Row};

const MYRINET: &str = "GM, GM+ and BIP on Myrinet, Table 1";
const WIRE: &str = "GM, GM+ and BIP on Myrinet, Figure 1";
const VIA: &str = "Fast Ethernet, VIA and Myrinet under the NAS benchmarks, Figure 1";

/// Returns the table of LogP parameters: of Portolan's ports, TCP, the bare links, and the papers'
/// interfaces.
pub(super) fn logp(data: &Data<'_>) -> Option<Table> {
    let size = *data.sizes(Metric::Logp).first()?;
    let mut now: Vec<Vec<String>> = Vec::new();
    for row in data.rows(Metric::Logp).filter(|row| row.size == size) {
        let Some(logp) = row.extra.logp else { continue };
        let name = system_name(row);
        if now.iter().all(|row| row[0] != name) {
            let all = [row.p50_us, logp.g_us, logp.os_us, logp.or_us, logp.l_us];
            now.push([vec![name], all.map(units::time).to_vec()].concat());
        }
    }
    table(Table {
        title: format!("LogP at {}", units::bytes(float(size))),
        source: MYRINET,
        head: vec!["system", "RTT / 2", "g", "o_s", "o_r", "L"],
        then: words(&[
            ["GM, 8 B", "14.76 µs", "18.23 µs", "0.86 µs", "1.93 µs", "11.91 µs"],
            ["GM+, 8 B", "12.78 µs", "8.55 µs", "2.02 µs", "1.29 µs", "9.47 µs"],
            ["BIP, 8 B", "6.65 µs", "5.65 µs", "5.04 µs", "0.48 µs", "1.13 µs"],
        ]),
        now,
        caption: "Then the adapter carried a message and the processor was free; today, through the \
                  kernel of one machine, nearly all of the time is work of the two processors, and \
                  what is left for the wire is small or, where they work at once, negative. g is far \
                  below o_s where messages that are ready together share a frame."
            .into(),
    })
}

/// Returns a name such as `GM over shared memory`. TCP has one for all network paths.
fn system_name(row: &Row) -> String {
    let over = |system: &str| format!("{system} over {}", path_name(row.path));
    match (interfaces::name(row), row.system.as_str()) {
        (Some(interface), _) => over(interface),
        (None, "portolan") => over("Portolan"),
        (None, "tcp") if row.path == Path::Shm => "TCP within a host".into(),
        (None, "tcp") => "TCP".into(),
        (None, other) => format!("{other} of {}", path_name(row.path)),
    }
}

/// Returns the table of the two points that the text of the VIA paper gives.
pub(super) fn two_sizes(data: &Data<'_>) -> Option<Table> {
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

/// Returns the table of stream throughput relative to the bare link or memory.
pub(super) fn wire(data: &Data<'_>) -> Option<Table> {
    const PERCENT: f64 = 100.0;
    let size = *data.sizes(Metric::Stream).last()?;
    let figures = |(system, path): System| {
        let row = match system {
            "tcp" => data.tcp(Metric::Stream, false, size)?,
            _ => data.row(Metric::Stream, (system, path), size)?,
        };
        let limit = data.row(Metric::Stream, ("limit", row.path), size)?;
        let share = row.mbytes_per_s / limit.mbytes_per_s * PERCENT;
        Some(vec![
            units::rate(row.mbytes_per_s),
            units::rate(limit.mbytes_per_s),
            format!("{share:.0} %"),
        ])
    };
    table(Table {
        title: "Stream throughput relative to the link".into(),
        source: WIRE,
        head: vec!["system", "stream", "limit", "share"],
        then: words(&[["TCP, Gigabit Ethernet", "–", "1 Gb/s", "about 60 %"]]),
        now: now(figures),
        caption: format!(
            "Messages of {}. The limit is the same work on the bare socket or memory, without a protocol; \
             kernel TCP has segments there that are larger than any datagram, so it may pass the limit of \
             UDP.",
            units::bytes(float(size))
        ),
    })
}
