// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages arrive once, complete and in order, whatever the wire does.

use super::pair::*;
use crate::*;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

const PORT: PortId = PortId::user(5);
const OTHER: PortId = PortId::user(9);
const LOW: SendSpec = SendSpec {
    to: Address::Port(PORT),
    lane: LaneId::Low,
    best_effort: false,
};
const HIGH: SendSpec = SendSpec {
    to: Address::Port(PORT),
    lane: LaneId::High,
    best_effort: false,
};
const NETWORK: &[LinkId] = &[LinkId::UDP, LinkId::PACKET];

fn pattern(tag: u32, len: usize) -> Vec<u8> {
    (0..len)
        .map(|at| (at ^ tag.wrapping_mul(0x9e37_79b9) as usize >> 7).to_le_bytes()[0])
        .collect()
}

/// Sends messages of mixed lengths in both directions and on both lanes; checks order and content
/// per lane.
fn mixture(links: &[LinkId], seed: u64, faults: Faults, in_place: bool) -> Pair {
    disturbed_mixture(links, seed, faults, in_place, |_, _| {})
}

/// Sends and checks a mixture like [`mixture`], and calls `disturb` before each turn.
pub(super) fn disturbed_mixture(
    links: &[LinkId],
    seed: u64,
    faults: Faults,
    in_place: bool,
    disturb: impl Fn(&mut Pair, usize),
) -> Pair {
    let mut pair = Pair::new(links, seed);
    pair.faults = faults;
    pair.ends[1].core.connect(pair.now, A);
    let plan = draw_messages(seed);
    for rank in 0..2 {
        let mode = if in_place {
            PortMode::InPlace
        } else {
            PortMode::Posted
        };
        pair.ends[rank].core.open_port(PORT, mode);
        for _ in 0..60 {
            pair.ends[rank].post(PORT, 300_000, None);
        }
    }
    let mut next = [0; 2];
    for turn in 0..4000 {
        disturb(&mut pair, turn);
        for rank in 0..2 {
            while let Some((lane, bytes)) = plan[rank].get(next[rank]) {
                let to = PeerId(1 - u32::try_from(rank).unwrap());
                let spec = if *lane == LaneId::Low { LOW } else { HIGH };
                match pair.ends[rank].send(to, &spec, bytes) {
                    Ok(()) => next[rank] += 1,
                    Err(Refused::Busy | Refused::NotUp) => break,
                    Err(refused) => panic!("{refused:?}"),
                }
            }
        }
        let end = pair.now + Duration::from_micros(300);
        pair.run(Duration::from_micros(300));
        // Time passes even if nothing happens.
        pair.now = pair.now.max(end);
        if (0..2).all(|rank| next[rank] == 60 && pair.ends[rank].got.len() == 60) {
            break;
        }
    }
    pair.run(Duration::from_secs(2));
    check_messages(&pair, &plan, seed);
    pair
}

/// Returns the messages of each side: 60 of all lengths, on both lanes.
fn draw_messages(seed: u64) -> [Vec<(LaneId, Vec<u8>)>; 2] {
    let mut rng = ChaCha8Rng::seed_from_u64(seed ^ 0xabcd);
    let lens = [
        0, 1, 8, 64, 1000, 1470, 1500, 5000, 30_000, 40_000, 65_536, 65_537, 300_000,
    ];
    let mut plan: [Vec<_>; 2] = Default::default();
    for side in &mut plan {
        for tag in 0..60 {
            let lane = if rng.random_bool(0.3) {
                LaneId::High
            } else {
                LaneId::Low
            };
            side.push((lane, pattern(tag, lens[rng.random_range(0..lens.len())])));
        }
    }
    plan
}

/// Checks that each lane received all messages in order, and that all sends succeeded.
fn check_messages(pair: &Pair, plan: &[Vec<(LaneId, Vec<u8>)>; 2], seed: u64) {
    for rank in 0..2 {
        for lane in LaneId::ALL {
            let sent: Vec<_> = plan[1 - rank]
                .iter()
                .filter(|(l, _)| *l == lane)
                .map(|(_, b)| b)
                .collect();
            let got: Vec<_> = pair.ends[rank]
                .got
                .iter()
                .filter(|g| g.lane == lane)
                .map(|g| &g.bytes)
                .collect();
            assert_eq!(got.len(), sent.len(), "seed {seed} rank {rank} {lane:?}");
            assert!(
                got == sent,
                "seed {seed} rank {rank} {lane:?}: content or order"
            );
        }
        assert!(pair.ends[rank].sent.values().all(Result::is_ok));
    }
}

// P4.1, P4.5, P5.3, P5.7
#[test]
fn mixed_traffic_arrives_over_a_clean_network() {
    let pair = mixture(NETWORK, 1, Faults::default(), false);
    for end in &pair.ends {
        assert_eq!(end.core.counters().retransmits, 0);
        assert_eq!(end.core.counters().iter_drops().count(), 0);
    }
}

// P8.1, P8.2, P8.3, P8.4
#[test]
fn mixed_traffic_arrives_over_shared_memory() {
    let pair = mixture(&[LinkId::SHM], 2, Faults::default(), false);
    pair.assert_clean();
}

// P3.1, P3.2, P3.8, P3.9, P4.1
#[test]
fn mixed_traffic_arrives_over_lossy_networks() {
    for seed in 0..30 {
        let loss = [0.01, 0.05, 0.2][usize::try_from(seed).unwrap() % 3];
        let faults = Faults {
            drop: loss,
            duplicate: 0.05,
            reorder: 0.1,
            corrupt: 0.0,
        };
        let links = if seed % 2 == 0 {
            NETWORK
        } else {
            &[LinkId::UDP]
        };
        mixture(links, seed, faults, false);
    }
}

#[test]
fn mixed_lossy_traffic_leaks_nothing() {
    let faults = Faults {
        drop: 0.05,
        duplicate: 0.05,
        reorder: 0.1,
        corrupt: 0.0,
    };
    mixture(NETWORK, 77, faults, false).assert_clean();
}

// P4.7, P5.2
#[test]
fn messages_without_a_buffer_wait_and_keep_their_order() {
    let mut pair = Pair::new(NETWORK, 3);
    pair.run(Duration::from_millis(5));
    for tag in 0..20 {
        pair.ends[0]
            .send(
                B,
                &LOW,
                &pattern(tag, if tag % 5 == 4 { 70_000 } else { 100 }),
            )
            .unwrap();
    }
    pair.run(Duration::from_millis(5));
    assert_eq!(pair.ends[1].got.len(), 0);
    for _ in 0..20 {
        pair.ends[1].post(PORT, 70_000, None);
    }
    pair.run(Duration::from_millis(50));
    let lens: Vec<_> = pair.ends[1].got.iter().map(|got| got.bytes.len()).collect();
    let recv: Vec<_> = (0..20)
        .map(|tag| if tag % 5 == 4 { 70_000 } else { 100 })
        .collect();
    assert_eq!(lens, recv);
    pair.assert_clean();
}

// P4.3, P4.4
#[test]
fn late_buffer_does_not_reorder_message_and_transfer() {
    let mut pair = Pair::new(NETWORK, 10);
    pair.run(Duration::from_millis(5));
    pair.ends[1].post(PORT, 300_000, None);
    let (long, short) = (pattern(1, 300_000), pattern(2, 100));
    pair.ends[0].send(B, &LOW, &long).unwrap();
    pair.ends[0].send(B, &LOW, &short).unwrap();
    // Long enough for the short message and for the request of the long one, not for its bytes.
    pair.run(Duration::from_micros(8));
    assert_eq!(pair.ends[1].got.len(), 0);
    pair.ends[1].post(PORT, 100, None);
    pair.run(Duration::from_millis(50));
    let lens: Vec<_> = pair.ends[1].got.iter().map(|got| got.bytes.len()).collect();
    assert_eq!(lens, [300_000, 100]);
    pair.assert_clean();
}

// P9.9
#[test]
fn first_message_to_unopened_port_is_reported_once() {
    for len in [10, 70_000] {
        let mut pair = Pair::new(NETWORK, 12);
        pair.run(Duration::from_millis(50));
        for index in 0..3 {
            pair.ends[0].send(B, &LOW, &pattern(index, len)).unwrap();
        }
        pair.run(Duration::from_millis(50));
        assert_eq!(pair.ends[1].unopened, [(PORT, PeerId(0))]);
        pair.ends[1].core.open_port(PORT, PortMode::InPlace);
        pair.ends[1].provides_buffers = true;
        pair.run(Duration::from_millis(50));
        assert_eq!(pair.ends[1].unopened.len(), 1);
    }
}

#[test]
fn message_to_open_port_is_not_reported() {
    let mut pair = Pair::new(NETWORK, 13);
    pair.ends[1].core.open_port(PORT, PortMode::Posted);
    pair.run(Duration::from_millis(50));
    pair.ends[0].send(B, &LOW, b"early").unwrap();
    pair.run(Duration::from_millis(50));
    assert_eq!(pair.ends[1].unopened, []);
}

#[test]
fn reserved_buffer_is_not_given_to_another_message() {
    let mut pair = Pair::new(NETWORK, 11);
    pair.run(Duration::from_millis(50));
    pair.ends[1].core.open_port(PORT, PortMode::InPlace);
    pair.ends[1].provides_buffers = true;
    // The second of the low lane waits for the first; meanwhile the high lane's may arrive.
    pair.ends[0].send(B, &LOW, &pattern(1, 2_000_000)).unwrap();
    pair.ends[0].send(B, &LOW, &pattern(2, 70_000)).unwrap();
    pair.run(Duration::from_micros(20));
    pair.ends[0].send(B, &HIGH, &pattern(3, 70_000)).unwrap();
    pair.run(Duration::from_millis(50));
    assert_eq!(pair.ends[1].got.len(), 3);
    assert!(pair.ends[1].got.iter().all(|got| got.error.is_none()));
    pair.assert_clean();
}

#[test]
fn credit_bounds_held_messages_and_returns() {
    let mut pair = Pair::new(NETWORK, 4);
    pair.run(Duration::from_millis(5));
    let mut accepted = 0;
    for _ in 0..200 {
        while pair.ends[0].send(B, &LOW, &[1; 1000]).is_ok() {
            accepted += 1;
        }
        pair.run(Duration::from_micros(100));
    }
    // All credit, at 1032 bytes each.
    assert_eq!(accepted, 508);
    let (_, held_len, _) = pair.ends[1].core.usage();
    // Sixteen per chunk, four bytes for the length of each, and a place in the queue of the port.
    assert_eq!(held_len, 32 * 16 * (1024 + 4) + 508 * 48);
    for _ in 0..508 {
        pair.ends[1].post(PORT, 1000, None);
    }
    pair.run(Duration::from_millis(5));
    assert_eq!(pair.ends[1].got.len(), 508);
    assert!(pair.ends[0].send(B, &LOW, &[1; 1000]).is_ok());
}

// P4.2
#[test]
fn high_lane_passes_a_blocked_low_lane() {
    let mut pair = Pair::new(NETWORK, 5);
    pair.run(Duration::from_millis(5));
    while pair.ends[0].send(B, &LOW, &[1; 1000]).is_ok() {
        pair.run(Duration::from_micros(50));
    }
    pair.ends[1]
        .core
        .open_port(PortId::user(6), PortMode::InPlace);
    let spec = SendSpec {
        to: Address::Port(PortId::user(6)),
        lane: LaneId::High,
        best_effort: false,
    };
    pair.ends[0].send(B, &spec, b"urgent").unwrap();
    pair.run(Duration::from_millis(1));
    assert_eq!(pair.ends[1].got.len(), 1);
    assert_eq!(pair.ends[1].got[0].bytes, b"urgent");
}

// P4.6
#[test]
fn ready_small_messages_share_a_frame() {
    let mut pair = Pair::new(NETWORK, 6);
    pair.run(Duration::from_millis(5));
    let before = pair.ends[0].core.counters().frames_sent;
    pair.ends[1].core.open_port(PORT, PortMode::InPlace);
    for _ in 0..80 {
        pair.ends[0].send(B, &LOW, &[2; 8]).unwrap();
    }
    pair.run(Duration::from_millis(1));
    assert_eq!(pair.ends[1].got.len(), 80);
    assert_eq!(pair.ends[0].core.counters().frames_sent - before, 1);
}

// P4.9
#[test]
fn long_message_is_truncated_to_its_buffer_with_an_error() {
    for len in [100usize, 5000, 100_000] {
        let mut pair = Pair::new(NETWORK, 7);
        pair.run(Duration::from_millis(5));
        pair.ends[1].post(PORT, 60, None);
        let bytes = pattern(1, len);
        pair.ends[0].send(B, &LOW, &bytes).unwrap();
        pair.run(Duration::from_millis(20));
        let got = &pair.ends[1].got[0];
        assert_eq!(
            got.error,
            Some(OpError::Truncated {
                message_len: len as u64
            })
        );
        assert_eq!(got.bytes[..60.min(got.bytes.len())], bytes[..60]);
        pair.assert_clean();
    }
}

// P7.1, P7.2, P7.4
#[test]
fn lost_best_effort_is_counted_not_retransmitted() {
    let mut pair = Pair::new(NETWORK, 8);
    pair.run(Duration::from_millis(5));
    pair.ends[1].core.open_port(PORT, PortMode::InPlace);
    pair.faults.drop = 0.2;
    let spec = SendSpec {
        best_effort: true,
        ..LOW
    };
    for _ in 0..500 {
        pair.ends[0].send(B, &spec, &[3; 32]).unwrap();
        pair.run(Duration::from_micros(50));
    }
    pair.faults.drop = 0.0;
    pair.ends[0].send(B, &spec, &[3; 32]).unwrap();
    pair.run(Duration::from_millis(1));
    let (got, lost) = (
        pair.ends[1].got.len() as u64,
        pair.ends[1].core.counters().best_effort_lost,
    );
    assert_eq!(got + lost, 501);
    assert!((50..200).contains(&lost), "{lost}");
    assert_eq!(pair.ends[0].core.counters().retransmits, 0);
}

#[test]
fn duplicated_best_effort_message_arrives_once() {
    let mut pair = Pair::new(NETWORK, 12);
    pair.run(Duration::from_millis(5));
    pair.ends[1].core.open_port(PORT, PortMode::InPlace);
    pair.faults.duplicate = 0.5;
    let spec = SendSpec {
        best_effort: true,
        ..LOW
    };
    for _ in 0..100 {
        pair.ends[0].send(B, &spec, &[3; 32]).unwrap();
        pair.run(Duration::from_micros(50));
    }
    assert_eq!(pair.ends[1].got.len(), 100);
    assert!(pair.ends[1].core.counters().drops(DropReason::Duplicate) > 10);
}

#[test]
fn open_frame_keeps_its_length_when_the_path_grows() {
    let mut pair = Pair::new(NETWORK, 13);
    pair.run(Duration::from_millis(5));
    pair.ends[1].core.open_port(PORT, PortMode::InPlace);
    for link in pair.ends[0].core.shared_mut().ctx.links_mut() {
        link.frame_len_max = 8972;
    }
    let path = |pair: &mut Pair, frame_len| {
        let peer = pair.ends[0].core.peer_mut(B);
        for path in peer.paths_mut().iter_mut() {
            path.set_frame_len(frame_len);
        }
    };
    path(&mut pair, 1200);
    pair.ends[0].send(B, &LOW, &[1; 500]).unwrap();
    path(&mut pair, 8972);
    // The shortcut into an open frame is limited by the buffer as well.
    assert!(
        pair.ends[0]
            .core
            .append(B, &LOW, [&[1; 2000], &[]])
            .is_none()
    );
    for len in [500, 2000, 500] {
        pair.ends[0].send(B, &LOW, &pattern(7, len)).unwrap();
    }
    pair.run(Duration::from_millis(5));
    let lens: Vec<_> = pair.ends[1].got.iter().map(|got| got.bytes.len()).collect();
    assert_eq!(lens, [500, 500, 2000, 500]);
}

#[test]
fn shortcut_declines_a_message_longer_than_its_buffer() {
    let mut pair = Pair::new(&[LinkId::SHM], 14);
    pair.ends[1].core.connect(pair.now, A);
    pair.run(Duration::from_millis(1));
    pair.ends[1].post(PORT, 100, Some(B));
    pair.ends[1].post(PORT, 10, Some(A));
    let direct = pair.ends[0].core.direct::<8>(B, &LOW, 50).unwrap();
    let frame = [&direct[..], &[7; 50]].concat();
    let core = &mut pair.ends[1].core;
    let mut admitted = core
        .admit_lossless(pair.now, LinkId::SHM, A, frame.len())
        .unwrap();
    assert!(core.take_message(&mut admitted, &frame, None).is_none());
}

/// `P7.3` drops a message without a buffer. A waiting receive is a buffer, even if it is not
/// posted.
#[test]
fn waiting_receive_takes_a_best_effort_message_once() {
    let mut pair = Pair::new(&[LinkId::SHM], 16);
    pair.ends[1].core.connect(pair.now, A);
    pair.run(Duration::from_millis(1));
    pair.ends[1].core.open_port(PORT, PortMode::Posted);
    let spec = SendSpec {
        best_effort: true,
        ..LOW
    };
    pair.ends[0].send(B, &spec, &[7; 50]).unwrap();
    let frame = match pair.ends[0].core.poll_transmit(pair.now) {
        Some(Transmit::Frame { bytes, .. }) => bytes.to_vec(),
        other => panic!("{other:?}"),
    };
    let (now, core) = (pair.now, &mut pair.ends[1].core);
    let mut take = |len: usize| {
        let filter = RecvFilter::Port(PORT, None);
        let recv = WaitingRecv { filter, len };
        let frame_len = frame.len();
        let admitted = core.admit_lossless(now, LinkId::SHM, A, frame_len);
        core.take_message(&mut admitted.unwrap(), &frame, Some(&recv))
    };
    assert!(take(49).is_none());
    let message = take(50).unwrap();
    assert_eq!(message.dest, MessageDest::Waiting);
    assert_eq!(frame[message.off..][..message.len], [7; 50]);
    // Duplicate made by the network.
    assert!(take(50).is_none());
    assert_eq!(pair.ends[1].core.counters().messages_received, 1);
    assert_eq!(pair.ends[1].core.counters().best_effort_lost, 0);
}

#[test]
fn sender_refused_for_lack_of_frames_becomes_writable() {
    let mut pair = Pair::new(&[LinkId::UDP], 15);
    pair.run(Duration::from_millis(50));
    pair.ends[1].core.open_port(PORT, PortMode::InPlace);
    let spec = SendSpec {
        best_effort: true,
        ..LOW
    };
    while pair.ends[0].send(B, &spec, &[1; 1000]).is_ok() {}
    // No frame returns that could report it: best effort is not acknowledged.
    while pair.ends[0].core.poll_transmit(pair.now).is_some() {}
    assert!(pair.ends[0].core.poll_timeout() <= pair.now);
    assert_eq!(pair.ends[0].core.poll_event(), Some(Event::Writable(B)));
    assert!(pair.ends[0].send(B, &spec, &[1; 1000]).is_ok());
}

#[test]
fn receives_name_their_source() {
    let mut pair = Pair::new(NETWORK, 9);
    pair.run(Duration::from_millis(5));
    pair.ends[1].post(PORT, 10, Some(B));
    let op = pair.ends[1].post(PORT, 10, Some(A));
    pair.ends[0].send(B, &LOW, b"x").unwrap();
    pair.run(Duration::from_millis(1));
    assert_eq!(pair.ends[1].got.len(), 1);
    assert!(!pair.ends[1].memory.contains_key(&op.0));
    assert_eq!(pair.ends[1].memory.len(), 1);
}

// P9.7
#[test]
fn received_messages_outlive_their_sender() {
    for links in [&[LinkId::SHM][..], &[LinkId::UDP]] {
        let mut pair = Pair::new(links, 21);
        pair.run(Duration::from_millis(20));
        // One waits without a buffer, one is cut into fragments, and one requests a buffer in vain.
        // The message after it at its port must not take its place.
        for len in [10, 5000] {
            pair.ends[0].send(B, &LOW, &pattern(1, len)).unwrap();
        }
        let other = SendSpec {
            to: Address::Port(OTHER),
            ..LOW
        };
        pair.ends[0].send(B, &other, &pattern(2, 70_000)).unwrap();
        pair.ends[0].send(B, &other, &pattern(3, 20)).unwrap();
        pair.ends[0].send(B, &LOW, &pattern(4, 30)).unwrap();
        pair.run(Duration::from_millis(20));
        let cause = Cause::ProcessExited;
        pair.ends[1].core.fail_peer(A, cause);
        pair.run(Duration::from_millis(1));
        assert_eq!(pair.ends[1].core.unread(A), [(PORT, LOW.lane, 3)]);
        for source in [Some(A), None, Some(A)] {
            pair.ends[1].post(PORT, 5000, source);
        }
        let late = [PORT, OTHER].map(|port| pair.ends[1].post(port, 5000, Some(A)));
        pair.run(Duration::from_millis(1));
        let got: Vec<_> = pair.ends[1]
            .got
            .iter()
            .map(|got| got.bytes.clone())
            .collect();
        assert_eq!(got, [pattern(1, 10), pattern(1, 5000), pattern(4, 30)]);
        let error = OpError::PeerFailed(A, cause);
        for op in late {
            let failed = Event::RecvFailed { op, error };
            assert!(
                pair.ends[1].failed.contains(&failed),
                "{:?}",
                pair.ends[1].failed
            );
        }
        assert!(pair.ends[1].memory.is_empty());
        assert_eq!(pair.ends[1].core.usage(), (0, 0, 0));
    }
}

// P9.7: an acknowledged message is kept, even if other messages have filled memory since.
#[test]
fn acknowledged_messages_outlive_their_sender_when_memory_is_full() {
    for links in [&[LinkId::SHM][..], &[LinkId::UDP]] {
        let mut pair = Pair::new(links, 24);
        pair.run(Duration::from_millis(20));
        let match_bits = MatchBits {
            space: Space::Tagged,
            tag: 1,
            imm: None,
        };
        let tagged = SendSpec {
            to: Address::MatchBits(match_bits),
            ..LOW
        };
        pair.ends[0].send(B, &LOW, &pattern(1, 5000)).unwrap();
        pair.ends[0].send(B, &tagged, &pattern(2, 300)).unwrap();
        pair.run(Duration::from_millis(20));
        assert!(!pair.ends[0].core.has_unfinished());
        pair.ends[1].core.shared_mut().ctx.limits_mut().held_len_max = 1000;
        pair.ends[1].core.fail_peer(A, Cause::ProcessExited);
        pair.ends[1].post(PORT, 5000, None);
        let any = Selector {
            space: Space::Tagged,
            tag: 1,
            ignore: 0,
            source: Some(A),
        };
        pair.ends[1].post_tagged(&any, 300);
        pair.run(Duration::from_millis(1));
        assert_eq!(pair.ends[1].got[0].bytes, pattern(1, 5000));
        assert_eq!(pair.ends[1].got_tagged[0].bytes, pattern(2, 300));
        assert_eq!(pair.ends[1].core.usage(), (0, 0, 0));
    }
}

// P3.10: unread messages of ended sessions cannot grow without bound.
#[test]
fn restarting_peers_use_at_most_twice_the_memory() {
    let mut pair = Pair::new(&[LinkId::UDP], 25);
    pair.run(Duration::from_millis(20));
    let limit = 100_000;
    pair.ends[1].core.shared_mut().ctx.limits_mut().held_len_max = limit;
    let mut accepted = 0;
    for _ in 0..40 {
        for _ in 0..30 {
            accepted += usize::from(pair.ends[0].send(B, &LOW, &pattern(1, 1000)).is_ok());
        }
        pair.run(Duration::from_millis(20));
        pair.ends[0].core.fail_peer(B, Cause::Silent(LinkId::UDP));
        pair.ends[0].core.connect(pair.now, B);
        pair.run(Duration::from_millis(50));
    }
    let held = pair.ends[1].core.usage().1;
    // Additional memory that a session may leave behind: its reserve, and a frame.
    let beside = 30_000;
    assert!((limit..2 * limit + beside).contains(&held), "{held}");
    let unread = pair.ends[1].core.unread(A);
    let [(PORT, LaneId::Low, count)] = unread[..] else {
        panic!("{unread:?}");
    };
    assert!(count < accepted, "{count} of {accepted}");
    // The rest is not lost but delayed: there is room again as soon as the program reads.
    for _ in 0..count {
        pair.ends[1].post(PORT, 1000, None);
    }
    pair.ends[0].send(B, &LOW, &pattern(2, 1000)).unwrap();
    pair.run(Duration::from_secs(1));
    assert_eq!(pair.ends[1].got.len(), count);
    pair.ends[1].post(PORT, 1000, None);
    pair.run(Duration::from_secs(1));
    assert_eq!(pair.ends[1].got[count].bytes, pattern(2, 1000));
    pair.assert_clean();
}

// P9.7
#[test]
fn matched_message_behind_a_lost_transfer_is_delivered() {
    let mut pair = Pair::new(&[LinkId::UDP], 22);
    pair.run(Duration::from_millis(20));
    let other = SendSpec {
        to: Address::Port(OTHER),
        ..LOW
    };
    let lost = pair.ends[1].post(OTHER, 1_000_000, None);
    pair.ends[1].post(PORT, 100, Some(A));
    let unfilled = pair.ends[1].post(PORT, 100, Some(A));
    pair.ends[0]
        .send_rendezvous(B, &other, &pattern(1, 1_000_000))
        .unwrap();
    pair.ends[0].send(B, &LOW, &pattern(2, 100)).unwrap();
    // The request has arrived with the message after it, but the first fragment has not.
    pair.run(Duration::from_micros(7));
    assert_eq!(pair.ends[1].got.len(), 0, "its turn has not come");
    assert_eq!(pair.ends[1].core.usage().2, 1);
    let cause = Cause::ProcessExited;
    pair.ends[1].core.fail_peer(A, cause);
    pair.run(Duration::from_micros(1));
    assert_eq!(pair.ends[1].got.len(), 1);
    assert_eq!(pair.ends[1].got[0].bytes, pattern(2, 100));
    let error = OpError::PeerFailed(A, cause);
    for op in [lost, unfilled] {
        assert!(
            pair.ends[1]
                .failed
                .contains(&Event::RecvFailed { op, error })
        );
    }
    assert_eq!(pair.ends[1].core.usage(), (0, 0, 0));
}

// P9.7: the next session's messages follow the leftovers of the last one.
#[test]
fn new_session_does_not_overtake_old_messages() {
    let mut pair = Pair::new(&[LinkId::UDP], 23);
    pair.run(Duration::from_millis(20));
    pair.ends[0].send(B, &LOW, b"old").unwrap();
    pair.run(Duration::from_millis(20));
    pair.ends[0].core.fail_peer(B, Cause::Silent(LinkId::UDP));
    pair.ends[0].core.connect(pair.now, B);
    pair.run(Duration::from_millis(50));
    pair.ends[0].send(B, &LOW, b"new").unwrap();
    pair.run(Duration::from_millis(20));
    for _ in 0..2 {
        pair.ends[1].post(PORT, 10, Some(A));
    }
    pair.run(Duration::from_millis(20));
    let got: Vec<_> = pair.ends[1].got.iter().map(|got| &got.bytes[..]).collect();
    assert_eq!(got, [b"old", b"new"]);
    let credit = pair.ends[1].core.credit(A, LOW.lane).unwrap();
    assert_eq!(
        credit.consumed, 35,
        "credit of one session does not return in the next"
    );
    pair.assert_clean();
}

/// Returns two ends connected by a ring, and parameters for messages to the first port.
fn ring_pair() -> (Pair, SendSpec) {
    let mut pair = Pair::new(&[LinkId::SHM], 3);
    pair.run(Duration::from_millis(10));
    let spec = SendSpec {
        to: PortId::user(1).into(),
        lane: LaneId::Low,
        best_effort: false,
    };
    (pair, spec)
}

// P4.13
#[test]
fn multipart_copy_arrives_by_ring_before_it_is_requested() {
    let (mut pair, spec) = ring_pair();
    for len in [16 * 1024 + 1, 40_000, 64 * 1024] {
        let bytes: Vec<u8> = (0..=250).cycle().take(len).collect();
        let core = &mut pair.ends[0].core;
        core.eager_in_parts(B, &spec, &bytes).unwrap();
        pair.run(Duration::from_millis(10));
        assert_eq!(pair.ends[0].core.unfinished_peers().count(), 0);
        assert_eq!(pair.ends[0].core.unfinished_transfers().count(), 0);
        pair.ends[1].post(PortId::user(1), len, None);
        pair.run(Duration::from_millis(10));
        assert!(pair.ends[1].got.pop().unwrap().bytes == bytes);
    }
    let core = &mut pair.ends[0].core;
    let longer = vec![0; 64 * 1024 + 1];
    let refused = core.eager_in_parts(B, &spec, &longer);
    assert_eq!(refused, Err(Refused::TooLong));
    pair.assert_clean();
}

/// A choice that forces rendezvous does not shorten the parts where rendezvous is not allowed.
#[test]
fn multipart_copy_uses_few_parts_under_rendezvous() {
    let (mut pair, spec) = ring_pair();
    let core = &mut pair.ends[0].core;
    core.choose(Choice {
        eager_len_max_lossless: 0,
        ..Choice::default()
    });
    let before = core.counters().frames_sent;
    core.eager_in_parts(B, &spec, &[7; 40_000]).unwrap();
    pair.run(Duration::from_millis(10));
    let sent = pair.ends[0].core.counters().frames_sent - before;
    assert_eq!(sent, 3, "16 KiB, 16 KiB, and the rest");
    pair.ends[1].post(PortId::user(1), 40_000, None);
    pair.run(Duration::from_millis(10));
    assert!(pair.ends[1].got.pop().unwrap().bytes == [7; 40_000]);
    pair.assert_clean();
}
