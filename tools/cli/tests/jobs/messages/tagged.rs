// SPDX-License-Identifier: MIT OR Apache-2.0
//! Scenes of tagged messages.

use super::scenes::{LENS, Scene, index_of, next, previous};
use crate::common::payload::{check, mixed_len, payload};
use portolan::{Error, Node, PortConfig, TagMatch, TagTarget, Target};
use std::time::{Duration, Instant};

pub(crate) const ALL: &[(&str, Scene)] = &[
    ("tagged, every length", every_length),
    ("tagged, received in another order", another_order),
    ("tagged and to ports at once", beside_ports),
    ("looking and claiming", looked_at_and_claimed),
    ("withdrawn receives", withdrawn),
    ("tagged, too short a buffer", truncated),
    ("tagged, to itself", to_itself),
];

/// Passes messages around the ring, posted before and after, with immediate data and without.
fn every_length(node: &mut Node) {
    let (own, to, from) = (node.rank(), next(node), previous(node));
    for (index, &len) in LENS.iter().enumerate() {
        let index = index_of(index);
        let tag = u64::from(index) << 32;
        let early = TagMatch::new(tag).source(from);
        let posted = node.post_recv_tagged(early, vec![0xa5; len]).unwrap();
        let target = TagTarget::new(to, tag).imm(u64::MAX - tag);
        node.send_tagged(target, &payload(own, 0, index, len))
            .unwrap();
        let done = node.wait(posted).unwrap();
        assert_eq!((done.len, done.source, done.tag), (len, from, tag));
        assert_eq!(done.imm, Some(u64::MAX - tag));
        check(&done.buffer.unwrap(), from, 0, index, len);

        let bytes = payload(own, 1, index, len);
        let sent = node
            .isend_tagged(TagTarget::new(to, tag + 1), bytes)
            .unwrap();
        let mut buffer = vec![0xa5; len + 3];
        let got = node
            .recv_tagged(TagMatch::new(tag).ignore(0xf), &mut buffer)
            .unwrap();
        assert_eq!((got.len, got.source, got.tag), (len, from, tag + 1));
        assert_eq!(got.imm, None);
        check(&buffer[..len], from, 1, index, len);
        assert_eq!(buffer[len..], [0xa5; 3], "written behind the message");
        node.wait(sent).unwrap();
    }
}

/// Sends from all ranks to all; each receives the last tag first, and finally the rest in order.
fn another_order(node: &mut Node) {
    const COUNT: u32 = 120;
    let own = node.rank();
    let mut sends = Vec::new();
    for index in 0..COUNT {
        for to in 0..node.size() {
            let target = TagTarget::new(to, u64::from(index / 2));
            let bytes = payload(own, 2, index, mixed_len(index));
            sends.push(node.isend_tagged(target, bytes).unwrap());
        }
    }
    let mut buffer = vec![0; 120_000];
    let mut take = |node: &mut Node, which: TagMatch, from: u32, index: u32| {
        let got = node.recv_tagged(which, &mut buffer).unwrap();
        assert_eq!((got.source, got.tag), (from, u64::from(index / 2)));
        check(&buffer[..got.len], from, 2, index, mixed_len(index));
    };
    for index in (0..COUNT).step_by(2).rev() {
        for from in 0..node.size() {
            let which = TagMatch::new(u64::from(index / 2)).source(from);
            take(node, which, from, index);
        }
    }
    for from in 0..node.size() {
        for index in (1..COUNT).step_by(2) {
            take(node, TagMatch::any().source(from), from, index);
        }
    }
    for request in sends {
        node.wait(request).unwrap();
    }
}

/// Copies of short messages share frames with messages to a port, and each matches its own receive.
fn beside_ports(node: &mut Node) {
    const COUNT: u32 = 2000;
    const PORT: u16 = 40;
    node.open(PORT, PortConfig::default()).unwrap();
    let (to, from) = (next(node), previous(node));
    let mut posted = Vec::new();
    for index in 0..COUNT {
        if index % 3 == 0 {
            let which = TagMatch::new(u64::from(index)).source(from);
            posted.push((index, node.post_recv_tagged(which, vec![0; 4]).unwrap()));
        }
    }
    for index in 0..COUNT {
        let bytes = index.to_le_bytes();
        match index % 3 {
            0 => node.isend_tagged_copy(TagTarget::new(to, u64::from(index)), &bytes),
            _ => node.isend_copy(Target::new(to, PORT), &bytes),
        }
        .unwrap();
    }
    let mut bytes = [0; 4];
    for index in (0..COUNT).filter(|index| index % 3 > 0) {
        node.recv_from(from, PORT, &mut bytes).unwrap();
        assert_eq!(u32::from_le_bytes(bytes), index);
    }
    for (index, request) in posted {
        let done = node.wait(request).unwrap();
        assert_eq!(done.buffer.unwrap()[..], index.to_le_bytes());
    }
}

fn looked_at_and_claimed(node: &mut Node) {
    let (own, to, from) = (node.rank(), next(node), previous(node));
    for (index, len) in (0..).zip([20, 200_000]) {
        let sends = [0, 1].map(|turn| {
            let target = TagTarget::new(to, 77).imm(turn);
            let bytes = payload(own, 3, index, len);
            node.isend_tagged(target, bytes).unwrap()
        });
        let which = TagMatch::new(77).source(from);
        let deadline = Instant::now() + Duration::from_secs(60);
        let claimed = loop {
            if let Some(seen) = node.peek(which).unwrap() {
                assert_eq!((seen.source, seen.len, seen.imm), (from, len, Some(0)));
                break node.claim(which).unwrap().unwrap();
            }
            assert!(Instant::now() < deadline, "nothing came");
        };
        let mut buffer = vec![0; len];
        assert_eq!(node.recv_tagged(which, &mut buffer).unwrap().imm, Some(1));
        let request = node.recv_claimed(claimed, buffer).unwrap();
        let done = node.wait(request).unwrap();
        assert_eq!((done.tag, done.imm), (77, Some(0)));
        check(&done.buffer.unwrap(), from, 3, index, len);
        for request in sends {
            node.wait(request).unwrap();
        }
    }
}

fn withdrawn(node: &mut Node) {
    let (to, from) = (next(node), previous(node));
    let which = TagMatch::new(5).source(from);
    let [first, second] = [(); 2].map(|()| node.post_recv_tagged(which, vec![0; 1]).unwrap());
    assert!(node.cancel(first));
    assert!(!node.cancel(first));
    let (error, done) = node.wait(first).unwrap_err().into_parts();
    assert!(matches!(error, Error::Cancelled));
    assert_eq!((done.source, done.buffer.unwrap().len()), (from, 1));
    // No rank may send before all have cancelled.
    node.barrier().unwrap();
    node.send_tagged(TagTarget::new(to, 5), b"x").unwrap();
    let done = node.wait(second).unwrap();
    assert_eq!(done.buffer.unwrap()[..], *b"x");
    assert!(!node.cancel(second));
}

fn truncated(node: &mut Node) {
    let (own, to, from) = (node.rank(), next(node), previous(node));
    for (index, len) in (0..).zip([65, 40_000, 300_000]) {
        let bytes = payload(own, 4, index, len);
        let target = TagTarget::new(to, 9).imm(3);
        let sent = node.isend_tagged(target, bytes).unwrap();
        let mut buffer = vec![0; 64];
        match node.recv_tagged(TagMatch::new(9).source(from), &mut buffer) {
            Err(Error::TruncatedTagged {
                source_rank,
                tag,
                imm,
                message_len,
                buffer_len,
            }) => {
                assert_eq!((source_rank, tag, imm), (from, 9, Some(3)));
                assert_eq!(buffer_len, 64);
                assert_eq!(message_len, len as u64);
                assert!(buffer[..] == payload(from, 4, index, len)[..64]);
            }
            other => panic!("{other:?}"),
        }
        node.wait(sent).unwrap();
    }
}

fn to_itself(node: &mut Node) {
    let own = node.rank();
    for len in [0, 8, 100_000] {
        let bytes = payload(own, 5, 0, len);
        let sent = node
            .isend_tagged(TagTarget::new(own, 3), bytes.clone())
            .unwrap();
        let mut buffer = vec![0; len];
        let got = node.recv_tagged(TagMatch::new(3), &mut buffer).unwrap();
        assert_eq!((got.source, got.len), (own, len));
        assert!(buffer == bytes);
        node.wait(sent).unwrap();
    }
}
