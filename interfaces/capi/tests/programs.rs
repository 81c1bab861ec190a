// SPDX-License-Identifier: MIT OR Apache-2.0
//! C programs against the library, under the address and undefined-behaviour sanitizers.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{Lab, Workshop, can_make_labs, checked, job, job_within, run_job, succeed};
use std::path::Path;
use std::process::Command;

#[test]
fn every_misuse_returns_its_error() {
    let shop = Workshop::new("portolan", "libportolan_c.so");
    let out = succeed(&mut Command::new(checked(&shop, "misuse.c")));
    assert!(out.contains("every misuse returned its error"), "{out}");
}

#[test]
fn messages_groups_and_event_loops_work_from_c() {
    let shop = Workshop::new("portolan", "libportolan_c.so");
    let program = checked(&shop, "messages.c");
    for (count, path) in [(2, "shm"), (3, "udp")] {
        let model = ["--option", "model=off"];
        let options = ["--path", path, "--option", "app.colour=purple"];
        let out = run_job(count, &[&options[..], &model].concat(), &program, &[]);
        let done = out.matches("all messages arrived").count();
        assert_eq!(done, count as usize, "{out}");
    }
}

#[test]
fn server_and_client_find_each_other_from_c() {
    let shop = Workshop::new("portolan", "libportolan_c.so");
    let program = checked(&shop, "server.c");
    let out = succeed(Command::new(program).env("PORTOLAN_INTERFACE", "lo"));
    assert!(out.contains("the server was found twice"), "{out}");
}

/// Every call that only the killed rank could have completed ends with an error that names it. That
/// takes less than 1 s. The limit leaves room for a busy machine, and is far below the timeout for
/// silent peers.
#[test]
fn survivors_learn_which_rank_was_killed() {
    let shop = Workshop::new("portolan", "libportolan_c.so");
    let program = checked(&shop, "death.c");
    for (path, calls) in [
        ("shm", &["recv", "wait", "tagged", "send"][..]),
        ("udp", &["recv", "get", "send"]),
    ] {
        for call in calls {
            let output = job(3, &["--path", path], &program, &[call])
                .output()
                .unwrap();
            let out = String::from_utf8_lossy(&output.stdout);
            let err = String::from_utf8_lossy(&output.stderr);
            println!("{path}: {out}");
            assert!(!output.status.success(), "a rank was killed: {out}{err}");
            assert_eq!(
                out.matches("rank continues").count(),
                2,
                "{path} {call}: {out}{err}"
            );
        }
    }
}

/// Longest job of a call that returns; on a busy machine it takes seconds.
const WAIT_SECONDS: &str = "60";

/// Checks that every call of `waits.c` returns the error of its table when rank 1, the only other
/// process, exits normally or is killed.
fn assert_all_waits_end(program: &Path, path_options: &[&str]) {
    let calls = succeed(Command::new(program).arg("list"));
    assert!(calls.lines().count() > 50, "{calls}");
    // Longer than the job's time limit, so that the launcher does not end the survivor first.
    let options = [path_options, &["--grace-ms", "100000"]].concat();
    for call in calls.lines() {
        for (how, status) in [("close", 0), ("kill", 137)] {
            let mut job = job_within(WAIT_SECONDS, 2, &options, program, &[call, how]);
            let output = job.output().unwrap();
            let out = String::from_utf8_lossy(&output.stdout);
            let err = String::from_utf8_lossy(&output.stderr);
            let shown = format!(
                "{path_options:?}, {call}, {how}: {:?}\n{out}{err}",
                output.status
            );
            println!("{path_options:?}, {how}: {out}");
            assert!(out.contains(&format!("{call} ended: ")), "{shown}");
            assert_eq!(output.status.code(), Some(status), "{shown}");
        }
    }
}

#[test]
fn waits_end_after_all_peers_end_on_shared_memory() {
    let shop = Workshop::new("portolan", "libportolan_c.so");
    assert_all_waits_end(&checked(&shop, "waits.c"), &["--path", "shm"]);
}

#[test]
fn waits_end_after_all_peers_end_on_udp() {
    let shop = Workshop::new("portolan", "libportolan_c.so");
    assert_all_waits_end(&checked(&shop, "waits.c"), &["--path", "udp"]);
}

#[test]
fn waits_end_after_all_peers_end_on_raw_ethernet() {
    if !can_make_labs() {
        return;
    }
    let shop = Workshop::new("portolan", "libportolan_c.so");
    let lab = Lab::up("waits");
    let path_options = ["--lab", lab.name(), "--path", "packet"];
    assert_all_waits_end(&checked(&shop, "waits.c"), &path_options);
}
