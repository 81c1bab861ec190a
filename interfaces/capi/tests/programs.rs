// SPDX-License-Identifier: MIT OR Apache-2.0
//! C programs against the library, under the address and undefined-behaviour sanitizers.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{Workshop, checked, job, run_job, succeed};
use std::process::Command;

#[test]
fn every_mistake_has_a_name() {
    let shop = Workshop::new("portolan", "libportolan_c.so");
    let out = succeed(&mut Command::new(checked(&shop, "misuse.c")));
    assert!(out.contains("all mistakes were named"), "{out}");
}

#[test]
fn messages_groups_and_event_loops_work_from_c() {
    let shop = Workshop::new("portolan", "libportolan_c.so");
    let program = checked(&shop, "messages.c");
    for (count, path) in [(2, "shm"), (3, "udp")] {
        let model = ["--option", "model=off"];
        let options = ["--path", path, "--option", "app.colour=purple"];
        let out = run_job(count, &[&options[..], &model].concat(), &program, &[]);
        let done = out.matches("all messages came").count();
        assert_eq!(done, count as usize, "{out}");
    }
}

/// Every call that only the dead could have ended ends with an error that names it. That takes
/// less than a second; the limit leaves room for a machine that does ten things at once, and is
/// still far below the job's patience with the silent.
#[test]
fn the_others_are_told_who_was_killed() {
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
                out.matches("lives on").count(),
                2,
                "{path} {call}: {out}{err}"
            );
        }
    }
}
