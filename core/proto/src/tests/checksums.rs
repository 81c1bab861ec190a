// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checksums are negotiated, and a frame without one is rejected on a path that uses them (`P13`).
//! No single bit error in a frame ends a session.

use super::pair::*;
use crate::*;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;
use portolan_wire::{CHECK_LEN, FrameHeader, FrameKind};

const PORT: PortId = PortId::user(5);
const LOW: SendSpec = SendSpec {
    to: Address::Port(PORT),
    lane: LaneId::Low,
    best_effort: false,
};
const NETWORK: &[LinkId] = &[LinkId::UDP, LinkId::PACKET];

/// Longer than the time after which a quiet peer becomes dormant.
const LONG: Duration = Duration::from_secs(3);

fn up(links: &[LinkId], seed: u64, wants: [bool; 2]) -> Pair {
    let mut pair = Pair::checked(links, seed, wants);
    for end in &mut pair.ends {
        end.core.open_port(PORT, PortMode::InPlace);
        end.provides_buffers = true;
    }
    pair.run(Duration::from_millis(100));
    pair
}

/// Returns the next frame of end 1, with a message.
fn frame_of(pair: &mut Pair, bytes: &[u8]) -> Vec<u8> {
    pair.ends[1].send(A, &LOW, bytes).unwrap();
    match pair.ends[1].core.poll_transmit(pair.now) {
        Some(Transmit::Frame { bytes, .. }) => bytes.to_vec(),
        other => panic!("{other:?}"),
    }
}

fn is_checked(frame: &[u8]) -> bool {
    FrameHeader::parse(frame).unwrap().0.checked
}

// P13.1
#[test]
fn checksums_are_on_if_either_side_requests_them() {
    for wants in [[false, false], [true, false], [false, true], [true, true]] {
        let mut pair = up(NETWORK, 3, wants);
        let checked = wants.contains(&true);
        let spare = if checked { CHECK_LEN } else { 0 };
        for (end, peer) in [(&pair.ends[0], B), (&pair.ends[1], A)] {
            for (link, len) in [(LinkId::UDP, 1472), (LinkId::PACKET, 1496)] {
                let status = end.core.path_status(peer, link).unwrap();
                assert_eq!((status.up, status.frame_len), (true, len - spare), "{link}");
            }
        }
        let frame = frame_of(&mut pair, b"marked");
        assert_eq!(is_checked(&frame), checked, "{wants:?}");
    }
}

// P13.1: covers all ways in which a frame is made and retransmitted.
#[test]
fn checksums_protect_all_lengths_on_a_corrupting_link() {
    for seed in 0..20 {
        let mut pair = up(NETWORK, seed, [seed % 2 == 0, true]);
        pair.speculates = seed % 3 == 0;
        pair.faults = Faults {
            drop: 0.1,
            duplicate: 0.05,
            reorder: 0.1,
            corrupt: 0.0,
        };
        if seed % 4 == 0 {
            pair.narrow = Some((LinkId::UDP, 900));
        }
        let lens = [0, 1, 100, 1_440, 1_464, 20_000, 64_000, 300_000, 1_000_000];
        for len in lens {
            let bytes = vec![usize::to_le_bytes(len)[0]; len];
            pair.ends[0].send(B, &LOW, &bytes).unwrap();
            pair.run(Duration::from_secs(20));
        }
        let got: Vec<_> = pair.ends[1].got.iter().map(|got| &got.bytes).collect();
        assert_eq!(got.len(), lens.len(), "seed {seed}");
        for (bytes, len) in got.into_iter().zip(lens) {
            assert_eq!(bytes, &vec![usize::to_le_bytes(len)[0]; len], "seed {seed}");
        }
        assert!(pair.summed > 0, "runs leave with their sums in front");
        for end in &pair.ends {
            assert_eq!(end.core.counters().drops(DropReason::Unchecked), 0);
        }
        pair.assert_clean();
    }
}

// P13.3
#[test]
fn frame_without_checksum_mark_is_dropped() {
    let mut pair = up(&[LinkId::UDP], 5, [true, false]);
    for rests in [false, true] {
        let before = pair.ends[0].core.counters().drops(DropReason::Unchecked);
        let mut frame = frame_of(&mut pair, b"without");
        assert!(is_checked(&frame));
        frame[1] &= 0x7f;
        let core = &mut pair.ends[0].core;
        core.handle_frame(pair.now, LinkId::UDP, &frame);
        assert_eq!(core.counters().drops(DropReason::Unchecked), before + 1);
        let run = [&frame[..], &frame];
        assert!(
            core.handle_run(pair.now, LinkId::UDP, run.into_iter())
                .is_none()
        );
        // It is retransmitted like a lost frame.
        pair.run(LONG);
        let got = pair.ends[0]
            .got
            .iter()
            .filter(|got| got.bytes == b"without");
        assert_eq!(got.count(), 1 + usize::from(rests));
        // The negotiated setting survives dormancy.
        assert_eq!(pair.ends[0].core.dormant_count(), 1);
    }
    pair.assert_clean();
}

// P2.8: the kinds Unnumbered and Reset differ by one bit.
#[test]
fn flipped_header_bit_ends_no_session() {
    for wants in [false, true] {
        let mut pair = up(&[LinkId::UDP], 7, [wants, wants]);
        let numbered = frame_of(&mut pair, b"frame");
        let mut unnumbered = numbered.clone();
        let (header, _) = FrameHeader::parse(&numbered).unwrap();
        FrameHeader {
            kind: FrameKind::Unnumbered,
            packet_num: 0,
            ..header
        }
        .emit(&mut unnumbered);
        for frame in [numbered, unnumbered] {
            for bit in 0..16 * 8 {
                let mut altered = frame.clone();
                altered[bit / 8] ^= 1 << (bit % 8);
                let core = &mut pair.ends[0].core;
                core.handle_frame(pair.now, LinkId::UDP, &altered);
                assert_eq!(core.peer_status(B), PeerStatus::Up, "bit {bit}");
            }
        }
    }
}

// P2.8, P13.1: a reset is sent in a frame of the session's paths.
#[test]
fn reset_carries_a_checksum() {
    let mut pair = up(&[LinkId::UDP], 8, [false, true]);
    pair.ends[0].core.fail_peer(B, Cause::Closed);
    pair.ends[1].send(A, &LOW, b"late").unwrap();
    pair.run(Duration::from_millis(100));
    let closed = |event: &Event| {
        matches!(
            event,
            Event::PeerFailed {
                peer: A,
                cause: Cause::Closed,
                ..
            }
        )
    };
    assert!(pair.ends[1].failed.iter().any(closed));
}
