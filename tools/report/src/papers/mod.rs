// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tables of five papers on fast messages, as printed, above current figures.
//!
//! A table is shown if the run has figures for it. "Then" and "now" are both between two hosts,
//! except for rows labelled as shared memory.

mod curves;
mod gamma;
mod myrinet;
mod speculative;

pub(crate) use curves::curves;

use crate::data::Data;
use crate::moving;
use crate::systems::path_name;
use portolan_bench::{Metric, Path};

/// A table with the printed figures above the current ones.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Table {
    /// Title of the table.
    pub(crate) title: String,
    /// Source of the printed figures.
    pub(crate) source: &'static str,
    pub(crate) head: Vec<&'static str>,
    pub(crate) then: Vec<Vec<String>>,
    pub(crate) now: Vec<Vec<String>>,
    /// Caption of the table.
    pub(crate) caption: String,
}

type System = (&'static str, Path);

/// Portolan's paths and TCP, as rows of a table.
const SYSTEMS: [System; 5] = [
    ("portolan", Path::Packet),
    ("portolan", Path::Udp),
    ("portolan", Path::Shm),
    ("tcp", Path::Packet),
    ("tcp", Path::Udp),
];

/// Returns the tables for which `data` has figures.
pub(crate) fn tables(data: &Data<'_>) -> Vec<Table> {
    let all = [
        gamma::latencies(data),
        gamma::definitions(data),
        gamma::fragments(data),
        myrinet::logp(data),
        myrinet::wire(data),
        myrinet::two_sizes(data),
        speculative::copies(data),
        speculative::fallback(data),
        speculative::interference(data),
        speculative::success(data),
    ];
    all.into_iter().flatten().collect()
}

/// Returns hints on how to measure the tables that are missing in [`tables`].
pub(crate) fn missing(data: &Data<'_>) -> Vec<&'static str> {
    let has = |metric| data.report.results.iter().any(|row| row.metric == metric);
    let results = &data.report.results;
    let is_cut = results.iter().any(|row| row.conditions.frame_len_max > 0);
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
        (
            has(Metric::Logp),
            "LogP: portolan bench logp --interface bip,gm,gm+,gamma,vipl",
        ),
        (
            has(Metric::Bidir),
            "bidirectional bandwidth: portolan bench bidir",
        ),
        (
            has(Metric::Stream),
            "streams: portolan bench stream --path udp,shm --vs tcp --limits, and --placement all",
        ),
        (
            is_cut,
            "shorter frames: portolan bench pingpong stream --path udp --frame-len-max 512,1024 --vs tcp --size 64,1k,4k,64k,1M",
        ),
        (
            moving::is_measured(data.report),
            "two methods to move a message: portolan bench stream --path udp,shm --limits --size 64,256,1k,4k,16k,64k,1M",
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

/// Returns a name such as `Portolan over UDP` or `TCP`.
fn name((system, path): System) -> String {
    match system {
        "portolan" => format!("Portolan over {}", path_name(path)),
        _ => "TCP".into(),
    }
}

/// Returns the current rows with `figures`, with TCP once.
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
