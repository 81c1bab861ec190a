// SPDX-License-Identifier: MIT OR Apache-2.0
//! Smoke tests of the papers' interfaces in `portolan bench`. They assert that the work was done,
//! never a time.

use crate::common::{refused, run};
use serde_json::Value;

#[test]
fn each_interface_has_its_rows() {
    for size in ["64", "8192", "100000"] {
        let args = "bench pingpong logp stream bidir --loopback --path shm,udp --interface bip,gm,gm+,gamma,vipl --repeat 1 --json -";
        let mut args: Vec<&str> = args.split_whitespace().collect();
        args.extend(["--iterations", "400", "--size", size]);
        let ended = run(&args);
        assert_eq!(ended.status, 0, "{args:?}: {}", ended.err);
        let report: Value = serde_json::from_str(&ended.out).unwrap();
        for system in ["portolan", "bip", "gm", "gm+", "gamma", "vipl"] {
            for path in ["shm", "udp"] {
                for metric in ["half_rtt", "logp", "stream", "bidir"] {
                    let rows = report["results"].as_array().unwrap().iter();
                    let mut rows = rows.filter(|row| {
                        row["system"] == system && row["path"] == path && row["metric"] == metric
                    });
                    let row = rows.next().unwrap();
                    assert!(row["p50_us"].as_f64().unwrap() > 0.0, "{row}");
                    assert_eq!(row["logp"].is_object(), metric == "logp", "{row}");
                    assert!(rows.next().is_none(), "{report}");
                }
            }
        }
    }
}

#[test]
fn sizes_that_an_interface_cannot_send_have_no_row() {
    let args = "bench pingpong --loopback --path shm --interface bip --size 9 --repeat 1 --json -";
    let mut args: Vec<&str> = args.split_whitespace().collect();
    args.extend(["--iterations", "100"]);
    let ended = run(&args);
    assert_eq!(ended.status, 0, "{}", ended.err);
    let report: Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!(report["results"].as_array().unwrap().len(), 1, "{report}");
}

#[test]
fn interfaces_without_their_metrics_are_refused() {
    let why = refused(&["bench", "rate", "--path", "shm", "--interface", "gm"]);
    assert!(
        why.contains("--interface") && why.contains("stream or bidir"),
        "{why}"
    );
}
