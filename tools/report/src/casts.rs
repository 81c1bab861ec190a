// SPDX-License-Identifier: MIT OR Apache-2.0
//! Chart of `scripts/cast-figures.sh`: one source to many hosts, with Portolan and with common
//! tools. Table 4 of the paper on speculative defragmentation, above casts with a prediction.

use crate::chart::{Axis, Chart, Ink, Line, Lines, Unit};
use crate::figures::Figure;
use crate::papers::{Table, words};
use crate::units;
use serde_json::Value;
use std::collections::BTreeMap;

/// Returns the chart of `json`; `None` if that script did not write it.
///
/// Shape: `{"work": "…", "wire_mbytes_per_s": 125, "casts": [{"system": "…", "hosts": 4,
/// "mbytes_per_s": 108.2}, …]}`, with one cast per run.
pub(crate) fn of_casts(json: &Value) -> Option<Vec<Figure>> {
    let casts = json.get("casts")?.as_array()?;
    let mut runs: BTreeMap<&str, BTreeMap<u32, Vec<f64>>> = BTreeMap::new();
    for cast in casts {
        let hosts = u32::try_from(cast["hosts"].as_u64()?).ok()?;
        let of_system = runs.entry(cast["system"].as_str()?).or_default();
        let rates = of_system.entry(hosts).or_default();
        rates.push(cast["mbytes_per_s"].as_f64()?);
    }
    let mut lines: Vec<Line> = Vec::new();
    for (system, by_hosts) in runs {
        lines.push(line(system, by_hosts, lines.len()));
    }
    if lines.is_empty() {
        return Some(Vec::new());
    }
    let work = json["work"].as_str().unwrap_or("One source to many hosts");
    let caption = format!("{}.", most_hosts(&lines));
    let chart = Lines {
        title: work.into(),
        across: Axis::logarithmic("hosts", Unit::Count),
        upwards: Axis::linear("rate to each host", Unit::MegabytesPerSecond),
        lines,
        mark: json["wire_mbytes_per_s"]
            .as_f64()
            .map(|wire| (wire, "the wire".into())),
    };
    Some(vec![Figure {
        name: "cast",
        chart: Chart::Lines(chart),
        caption,
    }])
}

/// Returns the table of predicted and measured rates along a chain, for the most hosts; `None` if
/// `json` has no prediction.
pub(crate) fn chain(json: &Value) -> Option<Table> {
    let casts = json.get("casts")?.as_array()?;
    let mut last: BTreeMap<&str, (u64, String, String)> = BTreeMap::new();
    for cast in casts {
        let Some(predicted) = cast["predicted_mbytes_per_s"].as_f64() else {
            continue;
        };
        let (system, hosts) = (cast["system"].as_str()?, cast["hosts"].as_u64()?);
        let measured = cast["mbytes_per_s"].as_f64()?;
        let is_most = last.get(system).is_none_or(|known| known.0 <= hosts);
        if is_most {
            let rates = (hosts, units::rate(predicted), units::rate(measured));
            last.insert(system, rates);
        }
    }
    let row = |(system, (hosts, predicted, measured)): (&str, (u64, String, String))| {
        vec![format!("{system}, {hosts} hosts"), predicted, measured]
    };
    let now: Vec<Vec<String>> = last.into_iter().map(row).collect();
    (!now.is_empty()).then(|| Table {
        title: "A chain of hosts, with and without copies".into(),
        source: "Speculative defragmentation on Gigabit Ethernet, Table 4",
        head: vec!["system", "modelled", "measured"],
        then: words(&[
            ["Dolly, Fast Ethernet", "11.1 MB/s", "8.8 MB/s"],
            ["Dolly, Gigabit Ethernet", "11.1 MB/s", "9.0 MB/s"],
            ["Dolly, Gigabit without copies", "14.7 MB/s", "12.2 MB/s"],
        ]),
        now,
        caption: "“Copied” takes the payload of each datagram from a receive buffer, “placed” \
                  receives it where it belongs. On the paper's machines memory was the \
                  bottleneck of the chain, so each copy cost throughput."
            .into(),
    })
}

/// Returns the medians of a system's runs, by number of hosts.
fn line(system: &str, by_hosts: BTreeMap<u32, Vec<f64>>, index: usize) -> Line {
    let points = by_hosts.into_iter().map(|(hosts, mut rates)| {
        rates.sort_by(f64::total_cmp);
        let (low, high) = (rates[(rates.len() - 1) / 2], rates[rates.len() / 2]);
        (f64::from(hosts), (low + high) / 2.0)
    });
    Line {
        name: system.into(),
        short: system.into(),
        ink: Ink::System(index),
        dashed: false,
        points: points.collect(),
    }
}

/// Describes the rate of each system with the most hosts, the fastest first.
fn most_hosts(lines: &[Line]) -> String {
    let mut last: Vec<(&str, (f64, f64))> = lines
        .iter()
        .filter_map(|line| Some((line.name.as_str(), *line.points.last()?)))
        .collect();
    last.sort_by(|a, b| b.1.1.total_cmp(&a.1.1));
    let sentences = last
        .iter()
        .map(|(name, (hosts, rate))| format!("{name}: {} to {hosts} hosts", units::rate(*rate)));
    sentences.collect::<Vec<_>>().join(". ")
}
