// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of a network that marks datagrams: the receiver sees the marks, the sender is notified and
//! slows down, and every byte arrives.

use crate::common::labs::unique_name;
use crate::common::payload::{check, payload};
use crate::common::ranks::joined;
use crate::common::{KillOnDrop, can_make_labs, portolan, run};
use portolan::{Node, Target};
use std::io::{BufRead, BufReader};
use std::process::Stdio;

ranks_of_this_module!(run_ranks);

const PORT: u16 = 1;

/// Number of messages, and bytes of each: 6 MB are hundreds of round trips at the smallest window.
const COUNT: u32 = 12;
const LEN: usize = 500_000;

/// Number of messages in flight.
const AHEAD: u32 = 4;

/// Two calls of 44 datagrams: delay alone does not reduce a window below this (P3.13).
const TWO_CALLS: u64 = 88;

/// Frames of plain Ethernet, 44 of which fill a call.
const FRAMES: &str = "frame_len_max=1472";

/// The program that marks datagrams on a host of a lab.
const MARK: &str = include_str!("marks/mark.py");

/// Runs one rank of a job; not a test of its own.
#[test]
fn as_rank() {
    let Some(mut node) = joined(&[PORT]) else {
        return;
    };
    if node.rank() == 0 {
        let mut bytes = vec![0; LEN];
        for index in 0..COUNT {
            let got = node.recv_from(1, PORT, &mut bytes).unwrap();
            check(&bytes[..got.len], 1, 1, index, LEN);
        }
    } else {
        send(&mut node);
    }
    // Before the barrier, so that the window is that of the stream.
    let paths = node.paths(1 - node.rank());
    let window = paths.first().map(ToString::to_string).unwrap();
    node.barrier().unwrap();
    let counters = node.counters();
    println!("\nrank={}", node.rank());
    println!("\nmarked={}", counters.frames_marked);
    println!("\nheard={}", counters.marks_heard);
    println!("\npath={window}");
}

fn send(node: &mut Node) {
    let mut sends = Vec::new();
    for index in 0..COUNT {
        let bytes = payload(1, 1, index, LEN);
        sends.push(node.isend(Target::new(0, PORT), bytes).unwrap());
        if index >= AHEAD {
            let _ = node.wait(sends.remove(0)).unwrap();
        }
    }
    for request in sends {
        let _ = node.wait(request).unwrap();
    }
}

struct Lab(String);

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = portolan(&["lab", "down", "--name", &self.0]).output();
    }
}

/// Makes host h1, which runs rank 1, mark `share` of what it sends; `None` if the system cannot.
fn mark(lab: &Lab, share: &str) -> Option<KillOnDrop> {
    let command = ["lab", "exec", "--name", &lab.0, "h1", "--", "python3", "-c"];
    let mut command = portolan(&[&command[..], &[MARK, share]].concat());
    let child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut child = KillOnDrop(child);
    let mut said = String::new();
    let out = child.0.stdout.take().unwrap();
    BufReader::new(out).read_line(&mut said).unwrap();
    if said.trim() == "ready" {
        return Some(child);
    }
    assert!(
        said.starts_with("cannot"),
        "the program that marks said {said:?}"
    );
    eprintln!("SKIPPED: this test needs eBPF at a way out (Linux 6.6): {said}");
    None
}

/// Returns the number that ranks printed after `name`; the greater one if both did.
fn figure(out: &str, name: &str) -> u64 {
    let words = out.split_whitespace();
    let numbers = words.filter_map(|word| word.strip_prefix(name)?.parse().ok());
    numbers.max().unwrap()
}

/// Returns the window of the sender's path from its line.
fn window(out: &str) -> u64 {
    let lines = out.lines().filter(|line| line.contains("path="));
    let windows = lines.map(|line| {
        let (before, _) = line.split_once(" under way at most").unwrap();
        before.rsplit(' ').next().unwrap().parse().unwrap()
    });
    windows.min().unwrap()
}

// P3.14
#[test]
fn stream_through_a_marking_network_is_intact_and_slows_down() {
    if !can_make_labs() {
        return;
    }
    let lab = Lab(unique_name("marks"));
    let up = run(&["lab", "up", "--hosts", "2", "--name", &lab.0]);
    assert_eq!((up.status, up.err.as_str()), (0, ""));
    for (share, auth) in [
        ("0", "auth=token"),
        ("0.1", "auth=aead"),
        ("1", "auth=token"),
    ] {
        let Some(_marker) = mark(&lab, share) else {
            return;
        };
        let options = ["--lab", &lab.0, "--map-by", "node", "--path", "udp"];
        // A busy machine may delay both processes.
        let settings = [FRAMES, auth, "peer_timeout=60s"].map(|value| ["--option", value]);
        let args = [&options[..], settings.as_flattened()].concat();
        let out = run_ranks(2, "any", &args).succeeded(share);
        let (marked, heard) = (figure(&out, "marked="), figure(&out, "heard="));
        let window = window(&out);
        println!("{share} of all, {auth}: {marked} marked, {heard} heard of, window {window}");
        assert_eq!(marked > 0, share != "0");
        assert!(heard <= marked && (heard > 0) == (marked > 0));
        if share == "1" {
            assert!(window < TWO_CALLS, "a window of {window} frames");
        }
    }
}
