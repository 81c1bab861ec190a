// SPDX-License-Identifier: MIT OR Apache-2.0
//! Paths that fail, recover and become narrower while in use: their data arrives nevertheless.

use super::delivery::disturbed_mixture;
use super::pair::*;
use crate::*;
use core::time::Duration;

const PORT: PortId = PortId::user(5);
const LOW: SendSpec = SendSpec {
    to: Address::Port(PORT),
    lane: LaneId::Low,
    best_effort: false,
};
const NETWORK: &[LinkId] = &[LinkId::UDP, LinkId::PACKET];

fn up(seed: u64) -> Pair {
    let mut pair = Pair::new(NETWORK, seed);
    for end in &mut pair.ends {
        end.core.prefer(LinkId::PACKET);
    }
    pair.run(Duration::from_millis(50));
    pair.ends[1].core.open_port(PORT, PortMode::InPlace);
    pair.ends[1].provides_buffers = true;
    pair
}

fn status(pair: &Pair, rank: usize, link: LinkId) -> PathStatus {
    let peer = if rank == 0 { B } else { A };
    pair.ends[rank].core.path_status(peer, link).unwrap()
}

// P6.7, P3.12
#[test]
fn mixed_traffic_arrives_over_failing_paths() {
    let mut left = 0;
    for seed in 0..24 {
        let faults = Faults {
            drop: [0.0, 0.02][seed % 2],
            ..Faults::default()
        };
        let pair = disturbed_mixture(NETWORK, seed as u64, faults, false, |pair, turn| {
            // Soon after the handshake one path fails for 75 ms, later the other one.
            let (first, second) =
                [(LinkId::UDP, LinkId::PACKET), (LinkId::PACKET, LinkId::UDP)][seed / 2 % 2];
            pair.dead = match turn.checked_sub(1 + seed % 3) {
                Some(0..250) => Some(first),
                Some(600..850) => Some(second),
                _ => None,
            };
        });
        for end in &pair.ends {
            assert_eq!(end.core.counters().drops(DropReason::BadFragment), 0);
            assert_eq!(end.core.counters().drops(DropReason::BeyondCredit), 0);
            left += end.core.counters().paths_left;
        }
    }
    assert!(left > 12, "{left} paths were left");
}

// P6.7
#[test]
fn frames_of_a_failed_path_move_to_another() {
    for dead in [LinkId::UDP, LinkId::PACKET] {
        let mut pair = up(1);
        pair.dead = Some(dead);
        for len in [10, 20_000, 400_000, 1000, 5000] {
            pair.ends[0].send(B, &LOW, &[7; 400_000][..len]).unwrap();
        }
        pair.run(Duration::from_millis(90));
        assert_eq!(pair.ends[1].got.len(), 5, "{dead} dead");
        assert_eq!(pair.ends[0].core.counters().paths_left, 1);
        assert!(!status(&pair, 0, dead).small && !status(&pair, 0, dead).bulk);
        // Nothing waits for the dead path, and the peer was not suspected.
        assert!(!pair.ends[0].core.has_unfinished());
        pair.assert_clean();
        assert!(pair.ends[0].failed.is_empty());
        pair.dead = None;
        pair.run(Duration::from_secs(2));
        let (small, bulk) = (
            status(&pair, 0, LinkId::PACKET),
            status(&pair, 0, LinkId::UDP),
        );
        assert!(bulk.bulk && (small.small || bulk.small), "{dead} healed");
        assert_eq!(status(&pair, 0, dead).inflight_count, 0);
        pair.ends[0].send(B, &LOW, &[8; 400_000]).unwrap();
        pair.run(Duration::from_millis(50));
        assert_eq!(pair.ends[1].got.len(), 6);
    }
}

// P6.7
#[test]
fn lost_acknowledgements_move_to_another_path() {
    for link in NETWORK {
        let mut pair = up(2);
        pair.deaf = Some((0, *link));
        for _ in 0..40 {
            pair.ends[0].send(B, &LOW, &[7; 900]).unwrap();
        }
        pair.ends[0].send(B, &LOW, &[7; 400_000]).unwrap();
        pair.run(Duration::from_millis(300));
        assert_eq!(pair.ends[1].got.len(), 41, "{link}");
        assert!(!pair.ends[0].core.has_unfinished());
        pair.assert_clean();
    }
}

// P6.7, P9.1
#[test]
fn no_path_is_closed_if_none_responds() {
    let mut pair = up(3);
    pair.faults.drop = 1.0;
    pair.ends[0].send(B, &LOW, b"x").unwrap();
    pair.run(Duration::from_millis(500));
    assert_eq!(pair.ends[0].core.counters().paths_left, 0);
    assert!(
        pair.ends[0]
            .failed
            .iter()
            .any(|event| matches!(event, Event::Suspect { .. }))
    );
    pair.faults.drop = 0.0;
    pair.run(Duration::from_millis(200));
    assert_eq!(pair.ends[1].got.len(), 1);
    let best = status(&pair, 0, LinkId::UDP);
    assert_eq!((best.bulk, best.frame_len), (true, 1472));
}

// P6.2, P3.12
#[test]
fn mtu_drop_is_detected_and_frames_are_refragmented() {
    for links in [&[LinkId::UDP][..], NETWORK] {
        let mut pair = Pair::new(links, 4);
        pair.run(Duration::from_millis(50));
        pair.ends[1].core.open_port(PORT, PortMode::InPlace);
        pair.ends[1].provides_buffers = true;
        pair.narrow = Some((LinkId::UDP, 1300));
        for len in [10, 1400, 20_000, 400_000, 1000, 5000] {
            pair.ends[0].send(B, &LOW, &[7; 400_000][..len]).unwrap();
        }
        pair.run(Duration::from_millis(900));
        assert_eq!(pair.ends[1].got.len(), 6);
        assert_eq!(status(&pair, 0, LinkId::UDP).frame_len, 1200);
        pair.assert_clean();
        // The longer length is tried again some time later.
        pair.narrow = None;
        pair.run(Duration::from_secs(12));
        assert_eq!(status(&pair, 0, LinkId::UDP).frame_len, 1472);
    }
}

// P3.12
#[test]
fn message_of_one_long_frame_is_refragmented_not_announced() {
    let mut pair = Pair::new(&[LinkId::UDP], 8);
    for (rank, end) in [0, 1].into_iter().zip(&mut pair.ends) {
        let mut config = config(rank, 300);
        config.limits.eager_len_max = 1000;
        config.limits.eager_len_max_lossless = 1000;
        let jumbo = LinkParams {
            frame_len_max: 8972,
            ..params(false)
        };
        end.core = Core::new(config);
        end.core.add_link(LinkId::UDP, jumbo);
        end.core.allow(PeerId(1 - rank), &[LinkId::UDP]);
        end.core.open_port(PORT, PortMode::InPlace);
        end.provides_buffers = true;
    }
    pair.ends[0].core.connect(pair.now, B);
    pair.run(Duration::from_millis(50));
    assert_eq!(status(&pair, 0, LinkId::UDP).frame_len, 8972);
    pair.narrow = Some((LinkId::UDP, 1300));
    pair.ends[0].send(B, &LOW, &[7; 4001]).unwrap();
    pair.run(Duration::from_millis(900));
    assert_eq!(pair.ends[1].got.len(), 1);
    pair.assert_clean();
}

// P6.2
#[test]
fn forged_mtu_report_changes_nothing() {
    let mut pair = up(5);
    pair.ends[0].core.shrink_path(B, LinkId::UDP, 600);
    assert_eq!(status(&pair, 0, LinkId::UDP).frame_len, 1472);
    pair.run(Duration::from_secs(1));
    assert_eq!(status(&pair, 0, LinkId::UDP).frame_len, 1472);
}

// P6.2
#[test]
fn true_mtu_report_is_confirmed_without_traffic() {
    let mut pair = up(6);
    pair.narrow = Some((LinkId::UDP, 1000));
    pair.ends[0].core.shrink_path(B, LinkId::UDP, 1000);
    pair.run(Duration::from_millis(200));
    assert_eq!(status(&pair, 0, LinkId::UDP).frame_len, 1000);
}

// P5.1, P3.12
#[test]
fn transfer_announced_for_a_wider_path_uses_a_narrower_one() {
    let mut pair = up(7);
    pair.narrow = Some((LinkId::PACKET, 1496));
    // The state before UDP has verified its frame length: raw frames are longest.
    let peer = pair.ends[0].core.peer_mut(B);
    peer.paths_mut().set_bulk(LinkId::PACKET);
    pair.ends[0].send(B, &LOW, &[9; 400_000]).unwrap();
    pair.dead = Some(LinkId::PACKET);
    pair.run(Duration::from_millis(200));
    assert_eq!(pair.ends[1].got.len(), 1);
    assert_eq!(pair.ends[1].got[0].bytes, [9; 400_000]);
    pair.assert_clean();
}

const TWO: &[LinkId] = &[LinkId::UDP, LinkId::UDP2];

/// Returns the number of bulk frames that each of two networks has carried to the other end, if a
/// transfer of `len` bytes runs over both, with `disturb` after a part of it.
fn transfer_over_two(seed: u64, len: usize, disturb: impl FnOnce(&mut Pair)) -> [usize; 2] {
    let mut pair = Pair::new(TWO, seed);
    pair.run(Duration::from_millis(50));
    pair.ends[1].core.open_port(PORT, PortMode::InPlace);
    pair.ends[1].provides_buffers = true;
    for link in TWO {
        assert!(status(&pair, 0, *link).bulk, "{link}");
    }
    let bytes: alloc::vec::Vec<u8> = (0..len).map(|at| u8::try_from(at % 251).unwrap()).collect();
    pair.latency = Duration::from_micros(200);
    pair.ends[0].send(B, &LOW, &bytes).unwrap();
    pair.run(Duration::from_millis(1));
    assert!(pair.ends[1].got.is_empty(), "in progress");
    disturb(&mut pair);
    pair.run(Duration::from_millis(200));
    assert_eq!(pair.ends[1].got.len(), 1);
    assert!(pair.ends[1].got[0].bytes == bytes);
    pair.assert_clean();
    [LinkId::UDP, LinkId::UDP2].map(|link| pair.bulk_by_link[link.index()])
}

// P6.8
#[test]
fn two_networks_share_a_transfer() {
    for seed in 0..8 {
        let [first, second] = transfer_over_two(seed, 4_000_000, |_| {});
        let least = (first + second) / 3;
        assert!(first > least && second > least, "{first}, {second}");
    }
}

// P6.8
#[test]
fn slower_network_carries_less() {
    for seed in 0..4 {
        let slow = |pair: &mut Pair| pair.second_extra = Duration::from_millis(2);
        let [first, second] = transfer_over_two(seed, 8_000_000, slow);
        assert!(second > 0 && second < first / 2, "{first}, {second}");
    }
}

// P6.7, P6.8, P3.12
#[test]
fn network_may_fail_while_two_share_a_transfer() {
    for seed in 0..8 {
        for dead in TWO {
            let _ = transfer_over_two(seed, 4_000_000, |pair| pair.dead = Some(*dead));
        }
    }
}

// P6.7, P6.8
#[test]
fn mixed_traffic_arrives_over_two_networks() {
    for seed in 0..24 {
        let faults = Faults {
            drop: [0.0, 0.02][seed % 2],
            reorder: [0.0, 0.05][seed / 2 % 2],
            ..Faults::default()
        };
        let links = [TWO, &[LinkId::UDP, LinkId::PACKET, LinkId::UDP2]][seed % 2];
        disturbed_mixture(links, seed as u64, faults, seed % 3 == 0, |pair, turn| {
            pair.dead = match turn {
                2..250 => Some(LinkId::UDP2),
                600..850 => Some(LinkId::UDP),
                _ => None,
            };
        });
    }
}

/// Sends messages of both kinds that may use a stream, the second half after the first network has
/// failed if there is a second one. Returns the number of streams requested and of bytes by stream.
fn streamed(links: &[LinkId]) -> (usize, u64) {
    let mut pair = Pair::new(links, 9);
    for end in &mut pair.ends {
        end.core.shared_mut().ctx.limits_mut().stream = StreamUse::Auto;
        end.core.set_buffer_len(LinkId::STREAM, 4 << 20);
    }
    pair.run(Duration::from_millis(50));
    pair.ends[1].core.open_port(PORT, PortMode::InPlace);
    pair.ends[1].provides_buffers = true;
    // As if it had been opened before the second network was up.
    pair.open_stream();
    for round in 0..40 {
        pair.dead = (round >= 20 && links.len() > 1).then_some(LinkId::UDP);
        for len in [20_000, 400_000] {
            pair.ends[0].send(B, &LOW, &[7; 400_000][..len]).unwrap();
        }
        pair.run(Duration::from_millis(100));
    }
    assert_eq!(pair.ends[1].got.len(), 80);
    let bytes = pair.ends[1].core.counters().stream_bytes;
    (pair.ends[0].streams_wanted, bytes)
}

// P6.8, P15.1
#[test]
fn no_message_starts_on_a_stream_while_a_second_network_works() {
    assert!(streamed(&[LinkId::UDP]).1 > 0, "the trial uses the stream");
    assert_eq!(streamed(TWO), (0, 0));
}
