// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that eight hosts can send to one at the same time: no datagram is lost to a full buffer
//! there, in any order of service.

use crate::common::can_make_labs;
use crate::common::payload::{check, payload};
use crate::common::ranks::joined;
use portolan::{Node, Target};

ranks_of_this_module!(run_ranks);

const PORT: u16 = 1;
const SENDERS: u32 = 8;

/// Bytes of each message: 4 MB, ten times the default capacity of the receiver's socket.
const LEN: usize = 4 << 20;

/// Runs one rank of a job; not a test of its own.
#[test]
fn as_rank() {
    let Some(mut node) = joined(&[PORT]) else {
        return;
    };
    let own = node.rank();
    node.barrier().unwrap();
    if own == 0 {
        receive(&mut node);
    } else {
        let bytes = payload(own, 1, 0, LEN);
        node.send(Target::new(0, PORT), &bytes).unwrap();
    }
    node.barrier().unwrap();
    if own == 0 {
        println!("\nlost={}", lost());
        println!("\nretransmits={}", node.counters().retransmits);
    }
}

/// Receives a message of each sender, all of which may arrive at once.
fn receive(node: &mut Node) {
    let post = |from| node.post_recv_from(from, PORT, vec![0xa5; LEN]).unwrap();
    let posted: Vec<_> = (1..=SENDERS).map(post).collect();
    for (from, request) in (1..=SENDERS).zip(posted) {
        let done = node.wait(request).unwrap();
        check(&done.buffer.unwrap(), from, 1, 0, LEN);
    }
}

/// Returns the datagrams that this host (network namespace) has lost to full socket buffers.
fn lost() -> u64 {
    let text = std::fs::read_to_string("/proc/self/net/snmp").unwrap();
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Udp:"));
    let names = lines.next().unwrap().split_whitespace();
    let mut columns = names.zip(lines.next().unwrap().split_whitespace());
    let (_, count) = columns.find(|(name, _)| *name == "RcvbufErrors").unwrap();
    count.parse().unwrap()
}

// P5.3
#[test]
fn incast_from_eight_hosts_causes_no_buffer_drops() {
    if !can_make_labs() {
        return;
    }
    for schedule in ["schedule=fair", "schedule=shortest"] {
        let (ranks, hosts) = (SENDERS + 1, (SENDERS + 1).to_string());
        let job = ["--new-lab", &hosts, "--map-by", "node", "--path", "udp"];
        // A busy machine may delay any of the nine processes.
        let options = ["--option", schedule, "--option", "peer_timeout=60s"];
        let out = run_ranks(ranks, "any", &[&job[..], &options].concat()).succeeded(schedule);
        let figures: Vec<&str> = out.split_whitespace().filter(|w| w.contains('=')).collect();
        println!("{schedule}: {figures:?}");
        assert!(figures.contains(&"lost=0"), "{schedule}: {figures:?}");
    }
}
