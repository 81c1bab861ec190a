// SPDX-License-Identifier: MIT OR Apache-2.0
//! GAMMA programs, run by a launcher, and started alone so that they spawn the other processes.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../../interfaces/capi/tests/common/mod.rs"]
mod common;

use common::{
    SANITIZERS, STRICT, Workshop, checked, here, job, launcher, run_job, succeed, test_program,
};
use std::process::Command;

fn workshop() -> Workshop {
    Workshop::new("gamma", "libgamma.so")
}

#[test]
fn every_mistake_returns_its_error() {
    let shop = workshop();
    for flags in [SANITIZERS, &[]] {
        let program = test_program(&shop, "misuse.c", flags);
        let out = succeed(&mut Command::new(program));
        assert!(out.contains("all mistakes were named"), "{out}");
    }
}

/// Among about 2000 frames many are hit by the fault, with any seed.
#[test]
fn non_blocking_sends_are_reliable_under_loss() {
    let shop = workshop();
    let program = checked(&shop, "lossy.c");
    let fault = "fault=drop=0.1,dup=0.02,reorder=0.05,seed=11";
    let out = run_job(2, &["--path", "udp", "--option", fault], &program, &[]);
    assert_eq!(out.matches("has all messages").count(), 2, "{out}");
}

/// Runs over shared memory, which loses nothing, and over the loopback interface, which loses
/// nothing while one message is in flight. The loopback is used with its own frame length, and with
/// many frames of Ethernet's length.
#[test]
fn best_effort_messages_one_at_a_time_arrive() {
    let shop = workshop();
    let program = checked(&shop, "best_effort.c");
    let ethernet = ["--path", "udp", "--option", "frame_len_max=1472"];
    for path in [&["--path", "shm"][..], &["--path", "udp"], &ethernet] {
        let options = [path, &["--env", "GAMMA_QOS=best-effort"]].concat();
        let out = run_job(2, &options, &program, &[]);
        assert_eq!(out.matches("lost nothing").count(), 2, "{path:?}: {out}");
    }
}

/// The receiver waits, without a call, for the completion of sends to itself.
#[test]
fn progress_thread_receives_while_program_computes() {
    let shop = workshop();
    let program = checked(&shop, "busy.c");
    for path in ["shm", "udp"] {
        let sent = shop.path().join(path);
        let options = ["--path", path, "--option", "progress=thread"];
        let out = run_job(2, &options, &program, &[sent.to_str().unwrap()]);
        assert_eq!(out, "node 0 has all messages\n", "{path}");
    }
}

#[test]
fn handlers_run_while_program_computes_if_port_asks() {
    let shop = workshop();
    let program = checked(&shop, "at_once.c");
    for path in ["shm", "udp"] {
        let out = run_job(2, &["--path", path], &program, &[]);
        assert_eq!(out.matches("is done").count(), 2, "{path}: {out}");
    }
}

#[test]
fn groups_on_one_host_are_separate() {
    let shop = workshop();
    let program = checked(&shop, "groups.c");
    let groups: Vec<_> = [("a", "auto"), ("b", "udp"), ("c", "udp")]
        .into_iter()
        .map(|(name, path)| {
            let program = program.clone();
            std::thread::spawn(move || (name, run_job(3, &["--path", path], &program, &[name])))
        })
        .collect();
    for group in groups {
        let (name, out) = group.join().unwrap();
        for node in 0..3 {
            let line = format!("{name}: node {node} of 3");
            assert!(out.contains(&line), "{line} is missing in\n{out}");
        }
    }
}

#[test]
fn groups_of_one_job_send_to_each_other() {
    let shop = workshop();
    let program = checked(&shop, "sides.c");
    for (count, nodes, path) in [(4, 2, "shm"), (3, 1, "udp")] {
        let out = run_job(count, &["--path", path], &program, &[&nodes.to_string()]);
        for (group, node) in (0..count).map(|rank| (rank / nodes, rank % nodes)) {
            let line = format!("group {group}: node {node} is done");
            assert!(out.contains(&line), "{line} is missing in\n{out}");
        }
    }
}

#[test]
fn processes_too_few_for_groups_are_refused() {
    let shop = workshop();
    let program = checked(&shop, "refused.c");
    let out = run_job(3, &[], &program, &[]);
    assert_eq!(out.matches("was refused").count(), 3, "{out}");
}

#[test]
fn other_nodes_are_notified_of_killed_node() {
    let shop = workshop();
    let program = checked(&shop, "killed.c");
    for path in ["shm", "udp"] {
        let output = job(3, &["--path", path], &program, &[]).output().unwrap();
        let out = String::from_utf8_lossy(&output.stdout);
        assert_eq!(out.matches("was notified: rank 2").count(), 2, "{output:?}");
    }
}

#[test]
fn abort_ends_the_group() {
    let shop = workshop();
    let program = checked(&shop, "abort.c");
    for args in [&[][..], &["from a handler"]] {
        let output = job(3, &[], &program, args).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
    }
}

#[test]
fn ports_semaphores_and_collectives_work() {
    let shop = workshop();
    let program = checked(&shop, "ports.c");
    for (count, path) in [(2, "shm"), (3, "udp")] {
        let nodes = format!("NODES={count}");
        let options = ["--path", path, "--env", &nodes];
        let out = run_job(count, &options, &program, &["argument"]);
        for node in 0..count {
            let line = format!("node {node} of {count} is done");
            assert!(out.contains(&line), "{line} is missing in\n{out}");
        }
    }
}

#[test]
fn single_process_spawns_its_group() {
    let shop = workshop();
    let program = checked(&shop, "ports.c");
    let run = format!("{} run --timeout 100 --env NODES=2", launcher().display());
    let mut alone = Command::new(&program);
    let out = succeed(
        alone
            .arg("argument")
            .env("NODES", "2")
            .env("GAMMA_RUN", run),
    );
    assert!(out.contains("node 0 of 2 is done"), "{out}");
    assert!(out.contains("node 1 of 2 is done"), "{out}");
}

#[test]
fn example_prints_latency_and_bandwidth() {
    let shop = workshop();
    let source = here().join("../../examples/c/gamma_pingpong.c");
    let program = shop.build("cc", &source, &[&["-std=c11", "-O1"], STRICT].concat());
    let out = run_job(2, &["--path", "shm"], &program, &["2"]);
    let words: Vec<&str> = out.split_whitespace().collect();
    let [
        "latency",
        latency,
        "µs,",
        "asymptotic",
        "bandwidth",
        bandwidth,
        _,
        _,
        _,
        half,
        "bytes",
    ] = words[..]
    else {
        panic!("{out}");
    };
    assert!(latency.parse::<f64>().unwrap() > 0.0, "{out}");
    assert!(bandwidth.parse::<f64>().is_ok(), "{out}");
    assert!(half.parse::<u64>().unwrap() > 0, "{out}");
}

#[test]
fn missing_launcher_is_reported() {
    let shop = workshop();
    let source = shop.path().join("alone.c");
    let text = "#include <gamma.h>\n#include <stdio.h>\nint main(int argc, char **argv) {\n\
                int code = gamma_init(2, argc, argv);\n\
                printf(\"%d %s\", code == GAMMA_ERR_LAUNCH, gamma_last_error()); return 0; }\n";
    std::fs::write(&source, text).unwrap();
    let program = shop.build("cc", &source, STRICT);
    let out = succeed(Command::new(program).env("GAMMA_RUN", "/nowhere/portolan run"));
    assert!(
        out.starts_with("1 cannot start 2 processes with `/nowhere/portolan run`"),
        "{out}"
    );
}
