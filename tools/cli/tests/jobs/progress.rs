// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that with `progress=thread` a process serves incoming requests while its program makes no
//! call.

use crate::common::payload::{check, payload};
use crate::common::ranks::joined;
use crate::common::{can_make_labs, wait_until};
use portolan::binding::Plumbing as _;
use portolan::{Access, AtomicOp, Node, Region, RemoteKey, RemoteTarget, Target};
use std::path::PathBuf;

ranks_of_this_module!(run_ranks);

const PORT: u16 = 1;

/// Number of puts, of gets and of additions.
const COUNT: u32 = 3_000;
const LEN: usize = 64;

/// Longer than any eager message.
const LONG: usize = 1 << 20;

/// Number of calls between computations in a scene of many short ones.
const ROUNDS: u32 = 200;

/// Environment variable with the file by which the other process reports that it was served.
const MARK: &str = "MARK_OF_TEST";

fn mark() -> PathBuf {
    PathBuf::from(std::env::var_os(MARK).unwrap())
}

/// Runs one rank of a job; not a test of its own.
#[test]
fn as_rank() {
    let Some(mut node) = joined(&[PORT]) else {
        return;
    };
    match node.rank() {
        0 => compute(&mut node),
        _ => ask(&mut node),
    }
    node.close().unwrap();
    println!("\nclosed");
}

/// Computes while other processes access this process's memory, and send to it.
fn compute(node: &mut Node) {
    let memory = Region::new(4096).unwrap();
    let region = node.register(memory, Access::BOTH).unwrap();
    let key = region.key().to_bytes();
    node.send(Target::new(1, PORT), &key).unwrap();
    let long = node.post_recv(PORT, vec![0; LONG]).unwrap();
    node.barrier().unwrap();
    let turns = node.turn_count();
    wait_until("the other was served", || mark().exists());
    assert_eq!(node.turn_count(), turns, "no call has made a turn");
    let done = node.wait(long).unwrap();
    check(&done.buffer.unwrap(), 1, 2, 0, LONG);

    // Calls and computations alternate: nothing may be lost, whichever thread serves.
    for round in 0..ROUNDS {
        let mut bytes = [0; 4];
        node.recv_from(1, PORT, &mut bytes).unwrap();
        assert_eq!(u32::from_le_bytes(bytes), round);
        if round % 10 == 0 {
            std::thread::sleep(std::time::Duration::from_millis(7));
        }
        node.send(Target::new(1, PORT), &bytes).unwrap();
    }
    node.barrier().unwrap();
    let memory = node.deregister(region).into_vec();
    check(&memory[8..8 + LEN], 1, 1, COUNT - 1, LEN);
    let sum = u64::from_le_bytes(memory[..8].try_into().unwrap());
    assert_eq!(sum, u64::from(COUNT));
}

fn ask(node: &mut Node) {
    let mut key = [0; 8];
    node.recv_from(0, PORT, &mut key).unwrap();
    let key = RemoteKey::from_bytes(key);
    node.barrier().unwrap();
    for index in 0..COUNT {
        let bytes = payload(1, 1, index, LEN);
        let at = RemoteTarget::new(0, key, 8);
        node.put(at, &bytes).unwrap();
        let mut back = [0; LEN];
        node.get(at, &mut back).unwrap();
        check(&back, 1, 1, index, LEN);
        let at = RemoteTarget::new(0, key, 0);
        node.atomic(at, AtomicOp::Sum, &[1_u64]).unwrap();
    }
    node.send(Target::new(0, PORT), &payload(1, 2, 0, LONG))
        .unwrap();
    std::fs::write(mark(), "").unwrap();
    for round in 0..ROUNDS {
        let mut bytes = round.to_le_bytes();
        node.send(Target::new(0, PORT), &bytes).unwrap();
        node.recv_from(0, PORT, &mut bytes).unwrap();
        assert_eq!(u32::from_le_bytes(bytes), round);
    }
    node.barrier().unwrap();
}

fn play(args: &[&str]) {
    let dir = tempfile::tempdir().unwrap();
    let mark = format!("{MARK}={}", dir.path().join("served").display());
    let own = ["--option", "progress=thread", "--env", &mark];
    let out = run_ranks(2, "progress", &[&own, args].concat()).succeeded(&format!("{args:?}"));
    assert_eq!(out.matches("closed").count(), 2, "{out}");
}

#[test]
fn a_process_that_computes_is_served_for_on_one_host() {
    play(&["--path", "shm"]);
    play(&["--path", "udp"]);
}

#[test]
fn a_process_that_computes_is_served_for_between_hosts() {
    if can_make_labs() {
        play(&["--new-lab", "2", "--path", "auto"]);
    }
}

#[test]
fn a_process_that_computes_is_served_for_under_loss() {
    play(&["--path", "udp", "--option", "fault=drop=0.01,seed=3"]);
}
