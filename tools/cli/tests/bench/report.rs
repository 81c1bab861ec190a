// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of uses of results: they are resumed, compared, kept, and reported on a page. No test here
//! asserts a time.

use crate::common::{self, KillOnDrop, alone, portolan, refused, run, wait_until};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};

/// Returns a result of one row with the given rounds.
fn result(per_round: &[f64]) -> Value {
    json!({"schema": 1, "machine": {
        "kernel": "6.18", "cpu": "one", "cores": 2, "pinned": [0, 1], "hypervisor": "none",
        "date": "2026-01-02T03:04:05Z", "portolan": "0.1.0", "mtu": 1500, "site": "lab",
        "rounds": 3, "clock": "a clock"
    }, "results": [{
        "system": "portolan", "path": "udp", "metric": "half_rtt", "size": 64, "iterations": 9,
        "p50_us": per_round[1], "p99_us": 9.0, "mean_us": 5.0, "mbytes_per_s": 1.0,
        "msgs_per_s": 1000.0, "per_round": per_round
    }]})
}

fn write(directory: &Path, name: &str, content: &str) -> PathBuf {
    let path = directory.join(name);
    fs::write(&path, content).unwrap();
    path
}

#[test]
fn both_directions_and_logp_are_measured_with_tails_and_logs() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let logs = dir.path().join("logs");
    let line = "bench bidir logp --path shm,udp --loopback --size 1k --iterations 400 --repeat 1 \
                --vs tcp --json - --hdr";
    let args: Vec<&str> = line.split_whitespace().chain(logs.to_str()).collect();
    let ended = run(&args);
    assert_eq!(ended.status, 0, "{}", ended.err);
    let report: Value = serde_json::from_str(&ended.out).unwrap();
    let rows = report["results"].as_array().unwrap();
    assert_eq!(rows.len(), 8, "{rows:?}");
    for row in rows {
        assert!(row["p99_99_us"].as_f64().unwrap() >= row["p50_us"].as_f64().unwrap());
        if row["metric"] == "logp" {
            assert!(row["logp"]["g_us"].as_f64().unwrap() > 0.0, "{row}");
        } else {
            assert!(row["mbytes_per_s"].as_f64().unwrap() > 0.0, "{row}");
        }
    }
    let log = fs::read_to_string(logs.join("logp-1024-portolan-over-udp.hlog")).unwrap();
    assert!(log.contains("picoseconds"), "{log}");
}

#[test]
fn empty_messages_make_round_trips() {
    let _alone = alone();
    let line = "bench pingpong --path udp --loopback --size 0 --iterations 200 --repeat 1 --vs tcp \
                --json -";
    let ended = run(&line.split_whitespace().collect::<Vec<_>>());
    assert_eq!(ended.status, 0, "{}", ended.err);
    let report: Value = serde_json::from_str(&ended.out).unwrap();
    let rows = report["results"].as_array().unwrap();
    assert!(
        rows.len() == 2 && rows.iter().all(|row| row["size"] == 0),
        "{rows:?}"
    );
}

#[test]
fn interrupted_run_prints_partial_results_and_resumes() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let (json, logs) = (dir.path().join("run.json"), dir.path().join("err"));
    let line = "bench pingpong --path shm --loopback --repeat 2 --vs tcp --iterations 2000";
    let args: Vec<&str> = line.split_whitespace().collect();
    let first = [
        &args[..],
        &["--size", "8,64", "--json", json.to_str().unwrap()],
    ]
    .concat();
    let ended = run(&first);
    assert_eq!(ended.status, 0, "{}", ended.err);
    let before: Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();

    // Also requests a size that takes long, and stops the run there.
    let more = [
        &args[..],
        &["--size", "8,64,1M", "--resume", json.to_str().unwrap()],
    ]
    .concat();
    let mut slow: Vec<&str> = more.clone();
    let count = slow.iter().position(|word| *word == "2000").unwrap();
    slow[count] = "100000000";
    let mut command = portolan(&slow);
    command.stdout(fs::File::create(&logs).unwrap());
    let mut child = KillOnDrop(command.spawn().unwrap());
    let pid = child.0.id();
    wait_until("an end is at work", || {
        let children = format!("/proc/{pid}/task/{pid}/children");
        fs::read_to_string(children).is_ok_and(|children| !children.trim().is_empty())
    });
    common::kill(i32::try_from(pid).unwrap(), "-INT");
    wait_until("an interrupted run ends", || {
        child.0.try_wait().unwrap().is_some()
    });
    let table = fs::read_to_string(&logs).unwrap();
    assert!(
        table.contains("interrupted") && table.contains("--resume"),
        "{table}"
    );

    let ended = run(&more);
    assert_eq!(ended.status, 0, "{}", ended.err);
    let after: Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    let results = after["results"].as_array().unwrap();
    assert_eq!(results.len(), 6, "{}", ended.out);
    assert_eq!(
        results[..4],
        before["results"].as_array().unwrap()[..],
        "kept as they were"
    );
}

#[test]
fn a_comparison_says_what_changed_beyond_the_noise() {
    let dir = tempfile::tempdir().unwrap();
    let before = write(dir.path(), "a", &result(&[5.0, 5.1, 5.2]).to_string());
    let worse = write(dir.path(), "b", &result(&[7.0, 7.1, 7.2]).to_string());
    let of = |after: &Path| {
        let args = [
            "bench",
            "compare",
            before.to_str().unwrap(),
            after.to_str().unwrap(),
        ];
        let ended = run(&args);
        assert_eq!(ended.status, 0, "{}", ended.err);
        ended.out
    };
    assert!(of(&worse).contains("worse: pingpong portolan over udp at 64: 5.100 us -> 7.100 us"));
    assert_eq!(of(&before), "1 not distinguishable\n");
    let broken = write(dir.path(), "broken", "{");
    let told = refused(&[
        "bench",
        "compare",
        before.to_str().unwrap(),
        broken.to_str().unwrap(),
    ]);
    assert!(told.contains("broken is not a result"), "{told}");
}

#[test]
fn a_history_has_a_line_a_run() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let history = dir.path().join("history.jsonl");
    let line =
        "bench pingpong --path shm --loopback --size 8 --iterations 200 --repeat 1 --history";
    let args: Vec<&str> = line.split_whitespace().chain(history.to_str()).collect();
    for _ in 0..2 {
        let ended = run(&args);
        assert_eq!(ended.status, 0, "{}", ended.err);
    }
    let text = fs::read_to_string(&history).unwrap();
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 2);
    assert!(
        lines[1]["medians"]["pingpong/8/portolan/shm"]
            .as_f64()
            .unwrap()
            > 0.0
    );
}

#[test]
fn a_page_is_made_of_the_files_that_can_be_read() {
    let dir = tempfile::tempdir().unwrap();
    let good = write(
        dir.path(),
        "good.json",
        &result(&[5.0, 5.1, 5.2]).to_string(),
    );
    let broken = write(dir.path(), "broken.json", "{");
    let page = dir.path().join("page.html");
    let (good, page_name) = (good.to_str().unwrap(), page.to_str().unwrap());
    let ended = run(&["report", good, broken.to_str().unwrap(), "-o", page_name]);
    assert_eq!(ended.status, 2, "{}", ended.err);
    assert_eq!(ended.err.lines().count(), 1, "{}", ended.err);
    assert!(
        ended.err.contains("broken.json is not JSON"),
        "{}",
        ended.err
    );
    assert!(
        fs::read_to_string(&page)
            .unwrap()
            .starts_with("<!DOCTYPE html>")
    );

    assert!(refused(&["report", "/nonexistent.json", "-o", page_name]).contains("cannot be read"));
    assert!(refused(&["report", good, "-o", "/nonexistent/page.html"]).contains("--output"));
}
