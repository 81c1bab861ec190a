// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bulk data received at predicted places: whatever frames arrive instead, no byte is ever wrong.

use super::pair::*;
use crate::*;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

const FAULTS: Faults = Faults {
    drop: 0.03,
    duplicate: 0.03,
    reorder: 0.05,
    corrupt: 0.0,
};

/// Returns a unique message.
fn message(rng: &mut ChaCha8Rng, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    rng.fill(&mut bytes[..]);
    bytes
}

fn port(lane: LaneId) -> PortId {
    PortId::user(if lane == LaneId::Low { 1 } else { 2 })
}

/// Exchanges messages of all lengths on both lanes at once, with each way of posting; returns the
/// hits.
fn exchange(seed: u64, faults: Faults, speculates: bool) -> u64 {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut pair = Pair::new(&[LinkId::UDP], seed);
    pair.run(Duration::from_millis(50));
    (pair.faults, pair.speculates) = (faults, speculates);
    let mut sent = Vec::new();
    for _ in 0..12 {
        for lane in [LaneId::Low, LaneId::High] {
            let len = match rng.random_range(0..4) {
                0 => rng.random_range(1..500),
                1 => 1448 * rng.random_range(24..100),
                _ => rng.random_range(66_000..300_000),
            };
            // Exact, longer, and sometimes too short.
            let room = match rng.random_range(0..5) {
                0 => len + 5000,
                1 => len - rng.random_range(0..len),
                _ => len,
            };
            let (early, bytes) = (rng.random(), message(&mut rng, len));
            if early {
                pair.ends[1].post(port(lane), room, None);
            }
            let spec = SendSpec {
                to: port(lane).into(),
                lane,
                best_effort: false,
            };
            while pair.ends[0].send(B, &spec, &bytes).is_err() {
                pair.run(Duration::from_micros(100));
            }
            if !early {
                pair.ends[1].post(port(lane), room, None);
            }
            sent.push((port(lane), room, bytes));
        }
        pair.run(Duration::from_micros(rng.random_range(0..200)));
    }
    pair.run(Duration::from_secs(5));
    for at in [LaneId::Low, LaneId::High].map(port) {
        let got = pair.ends[1].got.iter().filter(|got| got.port == at);
        let sent: Vec<_> = sent.iter().filter(|sent| sent.0 == at).collect();
        assert_eq!(got.clone().count(), sent.len(), "seed {seed}");
        for (got, (_, room, bytes)) in got.zip(sent) {
            let fits = *room.min(&bytes.len());
            assert!(got.bytes[..fits] == bytes[..fits], "seed {seed}");
            assert_eq!(got.error.is_some(), *room < bytes.len(), "seed {seed}");
        }
    }
    pair.assert_clean();
    pair.ends[1].core.counters().placement_hits
}

#[test]
fn misprediction_leaves_no_wrong_byte() {
    for seed in 0..12 {
        assert!(exchange(seed, FAULTS, true) > 0);
        assert_eq!(exchange(seed, FAULTS, false), 0);
    }
}

/// Returns the number of frames of a 1 MB message that were taken in runs, on a network that loses
/// a share of `drop`.
fn runs_taken(drop: f64) -> usize {
    let mut pair = Pair::new(&[LinkId::UDP], 3);
    pair.run(Duration::from_millis(50));
    pair.faults.drop = drop;
    let bytes = message(&mut ChaCha8Rng::seed_from_u64(3), 1_000_000);
    pair.ends[1].post(PortId::user(1), bytes.len(), None);
    let spec = SendSpec {
        to: Address::Port(PortId::user(1)),
        lane: LaneId::Low,
        best_effort: false,
    };
    pair.ends[0].send(B, &spec, &bytes).unwrap();
    pair.run(Duration::from_secs(1));
    assert!(pair.ends[1].got[0].bytes == bytes);
    pair.assert_clean();
    pair.runs_taken
}

#[test]
fn consecutive_fragments_are_accepted_as_runs() {
    let count = runs_taken(0.0);
    assert!(count > 500, "{count} frames in runs");
}

#[test]
fn runs_behind_a_lost_frame_are_accepted() {
    let count = runs_taken(0.03);
    assert!(count > 400, "{count} frames in runs");
}

#[test]
fn in_order_fragments_are_mostly_predicted() {
    let hits = exchange(7, Faults::default(), true);
    assert!(hits > 500, "{hits} hits");
}

#[test]
fn short_buffer_gets_no_prediction() {
    let mut pair = Pair::new(&[LinkId::UDP], 1);
    pair.run(Duration::from_millis(50));
    pair.speculates = true;
    let spec = SendSpec {
        to: Address::Port(PortId::user(1)),
        lane: LaneId::Low,
        best_effort: false,
    };
    pair.ends[1].post(PortId::user(1), 99_999, None);
    pair.ends[0].send(B, &spec, &[7; 100_000]).unwrap();
    pair.run(Duration::from_secs(1));
    assert_eq!(pair.ends[1].got.len(), 1);
    assert_eq!(pair.ends[1].core.counters().placement_hits, 0);
}
