// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lost bulk data is retransmitted in few calls, once, and delays nothing.

use super::pair::*;
use crate::*;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;
use rand::{RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;

const PORT: PortId = PortId::user(5);
const LOW: SendSpec = SendSpec {
    to: Address::Port(PORT),
    lane: LaneId::Low,
    best_effort: false,
};

/// Length of each message in bytes: not a multiple of the fragment length.
const LEN: usize = 1_000_000;

/// Cost of sending messages.
struct Cost {
    /// Number of frames in each call with bulk data.
    calls: Vec<usize>,
    retransmits: u64,
    duplicates: u64,
    /// Number of frames sent for acknowledgements and grants.
    replies: u64,
    /// Number of frames that may be in flight at the end.
    window: usize,
}

/// Sends `count` messages over a network that loses a share of `drop`, and refuses `refused` calls
/// with bulk data.
fn exchange(drop: f64, count: usize, refused: usize) -> Cost {
    let mut pair = Pair::new(&[LinkId::UDP], 6);
    pair.run(Duration::from_millis(50));
    let mut sent = Vec::new();
    for number in 0..count {
        let mut bytes = vec![0; LEN];
        ChaCha8Rng::seed_from_u64(number as u64).fill_bytes(&mut bytes);
        pair.ends[1].post(PORT, LEN, None);
        pair.ends[0].send(B, &LOW, &bytes).unwrap();
        sent.push(bytes);
    }
    pair.faults.drop = drop;
    pair.bulk_refused = refused;
    pair.run(Duration::from_secs(5));
    assert_eq!(pair.bulk_refused, 0);
    let got = &pair.ends[1].got;
    assert!(got.iter().map(|got| &got.bytes).eq(&sent));
    pair.faults.drop = 0.0;
    pair.run(Duration::from_secs(1));
    pair.assert_clean();
    let [sender, receiver] = &pair.ends;
    let counters = receiver.core.counters();
    Cost {
        calls: core::mem::take(&mut pair.bulk_calls),
        retransmits: sender.core.counters().retransmits,
        duplicates: counters.drops(DropReason::Duplicate),
        replies: counters.frames_sent,
        window: sender
            .core
            .path_status(B, LinkId::UDP)
            .unwrap()
            .window
            .unwrap(),
    }
}

// P3.15
#[test]
fn lost_fragments_share_calls_with_new_ones() {
    let count = 20;
    let undisturbed = exchange(0.0, count, 0);
    assert_eq!(undisturbed.retransmits, 0);
    for drop in [0.01, 0.05, 0.2] {
        let cost = exchange(drop, count, 0);
        let frames: usize = cost.calls.iter().sum();
        let again = frames - undisturbed.calls.iter().sum::<usize>();
        assert!(again as u64 <= cost.retransmits);
        assert!(again as f64 > frames as f64 * drop * 0.8, "{again} frames");
        let more = cost.calls.len() - undisturbed.calls.len();
        assert!(more < again / 2, "{more} calls for {again} frames");
    }
}

// P3.15
#[test]
fn refused_retransmission_is_repeated() {
    for refused in [1, 5, 30] {
        exchange(0.1, 4, refused);
    }
}

// P3.8, P3.2
#[test]
fn spurious_retransmissions_are_rare() {
    let cost = exchange(0.01, 20, 0);
    let most = cost.retransmits / 20;
    assert!(
        cost.duplicates <= most,
        "{} of {}",
        cost.duplicates,
        cost.retransmits
    );
}

// P3.5
#[test]
fn loss_causes_few_acknowledgements() {
    let (without, with) = (exchange(0.0, 20, 0), exchange(0.01, 20, 0));
    assert!(
        with.replies < without.replies * 2,
        "{} frames of answers, {} without loss",
        with.replies,
        without.replies
    );
}

// P3.13
#[test]
fn random_loss_of_a_fifth_keeps_a_window_of_one_call() {
    let cost = exchange(0.2, 40, 0);
    assert!(cost.window >= 44, "{} frames", cost.window);
}
