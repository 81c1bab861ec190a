// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sessions open, choose paths, fail and reopen.

use super::pair::*;
use crate::*;
use alloc::vec::Vec;
use core::time::Duration;

const PORT: PortId = PortId::user(5);
const LOW: SendSpec = SendSpec {
    to: Address::Port(PORT),
    lane: LaneId::Low,
    best_effort: false,
};
const NETWORK: &[LinkId] = &[LinkId::UDP, LinkId::PACKET];

// P2.6, P6.1, P6.3, P6.5
#[test]
fn session_opens_on_every_path_and_probes_its_frame_length() {
    let mut pair = Pair::new(NETWORK, 1);
    pair.run(Duration::from_millis(50));
    for (end, peer) in [(&pair.ends[0], B), (&pair.ends[1], A)] {
        assert_eq!(end.core.peer_status(peer), PeerStatus::Up);
        for &link in NETWORK {
            let status = end.core.path_status(peer, link).unwrap();
            assert!(status.up, "{link}");
            assert_eq!(
                status.frame_len,
                if link == LinkId::UDP { 1472 } else { 1496 }
            );
            assert!(status.rtt_min.is_some());
        }
        assert!(end.core.path_status(peer, LinkId::UDP).unwrap().bulk);
        // As fast as the other one, according to the measurements.
        assert!(end.core.path_status(peer, LinkId::PACKET).unwrap().small);
    }
}

/// Number of frames with which one side opens a session and measures `links`.
fn frames_of_measuring(links: &[LinkId], raw_extra: Duration) -> u64 {
    let mut pair = Pair::new(links, 1);
    pair.raw_extra = raw_extra;
    pair.run(Duration::from_millis(50));
    pair.ends[0].core.counters().frames_sent
}

// P6.3
#[test]
fn measuring_ends_early_if_the_choice_is_clear() {
    let short = frames_of_measuring(NETWORK, Duration::ZERO);
    let single = frames_of_measuring(&[LinkId::UDP], Duration::ZERO);
    // 16 µs against 10 µs by UDP: half of it is shorter.
    let slower = frames_of_measuring(NETWORK, Duration::from_micros(3));
    let long = frames_of_measuring(NETWORK, Duration::from_micros(20));
    // UDP is never measured.
    let mut pair = Pair::new(NETWORK, 1);
    pair.dead = Some(LinkId::UDP);
    pair.run(Duration::from_millis(50));
    let unmeasured = pair.ends[0].core.counters().frames_sent;
    // A probe and an answer in each round.
    assert!((32..=40).contains(&short), "{short} frames");
    // UDP is measured more than 8 times meanwhile.
    assert!((40..=60).contains(&slower), "{slower} frames");
    assert!((16..=20).contains(&single), "{single} frames");
    assert!(unmeasured > 2 * 32, "{unmeasured} frames");
    assert!((128..=140).contains(&long), "{long} frames");
}

// P2.1, P2.5
#[test]
fn simultaneous_open_succeeds_over_a_lossy_link() {
    for seed in 0..50 {
        let mut pair = Pair::new(NETWORK, seed);
        pair.faults = Faults {
            drop: 0.3,
            duplicate: 0.2,
            reorder: 0.3,
            corrupt: 0.0,
        };
        pair.ends[1].core.connect(pair.now, A);
        pair.run(Duration::from_secs(1));
        assert_eq!(
            pair.ends[0].core.peer_status(B),
            PeerStatus::Up,
            "seed {seed}"
        );
        assert_eq!(
            pair.ends[1].core.peer_status(A),
            PeerStatus::Up,
            "seed {seed}"
        );
    }
}

// P2.1
#[test]
fn half_open_session_completes_when_the_network_heals() {
    let mut pair = Pair::new(NETWORK, 9);
    // The other side's answers arrive, this side's later frames do not.
    pair.run(Duration::from_micros(9));
    pair.faults.drop = 1.0;
    pair.run(Duration::from_micros(9));
    pair.ends[0].send(B, &LOW, b"early").unwrap();
    pair.run(Duration::from_secs(2));
    assert_eq!(pair.ends[1].core.peer_status(A), PeerStatus::Connecting);
    pair.faults.drop = 0.0;
    pair.ends[1].core.open_port(PORT, PortMode::InPlace);
    pair.run(Duration::from_millis(300));
    assert_eq!(pair.ends[1].core.peer_status(A), PeerStatus::Up);
    assert_eq!(pair.ends[1].got.len(), 1);
    pair.assert_clean();
}

// P2.1, P6.5
#[test]
fn other_path_carries_traffic_of_a_failed_one() {
    let mut pair = Pair::new(NETWORK, 2);
    pair.dead = Some(LinkId::PACKET);
    pair.run(Duration::from_millis(50));
    pair.ends[1].core.open_port(PORT, PortMode::InPlace);
    pair.ends[0].send(B, &LOW, b"by udp").unwrap();
    pair.run(Duration::from_millis(5));
    assert_eq!(pair.ends[1].got.len(), 1);
    assert!(!pair.ends[0].core.path_status(B, LinkId::PACKET).unwrap().up);
}

// P9.1, P9.6
#[test]
fn silent_peer_is_suspected_and_its_operations_fail() {
    let mut pair = Pair::new(&[LinkId::UDP], 3);
    pair.run(Duration::from_millis(5));
    let op = pair.ends[0].post(PORT, 10, Some(B));
    pair.dead = Some(LinkId::UDP);
    pair.ends[0].send(B, &LOW, &[0; 100_000]).unwrap();
    pair.run(Duration::from_millis(500));
    let suspect = Event::Suspect {
        peer: B,
        link: LinkId::UDP,
    };
    assert!(pair.ends[0].failed.contains(&suspect));
    let cause = Cause::Silent(LinkId::UDP);
    pair.ends[0].core.fail_peer(B, cause);
    pair.run(Duration::from_millis(1));
    let error = OpError::PeerFailed(B, cause);
    assert!(
        pair.ends[0]
            .failed
            .contains(&Event::RecvFailed { op, error })
    );
    assert_eq!(pair.ends[0].sent.values().next(), Some(&Err(error)));
    assert_eq!(
        pair.ends[0].send(B, &LOW, b"x"),
        Err(Refused::PeerFailed(cause))
    );
    assert_eq!(pair.ends[0].core.usage(), (0, 0, 0));
}

// P2.8
#[test]
fn after_a_partition_heals_a_new_session_opens() {
    let mut pair = Pair::new(NETWORK, 4);
    pair.run(Duration::from_millis(5));
    pair.ends[0].core.fail_peer(B, Cause::Silent(LinkId::UDP));
    pair.ends[0].core.connect(pair.now, B);
    pair.run(Duration::from_millis(50));
    let failed = Event::PeerFailed {
        peer: A,
        cause: Cause::Restarted,
        has_unacked: false,
    };
    assert!(pair.ends[1].failed.contains(&failed));
    pair.ends[1].core.open_port(PORT, PortMode::InPlace);
    pair.ends[0].send(B, &LOW, b"again").unwrap();
    pair.run(Duration::from_millis(5));
    assert_eq!(pair.ends[1].got.len(), 1);
}

// P2.4
#[test]
fn restarted_peer_gets_a_new_session() {
    let mut pair = Pair::new(NETWORK, 5);
    pair.run(Duration::from_millis(5));
    let op = pair.ends[0].post(PORT, 10, Some(B));
    pair.ends[1] = End::new(1, NETWORK, 1000);
    pair.ends[1].core.connect(pair.now, A);
    pair.run(Duration::from_millis(50));
    let error = OpError::PeerFailed(B, Cause::Restarted);
    assert!(
        pair.ends[0]
            .failed
            .contains(&Event::RecvFailed { op, error })
    );
    pair.ends[0].core.open_port(PORT, PortMode::InPlace);
    pair.ends[1].send(A, &LOW, b"reborn").unwrap();
    pair.run(Duration::from_millis(5));
    assert_eq!(pair.ends[0].got.len(), 1);
}

#[test]
fn late_hello_of_a_closed_session_is_ignored() {
    let mut pair = Pair::new(&[LinkId::UDP], 6);
    pair.ends[1].core.connect(pair.now, A);
    let Some(Transmit::Frame { bytes, .. }) = pair.ends[1].core.poll_transmit(pair.now) else {
        panic!("no hello");
    };
    let late = bytes.to_vec();
    pair.run(Duration::from_millis(50));
    pair.ends[0].core.fail_peer(B, Cause::Silent(LinkId::UDP));
    pair.ends[0].core.connect(pair.now, B);
    pair.ends[0].core.handle_frame(pair.now, LinkId::UDP, &late);
    pair.run(Duration::from_millis(50));
    // One end gave up the session, and the other was notified by the new one.
    assert_eq!(pair.ends[0].failed.len(), 1);
    assert_eq!(pair.ends[1].failed.len(), 1);
    pair.ends[1].core.open_port(PORT, PortMode::InPlace);
    pair.ends[0].send(B, &LOW, b"settled").unwrap();
    pair.run(Duration::from_millis(5));
    assert_eq!(pair.ends[1].got.len(), 1);
}

#[test]
fn hello_replies_to_a_failed_peer_are_bounded() {
    let mut pair = Pair::new(&[LinkId::UDP], 7);
    pair.run(Duration::from_micros(6));
    assert_eq!(pair.ends[1].core.peer_status(A), PeerStatus::Connecting);
    pair.dead = Some(LinkId::UDP);
    pair.ends[0] = End::new(0, &[LinkId::UDP], 500);
    pair.run(Duration::from_secs(5));
    let before = pair.ends[1].core.counters().frames_sent;
    pair.run(Duration::from_secs(5));
    assert_eq!(pair.ends[1].core.counters().frames_sent, before);
    // When this side requests the session, it retries.
    assert_eq!(pair.ends[1].send(A, &LOW, b"x"), Err(Refused::NotUp));
    pair.dead = None;
    pair.run(Duration::from_millis(100));
    assert_eq!(pair.ends[1].core.peer_status(A), PeerStatus::Up);
}

#[test]
fn waiting_peer_detects_a_session_the_other_closed() {
    let mut pair = Pair::new(NETWORK, 8);
    pair.run(Duration::from_millis(50));
    // The request is acknowledged and finds no buffer: nothing is left in flight.
    pair.ends[0].send(B, &LOW, &[0; 100_000]).unwrap();
    pair.run(Duration::from_millis(50));
    pair.ends[1].core.fail_peer(A, Cause::Silent(LinkId::UDP));
    pair.run(Duration::from_millis(50));
    assert!(pair.ends[0].sent.is_empty());
    pair.ends[0].core.probe_peer(B);
    pair.run(Duration::from_millis(5));
    let error = OpError::PeerFailed(B, Cause::Closed);
    assert_eq!(pair.ends[0].sent.values().next(), Some(&Err(error)));
    assert_eq!(
        pair.ends[0].core.peer_status(B),
        PeerStatus::Failed(Cause::Closed)
    );
    pair.assert_clean();
}

#[test]
fn probed_peer_replies() {
    let mut pair = Pair::new(NETWORK, 9);
    pair.run(Duration::from_millis(50));
    let before = pair.ends[0].core.last_seen(B).unwrap();
    pair.ends[0].core.probe_peer(B);
    pair.run(Duration::from_millis(5));
    assert!(pair.ends[0].core.last_seen(B).unwrap() > before);
    assert_eq!(pair.ends[0].core.peer_status(B), PeerStatus::Up);
}

#[test]
fn shortcut_is_unavailable_to_a_failed_peer() {
    let mut pair = Pair::new(&[LinkId::SHM], 10);
    assert!(pair.ends[0].core.direct::<8>(B, &LOW, 8).is_some());
    pair.ends[0].core.fail_peer(B, Cause::ProcessExited);
    assert!(pair.ends[0].core.direct::<8>(B, &LOW, 8).is_none());
}

// P8.2
#[test]
fn failed_lossless_peer_returns_with_a_new_connection() {
    let mut pair = Pair::new(&[LinkId::SHM], 11);
    pair.ends[1].core.open_port(PORT, PortMode::InPlace);
    pair.ends[0].send(B, &LOW, b"before").unwrap();
    pair.run(Duration::from_millis(1));
    pair.ends[0].core.fail_peer(B, Cause::Silent(LinkId::SHM));
    pair.ends[1].core.fail_peer(A, Cause::Closed);
    pair.ends[0].core.connect(pair.now, B);
    pair.ends[0].send(B, &LOW, b"after").unwrap();
    pair.run(Duration::from_millis(1));
    assert_eq!(pair.ends[1].core.peer_status(A), PeerStatus::Up);
    let got: Vec<_> = pair.ends[1].got.iter().map(|got| &got.bytes[..]).collect();
    assert_eq!(got, [&b"before"[..], b"after"]);
}

#[test]
fn late_frames_do_not_revive_an_exited_peer() {
    let mut pair = Pair::new(&[LinkId::SHM], 12);
    pair.ends[1].core.open_port(PORT, PortMode::InPlace);
    pair.ends[0].send(B, &LOW, b"last").unwrap();
    let gone = PeerStatus::Failed(Cause::ProcessExited);
    pair.ends[1].core.connect(pair.now, A);
    pair.ends[1].core.fail_peer(A, Cause::ProcessExited);
    pair.run(Duration::from_millis(1));
    assert_eq!(pair.ends[1].core.peer_status(A), gone);
    assert!(pair.ends[1].got.is_empty());
}

// P2.13
#[test]
fn send_is_unfinished_until_acknowledged() {
    for seed in 0..20 {
        let mut pair = Pair::new(NETWORK, seed);
        pair.run(Duration::from_millis(50));
        pair.ends[1].core.open_port(PORT, PortMode::InPlace);
        pair.faults.drop = 0.4;
        for byte in 0..200u8 {
            pair.ends[0].send(B, &LOW, &[byte; 8]).unwrap();
        }
        assert!(pair.ends[0].core.has_unfinished_with(B), "nothing has left");
        for _ in 0..100 {
            if pair.ends[0].core.has_unfinished_with(B) {
                // Longer than the longest timeout, so that time advances.
                pair.run(Duration::from_millis(200));
            }
        }
        assert!(!pair.ends[0].core.has_unfinished_with(B), "seed {seed}");
        pair.ends[0].core.dismiss(B);
        let closed = PeerStatus::Failed(Cause::Closed);
        assert_eq!(pair.ends[0].core.peer_status(B), closed);
        let got: Vec<_> = pair.ends[1].got.iter().map(|got| got.bytes[0]).collect();
        assert!(got.into_iter().eq(0..200), "seed {seed}");
    }
}

// P2.13
#[test]
fn receives_of_one_source_can_be_cancelled_during_its_session() {
    let mut pair = Pair::new(NETWORK, 1);
    pair.run(Duration::from_millis(50));
    pair.ends[0].core.open_port(PORT, PortMode::Posted);
    let named = pair.ends[0].post(PORT, 10, Some(B));
    let any = pair.ends[0].post(PORT, 10, None);
    pair.ends[0].core.end_receives_from(B, Cause::Closed);
    pair.ends[1].send(A, &LOW, b"late").unwrap();
    pair.run(Duration::from_millis(5));
    let error = OpError::PeerFailed(B, Cause::Closed);
    let ended = Event::RecvFailed { op: named, error };
    assert_eq!(pair.ends[0].failed, [ended]);
    assert_eq!(pair.ends[0].got.len(), 1);
    assert!(!pair.ends[0].memory.contains_key(&any.0), "delivered");
}
