// SPDX-License-Identifier: MIT OR Apache-2.0
//! First contact between processes without a launcher, and handshakes that a link refuses.

use super::pair::*;
use crate::*;
use alloc::vec::Vec;
use portolan_wire::{FrameHeader, FrameKind};

/// Endpoint ids of two processes. The key of each is its first half.
const ID_A: [u8; 64] = [7; 64];
const ID_B: [u8; 64] = [8; 64];

fn key_of(id: &[u8; 64]) -> [u8; 32] {
    *id.first_chunk().unwrap()
}

/// Returns a process outside any job.
fn process(id: [u8; 64], epoch: u64) -> Core {
    let mut core = End::new(0, &[LinkId::UDP], epoch).core;
    core.open(id, key_of(&id), false);
    core
}

/// Takes all frames that `core` sends now.
fn frames_of(core: &mut Core, now: Instant) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    while let Some(transmit) = core.poll_transmit(now) {
        let Transmit::Frame { bytes, .. } = transmit else {
            panic!("no frame");
        };
        frames.push(bytes.to_vec());
    }
    frames
}

fn kinds_of(frames: &[Vec<u8>]) -> Vec<FrameKind> {
    let headers = frames
        .iter()
        .map(|frame| FrameHeader::parse_head(frame, frame.len()));
    headers.map(|header| header.unwrap().kind).collect()
}

fn deliver(core: &mut Core, now: Instant, frames: &[Vec<u8>]) {
    for frame in frames {
        core.handle_frame(now, LinkId::UDP, frame);
    }
}

const HELLO: FrameKind = FrameKind::Hello;
const HELLO_ACK: FrameKind = FrameKind::HelloAck;

// P2.12
#[test]
fn hello_of_an_unsolicited_process_is_answered_once_it_is_introduced() {
    let now = Instant::from_nanos(1);
    let (mut a, mut b) = (process(ID_A, 100), process(ID_B, 200));
    let (to_b, to_a) = (PeerId(3), PeerId(5));
    assert!(a.introduce(to_b, ID_B, key_of(&ID_B), &[LinkId::UDP]));
    a.connect(now, to_b);
    let hello = frames_of(&mut a, now);
    assert_eq!(kinds_of(&hello), [HELLO]);
    deliver(&mut b, now, &hello);
    assert!(frames_of(&mut b, now).is_empty(), "not introduced yet");
    let event = b.poll_event();
    assert!(matches!(event, Some(Event::Unsolicited { endpoint_id }) if *endpoint_id == ID_A));
    b.introduce(to_a, ID_A, key_of(&ID_A), &[LinkId::UDP]);
    b.greet(now, to_a);
    let answers = frames_of(&mut b, now);
    assert_eq!(kinds_of(&answers), [HELLO_ACK, HELLO]);
    deliver(&mut a, now, &answers);
    assert_eq!(a.peer_status(to_b), PeerStatus::Up);
    let proof = frames_of(&mut a, now);
    assert_eq!(kinds_of(&proof)[0], HELLO_ACK);
    deliver(&mut b, now, &proof);
    assert_eq!(b.peer_status(to_a), PeerStatus::Up);
}

// P2.12
#[test]
fn kept_hellos_are_bounded() {
    let now = Instant::from_nanos(1);
    let mut b = process(ID_B, 200);
    let hello_of = |index: u16| {
        let mut id = ID_A;
        id[..2].copy_from_slice(&index.to_le_bytes());
        let mut core = process(id, 100);
        core.introduce(PeerId(1), ID_B, key_of(&ID_B), &[LinkId::UDP]);
        core.connect(now, PeerId(1));
        (id, frames_of(&mut core, now))
    };
    let hellos: Vec<_> = (0..200).map(hello_of).collect();
    for (_, hello) in &hellos {
        deliver(&mut b, now, hello);
    }
    let mut kinds = Vec::new();
    for (number, (id, _)) in (1..).zip(&hellos) {
        b.introduce(PeerId(number), *id, key_of(id), &[LinkId::UDP]);
        b.greet(now, PeerId(number));
        kinds.push(kinds_of(&frames_of(&mut b, now)));
    }
    assert!(kinds[..72].iter().all(|kinds| *kinds == [HELLO]), "too old");
    assert!(kinds[72..].iter().all(|kinds| *kinds == [HELLO_ACK, HELLO]));
}

// P2.1
#[test]
fn refused_hello_is_sent_when_the_link_has_room() {
    let now = Instant::from_nanos(1);
    let mut a = process(ID_A, 100);
    a.introduce(PeerId(3), ID_B, key_of(&ID_B), &[LinkId::UDP]);
    a.connect(now, PeerId(3));
    assert!(matches!(a.poll_transmit(now), Some(Transmit::Frame { .. })));
    a.transmit_refused();
    assert!(frames_of(&mut a, now).is_empty());
    a.link_ready(LinkId::UDP);
    assert_eq!(kinds_of(&frames_of(&mut a, now)), [HELLO]);
    assert!(frames_of(&mut a, now).is_empty(), "sent once");
}
