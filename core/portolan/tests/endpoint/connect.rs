// SPDX-License-Identifier: MIT OR Apache-2.0
//! Insertion, discovery and removal of peers.

use crate::common::{ANY, PLAIN, Side, bytes, pump, shm, udp};
use portolan::binding::{Endpoint, EndpointAddress, SubmitError};

/// One side inserts the other one, which discovers it by its first message and answers.
fn unknown_peer_is_answered(open: fn() -> Endpoint, link: &str) {
    let (mut a, mut b) = (Side::new(open()), Side::new(open()));
    let to_b = a.end.insert(&b.end.address()).unwrap();
    let (ahoy, mut buf) = (bytes(100, 1), [0xa5; 128]);
    b.recv(&ANY, &mut buf, 7);
    a.send(to_b, &PLAIN, &ahoy, 1);
    let got = pump(&mut [&mut a, &mut b], |sides| sides[1].take(7));
    assert_eq!((got.len, got.error), (100, None));
    assert_eq!(buf[..100], ahoy);
    let to_a = got.peer.unwrap();
    assert_eq!(b.end.address_of(to_a), Some(a.end.address()));
    assert!(!b.end.is_inserted(to_a));
    let mut answer = [0xa5; 8];
    a.recv(&ANY, &mut answer, 8);
    b.end.inject(to_a, &PLAIN, b"ahoy too").unwrap();
    let got = pump(&mut [&mut a, &mut b], |sides| sides[0].take(8));
    assert_eq!((got.peer, &answer), (Some(to_b), b"ahoy too"));
    assert_eq!(a.end.links_to(to_b), [link]);
    // A discovered peer keeps its number.
    assert_eq!(b.end.insert(&a.end.address()).unwrap(), to_a);
    assert!(b.end.is_inserted(to_a));
}

#[test]
fn unknown_peer_is_answered_by_udp() {
    unknown_peer_is_answered(udp, "udp");
}

#[test]
fn unknown_peer_is_answered_by_shm() {
    unknown_peer_is_answered(shm, "shm");
}

/// Both sides insert each other and send at once.
fn simultaneous_connect_works(open: fn() -> Endpoint) {
    let (mut a, mut b) = (Side::new(open()), Side::new(open()));
    let to_b = a.end.insert(&b.end.address()).unwrap();
    let to_a = b.end.insert(&a.end.address()).unwrap();
    let (mut at_a, mut at_b) = ([0; 4], [0; 4]);
    a.recv(&ANY, &mut at_a, 1);
    b.recv(&ANY, &mut at_b, 1);
    a.end.inject(to_b, &PLAIN, b"to b").unwrap();
    b.end.inject(to_a, &PLAIN, b"to a").unwrap();
    for side in 0..2 {
        let got = pump(&mut [&mut a, &mut b], |sides| sides[side].take(1));
        assert_eq!(got.error, None);
    }
    assert_eq!((&at_a, &at_b), (b"to a", b"to b"));
}

#[test]
fn simultaneous_connect_works_by_udp() {
    simultaneous_connect_works(udp);
}

#[test]
fn simultaneous_connect_works_by_shm() {
    simultaneous_connect_works(shm);
}

#[test]
fn endpoint_reaches_itself() {
    for open in [udp as fn() -> Endpoint, shm] {
        let mut a = Side::new(open());
        let to_a = a.end.insert(&a.end.address()).unwrap();
        for len in [0, 8, 5_000, 300_000] {
            let (sent, mut buf) = (bytes(len, 3), vec![0xa5; len]);
            a.recv(&ANY, &mut buf, 1);
            a.send(to_a, &PLAIN, &sent, 2);
            let got = pump(&mut [&mut a], |sides| sides[0].take(1));
            assert_eq!((got.len, got.peer), (len as u64, Some(to_a)));
            pump(&mut [&mut a], |sides| sides[0].take_sent(2));
            assert_eq!(buf, sent);
        }
    }
}

#[test]
fn wrong_token_is_ignored() {
    for open in [udp as fn() -> Endpoint, shm] {
        let (mut a, mut b) = (Side::new(open()), Side::new(open()));
        let mut guessed = *b.end.address().as_bytes();
        guessed[8] ^= 1;
        // On shared memory even the socket's name is derived from the token.
        let guessed = EndpointAddress::from_bytes(&guessed).unwrap();
        let to_b = a.end.insert(&guessed).unwrap();
        let sent = bytes(8, 1);
        a.send(to_b, &PLAIN, &sent, 1);
        let refused = pump(&mut [&mut a, &mut b], |sides| {
            let by_b = sides[1].end.drops().contains_key("bad authenticator");
            let failed = sides[0].take(1).map(|ended| ended.error.is_some());
            failed.or(by_b.then_some(true))
        });
        assert!(refused);
        assert!(
            b.end.address_of(portolan::binding::PeerIndex(0)).is_none(),
            "nobody"
        );
    }
}

#[test]
fn removed_peer_may_be_inserted_again() {
    for open in [udp as fn() -> Endpoint, shm] {
        let (mut a, mut b) = (Side::new(open()), Side::new(open()));
        let to_b = a.end.insert(&b.end.address()).unwrap();
        a.end.inject(to_b, &PLAIN, b"one").unwrap();
        let mut buf = [0; 3];
        b.recv(&ANY, &mut buf, 1);
        pump(&mut [&mut a, &mut b], |sides| sides[1].take(1));
        a.end.remove(to_b);
        assert_eq!(a.end.address_of(to_b), None);
        let refused = a.end.inject(to_b, &PLAIN, b"two");
        assert_eq!(refused, Err(SubmitError::NoSuchPeer));
        let again = a.end.insert(&b.end.address()).unwrap();
        b.recv(&ANY, &mut buf, 2);
        a.end.inject(again, &PLAIN, b"new").unwrap();
        let got = pump(&mut [&mut a, &mut b], |sides| sides[1].take(2));
        assert_eq!((&buf, got.error), (b"new", None));
    }
}
