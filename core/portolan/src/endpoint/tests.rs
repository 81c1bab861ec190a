// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that waiting for one peer costs operations with other peers nothing. They count work
//! instead of time.

use super::*;
use crate::EndpointConfig;
use crate::engine::CLOCK_TURNS;
use crate::launch::PathChoice;
use crate::raw::{
    Cookie, PeerIndex, RawError, RawKind, RawPiece, RawRecv, RawSend, RawSpace, Sent, SubmitError,
};
use portolan_proto::{Cause, DropReason};

const PLAIN: RawSend = RawSend {
    space: RawSpace::Plain,
    imm: None,
    delivered: false,
};

const ANY: RawRecv = RawRecv {
    space: RawSpace::Plain,
    ignore: 0,
    source: None,
};

const TURNS: u32 = 10_000;

/// Maximum number of clock reads in [`TURNS`]: one per interval, and one more for the start of the
/// interval.
const CLOCK_READS_MAX: u64 = (TURNS / CLOCK_TURNS) as u64 + 1;

fn open(path: PathChoice) -> Endpoint {
    Endpoint::open(&EndpointConfig {
        path,
        interface: Some("lo".to_owned()),
        ..EndpointConfig::default()
    })
    .unwrap()
}

/// Opens two endpoints that have exchanged messages. Returns the first one's number for the second.
fn connected_pair() -> (Endpoint, Endpoint, PeerIndex) {
    let (mut a, mut b) = (open(PathChoice::Auto), open(PathChoice::Auto));
    let to_b = a.insert(&b.address()).unwrap();
    let to_a = b.insert(&a.address()).unwrap();
    a.inject(to_b, &PLAIN, b"ahoy").unwrap();
    pass(&mut a, &mut b);
    b.inject(to_a, &PLAIN, b"ahoy").unwrap();
    pass(&mut b, &mut a);
    (a, b, to_b)
}

/// Delivers the next message to `to`.
fn pass(from: &mut Endpoint, to: &mut Endpoint) {
    let mut got = [0; 4];
    let piece = RawPiece {
        ptr: got.as_mut_ptr(),
        len: got.len(),
    };
    // SAFETY: `got` outlives the receive, because the test waits for its completion.
    unsafe { to.recv(&ANY, &[piece], Cookie::new(1)) }.unwrap();
    let mut is_done = false;
    while !is_done {
        from.poll(&mut |_| {});
        to.poll(&mut |done| is_done |= done.kind == RawKind::Recv);
    }
}

/// Returns the results of `count` receives of `of` with their contexts, once all have completed.
fn ended(of: &mut Endpoint, count: usize) -> Vec<(u64, Option<RawError>)> {
    let mut all = Vec::new();
    while all.len() < count {
        of.poll(&mut |done| all.push((done.cookie.context, done.error)));
    }
    all.sort_unstable_by_key(|(context, _)| *context);
    all
}

#[test]
fn severed_session_fails_only_its_operations() {
    let (mut a, mut b, to_b) = connected_pair();
    let others = a.insert(&open(PathChoice::Auto).address()).unwrap();
    let mut buffers = [[0; 4]; 2];
    let [of_b, of_any] = buffers.each_mut().map(|buffer| RawPiece {
        ptr: buffer.as_mut_ptr(),
        len: buffer.len(),
    });
    assert!(a.is_settled(to_b) && !a.is_gone(to_b));
    let from_b = RawRecv {
        source: Some(to_b),
        ..ANY
    };
    // SAFETY: `buffers` outlives the receives, because the test waits for their completions.
    unsafe { a.recv(&from_b, &[of_b], Cookie::new(1)) }.unwrap();
    // SAFETY: as above.
    unsafe { a.recv(&ANY, &[of_any], Cookie::new(2)) }.unwrap();
    assert!(!a.is_settled(to_b));
    a.sever(to_b);
    let gone = Some(RawError::PeerGone(Cause::Closed));
    assert_eq!(ended(&mut a, 1), [(1, gone)]);
    assert!(a.inject(to_b, &PLAIN, b"late").is_err());
    assert!(a.is_gone(to_b) && !a.is_gone(others));
    a.cancel_all();
    assert_eq!(ended(&mut a, 1), [(2, Some(RawError::Cancelled))]);
    b.poll(&mut |_| {});
}

#[test]
fn connecting_peer_adds_no_work_per_turn() {
    // The other endpoint is open, but makes no call that would answer.
    let (mut a, unconnected) = (open(PathChoice::Udp), open(PathChoice::Udp));
    let to = a.insert(&unconnected.address()).unwrap();
    a.inject(to, &PLAIN, b"ahoy").unwrap();
    // Held, so that no helper works between the turns.
    let engine = &mut *a.engine.enter();
    assert!(!engine.inner.has_no_pending());
    let before = (engine.flush_count(), engine.inner.clock_count());
    (0..TURNS).for_each(|_| {
        engine.progress();
    });
    let flushes = engine.flush_count() - before.0;
    let clocks = engine.inner.clock_count() - before.1;
    assert!(flushes <= CLOCK_READS_MAX, "{flushes} flushes");
    assert!(clocks <= 2 * CLOCK_READS_MAX, "{clocks} clock reads");
}

#[test]
fn pending_sends_are_not_retried_for_other_peers() {
    let (mut a, mut b, _) = connected_pair();
    let unconnected = open(PathChoice::Udp);
    let to = a.insert(&unconnected.address()).unwrap();
    let to_a = b.insert(&a.address()).unwrap();
    a.inject(to, &PLAIN, b"ahoy").unwrap();
    assert!(!a.engine.read().inner.has_no_pending());
    let mut tried = 0;
    for _ in 0..TURNS / 10 {
        b.inject(to_a, &PLAIN, b"more").unwrap();
        b.poll(&mut |_| {});
        let engine = &mut *a.engine.enter();
        let before = engine.inner.tried_count();
        (0..10).for_each(|_| {
            engine.progress();
        });
        tried += engine.inner.tried_count() - before;
    }
    assert!(tried <= CLOCK_READS_MAX, "{tried} tries");
}

#[test]
fn fast_path_to_one_peer_works_while_another_is_pending() {
    let (mut a, _b, to_b) = connected_pair();
    let unconnected = open(PathChoice::Udp);
    let to = a.insert(&unconnected.address()).unwrap();
    a.inject(to, &PLAIN, b"ahoy").unwrap();
    a.poll(&mut |_| {});
    assert!(!a.engine.read().inner.has_no_pending());
    let before = a.counters();
    let bytes = b"next";
    let piece = RawPiece {
        ptr: bytes.as_ptr().cast_mut(),
        len: bytes.len(),
    };
    // SAFETY: the bytes live as long as the program.
    let sent = unsafe { a.send(to_b, &PLAIN, &[piece], Cookie::new(2)) };
    assert_eq!(sent, Ok(Sent::Done));
    let after = a.counters();
    assert_eq!(after.messages_sent, before.messages_sent + 1);
    assert_eq!(
        after.frames_sent, before.frames_sent,
        "it went past frame buffers"
    );
}

#[test]
fn receive_from_one_peer_reads_no_clock() {
    let (mut a, _b, to_b) = connected_pair();
    let from_b = RawRecv {
        source: Some(to_b),
        ..ANY
    };
    let mut got = [0; 4];
    let piece = RawPiece {
        ptr: got.as_mut_ptr(),
        len: got.len(),
    };
    let clock_reads = |of: &Endpoint| of.engine.read().inner.clock_count();
    let before = clock_reads(&a);
    // SAFETY: `got` outlives the receive, which is withdrawn.
    unsafe { a.recv(&from_b, &[piece], Cookie::new(7)) }.unwrap();
    assert_eq!(clock_reads(&a), before);
    assert!(a.cancel(7));
}

/// Returns `len` bytes that differ by position.
fn pattern(len: usize) -> Vec<u8> {
    (0..len)
        .map(|at| u8::try_from((at * 7 + at / 251) % 256).unwrap())
        .collect()
}

#[test]
fn active_message_runs_hook_once_with_all_bytes() {
    for path in [PathChoice::Auto, PathChoice::Udp] {
        let (mut a, mut b) = (open(path), open(path));
        let got = Arc::new(std::sync::Mutex::new(Vec::new()));
        let hooked = Arc::clone(&got);
        let hook = move |message: ActiveMessage<'_>| {
            hooked
                .lock()
                .unwrap()
                .push((message.tag, message.bytes.to_vec()));
        };
        b.on_active(hook.clone()).unwrap();
        assert!(matches!(b.on_active(hook), Err(Error::PortInUse { .. })));
        let to_b = a.insert(&b.address()).unwrap();
        let lens = [0, 1, 14, 1386, 1387, 5000, 65_000, 65_522, 200_000, 3];
        let mut open_count = 0;
        for (tag, len) in lens.into_iter().enumerate() {
            let tag = u8::try_from(tag).unwrap() + 100;
            let whole = [&b"header of ob1."[..], &pattern(len)].concat();
            let sent = a.inject_active(to_b, tag, [&whole[..14], &whole[14..]]);
            if sent == Ok(()) {
                assert!(whole.len() <= a.active_inject_len_max());
                continue;
            }
            let too_long = whole.len() > a.active_inject_len_max();
            assert_eq!(sent == Err(SubmitError::TooLong), too_long);
            // Leaked: it outlives the operation.
            let whole = whole.leak();
            let piece = RawPiece {
                ptr: whole.as_mut_ptr(),
                len: whole.len(),
            };
            // SAFETY: the memory is never freed.
            let sent = unsafe { a.send_active(to_b, tag, piece, Cookie::new(tag.into())) };
            open_count += usize::from(sent == Ok(Sent::Pending));
        }
        while got.lock().unwrap().len() < lens.len() || open_count > 0 {
            a.poll(&mut |done| {
                assert_eq!((done.kind, done.error), (RawKind::Send, None));
                open_count -= 1;
            });
            b.poll(&mut |_| {});
        }
        let mut got = got.lock().unwrap();
        got.sort_by_key(|(tag, _)| *tag);
        for ((tag, len), (got_tag, bytes)) in (100..).zip(lens).zip(got.iter()) {
            assert_eq!((*got_tag, bytes.len()), (tag, len + 14));
            assert!(bytes[14..] == pattern(len), "{len} bytes");
        }
    }
}

/// Opens an endpoint whose frames to networks are encrypted. It has no shared memory.
fn open_sealed() -> Endpoint {
    Endpoint::open(&EndpointConfig {
        path: PathChoice::Udp,
        interface: Some("lo".to_owned()),
        encrypt: true,
        ..EndpointConfig::default()
    })
    .unwrap()
}

#[test]
fn encrypted_endpoints_exchange_messages_also_with_unsolicited_peers() {
    let (mut a, mut b) = (open_sealed(), open_sealed());
    let to_b = a.insert(&b.address()).unwrap();
    a.inject(to_b, &PLAIN, b"ahoy").unwrap();
    pass(&mut a, &mut b);
    // The unsolicited peer has the number that its address gets.
    let to_a = b.insert(&a.address()).unwrap();
    b.inject(to_a, &PLAIN, b"ahoy").unwrap();
    pass(&mut b, &mut a);
}

#[test]
fn endpoint_without_encryption_does_not_reach_an_encrypted_one() {
    let (mut a, mut b) = (open(PathChoice::Udp), open_sealed());
    let to_b = a.insert(&b.address()).unwrap();
    a.inject(to_b, &PLAIN, b"ahoy").unwrap();
    for _ in 0..10_000_000 {
        a.poll(&mut |_| {});
        b.poll(&mut |done| panic!("{done:?}"));
        let core = &b.engine.read().inner.core;
        if core.counters().drops(DropReason::BadMac) > 0 {
            return;
        }
    }
    panic!("no hello was dropped");
}
