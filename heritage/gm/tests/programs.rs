// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs for GM: as jobs of a launcher, and as single processes.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../../interfaces/capi/tests/common/mod.rs"]
mod common;

use common::{
    SANITIZERS, STRICT, Workshop, checked, here, job, job_within, path_options, run_job, succeed,
    test_program,
};
use std::path::Path;
use std::process::Command;

fn workshop() -> Workshop {
    Workshop::new("gm", "libgm.so")
}

/// Checks that both processes complete on each path.
fn assert_both_done(program: &Path, ways: &[Vec<&str>], args: &[&str]) {
    common::assert_both_done(program, ways, args, ["node 1", "node 2"]);
}

#[test]
fn messages_arrive_on_every_path() {
    let shop = workshop();
    let program = checked(&shop, "messages.c");
    assert_both_done(&program, &path_options(), &[]);
}

#[test]
fn computing_node_serves_puts_and_gets_with_progress_thread() {
    let shop = workshop();
    let program = checked(&shop, "computing.c");
    for path in ["shm", "udp"] {
        let sent = shop.path().join(path);
        let options = vec!["--path", path, "--option", "progress=thread"];
        assert_both_done(&program, &[options], &[sent.to_str().unwrap()]);
    }
}

/// The replies use the same ports, other ports, and the other priority. Messages are short and
/// long.
#[test]
fn send_completes_before_its_reply_arrives() {
    let shop = workshop();
    let program = checked(&shop, "replies.c");
    assert_both_done(&program, &path_options(), &["order"]);
}

#[test]
fn memory_freed_while_sent_arrives_intact() {
    let shop = workshop();
    let program = checked(&shop, "replies.c");
    assert_both_done(&program, &path_options(), &["free"]);
}

#[test]
fn messages_arrive_with_gm_plus_options() {
    let shop = workshop();
    let program = checked(&shop, "messages.c");
    assert_both_done(&program, &path_options(), &["plus"]);
}

/// With a third of the frames lost, some of 3,000 messages are lost with any seed. Shared memory loses
/// none.
#[test]
fn best_effort_option_loses_what_the_network_loses() {
    let shop = workshop();
    let program = checked(&shop, "best_effort.c");
    assert_both_done(&program, &[vec!["--path", "shm"]], &[]);
    let lossy = vec!["--path", "udp", "--option", "fault=drop=0.3,seed=3"];
    assert_both_done(&program, &[lossy], &["lossy"]);
}

/// Number of sends of each node in `make test`; the long run uses MESSAGES.
const TRAFFIC: &str = "20000";

/// Number of sends within one host without loss, where they cost least.
const TRAFFIC_WITHIN_HOST: &str = "200000";

#[test]
fn tokens_are_conserved() {
    let shop = workshop();
    let program = checked(&shop, "traffic.c");
    assert_both_done(&program, &path_options(), &[TRAFFIC]);
    assert_both_done(&program, &[vec!["--path", "shm"]], &[TRAFFIC_WITHIN_HOST]);
}

/// Environment variable with the number of sends of each node in the long run.
const MESSAGES: &str = "GM_MESSAGES";

#[test]
#[ignore = "takes minutes; `make test-gm`"]
fn tokens_are_conserved_over_millions_of_messages() {
    let shop = workshop();
    let program = test_program(&shop, "traffic.c", &["-O2"]);
    let count = std::env::var(MESSAGES).unwrap_or("5000000".to_owned());
    let loss = ["--path", "udp", "--option", "fault=drop=0.01,seed=5"];
    for way in [&["--path", "shm"][..], &loss] {
        let out = succeed(&mut job_within("3600", 2, way, &program, &[&count]));
        println!("{way:?}\n{out}");
        assert!(out.contains("node 1 is done") && out.contains("node 2 is done"));
    }
}

#[test]
fn priorities_and_failures_are_independent() {
    let shop = workshop();
    let program = checked(&shop, "lanes.c");
    assert_both_done(&program, &path_options(), &[]);
}

/// Measured by the allocator, so without sanitizers, which replace it.
#[test]
fn memory_per_peer_matches_documented_limit() {
    let shop = workshop();
    let program = test_program(&shop, "peers.c", &[]);
    for path in ["shm", "udp"] {
        let out = run_job(33, &["--path", path], &program, &[]);
        let each = out.split(' ').next().unwrap().parse::<u32>().unwrap();
        // docs/reference/limits.md: 3 to 5 KiB, and more with few peers.
        assert!((512..12_000).contains(&each), "{path}: {out}");
    }
}

/// A send to a receiver that never provides a buffer fails after 0.5 s.
#[test]
fn failed_send_stops_only_its_connection() {
    let shop = workshop();
    let program = checked(&shop, "errors.c");
    let ways: Vec<_> = path_options()
        .into_iter()
        .map(|way| [&way[..], &["--env", "GM_SEND_TIMEOUT=500"]].concat())
        .collect();
    assert_both_done(&program, &ways, &[]);
}

#[test]
fn closing_a_port_returns_send_buffers() {
    let shop = workshop();
    let program = checked(&shop, "closing.c");
    assert_both_done(&program, &path_options(), &[]);
}

#[test]
fn message_after_main_is_not_written() {
    let shop = workshop();
    let program = checked(&shop, "leaving.c");
    for path in ["shm", "udp"] {
        let out = run_job(2, &["--path", path], &program, &[]);
        assert_eq!(out, "nothing was written\n", "{path}");
    }
}

/// Their first connection opens at exit, when a thread no longer has thread-local variables.
#[test]
fn processes_without_traffic_exit_cleanly() {
    let shop = workshop();
    let program = checked(&shop, "idle.c");
    for way in path_options() {
        let output = job(2, &way, &program, &[]).output().unwrap();
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && err.is_empty(), "{way:?}: {err}");
    }
}

#[test]
fn threads_wait_concurrently() {
    let shop = workshop();
    let program = checked(&shop, "threads.c");
    assert_both_done(
        &program,
        &[vec!["--path", "shm"], vec!["--path", "udp"]],
        &[],
    );
}

#[test]
fn sender_is_notified_of_killed_peer() {
    let shop = workshop();
    let program = checked(&shop, "killed.c");
    for path in ["shm", "udp"] {
        let output = job(2, &["--path", path], &program, &[]).output().unwrap();
        let out = String::from_utf8_lossy(&output.stdout);
        assert!(out.contains("node 1 was notified"), "{path}: {output:?}");
    }
}

#[test]
fn all_functions_work_in_a_job_of_one() {
    let shop = workshop();
    let program = checked(&shop, "single.c");
    let out = succeed(&mut Command::new(program));
    assert!(out.contains("all is as it should be"), "{out}");
    assert!(out.contains("00000010 67 68 69\n"), "{out}");
}

#[test]
fn utility_modules_work() {
    let shop = workshop();
    let program = checked(&shop, "utilities.c");
    assert_eq!(succeed(&mut Command::new(program)), "all modules work\n");
}

/// Mistakes that have no status, with the message and the exit status.
const MISTAKES: &[(&str, &str, i32)] = &[
    ("abort", "gm: the program called gm_abort()", 1),
    ("exit", "", 0),
    ("exit badly", "", 1),
    ("no port", "gm_receive(): the pointer is not a port", 1),
    (
        "no buffer",
        "gm_provide_receive_buffer_with_tag(): the buffer is null",
        1,
    ),
    ("no size", "size 32 is above 31", 1),
    (
        "no priority",
        "priority 2 is neither 0 (low) nor 1 (high)",
        1,
    ),
    ("no tag", "tag 256 is above 255", 1),
    ("no node", "gm_drop_sends(): node 2 does not exist", 1),
    (
        "no such port",
        "gm_resume_sending(): port 8 does not exist",
        1,
    ),
    (
        "no account",
        "gm_free_send_token(): priority 2 is neither 0 (low) nor 1 (high)",
        1,
    ),
    ("no event", "gm_unknown(): event is null", 1),
    ("no alarm", "gm_initialize_alarm(): alarm is null", 1),
    (
        "no callback",
        "gm_set_alarm(): alarm or callback is null",
        1,
    ),
    (
        "no memory",
        "gm_dma_free(): the memory is not from gm_dma_malloc()",
        1,
    ),
    (
        "no use",
        "gm_finalize(): called without a preceding gm_init()",
        1,
    ),
    ("failed send", "gm: a send without a callback has failed", 1),
    (
        "too many sends",
        "gm: the program has sent without a send token",
        1,
    ),
];

#[test]
fn mistakes_without_a_status_end_the_job_with_a_message() {
    let shop = workshop();
    let program = checked(&shop, "single.c");
    for (mistake, text, status) in MISTAKES {
        let output = Command::new(&program).arg(mistake).output().unwrap();
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(err.contains(text), "{mistake}: {text} is missing in\n{err}");
        assert_eq!(output.status.code(), Some(*status), "{mistake}: {err}");
    }
}

#[test]
fn invalid_settings_are_refused() {
    let shop = workshop();
    let source = shop.path().join("open.c");
    let text = "#include <gm.h>\nint main(void) { struct gm_port *p;\n\
                int status = gm_open(&p, 0, 2, \"x\", GM_API_VERSION);\n\
                printf(\"%d %s\", status, gm_last_error()); return 0; }\n";
    std::fs::write(&source, text).unwrap();
    let program = shop.build("cc", &source, STRICT);
    for (name, value) in [("GM_PLUS", "fast"), ("GM_SEND_TIMEOUT", "soon")] {
        let out = succeed(Command::new(&program).env(name, value));
        let expected = format!("8 {name} ");
        assert!(out.starts_with(&expected) && out.contains(value), "{out}");
    }
    let out = succeed(Command::new(&program).env("GM_PLUS", "inline,unacknowledged"));
    assert_eq!(out, "0 ");
}

#[test]
fn example_measures_all_sizes() {
    let shop = workshop();
    let source = here().join("../../examples/c/gm_allsize.c");
    let flags = [&["-std=c11", "-O1", "-D_GNU_SOURCE"], SANITIZERS, STRICT].concat();
    let program = shop.build("cc", &source, &flags);
    for plus in ["", "inline,unacknowledged"] {
        let plus = format!("GM_PLUS={plus}");
        let options = ["--path", "shm", "--env", &plus];
        let out = run_job(2, &options, &program, &["20"]);
        assert_eq!(out.lines().count(), 18, "{out}");
        assert!(out.starts_with("       0 bytes: "), "{out}");
        let out = run_job(2, &options, &program, &["100", "64"]);
        assert!(
            out.starts_with("64 bytes: ") && out.ends_with(" µs\n"),
            "{out}"
        );
    }
}
