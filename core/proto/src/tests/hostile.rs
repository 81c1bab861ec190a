// SPDX-License-Identifier: MIT OR Apache-2.0
//! Invalid and forged frames: counted by reason, never fatal, never kept.

use super::pair::*;
use crate::*;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;
use portolan_wire::{FrameHeader, FrameKind, HELLO_LEN, Hello};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

fn up(seed: u64) -> Pair {
    let mut pair = Pair::new(&[LinkId::UDP], seed);
    pair.run(Duration::from_millis(5));
    pair
}

fn hello(job_id: [u8; 16], secret: &[u8; 32], epoch: u64) -> [u8; 16 + HELLO_LEN] {
    let mut frame = [0; 16 + HELLO_LEN];
    let header = FrameHeader {
        kind: FrameKind::Hello,
        attempt: 0,
        checked: false,
        frame_len: u16::try_from(frame.len()).unwrap(),
        packet_num: 0,
        session: 0,
    };
    header.emit(&mut frame);
    let hello = Hello {
        job_id,
        from: 1,
        to: 0,
        epoch,
        token: 1,
        echo_token: 0,
        credits: [1000; 2],
        frame_len_max: 1472,
        window_frames: 64,
        path: 1,
        checksum: false,
        hidden_id: false,
    };
    hello.emit(&mut frame, |body| {
        blake3::keyed_hash(secret, body).as_bytes()[..16]
            .try_into()
            .unwrap()
    });
    frame
}

// P1.8, P2.2, P2.3, P2.4
#[test]
fn each_foreign_frame_has_its_drop_reason() {
    let mut pair = up(1);
    let now = pair.now;
    let core = &mut pair.ends[0].core;
    let own = config(0, 0);
    core.handle_frame(now, LinkId::UDP, &[0x11, 0, 0]);
    core.handle_frame(now, LinkId::UDP, &[0x31; 40]);
    core.handle_frame(now, LinkId::UDP, &[0x1e; 40]);
    core.handle_frame(now, LinkId::UDP, &hello([1; 16], &own.secret, 999));
    core.handle_frame(now, LinkId::UDP, &hello(own.job_id, &[1; 32], 999));
    core.handle_frame(now, LinkId::UDP, &hello(own.job_id, &own.secret, 1));
    let mut stale = [0u8; 24];
    let header = FrameHeader {
        kind: FrameKind::Data,
        attempt: 0,
        checked: false,
        frame_len: 24,
        packet_num: 0,
        session: 0xdead_0000_0001,
    };
    header.emit(&mut stale);
    core.handle_frame(now, LinkId::UDP, &stale);
    for reason in [
        DropReason::Truncated,
        DropReason::Version,
        DropReason::Malformed,
        DropReason::OtherJob,
        DropReason::BadMac,
        DropReason::OldIncarnation,
        DropReason::StaleSession,
    ] {
        assert_eq!(core.counters().drops(reason), 1, "{}", reason.name());
    }
    assert_eq!(core.peer_status(B), PeerStatus::Up);
}

// P1.8
#[test]
fn a_million_random_frames_change_nothing() {
    let mut pair = up(2);
    let mut rng = ChaCha8Rng::seed_from_u64(2);
    let core = &mut pair.ends[0].core;
    let usage = core.usage();
    let mut frame = vec![0u8; 256];
    for round in 0..1_000_000u32 {
        let len = rng.random_range(0..256);
        rng.fill(&mut frame[..len]);
        if round % 2 == 0 && len > 16 {
            // Half of them with a plausible header.
            frame[0] = 0x10 | frame[0] & 7;
            frame[2] = u8::try_from(len).unwrap();
            frame[3] = 0;
        }
        core.handle_frame(pair.now, LinkId::UDP, &frame[..len]);
        assert!(core.poll_event().is_none());
    }
    assert_eq!(core.usage(), usage);
    assert_eq!(core.peer_status(B), PeerStatus::Up);
    let dropped: u64 = core.counters().iter_drops().map(|(_, count)| count).sum();
    assert_eq!(dropped, 1_000_000);
}

/// A peer of the job that misbehaves: valid session, random records. `P1.7`, `P4.3`
#[test]
fn random_records_in_a_valid_session_stay_within_bounds() {
    let mut pair = up(3);
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    let mut probe = FrameProbe::new(&mut pair);
    for _ in 0..300_000 {
        probe.inject(&mut pair, &mut rng);
    }
    let (slots, held_len, transfers) = pair.ends[0].core.usage();
    assert!(held_len <= 2 * 256 * 1024 + 65_536, "{held_len} bytes held");
    assert!(slots < 100 && transfers < 70_000, "{slots} {transfers}");
}

/// Passes one frame with the given records to rank 0, in the session of its peer.
fn inject(pair: &mut Pair, kind: FrameKind, records: &[u8]) {
    let FrameProbe { session, num } = FrameProbe::new(pair);
    let mut frame = vec![0; 16 + records.len()];
    let header = FrameHeader {
        kind,
        attempt: 0,
        checked: false,
        frame_len: u16::try_from(frame.len()).unwrap(),
        packet_num: if kind == FrameKind::Data { num } else { 0 },
        session,
    };
    header.emit(&mut frame);
    frame[16..].copy_from_slice(records);
    let core = &mut pair.ends[0].core;
    // The shortcut must reject it as well.
    if let Some(mut admitted) = core.admit(pair.now, LinkId::UDP, &frame) {
        assert!(
            core.take_message(&mut admitted, &frame, None).is_none() || kind == FrameKind::Data
        );
        core.handle_rest(pair.now, &admitted, &frame);
    }
}

fn message(best_effort: bool) -> [u8; 12] {
    let mut bytes = [0; 12];
    let message = portolan_wire::Message {
        lane: LaneId::Low,
        best_effort,
        system: false,
        port: 1,
        len: 4,
        seq: 0,
        match_bits: None,
    };
    message.emit(&mut bytes);
    bytes
}

// P3.11
#[test]
fn a_reliable_record_in_a_frame_without_a_number_is_dropped_and_counted() {
    let mut pair = up(6);
    pair.ends[0]
        .core
        .open_port(PortId::user(1), PortMode::InPlace);
    inject(&mut pair, FrameKind::Unnumbered, &message(true));
    let counters = pair.ends[0].core.counters().clone();
    assert_eq!(
        (
            counters.messages_received,
            counters.drops(DropReason::Misplaced)
        ),
        (1, 0)
    );
    let credit = portolan_wire::Credit {
        lane: LaneId::Low,
        limit: 1 << 30,
    };
    let mut bytes = [0; 8];
    credit.emit(&mut bytes);
    inject(&mut pair, FrameKind::Unnumbered, &bytes);
    inject(&mut pair, FrameKind::Unnumbered, &message(false));
    let counters = pair.ends[0].core.counters().clone();
    assert_eq!(
        (
            counters.messages_received,
            counters.drops(DropReason::Misplaced)
        ),
        (1, 2)
    );
    assert!(pair.ends[0].core.credit(B, LaneId::Low).unwrap().limit < 1 << 30);
}

// P3.14
#[test]
fn marks_of_unknown_paths_are_dropped_and_others_do_not_block() {
    let mut pair = up(9);
    let mut bytes = [0; 8];
    for path in [0, 2, 3, 255] {
        portolan_wire::Marks { path, count: 7 }.emit(&mut bytes);
        inject(&mut pair, FrameKind::Unnumbered, &bytes);
    }
    assert_eq!(pair.ends[0].core.counters().drops(DropReason::BadAck), 4);
    let spec = SendSpec {
        to: Address::Port(PortId::user(2)),
        lane: LaneId::Low,
        best_effort: false,
    };
    pair.ends[1]
        .core
        .open_port(PortId::user(2), PortMode::InPlace);
    pair.ends[1].provides_buffers = true;
    for round in 1..40_u32 {
        // Report everything sent, and more, as marked.
        let count = round.wrapping_mul(0x7fff_ffff);
        portolan_wire::Marks { path: 1, count }.emit(&mut bytes);
        inject(&mut pair, FrameKind::Unnumbered, &bytes);
        pair.ends[0].send(B, &spec, &[7; 100_000]).unwrap();
        pair.run(Duration::from_millis(20));
        let status = pair.ends[0].core.path_status(B, LinkId::UDP).unwrap();
        let window = status.window.unwrap();
        assert!((8..=400).contains(&window), "{window}");
    }
    let arrived = pair.ends[1]
        .got
        .iter()
        .filter(|got| got.bytes.len() == 100_000);
    assert_eq!(arrived.count(), 39);
}

// P2.7
#[test]
fn a_hello_cannot_make_frames_too_short_for_a_record() {
    let mut pair = Pair::new(&[LinkId::UDP], 7);
    let own = config(0, 0);
    let mut frame = hello(own.job_id, &own.secret, 999);
    frame[16 + 56..16 + 58].copy_from_slice(&10u16.to_le_bytes());
    let mac = blake3::keyed_hash(&own.secret, &frame[..16 + 64]);
    frame[16 + 64..].copy_from_slice(&mac.as_bytes()[..16]);
    pair.ends[0]
        .core
        .handle_frame(pair.now, LinkId::UDP, &frame);
    let status = pair.ends[0].core.path_status(B, LinkId::UDP).unwrap();
    assert_eq!(status.frame_len, 512);
}

// P8.9
#[test]
fn shared_memory_violation_fails_the_peer() {
    let mut pair = Pair::new(&[LinkId::SHM], 8);
    pair.ends[1].core.connect(pair.now, A);
    pair.run(Duration::from_millis(1));
    let op = pair.ends[0].post(PortId::user(1), 10, Some(B));
    let frame = [99; 24];
    pair.ends[0]
        .core
        .handle_lossless(pair.now, LinkId::SHM, B, &frame, frame.len());
    pair.run(Duration::from_millis(1));
    let cause = Cause::Violation(DropReason::Malformed.name());
    let error = OpError::PeerFailed(B, cause);
    assert!(
        pair.ends[0]
            .failed
            .contains(&Event::RecvFailed { op, error })
    );
    assert_eq!(pair.ends[0].core.peer_status(B), PeerStatus::Failed(cause));
}

pub(super) struct FrameProbe {
    session: u64,
    num: u32,
}

impl FrameProbe {
    /// Reads the session token of rank 0's peer from a frame to rank 0.
    pub(super) fn new(pair: &mut Pair) -> FrameProbe {
        let spec = SendSpec {
            to: Address::Port(PortId::user(1)),
            lane: LaneId::Low,
            best_effort: false,
        };
        pair.ends[1].send(A, &spec, b"token").unwrap();
        let Some(Transmit::Frame { bytes, .. }) = pair.ends[1].core.poll_transmit(pair.now) else {
            panic!("no frame");
        };
        let (header, _) = FrameHeader::parse(bytes).unwrap();
        FrameProbe {
            session: header.session,
            num: header.packet_num,
        }
    }

    /// Returns the next numbered frame of the peer, with these records.
    pub(super) fn next(&mut self, records: &[u8]) -> Vec<u8> {
        let mut frame = vec![0; 16 + records.len()];
        let header = FrameHeader {
            kind: FrameKind::Data,
            attempt: 0,
            checked: false,
            frame_len: u16::try_from(frame.len()).unwrap(),
            packet_num: self.num,
            session: self.session,
        };
        self.num = self.num.wrapping_add(1);
        header.emit(&mut frame);
        frame[16..].copy_from_slice(records);
        frame
    }

    fn inject(&mut self, pair: &mut Pair, rng: &mut ChaCha8Rng) {
        let len = rng.random_range(24..200usize);
        let mut frame = vec![0u8; len];
        rng.fill(&mut frame[16..]);
        frame[16] = match rng.random_bool(0.8) {
            true => rng.random_range(0..12),
            // With match bits, often valid ones.
            false => rng.random_range(15..20),
        };
        frame[18] &= 3;
        frame[19] &= 3;
        frame[17] &= 7;
        // No resets: frames after one are ignored.
        let kind =
            [FrameKind::Data, FrameKind::Unnumbered, FrameKind::Bulk][rng.random_range(0..3)];
        let header = FrameHeader {
            kind,
            attempt: 0,
            checked: false,
            frame_len: u16::try_from(len).unwrap(),
            packet_num: self.num,
            session: self.session,
        };
        header.emit(&mut frame);
        self.num = self.num.wrapping_add(rng.random_range(0..3));
        let end = &mut pair.ends[0];
        end.core.handle_frame(pair.now, LinkId::UDP, &frame);
        while let Some(event) = end.core.poll_event() {
            if let Event::Deliver {
                data: Data::Held(id),
                ..
            }
            | Event::Matched {
                data: Data::Held(id),
                ..
            } = event
            {
                end.core.release(id);
            }
        }
        while end.core.poll_transmit(pair.now).is_some() {}
    }
}
