// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls with a timeout: repeated after a timeout, they neither lose nor double a message.

use crate::common::ranks::{joined, role};
use portolan::{Error, Node, TagMatch, TagTarget, Target};
use std::time::Duration;

ranks_of_this_module!(run_ranks);

const PORT: u16 = 1;
const TAG: u64 = 5;
const REPLY_PORT: u16 = 2;

/// Timeouts of the receiver, in turn: some end before, some during and some after the arrival.
const TIMEOUTS_US: [u64; 5] = [0, 1, 20, 150, 2_000];

/// Lengths of the messages, in turn; the last ones need a request and a transfer.
const LENS: [usize; 6] = [0, 8, 1_000, 8_000, 70_000, 300_000];

const SHORT: Duration = Duration::from_micros(50);

fn count() -> u64 {
    let count = std::env::var("TIMEOUT_MESSAGES").ok();
    count.map_or(300, |count| count.parse().unwrap())
}

fn message(number: u64, bytes: &mut Vec<u8>) {
    let len = LENS[usize::try_from(number).unwrap() % LENS.len()];
    bytes.clear();
    bytes.resize(len.max(8), number.to_le_bytes()[0]);
    bytes[..8].copy_from_slice(&number.to_le_bytes());
}

/// Runs one rank of a job; not a test of its own.
#[test]
fn as_rank() {
    let Some(mut node) = joined(&[PORT, REPLY_PORT]) else {
        return;
    };
    match role().as_deref() {
        Some("repeat") => repeat(&mut node),
        Some("full") => full(&mut node),
        _ => ended(&mut node),
    }
    println!("\nrank done");
    node.close().unwrap();
}

/// Rank 0 sends numbered messages, and rank 1 receives them by calls that time out often.
fn repeat(node: &mut Node) {
    let mut expected = Vec::new();
    if node.rank() == 0 {
        for number in 0..count() {
            message(number, &mut expected);
            match number % 3 {
                0 => {
                    while !node
                        .send_timeout(Target::new(1, PORT), &expected, SHORT)
                        .unwrap()
                    {}
                }
                1 => {
                    let to = TagTarget::new(1, TAG);
                    while !node.send_tagged_timeout(to, &expected, SHORT).unwrap() {}
                }
                _ => {
                    let to = Target::new(1, REPLY_PORT);
                    let request = node.isend(to, expected.clone()).unwrap();
                    while node.wait_timeout(request, SHORT).unwrap().is_none() {}
                }
            }
        }
        node.barrier().unwrap();
        // Rank 1 still checks that nothing is left.
        return node.barrier().unwrap();
    }
    let (mut bytes, mut timeouts) = (vec![0; 300_000], TIMEOUTS_US.iter().cycle());
    let mut next = || Duration::from_micros(*timeouts.next().unwrap());
    let mut timed_out = 0_u64;
    for number in 0..count() {
        message(number, &mut expected);
        let posted = (number % 3 == 2).then(|| node.post_recv(REPLY_PORT, vec![0; 300_000]));
        let posted = posted.transpose().unwrap();
        let len = loop {
            let got = match (number % 3, posted) {
                (0, _) => node.recv_timeout(PORT, &mut bytes, next()).unwrap(),
                (_, Some(request)) => {
                    let done = node.wait_timeout(request, next()).unwrap();
                    let Some(done) = done else {
                        timed_out += 1;
                        continue;
                    };
                    let received = done.buffer.unwrap().into_vec();
                    bytes[..done.len].copy_from_slice(&received[..done.len]);
                    break done.len;
                }
                _ => {
                    let which = TagMatch::new(TAG);
                    let got = node.recv_tagged_timeout(which, &mut bytes, next()).unwrap();
                    if let Some(envelope) = got {
                        break envelope.len;
                    }
                    None
                }
            };
            match got {
                Some(received) => break received.len,
                None => timed_out += 1,
            }
        };
        assert!(bytes[..len] == expected[..], "message {number}");
    }
    node.barrier().unwrap();
    // Nothing is left: no message came twice.
    assert_eq!(node.recv_timeout(PORT, &mut bytes, SHORT).unwrap(), None);
    assert_eq!(node.peek(TagMatch::any()).unwrap(), None);
    node.barrier().unwrap();
    println!("\ntimed out {timed_out} times");
}

/// Rank 0 sends until rank 1 accepts nothing more; what timed out never arrives.
fn full(node: &mut Node) {
    let bytes = [7; 1000];
    if node.rank() == 0 {
        let mut accepted = 0_u32;
        while node
            .send_timeout(Target::new(1, PORT), &bytes, SHORT)
            .unwrap()
        {
            accepted += 1;
            assert!(accepted < 1_000_000, "the receiver has no limit");
        }
        node.send(Target::new(1, REPLY_PORT), &accepted.to_le_bytes())
            .unwrap();
        return node.barrier().unwrap();
    }
    let mut count = [0; 4];
    node.recv(REPLY_PORT, &mut count).unwrap();
    let mut buf = [0; 1000];
    for _ in 0..u32::from_le_bytes(count) {
        assert_eq!(node.recv(PORT, &mut buf).unwrap().len, 1000);
    }
    node.barrier().unwrap();
    assert_eq!(node.recv_timeout(PORT, &mut buf, SHORT).unwrap(), None);
}

/// Rank 1 leaves. Rank 0 repeats short waits until they report that.
fn ended(node: &mut Node) {
    if node.rank() == 1 {
        return;
    }
    let mut buf = [0; 8];
    let left = loop {
        match node.recv_timeout(PORT, &mut buf, SHORT) {
            Ok(got) => assert_eq!(got, None),
            Err(error) => break error,
        }
    };
    assert!(matches!(left, Error::NobodyLeft { .. }), "{left}");
    let gone = loop {
        match node.recv_from_timeout(1, PORT, &mut buf, SHORT) {
            Ok(got) => assert_eq!(got, None),
            Err(error) => break error,
        }
    };
    assert!(matches!(gone, Error::PeerGone { rank: 1, .. }), "{gone}");
    let error = node.wait_notice_timeout(SHORT).unwrap_err();
    assert!(matches!(error, Error::NobodyLeft { .. }), "{error}");
}

fn play(role: &str, args: &[&str]) -> String {
    let out = run_ranks(2, role, args).succeeded(&format!("{role} {args:?}"));
    assert_eq!(out.matches("rank done").count(), 2, "{out}");
    out
}

#[test]
fn repeated_calls_neither_lose_nor_double_a_message() {
    const LOSS: &str = "fault=drop=0.05,dup=0.02,reorder=0.02,seed=7";
    for args in [
        &["--path", "shm"][..],
        &["--path", "udp"],
        &["--path", "udp", "--option", LOSS],
    ] {
        let out = play("repeat", args);
        assert!(out.contains("timed out "), "{out}");
    }
}

#[test]
fn send_that_timed_out_is_not_sent() {
    play("full", &["--path", "shm"]);
    play("full", &["--path", "udp"]);
}

#[test]
fn repeated_short_waits_end_when_the_peer_has_left() {
    play("ended", &["--path", "shm"]);
    play("ended", &["--path", "udp"]);
}
