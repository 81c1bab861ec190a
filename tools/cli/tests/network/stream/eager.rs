// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of eager messages by kernel TCP between the hosts of a lab: every byte arrives once and in
//! order, whatever happens to a connection, and memory is free when its send returns.

use super::{FEW_LOST, Lab, NO_TCP, SOME_LOST, die, filter, shell, streamed};
use crate::common::can_make_labs;
use crate::common::payload::{check, mix, payload};
use crate::common::ranks::{joined, role};
use portolan::{Error, Node, Target};
use std::time::Duration;

ranks_of_this_module!(run_ranks, run_clean);

const PORT: u16 = 1;

/// Number of messages of one role.
const COUNT: u32 = 600;

/// Maximum number of messages in a burst, and of messages that wait for their receives.
const BURST: u32 = 12;

/// Longest message by stream, and the shortest of several frames that uses it.
const STREAM_LEN_MAX: usize = 65_536;
const STREAM_LEN_MIN: usize = 2048;

/// Runs one rank of a job; not a test of its own.
#[test]
fn as_rank() {
    let Some(mut node) = joined(&[PORT]) else {
        return;
    };
    let role = role().unwrap();
    if node.rank() == 1 {
        match &*role {
            "lossy" => filter(SOME_LOST),
            "few-lost" => filter(FEW_LOST),
            "refused" => filter(NO_TCP),
            _ => {}
        }
    }
    node.barrier().unwrap();
    match &*role {
        _ if role.starts_with("dies") => return die(&mut node, &role, pass),
        "both" | "lossy" | "few-lost" => exchange(&mut node),
        "bursts" => bursts(&mut node),
        "unexpected" => unexpected(&mut node),
        "truncated" => truncate(&mut node),
        "self" => talk_to_itself(&mut node),
        _ if node.rank() == 0 => send(&mut node, &role),
        _ => receive(&mut node, &role),
    }
    node.barrier().unwrap();
    println!("\nstreamed={}", node.counters().stream_bytes);
}

/// Returns the length of a message: below and above the limits of datagrams, streams and transfers.
fn len_of(index: u32) -> usize {
    let word = mix(u64::from(index) + 91);
    let within = |from: usize, to: usize| from + usize::try_from(word >> 8).unwrap() % (to - from);
    match word % 8 {
        0..2 => within(1, 64),
        2 => within(1300, 2100),
        3..6 => within(STREAM_LEN_MIN, 20_000),
        6 => within(20_000, STREAM_LEN_MAX + 1),
        _ => within(STREAM_LEN_MAX, STREAM_LEN_MAX + 3),
    }
}

/// Sends all messages from one buffer, which is overwritten as soon as a send returns.
fn send(node: &mut Node, role: &str) {
    let mut memory = vec![0; STREAM_LEN_MAX + 3];
    for index in 0..COUNT {
        let len = len_of(index);
        memory[..len].copy_from_slice(&payload(0, 1, index, len));
        node.send(Target::new(1, PORT), &memory[..len]).unwrap();
        memory.fill(0xee);
        if role == "killed" && index % 150 == 100 {
            kill_connections();
        }
    }
}

fn receive(node: &mut Node, role: &str) {
    for index in 0..COUNT {
        if role == "collapses" && index == COUNT / 2 {
            filter(NO_TCP);
        }
        if role == "killed-here" && index % 150 == 100 {
            kill_connections();
        }
        take(node, 0, 1, index, index % 7);
    }
}

/// Kills all connections of this host, after a pause in which one may be opened again.
fn kill_connections() {
    std::thread::sleep(Duration::from_millis(1100));
    shell("ss -K -t state established >/dev/null");
}

/// Receives the next message from `from`, with `spare` bytes of memory behind it.
fn take(node: &mut Node, from: u32, kind: u32, index: u32, spare: u32) {
    let len = len_of(index);
    let memory = vec![0xa5; len + spare as usize];
    let request = node.post_recv_from(from, PORT, memory).unwrap();
    let done = node.wait(request).unwrap();
    let memory = done.buffer.unwrap();
    check(&memory[..done.len], from, kind, index, len);
    let is_untouched = memory[len..].iter().all(|byte| *byte == 0xa5);
    assert!(is_untouched, "bytes behind message {index}");
}

/// Sends in turns with the other rank.
fn exchange(node: &mut Node) {
    let (own, other) = (node.rank(), 1 - node.rank());
    for index in 0..COUNT {
        let bytes = payload(own, 1, index, len_of(index));
        if own == 0 {
            node.send(Target::new(other, PORT), &bytes).unwrap();
        }
        take(node, other, 1, index, 0);
        if own == 1 {
            node.send(Target::new(other, PORT), &bytes).unwrap();
        }
    }
}

/// Sends bursts in both directions at once, with receives that were posted before.
fn bursts(node: &mut Node) {
    let (own, other) = (node.rank(), 1 - node.rank());
    for first in (0..COUNT).step_by(BURST as usize) {
        let burst = first..first + BURST;
        let receives = burst.clone().map(|index| {
            let memory = vec![0xa5; len_of(index)];
            node.post_recv_from(other, PORT, memory).unwrap()
        });
        let receives: Vec<_> = receives.collect();
        let sends = burst.clone().map(|index| {
            let bytes = payload(own, 1, index, len_of(index));
            node.isend(Target::new(other, PORT), bytes).unwrap()
        });
        let sends: Vec<_> = sends.collect();
        for (index, receive) in burst.zip(receives) {
            let done = node.wait(receive).unwrap();
            let memory = done.buffer.unwrap();
            check(&memory[..done.len], other, 1, index, len_of(index));
        }
        for send in sends {
            let _ = node.wait(send).unwrap();
        }
    }
}

/// Rank 1 posts its receives only when all messages of a burst have arrived or wait for credit.
fn unexpected(node: &mut Node) {
    for first in (0..COUNT).step_by(BURST as usize) {
        let burst = first..first + BURST;
        if node.rank() == 1 {
            node.send(Target::new(0, PORT), b"go").unwrap();
            std::thread::sleep(Duration::from_millis(2));
            node.progress().unwrap();
            burst.for_each(|index| take(node, 0, 1, index, 3));
            continue;
        }
        let request = node.post_recv_from(1, PORT, vec![0; 2]).unwrap();
        let _ = node.wait(request).unwrap();
        let sends = burst.map(|index| {
            let bytes = payload(0, 1, index, len_of(index));
            node.isend(Target::new(1, PORT), bytes).unwrap()
        });
        let sends: Vec<_> = sends.collect();
        for send in sends {
            let _ = node.wait(send).unwrap();
        }
    }
}

/// Rank 1 receives every other message in memory that is too short for it.
fn truncate(node: &mut Node) {
    if node.rank() == 0 {
        return send(node, "truncated");
    }
    for index in 0..COUNT {
        let len = len_of(index);
        if index % 2 == 0 || len < 100 {
            take(node, 0, 1, index, 0);
            continue;
        }
        let most = len / 3;
        let request = node.post_recv_from(0, PORT, vec![0xa5; most]).unwrap();
        match node.wait(request).map_err(Error::from) {
            Err(Error::Truncated {
                message_len,
                buffer_len,
                ..
            }) => assert_eq!((message_len, buffer_len), (len as u64, most), "{index}"),
            other => panic!("message {index} of {len} bytes: {other:?}"),
        }
    }
}

/// Each rank sends to itself and to the other.
fn talk_to_itself(node: &mut Node) {
    let (own, other) = (node.rank(), 1 - node.rank());
    for index in 0..COUNT {
        let bytes = payload(own, 2, index, len_of(index));
        node.send(Target::new(own, PORT), &bytes).unwrap();
        if index % 2 == 0 {
            take(node, own, 2, index, 1);
        } else {
            let bytes = payload(own, 1, index, len_of(index));
            if own == 1 {
                take(node, other, 1, index, 1);
            }
            node.send(Target::new(other, PORT), &bytes).unwrap();
            take(node, own, 2, index, 1);
            if own == 0 {
                take(node, other, 1, index, 1);
            }
        }
    }
}

/// Passes one message in each direction.
fn pass(node: &mut Node, index: u32) -> Result<(), Error> {
    let (own, other) = (node.rank(), 1 - node.rank());
    let len = len_of(index);
    node.send(Target::new(other, PORT), &payload(own, 1, index, len))?;
    let request = node.post_recv_from(other, PORT, vec![0xa5; len])?;
    let done = node.wait(request)?;
    check(&done.buffer.unwrap()[..done.len], other, 1, index, len);
    Ok(())
}

/// Runs `role` on two hosts with these settings. Returns the bytes that each rank received by
/// streams.
fn run_role(role: &str, options: &[&str]) -> Vec<u64> {
    run_with(role, options, &[])
}

/// Runs a role with further arguments of `portolan run`.
fn run_with(role: &str, options: &[&str], more: &[&str]) -> Vec<u64> {
    if !can_make_labs() {
        return Vec::new();
    }
    let lab = Lab::up(role);
    let mut args = [&["--lab", &*lab.0], more].concat();
    for option in options {
        args.extend(["--option", option]);
    }
    let out = run_ranks(2, role, &args).succeeded(role);
    let counts = streamed(&out);
    println!("{role}, {options:?}: {counts:?} bytes by streams");
    assert_eq!(counts.len(), 2);
    counts
}

/// Returns the bytes of the messages of a role that may use a stream.
fn total() -> u64 {
    let lens = (0..COUNT).map(len_of);
    lens.filter(|len| *len >= STREAM_LEN_MIN).sum::<usize>() as u64
}

#[test]
fn messages_of_all_lengths_arrive_in_both_directions() {
    for options in [
        &["stream=on"][..],
        &["stream=auto"],
        &["stream=on", "checksum=on"],
        &["stream=on", "checksum=off"],
    ] {
        for role in ["both", "bursts"] {
            let counts = run_role(role, options);
            // The first messages are sent before the connection is established.
            let is_used = options[0] != "stream=on" || counts.iter().all(|n| *n > total() / 2);
            assert!(is_used, "{counts:?} of {}", total());
        }
    }
}

#[test]
fn disabled_or_sealed_streams_carry_nothing() {
    for option in ["stream=off", "auth=aead"] {
        let counts = run_role("both", &[option]);
        assert_eq!(counts.iter().sum::<u64>(), 0, "{option}");
    }
}

#[test]
fn messages_wait_for_their_receives() {
    let counts = run_role("unexpected", &["stream=on"]);
    let is_used = counts.iter().sum::<u64>() > total() / 2;
    assert!(counts.is_empty() || is_used, "{counts:?}");
}

#[test]
fn short_memory_truncates_messages() {
    let counts = run_role("truncated", &["stream=on"]);
    assert!(
        counts.is_empty() || counts.iter().sum::<u64>() > 0,
        "{counts:?}"
    );
}

#[test]
fn messages_of_a_process_to_itself_use_no_stream() {
    let counts = run_role("self", &["stream=on"]);
    let odd = (1..COUNT).step_by(2).map(len_of);
    let to_other = odd.filter(|len| *len >= STREAM_LEN_MIN).sum::<usize>() as u64;
    for count in counts {
        assert!((1..=to_other).contains(&count), "{count} of {to_other}");
    }
    run_with("self", &["stream=on"], &["--path", "udp"]);
}

#[test]
fn connections_that_are_killed_lose_no_message() {
    for role in ["killed", "killed-here"] {
        let counts = run_role(role, &["stream=on"]);
        let is_used = counts.iter().sum::<u64>() > 0;
        assert!(counts.is_empty() || is_used, "{counts:?}");
    }
}

#[test]
fn filters_against_tcp_delay_messages_only() {
    let counts = run_role("refused", &["stream=on"]);
    assert_eq!(counts.iter().sum::<u64>(), 0);
    run_role("collapses", &["stream=on"]);
}

#[test]
fn lost_packets_delay_messages_only() {
    run_role("lossy", &["stream=on"]);
    run_role("few-lost", &["stream=auto"]);
}

#[test]
fn a_process_that_is_killed_between_messages_is_missed() {
    if !can_make_labs() {
        return;
    }
    let delays = [300, 900, 2500, 7000, 20_000, 60_000];
    for (place, delay) in delays.into_iter().enumerate() {
        let victim = place % 2;
        let role = format!("dies-{victim}-{delay}");
        let lab = ["--new-lab", "2", "--option", "stream=on"];
        let options = [&lab[..], &["--option", "peer_timeout=5s"]].concat();
        let ended = run_clean(2, &role, &options);
        let shown = format!("{role}\n{}\n{}", ended.out, ended.err);
        assert_eq!(ended.status, 137, "{shown}");
        let noticed = format!("noticed: rank {victim} on ");
        assert!(ended.out.contains(&noticed), "{shown}");
    }
}
