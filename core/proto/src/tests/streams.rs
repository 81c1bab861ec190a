// SPDX-License-Identifier: MIT OR Apache-2.0
//! Transfers by stream: every byte arrives once, whenever a stream opens and closes.

use super::pair::*;
use crate::*;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;
use portolan_wire::Chunk;

const PORT: PortId = PortId::user(5);
const LOW: SendSpec = SendSpec {
    to: Address::Port(PORT),
    lane: LaneId::Low,
    best_effort: false,
};

fn pair(usage: StreamUse, seed: u64) -> Pair {
    let mut pair = Pair::new(&[LinkId::UDP], seed);
    for end in &mut pair.ends {
        end.core.shared_mut().ctx.limits_mut().stream = usage;
        end.core.set_buffer_len(LinkId::STREAM, 4 << 20);
    }
    pair.run(Duration::from_millis(50));
    pair
}

/// Returns a pair with a link that buffers so little that a transfer takes many round trips.
fn slow_pair(seed: u64) -> Pair {
    let mut pair = pair(StreamUse::On, seed);
    for end in &mut pair.ends {
        end.core.set_buffer_len(LinkId::STREAM, 600_000);
    }
    pair.open_stream();
    pair
}

fn pattern(len: usize, salt: usize) -> Vec<u8> {
    let byte = |at: usize| (at * 31 + at / 253 + salt * 17).to_le_bytes()[0];
    (0..len).map(byte).collect()
}

/// Sends messages of these lengths from one end to the other, and posts their receives.
fn begin(pair: &mut Pair, from: usize, lens: &[usize]) -> Vec<Vec<u8>> {
    let to = PeerId(u32::try_from(1 - from).unwrap());
    let mut messages = Vec::new();
    for (salt, &len) in lens.iter().enumerate() {
        let bytes = pattern(len, salt + from);
        pair.ends[1 - from].post(PORT, len, None);
        pair.ends[from].send(to, &LOW, &bytes).unwrap();
        messages.push(bytes);
    }
    messages
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

// P15.4, P15.6
#[test]
fn stream_carries_all_lengths_in_both_directions() {
    let mut pair = pair(StreamUse::On, 1);
    pair.open_stream();
    let lens = [65_537, 262_144, 262_145, 500_000, 1 << 20, (5 << 20) + 1];
    let there = begin(&mut pair, 0, &lens);
    let back = begin(&mut pair, 1, &lens);
    pair.run(Duration::from_millis(100));
    assert_got(&pair, 1, &there);
    assert_got(&pair, 0, &back);
    let total: usize = lens.iter().sum();
    assert_eq!(stream_bytes(&pair, 0), total as u64);
    assert_eq!(stream_bytes(&pair, 1), total as u64);
    pair.assert_clean();
}

// P15.1
#[test]
fn first_transfer_requests_a_stream_and_retries_later() {
    for usage in [StreamUse::Auto, StreamUse::On] {
        let mut pair = pair(usage, 2);
        begin(&mut pair, 0, &[1000]);
        pair.run(Duration::from_millis(10));
        assert_eq!(pair.ends[0].streams_wanted, 0, "a short message");
        begin(&mut pair, 0, &[100_000; 8]);
        pair.run(Duration::from_millis(10));
        assert_eq!(pair.ends[0].streams_wanted, 1);
        assert_eq!(pair.ends[1].streams_wanted, 0, "it sends nothing");
        pair.ends[0].core.stream_closed(pair.now, B, true);
        begin(&mut pair, 0, &[100_000; 8]);
        pair.run(Duration::from_millis(10));
        assert_eq!(pair.ends[0].streams_wanted, 1, "it has just failed");
        pair.now = pair.now + Duration::from_secs(2);
        begin(&mut pair, 0, &[100_000; 8]);
        pair.run(Duration::from_millis(10));
        assert_eq!(pair.ends[0].streams_wanted, 2);
        assert_eq!(stream_bytes(&pair, 1), 0);
        assert_eq!(pair.ends[1].got.len(), 25);
        pair.assert_clean();
    }
    let mut pair = pair(StreamUse::Off, 2);
    begin(&mut pair, 0, &[100_000; 8]);
    pair.run(Duration::from_millis(10));
    assert_eq!(pair.ends[0].streams_wanted, 0);
}

// P15.7
#[test]
fn parts_lost_with_a_stream_are_sent_as_fragments() {
    for seed in 0..60 {
        let mut pair = pair(StreamUse::On, seed);
        pair.open_stream();
        if seed % 3 == 1 {
            pair.faults.drop = 0.05;
            pair.faults.reorder = 0.05;
        }
        let lens = [300_000, 3_000_000, 70_000, 1_000_001];
        let there = begin(&mut pair, 0, &lens);
        let back = begin(&mut pair, 1, &lens);
        // At some time, with some bytes in flight; one side may detect the end before the other.
        pair.run(Duration::from_micros(seed * 7 % 60));
        if seed % 2 == 0 {
            pair.ends[0].core.stream_closed(pair.now, B, true);
            pair.run(Duration::from_micros(seed % 40));
        }
        pair.close_stream();
        pair.run(Duration::from_millis(500));
        assert_got(&pair, 1, &there);
        assert_got(&pair, 0, &back);
        pair.assert_clean();
    }
}

// P15.7
#[test]
fn confirmed_parts_are_not_resent() {
    let mut pair = slow_pair(3);
    let len = 20_000_000;
    let sent = begin(&mut pair, 0, &[len]);
    pair.run(Duration::from_micros(200));
    let before = stream_bytes(&pair, 1);
    assert!(before > 5_000_000 && before < len as u64, "{before}");
    let received = pair.ends[1].core.counters().frames_received;
    pair.close_stream();
    pair.run(Duration::from_millis(500));
    assert_got(&pair, 1, &sent);
    let frames = pair.ends[1].core.counters().frames_received - received;
    let most = (len as u64 - before + 1_200_000) / 1400 + 200;
    assert!(frames < most, "{frames} frames, {most} are enough");
    pair.assert_clean();
}

#[test]
fn short_transfer_overtakes_a_long_one() {
    let mut pair = slow_pair(4);
    let high = SendSpec {
        lane: LaneId::High,
        ..LOW
    };
    pair.ends[1].post(PORT, 50_000_000, None);
    pair.ends[0].send(B, &LOW, &vec![1; 50_000_000]).unwrap();
    pair.run(Duration::from_micros(100));
    pair.ends[1].post(PORT, 100_000, None);
    pair.ends[0].send(B, &high, &vec![2; 100_000]).unwrap();
    pair.run(Duration::from_micros(100));
    assert_eq!(pair.ends[1].got.len(), 1);
    assert_eq!(pair.ends[1].got[0].bytes.len(), 100_000);
    pair.run(Duration::from_millis(100));
    assert_eq!(pair.ends[1].got.len(), 2);
    pair.assert_clean();
}

#[test]
fn full_stream_resumes_when_it_has_room() {
    let mut pair = pair(StreamUse::On, 5);
    pair.open_stream();
    pair.streams_refused = 2;
    let sent = begin(&mut pair, 0, &[400_000, 100_000]);
    pair.run(Duration::from_millis(50));
    assert_eq!(pair.streams_refused, 0);
    assert_eq!(pair.ends[0].core.counters().link_full, 2);
    assert_got(&pair, 1, &sent);
    pair.assert_clean();
}

// P15.5
#[test]
fn inconsistent_parts_write_nothing() {
    let mut pair = slow_pair(6);
    let sent = begin(&mut pair, 0, &[30_000_000]);
    pair.run(Duration::from_micros(100));
    let core = &mut pair.ends[1].core;
    let (granted, _, received) = core.shared_mut().transfers.first_rx();
    let transfer = core.shared_mut().transfers.first_rx_key();
    let chunk = |transfer, offset| Chunk { transfer, offset };
    for (chunk, off, len) in [
        (chunk(transfer, granted), 0, 1),
        (chunk(transfer, 0), 0, granted + 1),
        (chunk(transfer, u64::MAX), 1, 1),
        (chunk(transfer, 1), u64::MAX - 1, 5),
        (chunk(transfer, 1), 1, u64::MAX),
    ] {
        assert_eq!(core.place_part(A, &chunk, off, len), PartPlace::Wrong);
        core.handle_part(pair.now, A, &chunk, off, len);
    }
    for (from, chunk) in [
        (A, chunk(transfer + 1, 0)),
        (A, chunk(0, 0)),
        (B, chunk(transfer, 0)),
    ] {
        assert_eq!(core.place_part(from, &chunk, 0, 10), PartPlace::Nowhere);
        core.handle_part(pair.now, from, &chunk, 0, 10);
    }
    assert_eq!(core.shared_mut().transfers.first_rx().2, received);
    pair.run(Duration::from_millis(100));
    assert_got(&pair, 1, &sent);
    pair.assert_clean();
}

// P15.5, P13.3: with a checksum a part counts only when it is complete.
#[test]
fn range_of_an_uncounted_part_is_not_reused() {
    let mut pair = pair(StreamUse::On, 10);
    begin(&mut pair, 0, &[30_000_000]);
    // One end detects it first; nothing was sent on it.
    pair.ends[0].core.stream_opened(B);
    pair.streams_refused = usize::MAX;
    pair.run(Duration::from_micros(100));
    let core = &mut pair.ends[1].core;
    assert!(core.expected_run(LinkId::UDP).is_some());
    let chunk = Chunk {
        transfer: core.shared_mut().transfers.first_rx_key(),
        offset: 0,
    };
    let place = core.place_part(A, &chunk, 0, 100_000);
    assert!(matches!(place, PartPlace::At { len: 100_000, .. }));
    assert!(core.expected_run(LinkId::UDP).is_none());
}

// P15.5, P15.7: a stream that its sender has left may still deliver bytes, and they may be wrong.
// With a checksum that is detected only after they were received.
#[test]
fn counted_bytes_are_not_overwritten_by_a_part() {
    let mut pair = slow_pair(11);
    let sent = begin(&mut pair, 0, &[30_000_000]);
    pair.run(Duration::from_micros(100));
    let core = &mut pair.ends[1].core;
    let (granted, _, received) = core.shared_mut().transfers.first_rx();
    let chunk = Chunk {
        transfer: core.shared_mut().transfers.first_rx_key(),
        offset: 0,
    };
    assert!(core.needs_part(A, &chunk));
    let place = core.place_part(A, &chunk, 0, granted);
    assert!(matches!(place, PartPlace::At { .. }));
    assert!(core.expected_run(LinkId::UDP).is_none());
    // Only the sender has noticed.
    pair.leave_stream();
    pair.run(Duration::from_micros(300));
    let core = &mut pair.ends[1].core;
    let (_, _, by_fragments) = core.shared_mut().transfers.first_rx();
    assert!(by_fragments > received, "no fragment has come");
    assert!(!core.needs_part(A, &chunk));
    assert_eq!(core.place_part(A, &chunk, 0, granted), PartPlace::Nowhere);
    core.handle_part(pair.now, A, &chunk, 0, granted);
    let core = &mut pair.ends[1].core;
    assert_eq!(core.shared_mut().transfers.first_rx().2, by_fragments);
    pair.ends[1].core.stream_closed(pair.now, A, true);
    pair.run(Duration::from_millis(500));
    assert_got(&pair, 1, &sent);
    pair.assert_clean();
}

// P4.9
#[test]
fn message_longer_than_its_buffer_is_truncated() {
    let mut pair = pair(StreamUse::On, 7);
    pair.open_stream();
    pair.ends[1].post(PORT, 100_000, None);
    pair.ends[0].send(B, &LOW, &pattern(900_000, 1)).unwrap();
    pair.run(Duration::from_millis(50));
    let got = &pair.ends[1].got[0];
    assert!(got.bytes == pattern(900_000, 1)[..100_000]);
    let message_len = 900_000;
    assert_eq!(got.error, Some(OpError::Truncated { message_len }));
    pair.assert_clean();
}

// P15.2
#[test]
fn stream_requires_both_session_tokens() {
    let mut pair = pair(StreamUse::Auto, 8);
    let ids = pair.ends[0].core.session_ids(B).unwrap();
    let (mine, theirs) = (ids.mine.1, ids.theirs.1);
    let owner = |core: &Core, mine, theirs| core.stream_owner(mine, theirs);
    assert_eq!(owner(&pair.ends[0].core, mine, theirs), Some(B));
    assert_eq!(owner(&pair.ends[1].core, theirs, mine), Some(A));
    for (mine, theirs) in [
        (mine, theirs + 1),
        (mine ^ 1 << 63, theirs),
        (mine, 0),
        (0, 0),
    ] {
        assert_eq!(owner(&pair.ends[0].core, mine, theirs), None);
    }
    pair.ends[0].core.fail_peer(B, Cause::ProcessExited);
    assert_eq!(owner(&pair.ends[0].core, mine, theirs), None);
}

#[test]
fn failed_peer_ends_its_stream_transfers() {
    let mut pair = slow_pair(9);
    begin(&mut pair, 0, &[10_000_000]);
    pair.run(Duration::from_micros(50));
    for (end, peer) in [(0, B), (1, A)] {
        pair.ends[end].core.fail_peer(peer, Cause::ProcessExited);
        pair.ends[end].drain(&[]);
        pair.ends[end].core.stream_closed(pair.now, peer, true);
        assert_eq!(pair.ends[end].core.usage(), (0, 0, 0));
    }
    assert!(matches!(
        pair.ends[0].sent.values().next(),
        Some(Err(OpError::PeerFailed(B, Cause::ProcessExited)))
    ));
}
