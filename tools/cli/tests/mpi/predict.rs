// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of `portolan predict` with the profile of a program with known messages only, on
//! networks written by hand, and of its errors without a usable profile.

use crate::common::mpi::{self, Commands};
use crate::common::{Ended, portolan, refused};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// Time limit of a run, which ends a deadlocked one before the whole test run.
const PATIENCE_S: &str = "120";

/// Minimum number of messages in the known program that wait for one another: five, and the sixth
/// that their receiver starts.
const CHAIN: f64 = 6.0;

/// Returns the records of the known program with events, under the MPI `name`; `None` without that
/// MPI.
fn profiled(name: &str) -> Option<TempDir> {
    let Commands { compiler, launcher } = mpi::find(name)?;
    let room = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mpi/profile/known.c");
    let program = room.path().join("known");
    let mut build = Command::new(compiler);
    build
        .args(["-std=gnu11", "-O2", "-o"])
        .arg(&program)
        .arg(source);
    Ended::from(build.output().unwrap()).succeeded("the compiler");
    let mut run = Command::new("timeout");
    run.args([PATIENCE_S, env!("CARGO_BIN_EXE_portolan"), "profile"]);
    run.args(["--events", "10000", "--keep"])
        .arg(room.path().join("records"));
    run.args(["--", &launcher, "-n", "3"]).arg(&program);
    run.env("XDG_CACHE_HOME", room.path().join("cache"));
    mpi::allow(&mut run);
    Ended::from(run.output().unwrap()).succeeded("portolan profile");
    Some(room)
}

/// Writes a network with L as its only cost.
fn network(room: &Path, name: &str, l_us: f64) -> PathBuf {
    let file = room.join(format!("{name}.json"));
    let network = json!({
        "name": name, "source": "this test", "ns_per_byte": 0.0, "eager_max": 65536,
        "points": [{"bytes": 1, "l_us": l_us, "os_us": 0.0, "or_us": 0.0, "g_us": 0.0}],
    });
    fs::write(&file, network.to_string()).unwrap();
    file
}

fn predict(room: &Path, options: &[&str]) -> Value {
    let records = room.join("records");
    let mut command = portolan(&["predict", records.to_str().unwrap(), "--json", "-"]);
    let ended = Ended::from(command.args(options).output().unwrap());
    let json: Value = serde_json::from_str(&ended.succeeded("portolan predict")).unwrap();
    assert_eq!(json["format"], "portolan-predict-1");
    json["programs"][0].clone()
}

fn known_program_on_networks(name: &str) {
    let Some(room) = profiled(name) else { return };
    let room = room.path();
    let (ideal, far) = (network(room, "ideal", 0.0), network(room, "far", 1e5));
    let [ideal, far] = [&ideal, &far].map(|file| file.to_str().unwrap());
    let reports = predict(room, &["--network", far, "--network", ideal]);
    assert_eq!(reports["processes"], 3);
    // Both ends of every message were recorded.
    assert_eq!(reports["notes"], json!([]), "{reports}");
    let [on_far, on_ideal] = [0, 1].map(|at| reports["predictions"][at].clone());
    let seconds = |on: &Value| on["seconds"].as_f64().unwrap();
    assert_eq!(
        (&on_far["network"], &on_far["bound"]),
        (&json!("far"), &json!("latency"))
    );
    assert!(seconds(&on_far) >= CHAIN * 0.1, "{reports}");
    assert_ne!(on_ideal["bound"], "latency");
    assert!(
        seconds(&on_ideal) <= reports["computing_s"].as_f64().unwrap(),
        "{reports}"
    );
    assert_eq!(reports["smallest"], "ideal");
    // On one host no message uses the network between hosts.
    let reports = predict(room, &["--network", far, "--hosts", "1,3"]);
    let [one, three] = [0, 1].map(|at| seconds(&reports["predictions"][at]));
    assert!(one < 0.1 && three >= CHAIN * 0.1, "{reports}");
}

#[test]
fn a_known_program_takes_what_its_chain_of_messages_takes_under_open_mpi() {
    known_program_on_networks("openmpi");
}

#[test]
fn a_known_program_takes_what_its_chain_of_messages_takes_under_mpich() {
    known_program_on_networks("mpich");
}

#[test]
fn unusable_profiles_are_reported_with_a_remedy() {
    let room = tempfile::tempdir().unwrap();
    let empty = room.path().to_str().unwrap();
    let refused = |args: &[&str], word: &str| {
        let reports = refused(&[&["predict"], args].concat());
        assert!(reports.contains(word), "{args:?}: {reports}");
    };
    refused(&[empty], "--events N");
    refused(&["/nonexistent"], "cannot be read");
    let bad = network(room.path(), "bad", -1.0);
    refused(
        &[empty, "--network", bad.to_str().unwrap()],
        "'bad' has a time that is negative",
    );
    refused(&[empty, "--network", "/nonexistent"], "--network");
    let other = room.path().join("other.json");
    fs::write(&other, "[1]").unwrap();
    refused(
        &[empty, "--network", other.to_str().unwrap()],
        "is neither a network",
    );
    refused(
        &[empty, "--measured", other.to_str().unwrap()],
        "portolan bench",
    );
}
