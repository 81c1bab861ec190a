// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages of several frames: the calls they are sent in, and the receipt of several frames at
//! once.

use super::pair::*;
use crate::*;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

const PORT: PortId = PortId::user(1);

/// Length of the longest eager message.
const LONGEST: usize = 64 * 1024;

fn to(to: impl Into<Address>) -> SendSpec {
    SendSpec {
        to: to.into(),
        lane: LaneId::Low,
        best_effort: false,
    }
}

fn pair() -> Pair {
    let mut pair = Pair::new(&[LinkId::UDP], 1);
    pair.run(Duration::from_millis(50));
    pair.calls.clear();
    pair
}

fn post(pair: &mut Pair) {
    pair.ends[1].post(PORT, LONGEST, None);
}

fn message(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    ChaCha8Rng::seed_from_u64(seed).fill(&mut bytes[..]);
    bytes
}

// P4.12
#[test]
fn ready_messages_share_calls() {
    for (len, tagged) in [(4096, false), (16 * 1024, true), (LONGEST, false)] {
        let mut pair = pair();
        let match_bits = MatchBits {
            space: Space::Tagged,
            tag: 5,
            imm: None,
        };
        let selector = Selector {
            space: match_bits.space,
            source: None,
            tag: 5,
            ignore: 0,
        };
        let sent: Vec<_> = (0..8).map(|seed| message(seed, len)).collect();
        for bytes in &sent {
            match tagged {
                true => pair.ends[1].post_tagged(&selector, len),
                false => pair.ends[1].post(PORT, len, None),
            };
            let spec = if tagged { to(match_bits) } else { to(PORT) };
            pair.ends[0].send(B, &spec, bytes).unwrap();
        }
        pair.run(Duration::from_secs(1));
        let frames: usize = pair.calls.iter().sum();
        assert_eq!(frames, 8 * len.div_ceil(1472 - 32), "{len}");
        assert_eq!(pair.calls.len(), frames.div_ceil(44), "{:?}", pair.calls);
        let got: Vec<_> = match tagged {
            true => pair.ends[1]
                .got_tagged
                .iter()
                .map(|got| got.bytes.clone())
                .collect(),
            false => pair.ends[1]
                .got
                .iter()
                .map(|got| got.bytes.clone())
                .collect(),
        };
        assert!(got == sent);
        assert!(
            pair.runs_taken >= frames - 8,
            "{} of {frames}",
            pair.runs_taken
        );
        pair.assert_clean();
    }
}

// P4.12
#[test]
fn partial_call_waits_briefly_for_messages_without_credit() {
    let mut pair = pair();
    let mut accepted = 0;
    while pair.ends[0]
        .send(B, &to(PORT), &message(accepted, LONGEST))
        .is_ok()
    {
        accepted += 1;
    }
    assert_eq!(accepted, 8);
    // No receive takes them, so no credit is returned. All arrive nevertheless.
    pair.run(Duration::from_millis(5));
    let frames = 8 * LONGEST.div_ceil(1472 - 32);
    assert_eq!(pair.calls.iter().sum::<usize>(), frames);
    for seed in 0..accepted {
        pair.ends[1].post(PORT, LONGEST, None);
        pair.run(Duration::from_micros(100));
        let got = usize::try_from(seed).unwrap();
        assert!(pair.ends[1].got[got].bytes == message(seed, LONGEST));
    }
    pair.assert_clean();
}

#[test]
fn consecutive_fragments_are_accepted_at_any_destination() {
    let mut pair = pair();
    let frames = LONGEST.div_ceil(1472 - 32);
    // Into held memory, into a buffer, into one that is too short.
    for (seed, room) in [(0, None), (1, Some(LONGEST + 9)), (2, Some(LONGEST - 9))] {
        let (bytes, before) = (message(seed, LONGEST), pair.runs_taken);
        if let Some(room) = room {
            pair.ends[1].post(PORT, room, None);
        }
        pair.ends[0].send(B, &to(PORT), &bytes).unwrap();
        pair.run(Duration::from_millis(5));
        if room.is_none() {
            pair.ends[1].post(PORT, LONGEST, None);
            pair.run(Duration::from_millis(5));
        }
        let got = pair.ends[1].got.pop().unwrap();
        let fits = room.unwrap_or(LONGEST).min(LONGEST);
        assert!(got.bytes[..fits] == bytes[..fits]);
        assert_eq!(got.error.is_some(), fits < LONGEST);
        // Frames of a message that its buffer truncates are handled one by one.
        let taken = pair.runs_taken - before;
        assert_eq!(taken > frames / 2, fits == LONGEST, "{taken} for {room:?}");
    }
    pair.assert_clean();
}

// P3.5
#[test]
fn fragments_are_acknowledged_as_rarely_as_bulk_data() {
    let mut pair = pair();
    let before = pair.ends[1].core.counters().frames_sent;
    for seed in 0..4 {
        pair.ends[1].post(PORT, LONGEST, None);
        pair.ends[0]
            .send(B, &to(PORT), &message(seed, LONGEST))
            .unwrap();
    }
    pair.run(Duration::from_secs(1));
    let sent = pair.ends[1].core.counters().frames_sent - before;
    assert_eq!(pair.ends[1].got.len(), 4);
    // Four messages are 184 frames; credit is returned twice, and the last ones wait 50 µs.
    assert!(sent <= 6, "{sent}");
}

#[test]
fn fragment_runs_survive_network_faults() {
    for seed in 0..20 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut pair = pair();
        pair.faults = Faults {
            drop: 0.02,
            duplicate: 0.02,
            reorder: 0.02,
            corrupt: 0.0,
        };
        let (mut sent, mut owed) = (Vec::new(), 0);
        for number in 0..24 {
            let bytes = message(number, rng.random_range(1500..=LONGEST));
            owed += 1;
            if rng.random() {
                (0..core::mem::take(&mut owed)).for_each(|_| post(&mut pair));
            }
            while pair.ends[0].send(B, &to(PORT), &bytes).is_err() {
                (0..core::mem::take(&mut owed)).for_each(|_| post(&mut pair));
                pair.run(Duration::from_micros(200));
            }
            sent.push(bytes);
        }
        (0..owed).for_each(|_| post(&mut pair));
        pair.run(Duration::from_secs(5));
        assert_eq!(pair.ends[1].got.len(), sent.len(), "seed {seed}");
        for (got, sent) in pair.ends[1].got.iter().zip(&sent) {
            assert!(got.bytes == *sent, "seed {seed}");
        }
        pair.assert_clean();
    }
}

// P1.7, P1.8
#[test]
fn invalid_runs_close_nothing_and_take_no_memory() {
    for seed in 0..30 {
        let mut pair = Pair::new(&[LinkId::UDP], seed);
        pair.run(Duration::from_millis(50));
        pair.faults.corrupt = 0.1;
        // Both headers of a fragment, and some of its bytes.
        pair.spoilt_len = 40;
        for number in 0..40 {
            post(&mut pair);
            let _ = pair.ends[0].send(B, &to(PORT), &message(number, LONGEST));
            pair.run(Duration::from_micros(300));
        }
        let end = &pair.ends[1];
        let counters = end.core.counters();
        assert!(counters.iter_drops().count() > 0 && end.failed.is_empty());
        let (_, held_len, _) = end.core.usage();
        assert!(held_len < 16 * 128 * 1024, "{held_len}");
    }
}

/// Sends messages of `lens` bytes in one turn; checks that all arrive, in order.
fn burst(pair: &mut Pair, lens: &[usize]) {
    for (seed, &len) in (0..).zip(lens) {
        pair.ends[1].post(PORT, len, None);
        let accepted = pair.ends[0].send(B, &to(PORT), &message(seed, len));
        accepted.unwrap();
    }
    pair.run(Duration::from_secs(2));
    let got = pair.ends[1].got.split_off(0);
    assert_eq!(got.len(), lens.len());
    for ((seed, &len), got) in (0..).zip(lens).zip(got) {
        assert!(got.error.is_none() && got.bytes == message(seed, len));
    }
    pair.assert_clean();
}

// P4.16
#[test]
fn messages_of_a_burst_share_frames_and_calls() {
    // Lengths that do not fill frames; that fill them; and one message per frame.
    for (len, per_frame) in [(300, 4), (32, 35), (1000, 1)] {
        let mut pair = pair();
        burst(&mut pair, &vec![len; 384]);
        // All but the first full frame, and the one that was open then.
        let frames = 384_usize.div_ceil(per_frame) - 2;
        assert_eq!(pair.calls.iter().sum::<usize>(), frames, "{len}");
        assert_eq!(
            pair.calls.len(),
            frames.div_ceil(44),
            "{len}: {:?}",
            pair.calls
        );
    }
}

// P4.16
#[test]
fn burst_uses_the_path_with_larger_calls() {
    let mut pair = Pair::new(&[LinkId::UDP, LinkId::PACKET], 1);
    pair.run(Duration::from_millis(50));
    pair.calls.clear();
    burst(&mut pair, &[200; 60]);
    assert_eq!(pair.calls, [8]);
    // A single message does not use it.
    burst(&mut pair, &[200]);
    assert_eq!(pair.calls, [8]);
}

// P4.16
#[test]
fn burst_is_retransmitted_frame_by_frame() {
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    for round in 0..20 {
        let mut pair = pair();
        pair.faults.drop = 0.2;
        let lens: Vec<_> = (0..150).map(|_| rng.random_range(0..1300)).collect();
        burst(&mut pair, &lens);
        let counters = pair.ends[0].core.counters();
        assert!(counters.retransmits > 0, "{round}");
    }
}
