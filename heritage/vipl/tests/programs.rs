// SPDX-License-Identifier: MIT OR Apache-2.0
//! VIPL programs, run as jobs of a launcher, and as single processes.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../../interfaces/capi/tests/common/mod.rs"]
mod common;

use common::{
    SANITIZERS, STRICT, Workshop, checked, here, job, run_job, succeed, test_program, ways,
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
fn messages_arrive_whichever_way_they_go() {
    let shop = workshop();
    let program = checked(&shop, "messages.c");
    assert_both_done(&program, &ways(), &[]);
}

#[test]
fn memory_is_written_and_read_from_afar() {
    let shop = workshop();
    let program = checked(&shop, "rdma.c");
    assert_both_done(&program, &ways(), &[]);
}

#[test]
fn what_fails_is_told_as_the_level_promises() {
    let shop = workshop();
    let program = checked(&shop, "errors.c");
    for way in ways() {
        let is_lossy = way.iter().any(|word| word.starts_with("fault="));
        let args: &[&str] = if is_lossy { &["lossy"] } else { &[] };
        assert_both_done(&program, &[way], args);
    }
}

#[test]
fn a_completion_queue_of_many_keeps_the_order_of_each() {
    let shop = workshop();
    let program = checked(&shop, "queues.c");
    assert_both_done(&program, &ways(), &[]);
}

#[test]
fn connections_come_about_or_are_refused() {
    let shop = workshop();
    let program = checked(&shop, "meetings.c");
    assert_both_done(&program, &ways(), &[]);
}

/// The network decides which messages are lost. The assertions check what each level guarantees.
#[test]
fn a_network_that_loses_frames_is_seen_by_no_level_but_the_unreliable() {
    let shop = workshop();
    let program = checked(&shop, "loss.c");
    let more = ["--path", "udp", "--option", "fault=drop=0.1,seed=7"];
    let ways = [ways(), vec![more.to_vec()]].concat();
    assert_both_done(&program, &ways, &[]);
}

#[test]
fn who_was_killed_is_known_to_the_other_side() {
    let shop = workshop();
    let program = checked(&shop, "death.c");
    for path in ["shm", "udp"] {
        let output = job(2, &["--path", path], &program, &[]).output().unwrap();
        let out = String::from_utf8_lossy(&output.stdout);
        assert!(out.contains("process 0 was told"), "{path}: {output:?}");
    }
}

#[test]
fn functions_of_the_program_are_called_while_it_sleeps() {
    let shop = workshop();
    let program = checked(&shop, "notify.c");
    assert_both_done(&program, &ways(), &[]);
}

#[test]
fn a_job_of_one_has_all_but_others() {
    let shop = workshop();
    let program = checked(&shop, "alone.c");
    let hosts = shop.path().join("hosts");
    let out = succeed(Command::new(program).arg(hosts));
    assert_eq!(out, "all is as it should be\n");
}

/// Built without sanitizers, which replace the allocator that measures the memory of a VI.
#[test]
fn a_thousand_vis_take_as_much_memory_as_the_limits_say() {
    let shop = workshop();
    let program = test_program(&shop, "many.c", &[]);
    let out = succeed(&mut Command::new(program));
    let each: u32 = out.strip_suffix(" bytes a VI\n").unwrap().parse().unwrap();
    // docs/reference/limits.md: some 700 bytes; tables grow by doubling.
    assert!((256..2048).contains(&each), "{out}");
}

#[test]
fn half_round_trips_are_measured() {
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
