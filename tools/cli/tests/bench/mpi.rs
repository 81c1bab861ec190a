// SPDX-License-Identifier: MIT OR Apache-2.0
//! Smoke tests of MPI programs in `portolan bench`. They assert that the work was done, never a
//! time.

use crate::common::{Ended, mpi, portolan, refused};
use serde_json::Value;

fn rows_of(name: &str) {
    if mpi::find(name).is_none() {
        return;
    }
    let args = "bench pingpong stream rate --path shm --repeat 1 --size 64,100000 --json -";
    let args: Vec<&str> = args.split_whitespace().collect();
    let mut command = portolan(&args);
    command.args(["--mpi", name, "--iterations", "200"]);
    mpi::allow(&mut command);
    let ended = Ended::from(command.output().unwrap());
    assert_eq!(ended.status, 0, "{}", ended.err);
    let report: Value = serde_json::from_str(&ended.out).unwrap();
    for metric in ["half_rtt", "stream", "rate"] {
        for size in [64, 100_000] {
            let is_it = |row: &&Value| {
                row["metric"] == metric && row["size"] == size && row["system"] == name
            };
            let row = report["results"].as_array().unwrap().iter().find(is_it);
            let row = row.unwrap_or_else(|| panic!("{metric} {size}: {report}"));
            assert!(row["msgs_per_s"].as_f64().unwrap() > 0.0, "{row}");
            assert_eq!(row["variant"], "its shared memory");
            // A multiple of whole windows of 64 messages, or of batches of round trips.
            assert!(row["iterations"].as_u64().unwrap() >= 200, "{row}");
        }
    }
    // Over Portolan there are rows or a note with the reason: the provider may not be built, or the
    // MPI may not support it.
    let over = format!("{name}-portolan");
    let has_rows = report["results"]
        .as_array()
        .unwrap()
        .iter()
        .any(|row| row["system"] == over);
    let notes = report["notes"].as_array().unwrap().iter();
    let told: Vec<&str> = notes.filter_map(Value::as_str).collect();
    let told = told.iter().filter(|note| note.contains(&over)).count();
    assert!(
        has_rows && told == 0 || !has_rows && told == 1,
        "{}",
        report["notes"]
    );
}

#[test]
fn open_mpi_has_its_rows() {
    rows_of("openmpi");
}

#[test]
fn mpich_has_its_rows() {
    rows_of("mpich");
}

#[test]
fn mpis_option_is_refused_where_it_has_no_effect() {
    for args in [
        ["bench", "logp", "--mpi", "openmpi", "--path", "udp"],
        ["bench", "pingpong", "--mpi", "openmpi", "--path", "xdp"],
    ] {
        assert!(refused(&args).contains("--mpi"));
    }
}
