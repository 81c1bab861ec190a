// SPDX-License-Identifier: MIT OR Apache-2.0
use super::*;

#[test]
fn sum_of_pieces_equals_sum_of_whole() {
    let bytes: Vec<u8> = (0..5000u32)
        .map(|at| (at * 7 % 251).to_le_bytes()[0])
        .collect();
    for head_len in [0, 1, 16, 255] {
        let (head, body) = bytes.split_at(head_len);
        let whole = sum_of_part(head, [body, &[]]);
        assert_eq!(usize::from(whole.head_len), head_len);
        for cut in [0, 1, 16, 255, 4096, body.len()] {
            let (front, behind) = body.split_at(cut);
            let sum = Summing::of(head).with(front).with(behind).value();
            assert_eq!(sum, whole, "{head_len}, cut at {cut}");
            let mut hash = part_hasher(head);
            hash.write(front);
            assert_eq!(is_right_of_part(whole, head, &*hash), cut == body.len());
            hash.write(behind);
            assert!(is_right_of_part(whole, head, &*hash));
        }
    }
}

use portolan_link::Run;
use portolan_wire::{BULK_HEADER_LEN, FRAME_HEADER_LEN};
use std::convert::Infallible;
use std::io::IoSlice;

/// Returns a frame header with `extra` bytes after it that count as header, too.
fn head(kind: FrameKind, num: u32, checked: bool, (extra, body): (usize, usize)) -> Vec<u8> {
    let mut bytes = vec![0x5a; FRAME_HEADER_LEN + extra];
    FrameHeader {
        kind,
        attempt: 0,
        checked,
        frame_len: u16::try_from(bytes.len() + body).unwrap(),
        packet_num: num,
        session: 0x0102_0304_0506_0708,
    }
    .emit(&mut bytes);
    bytes
}

fn whole(kind: FrameKind, checked: bool, body: usize) -> Vec<u8> {
    let mut frame = head(kind, 1, checked, (0, body));
    frame.extend(filling(body));
    frame
}

fn filling(len: usize) -> Vec<u8> {
    (0..=250).cycle().take(len).collect()
}

/// Returns the datagrams that are sent for `frame`.
fn sent(frame: &TxFrame<'_>) -> Vec<Vec<u8>> {
    let mut datagrams = Vec::new();
    let send = |frame: &TxFrame<'_>| {
        let run = Run::new(frame);
        let mut open = Vec::new();
        for piece in run.pieces() {
            open.extend_from_slice(piece);
            if open.len() == run.datagram_len() {
                datagrams.push(std::mem::take(&mut open));
            }
        }
        datagrams.extend((!open.is_empty()).then_some(open));
        Ok::<(), Infallible>(())
    };
    Sums::default().transmit(frame, send).unwrap();
    datagrams
}

fn opened(datagrams: &[Vec<u8>]) -> Vec<&[u8]> {
    let opened = datagrams.iter().map(|datagram| {
        assert!(CheckedFrame::has_sum(datagram));
        open(datagram).unwrap()
    });
    opened.collect()
}

/// Values of the reference implementation, xxHash 0.8: of no bytes, and of one byte 0.
#[test]
fn sum_is_xxh3() {
    let value = |bytes: &[u8]| sum_of_part(&[], [bytes, &[]]).value;
    assert_eq!(value(&[]), 0x2d06_8005_38d3_94c2 & Sum::MASK);
    assert_eq!(value(&[0]), 0xc44b_dff4_074e_ecdb & Sum::MASK);
}

// P13.2
#[test]
fn every_datagram_shape_round_trips_with_its_sum() {
    let one = whole(FrameKind::Data, true, 40);
    assert_eq!(opened(&sent(&TxFrame::contiguous(&one))), [&one[..]]);

    // Fragments in user memory, in two slices with arbitrary boundaries; the last fragment is
    // shorter.
    let payload = filling(250);
    let slices = [IoSlice::new(&payload[..130]), IoSlice::new(&payload[130..])];
    let bulk = |num, body| head(FrameKind::Bulk, num, true, (8, body));
    let heads = [bulk(1, 100), bulk(2, 100), bulk(3, 50)].concat();
    let mut run = TxFrame {
        head: &heads,
        payload: &slices,
        segments: Some(Segments {
            header_len: BULK_HEADER_LEN,
            payload_len: 100,
        }),
    };
    let plain: Vec<Vec<u8>> = heads
        .chunks(BULK_HEADER_LEN)
        .zip(payload.chunks(100))
        .map(|(head, body)| [head, body].concat())
        .collect();
    assert_eq!(opened(&sent(&run)), plain);

    // A single one of them.
    run.head = &heads[..BULK_HEADER_LEN];
    let slices = [IoSlice::new(&payload[..100])];
    (run.payload, run.segments) = (&slices, None);
    assert_eq!(opened(&sent(&run)), plain[..1]);

    // Consecutive frames in two buffers, with the checksums that the core requested.
    let mut last = one[..30].to_vec();
    last[2] = 30;
    let summed = |frame: &[u8]| [&CheckedFrame::front(sum_of_frame(frame)), frame].concat();
    let (first, second) = (summed(&one), [summed(&one), summed(&last)].concat());
    let slices = [IoSlice::new(&first), IoSlice::new(&second)];
    let run = TxFrame {
        head: &[],
        payload: &slices,
        segments: Some(Segments {
            header_len: 0,
            payload_len: first.len(),
        }),
    };
    assert_eq!(opened(&sent(&run)), [&one[..], &one, &last]);
}

#[test]
fn unmarked_frames_are_unchanged() {
    for kind in [FrameKind::Data, FrameKind::Hello] {
        let frame = whole(kind, false, 40);
        let datagrams = sent(&TxFrame::contiguous(&frame));
        assert_eq!(datagrams, [&frame[..]]);
        assert_eq!(open(&datagrams[0]), Ok(&frame[..]));
    }
}

// P13.3
#[test]
fn any_altered_bit_is_detected() {
    let frame = whole(FrameKind::Data, true, 40);
    let datagram = sent(&TxFrame::contiguous(&frame)).remove(0);
    for bit in 0..datagram.len() * 8 {
        let mut altered = datagram.clone();
        altered[bit / 8] ^= 1 << (bit % 8);
        match open(&altered) {
            Err(reason) => assert_eq!(reason, DropReason::BadChecksum),
            // The first byte no longer marks a checksum; the core then finds no valid frame.
            Ok(rest) => {
                assert!(bit < 8, "bit {bit}");
                assert!(FrameHeader::parse(rest).is_err());
                assert!(SealedFrame::parse(rest).is_err());
            }
        }
    }
}

// P13.3
#[test]
fn marked_frame_without_sum_is_rejected() {
    let frame = whole(FrameKind::Data, true, 40);
    assert_eq!(open(&frame), Err(DropReason::BadChecksum));
}

#[test]
fn placed_frame_is_checked_in_parts() {
    let (header, body) = (head(FrameKind::Bulk, 1, true, (8, 100)), filling(100));
    let slices = [IoSlice::new(&body)];
    let frame = TxFrame {
        head: &header,
        payload: &slices,
        segments: None,
    };
    let datagram = sent(&frame).remove(0);
    let (front, payload) = datagram.split_at(CHECK_LEN + BULK_HEADER_LEN);
    assert_eq!(open_apart(front, payload), Some(&header[..]));
    for at in 0..datagram.len() {
        let mut altered = datagram.clone();
        altered[at] ^= 1;
        let (front, payload) = altered.split_at(CHECK_LEN + BULK_HEADER_LEN);
        assert_eq!(open_apart(front, payload), None, "byte {at}");
    }
}

// P13.5
#[test]
fn frame_without_own_sum_is_dropped_for_any_flipped_bit() {
    for body in [0, 1, 40] {
        for bit in 0..8 * (FRAME_HEADER_LEN + body) {
            let mut frame = whole(FrameKind::Data, false, body);
            corrupt(&mut frame, bit);
            assert_eq!(open(&frame), Err(DropReason::BadChecksum), "{body} {bit}");
        }
    }
    let sealed = {
        let mut frame = whole(FrameKind::Data, false, 60);
        portolan_wire::seal_header(&mut frame);
        frame
    };
    let checked = sent(&TxFrame::contiguous(&whole(FrameKind::Data, true, 40))).remove(0);
    for frame in [sealed, checked, whole(FrameKind::Hello, false, 80)] {
        let mut altered = frame.clone();
        corrupt(&mut altered, 8 * 20 + 3);
        let differing = frame
            .iter()
            .zip(&altered)
            .map(|(a, b)| (a ^ b).count_ones());
        assert_eq!(differing.sum::<u32>(), 1);
    }
}

/// Prints the cost of a checksum. Run it with `cargo test --release -p portolan --lib -- --ignored
/// --nocapture costs`.
#[test]
#[ignore = "a measurement"]
fn costs_of_sums() {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap();
    let name = info.lines().find(|line| line.starts_with("model name"));
    println!("{}", name.unwrap_or_default());
    let small = whole(FrameKind::Data, true, 64 - FRAME_HEADER_LEN);
    let (body, heads) = (filling(44 * 1440), {
        let head = |num| head(FrameKind::Bulk, num, true, (8, 1440));
        (0..44).map(head).collect::<Vec<_>>().concat()
    });
    let slices = [IoSlice::new(&body)];
    let bulk = TxFrame {
        head: &heads,
        payload: &slices,
        segments: Some(Segments {
            header_len: BULK_HEADER_LEN,
            payload_len: 1440,
        }),
    };
    let frames = [
        ("a frame of 64 B", TxFrame::contiguous(&small)),
        ("44 of 1472 B", bulk),
    ];
    for (what, frame) in frames {
        let datagrams = sent(&frame);
        let mut sums = Sums::default();
        let tx = least(|| {
            let send = |frame: &TxFrame<'_>| {
                std::hint::black_box(frame.head.len());
                Ok::<(), Infallible>(())
            };
            sums.transmit(std::hint::black_box(&frame), send).unwrap();
        });
        let rx = least(|| {
            for datagram in &datagrams {
                std::hint::black_box(open(std::hint::black_box(datagram)).unwrap());
            }
        });
        println!("{what}: {tx:.0} ns to put in, {rx:.0} ns to check");
    }
}

/// Returns the shortest of many means, in nanoseconds.
fn least(mut work: impl FnMut()) -> f64 {
    let mut round = || {
        let start = std::time::Instant::now();
        for _ in 0..1000 {
            work();
        }
        start.elapsed().as_secs_f64() * 1e6
    };
    (0..50).map(|_| round()).fold(f64::MAX, f64::min)
}
