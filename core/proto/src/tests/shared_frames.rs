// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages of a shared frame, taken one by one.

use super::pair::*;
use crate::*;
use alloc::vec::Vec;
use core::time::Duration;
use portolan_wire::{CHECK_LEN, CheckedFrame};

const PORT: PortId = PortId::user(5);
const LOW: SendSpec = SendSpec {
    to: Address::Port(PORT),
    lane: LaneId::Low,
    best_effort: false,
};

/// Returns the next frame of the first end, without its checksum.
fn next_frame(pair: &mut Pair) -> Vec<u8> {
    match pair.ends[0].core.poll_transmit(pair.now) {
        Some(Transmit::Frame { bytes, .. }) if CheckedFrame::has_sum(bytes) => {
            bytes[CHECK_LEN..].to_vec()
        }
        Some(Transmit::Frame { bytes, .. }) => bytes.to_vec(),
        other => panic!("{other:?}"),
    }
}

/// Returns a frame of four messages of 9 bytes, from 1 to 4, to a second end that takes them in
/// place, except the third.
fn frame_to_two_ports() -> (Pair, Vec<u8>) {
    let mut pair = Pair::new(&[LinkId::UDP], 15);
    pair.ends[1].core.connect(pair.now, A);
    pair.run(Duration::from_millis(5));
    let other = PortId::user(PORT.number + 1);
    pair.ends[1].core.open_port(PORT, PortMode::InPlace);
    pair.ends[1].core.open_port(other, PortMode::Posted);
    let to_other = SendSpec {
        to: other.into(),
        ..LOW
    };
    for (spec, byte) in [(&LOW, 1), (&LOW, 2), (&to_other, 3), (&LOW, 4)] {
        pair.ends[0].send(B, spec, &[byte; 9]).unwrap();
    }
    let frame = next_frame(&mut pair);
    (pair, frame)
}

#[test]
fn messages_in_place_are_taken_one_by_one_from_a_shared_frame() {
    let (mut pair, frame) = frame_to_two_ports();
    let core = &mut pair.ends[1].core;
    let mut admitted = core.admit(pair.now, LinkId::UDP, &frame).unwrap();
    for byte in [1, 2] {
        let (port, payload) = core.take_in_place(&mut admitted, &frame).unwrap();
        assert_eq!((port, &frame[payload]), (PORT.number, &[byte; 9][..]));
    }
    // The message to the other port waits for a receive.
    assert!(core.take_in_place(&mut admitted, &frame).is_none());
    let held = core.take_message(&mut admitted, &frame, None).unwrap();
    assert_eq!(held.dest, MessageDest::Held);
    let (_, payload) = core.take_in_place(&mut admitted, &frame).unwrap();
    assert_eq!(frame[payload], [4; 9]);
    assert!(admitted.is_done() && !admitted.has_only(&frame, PORT));
    // A duplicate of the frame has nothing to take.
    assert!(core.admit(pair.now, LinkId::UDP, &frame).is_none());
}

#[test]
fn messages_in_place_are_passed_together() {
    let (mut pair, frame) = frame_to_two_ports();
    let core = &mut pair.ends[1].core;
    let mut admitted = core.admit(pair.now, LinkId::UDP, &frame).unwrap();
    let mut passed = Vec::new();
    let mut pass = |port, bytes: &[u8]| passed.push((port, bytes.to_vec()));
    assert_eq!(core.pass_in_place(&mut admitted, &frame, &mut pass), 2);
    // The message to the other port waits for a receive.
    assert_eq!(core.pass_in_place(&mut admitted, &frame, &mut pass), 0);
    assert!(core.take_message(&mut admitted, &frame, None).is_some());
    assert_eq!(core.pass_in_place(&mut admitted, &frame, &mut pass), 1);
    assert!(admitted.is_done());
    let expected = [1, 2, 4].map(|byte| (PORT.number, Vec::from([byte; 9])));
    assert_eq!(passed, expected);
    assert_eq!(core.counters().messages_received, 3);
    assert_eq!(core.counters().bytes_received, 27);
}

// P4.4
#[test]
fn credit_of_messages_passed_together_returns_to_the_peer() {
    let mut pair = Pair::new(&[LinkId::UDP], 16);
    pair.ends[1].core.connect(pair.now, A);
    pair.run(Duration::from_millis(5));
    pair.ends[1].core.open_port(PORT, PortMode::InPlace);
    let (mut sent_count, mut passed_count) = (0, 0);
    // Many times the credit of a lane.
    for round in 0..4_000_u32 {
        let mut sent = 0;
        while sent < 8 && pair.ends[0].send(B, &LOW, &round.to_le_bytes()).is_ok() {
            sent += 1;
        }
        assert!(sent > 0, "round {round}: no credit");
        sent_count += sent;
        while let Some(Transmit::Frame { bytes, .. }) = pair.ends[0].core.poll_transmit(pair.now) {
            let frame = bytes.to_vec();
            let core = &mut pair.ends[1].core;
            let frame = match CheckedFrame::has_sum(&frame) {
                true => &frame[CHECK_LEN..],
                false => &frame[..],
            };
            let Some(mut admitted) = core.admit(pair.now, LinkId::UDP, frame) else {
                continue;
            };
            passed_count += core.pass_in_place(&mut admitted, frame, |_, bytes| {
                assert_eq!(bytes, round.to_le_bytes());
            });
            core.handle_rest(pair.now, &admitted, frame);
        }
        pair.run(Duration::from_micros(50));
    }
    assert_eq!(passed_count, sent_count);
}

#[test]
fn frame_with_other_records_does_not_have_only_messages() {
    let other = SendSpec {
        to: PortId::user(PORT.number + 1).into(),
        ..LOW
    };
    let best_effort = SendSpec {
        best_effort: true,
        ..LOW
    };
    for (behind, expected) in [
        (None, true),
        (Some(&LOW), true),
        (Some(&other), false),
        (Some(&best_effort), false),
    ] {
        let mut pair = Pair::new(&[LinkId::UDP], 16);
        pair.ends[1].core.connect(pair.now, A);
        pair.run(Duration::from_millis(5));
        for spec in [&LOW, &LOW].into_iter().chain(behind) {
            pair.ends[0].send(B, spec, &[7; 9]).unwrap();
        }
        let frame = next_frame(&mut pair);
        let core = &mut pair.ends[1].core;
        let admitted = core.admit(pair.now, LinkId::UDP, &frame).unwrap();
        assert_eq!(admitted.has_only(&frame, PORT), expected, "{behind:?}");
    }
}

#[test]
fn frame_with_a_request_does_not_have_only_messages() {
    let mut pair = Pair::new(&[LinkId::UDP], 17);
    pair.ends[1].core.connect(pair.now, A);
    pair.run(Duration::from_millis(5));
    pair.ends[0].send(B, &LOW, &[7; 9]).unwrap();
    pair.ends[0].send(B, &LOW, &[3; 1 << 20]).unwrap();
    let frame = next_frame(&mut pair);
    let core = &mut pair.ends[1].core;
    let admitted = core.admit(pair.now, LinkId::UDP, &frame).unwrap();
    assert!(!admitted.has_only(&frame, PORT));
}
