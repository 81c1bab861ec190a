// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs that share memory, run as jobs of a launcher.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../../interfaces/capi/tests/common/mod.rs"]
mod common;

use common::{
    SANITIZERS, STRICT, UNDEFINED, Workshop, checked, here, job, path_options, run_job,
    test_program,
};
use std::path::PathBuf;
use std::process::Command;

fn workshop() -> Workshop {
    Workshop::new("tmk", "libtmk.so")
}

/// Discards diffs at every barrier.
const COLLECT: [&str; 2] = ["--env", "TMK_COLLECT=0"];

#[test]
fn memory_is_shared_on_every_path() {
    let shop = workshop();
    let program = checked(&shop, "sharing.c");
    for way in path_options() {
        for more in [&[][..], &COLLECT] {
            let options = [&way[..], more].concat();
            let out = run_job(2, &options, &program, &[]);
            assert_eq!(out.matches("of 2 is done").count(), 2, "{options:?}: {out}");
        }
    }
}

#[test]
fn memory_is_shared_among_one_four_and_eight() {
    let shop = workshop();
    let program = checked(&shop, "sharing.c");
    for count in [1, 4, 8] {
        let out = run_job(count, &[], &program, &[]);
        let expected = usize::try_from(count).unwrap();
        assert_eq!(out.matches("is done").count(), expected, "{out}");
    }
}

/// Builds an example with all sanitizers.
fn example(shop: &Workshop, name: &str) -> PathBuf {
    let source = here().join("../../examples/dsm").join(name);
    let plain: &[&str] = &["-std=c11", "-O1", "-D_GNU_SOURCE"];
    shop.build("cc", &source, &[plain, SANITIZERS, STRICT].concat())
}

/// Runs an example on 2, 4 and 8 processes, within a host and over UDP. It compares its result with
/// that of a sequential computation.
fn assert_right(name: &str, args: &[&str]) {
    let shop = workshop();
    let program = example(&shop, &format!("{name}.c"));
    for count in [1, 2, 4, 8] {
        for options in [&["--path", "shm"][..], &["--path", "udp"]] {
            let options = [options, if count == 4 { &COLLECT } else { &[] }].concat();
            let out = run_job(count, &options, &program, args);
            let line = format!("{name} on {count} processes: right");
            assert!(out.starts_with(&line), "{options:?}: {out}");
        }
    }
}

#[test]
fn red_black_relaxation_matches_the_sequential_result() {
    assert_right("sor", &["130", "200", "6"]);
}

#[test]
fn travelling_salesman_finds_the_shortest_tour() {
    assert_right("tsp", &["9", "3"]);
}

#[test]
fn bodies_move_as_in_a_sequential_computation() {
    assert_right("water", &["90", "3"]);
}

/// `DSM_SCHEDULES` lengthens it.
#[test]
fn litmus_tests_hold_between_processes() {
    let shop = workshop();
    let program = test_program(&shop, "litmus.c", UNDEFINED);
    let rounds = match std::env::var("DSM_SCHEDULES") {
        Ok(count) => (count.parse::<u64>().unwrap() / 100).max(50).to_string(),
        Err(_) => "50".to_owned(),
    };
    for (count, options) in [
        (2, &["--path", "shm"][..]),
        (3, &["--path", "udp", "--option", "fault=drop=0.01,seed=2"]),
        (4, &COLLECT),
    ] {
        let out = run_job(count, options, &program, &[&rounds, "7"]);
        let line = format!("{rounds} rounds on {count} processes are right");
        assert!(out.contains(&line), "{out}");
    }
}

#[test]
fn pages_are_served_while_the_owner_computes() {
    let shop = workshop();
    let program = test_program(&shop, "computing.c", UNDEFINED);
    for path in ["shm", "udp"] {
        let dir = tempfile::tempdir().unwrap();
        let args = [dir.path().to_str().unwrap()];
        let out = run_job(3, &["--path", path], &program, &args);
        assert_eq!(out, "the others have all pages\n");
    }
}

#[test]
fn statistics_are_printed_on_request() {
    let shop = workshop();
    let program = test_program(&shop, "sharing.c", UNDEFINED);
    let run = job(2, &["--env", "TMK_STATISTICS=1"], &program, &[])
        .output()
        .unwrap();
    let err = String::from_utf8_lossy(&run.stderr);
    for process in 0..2 {
        let line = err
            .lines()
            .find(|line| line.contains(&format!("process {process}: ")));
        let line = line.unwrap_or_else(|| panic!("{err}"));
        for what in ["messages", "diffs made", "pages received", "fetch faults"] {
            assert!(line.contains(what), "{line}");
        }
        assert!(!line.contains(" 0 diffs made"), "{line}");
    }
    let run = job(2, &[], &program, &[]).output().unwrap();
    let err = String::from_utf8_lossy(&run.stderr);
    assert!(!err.contains("diffs"), "{err}");
}

/// Each mistake, with its expected error message.
const MISTAKES: &[(&str, &str)] = &[
    ("too early", "Tmk_barrier(): call Tmk_startup() before"),
    (
        "release before acquire",
        "process 1: Tmk_lock_release(): this process does not hold lock 3",
    ),
    (
        "acquire twice",
        "process 1: Tmk_lock_acquire(): this process already holds lock 3",
    ),
    (
        "no such lock",
        "Tmk_lock_acquire(): lock 1024 does not exist",
    ),
    (
        "no such lock to release",
        "Tmk_lock_release(): lock 1024 does not exist",
    ),
    (
        "no such barrier",
        "Tmk_barrier(): barrier 32 does not exist",
    ),
    ("another barrier", "process 1 is at barrier 8"),
    (
        "wait without lock",
        "Tmk_lock_cond_wait(): this process does not hold lock 3",
    ),
    (
        "signal without lock",
        "Tmk_lock_cond_signal(): this process does not hold lock 3",
    ),
    (
        "no such condition",
        "Tmk_lock_cond_broadcast(): condition 32 does not exist",
    ),
    ("leave with lock", "Tmk_exit(): this process holds lock 7"),
    ("leave early", "process 1 is at its end"),
    ("fail", "process 1: Tmk_exit(): called with status 3"),
    ("distribute the stack", "Tmk_distribute(): the 4 bytes at"),
    (
        "distribute nothing",
        "Tmk_distribute(): the pointer is null",
    ),
    ("distribute less", "Tmk_distribute(): the size is -1"),
    ("free what is not shared", "is not a block"),
    ("free twice", "is not a block"),
    ("start twice", "Tmk_startup(): called more than once"),
    ("in a child", "forked"),
    (
        "in a child",
        "Tmk_lock_release(): this process does not hold lock 1",
    ),
];

#[test]
fn every_mistake_is_named_and_ends_the_job() {
    let shop = workshop();
    let program = test_program(&shop, "mistakes.c", UNDEFINED);
    for (mistake, text) in MISTAKES {
        let output = job(2, &[], &program, &[mistake]).output().unwrap();
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(err.contains(text), "{mistake}: {text} is missing in\n{err}");
        assert!(!output.status.success(), "{mistake}: {err}");
    }
}

#[test]
fn every_mistake_of_the_program_is_listed() {
    let program = include_str!("c/mistakes.c");
    let names = program.split("is(\"").skip(1);
    for name in names.map(|rest| rest.split('"').next().unwrap()) {
        let is_listed = MISTAKES.iter().any(|(mistake, _)| *mistake == name);
        assert!(is_listed, "{name}");
    }
}

#[test]
fn killed_process_is_named_by_those_that_need_it() {
    let shop = workshop();
    let program = test_program(&shop, "killed.c", UNDEFINED);
    for path in ["shm", "udp"] {
        for awaited in ["barrier", "lock", "page", "computing"] {
            let output = job(2, &["--path", path], &program, &[awaited])
                .output()
                .unwrap();
            let err = String::from_utf8_lossy(&output.stderr);
            let is_named = err.contains("treadmarks: process 0") && err.contains("1 ");
            assert!(is_named, "{path}, {awaited}: {err}");
            assert!(!output.status.success(), "{path}, {awaited}: {err}");
        }
    }
}

#[test]
fn other_faults_reach_the_program() {
    let shop = workshop();
    let program = test_program(&shop, "crash.c", &[]);
    let output = Command::new(&program).arg("handled").output().unwrap();
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "the program's handler\n"
    );
    let output = Command::new(&program).output().unwrap();
    assert!(
        output.status.code().is_none(),
        "ended by a signal: {output:?}"
    );
}
