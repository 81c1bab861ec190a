// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of `portolan run` with programs that join the job: this test program itself, started as a
//! rank.

use crate::common;
use crate::common::run;
use portolan::binding::launch::{FD_VARIABLE, Launch};
use serde_json::json;
use std::time::Duration;

ranks_of_this_module!(as_rank_args);

/// Runs [`as_rank`] of this program as `count` ranks.
fn run_ranks(count: u32, role: &str, args: &[&str]) -> common::Ended {
    let own = std::env::current_exe().unwrap();
    let own = own.to_str().unwrap();
    let (count, role) = (count.to_string(), format!("ROLE={role}"));
    let options = ["run", "-n", &count, "--env", &role, "--tag-output"];
    let rank = as_rank_args();
    let [name, exact, nocapture, threads] = rank.each_ref().map(String::as_str);
    let program = ["--", own, name, exact, nocapture, threads];
    run(&[&options, args, &program].concat())
}

/// Runs one rank of a job; not a test of its own. Does nothing without a role.
#[test]
fn as_rank() {
    let Ok(role) = std::env::var("ROLE") else {
        return;
    };
    if std::env::var_os(FD_VARIABLE).is_none() {
        return;
    }
    let mut launch = Launch::from_env().unwrap().expect("a job");
    let job = launch.job().clone();
    if role == "absent" && job.rank == 1 {
        std::process::exit(0);
    }
    match (role.as_str(), launch.exchange(&json!({"of": job.rank}))) {
        (_, Ok(table)) => act(&role, &mut launch, &table),
        (_, Err(error)) => {
            println!("\nno table: {error}");
            std::process::exit(4);
        }
    }
}

fn act(role: &str, launch: &mut Launch, table: &[serde_json::Value]) {
    let job = launch.job().clone();
    println!(
        "\nsize {} local {}/{} table {}",
        job.size,
        job.local_rank,
        job.local_size,
        json!(table)
    );
    match (role, job.rank) {
        ("secret", _) => println!("\nsecret {}", hex(&job.secret)),
        ("killed", 1) => kill_self(),
        ("deserter", 1) => std::process::exit(0),
        ("abort", 1) => {
            launch.abort(42, "bad input");
            std::process::exit(1);
        }
        ("killed" | "deserter" | "abort", _) => wait_for_notice(launch),
        ("twice", _) => println!("\nsecond: {}", Launch::from_env().unwrap_err()),
        ("options", _) => println!("\npath {} options {:?}", job.path, job.options),
        _ => {}
    }
    launch.bye();
}

fn wait_for_notice(launch: &mut Launch) {
    for _ in 0..1000 {
        if let Some(gone) = launch.poll() {
            println!("\ntold: {gone}");
            std::process::exit(5);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn kill_self() {
    common::kill(i32::try_from(std::process::id()).unwrap(), "-9");
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn all_ranks_get_the_table_of_all_addresses() {
    let ended = run_ranks(4, "plain", &[]);
    assert_eq!((ended.status, ended.err.as_str()), (0, ""), "{}", ended.out);
    for rank in 0..4 {
        let line = format!(
            r#"[{rank}] size 4 local {rank}/4 table [{{"of":0}},{{"of":1}},{{"of":2}},{{"of":3}}]"#
        );
        assert!(
            ended.out.contains(&line),
            "{line} is missing in {}",
            ended.out
        );
    }
}

#[test]
fn killed_rank_is_reported_to_all_ranks() {
    let ended = run_ranks(3, "killed", &[]);
    assert_eq!(ended.status, 137, "{}", ended.err);
    assert!(ended.err.contains("rank 1 on"), "{}", ended.err);
    for rank in [0, 2] {
        let told = format!("[{rank}] told: rank 1 on ");
        assert!(ended.out.contains(&told), "{}", ended.out);
    }
    assert_eq!(
        ended
            .out
            .matches("failed: killed by signal 9 (SIGKILL)")
            .count(),
        2
    );
}

#[test]
fn leaving_without_a_word_is_a_failure() {
    let ended = run_ranks(2, "deserter", &[]);
    assert_eq!(ended.status, 1, "{}", ended.err);
    assert!(ended.err.contains("rank 1 on") && ended.err.contains("without leaving the job"));
    assert!(ended.out.contains("[0] told: rank 1 on"), "{}", ended.out);
}

#[test]
fn a_rank_that_never_joins_does_not_hang_the_others() {
    let ended = run_ranks(2, "absent", &[]);
    assert_eq!(ended.status, 1, "{}", ended.err);
    assert!(
        ended
            .out
            .contains("[0] no table: the job cannot start: rank 1"),
        "{}",
        ended.out
    );
}

#[test]
fn an_abort_ends_the_job_with_its_status_and_reason() {
    let ended = run_ranks(2, "abort", &[]);
    assert_eq!(ended.status, 42, "{}", ended.err);
    assert!(
        ended.err.contains("aborted the job: bad input"),
        "{}",
        ended.err
    );
}

#[test]
fn a_process_joins_once() {
    let ended = run_ranks(1, "twice", &[]);
    assert_eq!(ended.status, 0, "{}", ended.err);
    assert!(
        ended
            .out
            .contains("second: PORTOLAN_LAUNCH_FD names descriptor"),
        "{}",
        ended.out
    );
}

#[test]
fn a_second_program_of_one_rank_is_refused_instead_of_waiting() {
    let own = std::env::current_exe().unwrap();
    let script = format!(
        "for i in 1 2; do {} {}; done",
        own.display(),
        as_rank_args().join(" ")
    );
    let ended = run(&[
        "run",
        "--env",
        "ROLE=plain",
        "--timeout",
        "20",
        "--",
        "sh",
        "-c",
        &script,
    ]);
    assert_eq!(ended.status, 101, "{}", ended.out);
    assert!(
        ended.out.contains("size 1") && ended.err.contains("the launcher closed the connection"),
        "{}",
        ended.err
    );
}

#[test]
fn path_and_options_reach_the_processes() {
    let ended = run_ranks(1, "options", &["--path", "udp", "-o", "app.linger=5"]);
    assert!(
        ended
            .out
            .contains(r#"path udp options {"app.linger": "5"}"#),
        "{}",
        ended.out
    );
}

#[test]
fn every_job_has_its_own_secret_in_no_environment() {
    let secret = |ended: &common::Ended| {
        let at = ended.out.find("secret ").unwrap() + 7;
        ended.out[at..at + 64].to_owned()
    };
    let (first, second) = (run_ranks(1, "secret", &[]), run_ranks(1, "secret", &[]));
    assert_ne!(secret(&first), secret(&second));
    assert_ne!(secret(&first), "0".repeat(64));
    let shown = run(&[
        "run",
        "--",
        "sh",
        "-c",
        "env; cat /proc/$PPID/cmdline /proc/$PPID/environ",
    ]);
    let long_hex = shown
        .out
        .split(|c: char| !c.is_ascii_hexdigit())
        .any(|word| word.len() == 64);
    assert!(!long_hex, "something as long as a secret is visible");
}
