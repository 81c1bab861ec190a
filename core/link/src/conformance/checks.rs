// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks of the suite.

use super::bench::{Bench, TEST_TIMEOUT, rank};
use super::plans;
use crate::{Segments, TxError, TxFrame, WakeSet};
use portolan_sys::net::wait_readable;
use std::io::IoSlice;
use std::time::{Duration, Instant};

type Check = (&'static str, fn(&mut Bench));

pub(super) const ALL: &[Check] = &[
    ("capabilities make sense", capabilities_make_sense),
    (
        "frames of all lengths arrive intact",
        frames_of_all_lengths_arrive_intact,
    ),
    (
        "gathered frames arrive complete",
        gathered_frames_arrive_complete,
    ),
    ("runs arrive as datagrams", runs_arrive_as_datagrams),
    (
        "frames reach only their destination",
        frames_reach_only_their_destination,
    ),
    ("invalid frames are refused", invalid_frames_are_refused),
    (
        "plans are followed or ignored",
        plans::plans_are_followed_or_ignored,
    ),
    (
        "frames arrive intact under any plan",
        plans::frames_arrive_intact_under_any_plan,
    ),
    (
        "frames beyond enough arrive in later calls",
        plans::frames_beyond_enough_arrive_in_later_calls,
    ),
    ("back-pressure passes", back_pressure_passes),
    ("budget is honoured", budget_is_honoured),
    (
        "sleep is refused while frames wait",
        sleep_is_refused_while_frames_wait,
    ),
    ("sleeper is woken", sleeper_is_woken),
];

fn capabilities_make_sense(bench: &mut Bench) {
    for link in &bench.links {
        let caps = link.caps();
        // Frames below the smallest IPv4 datagram are too short for a protocol.
        assert!(caps.frame_len_max >= 548, "{caps:?}");
        assert!(caps.segments_max >= 1 && caps.gather_max >= 2, "{caps:?}");
        assert!(caps.rx_buffer_len > 0, "{caps:?}");
        assert_eq!(caps, bench.links[0].caps(), "links of one medium differ");
    }
}

fn frames_of_all_lengths_arrive_intact(bench: &mut Bench) {
    let longest = bench.caps().frame_len_max;
    // 42 and 43 are around Ethernet's padding; 255 to 257 around the limit of a one-byte length.
    for len in [
        1,
        2,
        24,
        42,
        43,
        64,
        255,
        256,
        257,
        500,
        longest / 2,
        longest - 1,
        longest,
    ] {
        for (from, to) in [(0, 1), (1, 0)] {
            let bytes = pattern(len, len);
            bench.send(from, to, &TxFrame::contiguous(&bytes));
            bench.expect(to, &[bytes]);
        }
    }
}

fn gathered_frames_arrive_complete(bench: &mut Bench) {
    let bytes = pattern(500, 3);
    let pieces = bench.caps().gather_max.min(400);
    let slices: Vec<_> = bytes[20..20 + pieces].chunks(1).map(IoSlice::new).collect();
    bench.send(
        0,
        1,
        &TxFrame {
            head: &bytes[..20],
            payload: &slices,
            segments: None,
        },
    );
    let two = [
        IoSlice::new(&bytes[20..60]),
        IoSlice::new(&[]),
        IoSlice::new(&bytes[60..]),
    ];
    let two = if bench.caps().gather_max < 3 {
        &two[..1]
    } else {
        &two[..]
    };
    let two_len: usize = two.iter().map(|slice| slice.len()).sum();
    bench.send(
        0,
        1,
        &TxFrame {
            head: &bytes[..20],
            payload: two,
            segments: None,
        },
    );
    bench.send(
        0,
        1,
        &TxFrame {
            head: &[],
            payload: &two[..1],
            segments: None,
        },
    );
    let expected = [
        bytes[..20 + pieces].to_vec(),
        bytes[..20 + two_len].to_vec(),
        bytes[20..60].to_vec(),
    ];
    bench.expect(1, &expected);
}

fn runs_arrive_as_datagrams(bench: &mut Bench) {
    let caps = bench.caps();
    let longest = caps.frame_len_max - 24;
    for count in [1, 2, 3, caps.segments_max] {
        if count > caps.segments_max {
            continue;
        }
        for (len, last_len) in [(100, 100), (100, 1), (longest, longest), (longest, 7)] {
            run_arrives(bench, count, len, last_len);
        }
    }
}

/// Sends a run of `count` segments with 24 bytes of header and `len` of payload, `last_len` in the
/// last one. The payload is in two slices, and their border is not that of a segment.
fn run_arrives(bench: &mut Bench, count: usize, len: usize, last_len: usize) {
    let head = pattern(24 * count, 5);
    let body = pattern(len * (count - 1) + last_len, 11);
    let (front, back) = body.split_at(body.len() / 3);
    let payload = [IoSlice::new(front), IoSlice::new(back)];
    let segments = Some(Segments {
        header_len: 24,
        payload_len: len,
    });
    bench.send(
        0,
        1,
        &TxFrame {
            head: &head,
            payload: &payload,
            segments,
        },
    );
    let datagram = |(header, part): (&[u8], &[u8])| [header, part].concat();
    let expected: Vec<_> = head
        .chunks(24)
        .zip(body.chunks(len))
        .map(datagram)
        .collect();
    bench.expect(1, &expected);
}

fn frames_reach_only_their_destination(bench: &mut Bench) {
    let (one, two) = (pattern(100, 1), pattern(100, 2));
    bench.send(0, 1, &TxFrame::contiguous(&one));
    bench.send(0, 2, &TxFrame::contiguous(&two));
    bench.expect(1, &[one]);
    bench.expect(2, &[two]);
    for at in 0..3 {
        bench.expect_silence(at);
    }
}

fn invalid_frames_are_refused(bench: &mut Bench) {
    let hello = TxFrame::contiguous(b"hello");
    let link = &mut bench.links[0];
    assert!(matches!(
        link.transmit(77, &hello),
        Err(TxError::NotConnected(77))
    ));
    let long = pattern(link.caps().frame_len_max + 1, 1);
    assert!(matches!(
        link.transmit(1, &TxFrame::contiguous(&long)),
        Err(TxError::TooLong { .. })
    ));
    let (head, body) = long.split_at(10);
    let payload = [IoSlice::new(body)];
    let gathered = TxFrame {
        head,
        payload: &payload,
        segments: None,
    };
    assert!(matches!(
        link.transmit(1, &gathered),
        Err(TxError::TooLong { .. })
    ));
    let addr = bench.links[1].local_addr();
    let link = &mut bench.links[0];
    link.disconnect(1);
    link.disconnect(1);
    assert!(matches!(
        link.transmit(1, &hello),
        Err(TxError::NotConnected(1))
    ));
    // Immediately, even if the peer has not noticed yet.
    link.connect(1, &addr)
        .expect("a disconnected peer connects again");
    bench.send(0, 1, &hello);
    bench.expect(1, &[b"hello".to_vec()]);
}

/// Sends without receiving until back-pressure, or for long enough that a link without it would
/// show memory growth. Then receives everything, and sends again.
fn back_pressure_passes(bench: &mut Bench) {
    let bytes = pattern(500, 9);
    let frame = TxFrame::contiguous(&bytes);
    let accepted = (0..50_000)
        .take_while(|_| bench.try_send(0, 1, &frame))
        .count();
    let mut arrived = 0;
    let mut quiet_since = Instant::now();
    while quiet_since.elapsed() < Duration::from_millis(50) {
        bench.receive_all();
        match bench.take_count(1) {
            0 => {}
            count => {
                arrived += count;
                quiet_since = Instant::now();
            }
        }
    }
    assert!(arrived <= accepted, "{arrived} arrived of {accepted}");
    if bench.caps().lossless {
        assert_eq!(arrived, accepted, "frames that were accepted arrive");
        assert!(accepted < 50_000, "a lossless link reports back-pressure");
    }
    bench.send(0, 1, &frame);
    bench.expect(1, &[bytes]);
}

fn budget_is_honoured(bench: &mut Bench) {
    let frames: Vec<_> = (0..20).map(|index| pattern(100, index)).collect();
    for frame in &frames {
        bench.send(0, 1, &TxFrame::contiguous(frame));
    }
    let start = Instant::now();
    let mut delivered = 0;
    while delivered < frames.len() && start.elapsed() < TEST_TIMEOUT {
        let now = bench.receive(1, 3);
        // The budget is approximate: frames merged by the kernel are delivered together.
        assert!(
            now < 3 + bench.caps().segments_max,
            "{now} frames with a budget of 3"
        );
        delivered += now;
    }
    bench.expect(1, &frames);
    bench.send(0, 1, &TxFrame::contiguous(b"later"));
    assert_eq!(bench.receive(1, 0), 0, "no budget, no frames");
    bench.expect(1, &[b"later".to_vec()]);
}

fn sleep_is_refused_while_frames_wait(bench: &mut Bench) {
    bench.send(0, 1, &TxFrame::contiguous(b"wake up"));
    let start = Instant::now();
    while arm(bench, 1) {
        assert!(
            start.elapsed() < TEST_TIMEOUT,
            "arm permits sleep although a frame waits"
        );
    }
    bench.expect(1, &[b"wake up".to_vec()]);
}

fn sleeper_is_woken(bench: &mut Bench) {
    for _ in 0..3 {
        let mut wake = WakeSet::default();
        bench.receive_all();
        while bench.links[1].poll_notice().is_some() {}
        assert!(
            bench.links[1].arm(&mut wake),
            "arm refuses sleep although nothing waits"
        );
        assert!(!wake.fds.is_empty(), "nothing to wait for");
        let slept = Duration::from_millis(5);
        assert!(
            !wait_readable(&wake.fds, slept).expect("poll works"),
            "woken by nothing"
        );
        bench.links[0]
            .transmit(rank(1), &TxFrame::contiguous(b"wake up"))
            .expect("the link is not full");
        let woken = wait_readable(&wake.fds, TEST_TIMEOUT).expect("poll works");
        assert!(woken, "not woken by a frame");
        bench.links[1].disarm();
        bench.expect(1, &[b"wake up".to_vec()]);
    }
}

/// Returns `true` if link `at` permits sleeping; does not sleep.
fn arm(bench: &mut Bench, at: usize) -> bool {
    let may_sleep = bench.links[at].arm(&mut WakeSet::default());
    bench.links[at].disarm();
    may_sleep
}

/// Returns bytes that differ by position and by `salt`.
pub(super) fn pattern(len: usize, salt: usize) -> Vec<u8> {
    let byte = |index: usize| (index * 31 + index / 256 + salt * 17 + 1).to_le_bytes()[0];
    (0..len).map(byte).collect()
}
