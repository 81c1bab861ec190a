// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages of endpoints: lengths, pieces, order, buffers for many messages, cancellation.

use crate::common::{ANY, PLAIN, Side, bytes, from, piece, pump, shm, tagged, to_tag, udp};
use portolan::binding::{
    Cookie, Endpoint, PeerIndex, RawError, RawKind, RawPiece, RawRecv, RawSend, Sent, SubmitError,
};

const OPENERS: [fn() -> Endpoint; 2] = [udp, shm];

fn pair(open: fn() -> Endpoint) -> (Side, Side, PeerIndex) {
    let mut a = Side::new(open());
    let b = Side::new(open());
    let to_b = a.end.insert(&b.end.address()).unwrap();
    (a, b, to_b)
}

#[test]
fn messages_of_all_lengths_arrive_posted_or_unexpected() {
    for open in OPENERS {
        let (mut a, mut b, to_b) = pair(open);
        for (len, posted_first) in [
            (0, true),
            (1, false),
            (1000, true),
            (9000, false),
            (70_000, true),
            (3_000_000, false),
        ] {
            let (sent, mut buf) = (bytes(len, 9), vec![0xa5; len + 1]);
            if posted_first {
                b.recv(&ANY, &mut buf, 1);
            }
            a.send(to_b, &PLAIN, &sent, 2);
            if !posted_first {
                for _ in 0..50 {
                    a.poll();
                    b.poll();
                }
                b.recv(&ANY, &mut buf, 1);
            }
            let got = pump(&mut [&mut a, &mut b], |sides| sides[1].take(1));
            assert_eq!(
                (got.len, got.error, got.kind),
                (len as u64, None, RawKind::Recv)
            );
            assert_eq!(got.buf, buf.as_mut_ptr());
            pump(&mut [&mut a, &mut b], |sides| sides[0].take_sent(2));
            assert_eq!(buf[..len], sent);
            assert_eq!(buf[len], 0xa5, "nothing behind the message is touched");
        }
    }
}

#[test]
fn burst_arrives_once_and_in_order() {
    for open in OPENERS {
        let (mut a, mut b, to_b) = pair(open);
        const COUNT: u64 = 3000;
        let mut buf = vec![[0_u8; 8]; COUNT as usize];
        for (context, buf) in (0..).zip(&mut buf) {
            b.recv(&ANY, buf, context);
        }
        for number in 0..COUNT {
            a.end.inject(to_b, &PLAIN, &number.to_le_bytes()).unwrap();
        }
        let all = pump(&mut [&mut a, &mut b], |sides| {
            let done = &mut sides[1].done;
            (done.len() as u64 == COUNT).then(|| std::mem::take(done))
        });
        for (number, done) in (0..).zip(&all) {
            assert_eq!(done.cookie.context, number);
            assert_eq!(buf[number as usize], number.to_le_bytes());
        }
    }
}

#[test]
fn pieces_are_gathered_and_scattered() {
    for open in OPENERS {
        let (mut a, mut b, to_b) = pair(open);
        for part in [4, 30_000, 200_000] {
            let mut sent: Vec<_> = (0..3).map(|seed| bytes(part, seed)).collect();
            let pieces: Vec<_> = sent.iter_mut().map(|bytes| piece(bytes)).collect();
            let mut front = vec![0; part / 2];
            let mut back = vec![0; part * 3];
            let into = [piece(&mut front), piece(&mut back)];
            // SAFETY: all memory stays valid until both completions.
            unsafe {
                b.end.recv(&ANY, &into, Cookie::new(1)).unwrap();
                let sent = a.end.send(to_b, &PLAIN, &pieces, Cookie::new(2)).unwrap();
                a.sent.extend((sent == Sent::Done).then_some(2));
            }
            let got = pump(&mut [&mut a, &mut b], |sides| sides[1].take(1));
            pump(&mut [&mut a, &mut b], |sides| sides[0].take_sent(2));
            assert_eq!(got.len, part as u64 * 3);
            back.truncate(part * 3 - front.len());
            assert_eq!([front, back].concat(), sent.concat());
        }
        let many = [RawPiece {
            ptr: std::ptr::null_mut(),
            len: 0,
        }; 9];
        // SAFETY: the pieces are empty.
        let refused = unsafe { a.end.send(to_b, &PLAIN, &many, Cookie::new(3)) };
        assert_eq!(refused, Err(SubmitError::TooManyPieces));
    }
}

#[test]
fn oversized_message_is_truncated_and_reported() {
    for open in OPENERS {
        let (mut a, mut b, to_b) = pair(open);
        for len in [100, 500_000] {
            let (sent, mut buf) = (bytes(len, 4), [0xa5; 10]);
            b.recv(&ANY, &mut buf, 1);
            a.send(to_b, &PLAIN, &sent, 2);
            let got = pump(&mut [&mut a, &mut b], |sides| sides[1].take(1));
            let message_len = len as u64;
            assert_eq!(got.error, Some(RawError::Truncated { message_len }));
            assert_eq!((got.len, &buf[..]), (10, &sent[..10]));
            pump(&mut [&mut a, &mut b], |sides| sides[0].take_sent(2));
        }
    }
}

#[test]
fn multi_receive_buffer_fills_up() {
    for open in OPENERS {
        let (mut a, mut b, to_b) = pair(open);
        let mut buf = vec![0xa5; 100];
        // SAFETY: the buffer lives until its last completion.
        unsafe { b.end.recv_multi(&ANY, piece(&mut buf), 20, Cookie::new(5)) }.unwrap();
        for seed in 0..6 {
            a.end.inject(to_b, &PLAIN, &bytes(30, seed)).unwrap();
        }
        let got = pump(&mut [&mut a, &mut b], |sides| {
            let done = &mut sides[1].done;
            (done.len() == 3).then(|| std::mem::take(done))
        });
        let start = buf.as_mut_ptr();
        for (index, done) in got.iter().enumerate() {
            assert_eq!((done.cookie.context, done.len), (5, 30));
            assert_eq!(done.buf, start.wrapping_add(index * 30));
            assert_eq!(done.released, index == 2, "10 bytes are less than 20");
            assert_eq!(buf[index * 30..][..30], bytes(30, index as u8));
        }
        // The remaining messages wait for another buffer.
        let mut next = [0; 30];
        b.recv(&ANY, &mut next, 6);
        pump(&mut [&mut a, &mut b], |sides| sides[1].take(6));
        assert_eq!(next[..], bytes(30, 3));
    }
}

#[test]
fn receive_matches_only_its_source() {
    for open in OPENERS {
        let (mut a, mut b, to_b) = pair(open);
        let mut c = Side::new(open());
        let c_to_b = c.end.insert(&b.end.address()).unwrap();
        let from_a = b.end.insert(&a.end.address()).unwrap();
        let (mut first, mut second) = ([0; 1], [0; 1]);
        b.recv(&from(from_a), &mut first, 1);
        b.recv(&ANY, &mut second, 2);
        c.end.inject(c_to_b, &PLAIN, b"c").unwrap();
        let got = pump(&mut [&mut a, &mut b, &mut c], |sides| sides[1].take(2));
        assert_ne!(got.peer, Some(from_a));
        a.end.inject(to_b, &PLAIN, b"a").unwrap();
        let got = pump(&mut [&mut a, &mut b, &mut c], |sides| sides[1].take(1));
        assert_eq!(got.peer, Some(from_a));
        assert_eq!((&first, &second), (b"a", b"c"));
    }
}

#[test]
fn cancelled_receive_matches_nothing() {
    let (mut a, mut b, to_b) = pair(shm);
    let (mut first, mut second) = ([0xa5; 4], [0; 4]);
    b.recv(&ANY, &mut first, 1);
    assert!(b.end.cancel(1));
    assert!(!b.end.cancel(1), "once");
    b.recv(&ANY, &mut second, 2);
    a.end.inject(to_b, &PLAIN, b"ahoy").unwrap();
    pump(&mut [&mut a, &mut b], |sides| sides[1].take(2));
    let cancelled = b.take(1).unwrap();
    assert_eq!(cancelled.error, Some(RawError::Cancelled));
    assert_eq!((first, &second), ([0xa5; 4], b"ahoy"));
}

#[test]
fn long_message_is_not_injected() {
    let (mut a, _b, to_b) = pair(shm);
    let len = a.end.limits().inject_len_max;
    let refused = a.end.inject(to_b, &PLAIN, &vec![0; len + 1]);
    assert_eq!(refused, Err(SubmitError::TooLong));
    let nobody = a.end.inject(PeerIndex(77), &PLAIN, b"");
    assert_eq!(nobody, Err(SubmitError::NoSuchPeer));
}

#[test]
fn tagged_receive_matches_its_tags_and_returns_immediate_data() {
    for open in OPENERS {
        let (mut a, mut b, to_b) = pair(open);
        for len in [5, 5_000, 200_000] {
            let sent = bytes(len, 1);
            let mut bufs = [(); 3].map(|()| vec![0xa5; len]);
            let [exact, masked, plain] = &mut bufs;
            let mask = RawRecv {
                ignore: 0xff,
                ..tagged(0x7700)
            };
            b.recv(&tagged(0x7700), exact, 1);
            b.recv(&mask, masked, 2);
            b.recv(&ANY, plain, 3);
            let word = |imm| RawSend {
                imm: Some(imm),
                ..PLAIN
            };
            a.send(to_b, &to_tag(0x77ab), &sent, 10);
            a.send(to_b, &word(u64::MAX), &sent, 11);
            a.send(to_b, &to_tag(0x7700), &sent, 12);
            for (context, tag, imm) in
                [(1, 0x7700, None), (2, 0x77ab, None), (3, 0, Some(u64::MAX))]
            {
                let got = pump(&mut [&mut a, &mut b], |sides| sides[1].take(context));
                assert_eq!((got.tag, got.imm, got.len), (tag, imm, len as u64));
                assert_eq!(got.kind == RawKind::Recv, context == 3);
            }
            for context in 10..13 {
                pump(&mut [&mut a, &mut b], |sides| sides[0].take_sent(context));
            }
            assert_eq!(bufs, [(); 3].map(|()| sent.clone()));
        }
    }
}

#[test]
fn message_is_peeked_claimed_and_discarded() {
    for open in OPENERS {
        let (mut a, mut b, to_b) = pair(open);
        for len in [3, 300_000] {
            let sent = [bytes(len, 1), bytes(len, 2)];
            assert_eq!(b.end.peek(&tagged(5)).unwrap(), None);
            a.send(to_b, &to_tag(5), &sent[0], 1);
            a.send(to_b, &to_tag(5), &sent[1], 2);
            let seen = pump(&mut [&mut a, &mut b], |sides| {
                sides[1].end.peek(&tagged(5)).unwrap()
            });
            assert_eq!((seen.tag, seen.len, seen.imm), (5, len as u64, None));
            let (first, envelope) = b.end.claim(&tagged(5)).unwrap().unwrap();
            assert_eq!(envelope, seen);
            let mut buf = vec![0; len];
            b.recv(&tagged(5), &mut buf, 3);
            pump(&mut [&mut a, &mut b], |sides| sides[1].take(3));
            assert_eq!(buf, sent[1], "the first is claimed");
            if len == 3 {
                b.end.discard(first);
            } else {
                // SAFETY: the buffer lives until the completion.
                unsafe {
                    b.end
                        .recv_claimed(first, &[piece(&mut buf)], Cookie::new(4))
                }
                .unwrap();
                pump(&mut [&mut a, &mut b], |sides| sides[1].take(4));
                assert_eq!(buf, sent[0]);
            }
            // SAFETY: the call names no memory.
            let again = unsafe { b.end.recv_claimed(first, &[], Cookie::new(5)) };
            assert_eq!(again, Err(SubmitError::StaleClaim));
            for context in 1..3 {
                pump(&mut [&mut a, &mut b], |sides| sides[0].take_sent(context));
            }
            assert!(b.done.is_empty(), "{:?}", b.done);
        }
    }
}

#[test]
fn long_messages_share_a_buffer_until_the_last_completes() {
    for open in OPENERS {
        let (mut a, mut b, to_b) = pair(open);
        let lens = [200_000, 10, 90_000, 200_000];
        let sent: Vec<_> = (0..)
            .zip(lens)
            .map(|(seed, len)| bytes(len, seed))
            .collect();
        let mut buf = vec![0xa5; lens.iter().sum::<usize>() + 5];
        // SAFETY: the buffer lives until its last completion.
        unsafe { b.end.recv_multi(&ANY, piece(&mut buf), 6, Cookie::new(9)) }.unwrap();
        for (context, sent) in (0..).zip(&sent) {
            a.send(to_b, &PLAIN, sent, context);
        }
        let mut got = pump(&mut [&mut a, &mut b], |sides| {
            let done = &mut sides[1].done;
            (done.len() == 4).then(|| std::mem::take(done))
        });
        assert!(got.pop().unwrap().released);
        assert!(
            got.iter()
                .all(|done| !done.released && done.cookie.context == 9)
        );
        assert_eq!(buf[..buf.len() - 5], sent.concat());
        for context in 0..4 {
            pump(&mut [&mut a, &mut b], |sides| sides[0].take_sent(context));
        }
    }
}

#[test]
fn cancelled_multi_receive_buffer_completes_once() {
    let (mut a, mut b, to_b) = pair(shm);
    let mut buf = [0xa5; 100];
    // SAFETY: the buffer lives until its last completion.
    unsafe { b.end.recv_multi(&ANY, piece(&mut buf), 10, Cookie::new(9)) }.unwrap();
    a.end.inject(to_b, &PLAIN, b"ahoy").unwrap();
    let got = pump(&mut [&mut a, &mut b], |sides| sides[1].take(9));
    assert!(!got.released);
    assert!(b.end.cancel(9));
    b.poll();
    let last = b.take(9).unwrap();
    assert_eq!(
        (last.error, last.released),
        (Some(RawError::Cancelled), true)
    );
}

#[test]
fn delivery_complete_send_ends_when_received() {
    for open in OPENERS {
        let (mut a, mut b, to_b) = pair(open);
        let spec = RawSend {
            delivered: true,
            ..PLAIN
        };
        for len in [1, 100, 3_000] {
            let (sent, mut buf) = (bytes(len, 1), vec![0; len]);
            a.send(to_b, &spec, &sent, 1);
            for _ in 0..200 {
                a.poll();
                b.poll();
            }
            assert!(a.done.is_empty(), "nobody has received it");
            b.recv(&ANY, &mut buf, 2);
            pump(&mut [&mut a, &mut b], |sides| sides[1].take(2));
            pump(&mut [&mut a, &mut b], |sides| sides[0].take(1));
            assert_eq!(buf, sent);
        }
    }
}

#[test]
fn endless_injection_gets_back_pressure_and_loses_nothing() {
    for open in OPENERS {
        let (mut a, mut b, to_b) = pair(open);
        let mut count = 0_u64;
        let refused = loop {
            match a.end.inject(to_b, &PLAIN, &count.to_le_bytes()) {
                Ok(()) => count += 1,
                Err(refused) => break refused,
            }
            assert!(count < 1_000_000, "memory is filled");
        };
        assert_eq!(refused, SubmitError::Again);
        for number in 0..count {
            let mut word = [0; 8];
            b.recv(&ANY, &mut word, 1);
            pump(&mut [&mut a, &mut b], |sides| sides[1].take(1));
            assert_eq!(u64::from_le_bytes(word), number);
        }
        a.end.inject(to_b, &PLAIN, b"again").unwrap();
    }
}

#[test]
fn short_send_completes_in_its_call_without_completion() {
    for open in OPENERS {
        let (mut a, mut b, to_b) = pair(open);
        let (mut sent, mut buf) = (bytes(100, 1), [0; 100]);
        // The first message waits for the session.
        a.send(to_b, &PLAIN, &sent, 1);
        b.recv(&ANY, &mut buf, 2);
        pump(&mut [&mut a, &mut b], |sides| sides[1].take(2));
        pump(&mut [&mut a, &mut b], |sides| sides[0].take_sent(1));
        b.recv(&ANY, &mut buf, 3);
        a.send(to_b, &PLAIN, &sent, 4);
        assert_eq!(a.sent, [4]);
        // The memory belongs to the caller again.
        let copy = std::mem::replace(&mut sent, vec![0xa5; 100]);
        pump(&mut [&mut a, &mut b], |sides| sides[1].take(3));
        assert_eq!(buf[..], copy);
        (0..100).for_each(|_| a.poll());
        assert!(a.done.is_empty(), "{:?}", a.done);
    }
}
