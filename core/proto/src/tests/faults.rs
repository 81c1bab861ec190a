// SPDX-License-Identifier: MIT OR Apache-2.0
//! Operations on memory that one end cannot access fail at both ends, and the session continues.

use super::pair::*;
use crate::*;
use alloc::vec;
use core::time::Duration;

const PORT: PortId = PortId::user(5);
const LOW: SendSpec = SendSpec {
    to: Address::Port(PORT),
    lane: LaneId::Low,
    best_effort: false,
};
const LEN: usize = 700_000;

const LINKS: [&[LinkId]; 2] = [&[LinkId::UDP], &[LinkId::SHM]];

/// Time until the receiver has sent its first grant, in microseconds. The frames that the sender
/// sends in return leave at 2 ms, and all of them at once on a lossless link.
const IS_GRANTED: u64 = 1_500;

/// Time until the sender's first frames are under way.
const IS_SENT: u64 = 2_500;

/// Starts a message, and runs for `micros`. Returns the operations of both ends.
fn begin(links: &[LinkId], micros: u64) -> (Pair, OpId, OpId) {
    let mut pair = Pair::new(links, 3);
    pair.run(Duration::from_millis(50));
    pair.latency = Duration::from_millis(1);
    let to = pair.ends[1].post(PORT, LEN, None);
    pair.ends[0]
        .send_rendezvous(B, &LOW, &vec![7; LEN])
        .unwrap();
    let from = *pair.ends[0].memory.keys().next().unwrap();
    pair.run(Duration::from_micros(micros));
    assert!(pair.ends[1].got.is_empty());
    (pair, OpId(from), to)
}

/// Checks that another message arrives, and that nothing is left.
fn finish(mut pair: Pair) {
    pair.run(Duration::from_millis(500));
    let before = pair.ends[1].got.len();
    pair.ends[1].post(PORT, LEN, None);
    pair.ends[0]
        .send_rendezvous(B, &LOW, &vec![8; LEN])
        .unwrap();
    pair.run(Duration::from_millis(500));
    assert_eq!(pair.ends[1].got.len(), before + 1);
    pair.assert_clean();
}

// P5.12
#[test]
fn unwritable_receive_fails_its_send() {
    for links in LINKS {
        let (mut pair, from, to) = begin(links, IS_SENT);
        pair.ends[1].core.fail_writes(to, &(0..1));
        pair.run(Duration::from_millis(500));
        assert_eq!(pair.ends[0].sent[&from.0], Err(OpError::PeerFault(B)));
        // Complete for the core; the engine knows the error.
        assert_eq!(pair.ends[1].got.len(), 1);
        finish(pair);
    }
}

// P5.12
#[test]
fn unreadable_send_fails_its_receive() {
    for links in LINKS {
        let (mut pair, from, to) = begin(links, IS_GRANTED);
        pair.ends[0].core.fail_reads(from, &(0..1));
        pair.run(Duration::from_millis(500));
        let failed = Err(OpError::Fault { written: false });
        assert_eq!(pair.ends[0].sent[&from.0], failed);
        assert_eq!(pair.ends[1].ended[&to.0], Err(OpError::PeerFault(A)));
        assert_eq!(pair.ends[1].got.len(), 1);
        finish(pair);
    }
}

#[test]
fn fault_elsewhere_in_the_memory_ends_nothing() {
    let (mut pair, from, to) = begin(&[LinkId::UDP], IS_SENT);
    let behind = LEN as u64..LEN as u64 + 1;
    pair.ends[1].core.fail_writes(to, &behind);
    pair.ends[0].core.fail_reads(from, &behind);
    pair.run(Duration::from_millis(500));
    assert_eq!(pair.ends[0].sent[&from.0], Ok(()));
    finish(pair);
}
