// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that waiting processes use no CPU, and that more processes than cores make progress.

use crate::common;
use crate::common::can_make_labs;
use crate::common::payload::{check, mixed_len, payload};
use crate::common::ranks::role;
use nix::sys::resource::{UsageWho, getrusage};
use portolan::binding::Plumbing as _;
use portolan::{Node, PortConfig, Target};
use std::process::Command;
use std::time::Duration;

ranks_of_this_module!(run_ranks);

/// Duration for which a rank waits.
const WAIT: Duration = Duration::from_secs(5);

/// Largest number of wake-ups in that time: 25 per second. About 10 are typical: 5 for liveness
/// probes of the awaited rank, and 5 for its answers.
const WAKEUPS_MAX: u64 = 5 * 25;

/// Probes or answers in that time: 5 per second, to the awaited rank or to the waiting one. A probe
/// that a loaded machine delays is repeated (`P9.3`). So is a probe of another rank with
/// unacknowledged messages, which causes further wake-ups.
const QUESTIONS: u64 = 5 * 5;

/// Wake-ups by the probe's timer, by its answer, and for a retransmission.
const WAKEUPS_PER_QUESTION: u64 = 3;

/// Largest number of turns in that time: 1 ms of spinning has fewer, 5 s have a hundred million.
const TURNS_MAX: u32 = 1_000_000;

const PORT: u16 = 1;

/// Runs one rank of a job; not a test of its own.
#[test]
fn as_rank() {
    let Some(role) = role() else { return };
    let mut node = Node::join().unwrap();
    node.open(PORT, PortConfig::default()).unwrap();
    node.barrier().unwrap();
    match role.as_str() {
        "idle" => idle(&mut node),
        "all to all" => all_to_all(&mut node),
        other => panic!("no role {other}"),
    }
    node.barrier().unwrap();
}

/// Returns how often a thread of this process slept and was woken.
fn wakeups() -> u64 {
    let usage = getrusage(UsageWho::RUSAGE_SELF).unwrap();
    usage.voluntary_context_switches().try_into().unwrap()
}

/// Rank 0 is late. Rank 1 waits for it alone, rank 2 for any rank, rank 3 for the barrier.
fn idle(node: &mut Node) {
    let before = (wakeups(), node.turn_count(), node.question_count());
    match node.rank() {
        0 => {
            std::thread::sleep(WAIT);
            for to in 1..node.size().min(3) {
                node.send(Target::new(to, PORT), b"sorry").unwrap();
            }
        }
        1 => assert_eq!(node.recv_from(0, PORT, &mut [0; 8]).unwrap().len, 5),
        2 => assert_eq!(node.recv(PORT, &mut [0; 8]).unwrap().len, 5),
        _ => node.barrier().unwrap(),
    }
    let wakeups = wakeups() - before.0;
    let turns = node.turn_count().wrapping_sub(before.1);
    let questions = node.question_count() - before.2;
    println!("\nslept {wakeups} times, {turns} turns, {questions} questions and answers");
    let repeated = questions.saturating_sub(QUESTIONS);
    let wakeups_max = WAKEUPS_MAX + WAKEUPS_PER_QUESTION * repeated;
    assert!(wakeups <= wakeups_max, "more than {wakeups_max} wake-ups");
    assert!(turns < TURNS_MAX, "{turns} turns");
    if node.rank() != 3 {
        node.barrier().unwrap();
    }
}

/// Exchanges messages between all ranks in rounds of windows, in which each rank waits for all.
fn all_to_all(node: &mut Node) {
    const COUNT: u32 = 60;
    for index in 0..COUNT {
        for to in 0..node.size() {
            let bytes = payload(node.rank(), to, index, mixed_len(index));
            node.isend_copy(Target::new(to, PORT), &bytes).unwrap();
        }
        for from in 0..node.size() {
            let mut buffer = vec![0; mixed_len(index)];
            let got = node.recv_from(from, PORT, &mut buffer).unwrap();
            check(
                &buffer[..got.len],
                from,
                node.rank(),
                index,
                mixed_len(index),
            );
        }
    }
}

fn assert_idle(count: u32, args: &[&str]) {
    let out = run_ranks(count, "idle", args).succeeded(&format!("{args:?}"));
    assert_eq!(out.matches("slept ").count(), count as usize, "{out}");
}

#[test]
fn waiting_costs_nothing_over_shared_memory() {
    assert_idle(3, &["--path", "shm"]);
}

#[test]
fn waiting_costs_nothing_over_udp() {
    assert_idle(3, &["--path", "udp"]);
}

#[test]
fn waiting_costs_nothing_between_hosts() {
    if can_make_labs() {
        assert_idle(4, &["--new-lab", "2", "--path", "auto"]);
    }
}

#[test]
fn waiting_costs_nothing_over_raw_ethernet() {
    if can_make_labs() {
        assert_idle(2, &["--new-lab", "2", "--path", "packet"]);
    }
}

#[test]
fn more_ranks_than_cores_exchange_with_one_another() {
    for path in ["shm", "udp"] {
        run_ranks(8, "all to all", &["--path", path]).succeeded(path);
    }
}

#[test]
fn more_ranks_than_cores_exchange_over_the_network() {
    if can_make_labs() {
        run_ranks(8, "all to all", &["--new-lab", "2"]).succeeded("in a lab");
    }
}

fn solve(args: &[&str]) {
    let (heat, dir) = (common::built("heat", "heat"), tempfile::tempdir().unwrap());
    let input = dir.path().join("in.pgm");
    let (heat, input) = (heat.to_str().unwrap(), input.to_str().unwrap());
    let sample = Command::new(heat)
        .args(["--make-input", "200", "150", input])
        .status();
    assert!(sample.unwrap().success());
    let run = ["run", "-n", "8", "--timeout", "100"];
    let program = ["--", heat, input, "--steps", "200", "--check"];
    let out = common::run(&[&run, args, &program].concat()).succeeded(&format!("heat {args:?}"));
    assert!(
        out.contains("all 30000 cells equal the sequential solution"),
        "{out}"
    );
}

#[test]
fn heat_is_right_with_more_ranks_than_cores() {
    for path in ["shm", "udp"] {
        solve(&["--path", path]);
    }
    if can_make_labs() {
        solve(&["--new-lab", "2"]);
    }
}
