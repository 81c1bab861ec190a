// SPDX-License-Identifier: MIT OR Apache-2.0
//! VIPL programs, run as jobs of a launcher, and as single processes.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../../interfaces/capi/tests/common/mod.rs"]
mod common;

use common::{
    SANITIZERS, STRICT, Workshop, checked, here, job, path_options, run_job, succeed, test_program,
};
use std::path::Path;
use std::process::Command;

fn workshop() -> Workshop {
    Workshop::new("vipl", "libvipl.so")
}

/// Checks that both processes finish, over each kind of path.
fn assert_both_done(program: &Path, ways: &[Vec<&str>], args: &[&str]) {
    common::assert_both_done(program, ways, args, ["process 0", "process 1"]);
}

#[test]
fn messages_arrive_on_every_path() {
    let shop = workshop();
    let program = checked(&shop, "messages.c");
    assert_both_done(&program, &path_options(), &[]);
}

#[test]
fn long_transfers_complete_in_order_and_when_connections_end() {
    let shop = workshop();
    let program = checked(&shop, "long.c");
    assert_both_done(&program, &path_options(), &[]);
}

#[test]
fn rdma_reads_and_writes_remote_memory() {
    let shop = workshop();
    let program = checked(&shop, "rdma.c");
    assert_both_done(&program, &path_options(), &[]);
}

#[test]
fn computing_process_serves_rdma_with_progress_thread() {
    let shop = workshop();
    let program = checked(&shop, "computing.c");
    for path in ["shm", "udp"] {
        let sent = shop.path().join(path);
        let options = vec!["--path", path, "--option", "progress=thread"];
        assert_both_done(&program, &[options], &[sent.to_str().unwrap()]);
    }
}

#[test]
fn failures_are_reported_per_reliability_level() {
    let shop = workshop();
    let program = checked(&shop, "errors.c");
    for way in path_options() {
        let is_lossy = way.iter().any(|word| word.starts_with("fault="));
        let args: &[&str] = if is_lossy { &["lossy"] } else { &[] };
        assert_both_done(&program, &[way], args);
    }
}

#[test]
fn shared_completion_queue_keeps_the_order_of_each_vi() {
    let shop = workshop();
    let program = checked(&shop, "queues.c");
    assert_both_done(&program, &path_options(), &[]);
}

#[test]
fn connections_are_accepted_or_refused() {
    let shop = workshop();
    let program = checked(&shop, "connections.c");
    assert_both_done(&program, &path_options(), &[]);
}

/// The network decides which messages are lost. The assertions check what each level guarantees.
#[test]
fn frame_loss_affects_only_unreliable_vis() {
    let shop = workshop();
    let program = checked(&shop, "loss.c");
    let more = ["--path", "udp", "--option", "fault=drop=0.1,seed=7"];
    let ways = [path_options(), vec![more.to_vec()]].concat();
    assert_both_done(&program, &ways, &[]);
}

#[test]
fn peer_is_notified_of_killed_process() {
    let shop = workshop();
    let program = checked(&shop, "killed.c");
    for path in ["shm", "udp"] {
        let output = job(2, &["--path", path], &program, &[]).output().unwrap();
        let out = String::from_utf8_lossy(&output.stdout);
        assert!(out.contains("process 0 was notified"), "{path}: {output:?}");
    }
}

#[test]
fn handlers_run_while_the_program_sleeps() {
    let shop = workshop();
    let program = checked(&shop, "notify.c");
    assert_both_done(&program, &path_options(), &[]);
}

#[test]
fn all_functions_work_in_a_job_of_one() {
    let shop = workshop();
    let program = checked(&shop, "single.c");
    let hosts = shop.path().join("hosts");
    let out = succeed(Command::new(program).arg(hosts));
    assert_eq!(out, "all is as it should be\n");
}

/// Built without sanitizers, which replace the allocator that measures the memory of a VI.
#[test]
fn memory_per_vi_matches_documented_limit() {
    let shop = workshop();
    let program = test_program(&shop, "many.c", &[]);
    let out = succeed(&mut Command::new(program));
    let each: u32 = out.strip_suffix(" bytes a VI\n").unwrap().parse().unwrap();
    // docs/reference/limits.md: about 700 bytes; tables grow by doubling.
    assert!((256..2048).contains(&each), "{out}");
}

#[test]
fn example_measures_half_round_trips() {
    let shop = workshop();
    let source = here().join("../../examples/c/vipl_pingpong.c");
    let flags = [&["-std=c11", "-O1", "-D_GNU_SOURCE"], SANITIZERS, STRICT].concat();
    let program = shop.build("cc", &source, &flags);
    for path in ["shm", "udp"] {
        let out = run_job(2, &["--path", path], &program, &["20"]);
        assert_eq!(out.lines().count(), 9, "{out}");
        assert!(
            out.starts_with("       1 bytes: ") && out.contains("by RDMA writes"),
            "{out}"
        );
        let out = run_job(2, &["--path", path], &program, &["100", "64"]);
        assert!(
            out.starts_with("64 bytes: ") && out.ends_with(" µs\n"),
            "{out}"
        );
    }
}
