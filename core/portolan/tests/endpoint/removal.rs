// SPDX-License-Identifier: MIT OR Apache-2.0
//! Peers that are removed right after a send to them.

use crate::common::{ANY, PATIENCE, PLAIN, Side, bytes, from, pump, shm, udp};
use portolan::binding::{Endpoint, EndpointAddress, PeerIndex, RawError, SubmitError};
use std::process::Command;
use std::time::Instant;

/// More messages than are sent one by one, and more than fit a frame.
const COUNT: u64 = 200;

/// Returns two connected endpoints, and the first one's number of the second.
fn connected_pair(open: fn() -> Endpoint) -> (Side, Side, PeerIndex) {
    let (mut a, mut b) = (Side::new(open()), Side::new(open()));
    let to_b = a.end.insert(&b.end.address()).unwrap();
    let mut buf = [0; 8];
    b.recv(&ANY, &mut buf, COUNT);
    a.end.inject(to_b, &PLAIN, b"one").unwrap();
    pump(&mut [&mut a, &mut b], |sides| sides[1].take(COUNT));
    (a, b, to_b)
}

/// Sends, waits until all sends are complete, and removes the receiver at once.
fn sent_messages_arrive(open: fn() -> Endpoint) {
    let (mut a, mut b, to_b) = connected_pair(open);
    let sent: Vec<_> = (0..COUNT).map(|seed| bytes(8, seed as u8)).collect();
    for (context, bytes) in (0..).zip(&sent) {
        a.send(to_b, &PLAIN, bytes, context);
    }
    for context in 0..COUNT {
        pump(&mut [&mut a], |sides| sides[0].take_sent(context));
    }
    a.end.remove(to_b);
    let refused = a.end.inject(to_b, &PLAIN, b"late");
    assert_eq!(refused, Err(SubmitError::NoSuchPeer));
    let mut bufs = vec![[0xa5; 8]; COUNT as usize];
    for (context, buf) in (0..).zip(&mut bufs) {
        b.recv(&ANY, buf, context);
    }
    for context in 0..COUNT {
        let got = pump(&mut [&mut a, &mut b], |sides| sides[1].take(context));
        assert_eq!(got.error, None);
        assert_eq!(bufs[context as usize], *sent[context as usize]);
    }
}

#[test]
fn messages_sent_before_removal_arrive_by_shm() {
    sent_messages_arrive(shm);
}

#[test]
fn messages_sent_before_removal_arrive_by_udp() {
    sent_messages_arrive(udp);
}

/// Repeats the test above in a process on a network that loses 30 % of all frames.
#[test]
fn messages_sent_before_removal_arrive_despite_loss() {
    let test = "removal::messages_sent_before_removal_arrive_by_udp";
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test])
        .env("PORTOLAN_FAULT", "drop=0.3,seed=7")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{said}"
    );
}

#[test]
fn injected_messages_waiting_for_credit_arrive_after_removal() {
    for open in [udp as fn() -> Endpoint, shm] {
        let (mut a, mut b, to_b) = connected_pair(open);
        // More than the credit of the receiver before it receives.
        const LEN: usize = 16_000;
        for seed in 0..COUNT {
            a.end.inject(to_b, &PLAIN, &bytes(LEN, seed as u8)).unwrap();
        }
        a.end.remove(to_b);
        let mut buf = vec![0xa5; LEN];
        for seed in 0..COUNT {
            b.recv(&ANY, &mut buf, seed);
            let got = pump(&mut [&mut a, &mut b], |sides| sides[1].take(seed));
            assert_eq!(got.error, None);
            assert!(buf == bytes(LEN, seed as u8), "message {seed}");
        }
    }
}

#[test]
fn receives_from_a_removed_peer_fail_at_once() {
    for open in [udp as fn() -> Endpoint, shm] {
        let (mut a, _b, to_b) = connected_pair(open);
        let mut buf = [0; 8];
        a.recv(&from(to_b), &mut buf, 1);
        a.end.remove(to_b);
        a.poll();
        let ended = a.take(1).unwrap();
        assert!(
            matches!(ended.error, Some(RawError::PeerGone(_))),
            "{ended:?}"
        );
    }
}

#[test]
fn messages_of_a_removed_peer_arrive() {
    for open in [udp as fn() -> Endpoint, shm] {
        let (mut a, mut b, to_b) = connected_pair(open);
        let to_a = b.end.insert(&a.end.address()).unwrap();
        b.end.inject(to_a, &PLAIN, b"answer").unwrap();
        a.end.remove(to_b);
        let mut buf = [0; 8];
        a.recv(&ANY, &mut buf, 1);
        let got = pump(&mut [&mut a, &mut b], |sides| sides[0].take(1));
        assert_eq!((got.error, &buf[..6]), (None, &b"answer"[..]));
    }
}

/// Inserts and removes an address until it gets another number, which proves that the peer was
/// forgotten.
fn is_forgotten(side: &mut Side, address: &EndpointAddress, was: PeerIndex) {
    let begun = Instant::now();
    while side.end.insert(address).unwrap() == was {
        side.end.remove(was);
        let pause = Instant::now();
        while pause.elapsed() < std::time::Duration::from_millis(1500) {
            side.poll();
        }
        assert!(begun.elapsed() < PATIENCE, "it is remembered for ever");
    }
}

#[test]
fn removed_peer_is_forgotten_after_delivery_or_failure() {
    for open in [udp as fn() -> Endpoint, shm] {
        let (mut a, mut b, to_b) = connected_pair(open);
        let address = b.end.address();
        a.end.inject(to_b, &PLAIN, b"last").unwrap();
        let mut buf = [0; 8];
        b.recv(&ANY, &mut buf, 1);
        pump(&mut [&mut a, &mut b], |sides| sides[1].take(1));
        // The peer must poll, because its acknowledgement is required.
        for _ in 0..10_000 {
            b.poll();
        }
        is_forgotten(&mut a, &address, to_b);

        let (mut a, b, to_b) = connected_pair(open);
        let address = b.end.address();
        a.end.remove(to_b);
        drop(b);
        is_forgotten(&mut a, &address, to_b);
    }
}
