// SPDX-License-Identifier: MIT OR Apache-2.0
//! Smoke tests of the measurements of bulk data, started as a user would, and of plots of their
//! JSON. They assert that the work was done, never a time.

use crate::common::{alone, can_make_labs, refused, run};
use serde_json::Value;
use std::fs;

/// Runs `portolan bench` with a short duration, and returns the JSON.
fn bench(args: &str) -> Value {
    let _alone = alone();
    let args: Vec<&str> = ["bench", "--repeat", "1", "--json", "-"]
        .into_iter()
        .chain(args.split_whitespace())
        .collect();
    let ended = run(&args);
    assert_eq!(ended.status, 0, "{args:?}: {}", ended.err);
    serde_json::from_str(&ended.out).unwrap()
}

fn rows<'a>(report: &'a Value, system: &str) -> Vec<&'a Value> {
    let rows = report["results"].as_array().unwrap().iter();
    rows.filter(|row| row["system"] == system).collect()
}

#[test]
fn streams_account_for_processor_time_under_each_placement() {
    let report = bench(
        "stream --path udp --loopback --size 64k --iterations 2000 --placement all --vs tcp --limits",
    );
    let of_portolan = rows(&report, "portolan");
    let placements: Vec<_> = of_portolan
        .iter()
        .map(|row| row["placement"].as_str().unwrap())
        .collect();
    assert_eq!(placements, ["bounce", "speculative", "auto"]);
    for system in ["portolan", "limit", "tcp"] {
        for row in rows(&report, system) {
            assert!(row["mbytes_per_s"].as_f64().unwrap() > 0.0, "{row}");
            for end in ["sender_s_per_gb", "receiver_s_per_gb"] {
                assert!(row["cpu"][end].as_f64().unwrap() > 0.0, "{row}");
            }
        }
    }
}

#[test]
fn a_ping_pong_beside_a_stream_is_measured_idle_and_loaded() {
    let report = bench("loaded --path udp --loopback --iterations 400 --vs tcp");
    for system in ["portolan", "tcp"] {
        let [row] = rows(&report, system)[..] else {
            panic!("{report}")
        };
        assert_eq!(
            (&row["metric"], &row["size"]),
            (&"loaded".into(), &64.into())
        );
        assert!(row["idle"]["p99_us"].as_f64().unwrap() > 0.0, "{row}");
        assert!(row["p99_us"].as_f64().unwrap() > 0.0, "{row}");
    }
}

#[test]
fn an_incast_names_when_each_sender_finished() {
    let report = bench(
        "incast --path udp --loopback --senders 3 --size 256k --iterations 60 --schedule fair",
    );
    let [row] = rows(&report, "portolan")[..] else {
        panic!("{report}")
    };
    assert_eq!(row["finish_us"].as_array().unwrap().len(), 3);
    assert!(row["relative"].as_f64().unwrap() > 0.0);
    assert!(
        row["counters"]["receiver: lost to full socket buffers"].is_u64(),
        "{row}"
    );
}

#[test]
fn interference_is_counted_at_the_receiver() {
    let report = bench("stream --path udp --loopback --size 256k --seconds 0.5 --interfere 100");
    let [quiet, disturbed] = rows(&report, "portolan")[..] else {
        panic!("{report}")
    };
    assert!(quiet["relative"].is_null());
    assert!(disturbed["relative"].as_f64().unwrap() > 0.0);
    assert!(
        disturbed["counters"]["receiver: foreign messages"]
            .as_u64()
            .unwrap()
            > 0
    );
}

#[test]
fn loss_hits_portolan_and_tcp_in_a_lab() {
    if !can_make_labs() {
        return;
    }
    let report = bench("stream --path udp --size 64k --seconds 0.3 --loss 5 --vs tcp");
    let [_, lossy] = rows(&report, "portolan")[..] else {
        panic!("{report}")
    };
    assert!(
        lossy["counters"]["sender: retransmits"].as_u64().unwrap() > 0,
        "{lossy}"
    );
    match rows(&report, "tcp")[..] {
        [_, lossy] => assert!(lossy["relative"].as_f64().unwrap() > 0.0),
        _ => eprintln!("SKIPPED: no random loss for TCP here: {}", report["notes"]),
    }
}

#[test]
fn half_power_points_are_plotted_from_the_json() {
    let report = bench("pingpong --path udp --loopback --size 64,1k,4k,16k --iterations 200");
    assert!(
        report["half_power"][0]["half_power_bytes"]
            .as_f64()
            .unwrap()
            > 0.0
    );
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("run.json");
    fs::write(&file, report.to_string()).unwrap();
    let out = dir.path().join("plots");
    let args = [
        "plot",
        file.to_str().unwrap(),
        "--out",
        out.to_str().unwrap(),
    ];
    let draw = || {
        let ended = run(&args);
        assert_eq!(ended.status, 0, "{}", ended.err);
        fs::read_to_string(out.join("run-end-to-end.svg")).unwrap()
    };
    let first = draw();
    assert!(first.starts_with("<svg") && first.trim_end().ends_with("</svg>"));
    assert_eq!(first, draw(), "the same JSON gives the same bytes");
}

#[test]
fn mistakes_are_refused_in_one_sentence() {
    assert!(refused(&["bench", "rate", "--loss", "1"]).contains("--loss has no effect"));
    assert!(refused(&["bench", "pingpong", "--placement", "auto"]).contains("no effect"));
    assert!(refused(&["plot", "/nonexistent.json", "--out", "/tmp"]).contains("cannot be read"));
}
