// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks of placement plans: followed or ignored, frames must be delivered as sent.

use super::bench::{Bench, TEST_TIMEOUT, UNMARKED};
use super::checks::pattern;
use crate::{Expected, Plan, Receiver, RxFrame, Segments, TxFrame};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::io::IoSlice;
use std::time::Instant;

const HEADER_LEN: usize = 24;

/// Returns a header with a number that a plan can expect.
fn header(number: u32) -> Vec<u8> {
    let mut bytes = pattern(HEADER_LEN, 9);
    bytes[4..8].copy_from_slice(&number.to_le_bytes());
    bytes
}

/// Expects frames numbered starting at `first`, with `len` bytes of payload in total.
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    first: u32,
    fragment_len: usize,
    len: usize,
}

impl Expected for Run {
    fn matches(&self, index: usize, head: &[u8], payload: &[u8]) -> bool {
        let number = u32::try_from(index).map(|index| self.first + index);
        let left = self.len - index * self.fragment_len;
        number.is_ok_and(|number| head == header(number))
            && payload.len() == left.min(self.fragment_len)
    }
}

/// Receives with a plan, and stores complete frames in the order of delivery.
#[derive(Default)]
struct Taker {
    run: Option<Run>,
    /// Rest of the run.
    left: Run,
    /// Destination between two guard areas that must stay untouched.
    memory: Vec<u8>,
    frames: Vec<Vec<u8>>,
    placed_count: usize,
    others_in_batch: usize,
    missed_count: usize,
}

const FENCE: usize = 100;

impl Taker {
    fn expecting(run: Option<Run>) -> Self {
        let len = run.map_or(0, |run| run.len);
        let memory = vec![0xa5; FENCE + len + FENCE];
        Taker {
            run,
            memory,
            ..Taker::default()
        }
    }

    fn are_fences_intact(&self) -> bool {
        let (front, rest) = self.memory.split_at(FENCE);
        let back = &rest[rest.len() - FENCE..];
        front.iter().chain(back).all(|&byte| byte == 0xa5)
    }
}

impl Receiver for Taker {
    fn plan(&mut self) -> Option<Plan<'_>> {
        self.others_in_batch = 0;
        let run = self.run?;
        let done_len = self.placed_count * run.fragment_len;
        self.left = Run {
            first: run.first + u32::try_from(self.placed_count).ok()?,
            len: run.len.checked_sub(done_len).filter(|&len| len > 0)?,
            ..run
        };
        Some(Plan {
            header_len: HEADER_LEN,
            fragment_len: run.fragment_len,
            dst: &mut self.memory[FENCE + done_len..FENCE + run.len],
            expected: &self.left,
        })
    }

    fn frame(&mut self, frame: RxFrame<'_>) {
        assert!(!frame.marked, "{UNMARKED}");
        self.others_in_batch += 1;
        let mut bytes = frame.head.to_vec();
        if let Some(body) = frame.body {
            let head_len = bytes.len();
            bytes.resize(head_len + body.len(), 0xa5);
            body.copy_to(0, &mut bytes[head_len..]);
        }
        self.frames.push(bytes);
    }

    fn placed(&mut self, header: &[u8], payload_len: usize, marked: bool) {
        assert!(!marked, "{UNMARKED}");
        assert_eq!(self.others_in_batch, 0, "placed frames come first");
        let run = self.run.expect("only planned frames can be placed");
        let at = FENCE + self.placed_count * run.fragment_len;
        let payload = &self.memory[at..at + payload_len];
        self.frames.push([header, payload].concat());
        self.placed_count += 1;
    }

    fn missed(&mut self, frame_count: usize, copied_len: usize) {
        assert!(frame_count > 0 && copied_len > 0);
        self.missed_count += frame_count;
    }
}

/// Sends frames numbered starting at `first` and receives them with `run` as the plan of every
/// batch.
fn exchange(bench: &mut Bench, first: u32, lens: &[usize], run: Option<Run>) -> Taker {
    let payload = pattern(lens.iter().sum(), first as usize);
    let head: Vec<u8> = (first..).take(lens.len()).flat_map(header).collect();
    let slices = [IoSlice::new(&payload)];
    let frame = TxFrame {
        head: &head,
        payload: &slices,
        segments: (lens.len() > 1).then_some(Segments {
            header_len: HEADER_LEN,
            payload_len: lens[0],
        }),
    };
    bench.send(0, 1, &frame);
    let mut taker = Taker::expecting(run);
    let start = Instant::now();
    while taker.frames.len() < lens.len() && start.elapsed() < TEST_TIMEOUT {
        bench.links[1].receive_placed(64, &mut taker);
    }
    let mut rest = &payload[..];
    for (index, (&len, got)) in lens.iter().zip(&taker.frames).enumerate() {
        let (part, after) = rest.split_at(len);
        rest = after;
        let sent = [&head[index * HEADER_LEN..][..HEADER_LEN], part].concat();
        assert!(
            bench.same(got, &sent),
            "frame {index} of {lens:?} with {run:?}"
        );
    }
    assert_eq!(taker.frames.len(), lens.len(), "{lens:?} with {run:?}");
    assert!(taker.are_fences_intact(), "{lens:?} with {run:?}");
    taker
}

pub(super) fn plans_are_followed_or_ignored(bench: &mut Bench) {
    let caps = bench.caps();
    let full = (caps.frame_len_max - HEADER_LEN).min(1000);
    let count = caps.segments_max;
    let run = Run {
        first: 7,
        fragment_len: full,
        len: 100 * full,
    };
    // As planned, completely or with the plan's own shorter end.
    let placed = exchange(bench, 7, &vec![full; count], Some(run));
    assert_eq!(placed.missed_count, 0);
    let mut lens = vec![full; count];
    lens[count - 1] = 5.min(full);
    let to_end = Run {
        len: lens.iter().sum(),
        ..run
    };
    let ended = exchange(bench, 7, &lens, Some(to_end));
    let expected = if caps.placement { count } else { 0 };
    assert_eq!(placed.placed_count, expected);
    assert_eq!(ended.placed_count, expected);
    // Deviations: numbers, lengths, a short frame, one frame too many.
    assert_eq!(
        exchange(bench, 8, &vec![full; count], Some(run)).placed_count,
        0
    );
    assert_eq!(
        exchange(bench, 7, &vec![full - 1; count], Some(run)).placed_count,
        0
    );
    assert_eq!(exchange(bench, 7, &[5], Some(run)).placed_count, 0);
    assert_eq!(exchange(bench, 7, &[0], Some(run)).placed_count, 0);
    exchange(bench, 7, &vec![full; count], Some(Run { len: full, ..run }));
    exchange(bench, 7, &[caps.frame_len_max - HEADER_LEN], Some(run));
}

pub(super) fn frames_arrive_intact_under_any_plan(bench: &mut Bench) {
    let caps = bench.caps();
    let mut rng = ChaCha8Rng::seed_from_u64(4);
    for _ in 0..300 {
        let longest = caps.frame_len_max - HEADER_LEN;
        let len_max = if rng.random() { longest } else { 200 };
        let len = rng.random_range(1..=len_max);
        let count = rng.random_range(1..=caps.segments_max);
        let mut lens = vec![len; count];
        if rng.random() {
            lens[count - 1] = rng.random_range(1..=len);
        }
        let first = rng.random_range(0..3);
        let fragment_len = match rng.random_range(0..4) {
            0 => rng.random_range(1..=2 * len),
            _ => len,
        };
        let run = Run {
            first: rng.random_range(0..3),
            fragment_len,
            len: rng.random_range(1..=fragment_len * 50),
        };
        exchange(bench, first, &lens, rng.random_bool(0.9).then_some(run));
    }
}

/// A receiver that accepts one frame per call.
#[derive(Default)]
struct One(Vec<Vec<u8>>);

impl Receiver for One {
    fn plan(&mut self) -> Option<Plan<'_>> {
        None
    }

    fn frame(&mut self, frame: RxFrame<'_>) {
        assert!(frame.body.is_none(), "the frame is short");
        self.0.push(frame.head.to_vec());
    }

    fn has_enough(&self) -> bool {
        !self.0.is_empty()
    }

    fn placed(&mut self, _: &[u8], _: usize, _: bool) {
        panic!("nothing was planned");
    }

    fn missed(&mut self, _: usize, _: usize) {
        panic!("nothing was planned");
    }
}

/// A link with a kernel queue or a ring leaves the rest there; any other link may deliver all at
/// once.
pub(super) fn frames_beyond_enough_arrive_in_later_calls(bench: &mut Bench) {
    let sent: Vec<_> = (0..10).map(header).collect();
    for head in &sent {
        let frame = TxFrame {
            head,
            payload: &[],
            segments: None,
        };
        bench.send(0, 1, &frame);
    }
    let (mut got, start) = (Vec::new(), Instant::now());
    while got.len() < sent.len() && start.elapsed() < TEST_TIMEOUT {
        let mut one = One::default();
        let returned = bench.links[1].receive_placed(64, &mut one);
        assert_eq!(returned, one.0.len());
        got.extend(one.0);
    }
    assert_eq!(got.len(), sent.len());
    for (got, sent) in got.iter().zip(&sent) {
        assert!(bench.same(got, sent), "{got:?} instead of {sent:?}");
    }
}
