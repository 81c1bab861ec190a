// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of two cores with sealed frames, and of an attacker that records, alters and repeats them.

use super::*;
use portolan_proto::{Config, Instant, Limits, LinkParams, PeerStatus};
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use std::convert::Infallible;

const LINKS: [LinkId; 2] = [LinkId::UDP, LinkId::PACKET];

/// One of the two processes.
struct End {
    core: Core,
    seals: Seals,
}

impl End {
    fn new(rank: u32, secret: u8, epoch: u64) -> End {
        let mut core = Core::new(Config {
            job_id: [3; 16],
            secret: [secret; 32],
            rank,
            size: 2,
            epoch,
            seed: [u8::try_from(rank).unwrap() + 1; 32],
            limits: Limits::default(),
        });
        for link in LINKS {
            let params = LinkParams {
                frame_len_max: 1448,
                segments_max: 44,
                lossless: false,
                pull: false,
                checksum: false,
                sum: None,
                rx_buffer_len: 1 << 20,
            };
            core.add_link(link, params);
        }
        core.allow(PeerId(1 - rank), &LINKS);
        let seals = Seals::new(Cipher::Aes128Gcm, &[secret; 32], [3; 16], rank);
        End { core, seals }
    }

    fn ids(&self, peer: u32) -> SessionIds {
        self.core.session_ids(PeerId(peer)).unwrap()
    }

    fn peer(&self) -> PeerId {
        // The core of a job of two processes.
        match self.core.session_ids(PeerId(0)) {
            Some(_) => PeerId(0),
            None => PeerId(1),
        }
    }

    /// Builds a plain data frame of the open session, with `payload` for its records.
    fn frame(&self, packet_num: u32, payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![0; FRAME_HEADER_LEN];
        FrameHeader {
            kind: FrameKind::Data,
            attempt: 0,
            checked: false,
            frame_len: u16::try_from(FRAME_HEADER_LEN + payload.len()).unwrap(),
            packet_num,
            session: self.ids(self.peer().0).theirs.1,
        }
        .emit(&mut frame);
        frame.extend_from_slice(payload);
        frame
    }

    /// Seals `frame` as it would leave.
    fn sealed(&mut self, link: LinkId, frame: &[u8]) -> Vec<u8> {
        let peer = self.peer();
        let transmit = Transmit::Frame {
            peer,
            link,
            bytes: frame,
        };
        let mut sent = datagrams(&mut self.seals, &transmit, &[]);
        assert_eq!(sent.len(), 1);
        sent.remove(0)
    }

    fn open(&mut self, link: LinkId, frame: &[u8]) -> Result<Vec<u8>, DropReason> {
        match self.seals.open(&self.core, link, frame)? {
            Opened::Frame(plain) => Ok(plain),
            Opened::Handshake => Ok(frame.to_vec()),
        }
    }
}

fn datagrams(seals: &mut Seals, transmit: &Transmit<'_>, payload: &[u8]) -> Vec<Vec<u8>> {
    let mut sent = Vec::new();
    let send = |frame: &TxFrame<'_>| {
        let bytes: Vec<u8> = frame
            .payload
            .iter()
            .flat_map(|slice| slice.iter())
            .copied()
            .collect();
        let whole = [frame.head, &bytes].concat();
        assert!(whole.len() <= 65_507, "longer than a datagram");
        let len = frame.segments.map_or(whole.len(), |cut| cut.payload_len);
        sent.extend(whole.chunks(len).map(<[u8]>::to_vec));
        Ok::<(), Infallible>(())
    };
    seals.transmit(transmit, payload, send).unwrap();
    sent
}

/// Creates two processes with a session that is open on both paths.
fn pair() -> [End; 2] {
    let mut ends = [End::new(0, 7, 100), End::new(1, 7, 200)];
    let mut now = Instant::default();
    ends[0].core.connect(now, PeerId(1));
    for _ in 0..100 {
        now = now + std::time::Duration::from_millis(1);
        for from in 0..2 {
            let [a, b] = &mut ends;
            let (from, to) = if from == 0 { (a, b) } else { (b, a) };
            from.core.handle_timeout(now);
            while from.core.poll_event().is_some() {}
            if let Some(ids) = from.core.session_ids(from.peer()) {
                from.seals.on_session(from.peer(), ids);
            }
            let mut sent = Vec::new();
            while let Some(transmit) = from.core.poll_transmit(now) {
                let (_, link) = transmit.destination();
                let bytes = datagrams(&mut from.seals, &transmit, &[]);
                sent.extend(bytes.into_iter().map(|bytes| (link, bytes)));
            }
            for (link, bytes) in sent {
                let plain = to.open(link, &bytes);
                to.core.handle_frame(now, link, &plain.unwrap());
            }
        }
    }
    for (rank, end) in ends.iter().enumerate() {
        let peer = PeerId(u32::from(rank == 0));
        assert_eq!(end.core.peer_status(peer), PeerStatus::Up);
        let status = |link| end.core.path_status(peer, link).unwrap();
        // Sealed probes of the path's MTU have passed.
        assert!(LINKS.iter().all(|&link| status(link).frame_len == 1448));
        assert_eq!(end.core.counters().iter_drops().count(), 0);
    }
    ends
}

// P10.1
#[test]
fn sealed_data_arrives_and_is_unreadable_on_the_wire() {
    let [mut a, mut b] = pair();
    for len in [0, 1, 100, 1432] {
        let plain = a.frame(5, &vec![0x5c; len]);
        let sealed = a.sealed(LinkId::UDP, &plain);
        assert_eq!(sealed.len(), plain.len() + SEAL_LEN);
        assert!(!sealed.windows(8).any(|bytes| bytes == [0x5c; 8]));
        assert_eq!(b.open(LinkId::UDP, &sealed), Ok(plain));
    }
}

/// Links send such a frame on a faster path than one that must be gathered.
#[test]
fn single_frame_is_sent_in_one_piece() {
    let [mut a, _] = pair();
    let plain = a.frame(5, &[1; 80]);
    let transmit = Transmit::Frame {
        peer: a.peer(),
        link: LinkId::UDP,
        bytes: &plain,
    };
    let mut sent = Vec::new();
    let send = |frame: &TxFrame<'_>| {
        assert!(frame.payload.is_empty() && frame.segments.is_none());
        sent.push(frame.head.len());
        Ok::<(), Infallible>(())
    };
    a.seals.transmit(&transmit, &[], send).unwrap();
    assert_eq!(sent, [plain.len() + SEAL_LEN]);
}

// P10.1
#[test]
fn runs_and_bulk_data_are_sealed_frame_by_frame() {
    let [mut a, mut b] = pair();
    let peer = a.peer();
    let link = LinkId::UDP;
    // The last frame is shorter. All frames together exceed one call.
    let frames: Vec<_> = (0..60)
        .map(|num| a.frame(num, &vec![1; if num == 59 { 7 } else { 1084 }]))
        .collect();
    let bytes = frames.concat();
    let (front, more) = bytes.split_at(50 * 1100);
    let run = Transmit::Run {
        peer,
        link,
        bytes: front,
        more,
        segment_len: 1100,
    };
    let sent = datagrams(&mut a.seals, &run, &[]);
    let opened: Vec<_> = sent
        .iter()
        .map(|frame| b.open(link, frame).unwrap())
        .collect();
    assert_eq!(opened, frames);

    let headers: Vec<_> = (0..3)
        .map(|num| a.frame(num, &[2; 8])[..24].to_vec())
        .collect();
    let payload: Vec<u8> = (0..250).collect();
    let mut heads = headers.concat();
    for (num, head) in heads.chunks_mut(24).enumerate() {
        let len: u16 = if num == 2 { 24 + 50 } else { 24 + 100 };
        head[2..4].copy_from_slice(&len.to_le_bytes());
    }
    let bulk = Transmit::Bulk {
        peer,
        link,
        payload: &[portolan_proto::Payload {
            op: portolan_proto::OpId(1),
            off: 0,
            len: payload.len(),
        }],
        headers: &heads,
        header_len: 24,
        fragment_len: 100,
    };
    let sent = datagrams(&mut a.seals, &bulk, &payload);
    let opened: Vec<_> = sent
        .iter()
        .map(|frame| b.open(link, frame).unwrap())
        .collect();
    assert_eq!(opened.len(), 3);
    for (num, frame) in opened.iter().enumerate() {
        assert_eq!(frame[..24], heads[num * 24..][..24]);
        assert_eq!(
            frame[24..],
            payload[num * 100..payload.len().min(num * 100 + 100)]
        );
    }
}

// P10.3
#[test]
fn any_changed_bit_is_detected() {
    let [mut a, mut b] = pair();
    let plain = a.frame(1, &[9; 30]);
    let sealed = a.sealed(LinkId::UDP, &plain);
    for bit in 0..sealed.len() * 8 {
        let mut forged = sealed.clone();
        forged[bit / 8] ^= 1 << (bit % 8);
        let result = b.open(LinkId::UDP, &forged);
        let expected: &[DropReason] = match bit / 8 {
            // Version and kind. Clearing the sealed bit makes it a plain frame.
            0 => &[
                DropReason::Version,
                DropReason::Unsealed,
                DropReason::Malformed,
                DropReason::BadSeal,
            ],
            2..4 => &[DropReason::Truncated, DropReason::BadSeal],
            8..16 => &[DropReason::StaleSession, DropReason::Reflected],
            // The count: another nonce, or one that was used for a probe.
            length if length >= sealed.len() - 8 => &[DropReason::BadSeal, DropReason::Replayed],
            _ => &[DropReason::BadSeal],
        };
        let reason = result.expect_err("forged");
        assert!(expected.contains(&reason), "bit {bit}: {}", reason.name());
    }
    // The forged frames have not affected the session.
    assert_eq!(b.open(LinkId::UDP, &sealed), Ok(plain));
}

// P10.3
#[test]
fn replayed_reflected_and_misdirected_frames_are_dropped_by_reason() {
    let [mut a, mut b] = pair();
    let plain = a.frame(1, b"records");
    let sealed = a.sealed(LinkId::UDP, &plain);
    assert_eq!(b.open(LinkId::UDP, &sealed), Ok(plain.clone()));
    assert_eq!(b.open(LinkId::UDP, &sealed), Err(DropReason::Replayed));
    // On the other path, which has a different key.
    let sealed = a.sealed(LinkId::UDP, &plain);
    assert_eq!(b.open(LinkId::PACKET, &sealed), Err(DropReason::BadSeal));
    // Reflected to its sender, unchanged and with the token that the sender expects.
    assert_eq!(a.open(LinkId::UDP, &sealed), Err(DropReason::Reflected));
    let mut reflected = sealed.clone();
    reflected[8..16].copy_from_slice(&a.ids(1).mine.1.to_le_bytes());
    assert_eq!(a.open(LinkId::UDP, &reflected), Err(DropReason::BadSeal));
    // Without a seal.
    assert_eq!(b.open(LinkId::UDP, &plain), Err(DropReason::Unsealed));
    assert_eq!(b.open(LinkId::UDP, &plain[..9]), Err(DropReason::Truncated));
}

// P10.2
#[test]
fn foreign_frame_is_a_bad_seal() {
    let [a, mut b] = pair();
    let plain = a.frame(1, b"records");
    let ids = a.ids(1);
    let other = |cipher, secret, job_id, ids| {
        let mut seals = Seals::new(cipher, &[secret; 32], job_id, 0);
        seals.on_session(PeerId(1), ids);
        let transmit = Transmit::Frame {
            peer: PeerId(1),
            link: LinkId::UDP,
            bytes: &plain,
        };
        // Beyond the counts of the handshake, so that none counts as repeated.
        let sent = (0..1000).flat_map(|_| datagrams(&mut seals, &transmit, &[]));
        sent.last().unwrap()
    };
    let earlier = SessionIds {
        mine: (ids.mine.0 - 1, ids.mine.1),
        ..ids
    };
    let aes = Cipher::Aes128Gcm;
    for (what, frame) in [
        ("secret", other(aes, 8, [3; 16], ids)),
        ("job", other(aes, 7, [4; 16], ids)),
        ("life", other(aes, 7, [3; 16], earlier)),
        ("cipher", other(Cipher::Aes256Gcm, 7, [3; 16], ids)),
        ("cipher", other(Cipher::ChaCha20Poly1305, 7, [3; 16], ids)),
    ] {
        assert_eq!(
            b.open(LinkId::UDP, &frame),
            Err(DropReason::BadSeal),
            "{what}"
        );
    }
    // Keys depend on nothing else.
    let good = other(aes, 7, [3; 16], ids);
    assert_eq!(b.open(LinkId::UDP, &good), Ok(plain.clone()));
}

// P10.4
#[test]
fn rekeying_survives_loss_and_numbers_are_unique() {
    let [mut a, mut b] = pair();
    a.seals.frames_per_key = 8;
    let mut rng = rand::rngs::StdRng::seed_from_u64(1);
    let (mut numbers, mut generations) = (std::collections::BTreeSet::new(), 0);
    let mut opened = 0;
    for round in 0..200 {
        let mut batch: Vec<_> = (0..5)
            .map(|num| {
                let plain = a.frame(round * 5 + num, &[4; 20]);
                (a.sealed(LinkId::UDP, &plain), plain)
            })
            .collect();
        batch.shuffle(&mut rng);
        for (sealed, plain) in batch {
            let number = SealedFrame::parse(&sealed).unwrap().number;
            assert!(numbers.insert((number.generation, number.count)));
            assert!(number.count < 8);
            generations = generations.max(number.generation);
            if rng.random_range(0..4) > 0 {
                assert_eq!(b.open(LinkId::UDP, &sealed), Ok(plain));
                assert_eq!(b.open(LinkId::UDP, &sealed), Err(DropReason::Replayed));
                opened += 1;
            }
        }
    }
    assert!(opened > 600, "{opened}");
    assert!(generations >= 1000 / 8, "{generations}");
}

// P10.4
#[test]
fn session_reported_twice_continues_counting() {
    let [mut a, _] = pair();
    let plain = a.frame(1, b"records");
    let first = a.sealed(LinkId::UDP, &plain);
    a.seals.on_session(PeerId(1), a.ids(1));
    let second = a.sealed(LinkId::UDP, &plain);
    let count = |frame: &[u8]| SealedFrame::parse(frame).unwrap().number.count;
    assert_eq!(count(&second), count(&first) + 1);
}

#[test]
fn different_settings_open_no_session() {
    let ways = [
        Auth::None,
        Auth::Token,
        Auth::Aead(Cipher::Aes128Gcm),
        Auth::Aead(Cipher::Aes256Gcm),
        Auth::Aead(Cipher::ChaCha20Poly1305),
    ];
    let keys = ways.map(|way| way.handshake_key(&[7; 32]));
    let distinct = std::collections::BTreeSet::from(keys);
    assert_eq!(distinct.len(), ways.len());
}
