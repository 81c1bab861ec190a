// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of rows of other libraries in `portolan bench`. They assert that the work was done or a
//! missing library was reported, never a time.

use crate::common::{Ended, can_make_labs, portolan, refused, write_command};
use serde_json::Value;
use std::path::Path;

const NETWORK: [&str; 3] = ["libfabric-tcp", "libfabric-rxd", "ucx"];
const MEMORY: [&str; 2] = ["libfabric-shm", "ucx"];

fn measured(args: &str) -> Value {
    let args: Vec<&str> = args.split_whitespace().collect();
    let ended = Ended::from(portolan(&args).output().unwrap());
    assert_eq!(ended.status, 0, "{}", ended.err);
    serde_json::from_str(&ended.out).unwrap()
}

/// Returns true if the library of `system` is installed; prints SKIPPED if not.
fn is_installed(system: &str) -> bool {
    let header = match system {
        "ucx" => "/usr/include/ucp/api/ucp.h",
        _ => "/usr/include/rdma/fabric.h",
    };
    let installed = Path::new(header).exists();
    if !installed {
        eprintln!("SKIPPED: {system}, for there is no {header}");
    }
    installed
}

/// Asserts that each of `systems` has rows for each metric and size, or one note that names its
/// package.
fn assert_told(report: &Value, path: &str, systems: &[&str]) {
    let results = report["results"].as_array().unwrap();
    let notes: Vec<&str> = report["notes"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(Value::as_str)
        .collect();
    for system in systems {
        let told = notes.iter().filter(|note| note.contains(system)).count();
        if !is_installed(system) {
            assert_eq!(told, 1, "{notes:?}");
            assert!(
                notes.iter().any(|note| note.contains("apt install")),
                "{notes:?}"
            );
            continue;
        }
        assert_eq!(told, 0, "{notes:?}");
        for (metric, size) in [
            ("half_rtt", 64),
            ("half_rtt", 100_000),
            ("stream", 100_000),
            ("rate", 64),
        ] {
            let is_it = |row: &&Value| {
                row["metric"] == metric
                    && row["size"] == size
                    && row["system"] == *system
                    && row["path"] == path
            };
            let row = results.iter().find(is_it);
            let row = row.unwrap_or_else(|| panic!("{system}, {metric}, {size}: {report}"));
            assert!(row["msgs_per_s"].as_f64().unwrap() > 0.0, "{row}");
            assert!(row["p50_us"].as_f64().unwrap() > 0.0, "{row}");
            // A multiple of whole windows of 64 messages, or of batches of round trips.
            assert!(row["iterations"].as_u64().unwrap() >= 200, "{row}");
        }
    }
}

const WORK: &str =
    "bench pingpong stream rate --repeat 1 --size 64,100000 --iterations 200 --json -";

#[test]
fn libraries_have_their_rows_within_a_host() {
    let report = measured(&format!("{WORK} --path shm --vs {}", MEMORY.join(",")));
    assert_told(&report, "shm", &MEMORY);
}

#[test]
fn libraries_have_their_rows_between_the_hosts_of_a_lab() {
    if !can_make_labs() {
        return;
    }
    let report = measured(&format!(
        "{WORK} --path udp,auto --vs {}",
        NETWORK.join(",")
    ));
    assert_eq!(report["machine"]["site"], "lab");
    for path in ["udp", "auto"] {
        assert_told(&report, path, &NETWORK);
    }
}

#[test]
fn competitor_that_does_not_build_is_noted_and_skipped() {
    let room = tempfile::tempdir().unwrap();
    let no_header =
        r#"echo "x.c:1:10: fatal error: ucp/api/ucp.h: No such file or directory" >&2; exit 1"#;
    write_command(&room.path().join("cc"), no_header);
    let args =
        "bench pingpong rate --path shm --size 8,64 --repeat 1 --iterations 200 --vs ucx --json -";
    let mut command = portolan(&args.split_whitespace().collect::<Vec<_>>());
    let search = format!(
        "{}:{}",
        room.path().display(),
        std::env::var("PATH").unwrap()
    );
    let ended = Ended::from(command.env("PATH", search).output().unwrap());
    assert_eq!(ended.status, 0, "{}", ended.err);
    let report: Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!(report["results"].as_array().unwrap().len(), 4, "{report}");
    let notes = report["notes"].as_array().unwrap();
    let note = notes[0].as_str().unwrap();
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert!(
        note.contains("ucx") && note.contains("apt install libucx-dev"),
        "{note}"
    );
}

#[test]
fn libraries_option_is_refused_where_it_has_no_effect() {
    for args in [
        ["bench", "logp", "--vs", "ucx", "--path", "udp"],
        [
            "bench",
            "pingpong",
            "--vs",
            "libfabric-shm",
            "--path",
            "udp",
        ],
    ] {
        assert!(refused(&args).contains("--vs"));
    }
}
