// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages that leave in a frame of their own, past the queues, arrive as all others do; and the way is
//! closed wherever something would be overtaken, or could not be recovered.

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
const HIGH: SendSpec = SendSpec {
    lane: LaneId::High,
    ..LOW
};

/// Longer than acknowledgements wait for company.
const SOON: Duration = Duration::from_millis(1);

fn up(links: &[LinkId], wants: [bool; 2]) -> Pair {
    let mut pair = Pair::checked(links, 7, wants);
    for end in &mut pair.ends {
        end.core.open_port(PORT, PortMode::InPlace);
    }
    pair.run(Duration::from_millis(100));
    pair
}

fn got(pair: &Pair, end: usize) -> Vec<&[u8]> {
    pair.ends[end].got.iter().map(|got| &got.bytes[..]).collect()
}

#[track_caller]
fn check_empty(pair: &Pair) {
    for end in &pair.ends {
        assert_eq!(end.core.usage(), (0, 0, 0));
        assert_eq!(end.core.left(), Left::Nothing);
    }
}

#[test]
fn lone_messages_arrive_and_their_acknowledgements_ride_on_the_answers() {
    for wants in [[false, false], [true, true]] {
        let mut pair = up(&[LinkId::UDP], wants);
        let (acks, frames) = (pair.lone_acks, pair.ends[0].core.counters().frames_sent);
        for round in 0..50_u8 {
            pair.send_lone(0, &LOW, &[round; 64]);
            pair.run(Duration::from_micros(10));
            pair.send_lone(1, &HIGH, &[round; 9]);
            pair.run(Duration::from_micros(10));
        }
        assert_eq!(pair.ends[0].core.counters().frames_sent, frames + 50);
        pair.run(SOON);
        assert_eq!(got(&pair, 1).len(), 50);
        assert_eq!(got(&pair, 0), (0..50).map(|byte| [byte; 9]).collect::<Vec<_>>());
        // Only the last one of end 1 was acknowledged by a frame without a message.
        assert_eq!(pair.lone_acks, acks + 1, "the harness takes those in front");
        assert_eq!(pair.summed > 0, wants[0], "sums that the core puts there");
        check_empty(&pair);
    }
}

#[test]
fn a_lone_message_whose_frame_is_lost_is_sent_again() {
    for wants in [[false, false], [true, true]] {
        let mut pair = up(&[LinkId::UDP], wants);
        pair.faults.drop = 1.0;
        pair.send_lone(0, &LOW, b"first");
        pair.faults.drop = 0.0;
        assert_eq!(pair.ends[0].core.left(), Left::Unacknowledged);
        pair.run(Duration::from_millis(100));
        assert_eq!(got(&pair, 1), [b"first"]);
        assert_eq!(pair.ends[0].core.counters().retransmits, 1);
        check_empty(&pair);
    }
}

/// With losses, copies and reordering on the way, in both directions, each arrives once and in order.
#[test]
fn lone_messages_over_a_bad_wire_arrive_once_and_in_order() {
    let mut pair = up(&[LinkId::UDP, LinkId::PACKET], [true, false]);
    pair.faults = Faults {
        drop: 0.1,
        duplicate: 0.05,
        reorder: 0.1,
        corrupt: 0.0,
    };
    let mut lone = 0;
    for round in 0..400_u32 {
        for from in [0, 1] {
            let bytes = round.to_le_bytes();
            match pair.lone_frame(from, &LOW, &bytes) {
                Some((link, frame)) => {
                    lone += 1;
                    let frame = pair.take_sum(link, frame);
                    pair.put(1 - from, link, frame);
                }
                None => pair.ends[from].send([B, A][from], &LOW, &bytes).unwrap(),
            }
        }
        pair.run(Duration::from_micros(40));
    }
    pair.faults = Faults::default();
    pair.run(Duration::from_secs(2));
    assert!(lone > 200, "{lone} of 800 found the way open");
    let sent: Vec<_> = (0..400_u32).map(u32::to_le_bytes).collect();
    for end in [0, 1] {
        assert_eq!(got(&pair, end), sent, "end {end}");
    }
    check_empty(&pair);
}

#[test]
fn a_lone_frame_that_the_link_refused_leaves_later() {
    let mut pair = up(&[LinkId::UDP], [false, false]);
    assert!(pair.lone_frame(0, &LOW, b"refused").is_some());
    pair.ends[0].core.transmit_refused();
    assert!(!pair.ends[0].core.may_send_lone(B, &LOW, 7), "the link is full");
    pair.ends[0].core.link_ready(LinkId::UDP);
    pair.run(SOON);
    assert_eq!(got(&pair, 1), [b"refused"]);
    check_empty(&pair);
}

#[test]
fn the_way_is_closed_where_something_waits_or_does_not_fit() {
    let pair = Pair::new(&[LinkId::UDP], 3);
    assert!(!pair.ends[0].core.may_send_lone(B, &LOW, 8), "no session yet");
    let mut pair = up(&[LinkId::UDP], [false, false]);
    let core = &pair.ends[0].core;
    assert!(core.may_send_lone(B, &LOW, 1400));
    assert!(!core.may_send_lone(B, &LOW, 1472), "too long for a frame");
    let best_effort = SendSpec {
        best_effort: true,
        ..LOW
    };
    assert!(!core.may_send_lone(B, &best_effort, 8));
    // A message of either lane that waits for its frame would be overtaken, or share it.
    for spec in [LOW, HIGH] {
        pair.ends[0].send(B, &spec, b"waits").unwrap();
        assert!(!pair.ends[0].core.may_send_lone(B, &LOW, 8));
        pair.run(SOON);
        assert!(pair.ends[0].core.may_send_lone(B, &LOW, 8));
    }
    // Lossless links have a way of their own.
    let pair = up(&[LinkId::SHM], [false, false]);
    assert!(!pair.ends[0].core.may_send_lone(B, &LOW, 8));
}

#[test]
fn the_way_is_closed_while_the_window_is_full() {
    let mut pair = up(&[LinkId::UDP], [false, false]);
    pair.deaf = Some((1, LinkId::UDP));
    let mut sent = 0;
    while pair.ends[0].core.may_send_lone(B, &LOW, 8) {
        pair.send_lone(0, &LOW, &[7; 8]);
        sent += 1;
        assert!(sent <= 10_000, "there is a window");
    }
    let window = pair.ends[0].core.path_status(B, LinkId::UDP).unwrap();
    assert_eq!(window.inflight_count, sent);
    pair.deaf = None;
    pair.run(Duration::from_secs(2));
    assert_eq!(got(&pair, 1).len(), sent);
    check_empty(&pair);
}

/// One of two frames that are under way is acknowledged by the general rules.
#[test]
fn the_acknowledgement_of_one_of_two_frames_is_left_to_the_general_way() {
    let mut pair = up(&[LinkId::UDP], [false, false]);
    let acks = pair.lone_acks;
    pair.send_lone(0, &LOW, b"one");
    pair.send_lone(0, &LOW, b"two");
    pair.run(SOON);
    assert_eq!((got(&pair, 1).len(), pair.lone_acks), (2, acks));
    check_empty(&pair);
}
