// SPDX-License-Identifier: MIT OR Apache-2.0
//! Results as text.

use crate::args::Metric;
use crate::half_power::HalfPower;
use crate::logp_table;
use crate::mpi::OVER_PORTOLAN;
use crate::place::SiteKind;
use crate::portolan_account::FULL_BUFFERS;
use crate::schema::{Machine, Report, Row};
use std::fmt::Write;

/// Returns the whole report as text.
pub fn render(report: &Report) -> String {
    let mut text = heading(&report.machine);
    let mut rest = &report.results[..];
    while let Some(first) = rest.first() {
        let len = rest
            .iter()
            .take_while(|row| row.metric == first.metric)
            .count();
        let (table, others) = rest.split_at(len);
        text.push_str(&section(first.metric, table));
        rest = others;
    }
    if !report.long_gaps.is_empty() {
        text.push_str(&logp_table::gaps(&report.long_gaps));
    }
    if !report.half_power.is_empty() {
        text.push_str(&half_power_section(&report.half_power));
    }
    let noise = |row: &Row| {
        let mut versus = row.extra.versus.values();
        versus.any(|versus| versus.distinguishable == Some(false))
    };
    if report.results.iter().any(noise) {
        text.push_str(
            "~: not distinguishable, the interquartile ranges of the two systems' rounds overlap\n",
        );
    }
    if let Some(steal) = report
        .machine
        .environment
        .steal_percent
        .filter(|steal| *steal >= 1.0)
    {
        let _ = writeln!(
            text,
            "note: the hypervisor gave {steal:.0} % of the processor time to other guests"
        );
    }
    for note in &report.notes {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "note: {note}");
    }
    text
}

fn heading(machine: &Machine) -> String {
    let site = match (machine.site, &machine.server) {
        (SiteKind::Lab, _) => match &machine.link {
            Some(link) => format!("two hosts of a temporary lab, wires {link}"),
            None => "two hosts of a temporary lab".into(),
        },
        (SiteKind::Loopback, _) => "this host's loopback interface (no lab)".into(),
        (SiteKind::Hosts, Some(server)) => format!(
            "this host and {} at {} ({}, {} cores, hypervisor: {}, Linux {})",
            server.name, server.address, server.cpu, server.cores, server.hypervisor, server.kernel
        ),
        (SiteKind::Hosts, None) => "two hosts".into(),
    };
    let pinned = match machine.pinned {
        Some([driver, answerer]) => format!("ends pinned to cores {driver} and {answerer}"),
        None => "ends share one core".into(),
    };
    format!(
        "{}, {} cores, hypervisor: {}, Linux {}\n\
         network paths: {site}, MTU {}, socket buffers of up to {} bytes; {pinned}; medians of {} \
         rounds\n",
        machine.cpu,
        machine.cores,
        machine.hypervisor,
        machine.kernel,
        machine.mtu,
        machine.socket_buffer_len,
        machine.rounds
    )
}

fn section(metric: Metric, rows: &[Row]) -> String {
    let title = match metric {
        Metric::Pingpong => "pingpong: half round trip",
        Metric::Stream => "stream: one direction",
        Metric::Rate => "rate: messages in one direction",
        Metric::Loaded => "loaded: half round trip beside a stream",
        Metric::Incast => "incast: several senders, one receiver",
        Metric::Bidir => "bidir: both directions at once, sum",
        Metric::Logp => "logp: half round trip",
    };
    let mut text = format!("\n{title}\n");
    if metric == Metric::Logp {
        text.push_str(&logp_table::section(rows));
        return text;
    }
    let with_cpu = rows.iter().any(|row| row.extra.cpu.is_some());
    let cpu_title = if with_cpu {
        "   send s/GB   recv s/GB"
    } else {
        ""
    };
    let _ = writeln!(
        text,
        "{:10} {:16} {:>8} {:>10} {:>10} {:>10} {:>10} {:>8} {:>7}{cpu_title}  how",
        "path", "system", "size", "p50 us", "p99 us", "MB/s", "Mmsg/s", "x limit", "x tcp"
    );
    for row in rows {
        let cpu = if with_cpu {
            cpu_cells(row)
        } else {
            String::new()
        };
        let _ = writeln!(
            text,
            "{:10} {:16} {:>8} {:>10} {:>10} {:>10.1} {:>10.3} {:>8} {:>7}{cpu}  {}",
            row.path,
            row.system,
            size(row.size),
            time(row.p50_us),
            time(row.p99_us),
            row.mbytes_per_s,
            row.msgs_per_s / 1e6,
            ratio(row, "limit"),
            ratio(row, "tcp"),
            remarks(row)
        );
        for line in row.extra.costs.lines() {
            let _ = writeln!(text, "        {line}");
        }
    }
    text
}

/// Formats microseconds. Rows that only count arrivals have none.
fn time(us: f64) -> String {
    if us > 0.0 {
        format!("{us:.3}")
    } else {
        "-".into()
    }
}

/// Returns the variant of the work, and figures that only such rows have.
fn remarks(row: &Row) -> String {
    let extra = &row.extra;
    let mut words = vec![row.variant.clone()];
    if let Some(own) = row.system.strip_suffix(OVER_PORTOLAN) {
        words.push(format!("{} x {own}", ratio(row, own)));
    }
    if row.size == 0 && row.system != "portolan" {
        words.push("1 byte, the minimum".into());
    }
    if let Some(idle) = &extra.idle {
        words.push(format!(
            "idle p50 {:.3} p99 {:.3}",
            idle.p50_us, idle.p99_us
        ));
    }
    if let Some(bulk) = extra.bulk_mbytes_per_s {
        words.push(format!("stream {bulk:.1} MB/s"));
    }
    if let Some(relative) = extra.relative {
        let base = if row.metric == Metric::Incast {
            "a single sender"
        } else {
            "undisturbed"
        };
        words.push(format!("{relative:.2} x {base}"));
    }
    let finish = extra.finish_us.iter().copied();
    let (first, last) = (
        finish.clone().fold(f64::INFINITY, f64::min),
        finish.fold(0.0, f64::max),
    );
    if !extra.finish_us.is_empty() {
        words.push(format!(
            "senders finish after {:.1} to {:.1} ms",
            first / 1e3,
            last / 1e3
        ));
    }
    let lost = format!("receiver: {FULL_BUFFERS}");
    if let (Metric::Incast, Some(lost)) = (row.metric, extra.counters.get(&lost)) {
        words.push(format!("{lost} {FULL_BUFFERS}"));
    }
    words.retain(|words| !words.is_empty());
    words.join("; ")
}

/// Returns the table of half-power points.
fn half_power_section(points: &[HalfPower]) -> String {
    let mut text = String::from("\nhalf-power points (size / half round trip)\n");
    let _ = writeln!(
        text,
        "{:10} {:16} {:>12} {:>10} {:>10} {:>10} {:>10} {:>10}",
        "path", "system", "bytes", "best MB/s", "at", "D(min) us", "B MB/s", "T = B/2 at"
    );
    for point in points {
        let _ = writeln!(
            text,
            "{:10} {:16} {:>12.0} {:>10.1} {:>10} {:>10.3} {:>10.1} {:>10}",
            point.path,
            point.system,
            point.half_power_bytes,
            point.peak_mbytes_per_s,
            size(point.peak_size),
            point.latency_us,
            point.asymptotic_mbytes_per_s,
            point
                .asymptotic_half_power_bytes
                .map_or_else(|| "-".into(), |bytes| format!("{bytes:.0}"))
        );
    }
    text
}

/// Formats processor seconds per 10^9 bytes at both ends.
fn cpu_cells(row: &Row) -> String {
    match &row.extra.cpu {
        Some(cpu) => format!(
            "{:>12.3}{:>12.3}",
            cpu.sender_s_per_gb, cpu.receiver_s_per_gb
        ),
        None => format!("{:>12}{:>12}", "-", "-"),
    }
}

/// Returns the row's headline figure divided by that of `system` on the same path and size. A `~`
/// marks ratios of rows that are not distinguishable.
fn ratio(row: &Row, system: &str) -> String {
    match row.extra.versus.get(system) {
        Some(versus) if versus.distinguishable == Some(false) => format!("~{:.2}", versus.ratio),
        Some(versus) => format!("{:.2}", versus.ratio),
        None => "-".into(),
    }
}

pub(crate) fn size(bytes: usize) -> String {
    match bytes {
        0 => "0".into(),
        _ if bytes.is_multiple_of(1 << 20) => format!("{}M", bytes >> 20),
        _ if bytes.is_multiple_of(1 << 10) => format!("{}k", bytes >> 10),
        _ => bytes.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::tests::report;

    #[test]
    fn ratios_compare_rows_of_one_path_and_size() {
        let mut report = report();
        let limit = report.results[0].clone();
        let portolan = Row {
            system: "portolan".into(),
            p50_us: 2.0,
            ..limit.clone()
        };
        let tcp = Row {
            system: "tcp".into(),
            p50_us: 4.0,
            ..limit.clone()
        };
        let other_size = Row {
            size: 65,
            p50_us: 100.0,
            ..limit
        };
        report.results.extend([portolan, tcp, other_size]);
        report.results = crate::relative::related(report.results);
        let text = render(&report);
        let line = text
            .lines()
            .find(|line| line.contains("portolan"))
            .expect("a row");
        assert!(line.contains("1.25") && line.contains("0.50"), "{text}");
        assert!(
            text.contains("temporary lab") && text.contains("note: one"),
            "{text}"
        );
    }

    #[test]
    fn sizes_are_formatted_as_they_are_parsed() {
        assert_eq!(
            [size(8), size(1024), size(3 << 20), size(1500)],
            ["8", "1k", "3M", "1500"]
        );
    }
}
