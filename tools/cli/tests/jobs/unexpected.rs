// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of a million unexpected messages in front of the awaited one: they fit into little memory,
//! and otherwise the waiting rank gets an error (P4.14, P4.15).

use crate::common::can_make_labs;
use crate::common::ranks::{joined, role};
use portolan::{Error, Node, TagMatch, TagTarget, Target};
use std::fs;

ranks_of_this_module!(run_ranks);

/// Number of messages of a flood.
const COUNT: u64 = 1_000_000;
const UNREAD: u16 = 3;
const AWAITED: u16 = 4;

/// Runs one rank of a job; not a test of its own.
#[test]
fn as_rank() {
    let Some(mut node) = joined(&[UNREAD, AWAITED]) else {
        return;
    };
    node.barrier().unwrap();
    match (role().unwrap().as_str(), node.rank()) {
        ("flood", 0) => send_flood(&mut node, COUNT),
        ("flood", _) => receive_flood(&mut node),
        ("ports", 0) => send_to_ports(&mut node),
        ("ports", _) => receive_at_ports(&mut node),
        // Twice as many as fit.
        ("full", 0) => send_flood(&mut node, 40_000),
        ("full", _) => receive_in_vain(&mut node),
        (other, _) => panic!("{other} is no role"),
    }
    node.barrier().unwrap();
}

fn send_flood(node: &mut Node, count: u64) {
    for tag in 0..count {
        let bytes = (!tag).to_le_bytes();
        node.send_tagged(TagTarget::new(1, tag), &bytes).unwrap();
    }
}

/// Receives the message with this tag from rank 0; its contents equal the tag.
fn receive(node: &mut Node, tag: u64) -> Result<(), Error> {
    let mut bytes = [0; 8];
    let got = node.recv_tagged(TagMatch::new(tag).source(0), &mut bytes)?;
    assert_eq!((got.len, u64::from_le_bytes(bytes)), (8, !tag));
    Ok(())
}

/// Returns the resident memory of this process in bytes.
fn resident_len() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kib: u64 = line
        .unwrap()
        .split_whitespace()
        .nth(1)
        .unwrap()
        .parse()
        .unwrap();
    kib * 1024
}

fn receive_flood(node: &mut Node) {
    let before = resident_len();
    receive(node, COUNT - 1).unwrap();
    let each = resident_len().saturating_sub(before) / COUNT;
    println!("\n{each} bytes a message");
    assert!(
        (20..128).contains(&each),
        "{each} bytes of memory a message"
    );
    for tag in 0..COUNT - 1 {
        receive(node, tag).unwrap();
    }
    println!("\nall received");
}

/// Far more messages than the credit of a lane allows.
const UNREAD_COUNT: u32 = 20_000;

fn send_to_ports(node: &mut Node) {
    for number in 0..UNREAD_COUNT {
        let bytes = number.to_le_bytes().repeat(50);
        node.send(Target::new(1, UNREAD), &bytes).unwrap();
    }
    node.send(Target::new(1, AWAITED), b"here").unwrap();
}

fn receive_at_ports(node: &mut Node) {
    let mut bytes = [0; 200];
    let got = node.recv(AWAITED, &mut bytes).unwrap();
    assert_eq!(&bytes[..got.len], b"here");
    for number in 0..UNREAD_COUNT {
        let got = node.recv_from(0, UNREAD, &mut bytes).unwrap();
        assert_eq!(bytes[..got.len], number.to_le_bytes().repeat(50));
    }
    println!("\nall received");
}

fn receive_in_vain(node: &mut Node) {
    let error = receive(node, u64::MAX).unwrap_err();
    assert!(matches!(
        error,
        Error::UnexpectedMemoryFull {
            limit: 1_048_576,
            ..
        }
    ));
    println!("\ntold: {error}");
    for tag in 0..40_000 {
        receive(node, tag).unwrap();
    }
    println!("\nall received");
}

fn play(role: &str, args: &[&str]) -> String {
    let out = run_ranks(2, role, args).succeeded(&format!("{role}, {args:?}"));
    assert!(out.contains("all received"), "{out}");
    out
}

/// Plays a role with two processes on one host, and on two hosts where possible.
fn everywhere(role: &str, args: &[&str]) {
    play(role, &[&["--path", "shm"], args].concat());
    if can_make_labs() {
        for path in ["udp", "packet"] {
            play(role, &[&["--new-lab", "2", "--path", path], args].concat());
        }
    }
}

#[test]
fn the_last_of_a_million_is_received_first() {
    everywhere("flood", &[]);
}

#[test]
fn unread_messages_at_one_port_do_not_block_others() {
    everywhere("ports", &[]);
}

#[test]
fn a_receive_that_memory_is_too_short_for_ends_with_an_error_that_says_so() {
    for path in ["shm", "udp"] {
        let out = play(
            "full",
            &["--path", path, "--option", "unexpected_memory=1M"],
        );
        for word in ["is full", "of 1048576", "PORTOLAN_UNEXPECTED_MEMORY"] {
            assert!(out.contains(word), "{out}");
        }
    }
}
