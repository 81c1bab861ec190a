// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of hosts that two wires connect: both carry long messages, and one may be cut while they
//! pass. The tests print rates and delays for measurements, and check only the bytes.

use crate::common::can_make_labs;
use crate::common::labs::Lab;
use crate::common::payload::payload;
use crate::common::ranks::{joined, role};
use portolan::{Node, Target};
use std::collections::VecDeque;
use std::process::Command;
use std::time::{Duration, Instant};

ranks_of_this_module!(run_ranks);

const PORT: u16 = 1;

/// Length and number of the messages of the roles `long`, `stream`, `runs` and `cut`.
const LONG: (usize, u32) = (64 << 20, 2);
const STREAM: (usize, u32) = (256 << 10, 1000);
const RUNS: (usize, u32) = (48 << 10, 1200);
const CUT: (usize, u32) = (1 << 20, 150);

/// Messages of a stream that are in progress at a time.
const WINDOW: usize = 8;

/// Runs one rank of a job; not a test of its own. A role is a kind of traffic, and for `cut` the
/// wire that is cut.
#[test]
fn as_rank() {
    let Some(mut node) = joined(&[PORT]) else {
        return;
    };
    let role = role().unwrap();
    let (kind, wire) = role.split_once('-').unwrap_or((&role, "none"));
    let ((len, count), window) = match kind {
        "long" => (LONG, 1),
        "stream" => (STREAM, WINDOW),
        "runs" => (RUNS, WINDOW),
        "cut" => (CUT, 2),
        _ => panic!("{kind}"),
    };
    let bytes = payload(0, 1, 0, len);
    node.barrier().unwrap();
    let before = sent_by_wire();
    let begin = Instant::now();
    let longest = match node.rank() {
        0 => send(&mut node, (&bytes, count), window, wire),
        _ => receive(&mut node, (&bytes, count), window),
    };
    let took = begin.elapsed().as_secs_f64();
    node.barrier().unwrap();
    if node.rank() == 0 {
        let after = sent_by_wire();
        println!("\neth0={}", after[0] - before[0]);
        println!("\neth1={}", after[1] - before[1]);
        println!("\nleft={}", node.counters().paths_left);
        let mb = len as f64 * f64::from(count) / 1e6;
        println!("{:.1} MB/s, longest {longest:?}", mb / took);
        for path in node.paths(1) {
            println!("{path}");
        }
    }
}

/// Returns the bytes that each wire's interface has sent.
fn sent_by_wire() -> [u64; 2] {
    ["eth0", "eth1"].map(|name| {
        let file = format!("/sys/class/net/{name}/statistics/tx_bytes");
        std::fs::read_to_string(file)
            .unwrap()
            .trim()
            .parse()
            .unwrap()
    })
}

/// Sends all messages, and returns the longest time between two completions. Cuts `wire` in the
/// first half, and joins it again in the second one.
fn send(node: &mut Node, (bytes, count): (&[u8], u32), window: usize, wire: &str) -> Duration {
    let mut sends = VecDeque::new();
    let (mut last, mut longest) = (Instant::now(), Duration::ZERO);
    for index in 0..count {
        if wire != "none" && index == count / 4 {
            shell(&format!("ip link set dev {wire} down"));
        }
        if wire != "none" && index == count / 2 {
            shell(&format!("ip link set dev {wire} up"));
        }
        let mut bytes = bytes.to_vec();
        bytes[..4].copy_from_slice(&index.to_le_bytes());
        sends.push_back(node.isend(Target::new(1, PORT), bytes).unwrap());
        while sends.len() == window || index + 1 == count {
            let Some(send) = sends.pop_front() else { break };
            let _ = node.wait(send).unwrap();
            longest = longest.max(last.elapsed());
            last = Instant::now();
        }
    }
    longest
}

fn receive(node: &mut Node, (bytes, count): (&[u8], u32), window: usize) -> Duration {
    let mut posted = VecDeque::new();
    for index in 0..count {
        while posted.len() < window && posted.len() < (count - index) as usize {
            let buffer = vec![0xa5; bytes.len()];
            posted.push_back(node.post_recv_from(0, PORT, buffer).unwrap());
        }
        let done = node.wait(posted.pop_front().unwrap()).unwrap();
        let got = done.buffer.unwrap();
        assert_eq!(got[..4], index.to_le_bytes(), "{index}");
        assert!(got[4..done.len] == bytes[4..], "{index}");
    }
    Duration::ZERO
}

fn shell(script: &str) {
    let status = Command::new("sh").args(["-ec", script]).status().unwrap();
    assert!(status.success(), "{script}");
}

/// Returns a lab of two hosts with two wires of 1 Gbit/s. A burst has room for a whole call with
/// segmentation offload, because smaller ones would keep the sender's core busy with timers.
fn two_wires(test: &str) -> Lab {
    let lab = Lab::up(test, "2");
    let name = &lab.0;
    shell(&format!(
        "ip -n {name}-h0 link add name eth1 type veth peer name eth1 netns {name}-h1"
    ));
    for host in [0, 1] {
        let namespace = format!("{name}-h{host}");
        shell(&format!(
            "ip -n {namespace} address add 10.78.0.{}/24 dev eth1
             ip -n {namespace} link set dev eth1 up",
            host + 1
        ));
        for wire in ["eth0", "eth1"] {
            shell(&format!(
                "tc -n {namespace} qdisc add dev {wire} root tbf rate 1gbit burst 128kb \
                 limit 384kb overhead 24"
            ));
        }
    }
    lab
}

/// Runs a job on the two hosts, and returns the figures that it printed by name.
fn figures(lab: &Lab, role: &str, options: &[&str]) -> [u64; 3] {
    let job = ["--lab", &lab.0, "--map-by", "node"];
    let out = run_ranks(2, role, &[&job[..], options].concat()).succeeded(role);
    println!("{role}: {out}");
    ["eth0=", "eth1=", "left="].map(|name| {
        let mut words = out.split_whitespace();
        let figure = words.find_map(|word| word.strip_prefix(name));
        figure.unwrap().parse().unwrap()
    })
}

// P6.8
#[test]
fn long_messages_use_both_wires() {
    if !can_make_labs() {
        return;
    }
    let lab = two_wires("both");
    for role in ["long", "stream", "runs"] {
        for path in ["auto", "udp"] {
            let [first, second, _] = figures(&lab, role, &["--path", path]);
            // Both wires are equally fast, but the machine may be busy.
            let least = (first + second) / 10;
            assert!(first > least && second > least, "{role}: {first}, {second}");
        }
    }
    let [first, second, _] = figures(&lab, "long", &["--option", "network=eth1"]);
    assert!(
        first < second / 10,
        "only one is allowed: {first}, {second}"
    );
}

// P6.7, P6.8
#[test]
fn cut_wire_costs_no_byte() {
    if !can_make_labs() {
        return;
    }
    let lab = two_wires("cut");
    for role in ["cut-eth1", "cut-eth0"] {
        for path in ["auto", "udp"] {
            let [first, second, left] = figures(&lab, role, &["--path", path]);
            let whole = (CUT.0 as u64) * u64::from(CUT.1);
            assert!(first + second > whole, "{role}: {first}, {second}");
            assert!(left > 0, "{role}: {left}");
        }
    }
}
