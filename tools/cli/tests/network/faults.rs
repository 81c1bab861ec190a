// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of messages over a network that loses, duplicates and reorders frames: each message
//! arrives once, intact and in order.

use crate::common::can_make_labs;
use crate::common::payload::{check, mixed_len, payload};
use crate::common::ranks::role;
use portolan::{Lane, Node, PortConfig, Target};
use std::sync::{Arc, Mutex};

ranks_of_this_module!(run_ranks);

/// Messages each way on each lane.
const COUNT: u32 = 1_500;

/// Best-effort messages each way.
const BEST_EFFORT_COUNT: u32 = 5_000;

/// Best-effort messages sent without waiting for the peer. Nothing limits them, so a socket's
/// default buffer must have room for all (208 KiB, of which each takes 768 bytes) while the peer
/// has no core.
const BEST_EFFORT_BURST: u32 = 100;

/// Messages of several frames each way: each waits until the peer has received the previous ones.
const LONG_COUNT: u32 = 400;

/// Number of receives posted ahead.
const AHEAD: u32 = 64;

/// Runs one rank of a job; not a test of its own.
#[test]
fn as_rank() {
    let Some(role) = role() else { return };
    let mut node = Node::join().unwrap();
    match role.as_str() {
        "reliable" => reliable(&mut node),
        "best effort" => best_effort(&mut node),
        "long best effort" => long_best_effort(&mut node),
        other => panic!("no role {other}"),
    }
    node.barrier().unwrap();
    report(&node);
}

/// Prints the counters of this rank, for [`figure`].
fn report(node: &Node) {
    let counters = node.counters();
    let incomplete = portolan::binding::DropReason::BestEffortIncomplete;
    let duplicates = node.drops().get("duplicate").copied().unwrap_or(0);
    println!(
        "\nretransmits={} duplicates={duplicates}",
        counters.retransmits
    );
    println!("\nlost={}", counters.best_effort_lost);
    println!("\nincomplete={}", counters.drops(incomplete));
    println!("\nplaced={}", counters.placement_hits);
    let broken = node.drops().get("bad checksum").copied().unwrap_or(0);
    println!("\nbroken={broken}");
}

/// Returns the sum over all ranks of a figure that they printed.
fn figure(out: &str, name: &str) -> u64 {
    let name = format!("{name}=");
    let words = out
        .split_whitespace()
        .filter_map(|word| word.strip_prefix(&name));
    words.map(|word| word.parse::<u64>().unwrap()).sum()
}

/// Exchanges messages of mixed lengths, some large, in both directions on both lanes at once.
fn reliable(node: &mut Node) {
    let (own, peer) = (node.rank(), 1 - node.rank());
    let lanes = [(Lane::Low, 1), (Lane::High, 2)];
    for (_, port) in lanes {
        node.open(port, PortConfig::default()).unwrap();
    }
    let len = |index: u32| {
        if index % 300 == 299 {
            1_000_000
        } else {
            mixed_len(index)
        }
    };
    let mut posted = std::collections::VecDeque::new();
    let mut sends = Vec::new();
    for index in 0..COUNT + AHEAD {
        for (lane, port) in lanes {
            if index < COUNT {
                let buffer = vec![0xa5; len(index)];
                posted.push_back(node.post_recv_from(peer, port, buffer).unwrap());
                let bytes = payload(own, u32::from(port), index, len(index));
                let target = Target::new(peer, port).lane(lane);
                sends.push(node.isend(target, bytes).unwrap());
            }
            if let Some(arrived) = index.checked_sub(AHEAD) {
                let done = node.wait(posted.pop_front().unwrap()).unwrap();
                assert_eq!(done.len, len(arrived));
                check(
                    &done.buffer.unwrap(),
                    peer,
                    u32::from(port),
                    arrived,
                    done.len,
                );
            }
        }
    }
    for send in sends {
        node.wait(send).unwrap();
    }
    nothing_more(node, peer);
}

/// Checks that each message arrived exactly once: no unexpected message is left.
fn nothing_more(node: &mut Node, peer: u32) {
    node.barrier().unwrap();
    for port in [1, 2] {
        let request = node.post_recv_from(peer, port, vec![0; 8]).unwrap();
        for _ in 0..1_000 {
            assert!(
                node.test(request).unwrap().is_none(),
                "a message came twice"
            );
        }
    }
}

/// Checks that arrived messages are intact and new, and with the lost ones account for all.
fn best_effort(node: &mut Node) {
    let (own, peer) = (node.rank(), 1 - node.rank());
    let seen = Arc::new(Mutex::new(Vec::<u32>::new()));
    let list = Arc::clone(&seen);
    let handler = move |_: &mut portolan::Context<'_>, message: portolan::Message<'_>| {
        let index = u32::from_le_bytes(message.bytes()[..4].try_into().unwrap());
        check(&message.bytes()[4..], peer, 3, index, 40);
        list.lock().unwrap().push(index);
    };
    node.open_active(3, PortConfig::in_place(), handler)
        .unwrap();
    node.barrier().unwrap();
    for index in 0..BEST_EFFORT_COUNT {
        let body = payload(own, 3, index, 40);
        let pieces: [&[u8]; 2] = [&index.to_le_bytes(), &body];
        node.send_gather(Target::new(peer, 3).best_effort(), &pieces)
            .unwrap();
        node.progress().unwrap();
        if index % BEST_EFFORT_BURST == 0 {
            node.barrier().unwrap();
        }
    }
    node.barrier().unwrap();
    // Messages still on the wire arrive within this time.
    let end = std::time::Instant::now() + std::time::Duration::from_millis(50);
    node.wait_until(|| std::time::Instant::now() > end).unwrap();
    account(node, &seen.lock().unwrap());
}

/// Returns message `index`, of several frames.
fn long_message(rank: u32, index: u32) -> Vec<u8> {
    let lens = [1_500, 9_000, 30_000, 65_536];
    let mut bytes = payload(rank, 4, index, lens[index as usize % lens.len()]);
    bytes[..4].copy_from_slice(&index.to_le_bytes());
    bytes
}

/// Checks that each arrived message is complete and arrived once, and that all others are counted
/// as lost or incomplete.
fn long_best_effort(node: &mut Node) {
    let (own, peer) = (node.rank(), 1 - node.rank());
    let seen = Arc::new(Mutex::new(Vec::<u32>::new()));
    let list = Arc::clone(&seen);
    let handler = move |_: &mut portolan::Context<'_>, message: portolan::Message<'_>| {
        let bytes = message.bytes();
        let index = u32::from_le_bytes(bytes[..4].try_into().unwrap());
        assert!(bytes == long_message(peer, index), "{index} is not as sent");
        list.lock().unwrap().push(index);
    };
    node.open_active(4, PortConfig::in_place(), handler)
        .unwrap();
    for index in 0..LONG_COUNT {
        node.barrier().unwrap();
        let target = Target::new(peer, 4).best_effort();
        node.send(target, &long_message(own, index)).unwrap();
    }
    node.barrier().unwrap();
    // Incomplete messages expire after a while; the duration is not tested here.
    let incomplete = portolan::binding::DropReason::BestEffortIncomplete;
    for _ in 0..100 {
        let end = std::time::Instant::now() + std::time::Duration::from_millis(100);
        node.wait_until(|| std::time::Instant::now() > end).unwrap();
        let mut unique = seen.lock().unwrap().clone();
        unique.sort_unstable();
        unique.dedup();
        assert_eq!(unique.len(), seen.lock().unwrap().len(), "one came twice");
        let counters = node.counters();
        let missing = counters.best_effort_lost + counters.drops(incomplete);
        let counted = missing + unique.len() as u64;
        assert!(counted <= LONG_COUNT.into(), "{counted}");
        // The loss of the last messages may be unknown, because no later frame arrived.
        if counted > u64::from(*unique.last().unwrap()) {
            println!("\narrived={}", unique.len());
            return;
        }
    }
    panic!("arrived, lost and incomplete do not make all");
}

fn account(node: &Node, seen: &[u32]) {
    let mut unique = seen.to_vec();
    unique.sort_unstable();
    unique.dedup();
    assert_eq!(
        unique.len(),
        seen.len(),
        "a best-effort message was delivered twice"
    );
    let newest = u64::from(*unique.last().unwrap());
    let lost = node.counters().best_effort_lost;
    assert_eq!(
        seen.len() as u64 + lost,
        newest + 1,
        "arrived and lost do not make all"
    );
    println!("\narrived={}", seen.len());
}

/// Returns a fault setting with a fixed seed.
fn fault(percent: u32) -> String {
    let drop = f64::from(percent) / 100.0;
    format!("fault=drop={drop},dup=0.02,reorder=0.05,seed={percent}")
}

fn reliable_over(args: &[&str]) {
    for percent in [1, 5, 20] {
        let fault = fault(percent);
        let args = [args, &["--option", &fault]].concat();
        let what = format!("{percent} % loss, {args:?}");
        let out = run_ranks(2, "reliable", &args).succeeded(&what);
        assert!(
            figure(&out, "retransmits") > 20,
            "{what}: nothing was lost:\n{out}"
        );
        assert!(
            figure(&out, "duplicates") > 20,
            "{what}: nothing was doubled:\n{out}"
        );
    }
}

#[test]
fn each_message_arrives_once_over_lossy_udp() {
    reliable_over(&["--path", "udp", "--option", "frame_len_max=1472"]);
}

#[test]
fn messages_arrive_once_over_lossy_udp_with_any_placement() {
    for (placement, is_placed) in [("speculative", true), ("bounce", false)] {
        let placement = format!("placement={placement}");
        let fault = fault(1);
        let mut args = vec!["--path", "udp", "--option", "frame_len_max=1472"];
        args.extend(["--option", &fault, "--option", &placement]);
        let out = run_ranks(2, "reliable", &args).succeeded(&placement);
        assert_eq!(figure(&out, "placed") > 0, is_placed, "{placement}:\n{out}");
    }
}

#[test]
fn each_message_arrives_once_over_lossy_udp_with_the_longest_frames() {
    reliable_over(&["--path", "udp"]);
}

#[test]
fn each_message_arrives_once_over_two_lossy_paths() {
    if can_make_labs() {
        reliable_over(&["--new-lab", "2", "--path", "auto"]);
    }
}

#[test]
fn each_message_arrives_once_over_lossy_raw_ethernet() {
    if can_make_labs() {
        reliable_over(&["--new-lab", "2", "--path", "packet"]);
    }
}

/// The example of docs/reference/settings.md, with more corrupted frames.
const EVERYTHING: &str =
    "fault=drop=0.01,dup=0.005,reorder=0.02,corrupt=0.02,delay=0.01:200us,seed=7";

/// P13.5: frames are corrupted as a wire would. The frames' checksums detect it, or those that the
/// wire is supposed to have.
#[test]
fn corrupt_frames_are_dropped_by_either_checksum() {
    let mut jobs = vec![
        vec!["--path", "udp"],
        vec!["--path", "udp", "--option", "checksum=on"],
        vec![
            "--path",
            "udp",
            "--option",
            "frame_len_max=1472",
            "--option",
            "checksum=on",
        ],
    ];
    if can_make_labs() {
        jobs.push(vec!["--new-lab", "2", "--path", "auto"]);
        jobs.push(vec![
            "--new-lab",
            "2",
            "--path",
            "packet",
            "--option",
            "checksum=off",
        ]);
    }
    for job in jobs {
        let args = [&job[..], &["--option", EVERYTHING]].concat();
        let what = format!("{args:?}");
        let out = run_ranks(2, "reliable", &args).succeeded(&what);
        assert!(
            figure(&out, "broken") > 0,
            "{what}: nothing was broken:\n{out}"
        );
    }
}

#[test]
fn without_loss_best_effort_messages_all_arrive() {
    let out = run_ranks(2, "best effort", &["--path", "udp"]).succeeded("best effort, no loss");
    assert_eq!(figure(&out, "lost"), 0, "{out}");
    assert_eq!(
        figure(&out, "arrived"),
        2 * u64::from(BEST_EFFORT_COUNT),
        "{out}"
    );
}

#[test]
fn lost_best_effort_messages_are_counted() {
    for percent in [1, 5, 20] {
        let fault = fault(percent);
        let args = [
            "--path",
            "udp",
            "--option",
            &fault,
            "--option",
            "frame_len_max=1472",
        ];
        let out = run_ranks(2, "best effort", &args).succeeded(&format!("{args:?}"));
        assert!(figure(&out, "lost") > 0, "nothing was lost:\n{out}");
        assert!(figure(&out, "arrived") > 0, "everything was lost:\n{out}");
    }
}

/// Returns paths on which a message of several frames leaves as a run, frame by frame, sealed, and
/// with checksums.
fn long_paths() -> Vec<Vec<&'static str>> {
    let ethernet = ["--path", "udp", "--option", "frame_len_max=1472"];
    let with = |option| [&ethernet[..], &["--option", option]].concat();
    let mut paths = vec![
        ethernet.to_vec(),
        vec!["--path", "udp"],
        with("checksum=on"),
        with("auth=aead"),
    ];
    if can_make_labs() {
        paths.push(vec!["--new-lab", "2", "--path", "auto"]);
        paths.push(vec!["--new-lab", "2", "--path", "packet"]);
    }
    paths
}

// P7.6, P7.7
#[test]
fn without_loss_no_frame_of_a_best_effort_message_is_missing_but_by_delay() {
    for path in long_paths() {
        let what = format!("{path:?}");
        let out = run_ranks(2, "long best effort", &path).succeeded(&what);
        // A message expires if its sender lost its core between two calls.
        let (arrived, incomplete) = (figure(&out, "arrived"), figure(&out, "incomplete"));
        assert_eq!(
            arrived + incomplete,
            2 * u64::from(LONG_COUNT),
            "{what}\n{out}"
        );
        assert!(arrived > 0, "{what}\n{out}");
    }
}

// P7.7, P7.8
#[test]
fn best_effort_messages_of_several_frames_arrive_whole_or_not_at_all() {
    for path in long_paths() {
        let fault = fault(1);
        let args = [&path[..], &["--option", &fault]].concat();
        let what = format!("{args:?}");
        let out = run_ranks(2, "long best effort", &args).succeeded(&what);
        let (arrived, lost) = (figure(&out, "arrived"), figure(&out, "lost"));
        let missing = lost + figure(&out, "incomplete");
        assert!(missing > 0, "nothing was lost: {what}\n{out}");
        assert!(arrived > 100, "{what}\n{out}");
    }
}
