// SPDX-License-Identifier: MIT OR Apache-2.0
//! Remote procedure calls, messages of unknown length, split groups, windows and bursts.

use crate::common::ranks::{joined, role};
use portolan::{
    Buffer, BurstAnswer, Error, Group, Node, ReduceOp, Reply, TagMatch, TagTarget, Target,
};
use std::time::{Duration, Instant};

ranks_of_this_module!(run_ranks);

const PORT: u16 = 1;
const SERVED: u16 = 2;
const LENS: [usize; 5] = [0, 8, 1_000, 70_000, 1 << 20];
const SHORT: Duration = Duration::from_millis(1);

/// Runs one rank of a job; not a test of its own.
#[test]
fn as_rank() {
    let opened: &[u16] = match role().as_deref() {
        Some("calls") => &[PORT],
        _ => &[PORT, SERVED],
    };
    let Some(mut node) = joined(opened) else {
        return;
    };
    match role().as_deref() {
        Some("calls") => calls(&mut node),
        Some("late") => late_replies(&mut node),
        Some("death") => return death(node),
        Some("lengths") => lengths(&mut node),
        Some("split") => split(&mut node),
        Some("window") => window(&mut node),
        Some("bursts") => bursts(&mut node),
        other => panic!("no role {other:?}"),
    }
    println!("\nrank done");
    node.close().unwrap();
}

fn bytes(len: usize, seed: u8) -> Vec<u8> {
    (0..len)
        .map(|index| seed.wrapping_add(index.to_le_bytes()[0]))
        .collect()
}

/// Every rank serves with a handler, and calls every rank with requests of all lengths at once.
fn calls(node: &mut Node) {
    node.serve(SERVED, |context, call| {
        let mut reply = call.bytes().to_vec();
        reply.reverse();
        let status = u16::try_from(call.source()).unwrap();
        context.reply(call.reply_to(), status, reply)
    })
    .unwrap();
    let status = u16::try_from(node.rank()).unwrap();
    let mut pending = Vec::new();
    for (seed, len) in (0..).zip(LENS) {
        for rank in 0..node.size() {
            let sent = bytes(len, seed);
            let request = node.call(Target::new(rank, SERVED), &sent).begin().unwrap();
            pending.push((request, sent));
        }
    }
    for (request, mut sent) in pending {
        let reply = Reply::from(node.wait(request).unwrap());
        sent.reverse();
        assert_eq!(reply.status, status);
        assert!(reply.bytes == sent);
    }
    node.barrier().unwrap();
}

/// Rank 1 answers late. Replies to calls that have timed out are dropped, and later calls work.
fn late_replies(node: &mut Node) {
    let server = Target::new(1, PORT);
    if node.rank() == 0 {
        for len in LENS {
            let sent = bytes(len, 1);
            let error = node.call(server, &sent).timeout(SHORT).wait().unwrap_err();
            assert!(matches!(error, Error::TimedOut { rank: 1, .. }), "{error}");
        }
        node.send(server, b"").unwrap();
        let patience = Duration::from_secs(60);
        let reply = node.call(server, b"last").timeout(patience).wait().unwrap();
        assert_eq!((reply.status, &reply.bytes[..]), (9, &b"last"[..]));
        return node.barrier().unwrap();
    }
    let mut late = Vec::new();
    for _ in LENS {
        late.push(node.recv_call(PORT, None).unwrap().unwrap());
    }
    // Sent when all calls have timed out.
    assert_eq!(node.recv(PORT, &mut [0; 8]).unwrap().len, 0);
    assert!(node.recv_call(SERVED, Some(SHORT)).unwrap().is_none());
    for call in late {
        node.reply(call.reply_to(), 1, Buffer::typed(call.bytes().to_vec()))
            .unwrap();
    }
    let call = node.recv_call(PORT, None).unwrap().unwrap();
    node.reply(call.reply_to(), 9, call.bytes().to_vec())
        .unwrap();
    node.barrier().unwrap();
}

/// Rank 1 ends without a reply.
fn death(mut node: Node) {
    if node.rank() == 1 {
        let _call = node.recv_call(PORT, None).unwrap();
        std::process::abort();
    }
    let error = node.call(Target::new(1, PORT), b"?").wait().unwrap_err();
    assert!(matches!(error, Error::PeerGone { rank: 1, .. }), "{error}");
    println!("\nnoticed");
}

/// Probes and receives messages of all lengths, from all ranks.
fn lengths(node: &mut Node) {
    let (own, size) = (node.rank(), node.size());
    let (next, previous) = ((own + 1) % size, (own + size - 1) % size);
    assert_eq!(node.probe_timeout(PORT, Duration::ZERO).unwrap(), None);
    node.barrier().unwrap();
    for (seed, len) in (0..).zip(LENS) {
        let sent = bytes(len, seed);
        let plain = node.isend(Target::new(next, PORT), sent.clone()).unwrap();
        let to = TagTarget::new(next, 5);
        let tagged = node.isend_tagged(to, sent.clone()).unwrap();
        let waiting = node.probe(PORT).unwrap();
        assert_eq!((waiting.len, waiting.source), (len, previous));
        assert_eq!(node.probe_from(previous, PORT).unwrap(), waiting);
        let (got, source) = node.recv_vec::<u8>(PORT).unwrap();
        assert!(got == sent && source == previous);
        let envelope = node.probe_tagged(TagMatch::any()).unwrap();
        assert_eq!((envelope.len, envelope.tag), (len, 5));
        let (got, _) = node.recv_vec_tagged::<u8>(TagMatch::any()).unwrap();
        assert!(got == sent);
        for result in node.wait_all([plain, tagged]) {
            result.unwrap();
        }
        node.barrier().unwrap();
    }
    let numbers = vec![f64::from(own), 0.5];
    let sent = node
        .isend(Target::new(next, PORT), Buffer::typed(numbers))
        .unwrap();
    let got: Vec<f64> = node.recv_vec_from(previous, PORT).unwrap();
    assert_eq!(got, [f64::from(previous), 0.5]);
    let back: Vec<f64> = node.wait(sent).unwrap().into_vec().unwrap();
    assert_eq!(back, [f64::from(own), 0.5]);
    node.send(Target::new(next, PORT), &[1, 2, 3]).unwrap();
    let error = node.recv_vec::<u16>(PORT).unwrap_err();
    assert!(matches!(
        error,
        Error::PartialElement {
            len: 3,
            element_len: 2
        }
    ));
    let (still_here, _) = node.recv_vec::<u8>(PORT).unwrap();
    assert_eq!(still_here, [1, 2, 3]);
    node.barrier().unwrap();
}

/// Splits the job and its halves.
fn split(node: &mut Node) {
    let (own, size) = (node.rank(), node.size());
    let all = Group::all(node);
    let half = all.split(node, Some(own % 2), size - own).unwrap().unwrap();
    let mut expected: Vec<u32> = (0..size).filter(|rank| rank % 2 == own % 2).collect();
    expected.reverse();
    assert_eq!(half.ranks(), expected);
    let mut sum = [own];
    half.allreduce(node, ReduceOp::Sum, &mut sum).unwrap();
    assert_eq!(sum[0], expected.iter().sum::<u32>());
    let first = (half.rank() == 0).then_some(u32::MAX);
    let alone = half.split(node, first, 0).unwrap();
    assert_eq!(alone.map(|alone| alone.size()), first.map(|_| 1));
    for _ in 0..50 {
        let again = all.split(node, Some(0), 0).unwrap().unwrap();
        assert_eq!(again.ranks(), all.ranks());
        again.barrier(node).unwrap();
    }
}

/// All ranks add to one counter, and append to one list by compare and swap.
fn window(node: &mut Node) {
    let (own, size) = (node.rank(), node.size());
    let window = node.window::<u64>(if own == 0 { 3 } else { 1 }).unwrap();
    assert_eq!((window.len_of(0), window.len_of(size)), (3, 0));
    for _ in 0..100 {
        window.fetch_add(node, 0, 0, 1).unwrap();
    }
    let mut expected = 0;
    loop {
        let found = window
            .compare_swap(node, 0, 1, expected, expected + 1)
            .unwrap();
        if found == expected {
            break;
        }
        expected = found;
    }
    window.put(node, (own + 1) % size, 0, &[]).unwrap();
    node.barrier().unwrap();
    let mut both = [0; 2];
    window.get(node, 0, 0, &mut both).unwrap();
    assert_eq!(both, [100 * u64::from(size), u64::from(size)]);
    let error = window.get(node, 1, 1, &mut [0]).unwrap_err();
    assert!(
        matches!(error, Error::RemoteRefused { rank: 1, .. }),
        "{error}"
    );
    node.barrier().unwrap();
    window.local_mut(node)[0] = 7;
    node.barrier().unwrap();
    let mut one = [0];
    window.get(node, 1, 0, &mut one).unwrap();
    assert_eq!(one, [7]);
    assert_eq!(window.local(node)[0], 7);
    assert_eq!(window.free(node).unwrap()[0], 7);
}

/// Requests a burst to rank 0 and returns the answer.
fn burst_answer(node: &mut Node) -> BurstAnswer {
    node.request_burst(0).unwrap();
    loop {
        match node.burst_answer(0).unwrap() {
            Some(BurstAnswer::Pending) => _ = node.progress(),
            answer => return answer.unwrap(),
        }
    }
}

/// Rank 1 has precedence at rank 0, rank 2 is refused, and both send.
fn bursts(node: &mut Node) {
    const LEN: usize = 4 << 20;
    /// After that time a grant may pass to another sender.
    const LIFETIME: Duration = Duration::from_secs(1);
    let begin = Instant::now();
    node.barrier().unwrap();
    if node.rank() == 1 {
        assert_eq!(burst_answer(node), BurstAnswer::Granted);
    }
    node.barrier().unwrap();
    if node.rank() == 2 {
        let answer = burst_answer(node);
        assert!(answer == BurstAnswer::Refused || begin.elapsed() >= LIFETIME);
    }
    match node.rank() {
        0 => {
            let mut buffer = vec![0xa5; LEN];
            for _ in 0..2 {
                let got = node.recv(PORT, &mut buffer).unwrap();
                assert!(buffer == bytes(LEN, got.source.to_le_bytes()[0]));
            }
        }
        rank => {
            let sent = bytes(LEN, rank.to_le_bytes()[0]);
            node.send(Target::new(0, PORT), &sent).unwrap();
        }
    }
    node.end_burst(0).unwrap();
    assert_eq!(node.burst_answer(0).unwrap(), None);
    node.barrier().unwrap();
    if node.rank() == 2 {
        while burst_answer(node) != BurstAnswer::Granted {}
    }
    node.barrier().unwrap();
}

fn play(count: u32, role: &str, args: &[&str]) {
    let out = run_ranks(count, role, args).succeeded(&format!("{role} {args:?}"));
    assert_eq!(out.matches("rank done").count(), count as usize, "{out}");
}

const LOSSY_UDP: &[&str] = &[
    "--path",
    "udp",
    "--option",
    "fault=drop=0.02,dup=0.02,seed=3",
];

#[test]
fn calls_return_their_replies() {
    play(1, "calls", &[]);
    play(3, "calls", &["--path", "shm"]);
    play(3, "calls", LOSSY_UDP);
}

#[test]
fn late_reply_does_not_delay_later_calls() {
    play(2, "late", &["--path", "shm"]);
    play(2, "late", LOSSY_UDP);
}

#[test]
fn call_ends_when_its_server_dies() {
    for path in ["shm", "udp"] {
        let ended = run_ranks(2, "death", &["--path", path]);
        assert!(ended.out.contains("noticed"), "{}{}", ended.out, ended.err);
    }
}

#[test]
fn messages_of_unknown_length_are_received_whole() {
    play(1, "lengths", &[]);
    play(3, "lengths", &["--path", "shm"]);
    play(2, "lengths", LOSSY_UDP);
}

#[test]
fn refused_burst_is_delivered_and_later_granted() {
    for path in ["shm", "udp"] {
        play(3, "bursts", &["--path", path]);
    }
}

#[test]
fn split_groups_have_numbers_of_their_own() {
    play(1, "split", &[]);
    play(4, "split", &["--path", "shm"]);
    play(3, "split", &["--path", "udp"]);
}

#[test]
fn window_is_shared_by_all_ranks() {
    play(2, "window", &["--path", "shm"]);
    play(3, "window", LOSSY_UDP);
}
