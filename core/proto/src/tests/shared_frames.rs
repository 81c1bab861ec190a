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

#[test]
fn messages_in_place_are_taken_one_by_one_from_a_shared_frame() {
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
