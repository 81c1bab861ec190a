// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that accepted messages arrive, however late they are received, and even if their sender
//! has ended.

mod hangs;

use crate::common::payload::{check, payload};
use crate::common::ranks::{joined, role};
use crate::common::{can_make_labs, kill, wait_until};
use portolan::{Completion, Error, Node, Request, TagTarget, Target};
use std::path::PathBuf;
use std::time::Duration;

ranks_of_this_module!(run_ranks, ranks_command);

const PORT: u16 = 1;
const OTHER: u16 = 2;

/// Number of messages: within the credit of a lane, and more than a ring holds.
const COUNT: u32 = 100;
const LEN: usize = 4000;

/// Longer than any wait of the library for a receiver that posts no receive.
const LATE: Duration = Duration::from_millis(1300);

/// Environment variable with the file by which a receiver reports that it has everything.
const MARK: &str = "MARK_OF_TEST";

/// Runs one rank of a job; not a test of its own.
#[test]
fn as_rank() {
    let Some(mut node) = joined(&[PORT, OTHER]) else {
        return;
    };
    let role = role().unwrap();
    if role.starts_with("hang: ") {
        return hangs::play(node, &role);
    }
    match (role.as_str(), node.rank()) {
        ("late", 0) => send_all(&mut node, 1),
        ("late", _) => receive_late(&mut node),
        ("tagged", 0) => send_all_tagged(&mut node),
        ("tagged", _) => receive_tagged_late(&mut node),
        ("copies", 0) => {
            // More than credit allows to leave before the receives are posted.
            for index in 0..3 * COUNT {
                let bytes = payload(0, 1, index, LEN);
                node.isend_copy(Target::new(1, PORT), &bytes).unwrap();
            }
        }
        ("copies", _) => {
            std::thread::sleep(LATE);
            receive(&mut node, 3 * COUNT);
        }
        ("killed", 0) => {
            send_all(&mut node, 1);
            kill(i32::try_from(std::process::id()).unwrap(), "-9");
        }
        ("killed", _) => receive_late(&mut node),
        ("unread", _) => send_unread(&mut node),
        (role, 0) if role.starts_with("away") => {
            begin_burst(&mut node, role);
            // No call of the library is made meanwhile.
            wait_until("the receiver has all", || mark().exists());
        }
        (role, _) if role.starts_with("away") => {
            let len = if role.ends_with("short") { 8 } else { LEN };
            for index in 0..2 * COUNT {
                let mut bytes = vec![0; len];
                node.recv(PORT, &mut bytes).unwrap();
                check(&bytes, 0, 1, index, len);
            }
            std::fs::write(mark(), "").unwrap();
            println!("\ngot all");
        }
        ("last", 0) => node.send(Target::new(1, PORT), b"bye").unwrap(),
        ("last", _) => receive_last(&mut node),
        // Messages that are never received; then the longest message that a send copies.
        ("unasked", 0) => {
            for len in [20_000, 50_000, 65_536] {
                node.send(Target::new(1, OTHER), &payload(0, 2, 0, len))
                    .unwrap();
            }
        }
        ("unasked", _) => receive_what_is_not_sent(&mut node),
        ("looked for", 0) => {}
        ("looked for", _) => poll_for_killed_rank(&mut node),
        ("oneself", _) => send_to_oneself(&mut node),
        ("mutual", _) => send_to_one_another(&mut node),
        other => panic!("no such role: {other:?}"),
    }
    node.close().unwrap();
    println!("\nclosed");
}

fn send_all_tagged(node: &mut Node) {
    for index in 0..COUNT {
        let to = TagTarget::new(1, u64::from(index));
        node.send_tagged(to, &payload(0, 1, index, LEN)).unwrap();
    }
}

fn receive_tagged_late(node: &mut Node) {
    std::thread::sleep(LATE);
    for index in (0..COUNT).rev() {
        let mut bytes = vec![0; LEN];
        let tag = portolan::TagMatch::new(u64::from(index));
        node.recv_tagged(tag, &mut bytes).unwrap();
        check(&bytes, 0, 1, index, LEN);
    }
    println!("\ngot all");
}

/// Sends messages of all kinds that the other rank will not receive.
fn send_unread(node: &mut Node) {
    let to = 1 - node.rank();
    for index in 0..3 * COUNT {
        let bytes = payload(node.rank(), 1, index, LEN);
        node.isend_copy(Target::new(to, PORT), &bytes).unwrap();
    }
    node.isend_copy(Target::new(to, 77), &[1; 300_000]).unwrap();
    node.isend_tagged_copy(TagTarget::new(to, 7), &[1; 300_000])
        .unwrap();
}

/// Sends and receives; both ranks send before they receive.
fn send_to_one_another(node: &mut Node) {
    let (rank, other) = (node.rank(), 1 - node.rank());
    for len in [1, 5_000, 16_385, 40_000, Node::BUFFERED_LEN_MAX] {
        let bytes = payload(rank, 1, 0, len);
        node.send(Target::new(other, PORT), &bytes).unwrap();
        let mut got = vec![0; len];
        node.recv_from(other, PORT, &mut got).unwrap();
        check(&got, other, 1, 0, len);
    }
}

/// Receives from any rank until no other is left, and continues to send to itself.
fn receive_last(node: &mut Node) {
    let mut bytes = [0; 8];
    assert_eq!(node.recv(PORT, &mut bytes).unwrap().len, 3);
    // A message that it sent to itself and never receives must not keep it waiting.
    node.send(Target::new(1, OTHER), &[1; 20_000]).unwrap();
    is_alone(node.recv(PORT, &mut bytes).unwrap_err());
    let any = portolan::TagMatch::any();
    is_alone(node.recv_tagged(any, &mut bytes).unwrap_err());
    let request = node.post_recv(PORT, vec![0; 8]).unwrap();
    is_alone(node.wait(request).unwrap_err().into());
    names_rank_0(node.recv_from(0, PORT, &mut bytes).unwrap_err());
    names_rank_0(node.send(Target::new(0, PORT), b"late").unwrap_err());
    node.send(Target::new(1, PORT), b"own").unwrap();
    assert_eq!(node.recv(PORT, &mut bytes).unwrap().source, 1);
}

/// Waits for a message that is never sent, until the sender has ended; then receives what was sent.
fn receive_what_is_not_sent(node: &mut Node) {
    let mut bytes = vec![0; 65_536];
    names_rank_0(node.recv_from(0, PORT, &mut bytes).unwrap_err());
    for len in [20_000, 50_000, 65_536] {
        let got = node.recv_from(0, OTHER, &mut bytes).unwrap().len;
        assert_eq!(got, len);
        check(&bytes[..len], 0, 2, 0, len);
    }
    println!("\ngot all");
}

/// Repeatedly tests for messages of a rank that has been killed, then of any rank.
fn poll_for_killed_rank(node: &mut Node) {
    let tagged = portolan::TagMatch::new(7).source(0);
    let requests = [
        node.post_recv_from(0, PORT, vec![0; 8]).unwrap(),
        node.post_recv_tagged(tagged, vec![0; 8]).unwrap(),
    ];
    for request in requests {
        names_rank_0(look(node, request).unwrap_err());
    }
    let any = node.post_recv(PORT, vec![0; 8]).unwrap();
    is_alone(look(node, any).unwrap_err());
    // Available messages are received even if no other rank is left.
    let own = node.post_recv(PORT, vec![0; 20_000]).unwrap();
    node.send(Target::new(1, PORT), &[7; 20_000]).unwrap();
    assert_eq!(look(node, own).unwrap().len, 20_000);
}

fn look(node: &mut Node, request: Request) -> Result<Completion, Error> {
    loop {
        if let Some(done) = node.test(request)? {
            return Ok(done);
        }
        std::thread::yield_now();
    }
}

fn is_alone(error: Error) {
    assert!(matches!(error, Error::NobodyLeft { others: 1 }), "{error}");
}

fn names_rank_0(error: Error) {
    assert!(matches!(error, Error::PeerGone { rank: 0, .. }), "{error}");
}

fn send_to_oneself(node: &mut Node) {
    let own = node.rank();
    // First one by one, then all before the first is received.
    let lens = [1, 5_000, 20_000, 70_000, 3_000_000];
    for (index, len) in (0..).zip(lens) {
        let bytes = payload(own, 2, index, len);
        node.send(Target::new(own, PORT), &bytes).unwrap();
        let mut got = vec![0; len];
        node.recv_from(own, PORT, &mut got).unwrap();
        check(&got, own, 2, index, len);
    }
    for (index, len) in (0..).zip(lens.repeat(3)) {
        let bytes = payload(own, 3, index, len);
        node.send(Target::new(own, PORT), &bytes).unwrap();
    }
    for (index, len) in (0..).zip(lens.repeat(3)) {
        let mut got = vec![0; len];
        node.recv(PORT, &mut got).unwrap();
        check(&got, own, 3, index, len);
    }
    // A process that only sends to itself can never receive these.
    let long = vec![7; 9_000_000];
    let error = (0..100).find_map(|_| node.send(Target::new(own, PORT), &long).err());
    let error = error.expect("no end of it");
    assert!(matches!(error, Error::SelfFull { .. }), "{error}");
    let mut got = vec![0; 9_000_000];
    node.recv(PORT, &mut got).unwrap();
    node.send(Target::new(own, PORT), &long).unwrap();
}

/// Starts sends as `role` requests, and waits for none that needs no wait.
fn begin_burst(node: &mut Node, role: &str) {
    let len = if role.ends_with("short") { 8 } else { LEN };
    for index in 0..2 * COUNT {
        let bytes = payload(0, 1, index, len);
        let to = Target::new(1, PORT);
        if role.contains("copies") {
            node.isend_copy(to, &bytes).unwrap();
        } else if role.contains("begun") {
            let request = node.isend(to, bytes).unwrap();
            // A test takes the engine back from the thread that completes earlier calls.
            if role.contains("looked") {
                let _ = node.test(request).unwrap();
            }
        } else {
            node.send(to, &bytes).unwrap();
        }
    }
    if role.contains("looked") {
        // Calls that only read or are refused must not keep the engine, either.
        assert!(node.counters().messages_sent <= u64::from(2 * COUNT));
        let nobody = Target::new(u32::MAX, PORT);
        node.isend_copy(nobody, &[]).unwrap_err();
    }
}

/// Returns the file that one rank creates for the other to see.
fn mark() -> PathBuf {
    PathBuf::from(std::env::var_os(MARK).unwrap())
}

fn send_all(node: &mut Node, to: u32) {
    let count = if role().unwrap() == "killed" {
        COUNT / 2
    } else {
        COUNT
    };
    for index in 0..count {
        let bytes = payload(0, 1, index, LEN);
        node.send(Target::new(to, PORT), &bytes).unwrap();
    }
}

fn receive_late(node: &mut Node) {
    std::thread::sleep(LATE);
    let count = if role().unwrap() == "killed" {
        COUNT / 2
    } else {
        COUNT
    };
    receive(node, count);
}

fn receive(node: &mut Node, count: u32) {
    for index in 0..count {
        let mut bytes = vec![0; LEN];
        let got = node.recv(PORT, &mut bytes).unwrap();
        assert_eq!(got.source, 0);
        check(&bytes, 0, 1, index, LEN);
    }
    println!("\ngot all");
}

/// Returns the paths between two processes: on one host, and between hosts where labs are possible.
fn paths() -> Vec<Vec<&'static str>> {
    let mut paths = vec![vec!["--path", "shm"], vec!["--path", "udp"]];
    if can_make_labs() {
        paths.push(vec!["--new-lab", "2", "--path", "udp"]);
        paths.push(vec!["--new-lab", "2", "--path", "packet"]);
        paths.push(vec!["--new-lab", "2", "--option", "auth=aead"]);
    }
    paths
}

fn both_end_well(role: &str, got_count: usize) {
    for path in paths() {
        let out = run_ranks(2, role, &path).succeeded(&format!("{role}, {path:?}"));
        assert_eq!(out.matches("got all").count(), got_count, "{path:?}: {out}");
        assert_eq!(out.matches("closed").count(), 2, "{path:?}: {out}");
    }
}

// P2.9
#[test]
fn messages_arrive_although_their_sender_has_closed() {
    both_end_well("late", 1);
}

// P2.9
#[test]
fn tagged_messages_arrive_although_their_sender_has_closed() {
    both_end_well("tagged", 1);
}

// P2.9
#[test]
fn copies_beyond_credit_arrive_although_their_sender_has_closed() {
    both_end_well("copies", 1);
}

// P2.9, P4.13
#[test]
fn sender_of_unread_messages_exits() {
    both_end_well("unasked", 1);
}

// P2.14
#[test]
fn two_that_close_with_unread_messages_of_one_another_end() {
    both_end_well("unread", 0);
}

/// Sent messages must arrive without further calls of the sender, at most a few milliseconds later.
#[test]
fn sent_messages_leave_without_another_call() {
    for kind in ["sent", "copies", "begun", "begun looked"] {
        for len in ["short", "long"] {
            let role = format!("away {kind} {len}");
            for path in paths() {
                let dir = tempfile::tempdir().unwrap();
                let env = format!("{MARK}={}", dir.path().join("mark").display());
                let args = [&path[..], &["--env", &env]].concat();
                let out = run_ranks(2, &role, &args).succeeded(&format!("{role}, {path:?}"));
                assert!(out.contains("got all"), "{role}, {path:?}: {out}");
            }
        }
    }
}

#[test]
fn receive_from_any_source_fails_when_no_peer_is_left() {
    both_end_well("last", 0);
}

#[test]
fn polled_receives_fail_when_their_senders_have_ended() {
    both_end_well("looked for", 0);
}

#[test]
fn sends_to_oneself_end() {
    both_end_well("oneself", 0);
}

#[test]
fn mutual_sends_of_up_to_the_buffered_length_end_on_every_path() {
    both_end_well("mutual", 0);
}

// P8.11
#[test]
fn data_committed_to_shared_memory_before_a_kill_is_delivered() {
    let args = ["--path", "shm", "--grace-ms", "20000"];
    let ended = run_ranks(2, "killed", &args);
    assert!(
        ended.out.contains("got all"),
        "{}\n{}",
        ended.out,
        ended.err
    );
}
