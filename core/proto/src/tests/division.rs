// SPDX-License-Identifier: MIT OR Apache-2.0
//! A lone message leaves in frames of the chosen length, and one of a stream in whole frames.

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

/// Length in bytes above which a frame carries message bytes in these tests.
const PLAIN_LEN_MAX: usize = 120;

/// Payload bytes for messages of up to 2000, 5000, 6000 and 65,536 bytes.
const STEPS: [(u64, usize); 4] = [(2000, 300), (5000, 500), (6000, 0), (65_536, 1)];

fn cut(steps: &[(u64, usize)]) -> Choice {
    let mut choice = Choice {
        small_run_len_max: usize::MAX,
        ..Choice::default()
    };
    for (to, &(message_len_max, payload_len)) in choice.frames.iter_mut().zip(steps) {
        *to = FrameStep {
            message_len_max,
            payload_len,
        };
    }
    choice
}

fn up(link: LinkId, choice: Choice) -> Pair {
    let mut pair = Pair::new(&[link], 3);
    pair.run(Duration::from_millis(200));
    pair.ends[0].core.choose(choice);
    pair.ends[1].core.open_port(PORT, PortMode::Posted);
    pair.lens_sent.clear();
    pair
}

fn message(len: usize) -> Vec<u8> {
    let byte = |at| u8::try_from((at * 7 + at / 251) % 256).unwrap();
    (0..len).map(byte).collect()
}

/// Sends a message of each length, a pause after each, and returns the number of frames of each.
fn frames_of(link: LinkId, choice: Choice, lens: &[usize]) -> Vec<usize> {
    let mut pair = up(link, choice);
    let mut counts = Vec::new();
    for &len in lens {
        pair.ends[1].post(PORT, len, None);
        pair.ends[0].send(B, &LOW, &message(len)).unwrap();
        pair.run(Duration::from_millis(5));
        counts.push(long_frames(&mut pair));
        assert_eq!(pair.ends[1].got.pop().unwrap().bytes, message(len));
    }
    pair.assert_clean();
    counts
}

fn long_frames(pair: &mut Pair) -> usize {
    let lens = core::mem::take(&mut pair.lens_sent);
    lens.iter().filter(|len| **len > PLAIN_LEN_MAX).count()
}

// P4.11
#[test]
fn lone_message_leaves_in_frames_of_its_step() {
    for link in [LinkId::UDP, LinkId::PACKET] {
        // One frame stays one: the step applies to messages of several.
        let lens = [1000, 1900, 2000, 2001, 5000, 6000];
        assert_eq!(frames_of(link, cut(&STEPS), &lens), [1, 7, 7, 5, 10, 5]);
        assert_eq!(
            frames_of(link, Choice::default(), &lens),
            [1, 2, 2, 2, 4, 5]
        );
    }
}

#[test]
fn frames_of_one_link_do_not_apply_to_another() {
    let on_packet = Choice {
        frames_on: Some(LinkId::PACKET),
        ..cut(&STEPS)
    };
    assert_eq!(frames_of(LinkId::PACKET, on_packet, &[2000]), [7]);
    assert_eq!(frames_of(LinkId::UDP, on_packet, &[2000]), [2]);
}

#[test]
fn shortest_frames_of_the_longest_message_fit_a_buffer() {
    let frames = frames_of(LinkId::UDP, cut(&STEPS), &[65_536]);
    // One byte more in each, so that the last has room for an acknowledgement. The last is too
    // short to be counted.
    assert_eq!(frames, [65_536 / (FRAME_PAYLOAD_LEN_MIN + 1)]);
}

#[test]
fn message_past_the_queues_leaves_in_frames_of_its_step() {
    let mut pair = up(LinkId::UDP, cut(&STEPS));
    for (len, count) in [(2000, 7), (5000, 10), (6000, 5)] {
        pair.ends[1].post(PORT, len, None);
        pair.send_single(0, &LOW, &message(len));
        assert_eq!(long_frames(&mut pair), count);
        pair.run(Duration::from_millis(5));
        pair.lens_sent.clear();
        assert_eq!(pair.ends[1].got.pop().unwrap().bytes, message(len));
    }
    pair.assert_clean();
}

#[test]
fn messages_of_a_stream_keep_whole_frames() {
    for link in [LinkId::UDP, LinkId::PACKET] {
        let mut pair = up(link, cut(&STEPS));
        for _ in 0..4 {
            pair.ends[1].post(PORT, 5000, None);
            pair.ends[0].send(B, &LOW, &message(5000)).unwrap();
        }
        pair.run(Duration::from_millis(5));
        // Nothing waits or is in flight before the first.
        assert_eq!(long_frames(&mut pair), 10 + 3 * 4);
        assert_eq!(pair.ends[1].got.len(), 4);
        pair.assert_clean();
    }
}

#[test]
fn message_behind_frames_in_flight_keeps_whole_frames() {
    let mut pair = up(LinkId::UDP, cut(&STEPS));
    pair.latency = Duration::from_millis(1);
    for count in [10, 4, 4] {
        pair.ends[1].post(PORT, 5000, None);
        pair.ends[0].send(B, &LOW, &message(5000)).unwrap();
        pair.run(Duration::from_micros(100));
        assert_eq!(long_frames(&mut pair), count);
    }
    pair.run(Duration::from_millis(20));
    assert_eq!(pair.ends[1].got.len(), 3);
    pair.assert_clean();
}

#[test]
fn short_frames_survive_loss_and_reordering() {
    let steps = [(3000, 128), (8000, 333), (20_000, 1000), (65_536, 700)];
    for (link, seed) in [(LinkId::UDP, 1), (LinkId::PACKET, 2)] {
        let mut pair = up(link, cut(&steps));
        pair.faults = Faults {
            drop: 0.05,
            duplicate: 0.02,
            reorder: 0.1,
            corrupt: 0.0,
        };
        let mut got_count = 0;
        for len in (1..=16).map(|step| step * 4000 + seed) {
            for is_lone in [true, false] {
                for _ in 0..if is_lone { 1 } else { 3 } {
                    pair.ends[1].post(PORT, len, None);
                    pair.ends[0].send(B, &LOW, &message(len)).unwrap();
                }
                pair.run(Duration::from_millis(300));
                for got in pair.ends[1].got.drain(..) {
                    assert_eq!(got.bytes, message(len), "{len} bytes");
                    got_count += 1;
                }
            }
        }
        assert_eq!(got_count, 16 * 4);
        assert!(pair.ends[0].core.counters().retransmits > 0);
        pair.faults = Faults::default();
        pair.run(Duration::from_millis(300));
        pair.assert_clean();
    }
}
