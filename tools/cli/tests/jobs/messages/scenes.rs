// SPDX-License-Identifier: MIT OR Apache-2.0
//! Scenes of messages between the ranks of a job. Each scene has its own ports.

use crate::common::payload::{check, mix, mixed_len, payload};
use portolan::binding::Plumbing as _;
use portolan::{Error, Group, Lane, Node, PortConfig, ReduceOp, Request, Target};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

pub(crate) type Scene = fn(&mut Node);

pub(crate) const ALL: &[(&str, Scene)] = &[
    // First: a port with a handler changes how all frames are received.
    ("short messages received in all ways", shared_frames),
    ("every length", every_length),
    ("bursts on both lanes, received late", late_bursts),
    ("gathered pieces", gathered),
    ("handlers in place", handlers_in_place),
    ("long messages to a handler in place", long_to_a_handler),
    ("handlers with posted buffers", handlers_with_buffers),
    ("too short a buffer", truncated),
    ("testing instead of waiting", tested),
    ("any source", any_source),
    ("to itself", to_itself),
    ("barriers", barriers),
    ("broadcasts", broadcasts),
    ("groups of their own", groups),
    ("reductions", reductions),
    ("many at once", many_at_once),
];

/// Lengths around all limits: of words, frames, fragments, eager and rendezvous.
pub(crate) const LENS: &[usize] = &[
    0, 1, 7, 8, 63, 64, 1_400, 1_456, 1_472, 1_473, 4_096, 16_383, 16_384, 16_385, 32_768, 32_769,
    65_535, 65_536, 100_001, 262_144, 262_145, 1_000_000, 4_000_000,
];

pub(crate) fn next(node: &Node) -> u32 {
    (node.rank() + 1) % node.size()
}

pub(crate) fn previous(node: &Node) -> u32 {
    (node.rank() + node.size() - 1) % node.size()
}

fn open(node: &mut Node, port: u16) {
    node.open(port, PortConfig::default()).unwrap();
}

pub(crate) fn index_of(index: usize) -> u32 {
    u32::try_from(index).unwrap()
}

/// Passes messages around the ring, blocking and posted before; then non-blocking and posted after.
fn every_length(node: &mut Node) {
    open(node, 10);
    let (own, to, from) = (node.rank(), next(node), previous(node));
    for (index, &len) in LENS.iter().enumerate() {
        let index = index_of(index);
        let posted = node.post_recv_from(from, 10, vec![0xa5; len]).unwrap();
        node.send(Target::new(to, 10), &payload(own, 0, index, len))
            .unwrap();
        let done = node.wait(posted).unwrap();
        assert_eq!((done.len, done.source), (len, from));
        check(&done.buffer.unwrap(), from, 0, index, len);

        let bytes = payload(own, 1, index, len);
        let sent = node.isend(Target::new(to, 10), bytes.clone()).unwrap();
        let mut buffer = vec![0xa5; len + 3];
        let got = node.recv_from(from, 10, &mut buffer).unwrap();
        assert_eq!((got.len, got.source), (len, from));
        check(&buffer[..len], from, 1, index, len);
        assert_eq!(
            buffer[len..],
            [0xa5; 3],
            "bytes behind the message were touched"
        );
        let done = node.wait(sent).unwrap();
        assert_eq!((done.len, done.source), (len, to));
        assert!(
            done.buffer.unwrap().into_vec() == bytes,
            "the buffer came back changed"
        );
    }
}

/// Sends short messages to two ports, many in each frame, and receives them in all ways.
fn shared_frames(node: &mut Node) {
    const PORTS: [u16; 2] = [61, 62];
    const COUNT: u32 = 60;
    let (own, to, from) = (node.rank(), next(node), previous(node));
    PORTS.iter().for_each(|port| open(node, *port));
    let len_of = |index: u32| usize::try_from(index % 40).unwrap();
    for round in 0..40 {
        let mut due = [VecDeque::new(), VecDeque::new()];
        for index in round * COUNT..(round + 1) * COUNT {
            let place = usize::from(mix(index.into()).is_multiple_of(7));
            let bytes = payload(own, 0, index, len_of(index));
            node.send(Target::new(to, PORTS[place]), &bytes).unwrap();
            due[place].push_back(index);
        }
        for step in 0..COUNT {
            let choice = mix(u64::from(round * COUNT + step) << 32);
            let other = choice.is_multiple_of(5) && !due[1].is_empty() || due[0].is_empty();
            let place = usize::from(other);
            let index = due[place].pop_front().unwrap();
            let bytes = received_by(node, choice / 5 % 7, (from, PORTS[place]));
            check(&bytes, from, 0, index, len_of(index));
        }
    }
}

/// Receives a message of at most 40 bytes by the call that `way` selects.
fn received_by(node: &mut Node, way: u64, (from, port): (u32, u16)) -> Vec<u8> {
    let mut buffer = vec![0xa5; 40];
    let got = match way {
        0 => {
            let request = node.post_recv(port, buffer).unwrap();
            let done = node.wait(request).unwrap();
            let mut bytes = done.buffer.unwrap().into_vec();
            bytes.truncate(done.len);
            return bytes;
        }
        1 => {
            let found = node.probe(port).unwrap();
            let got = node.recv_from(from, port, &mut buffer).unwrap();
            assert_eq!(found, got);
            got
        }
        2 => {
            let wait = Duration::from_secs(60);
            let got = node.recv_timeout(port, &mut buffer, wait);
            got.unwrap().expect("60 s are enough")
        }
        3 => {
            node.progress().unwrap();
            node.recv(port, &mut buffer).unwrap()
        }
        4 => node.recv_from(from, port, &mut buffer).unwrap(),
        _ => node.recv(port, &mut buffer).unwrap(),
    };
    assert_eq!(got.source, from);
    buffer.truncate(got.len);
    buffer
}

/// Sends from all ranks to all on both lanes; receivers are late and select sources in turn.
fn late_bursts(node: &mut Node) {
    const COUNT: u32 = 150;
    let lanes = [(Lane::Low, 11), (Lane::High, 12)];
    let mut sends = Vec::new();
    let own = node.rank();
    for index in 0..COUNT {
        for to in 0..node.size() {
            for (lane, port) in lanes {
                let bytes = payload(own, u32::from(port), index, mixed_len(index));
                let target = Target::new(to, port).lane(lane);
                sends.push(node.isend(target, bytes).unwrap());
            }
        }
    }
    std::thread::sleep(Duration::from_millis(20));
    for (_, port) in lanes {
        open(node, port);
        for from in (0..node.size()).rev() {
            for index in 0..COUNT {
                let mut buffer = vec![0; 120_000];
                let got = node.recv_from(from, port, &mut buffer).unwrap();
                check(
                    &buffer[..got.len],
                    from,
                    u32::from(port),
                    index,
                    mixed_len(index),
                );
            }
        }
    }
    wait_all(node, sends);
}

fn wait_all(node: &mut Node, requests: Vec<Request>) {
    for request in requests {
        node.wait(request).unwrap();
        assert!(matches!(
            node.wait(request).unwrap_err().error(),
            Error::StaleRequest
        ));
    }
}

fn gathered(node: &mut Node) {
    open(node, 13);
    let (own, to, from) = (node.rank(), next(node), previous(node));
    for (index, &len) in LENS.iter().enumerate() {
        let index = index_of(index);
        let bytes = payload(own, 2, index, len);
        let (one, rest) = bytes.split_at(len / 3);
        let (two, three) = rest.split_at(rest.len() / 2);
        let pieces: &[&[u8]] = if index.is_multiple_of(2) {
            &[one, rest]
        } else {
            &[one, two, &[], three]
        };
        let target = Target::new(to, 13);
        let posted = node.post_recv_from(from, 13, vec![0; len]).unwrap();
        node.send_gather(target, pieces).unwrap();
        let again = node.post_recv_from(from, 13, vec![0; len]).unwrap();
        // Split where no frame ends, and where one piece is empty.
        let border = [len / 3, 0, len, len - len / 5][index as usize % 4];
        let (first, second) = bytes.split_at(border);
        let two = node
            .isend_two(target, first.to_vec(), second.to_vec())
            .unwrap();
        for received in [posted, again] {
            let buffer = node.wait(received).unwrap().buffer.unwrap();
            check(&buffer, from, 2, index, len);
        }
        if let Some(request) = two {
            let done = node.wait(request).unwrap();
            assert_eq!((done.len, done.source), (len, to));
        }
    }
}

/// The handler answers from inside; the answers also arrive at a handler.
fn handlers_in_place(node: &mut Node) {
    const COUNT: u32 = 200;
    let from = previous(node);
    let (asked, answered) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let counter = Arc::clone(&asked);
    let ask = move |context: &mut portolan::Context<'_>, message: portolan::Message<'_>| {
        let index = counter.fetch_add(1, Ordering::Relaxed);
        assert_eq!((message.source(), message.port()), (from, 14));
        check(message.bytes(), from, 3, index, mixed_len(index));
        context
            .send(Target::new(message.source(), 15), message.bytes())
            .unwrap();
    };
    node.open_active(14, PortConfig::in_place(), ask).unwrap();
    let (counter, own) = (Arc::clone(&answered), node.rank());
    let answer = move |_: &mut portolan::Context<'_>, message: portolan::Message<'_>| {
        let index = counter.fetch_add(1, Ordering::Relaxed);
        check(message.bytes(), own, 3, index, mixed_len(index));
    };
    node.open_active(15, PortConfig::in_place(), answer)
        .unwrap();
    for index in 0..COUNT {
        let bytes = payload(own, 3, index, mixed_len(index));
        node.isend_copy(Target::new(next(node), 14), &bytes)
            .unwrap();
    }
    node.wait_until(|| {
        answered.load(Ordering::Relaxed) == COUNT && asked.load(Ordering::Relaxed) == COUNT
    })
    .unwrap();
}

/// Messages that do not fit a frame get buffers of the library, the right one for each. Half of
/// them arrive before the port is open; all lanes and sources wait for buffers at once.
fn long_to_a_handler(node: &mut Node) {
    const COUNT: u32 = 20;
    let len = |index: u32| mixed_len(index) + 70_000;
    let seen = Arc::new(AtomicU32::new(0));
    for index in 0..COUNT {
        if index == COUNT / 2 {
            node.barrier().unwrap();
            open_long(node, Arc::clone(&seen), len);
        }
        for (kind, lane) in (20..).zip([Lane::Low, Lane::High]) {
            for to in 0..node.size() {
                let bytes = payload(node.rank(), kind, index, len(index + kind));
                let target = Target::new(to, 23).lane(lane);
                node.isend_copy(target, &bytes).unwrap();
            }
        }
    }
    let all = node.size() * 2 * COUNT;
    node.wait_until(|| seen.load(Ordering::Relaxed) == all)
        .unwrap();
}

fn open_long(node: &mut Node, seen: Arc<AtomicU32>, len: fn(u32) -> usize) {
    let mut next = vec![[0_u32; 2]; node.size() as usize];
    let handler = move |_: &mut portolan::Context<'_>, message: portolan::Message<'_>| {
        seen.fetch_add(1, Ordering::Relaxed);
        let indexes = &mut next[message.source() as usize];
        let is_kind = |kind: &u32| {
            let index = indexes[(*kind - 20) as usize];
            message.bytes() == payload(message.source(), *kind, index, len(index + kind))
        };
        let kind = [20, 21].into_iter().find(is_kind);
        let kind = kind.expect("the next message of either lane");
        indexes[(kind - 20) as usize] += 1;
    };
    node.open_active(23, PortConfig::in_place(), handler)
        .unwrap();
}

/// Two buffers are reused: the handler posts each again.
fn handlers_with_buffers(node: &mut Node) {
    const COUNT: u32 = 200;
    let (own, from) = (node.rank(), previous(node));
    let seen = Arc::new(AtomicU32::new(0));
    let counter = Arc::clone(&seen);
    let handler = move |context: &mut portolan::Context<'_>, mut message: portolan::Message<'_>| {
        let index = counter.fetch_add(1, Ordering::Relaxed);
        check(message.bytes(), from, 4, index, mixed_len(index));
        assert!(!message.is_truncated());
        let _ = context
            .post_recv(16, message.take_buffer().unwrap())
            .unwrap();
    };
    node.open_active(16, PortConfig::default(), handler)
        .unwrap();
    let sends: Vec<_> = (0..COUNT)
        .map(|index| {
            let bytes = payload(own, 4, index, mixed_len(index));
            node.isend(Target::new(next(node), 16), bytes).unwrap()
        })
        .collect();
    for _ in 0..2 {
        let posted = node.post_recv(16, vec![0; 120_000]).unwrap();
        assert!(matches!(
            node.wait(posted).unwrap_err().error(),
            Error::StaleRequest
        ));
    }
    node.wait_until(|| seen.load(Ordering::Relaxed) == COUNT)
        .unwrap();
    wait_all(node, sends);
}

/// The error reports both lengths, the buffer has what fits, and the next message is whole.
fn truncated(node: &mut Node) {
    open(node, 17);
    let (own, to, from) = (node.rank(), next(node), previous(node));
    for (index, len) in [(0, 100), (1, 20_000), (2, 1_000_000)] {
        let long = node
            .isend(Target::new(to, 17), payload(own, 5, index, len))
            .unwrap();
        let short = node
            .isend(Target::new(to, 17), payload(own, 6, index, 9))
            .unwrap();
        let mut buffer = [0xa5; 10];
        match node.recv_from(from, 17, &mut buffer) {
            Err(Error::Truncated {
                source_rank,
                port: 17,
                message_len,
                buffer_len: 10,
            }) => {
                assert_eq!((source_rank, message_len), (from, len as u64));
            }
            other => panic!("a message of {len} bytes into 10 gave {other:?}"),
        }
        assert_eq!(buffer, payload(from, 5, index, len)[..10], "{len} bytes");
        let got = node.recv_from(from, 17, &mut buffer).unwrap();
        check(&buffer[..got.len], from, 6, index, 9);
        wait_all(node, vec![long, short]);
    }
}

fn tested(node: &mut Node) {
    open(node, 18);
    let (own, to, from) = (node.rank(), next(node), previous(node));
    for (index, len) in [(0, 8), (1, 200_000)] {
        let send = node
            .isend(Target::new(to, 18), payload(own, 7, index, len))
            .unwrap();
        let receive = node.post_recv_from(from, 18, vec![0; len]).unwrap();
        let mut open = vec![receive, send];
        while let Some(&request) = open.last() {
            let Some(done) = node.test(request).unwrap() else {
                open.rotate_right(1);
                continue;
            };
            if request == receive {
                check(&done.buffer.unwrap(), from, 7, index, len);
            }
            assert!(matches!(
                node.test(request).unwrap_err().error(),
                Error::StaleRequest
            ));
            open.pop();
        }
    }
}

/// A receive without a source accepts messages of each sender, in each sender's order.
fn any_source(node: &mut Node) {
    const COUNT: u32 = 50;
    open(node, 19);
    for index in 0..COUNT {
        for to in 0..node.size() {
            let bytes = payload(node.rank(), 8, index, mixed_len(index));
            node.isend_copy(Target::new(to, 19), &bytes).unwrap();
        }
    }
    let mut seen = vec![0; node.size() as usize];
    for _ in 0..COUNT * node.size() {
        let mut buffer = vec![0; 120_000];
        let got = node.recv(19, &mut buffer).unwrap();
        let index = &mut seen[got.source as usize];
        check(&buffer[..got.len], got.source, 8, *index, mixed_len(*index));
        *index += 1;
    }
    assert!(seen.iter().all(|&count| count == COUNT));
}

fn to_itself(node: &mut Node) {
    open(node, 20);
    let own = node.rank();
    for (index, &len) in LENS.iter().enumerate() {
        let index = index_of(index);
        let sent = node
            .isend(Target::new(own, 20), payload(own, 9, index, len))
            .unwrap();
        let mut buffer = vec![0; len];
        let got = node.recv_from(own, 20, &mut buffer).unwrap();
        assert_eq!((got.len, got.source), (len, own));
        check(&buffer, own, 9, index, len);
        node.wait(sent).unwrap();
        let posted = node.post_recv(20, vec![0; len]).unwrap();
        node.send(Target::new(own, 20), &payload(own, 10, index, len))
            .unwrap();
        check(
            &node.wait(posted).unwrap().buffer.unwrap(),
            own,
            10,
            index,
            len,
        );
    }
}

/// Returns the time by a clock that the processes of a machine share.
fn now_us() -> u64 {
    #[allow(
        clippy::disallowed_methods,
        reason = "the ranks share the clock, for seconds"
    )]
    let since = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap();
    u64::try_from(since.as_micros()).unwrap()
}

/// No rank leaves a barrier before all have arrived.
fn barriers(node: &mut Node) {
    open(node, 21);
    for late in 0..node.size() {
        if node.rank() == late {
            std::thread::sleep(Duration::from_millis(10));
        }
        let came = now_us();
        node.barrier().unwrap();
        let left = now_us();
        for to in 0..node.size() {
            node.isend_copy(Target::new(to, 21), &came.to_le_bytes())
                .unwrap();
        }
        for from in 0..node.size() {
            let mut bytes = [0; 8];
            node.recv_from(from, 21, &mut bytes).unwrap();
            let other_came = u64::from_le_bytes(bytes);
            assert!(other_came <= left, "left before rank {from} came");
        }
    }
}

fn broadcasts(node: &mut Node) {
    for root in 0..node.size() {
        for (index, len) in [(0, 0), (1, 8), (2, 5_000), (3, 1_000_000)] {
            let wanted = payload(root, 11, index, len);
            let mut bytes = if node.rank() == root {
                wanted.clone()
            } else {
                vec![0; len]
            };
            node.broadcast(root, &mut bytes).unwrap();
            check(&bytes, root, 11, index, len);
        }
    }
}

/// Even and odd ranks at the same time, in reverse order, and then pairs with the last rank.
fn groups(node: &mut Node) {
    let own = node.rank();
    let half: Vec<u32> = (0..node.size())
        .rev()
        .filter(|rank| rank % 2 == own % 2)
        .collect();
    let id = 1 + u16::try_from(own % 2).unwrap();
    let group = Group::new(node, id, &half).unwrap();
    assert_eq!(half[group.rank() as usize], own);
    for round in 0..20 {
        let root = round % group.size();
        let source = half[root as usize];
        let wanted = payload(source, 12, round, mixed_len(round));
        let mut bytes = if source == own {
            wanted
        } else {
            vec![0; mixed_len(round)]
        };
        group.broadcast(node, root, &mut bytes).unwrap();
        check(&bytes, source, 12, round, mixed_len(round));
        group.barrier(node).unwrap();
    }
    let none: &[u32] = &[];
    assert!(matches!(
        Group::new(node, 3, none),
        Err(Error::Setting { .. })
    ));
    let beyond = Group::new(node, 3, &[own, node.size()]);
    assert!(matches!(beyond, Err(Error::NoSuchRank { .. })));
}

fn reductions(node: &mut Node) {
    let (own, size) = (node.rank(), node.size());
    // Sums of whole numbers are exact in any order. The last length does not fit a frame.
    let value = |rank: u32, index: usize| f64::from(rank + 1) * index as f64;
    for len in [0, 1, 3, 1_000, 40_000] {
        let mut values: Vec<f64> = (0..len).map(|index| value(own, index)).collect();
        node.allreduce(ReduceOp::Sum, &mut values).unwrap();
        for (index, &sum) in values.iter().enumerate() {
            let expected: f64 = (0..size).map(|rank| value(rank, index)).sum();
            assert_eq!(sum.to_bits(), expected.to_bits(), "value {index} of {len}");
        }
    }
    for root in 0..size {
        let mut values = [i64::from(own), -i64::from(own)];
        node.reduce(root, ReduceOp::Min, &mut values).unwrap();
        if own == root {
            assert_eq!(values, [0, 1 - i64::from(size)]);
        }
        // On the same port: neither must be taken for the other.
        let mut byte = [u8::try_from(own).unwrap()];
        node.broadcast(root, &mut byte).unwrap();
        assert_eq!(u32::from(byte[0]), root);
    }
    // Sums of thirds depend on the order, so all ranks must have added them in the same order.
    let mut third = [1.0 / f64::from(3 + own)];
    node.allreduce(ReduceOp::Sum, &mut third).unwrap();
    let mut of_first = third[0].to_le_bytes();
    node.broadcast(0, &mut of_first).unwrap();
    assert_eq!(third[0].to_le_bytes(), of_first);
}

/// Starts more operations than any window or table holds, in both directions at once.
fn many_at_once(node: &mut Node) {
    const COUNT: u32 = 3_000;
    open(node, 22);
    let (own, to, from) = (node.rank(), next(node), previous(node));
    let len = |index: u32| {
        if index.is_multiple_of(500) {
            300_000
        } else {
            mixed_len(index).min(700)
        }
    };
    let receives: Vec<_> = (0..COUNT)
        .map(|index| node.post_recv_from(from, 22, vec![0; len(index)]).unwrap())
        .collect();
    let sends: Vec<_> = (0..COUNT)
        .map(|index| {
            node.isend(Target::new(to, 22), payload(own, 13, index, len(index)))
                .unwrap()
        })
        .collect();
    for (index, request) in (0..).zip(receives) {
        check(
            &node.wait(request).unwrap().buffer.unwrap(),
            from,
            13,
            index,
            len(index),
        );
    }
    wait_all(node, sends);
}
