// SPDX-License-Identifier: MIT OR Apache-2.0
//! BIP programs, run as jobs of a launcher.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../../interfaces/capi/tests/common/mod.rs"]
mod common;

use common::{
    STRICT, UNDEFINED, Workshop, checked, here, job, path_options, run_job, test_program,
};
use std::process::Command;

fn workshop() -> Workshop {
    Workshop::new("bip", "libbip.so")
}

#[test]
fn messages_arrive_on_every_path() {
    let shop = workshop();
    let program = checked(&shop, "messages.c");
    for way in path_options() {
        let out = run_job(2, &way, &program, &[]);
        for node in 0..2 {
            let line = format!("node {node} of 2 is done");
            assert!(out.contains(&line), "{way:?}: {line} is missing in\n{out}");
        }
    }
}

#[test]
fn messages_arrive_among_four_nodes() {
    let shop = workshop();
    let program = checked(&shop, "messages.c");
    let out = run_job(4, &[], &program, &[]);
    assert_eq!(out.matches("of 4 is done").count(), 4, "{out}");
}

/// Among thousands of frames many are hit by the fault, with any seed.
#[test]
fn messages_are_reliable_under_loss() {
    let shop = workshop();
    let program = checked(&shop, "lossy.c");
    let fault = "fault=drop=0.1,dup=0.02,reorder=0.05,seed=11";
    let out = run_job(2, &["--path", "udp", "--option", fault], &program, &[]);
    assert_eq!(out.matches("has all messages").count(), 2, "{out}");
}

#[test]
fn message_sent_before_exit_arrives() {
    let shop = workshop();
    let program = checked(&shop, "exit.c");
    for path in ["shm", "udp"] {
        let out = run_job(2, &["--path", path], &program, &[]);
        assert!(out.contains("all words were received"), "{out}");
    }
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

/// Each mistake, with its expected error message.
const MISTAKES: &[(&str, &str)] = &[
    ("send too early", "bip_send(): call bip_init() first"),
    ("receive too early", "bip_trecv(): call bip_init() first"),
    (
        "negative tag",
        "bip_taginit(): tag -1 is not between 0 and 65535",
    ),
    ("long buffers", "bip_taginit(): buffers of 65 words exceed"),
    ("no buffers", "bip_taginit(): the number of buffers is -1"),
    (
        "to itself",
        "node 1: bip_send(): a node cannot send to itself",
    ),
    ("to a missing node", "bip_tsend(): node 2 does not exist"),
    ("to a negative node", "bip_tisend(): node -1 does not exist"),
    ("tag too high", "bip_tsend(): tag 65536"),
    ("negative length", "bip_send(): the length is -1 words"),
    ("nowhere", "bip_isend(): the buffer is null"),
    ("two sends", "bip_tisend(): a send is in progress"),
    ("a send beside one", "bip_send(): a send is in progress"),
    (
        "no such send",
        "bip_swait(): 3 is not the number of the last send",
    ),
    (
        "no send",
        "bip_stest(): 0 is not the number of the last send",
    ),
    ("into nowhere", "bip_recv(): the buffer is null"),
    ("into less", "bip_trecv(): the length is -1 words"),
    ("from tag -1", "bip_trecv(): tag -1"),
    (
        "no pointer for the source",
        "bip_trecvx(): the pointer for a result is null",
    ),
    ("no pointer for the host", "bip_rtestx(): host is null"),
    ("no pointer for the sender", "bip_tnrecvx(): src is null"),
    (
        "no pointer for the length",
        "bip_tgetmsg(): the pointer for a result is null",
    ),
    (
        "two receives",
        "bip_tirecv(): a receive of messages with tag 5 is in progress",
    ),
    (
        "a receive beside one",
        "bip_trecv(): a receive of messages with tag 5 is in progress",
    ),
    (
        "no such receive",
        "bip_rwait(): 77 is not the number of a receive",
    ),
    (
        "no receive",
        "bip_rtest(): -1 is not the number of a receive",
    ),
    (
        "an old receive",
        "bip_rtest(): 196608 is not the number of a receive, or a later",
    ),
    (
        "too short",
        "bip_trecv(): message of 400 bytes from rank 0 with tag 0x5",
    ),
    (
        "too short, begun",
        "bip_rwait(): message of 400 bytes from rank 0 with tag 0x5",
    ),
    (
        "long in place",
        "bip_tgetmsg(): the first message with tag 5 has 100 words, more than 64",
    ),
    (
        "read twice",
        "bip_tgetmsg(): the last message with tag 6 was not released",
    ),
    (
        "received while it is read",
        "bip_trecv(): the last message with tag 6 was not released",
    ),
    (
        "released twice",
        "bip_tfreemsg(): no message with tag 5 is to be released",
    ),
    ("begun twice", "bip_init(): called more than once"),
    (
        "reserved too late",
        "bip_taginit(): call it before bip_init()",
    ),
    (
        "two threads",
        "bip_send(): another thread is inside the library",
    ),
    (
        "in a child",
        "bip_send(): this process was forked after its parent joined",
    ),
    ("in a child", "bip_tfreemsg(): no message with tag 5"),
];

/// BIP ends the job at the first mistake. No process continues or hangs.
#[test]
fn every_mistake_is_named_and_ends_the_job() {
    let shop = workshop();
    let program = checked(&shop, "mistakes.c");
    // GCC 12's address sanitizer does not prepare its memory for a fork beside another thread. The
    // child may wait forever for a lock of that thread.
    let forking = test_program(&shop, "mistakes.c", UNDEFINED);
    for (mistake, text) in MISTAKES {
        let program = match *mistake {
            "in a child" => &forking,
            _ => &program,
        };
        let output = job(2, &[], program, &[mistake]).output().unwrap();
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
        assert!(
            MISTAKES.iter().any(|(mistake, _)| *mistake == name),
            "{name}"
        );
    }
}

#[test]
fn send_to_killed_node_is_reported() {
    let shop = workshop();
    let program = checked(&shop, "killed.c");
    for path in ["shm", "udp"] {
        let output = job(2, &["--path", path], &program, &[]).output().unwrap();
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(err.contains("bip_tsend(): rank 1"), "{err}");
        assert!(!output.status.success(), "{err}");
    }
}

#[test]
fn single_process_is_a_job_of_one() {
    let shop = workshop();
    let source = shop.path().join("alone.c");
    let text = "#include <bip.h>\n#include <stdio.h>\nint main(void) { bip_init();\n\
                printf(\"%d of %d\", bip_mynode, bip_numnodes); return 0; }\n";
    std::fs::write(&source, text).unwrap();
    let program = shop.build("cc", &source, STRICT);
    let output = Command::new(program).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "0 of 1");
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn example_passes_message_around_ring() {
    let shop = workshop();
    let source = here().join("../../examples/c/bip_ring.c");
    let flags = [
        &["-std=c11", "-O1", "-D_GNU_SOURCE"],
        common::SANITIZERS,
        STRICT,
    ]
    .concat();
    let program = shop.build("cc", &source, &flags);
    let out = run_job(3, &[], &program, &["5"]);
    assert_eq!(out, "5 laps through 3 nodes: 15\n");
    let out = run_job(2, &["--path", "shm"], &program, &["100", "64"]);
    assert!(
        out.starts_with("64 bytes: ") && out.ends_with(" µs\n"),
        "{out}"
    );
}
