// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of `portolan report npb` under installed MPIs with class S: every program is run, verified
//! and counted, and missing results are reported. No test here asserts a time.

use crate::common::{Ended, alone, mpi, portolan, run};
use serde_json::Value;
use std::fs;
use std::path::Path;

/// Returns the messages of a run by size, including those of collective operations.
fn classes(run: &Value) -> Vec<u64> {
    let sizes = &run["world"]["sizes"];
    let count = |what: &str, class: usize| sizes[what][class]["count"].as_u64().unwrap();
    let kinds = ["messages", "one_sided", "of_collectives"];
    let sum = |class: usize| kinds.iter().map(|what| count(what, class)).sum();
    (0..6).map(sum).collect()
}

fn report_on(name: &str) {
    if mpi::find(name).is_none() {
        return;
    }
    let _alone = alone();
    let room = tempfile::tempdir().unwrap();
    let (page, json) = (room.path().join("npb.html"), room.path().join("npb.json"));
    let mut command = portolan(&[
        "report", "npb", "--class", "S", "--repeat", "1", "--mpi", name,
    ]);
    command.arg("-o").arg(&page).arg("--json").arg(&json);
    command.env("XDG_CACHE_HOME", room.path().join("cache"));
    let ended = Ended::from(command.output().unwrap());
    let npb: Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    assert_eq!(npb["format"], "portolan-npb-1");
    let runs = npb["runs"].as_array().unwrap();
    let has_ours = runs.iter().any(|run| run["network"] == "portolan-shm");
    if has_ours {
        assert_eq!(ended.status, 0, "{}", ended.err);
    } else {
        // The provider is not built, or this MPI does not support it: reported once, and the rest
        // continued.
        assert_eq!(ended.status, 1, "{}", ended.err);
        assert_eq!(
            ended
                .err
                .matches("Portolan's networks are not measured")
                .count(),
            1
        );
    }
    for program in ["IS", "MG", "CG", "SP", "EP", "LU", "FT", "BT"] {
        let of = |network: &Value| {
            runs.iter()
                .find(|run| run["program"] == program && run["network"] == *network)
                .unwrap_or_else(|| panic!("{program}, {network}: {}", ended.err))
        };
        assert_eq!(of(&Value::Null)["processes"], 1);
        let (tcp, memory) = (of(&"own-tcp".into()), of(&"own-shm".into()));
        assert!(tcp["seconds"].as_f64().unwrap() > 0.0);
        // The messages depend only on the program.
        assert_eq!(classes(tcp), classes(memory), "{program}");
        assert!(classes(tcp).iter().sum::<u64>() > 0, "{program}");
    }
    assert_tells_the_tables(&page);
    // The page can be made again from the kept results.
    let again = room.path().join("again.html");
    let ended = run(&[
        "report",
        json.to_str().unwrap(),
        "-o",
        again.to_str().unwrap(),
    ]);
    assert_eq!(ended.status, 0, "{}", ended.err);
    assert_tells_the_tables(&again);
    let drawn = room.path().join("drawn");
    let ended = run(&[
        "plot",
        json.to_str().unwrap(),
        "--out",
        drawn.to_str().unwrap(),
    ]);
    assert_eq!(ended.status, 0, "{}", ended.err);
    assert!(drawn.join("npb-speed-up.svg").exists() || drawn.join("npb-npb-speed-up.svg").exists());
}

fn assert_tells_the_tables(page: &Path) {
    let page = fs::read_to_string(page).unwrap();
    for part in [
        "Table 2", "Table 3", "Table 4", "Table 5", "Figure 3", "31,487",
    ] {
        assert!(page.contains(part), "{part}");
    }
}

#[test]
fn programs_are_measured_with_open_mpi() {
    report_on("openmpi");
}

#[test]
fn programs_are_measured_with_mpich() {
    report_on("mpich");
}

#[test]
fn report_without_mpi_measures_networks_and_notes_it() {
    let _alone = alone();
    let room = tempfile::tempdir().unwrap();
    let page = room.path().join("npb.html");
    let mut command = portolan(&["report", "npb", "--class", "S", "--repeat", "1", "-o"]);
    command.arg(&page).env("PATH", room.path());
    let ended = Ended::from(command.output().unwrap());
    assert_eq!(ended.status, 1, "{}", ended.err);
    assert!(
        ended.err.contains("no MPI was found in PATH: install one"),
        "{}",
        ended.err
    );
    let page = fs::read_to_string(&page).unwrap();
    assert!(page.contains("no MPI was found in PATH") && page.contains("31,487"));
}

#[test]
fn invalid_requests_get_a_one_sentence_error() {
    for (words, sentence) in [
        (["--mpi", "lam"], "write openmpi, mpich"),
        (["--processes", "3"], "powers of two"),
        (["--class", "Z"], "S, W, A, B"),
        (["--link", "2g"], "plain, fast-ethernet, 1g or 10g"),
        (["-o", "/nonexistent/page.html"], "name another --output"),
        (["--json", "/nonexistent/npb.json"], "name another --json"),
    ] {
        let ended = run(&[&["report", "npb"], &words[..]].concat());
        assert_eq!(ended.status, 2, "{}", ended.err);
        assert!(ended.err.contains(sentence), "{}", ended.err);
    }
}
