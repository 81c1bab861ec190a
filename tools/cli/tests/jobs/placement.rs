// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of bulk messages from several senders to one receiver at once, among small ones. Every
//! byte must be right, wherever the data is received.

use crate::common::payload::{check, mix, payload};
use crate::common::ranks::joined;
use portolan::{Lane, Node, Region, Request, Target};
use std::collections::VecDeque;

ranks_of_this_module!(run_ranks);

/// Number of bulk messages of each sender.
const COUNT: u32 = 60;

/// Length of the longest bulk message.
const LEN_MAX: usize = 3 << 20;

const BULK: u16 = 1;
const SMALL: u16 = 2;

/// Number of receives posted ahead for each sender.
const AHEAD: usize = 2;

/// Runs one rank of a job; not a test of its own.
#[test]
fn as_rank() {
    let Some(mut node) = joined(&[BULK, SMALL]) else {
        return;
    };
    match node.rank() {
        0 => receive(&mut node),
        _ => send(&mut node),
    }
    node.barrier().unwrap();
    let counters = node.counters();
    println!("\nhits={}", counters.placement_hits);
    println!("\nmisses={}", counters.placement_misses);
    println!("\nrepaired={}", counters.placement_repaired_bytes);
}

/// Returns a length: half of the messages have one megabyte, the others any length above eager.
fn len_of(from: u32, index: u32) -> usize {
    let word = mix(u64::from(from) << 32 | u64::from(index));
    match word % 2 {
        0 => 1 << 20,
        _ => 40_000 + usize::try_from(word >> 8).unwrap() % (LEN_MAX - 40_000),
    }
}

fn send(node: &mut Node) {
    let own = node.rank();
    let mut sends = VecDeque::new();
    for index in 0..COUNT {
        let bytes = payload(own, 1, index, len_of(own, index));
        sends.push_back(node.isend(Target::new(0, BULK), bytes).unwrap());
        let small = payload(own, 2, index, 100);
        let target = Target::new(0, SMALL).lane(Lane::High);
        node.send(target, &small).unwrap();
        if sends.len() > AHEAD {
            let _ = node.wait(sends.pop_front().unwrap()).unwrap();
        }
    }
    for request in sends {
        let _ = node.wait(request).unwrap();
    }
}

fn receive(node: &mut Node) {
    let senders = 1..node.size();
    let mut posted: Vec<VecDeque<(Request, Request)>> = Vec::new();
    for from in senders.clone() {
        let regions = (0..AHEAD).map(|_| Region::new(LEN_MAX).unwrap());
        posted.push(regions.map(|region| post(node, from, region)).collect());
    }
    for index in 0..COUNT {
        for (from, posted) in senders.clone().zip(&mut posted) {
            let (bulk, small) = posted.pop_front().unwrap();
            let done = node.wait(bulk).unwrap();
            let region = done.buffer.unwrap().into_region().unwrap();
            check(&region[..done.len], from, 1, index, len_of(from, index));
            let done = node.wait(small).unwrap();
            check(&done.buffer.unwrap(), from, 2, index, 100);
            if index + u32::try_from(AHEAD).unwrap() < COUNT {
                posted.push_back(post(node, from, region));
            }
        }
    }
}

fn post(node: &mut Node, from: u32, region: Region) -> (Request, Request) {
    let bulk = node.post_recv_from(from, BULK, region).unwrap();
    let small = node.post_recv_from(from, SMALL, vec![0xa5; 100]).unwrap();
    (bulk, small)
}

/// Returns the figure that the receiver printed under `name`.
fn figure(out: &str, name: &str) -> u64 {
    let name = format!("{name}=");
    let mut words = out.split_whitespace();
    let word = words.find_map(|word| word.strip_prefix(&name).filter(|count| *count != "0"));
    word.map_or(0, |count| count.parse().unwrap())
}

fn run(senders: u32, placement: &str, more: &[&str]) -> String {
    let placement = format!("placement={placement}");
    let options = [
        "--path",
        "udp",
        "--option",
        "frame_len_max=1472",
        "--option",
        &placement,
    ];
    let args = [&options, more].concat();
    let out = run_ranks(senders + 1, "any", &args).succeeded(&format!("{senders}, {args:?}"));
    let figures = ["hits", "misses", "repaired"].map(|name| figure(&out, name));
    println!("{senders} senders, {args:?}: hits, misses, repaired bytes {figures:?}");
    out
}

#[test]
fn a_lone_stream_is_nearly_all_hits() {
    let out = run(1, "speculative", &[]);
    let (hits, misses) = (figure(&out, "hits"), figure(&out, "misses"));
    assert!(hits > 9 * misses, "{hits} hits, {misses} misses");
}

#[test]
fn two_streams_at_once_arrive_intact() {
    for placement in ["speculative", "bounce", "auto"] {
        let out = run(2, placement, &[]);
        assert_eq!(
            figure(&out, "hits") > 0,
            placement != "bounce",
            "{placement}"
        );
    }
}

#[test]
fn two_streams_arrive_intact_over_a_bad_network() {
    let fault = "fault=drop=0.01,dup=0.01,reorder=0.05,seed=3";
    let out = run(2, "speculative", &["--option", fault]);
    assert!(figure(&out, "hits") > 0 && figure(&out, "misses") > 0);
}

#[test]
fn a_placement_that_does_not_exist_is_refused() {
    let args = ["--path", "udp", "--option", "placement=sometimes"];
    let ended = run_ranks(2, "any", &args);
    assert_ne!(ended.status, 0);
    assert!(
        ended.out.contains("speculative, bounce or auto")
            || ended.err.contains("speculative, bounce or auto"),
        "{}{}",
        ended.out,
        ended.err
    );
}
