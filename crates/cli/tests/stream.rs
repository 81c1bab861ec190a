// SPDX-License-Identifier: MIT OR Apache-2.0
//! Long messages by kernel TCP between the hosts of a lab: pages that were lent may be used again the
//! moment their send ends, and whatever becomes of a connection, every byte arrives once.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::payload::{check, mix, payload};
use common::ranks::{joined, role, run_ranks};
use common::{can_make_labs, portolan, run};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, fork};
use portolan::{Node, Region, Target};
use std::process::Command;
use std::time::{Duration, Instant};

const BULK: u16 = 1;

/// Messages of one role.
const COUNT: u32 = 400;

/// Between one that just may not be sent without asking, and some parts.
const LEN_MIN: usize = 65_537;
const LEN_MAX: usize = 600_000;

/// Drops every TCP packet at the way in (the protocol stands 23 bytes behind the begin of the frame).
const NO_TCP: &str = "4,48 0 0 23,21 0 1 6,6 0 0 2,6 0 0 0";

/// Drops one packet in a hundred: SKF_AD_OFF + SKF_AD_RANDOM of include/uapi/linux/filter.h.
const SOME_LOST: &str = "4,32 0 0 4294963256,53 1 0 42949672,6 0 0 2,6 0 0 0";

/// Not a test of its own: what each rank does.
#[test]
fn as_rank() {
    let Some(mut node) = joined(&[BULK]) else {
        return;
    };
    let role = role().unwrap();
    let is_receiver = node.rank() == 1;
    if is_receiver {
        match &*role {
            "lossy" => filter(SOME_LOST),
            "refused" => filter(NO_TCP),
            _ => {}
        }
    }
    node.barrier().unwrap();
    match &*role {
        "both" => exchange(&mut node),
        "idle" => idle(&mut node),
        _ if is_receiver => receive(&mut node, &role),
        _ => send(&mut node, &role),
    }
    node.barrier().unwrap();
    println!("\nstreamed={}", node.counters().stream_bytes);
}

fn shell(script: &str) {
    let status = Command::new("sh").args(["-ec", script]).status().unwrap();
    assert!(status.success(), "{script}");
}

fn filter(program: &str) {
    shell(&format!(
        "tc qdisc add dev eth0 clsact; tc filter add dev eth0 ingress bpf da bytecode '{program}'"
    ));
}

fn len_of(index: u32) -> usize {
    let word = mix(u64::from(index) + 5);
    LEN_MIN + usize::try_from(word >> 8).unwrap() % (LEN_MAX - LEN_MIN)
}

/// One buffer for all messages: it is filled anew, or is gone, as soon as a send has ended.
fn send(node: &mut Node, role: &str) {
    let mut region = Region::new(LEN_MAX).unwrap();
    for index in 0..COUNT {
        let len = len_of(index);
        region[..len].copy_from_slice(&payload(0, 1, index, len));
        node.send(Target::new(1, BULK), &region[..len]).unwrap();
        region[..len].fill(0xee);
        match role {
            // The pages are unmapped.
            "unmapped" => region = Region::new(LEN_MAX).unwrap(),
            "forked" if index % 8 == 0 => fork_and_write(&mut region[..len]),
            // All connections of this host.
            "killed" if index % 20 == 10 => {
                shell("ss -K -t state established >/dev/null");
            }
            _ => {}
        }
    }
}

/// Both the process and a child of it write to what was lent.
#[allow(
    unsafe_code,
    reason = "what is tested is what a fork does to lent pages"
)]
fn fork_and_write(bytes: &mut [u8]) {
    // SAFETY: the child writes to memory and ends; it calls nothing that another thread may hold.
    let forked = unsafe { fork() };
    match forked.unwrap() {
        ForkResult::Child => {
            bytes.fill(0xcc);
            // SAFETY: ends the process at once.
            unsafe { nix::libc::_exit(0) };
        }
        ForkResult::Parent { child } => {
            bytes.fill(0xdd);
            waitpid(child, None).unwrap();
        }
    }
}

fn receive(node: &mut Node, role: &str) {
    let mut region = Region::new(LEN_MAX).unwrap();
    for index in 0..COUNT {
        if role == "collapses" && index == COUNT / 2 {
            filter(NO_TCP);
        }
        region.fill(0xa5);
        let request = node.post_recv_from(0, BULK, region).unwrap();
        let done = node.wait(request).unwrap();
        region = done.buffer.unwrap().into_region().unwrap();
        let len = len_of(index);
        check(&region[..done.len], 0, 1, index, len);
        assert!(region[len..].iter().all(|byte| *byte == 0xa5), "{index}");
    }
}

/// Two transfers each way at a time.
fn exchange(node: &mut Node) {
    let (own, other) = (node.rank(), 1 - node.rank());
    for index in (0..COUNT / 2).step_by(2) {
        let both = [index, index + 1];
        let receives = both.map(|_| {
            let region = Region::new(LEN_MAX).unwrap();
            node.post_recv_from(other, BULK, region).unwrap()
        });
        let sends = both.map(|index| {
            let bytes = payload(own, 1, index, len_of(index));
            node.isend(Target::new(other, BULK), bytes).unwrap()
        });
        for (receive, index) in receives.into_iter().zip(both) {
            let done = node.wait(receive).unwrap();
            let bytes = done.buffer.unwrap();
            check(&bytes[..done.len], other, 1, index, len_of(index));
        }
        for send in sends {
            let _ = node.wait(send).unwrap();
        }
    }
}

fn has_stream(node: &Node) -> bool {
    let paths = node.paths(1 - node.rank());
    paths
        .iter()
        .any(|path| path.to_string().starts_with("stream"))
}

/// A connection stands while it is used, and not much longer; then there is another.
fn idle(node: &mut Node) {
    for _ in 0..2 {
        exchange(node);
        assert!(has_stream(node));
        let start = Instant::now();
        while has_stream(node) {
            assert!(start.elapsed() < common::PATIENCE, "it is never closed");
            std::thread::sleep(Duration::from_millis(20));
            node.progress();
        }
        node.barrier().unwrap();
    }
}

/// Two hosts; gone when dropped.
struct Lab(String);

impl Lab {
    fn up(test: &str) -> Lab {
        let lab = Lab(format!("t{}-{test}", std::process::id()));
        let ended = run(&["lab", "up", "--name", &lab.0, "--hosts", "2"]);
        assert_eq!((ended.status, ended.err.as_str()), (0, ""));
        lab
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = portolan(&["lab", "down", "--name", &self.0]).output();
    }
}

/// Runs `role` on two hosts; returns the bytes that each rank got by streams.
fn run_role(role: &str, usage: &str) -> Vec<u64> {
    if !can_make_labs() {
        return Vec::new();
    }
    let lab = Lab::up(role);
    let usage = format!("stream={usage}");
    let out = run_ranks(2, role, &["--lab", &lab.0, "--option", &usage]).succeeded(role);
    let counts = out.split_whitespace();
    let counts: Vec<u64> = counts
        .filter_map(|word| word.strip_prefix("streamed="))
        .map(|count| count.parse().unwrap())
        .collect();
    println!("{role}, {usage}: {counts:?} bytes by streams");
    assert_eq!(counts.len(), 2);
    counts
}

fn total() -> u64 {
    (0..COUNT).map(|index| len_of(index) as u64).sum()
}

#[test]
fn a_buffer_may_be_used_again_when_its_send_has_ended() {
    for role in ["overwritten", "unmapped", "forked"] {
        let counts = run_role(role, "on");
        // The first goes before the connection stands.
        assert!(counts.iter().all(|count| *count == 0) || counts.iter().sum::<u64>() > total() / 2);
    }
}

#[test]
fn a_buffer_may_be_used_again_when_packets_are_lost() {
    run_role("lossy", "on");
}

#[test]
fn transfers_both_ways_share_a_connection() {
    run_role("both", "on");
    run_role("both", "auto");
}

#[test]
fn connections_that_are_killed_lose_nothing() {
    let counts = run_role("killed", "on");
    assert!(counts.is_empty() || counts.iter().sum::<u64>() > 0);
}

#[test]
fn a_filter_against_tcp_leaves_udp() {
    let counts = run_role("refused", "on");
    assert_eq!(counts.iter().sum::<u64>(), 0);
}

#[test]
fn a_filter_that_comes_under_way_leaves_udp() {
    run_role("collapses", "on");
}

#[test]
fn idle_connections_are_closed_and_opened_again() {
    run_role("idle", "on");
}
