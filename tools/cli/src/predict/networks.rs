// SPDX-License-Identifier: MIT OR Apache-2.0
//! Networks for predictions: measured by `portolan bench logp`, written by hand, or as published in
//! a paper.

use crate::bench::read_report;
use crate::error::user_error;
use anyhow::Result;
use portolan_bench::{Metric, Path as BenchPath, Report, Row};
use portolan_predict::{EAGER_MAX, Network, Point, Progress};
use std::fs;
use std::path::Path;

/// The networks between hosts in ascending order of cost, as far as the user gave it, and the
/// memory within a host.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Networks {
    pub(super) between: Vec<Network>,
    pub(super) within: Network,
}

/// Collects the networks of `--measured`, `--wire`, `--network` and `--paper`. If none is given,
/// uses the paper's networks.
pub(super) fn collect(args: &super::Args) -> Result<Networks> {
    let mut between = Vec::new();
    let mut within = None;
    if args.paper || (args.measured.is_empty() && args.networks.is_empty()) {
        between = portolan_predict::of_the_paper();
    }
    for file in &args.measured {
        let (measured, memory) = of_report(&read_report(file)?);
        if measured.is_empty() && memory.is_none() {
            user_error!(
                "{} has no LogP parameters: `portolan bench logp --json FILE` measures them",
                file.display()
            );
        }
        let wires = args.wires.iter().copied();
        let slowed = wires.flat_map(|wire| measured.iter().map(move |one| one.over_wire(wire)));
        between.extend(slowed);
        between.extend(measured.iter().cloned());
        within = within.or(memory);
    }
    for file in &args.networks {
        between.extend(read_networks(file)?);
    }
    for network in between.iter().chain(&within) {
        if let Err(error) = network.check() {
            user_error!("{error}");
        }
    }
    // Measurements within one host only: the user requests that network.
    if between.is_empty() {
        between.extend(within.clone());
    }
    let within = within.unwrap_or_else(assumed_memory);
    Ok(Networks { between, within })
}

/// Returns assumed values for shared memory that was not measured: 0.5 µs per message and 5 GB/s.
/// On servers of the last ten years, that is between Portolan and the transports of MPI
/// implementations.
fn assumed_memory() -> Network {
    let point = Point {
        bytes: 1,
        l_us: 0.3,
        os_us: 0.1,
        or_us: 0.1,
        g_us: 0.1,
    };
    Network {
        name: "shared memory".into(),
        source: "assumed; measure it with --measured and path shm".into(),
        points: vec![point],
        ns_per_byte: 0.2,
        eager_max: EAGER_MAX,
        progress: Progress::Calls,
    }
}

/// Reads networks that the user wrote: one, or a list.
fn read_networks(file: &Path) -> Result<Vec<Network>> {
    #[derive(serde::Deserialize)]
    #[serde(untagged)]
    enum OneOrMore {
        One(Network),
        More(Vec<Network>),
    }
    let shown = file.display();
    let text = match fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) => user_error!("{shown} cannot be read ({error}): name a file for --network"),
    };
    match serde_json::from_str(&text) {
        Ok(OneOrMore::One(network)) => Ok(vec![network]),
        Ok(OneOrMore::More(networks)) => Ok(networks),
        Err(_) => user_error!(
            "{shown} is neither a network nor a list of networks: write \
             {{\"name\":\"…\",\"source\":\"…\",\"points\":[{{\"bytes\":8,\"l_us\":1.0,\"os_us\":0.5,\
             \"or_us\":0.5,\"g_us\":1.0}}],\"ns_per_byte\":0.8,\"eager_max\":65536}}"
        ),
    }
}

/// Returns the networks between hosts in a result of `bench logp`, and the memory within a host.
fn of_report(report: &Report) -> (Vec<Network>, Option<Network>) {
    let mut between: Vec<Network> = Vec::new();
    let mut within = None;
    for row in &report.results {
        // A limit row measures bare sockets, which no MPI program uses.
        if row.metric != Metric::Logp || row.extra.logp.is_none() || row.system.starts_with("limit")
        {
            continue;
        }
        let is_within = row.path == BenchPath::Shm;
        if is_within {
            if row.system == "portolan" && within.is_none() {
                within = Some(of_rows(report, row));
            }
            continue;
        }
        let name = name_of(row);
        if between.iter().all(|known| known.name != name) {
            between.push(of_rows(report, row));
        }
    }
    (between, within)
}

/// Returns the name of a row's network. TCP rows next to different paths have the same name.
fn name_of(row: &Row) -> String {
    match (row.system.as_str(), row.path) {
        ("portolan", path) => format!("portolan, {path}"),
        (system, _) => system.to_owned(),
    }
}

/// Builds the network of `first` from all rows of its system and path.
///
/// L is half the round trip minus the work of both ends, as in the evaluation of GM and BIP. There
/// both ends wait for each other, as in a replay. The separately measured L is not used: for long
/// messages it includes the time that a computing sender delays the message, which a replay adds
/// itself.
fn of_rows(report: &Report, first: &Row) -> Network {
    let same = |row: &&Row| {
        row.metric == Metric::Logp && (&row.system, row.path) == (&first.system, first.path)
    };
    let point = |row: &Row| {
        let logp = row.extra.logp?;
        Some(Point {
            bytes: row.size as u64,
            l_us: row.p50_us - logp.os_us - logp.or_us,
            os_us: logp.os_us,
            or_us: logp.or_us,
            g_us: logp.g_us,
        })
    };
    let mut points: Vec<Point> = report
        .results
        .iter()
        .filter(same)
        .filter_map(point)
        .collect();
    points.sort_by_key(|point| point.bytes);
    points.dedup_by_key(|point| point.bytes);
    let gap = report.long_gaps.iter();
    let gap = gap.filter(|gap| (&gap.system, gap.path) == (&first.system, first.path));
    Network {
        name: name_of(first),
        source: format!("portolan bench logp on {}", report.machine.cpu),
        ns_per_byte: gap
            .map(|gap| gap.ns_per_byte)
            .next()
            .unwrap_or_else(|| slope(&points)),
        points,
        eager_max: EAGER_MAX,
        progress: Progress::Calls,
    }
}

/// Returns the nanoseconds per byte between the shortest and the longest measured message.
fn slope(points: &[Point]) -> f64 {
    let [first, .., last] = points else {
        return 0.0;
    };
    let bytes = (last.bytes - first.bytes) as f64;
    ((last.g_us - first.g_us) * 1e3 / bytes).max(0.0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;
    use serde_json::{Value, json};

    /// Creates a row with the rest of half the round trip as L; the separately measured L differs.
    fn row(system: &str, path: &str, size: usize, l_us: f64) -> Value {
        json!({
            "system": system, "path": path, "metric": "logp", "size": size, "iterations": 1,
            "p50_us": l_us + 0.75, "p99_us": 1.0, "mean_us": 1.0, "mbytes_per_s": 1.0, "msgs_per_s": 1.0,
            "logp": {"l_us": 300.0, "os_us": 0.5, "or_us": 0.25, "g_us": 1.0 + size as f64 / 1e3},
        })
    }

    fn report(results: Vec<Value>) -> Report {
        serde_json::from_value(json!({
            "schema": 1,
            "machine": {
                "kernel": "6.1", "cpu": "a processor", "cores": 2, "pinned": null,
                "hypervisor": "none", "date": "2026-01-02T03:04:05Z", "portolan": "0.1.0",
                "mtu": 1500, "site": "lab", "rounds": 1, "clock": "a clock",
            },
            "results": results,
            "long_gaps": [{"system": "portolan", "path": "udp", "ns_per_byte": 0.5}],
        }))
        .unwrap()
    }

    #[test]
    fn each_system_and_path_is_a_network() {
        let report = report(vec![
            row("portolan", "udp", 1024, 4.0),
            row("portolan", "udp", 8, 3.0),
            row("limit", "udp", 8, 1.0),
            row("tcp", "udp", 8, 5.0),
            row("tcp", "packet", 8, 5.5),
            row("portolan", "packet", 8, 2.0),
            row("tcp", "shm", 8, 4.0),
            row("portolan", "shm", 8, 0.1),
        ]);
        let (between, within) = of_report(&report);
        let names: Vec<&str> = between
            .iter()
            .map(|network| network.name.as_str())
            .collect();
        assert_eq!(names, ["portolan, udp", "tcp", "portolan, packet"]);
        let lengths: Vec<u64> = between[0].points.iter().map(|point| point.bytes).collect();
        assert_eq!(lengths, [8, 1024]);
        assert_eq!(between[0].ns_per_byte, 0.5);
        assert_eq!(between[1].points[0].l_us, 5.0);
        assert!((within.unwrap().points[0].l_us - 0.1).abs() < 1e-9);
    }

    #[test]
    fn slope_falls_back_to_measured_gaps() {
        let report = report(vec![
            row("tcp", "udp", 8, 5.0),
            row("tcp", "udp", 1008, 5.0),
        ]);
        let (between, _) = of_report(&report);
        assert!((between[0].ns_per_byte - 1.0).abs() < 1e-9, "{between:?}");
    }

    #[test]
    fn network_file_holds_one_or_a_list() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("network.json");
        let network = assumed_memory();
        fs::write(&file, serde_json::to_string(&network).unwrap()).unwrap();
        assert_eq!(
            read_networks(&file).unwrap(),
            std::slice::from_ref(&network)
        );
        fs::write(&file, serde_json::to_string(&[&network, &network]).unwrap()).unwrap();
        assert_eq!(read_networks(&file).unwrap().len(), 2);
        fs::write(&file, "{}").unwrap();
        let error = read_networks(&file).unwrap_err().to_string();
        assert!(error.contains("network.json is neither"), "{error}");
        assert!(read_networks(&directory.path().join("none")).is_err());
    }
}
