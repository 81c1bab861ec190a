// SPDX-License-Identifier: MIT OR Apache-2.0
//! Quiet peers become dormant, and revive without a visible effect.

use super::pair::*;
use crate::*;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

const PORT: PortId = PortId::user(5);
const NETWORK: &[LinkId] = &[LinkId::UDP, LinkId::PACKET];
const LONG: Duration = Duration::from_secs(30);

fn spec(lane: LaneId, best_effort: bool) -> SendSpec {
    SendSpec {
        to: PORT.into(),
        lane,
        best_effort,
    }
}

fn pair() -> Pair {
    let mut pair = Pair::new(NETWORK, 1);
    for end in &mut pair.ends {
        end.core.open_port(PORT, PortMode::InPlace);
        end.provides_buffers = true;
    }
    pair.run(Duration::from_millis(100));
    pair
}

fn resting(pair: &Pair) -> [usize; 2] {
    [0, 1].map(|end| pair.ends[end].core.dormant_count())
}

/// Sends messages of every kind from one end, which the other must receive in order.
fn exchange(pair: &mut Pair, from: usize, round: u8) {
    let to = [B, A][from];
    for (lane, len) in [
        (LaneId::Low, 8),
        (LaneId::High, 100),
        (LaneId::Low, 20_000),
        (LaneId::Low, 200_000),
    ] {
        let bytes = vec![round; len];
        pair.ends[from]
            .send(to, &spec(lane, false), &bytes)
            .unwrap();
    }
    let best_effort = spec(LaneId::High, true);
    for len in [40, 9000] {
        let bytes = vec![round; len];
        pair.ends[from].send(to, &best_effort, &bytes).unwrap();
    }
    pair.run(LONG);
    let got: Vec<_> = pair.ends[1 - from].got.drain(..).collect();
    let lens = |lane| {
        let of_lane = got.iter().filter(move |one| one.lane == lane);
        of_lane.map(|one| one.bytes.len()).collect::<Vec<_>>()
    };
    assert_eq!(lens(LaneId::Low), [8, 20_000, 200_000]);
    assert_eq!(lens(LaneId::High), [100, 40, 9000]);
    assert!(
        got.iter()
            .all(|one| one.bytes.iter().all(|&byte| byte == round))
    );
}

#[test]
fn quiet_peers_become_dormant_and_resume() {
    let mut pair = pair();
    assert_eq!(resting(&pair), [0, 0]);
    for round in 0..40 {
        exchange(&mut pair, usize::from(round % 3 == 0), round);
        assert_eq!(resting(&pair), [1, 1], "round {round}");
        pair.assert_clean();
    }
    for end in &pair.ends {
        assert_eq!(end.core.counters().iter_drops().count(), 0);
        assert_eq!(end.core.counters().retransmits, 0);
        assert_eq!(end.core.counters().best_effort_lost, 0);
    }
}

#[test]
fn dormant_peer_reports_its_last_status() {
    let mut pair = pair();
    exchange(&mut pair, 0, 1);
    let core = &mut pair.ends[0].core;
    let view = |core: &Core| {
        (
            core.peer_status(B),
            LinkId::ALL.map(|link| core.path_status(B, link)),
            LaneId::ALL.map(|lane| core.credit(B, lane)),
            core.last_seen(B),
            core.session_ids(B),
        )
    };
    let asleep = view(core);
    assert_eq!(core.dormant_count(), 1);
    assert_eq!(asleep.0, PeerStatus::Up);
    assert!(asleep.4.is_some());
    core.connect(pair.now, B);
    assert_eq!(core.dormant_count(), 0);
    assert_eq!(view(core), asleep);
}

// P2.4
#[test]
fn restarted_dormant_peer_opens_a_new_session() {
    let mut pair = pair();
    exchange(&mut pair, 0, 1);
    let mut fresh = End::new(1, NETWORK, 300);
    fresh.core.open_port(PORT, PortMode::InPlace);
    fresh.provides_buffers = true;
    fresh.core.connect(pair.now, A);
    pair.ends[1] = fresh;
    pair.run(Duration::from_millis(100));
    let failed = |event: &Event| {
        matches!(
            event,
            Event::PeerFailed {
                peer: B,
                cause: Cause::Restarted,
                ..
            }
        )
    };
    assert!(pair.ends[0].failed.iter().any(failed));
    exchange(&mut pair, 0, 2);
}

// P2.3
#[test]
fn wrong_token_revives_no_peer() {
    let mut pair = pair();
    exchange(&mut pair, 0, 1);
    let mut frame = [0; 24];
    portolan_wire::FrameHeader {
        kind: portolan_wire::FrameKind::Data,
        attempt: 0,
        checked: false,
        frame_len: 24,
        packet_num: 0,
        session: 0xdead_0000_0001,
    }
    .emit(&mut frame);
    let core = &mut pair.ends[0].core;
    core.handle_frame(pair.now, LinkId::UDP, &frame);
    assert_eq!(core.counters().drops(DropReason::StaleSession), 1);
    assert_eq!(core.dormant_count(), 1);
}

#[test]
fn peer_with_unread_message_stays_active() {
    let mut pair = Pair::new(NETWORK, 1);
    pair.run(Duration::from_millis(100));
    pair.ends[1].core.open_port(PORT, PortMode::Posted);
    let low = spec(LaneId::Low, false);
    pair.ends[0].send(B, &low, b"unread").unwrap();
    pair.run(LONG);
    assert_eq!(resting(&pair), [1, 0]);
    pair.ends[1].post(PORT, 10, None);
    pair.run(LONG);
    assert_eq!(pair.ends[1].got.len(), 1);
    assert_eq!(resting(&pair), [1, 1]);
    pair.assert_clean();
}

#[test]
fn shared_memory_peer_stays_active() {
    let mut pair = Pair::new(&[LinkId::SHM], 1);
    pair.ends[1].core.open_port(PORT, PortMode::InPlace);
    pair.run(Duration::from_millis(100));
    pair.ends[0]
        .send(B, &spec(LaneId::Low, false), b"x")
        .unwrap();
    pair.run(LONG);
    assert_eq!(resting(&pair), [0, 0]);
}
