// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory of one endpoint that other endpoints use.

use crate::common::{ANY, PLAIN, Side, bytes, piece, pump, shm, udp};
use portolan::binding::{
    Cookie, Endpoint, PeerIndex, RawAccess, RawAtomic, RawError, RawKind, RawPiece, RawRemote,
    SubmitError,
};
use portolan::{AtomicOp, Datatype, Error, RemoteFault};

const OPENERS: [fn() -> Endpoint; 2] = [udp, shm];
const BOTH: RawAccess = RawAccess {
    read: true,
    write: true,
};
const KEY: u64 = 0xfeed;

/// Creates two endpoints; `memory` of the second is registered, with offsets.
fn pair(open: fn() -> Endpoint, memory: &mut [u8]) -> (Side, Side, PeerIndex) {
    let mut a = Side::new(open());
    let mut b = Side::new(open());
    let to_b = a.end.insert(&b.end.address()).unwrap();
    // SAFETY: the tests keep the memory until the endpoint is dropped.
    unsafe { b.end.register(piece(memory), BOTH, KEY, 0) }.unwrap();
    (a, b, to_b)
}

fn at(addr: u64) -> RawRemote {
    RawRemote { addr, key: KEY }
}

fn read_only(bytes: &[u8]) -> RawPiece {
    RawPiece {
        ptr: bytes.as_ptr().cast_mut(),
        len: bytes.len(),
    }
}

#[test]
fn puts_and_gets_of_all_lengths_match() {
    for open in OPENERS {
        let mut memory = vec![0xa5; 3_000_100];
        let (mut a, mut b, to_b) = pair(open, &mut memory);
        for len in [1, 8, 5_000, 60_000, 3_000_000] {
            let (sent, mut back) = (bytes(len, 7), vec![0; len]);
            // SAFETY: all memory stays valid until the completions.
            unsafe {
                a.end
                    .put(to_b, at(50), &[read_only(&sent)], None, Cookie::new(1))
                    .unwrap();
            }
            let done = pump(&mut [&mut a, &mut b], |sides| sides[0].take(1));
            assert_eq!(
                (done.kind, done.error, done.len),
                (RawKind::Put, None, len as u64)
            );
            assert_eq!(memory[50..50 + len], sent);
            assert_eq!((memory[49], memory[50 + len]), (0xa5, 0xa5));
            // SAFETY: as above.
            unsafe { a.end.get(to_b, at(50), &[piece(&mut back)], Cookie::new(2)) }.unwrap();
            let done = pump(&mut [&mut a, &mut b], |sides| sides[0].take(2));
            assert_eq!(
                (done.kind, done.error, done.len),
                (RawKind::Get, None, len as u64)
            );
            assert_eq!(back, sent);
            memory.fill(0xa5);
        }
        assert!(b.done.is_empty(), "{:?}", b.done);
    }
}

#[test]
fn pieces_are_put_and_got_in_order() {
    for open in OPENERS {
        let mut memory = vec![0; 300_000];
        let (mut a, mut b, to_b) = pair(open, &mut memory);
        for part in [10, 100_000] {
            let sent: Vec<_> = (0..3).map(|seed| bytes(part, seed)).collect();
            let pieces: Vec<_> = sent.iter().map(|bytes| read_only(bytes)).collect();
            let (mut front, mut back) = (vec![0; part / 2], vec![0; part * 3 - part / 2]);
            // SAFETY: all memory stays valid until the completions.
            unsafe { a.end.put(to_b, at(0), &pieces, None, Cookie::new(1)) }.unwrap();
            pump(&mut [&mut a, &mut b], |sides| sides[0].take(1));
            let into = [piece(&mut front), piece(&mut back)];
            // SAFETY: as above.
            unsafe { a.end.get(to_b, at(0), &into, Cookie::new(2)) }.unwrap();
            let done = pump(&mut [&mut a, &mut b], |sides| sides[0].take(2));
            assert_eq!(done.error, None);
            assert_eq!([front, back].concat(), sent.concat());
        }
    }
}

#[test]
fn put_notice_follows_its_bytes() {
    for open in OPENERS {
        let mut memory = vec![0; 200_000];
        let (mut a, mut b, to_b) = pair(open, &mut memory);
        for len in [4, 200_000] {
            let sent = bytes(len, 1);
            // SAFETY: the memory stays valid until the completion.
            unsafe {
                a.end
                    .put(to_b, at(0), &[read_only(&sent)], Some(99), Cookie::new(1))
            }
            .unwrap();
            let told = pump(&mut [&mut a, &mut b], |sides| sides[1].take(0));
            assert_eq!((told.kind, told.imm), (RawKind::RemotePut, Some(99)));
            assert_eq!(told.len, len as u64);
            assert_eq!(memory[..len], sent);
            pump(&mut [&mut a, &mut b], |sides| sides[0].take(1));
        }
    }
}

#[test]
fn message_after_injected_put_finds_its_bytes() {
    for open in OPENERS {
        let mut memory = vec![0; 64];
        let (mut a, mut b, to_b) = pair(open, &mut memory);
        for number in 1..200_u8 {
            let mut buf = [0; 1];
            b.recv(&ANY, &mut buf, 1);
            a.end.inject_put(to_b, at(8), &[number; 8], None).unwrap();
            a.end.inject(to_b, &PLAIN, &[number]).unwrap();
            pump(&mut [&mut a, &mut b], |sides| sides[1].take(1));
            assert_eq!(memory[8..16], [buf[0]; 8]);
        }
        let long = a.end.inject_put(to_b, at(0), &vec![0; 1 << 20], None);
        assert_eq!(long, Err(SubmitError::TooLong));
    }
}

#[test]
fn memory_can_be_addressed_by_pointer() {
    let mut memory = vec![0; 64];
    let (mut a, mut b, to_b) = pair(shm, &mut memory);
    let mut other = [0_u8; 16];
    let base = other.as_ptr().addr() as u64;
    // SAFETY: the memory outlives the endpoint.
    unsafe { b.end.register(piece(&mut other), BOTH, 7, base) }.unwrap();
    let there = RawRemote {
        addr: base + 4,
        key: 7,
    };
    // SAFETY: the memory stays valid until the completion.
    unsafe {
        a.end
            .put(to_b, there, &[read_only(b"ahoy")], None, Cookie::new(1))
    }
    .unwrap();
    pump(&mut [&mut a, &mut b], |sides| sides[0].take(1));
    assert_eq!(&other[4..8], b"ahoy");
}

#[test]
fn forbidden_access_is_refused_and_changes_nothing() {
    for open in OPENERS {
        let mut memory = vec![0xa5; 64];
        let (mut a, mut b, to_b) = pair(open, &mut memory);
        let mut other = [0xa5_u8; 16];
        let read = RawAccess {
            read: true,
            write: false,
        };
        // SAFETY: the memory outlives the endpoint.
        unsafe { b.end.register(piece(&mut other), read, 7, 0) }.unwrap();
        // SAFETY: the call fails and registers nothing.
        let twice = unsafe { b.end.register(piece(&mut other), read, 7, 0) };
        assert!(matches!(twice, Err(Error::KeyInUse { key: 7 })));
        let place = |key, addr| RawRemote { addr, key };
        for (place, fault) in [
            (place(1, 0), RemoteFault::NoSuchKey),
            (place(KEY, 61), RemoteFault::OutOfBounds),
            (place(KEY, u64::MAX), RemoteFault::OutOfBounds),
            (place(7, 0), RemoteFault::NotAllowed),
        ] {
            // SAFETY: the memory stays valid until the completion.
            unsafe {
                a.end
                    .put(to_b, place, &[read_only(b"ahoy")], None, Cookie::new(1))
            }
            .unwrap();
            let refused = pump(&mut [&mut a, &mut b], |sides| sides[0].take(1));
            assert_eq!(refused.error, Some(RawError::Remote(fault)));
        }
        assert!(b.end.deregister(7));
        assert!(!b.end.deregister(7));
        let mut back = [0; 4];
        // SAFETY: the memory stays valid until the completion.
        unsafe {
            a.end
                .get(to_b, place(7, 0), &[piece(&mut back)], Cookie::new(1))
        }
        .unwrap();
        let refused = pump(&mut [&mut a, &mut b], |sides| sides[0].take(1));
        assert_eq!(
            refused.error,
            Some(RawError::Remote(RemoteFault::NoSuchKey))
        );
        assert_eq!((memory, other), (vec![0xa5; 64], [0xa5; 16]));
    }
}

#[test]
fn requests_to_a_failed_peer_fail() {
    for open in OPENERS {
        let mut memory = vec![0; 64];
        let (mut a, mut b, to_b) = pair(open, &mut memory);
        a.end.inject_put(to_b, at(0), b"here", None).unwrap();
        pump(&mut [&mut a, &mut b], |_| {
            (memory[..4] == *b"here").then_some(())
        });
        drop(b);
        let mut back = [0; 4];
        // SAFETY: the memory stays valid until the completion.
        unsafe { a.end.get(to_b, at(0), &[piece(&mut back)], Cookie::new(1)) }.unwrap();
        let failed = pump(&mut [&mut a], |sides| sides[0].take(1));
        assert!(
            matches!(failed.error, Some(RawError::PeerGone(_))),
            "{failed:?}"
        );
    }
}

#[test]
fn atomics_update_and_return_previous_values() {
    for open in OPENERS {
        let mut memory = vec![0; 64];
        memory[8..16].copy_from_slice(&40_u64.to_le_bytes());
        let (mut a, mut b, to_b) = pair(open, &mut memory);
        let (two, other) = (
            2_u64.to_le_bytes(),
            [7_u64.to_le_bytes(), [0xff; 8]].concat(),
        );
        let sum = RawAtomic {
            op: AtomicOp::Sum,
            datatype: Datatype::U64,
            operands: &two,
        };
        a.end.inject_atomic(to_b, at(8), &sum).unwrap();
        // SAFETY: the call names no memory.
        unsafe { a.end.atomic(to_b, at(8), &sum, &[], Cookie::new(1)) }.unwrap();
        let done = pump(&mut [&mut a, &mut b], |sides| sides[0].take(1));
        assert_eq!((done.kind, done.error), (RawKind::Atomic, None));
        let swap = RawAtomic {
            op: AtomicOp::SwapIfNotEqual,
            operands: &other,
            ..sum
        };
        let (mut front, mut back) = ([0; 3], [0; 5]);
        let before = [piece(&mut front), piece(&mut back)];
        // SAFETY: the memory stays valid until the completion.
        unsafe { a.end.atomic(to_b, at(8), &swap, &before, Cookie::new(2)) }.unwrap();
        let done = pump(&mut [&mut a, &mut b], |sides| sides[0].take(2));
        assert_eq!(done.error, None);
        assert_eq!([&front[..], &back].concat(), 44_u64.to_le_bytes());
        let read = RawAtomic {
            op: AtomicOp::Read,
            operands: &[],
            ..sum
        };
        let mut now = [0; 8];
        // SAFETY: the memory stays valid until the completion.
        unsafe {
            a.end
                .atomic(to_b, at(8), &read, &[piece(&mut now)], Cookie::new(3))
        }
        .unwrap();
        pump(&mut [&mut a, &mut b], |sides| sides[0].take(3));
        assert_eq!(now, 7_u64.to_le_bytes());
        let bits = RawAtomic {
            op: AtomicOp::BitAnd,
            datatype: Datatype::F64,
            ..sum
        };
        let refused = a.end.inject_atomic(to_b, at(8), &bits);
        assert_eq!(refused, Err(SubmitError::Unsupported));
    }
}
