// SPDX-License-Identifier: MIT OR Apache-2.0
//! Eager messages by stream: each arrives once and in the order of its lane, whenever a stream
//! opens, fills up and closes.

use super::pair::*;
use crate::*;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

const PORT: PortId = PortId::user(5);
const LOW: SendSpec = SendSpec {
    to: Address::Port(PORT),
    lane: LaneId::Low,
    best_effort: false,
};
const HIGH: SendSpec = SendSpec {
    lane: LaneId::High,
    ..LOW
};

/// Lengths on both sides of the limits between datagrams, streams and transfers.
const LENS: [usize; 12] = [
    8, 2047, 1447, 2048, 20_000, 1, 65_536, 3000, 65_537, 8, 16_384, 65_535,
];

fn pair(seed: u64) -> Pair {
    let mut pair = Pair::new(&[LinkId::UDP], seed);
    for end in &mut pair.ends {
        end.core.shared_mut().ctx.limits_mut().stream = StreamUse::On;
        end.core.set_buffer_len(LinkId::STREAM, 4 << 20);
    }
    pair.run(Duration::from_millis(50));
    pair
}

fn pattern(len: usize, salt: usize) -> Vec<u8> {
    let byte = |at: usize| (at * 31 + at / 253 + salt * 17).to_le_bytes()[0];
    (0..len).map(byte).collect()
}

fn messages(salt: usize) -> Vec<Vec<u8>> {
    let lens = LENS.iter().enumerate();
    lens.map(|(index, &len)| pattern(len, salt + index))
        .collect()
}

fn send_all(pair: &mut Pair, from: usize, spec: &SendSpec, messages: &[Vec<u8>]) {
    let to = [B, A][from];
    for bytes in messages {
        // Messages that wait for credit are sent when it has returned.
        while pair.ends[from].send(to, spec, bytes).is_err() {
            pair.run(Duration::from_micros(20));
        }
    }
}

fn post_all(pair: &mut Pair, at: usize) {
    for &len in &LENS {
        pair.ends[at].post(PORT, len, None);
    }
}

fn assert_got(pair: &Pair, at: usize, messages: &[Vec<u8>]) {
    let got = &pair.ends[at].got;
    assert_eq!(got.len(), messages.len());
    for (got, sent) in got.iter().zip(messages) {
        assert!(got.bytes == *sent, "{} bytes differ", sent.len());
    }
}

fn stream_bytes(pair: &Pair, at: usize) -> u64 {
    pair.ends[at].core.counters().stream_bytes
}

/// Bytes of the messages that use the stream: eager ones of several frames, and transfers.
fn streamed_len(messages: &[Vec<u8>]) -> u64 {
    let lens = messages.iter().map(Vec::len);
    lens.filter(|len| *len >= 2048).sum::<usize>() as u64
}

// P15.9, P15.10
#[test]
fn messages_of_all_lengths_arrive_in_order_over_both_ways() {
    for seed in 0..20 {
        let mut pair = pair(seed);
        pair.open_stream();
        let (there, back) = (messages(1), messages(2));
        // Some receives are posted before their messages arrive, some after.
        if seed % 2 == 0 {
            post_all(&mut pair, 0);
            post_all(&mut pair, 1);
        }
        send_all(&mut pair, 0, &LOW, &there);
        send_all(&mut pair, 1, &LOW, &back);
        pair.run(Duration::from_millis(5));
        if seed % 2 == 1 {
            post_all(&mut pair, 0);
            post_all(&mut pair, 1);
        }
        pair.run(Duration::from_millis(100));
        assert_got(&pair, 1, &there);
        assert_got(&pair, 0, &back);
        assert_eq!(stream_bytes(&pair, 1), streamed_len(&there));
        assert_eq!(stream_bytes(&pair, 0), streamed_len(&back));
        pair.assert_clean();
    }
}

// P15.9
#[test]
fn first_message_of_several_frames_requests_a_stream() {
    let mut pair = pair(1);
    send_all(&mut pair, 0, &LOW, &[pattern(2047, 1), pattern(1000, 2)]);
    assert_eq!(pair.ends[0].streams_wanted, 0, "short ones");
    send_all(&mut pair, 0, &LOW, &[pattern(2048, 3), pattern(20_000, 4)]);
    pair.run(Duration::from_millis(10));
    assert_eq!(pair.ends[0].streams_wanted, 1);
    assert_eq!(stream_bytes(&pair, 1), 0, "sent as fragments meanwhile");
    // One that could not be opened is requested again only after a pause.
    pair.ends[0].core.stream_closed(pair.now, B, true);
    send_all(&mut pair, 0, &LOW, &[pattern(20_000, 5)]);
    pair.run(Duration::from_millis(10));
    assert_eq!(pair.ends[0].streams_wanted, 1);
}

// P15.12
#[test]
fn messages_lost_with_a_stream_arrive_once_as_fragments() {
    for seed in 0..120 {
        let mut pair = pair(seed);
        pair.open_stream();
        if seed % 3 == 1 {
            pair.faults.drop = 0.05;
            pair.faults.reorder = 0.05;
        }
        let (there, back) = (messages(1), messages(2));
        let posts = seed % 4 < 2;
        if posts {
            post_all(&mut pair, 0);
            post_all(&mut pair, 1);
        }
        send_all(&mut pair, 0, &LOW, &there);
        send_all(&mut pair, 1, &HIGH, &back);
        // Some messages have arrived in part.
        let cut = usize::try_from(seed * 1731 % 30_000).unwrap();
        pair.cut_after = (seed % 5 == 2).then_some(cut);
        pair.run(Duration::from_micros(seed * 7 % 90));
        if seed % 2 == 0 {
            pair.ends[0].core.stream_closed(pair.now, B, true);
            pair.run(Duration::from_micros(seed % 40));
        }
        pair.close_stream();
        pair.cut_after = None;
        if seed % 7 == 3 {
            pair.open_stream();
        }
        pair.run(Duration::from_millis(5));
        if !posts {
            post_all(&mut pair, 0);
            post_all(&mut pair, 1);
        }
        pair.run(Duration::from_millis(500));
        assert_got(&pair, 1, &there);
        assert_got(&pair, 0, &back);
        pair.assert_clean();
    }
}

// P15.10
#[test]
fn message_in_part_stays_in_its_turn() {
    let mut pair = pair(7);
    pair.open_stream();
    let sent = [pattern(30_000, 1), pattern(8, 2)];
    let early = pair.ends[1].post(PORT, 30_000, None);
    pair.cut_after = Some(10_000);
    send_all(&mut pair, 0, &LOW, &sent);
    pair.run(Duration::from_millis(2));
    let _ = pair.ends[1].post(PORT, 8, None);
    assert!(pair.ends[1].got.is_empty(), "the second one overtook");
    assert!(pair.ends[1].memory.contains_key(&early.0));
    pair.cut_after = None;
    pair.close_stream();
    pair.run(Duration::from_millis(50));
    assert_got(&pair, 1, &sent);
    pair.assert_clean();
}

// P4.9
#[test]
fn short_buffer_truncates_a_message_by_stream() {
    for is_early in [true, false] {
        let mut pair = pair(3);
        pair.open_stream();
        if is_early {
            pair.ends[1].post(PORT, 5000, None);
        }
        send_all(&mut pair, 0, &LOW, &[pattern(20_000, 1), pattern(7000, 2)]);
        pair.run(Duration::from_millis(2));
        if !is_early {
            pair.ends[1].post(PORT, 5000, None);
        }
        pair.ends[1].post(PORT, 7000, None);
        pair.run(Duration::from_millis(50));
        let got = &pair.ends[1].got;
        assert_eq!(got.len(), 2);
        assert!(got[0].bytes[..5000] == pattern(20_000, 1)[..5000]);
        assert!(got[1].bytes == pattern(7000, 2));
        assert_eq!(stream_bytes(&pair, 1), 27_000);
        pair.assert_clean();
    }
}

// P15.11
#[test]
fn sender_keeps_messages_until_they_are_acknowledged() {
    let mut pair = pair(4);
    pair.open_stream();
    let sent: Vec<_> = (0..4).map(|salt| pattern(20_000, salt)).collect();
    for _ in &sent {
        pair.ends[1].post(PORT, 20_000, None);
    }
    pair.cut_after = Some(0);
    send_all(&mut pair, 0, &LOW, &sent);
    pair.run(Duration::from_millis(100));
    assert_eq!(pair.ends[0].core.usage().0, 4, "one buffer each");
    assert!(pair.ends[0].core.has_unfinished());
    assert!(pair.ends[0].core.has_unacked_messages(B));
    pair.cut_after = None;
    pair.close_stream();
    pair.run(Duration::from_millis(100));
    assert_got(&pair, 1, &sent);
    assert!(!pair.ends[0].core.has_unfinished());
    pair.assert_clean();
}

// P15.11
#[test]
fn acknowledgement_follows_without_further_traffic() {
    let mut pair = pair(5);
    pair.open_stream();
    pair.ends[1].post(PORT, 20_000, None);
    send_all(&mut pair, 0, &LOW, &[pattern(20_000, 1)]);
    pair.run(Duration::from_millis(2));
    assert_eq!(pair.ends[1].got.len(), 1);
    assert_eq!(
        pair.ends[1].core.pending_work(),
        PendingWork::Unacknowledged
    );
    assert!(pair.ends[0].core.has_unfinished());
    pair.run(Duration::from_millis(20));
    assert!(!pair.ends[0].core.has_unfinished());
    pair.assert_clean();
}

// P15.9, P4.3
#[test]
fn unread_messages_by_stream_are_bounded_by_credit() {
    let mut pair = pair(6);
    pair.open_stream();
    let mut count = 0;
    while pair.ends[0].send(B, &LOW, &pattern(60_000, count)).is_ok() {
        count += 1;
        pair.run(Duration::from_millis(1));
    }
    assert!((8..=9).contains(&count), "{count} of 60,000 bytes each");
    for salt in 0..count {
        pair.ends[1].post(PORT, 60_000, None);
        pair.run(Duration::from_millis(1));
        assert!(pair.ends[1].got[salt].bytes == pattern(60_000, salt));
    }
    // The credit has returned.
    assert!(pair.ends[0].send(B, &LOW, &pattern(60_000, 99)).is_ok());
    pair.ends[1].post(PORT, 60_000, None);
    pair.run(Duration::from_millis(50));
    pair.assert_clean();
}

// P15.9, P15.11
#[test]
fn credit_and_acknowledgement_leave_with_a_lone_message() {
    let mut pair = pair(10);
    pair.open_stream();
    let sent: Vec<_> = (0..10).map(|salt| pattern(16_384, salt)).collect();
    for bytes in &sent {
        pair.ends[1].post(PORT, bytes.len(), None);
        pair.send_single(0, &LOW, bytes);
        pair.now = pair.now + Duration::from_micros(50);
        pair.deliver();
    }
    assert_got(&pair, 1, &sent);
    assert_eq!(pair.ends[0].core.usage().0, 10, "nothing is acknowledged");
    let reply = pattern(16_384, 99);
    pair.ends[0].post(PORT, reply.len(), None);
    pair.send_single(1, &LOW, &reply);
    let now = pair.now;
    let rest = pair.ends[1].core.poll_transmit(now);
    assert!(rest.is_none(), "{rest:?} needs another call");
    pair.now = pair.now + Duration::from_micros(50);
    pair.deliver();
    assert_got(&pair, 0, &[reply]);
    assert_eq!(pair.ends[0].core.usage().0, 0);
    let credit = pair.ends[0].core.credit(B, LaneId::Low).unwrap();
    assert!(credit.limit - credit.charged > 400_000, "{credit:?}");
    pair.run(Duration::from_millis(50));
    pair.assert_clean();
}

// P15.9, P15.12
#[test]
fn lone_message_leaves_at_once_and_is_kept() {
    for is_lost in [false, true] {
        let mut pair = pair(9);
        pair.open_stream();
        let sent: Vec<_> = [20_000, 2048, 65_536].map(|len| pattern(len, len)).into();
        for bytes in &sent {
            pair.ends[1].post(PORT, bytes.len(), None);
            let mut memory = bytes.clone();
            pair.send_single(0, &LOW, &memory);
            // Its memory is free.
            memory.fill(0xee);
        }
        if is_lost {
            pair.close_stream();
        }
        pair.run(Duration::from_millis(50));
        assert_got(&pair, 1, &sent);
        let by_stream = if is_lost { 0 } else { streamed_len(&sent) };
        assert_eq!(stream_bytes(&pair, 1), by_stream);
        pair.assert_clean();
    }
}

// P15.9
#[test]
fn full_stream_repeats_what_it_refused() {
    for seed in 0..30 {
        let mut pair = pair(seed);
        pair.open_stream();
        pair.streams_refused = usize::try_from(seed % 6).unwrap() + 1;
        let (there, back) = (messages(1), messages(2));
        post_all(&mut pair, 0);
        post_all(&mut pair, 1);
        send_all(&mut pair, 0, &LOW, &there);
        send_all(&mut pair, 1, &LOW, &back);
        pair.run(Duration::from_millis(100));
        assert_got(&pair, 1, &there);
        assert_got(&pair, 0, &back);
        pair.assert_clean();
    }
}

// P15.5
#[test]
fn impossible_heads_are_refused() {
    use portolan_wire::{Fragment, Message, STREAM_MARK_LEN, StreamMark};
    let head = |num, received, fragment: &Fragment| {
        let mut bytes = vec![0; STREAM_MARK_LEN + fragment.header_len()];
        StreamMark { num, received }.emit(&mut bytes);
        fragment.emit(&mut bytes[STREAM_MARK_LEN..]);
        bytes
    };
    let message = |seq| Message {
        lane: LaneId::Low,
        best_effort: false,
        system: false,
        port: 5,
        len: 0,
        seq,
        match_bits: None,
    };
    let whole = |message_len| Fragment {
        message: message(0),
        message_len,
        offset: 0,
    };
    let mut pair = pair(8);
    pair.open_stream();
    let core = &mut pair.ends[1].core;
    let good = StreamMessage::parse(&head(1, 0, &whole(5000)), 5000).unwrap();
    assert_eq!(StreamMessage::parse(&head(1, 0, &whole(5000)), 4999), None);
    assert_eq!(
        StreamMessage::parse(&head(1, 0, &whole(5000))[..20], 5000),
        None
    );
    assert_eq!(StreamMessage::parse(&[], 5000), None);
    let late = Fragment {
        offset: 1,
        ..whole(5000)
    };
    assert_eq!(StreamMessage::parse(&head(1, 0, &late), 5000), None);
    let unsent = StreamMessage::parse(&head(1, 1, &whole(5000)), 5000).unwrap();
    assert_eq!(core.open_message(A, &unsent), Err(DropReason::BadAck));
    let long = StreamMessage::parse(&head(1, 0, &whole(65_537)), 65_537).unwrap();
    let place = core.place_message(A, &long, (0, 65_537));
    assert_eq!(place, Err(DropReason::BadFragment));
    assert_eq!(core.open_message(A, &good), Ok(()));
    assert!(matches!(
        core.place_message(A, &good, (0, 5000)),
        Ok(MessagePlace::Held(_))
    ));
    // Credit for nine more of the longest messages was never given.
    for seq in 1..10 {
        let far = Fragment {
            message: message(seq),
            message_len: 65_536,
            offset: 0,
        };
        let far = StreamMessage::parse(&head(1, 0, &far), 65_536).unwrap();
        let place = core.place_message(A, &far, (0, 65_536));
        if place == Err(DropReason::BeyondCredit) {
            return;
        }
        assert!(matches!(place, Ok(MessagePlace::Held(_))), "{place:?}");
    }
    panic!("messages beyond the credit were accepted");
}
