// SPDX-License-Identifier: MIT OR Apache-2.0
//! Long messages within a host, of which sender and receiver copy a part each: every byte is right,
//! nothing is written after the end, and either may die in the middle.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::payload::{check, payload};
use common::ranks::{joined, role, run_ranks};
use portolan::{Error, Node, Target};
use portolan_sys::effort::Effort;
use std::time::{Duration, Instant};

const BULK: u16 = 1;
const WORDS: u16 = 2;

/// Around the shortest that is shared out, around units of it, and long.
const LENS: [usize; 6] = [131_071, 131_072, 196_609, 1_000_003, 4 << 20, 9_000_001];

/// Messages that are under way at once.
const WINDOW: u32 = 4;

/// Rounds at least; more until the sender has had its turn, however busy the machine is.
const ROUNDS: u32 = 10;
const PATIENCE: Duration = Duration::from_secs(60);

/// Not a test of its own: what each rank does.
#[test]
fn as_rank() {
    let Some(mut node) = joined(&[BULK, WORDS]) else {
        return;
    };
    match (role().unwrap().as_str(), node.rank()) {
        ("copied", 0) => send(&mut node),
        ("copied", _) => receive(&mut node),
        ("sender-dies", 0) | ("receiver-dies", 1) => {
            // In the middle of something, most likely.
            std::thread::spawn(|| {
                std::thread::sleep(Duration::from_millis(300));
                common::kill(i32::try_from(std::process::id()).unwrap(), "-9");
            });
            for_ever(&mut node);
        }
        _ => {
            let error = for_ever(&mut node);
            // The second where it died between two messages.
            let gone = matches!(error, Error::PeerGone { .. } | Error::NobodyLeft { .. });
            assert!(gone, "{error}");
            println!("\nheard of it");
        }
    }
}

fn count_of(call: &str) -> u64 {
    let all = Effort::of_this_thread();
    let found = all.calls().find(|(name, _)| *name == call);
    found.map_or(0, |(_, count)| count)
}

fn send(node: &mut Node) {
    let end = Instant::now() + PATIENCE;
    for round in 0.. {
        let helped = count_of("process_vm_writev");
        let more = round < ROUNDS || helped == 0 && Instant::now() < end;
        node.send(Target::new(1, WORDS), &[u8::from(more)]).unwrap();
        if !more {
            break;
        }
        for (index, len) in (0..).zip(LENS) {
            // Overwritten as soon as it may be.
            let mut bytes = payload(0, round, index, len);
            node.send(Target::new(1, BULK), &bytes).unwrap();
            bytes.fill(0xee);
        }
        let sends = (0..WINDOW).map(|index| {
            let bytes = payload(0, round, 100 + index, LENS[3]);
            node.isend(Target::new(1, BULK), bytes).unwrap()
        });
        let sends: Vec<_> = sends.collect();
        sends.into_iter().for_each(|sent| drop(node.wait(sent)));
    }
    let mut reads = [0; 8];
    node.recv(WORDS, &mut reads).unwrap();
    println!("\nreads={}", u64::from_le_bytes(reads));
    println!("\nwrites={}", count_of("process_vm_writev"));
}

fn receive(node: &mut Node) {
    let mut more = [0];
    for round in 0.. {
        node.recv(WORDS, &mut more).unwrap();
        if more == [0] {
            break;
        }
        let mut buffer = Vec::new();
        for (index, len) in (0..).zip(LENS) {
            // What belonged to the last message is the program's again.
            assert!(buffer.iter().all(|byte| *byte == 0x3c), "before {len}");
            // Some are cut off.
            let cut = if round % 3 == 2 { len / 3 } else { len };
            buffer.clear();
            buffer.resize(cut, 0xa5);
            let got = node.recv(BULK, &mut buffer);
            match got {
                Ok(got) => assert_eq!(got.len, len),
                Err(Error::Truncated { .. }) if cut < len => {}
                Err(error) => panic!("{error}"),
            }
            assert!(buffer == payload(0, round, index, len)[..cut], "{len}");
            buffer.fill(0x3c);
        }
        for index in 0..WINDOW {
            let mut buffer = vec![0xa5; LENS[3]];
            node.recv(BULK, &mut buffer).unwrap();
            check(&buffer, 0, round, 100 + index, LENS[3]);
        }
    }
    let reads = count_of("process_vm_readv").to_le_bytes();
    node.send(Target::new(0, WORDS), &reads).unwrap();
}

/// Sends or receives until the other is gone; the error.
fn for_ever(node: &mut Node) -> Error {
    let mut bytes = vec![0xa5; 8 << 20];
    loop {
        let done = match node.rank() {
            0 => node.send(Target::new(1, BULK), &bytes),
            _ => node.recv(BULK, &mut bytes).map(|_| ()),
        };
        if let Err(error) = done {
            return error;
        }
    }
}

fn figure(out: &str, name: &str) -> u64 {
    let value = out
        .lines()
        .find_map(|line| line.split_once(name)?.1.strip_prefix('='));
    value.unwrap().trim().parse().unwrap()
}

#[test]
fn both_copy_and_no_byte_is_wrong_or_late() {
    let ended = run_ranks(2, "copied", &[]);
    assert_eq!(ended.status, 0, "{}{}", ended.out, ended.err);
    if figure(&ended.out, "reads") == 0 {
        return println!("SKIPPED: process_vm_readv is forbidden");
    }
    assert!(figure(&ended.out, "writes") > 0, "{}", ended.out);
}

/// In `role` one of two dies, and the other hears of it.
fn the_death_is_heard_of(role: &str) {
    let ended = run_ranks(2, role, &[]);
    assert_ne!(ended.status, 0);
    let is_heard_of = ended.out.contains("heard of it");
    assert!(is_heard_of, "{}{}", ended.out, ended.err);
}

#[test]
fn a_sender_that_is_killed_while_it_copies_ends_the_receive() {
    the_death_is_heard_of("sender-dies");
}

#[test]
fn a_receiver_that_is_killed_while_its_sender_copies_ends_the_send() {
    the_death_is_heard_of("receiver-dies");
}
