// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pushed parts: a transfer that is alone leaves with its request, and every byte arrives once,
//! whether the receiver takes the part or not.

use super::pair::*;
use crate::*;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;
use portolan_wire::{Message, Rts};

const PORT: PortId = PortId::user(5);
const LOW: SendSpec = SendSpec {
    to: Address::Port(PORT),
    lane: LaneId::Low,
    best_effort: false,
};

/// Returns a pair with an open stream.
fn pair(seed: u64) -> Pair {
    let mut pair = Pair::new(&[LinkId::UDP], seed);
    for end in &mut pair.ends {
        end.core.shared_mut().ctx.limits_mut().stream = StreamUse::On;
        end.core.set_buffer_len(LinkId::STREAM, 4 << 20);
    }
    pair.run(Duration::from_millis(50));
    pair.open_stream();
    pair
}

fn pattern(len: usize, salt: usize) -> Vec<u8> {
    let byte = |at: usize| (at * 31 + at / 253 + salt * 17).to_le_bytes()[0];
    (0..len).map(byte).collect()
}

fn send(pair: &mut Pair, bytes: &[u8]) -> OpId {
    let before: Vec<u64> = pair.ends[0].memory.keys().copied().collect();
    pair.ends[0].send(B, &LOW, bytes).unwrap();
    let mut keys = pair.ends[0].memory.keys();
    OpId(*keys.find(|key| !before.contains(key)).unwrap())
}

fn counts(pair: &Pair) -> (u64, u64) {
    let counters = pair.ends[1].core.counters();
    (counters.pushes_placed, counters.pushes_missed)
}

// P15.13
#[test]
fn lone_message_needs_no_grant() {
    let mut pair = pair(1);
    for (count, len) in [65_537, 100_000, 262_144].into_iter().enumerate() {
        let before = pair.ends[1].core.counters().frames_sent;
        pair.ends[1].post(PORT, len, None);
        let op = send(&mut pair, &pattern(len, count));
        pair.run(Duration::from_millis(1));
        assert!(pair.ends[1].got[count].bytes == pattern(len, count));
        assert_eq!(pair.ends[0].sent[&op.0], Ok(()));
        // The end of the transfer, and an acknowledgement of the sender's reply.
        assert!(pair.ends[1].core.counters().frames_sent <= before + 2);
    }
    assert_eq!(counts(&pair), (3, 0));
    pair.assert_clean();
}

#[test]
fn rest_of_a_long_message_follows_its_pushed_part() {
    let mut pair = pair(2);
    for (count, len) in [262_145, 1 << 20, 20_000_001].into_iter().enumerate() {
        pair.ends[1].post(PORT, len, None);
        send(&mut pair, &pattern(len, count));
        pair.run(Duration::from_millis(50));
        assert!(pair.ends[1].got[count].bytes == pattern(len, count));
        assert_eq!(pair.ends[1].core.counters().placement_hits, 0);
    }
    assert_eq!(counts(&pair), (3, 0));
    let total = pair.ends[1].core.counters().stream_bytes;
    assert_eq!(total, 262_145 + (1 << 20) + 20_000_001);
    pair.assert_clean();
}

// P15.14
#[test]
fn unexpected_message_is_granted_from_its_first_byte_and_then_pushed_rarely() {
    let mut pair = pair(3);
    for count in 0..40 {
        let bytes = pattern(300_000, count);
        send(&mut pair, &bytes);
        pair.run(Duration::from_millis(1));
        pair.ends[1].post(PORT, bytes.len(), None);
        pair.run(Duration::from_millis(20));
        assert!(pair.ends[1].got[count].bytes == bytes);
    }
    let (placed, missed) = counts(&pair);
    assert_eq!(placed, 0);
    // After each miss, 2, 4, 8 and 16 messages are not pushed.
    assert_eq!(missed, 5);
    // Soon after the receiver posts in time again, all are pushed.
    for count in 40..120 {
        let bytes = pattern(100_000, count);
        pair.ends[1].post(PORT, bytes.len(), None);
        send(&mut pair, &bytes);
        pair.run(Duration::from_millis(20));
        assert!(pair.ends[1].got[count].bytes == bytes);
    }
    assert_eq!(counts(&pair).1, missed);
    assert!(counts(&pair).0 > 40, "{:?}", counts(&pair));
    pair.assert_clean();
}

/// Sends messages of 200,000 bytes without waiting, and posts as many receives.
fn send_many(pair: &mut Pair, count: usize) {
    let before = pair.ends[1].got.len();
    for salt in 0..count {
        pair.ends[1].post(PORT, 200_000, None);
        send(pair, &pattern(200_000, salt));
    }
    pair.run(Duration::from_millis(20));
    for salt in 0..count {
        assert!(pair.ends[1].got[before + salt].bytes == pattern(200_000, salt));
    }
}

#[test]
fn messages_are_pushed_behind_others_once_the_receiver_takes_them() {
    let mut pair = pair(4);
    send_many(&mut pair, 3);
    assert_eq!(counts(&pair), (1, 0), "nothing is known of the receiver");
    send_many(&mut pair, 3);
    assert_eq!(counts(&pair), (3, 0));
    for _ in 0..6 {
        send_many(&mut pair, 1);
    }
    let (before, _) = counts(&pair);
    send_many(&mut pair, 20);
    assert_eq!(counts(&pair), (before + 20, 0));
    // The rest of a longer one would wait behind the next.
    let (before, _) = counts(&pair);
    for _ in 0..3 {
        pair.ends[1].post(PORT, 300_000, None);
        send(&mut pair, &pattern(300_000, 3));
    }
    pair.run(Duration::from_millis(20));
    assert_eq!(counts(&pair), (before + 1, 0));
    pair.assert_clean();
}

// P15.14
#[test]
fn pushes_that_have_not_left_are_announced_after_a_miss() {
    let mut pair = pair(9);
    for _ in 0..8 {
        send_many(&mut pair, 1);
    }
    let (placed, _) = counts(&pair);
    let bytes: Vec<_> = (0..20).map(|salt| pattern(200_000, salt)).collect();
    send(&mut pair, &bytes[0]);
    pair.run(Duration::from_micros(1));
    // The stream has no room for later transfers.
    pair.streams_refused = usize::MAX;
    for bytes in &bytes[1..] {
        send(&mut pair, bytes);
    }
    pair.run(Duration::from_millis(20));
    pair.ends[1].post(PORT, 200_000, None);
    pair.run(Duration::from_millis(20));
    pair.streams_refused = 0;
    for _ in 1..20 {
        pair.ends[1].post(PORT, 200_000, None);
    }
    pair.run(Duration::from_millis(50));
    let got = &pair.ends[1].got[8..];
    assert!(got.iter().map(|got| &got.bytes).eq(&bytes));
    let (placed_now, missed) = counts(&pair);
    assert_eq!((placed_now, missed), (placed, 1));
    pair.assert_clean();
}

// P15.15
#[test]
fn pushed_messages_survive_the_end_of_their_stream() {
    for seed in 0..200 {
        let mut pair = pair(seed);
        if seed % 3 == 1 {
            pair.faults.drop = 0.05;
            pair.faults.reorder = 0.05;
        }
        let len = [70_000, 262_144, 900_001][usize::try_from(seed % 3).unwrap()];
        let is_posted = seed % 5 != 0;
        if is_posted {
            pair.ends[1].post(PORT, len, None);
        }
        let op = send(&mut pair, &pattern(len, 7));
        pair.run(Duration::from_micros(seed % 50));
        match seed % 4 {
            // Only the sender has noticed.
            0 => pair.leave_stream(),
            _ => pair.close_stream(),
        }
        pair.run(Duration::from_millis(300));
        if !is_posted {
            pair.ends[1].post(PORT, len, None);
        }
        pair.run(Duration::from_millis(500));
        assert!(pair.ends[1].got.len() == 1, "seed {seed}");
        assert!(pair.ends[1].got[0].bytes == pattern(len, 7), "seed {seed}");
        assert_eq!(pair.ends[0].sent[&op.0], Ok(()), "seed {seed}");
        pair.ends[1].core.stream_closed(pair.now, A, true);
        pair.assert_clean();
    }
}

/// Sends a message to the other end, where a receive is posted, while the programs compute
/// afterwards.
fn exchange(pair: &mut Pair, from: usize, salt: usize) -> OpId {
    let to = 1 - from;
    pair.ends[to].post(PORT, 100_000, None);
    let before: Vec<u64> = pair.ends[from].memory.keys().copied().collect();
    let sent = pair.ends[from].send([A, B][to], &LOW, &pattern(100_000, salt));
    sent.unwrap();
    let mut keys = pair.ends[from].memory.keys();
    let op = OpId(*keys.find(|key| !before.contains(key)).unwrap());
    pair.run(Duration::from_millis(1));
    let got = pair.ends[to].got.last().unwrap();
    assert!(got.bytes == pattern(100_000, salt));
    op
}

// P15.16
#[test]
fn completion_leaves_with_the_answer() {
    let mut pair = pair(10);
    pair.computes = true;
    for round in 0..20 {
        let before = pair.ends[1].core.counters().frames_sent;
        let op = exchange(&mut pair, 0, 2 * round);
        assert!(!pair.ends[0].sent.contains_key(&op.0), "{round}");
        exchange(&mut pair, 1, 2 * round + 1);
        assert_eq!(pair.ends[0].sent[&op.0], Ok(()));
        assert_eq!(pair.ends[1].core.counters().frames_sent, before + 1);
    }
    pair.computes = false;
    pair.run(Duration::from_millis(20));
    pair.assert_clean();
}

// P15.16
#[test]
fn completions_are_sent_at_once_to_a_peer_that_gets_no_answers() {
    let mut pair = pair(11);
    let mut late = Vec::new();
    for round in 0..20 {
        pair.computes = true;
        let op = exchange(&mut pair, 0, round);
        if !pair.ends[0].sent.contains_key(&op.0) {
            assert_ne!(pair.ends[1].core.pending_work(), PendingWork::None);
            late.push(round);
        }
        // Another call.
        pair.computes = false;
        pair.run(Duration::from_millis(1));
        assert_eq!(pair.ends[0].sent[&op.0], Ok(()));
    }
    assert_eq!(late, [0, 3, 8, 17]);
    pair.assert_clean();
}

// P15.16
#[test]
fn completion_survives_the_end_of_its_stream() {
    for seed in 0..60 {
        let mut pair = pair(seed);
        pair.computes = true;
        let op = exchange(&mut pair, 0, 1);
        pair.ends[0].post(PORT, 100_000, None);
        pair.ends[1].send(A, &LOW, &pattern(100_000, 2)).unwrap();
        pair.run(Duration::from_micros(seed % 10));
        pair.computes = seed % 3 == 0;
        pair.close_stream();
        pair.run(Duration::from_millis(500));
        pair.computes = false;
        pair.run(Duration::from_millis(100));
        assert_eq!(pair.ends[0].sent[&op.0], Ok(()), "seed {seed}");
        assert!(pair.ends[0].got[0].bytes == pattern(100_000, 2));
        pair.assert_clean();
    }
}

// P5.12
#[test]
fn unreadable_pushed_message_fails_at_both_ends() {
    let mut pair = pair(6);
    let len = 150_000;
    let to = pair.ends[1].post(PORT, len, None);
    pair.streams_refused = 1;
    let from = send(&mut pair, &vec![1; len]);
    // The engine finds it when the part is about to leave, and again when it is granted.
    pair.ends[0].core.fail_reads(from, &(0..1));
    assert!(pair.ends[0].sent.is_empty());
    pair.run(Duration::from_micros(1));
    let mut turns = 0;
    while pair.ends[0].sent.is_empty() && turns < 1000 {
        pair.ends[0].core.fail_reads(from, &(0..1));
        pair.run(Duration::from_micros(1));
        turns += 1;
    }
    pair.run(Duration::from_millis(500));
    let failed = Err(OpError::Fault { written: false });
    assert_eq!(pair.ends[0].sent[&from.0], failed);
    assert_eq!(pair.ends[1].ended[&to.0], Err(OpError::PeerFault(A)));
    pair.assert_clean();
}

// P5.12
#[test]
fn unwritable_pushed_message_fails_its_send() {
    let mut pair = pair(7);
    let len = 900_000;
    pair.latency = Duration::from_millis(1);
    let to = pair.ends[1].post(PORT, len, None);
    let from = send(&mut pair, &vec![1; len]);
    pair.run(Duration::from_micros(1_500));
    pair.ends[1].core.fail_writes(to, &(0..1));
    pair.run(Duration::from_millis(500));
    assert_eq!(pair.ends[0].sent[&from.0], Err(OpError::PeerFault(B)));
    pair.assert_clean();
}

// P15.5, P15.14
#[test]
fn impossible_pushes_are_rejected() {
    let mut pair = pair(8);
    let spec = LOW.message(1000, 0);
    let rts = |message: Message, message_len, transfer| Rts {
        message,
        message_len,
        transfer,
        remote_addr: 0,
        late_done: false,
    };
    let core = &mut pair.ends[1].core;
    for (rts, len) in [
        (rts(spec, 100_000, 1), 0),
        (rts(spec, 100_000, 1), 99_999),
        (rts(spec, 1_000_000, 1), 262_144),
        (rts(Message { len: 0, ..spec }, 100_000, 1), 100_000),
        (rts(spec, 0, 1), 0),
    ] {
        let request = PushRequest::Message(rts);
        let opened = core.open_push(pair.now, A, (&request, None), len);
        assert_eq!(opened, Err(DropReason::BadFragment), "{rts:?} {len}");
    }
    assert_eq!(counts(&pair), (0, 0));
    pair.run(Duration::from_millis(1));
    pair.ends[1].post(PORT, 100_000, None);
    send(&mut pair, &vec![9; 100_000]);
    pair.run(Duration::from_millis(20));
    assert_eq!(pair.ends[1].got.len(), 1);
}
