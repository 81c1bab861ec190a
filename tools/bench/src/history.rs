// SPDX-License-Identifier: MIT OR Apache-2.0
//! Local history of medians: one line of JSON per run, to follow changes over months.

use crate::schema::Report;
use serde::Serialize;
use std::collections::BTreeMap;
use std::process::{Command, Stdio};

/// A line of the history.
#[derive(Debug, Serialize)]
struct Entry<'a> {
    /// Commit of the sources in the working directory, with `-dirty` if they have changed since.
    commit: String,
    date: &'a str,
    cpu: &'a str,
    kernel: &'a str,
    mtu: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    link: Option<&'a str>,
    /// Headline figures by metric, size, system, path and conditions.
    medians: BTreeMap<String, f64>,
}

/// Returns the line for `report`, without a line break.
///
/// # Errors
/// None are expected.
pub fn history_line(report: &Report) -> serde_json::Result<String> {
    let machine = &report.machine;
    let medians = report.results.iter().map(|row| {
        let words = [
            row.metric.to_string(),
            row.size.to_string(),
            row.system.clone(),
            row.path.to_string(),
            row.conditions.describe(),
        ];
        let name = words.join("/");
        (name.trim_end_matches('/').to_owned(), row.headline())
    });
    serde_json::to_string(&Entry {
        commit: commit(),
        date: &machine.date,
        cpu: &machine.cpu,
        kernel: &machine.kernel,
        mtu: machine.mtu,
        link: machine.link.as_deref(),
        medians: medians.collect(),
    })
}

/// Returns git's description of the sources here; empty without a repository or without git.
fn commit() -> String {
    let output = Command::new("git")
        .args(["describe", "--always", "--dirty", "--abbrev=12"])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output();
    output.map_or_else(
        |_| String::new(),
        |output| String::from_utf8_lossy(&output.stdout).trim().to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::tests::report;

    #[test]
    fn history_line_maps_names_to_medians() {
        let line = history_line(&report()).expect("serializes");
        assert!(!line.contains('\n'));
        let json: serde_json::Value = serde_json::from_str(&line).expect("JSON");
        assert_eq!(json["medians"]["pingpong/64/limit/packet"], 1.6);
        assert_eq!(json["cpu"], "a processor");
    }
}
