// SPDX-License-Identifier: MIT OR Apache-2.0
//! Long jobs: every message of a mixture arrives whole, and memory, descriptors and threads of a
//! process do not grow.

use crate::common::can_make_labs;
use crate::common::payload::{check, mix, mixed_len, payload};
use crate::common::ranks::{joined, role};
use portolan::{Node, TagMatch, TagTarget, Target};

ranks_of_this_module!(run_ranks);

const PORT: u16 = 1;

/// Messages that each rank has in flight.
const BATCH: u32 = 256;

/// Messages of each rank in a short run.
const COUNT: u32 = 20_000;

/// Growth of resident memory that a run may show, in KiB: allocators keep some free memory.
const GROWTH_MAX: u64 = 16 * 1024;

/// Descriptors that a run may add: a busy peer gets a connected socket at any time.
const DESCRIPTOR_GROWTH_MAX: usize = 1;

/// Runs one rank of a job; not a test of its own.
#[test]
fn as_rank() {
    let Some(mut node) = joined(&[PORT]) else {
        return;
    };
    let count: u32 = role().unwrap().parse().unwrap();
    let mut before = None;
    for first in (0..count).step_by(BATCH as usize) {
        exchange(&mut node, first..count.min(first + BATCH));
        // The first tenth reaches the size of all tables and pools.
        if first >= count / 10 {
            before.get_or_insert_with(Holdings::now);
        }
    }
    node.barrier().unwrap();
    let (before, after) = (before.unwrap(), Holdings::now());
    println!("\n{before:?} became {after:?}");
    assert!(after.resident_kib <= before.resident_kib + GROWTH_MAX);
    assert!(after.descriptors <= before.descriptors + DESCRIPTOR_GROWTH_MAX);
    assert_eq!(after.threads, before.threads);
    println!("\nall arrived");
}

/// Resources of this process.
#[derive(Debug)]
struct Holdings {
    resident_kib: u64,
    descriptors: usize,
    threads: u64,
}

impl Holdings {
    fn now() -> Holdings {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let number = |name: &str| {
            let line = status.lines().find(|line| line.starts_with(name)).unwrap();
            line.split_whitespace().nth(1).unwrap().parse().unwrap()
        };
        Holdings {
            resident_kib: number("VmRSS:"),
            descriptors: std::fs::read_dir("/proc/self/fd").unwrap().count(),
            threads: number("Threads:"),
        }
    }
}

/// Returns the length of a message: mostly short, sometimes several frames or a transfer.
fn len_of(index: u32) -> usize {
    match index % 64 {
        0 => mixed_len(index),
        _ => usize::try_from(mix(index.into()) % 64).unwrap(),
    }
}

/// Exchanges messages `range` in both directions, to a port and by tag.
fn exchange(node: &mut Node, range: std::ops::Range<u32>) {
    let (own, other) = (node.rank(), 1 - node.rank());
    let post = |index: u32| {
        let buffer = vec![0xa5; len_of(index)];
        match index % 3 {
            0 => {
                let tag = TagMatch::new(index.into()).source(other);
                node.post_recv_tagged(tag, buffer).unwrap()
            }
            _ => node.post_recv_from(other, PORT, buffer).unwrap(),
        }
    };
    let receives: Vec<_> = range.clone().map(post).collect();
    let send = |index: u32| {
        let bytes = payload(own, 0, index, len_of(index));
        match index % 3 {
            0 => node.isend_tagged(TagTarget::new(other, index.into()), bytes),
            _ => node.isend(Target::new(other, PORT), bytes),
        }
    };
    let sends: Vec<_> = range.clone().map(send).collect();
    for (receive, index) in receives.into_iter().zip(range) {
        let done = node.wait(receive).unwrap();
        let bytes = done.buffer.unwrap();
        check(&bytes[..done.len], other, 0, index, len_of(index));
    }
    for send in sends {
        node.wait(send.unwrap()).unwrap();
    }
}

fn play(count: u32, args: &[&str]) {
    let what = format!("{count} messages, {args:?}");
    let out = run_ranks(2, &count.to_string(), args).succeeded(&what);
    assert_eq!(out.matches("all arrived").count(), 2, "{what}: {out}");
    for line in out.lines().filter(|line| line.contains(" became ")) {
        println!("{what}: {line}");
    }
}

const PATHS: [&[&str]; 4] = [
    &["--path", "shm"],
    &["--new-lab", "2", "--path", "udp", "--option", "stream=off"],
    &["--new-lab", "2", "--path", "udp", "--option", "stream=on"],
    &[
        "--new-lab",
        "2",
        "--path",
        "packet",
        "--option",
        "stream=off",
    ],
];

#[test]
fn a_mixture_of_messages_does_not_grow_a_process() {
    play(COUNT, PATHS[0]);
    if can_make_labs() {
        play(COUNT, PATHS[1]);
    }
}

/// Returns a number from the environment.
fn number(name: &str, default: u32) -> u32 {
    let value = std::env::var(name).ok();
    value.map_or(default, |value| value.parse().unwrap())
}

/// Needs `JOB_SECONDS=3600`.
#[test]
#[ignore = "takes long; ENDURANCE_MESSAGES per rank on each path"]
fn ten_million_messages_do_not_grow_a_process() {
    let count = number("ENDURANCE_MESSAGES", 5_000_000);
    let paths = if can_make_labs() {
        &PATHS[..]
    } else {
        &PATHS[..1]
    };
    for path in paths {
        play(count, path);
    }
}

/// Needs `JOB_SECONDS=3600`.
#[test]
#[ignore = "takes long; ENDURANCE_MESSAGES per rank, ENDURANCE_RUNS on each path"]
fn no_live_process_is_declared_dead_with_loss() {
    if !can_make_labs() {
        return;
    }
    let count = number("ENDURANCE_MESSAGES", 500_000);
    for run in 0..number("ENDURANCE_RUNS", 20) {
        for path in &PATHS[1..] {
            play(count, &[path, &["--link", "loss=5%"][..]].concat());
            println!("run {run}: {path:?} passed");
        }
    }
}
