// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages in a frame of their own, past the queues, arrive like all others. The shortcut does not
//! apply if a message would be overtaken or could not be retransmitted.

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
const HIGH: SendSpec = SendSpec {
    lane: LaneId::High,
    ..LOW
};

/// Port with buffers for its receives.
const TAKEN: PortId = PortId::user(6);
const TO_TAKEN: SendSpec = SendSpec {
    to: Address::Port(TAKEN),
    ..LOW
};

/// Longer than the delay of acknowledgements.
const SOON: Duration = Duration::from_millis(1);

fn up(links: &[LinkId], wants: [bool; 2]) -> Pair {
    let mut pair = Pair::checked(links, 7, wants);
    for end in &mut pair.ends {
        end.core.open_port(PORT, PortMode::InPlace);
    }
    pair.run(Duration::from_millis(100));
    pair
}

fn got(pair: &Pair, end: usize) -> Vec<&[u8]> {
    pair.ends[end]
        .got
        .iter()
        .map(|got| &got.bytes[..])
        .collect()
}

#[track_caller]
fn check_empty(pair: &Pair) {
    for end in &pair.ends {
        assert_eq!(end.core.usage(), (0, 0, 0));
        assert_eq!(end.core.pending_work(), PendingWork::None);
    }
}

#[test]
fn single_messages_arrive_and_acks_are_piggybacked() {
    for wants in [[false, false], [true, true]] {
        let mut pair = up(&[LinkId::UDP], wants);
        let (acks, frames) = (pair.single_acks, pair.ends[0].core.counters().frames_sent);
        for round in 0..50_u8 {
            pair.send_single(0, &LOW, &[round; 64]);
            pair.run(Duration::from_micros(10));
            pair.send_single(1, &HIGH, &[round; 9]);
            pair.run(Duration::from_micros(10));
        }
        assert_eq!(pair.ends[0].core.counters().frames_sent, frames + 50);
        pair.run(SOON);
        assert_eq!(got(&pair, 1).len(), 50);
        assert_eq!(
            got(&pair, 0),
            (0..50).map(|byte| [byte; 9]).collect::<Vec<_>>()
        );
        // Only the last one of end 1 was acknowledged by a frame without a message.
        assert_eq!(
            pair.single_acks,
            acks + 1,
            "the harness takes those in front"
        );
        assert_eq!(pair.summed > 0, wants[0], "sums that the core puts there");
        check_empty(&pair);
    }
}

#[test]
fn lost_single_message_is_retransmitted() {
    for wants in [[false, false], [true, true]] {
        let mut pair = up(&[LinkId::UDP], wants);
        pair.faults.drop = 1.0;
        pair.send_single(0, &LOW, b"first");
        pair.faults.drop = 0.0;
        assert_eq!(
            pair.ends[0].core.pending_work(),
            PendingWork::Unacknowledged
        );
        pair.run(Duration::from_millis(100));
        assert_eq!(got(&pair, 1), [b"first"]);
        assert_eq!(pair.ends[0].core.counters().retransmits, 1);
        check_empty(&pair);
    }
}

/// With loss, duplication and reordering in both directions, each message arrives once and in
/// order.
#[test]
fn single_messages_over_a_faulty_link_arrive_once_in_order() {
    let mut pair = up(&[LinkId::UDP, LinkId::PACKET], [true, false]);
    pair.faults = Faults {
        drop: 0.1,
        duplicate: 0.05,
        reorder: 0.1,
        corrupt: 0.0,
    };
    // One frame, and several.
    const LENS: [usize; 4] = [1, 100, 1000, 4000];
    let mut single = 0;
    for round in 0..400_u32 {
        for from in [0, 1] {
            let bytes = round.to_le_bytes();
            let bytes = bytes.repeat(LENS[round as usize % LENS.len()]);
            match pair.try_send_single(from, &LOW, &bytes) {
                true => single += 1,
                false => pair.ends[from].send([B, A][from], &LOW, &bytes).unwrap(),
            }
        }
        pair.run(Duration::from_micros(40));
    }
    pair.faults = Faults::default();
    pair.run(Duration::from_secs(2));
    assert!(single > 200, "{single} of 800 used the shortcut");
    let sent = (0..400_u32).map(|round| {
        let len = LENS[round as usize % LENS.len()];
        round.to_le_bytes().repeat(len)
    });
    let sent: Vec<_> = sent.collect();
    for end in [0, 1] {
        assert_eq!(got(&pair, end), sent, "end {end}");
    }
    check_empty(&pair);
}

/// Submits a message of `len` bytes to end 1; returns true if the shortcut applies.
fn submit(pair: &mut Pair, spec: &SendSpec, len: usize) -> bool {
    pair.try_send_single(0, spec, &[7; 64 * 1024 + 1][..len])
}

#[test]
fn refused_single_frame_is_sent_later() {
    let mut pair = up(&[LinkId::UDP], [false, false]);
    let core = &mut pair.ends[0].core;
    assert!(core.submit(pair.now, B, &LOW, b"refused").is_ok());
    core.transmit_refused();
    assert!(!submit(&mut pair, &LOW, 7), "the link is full");
    pair.ends[0].core.link_ready(LinkId::UDP);
    pair.run(SOON);
    assert_eq!(got(&pair, 1), [b"refused"]);
    check_empty(&pair);
}

#[test]
fn shortcut_is_unavailable_when_queued_or_too_long() {
    let mut pair = Pair::new(&[LinkId::UDP], 3);
    assert!(!submit(&mut pair, &LOW, 8), "no session yet");
    let mut pair = up(&[LinkId::UDP], [false, false]);
    assert!(submit(&mut pair, &LOW, 1400));
    assert!(submit(&mut pair, &LOW, 64 * 1024), "in several frames");
    pair.run(SOON);
    assert!(!submit(&mut pair, &LOW, 64 * 1024 + 1), "it must ask");
    let best_effort = SendSpec {
        best_effort: true,
        ..LOW
    };
    assert!(!submit(&mut pair, &best_effort, 8));
    // A message of either lane that waits for its frame would be overtaken, or would share it.
    for spec in [LOW, HIGH] {
        pair.ends[0].send(B, &spec, b"waits").unwrap();
        assert!(!submit(&mut pair, &LOW, 8));
        pair.run(SOON);
        assert!(submit(&mut pair, &LOW, 8));
        pair.run(SOON);
    }
    // Lossless links have their own shortcut.
    let mut pair = up(&[LinkId::SHM], [false, false]);
    assert!(!submit(&mut pair, &LOW, 8));
}

#[test]
fn shortcut_is_unavailable_while_the_window_is_full() {
    let mut pair = up(&[LinkId::UDP], [false, false]);
    pair.deaf = Some((1, LinkId::UDP));
    let mut sent = 0;
    while submit(&mut pair, &LOW, 8) {
        sent += 1;
        assert!(sent <= 10_000, "there is a window");
    }
    let window = pair.ends[0].core.path_status(B, LinkId::UDP).unwrap();
    assert_eq!(window.inflight_count, sent);
    pair.deaf = None;
    pair.run(Duration::from_secs(2));
    assert_eq!(got(&pair, 1).len(), sent);
    check_empty(&pair);
}

/// One of two frames in flight is acknowledged by the general rules.
#[test]
fn partial_acknowledgement_takes_the_general_path() {
    let mut pair = up(&[LinkId::UDP], [false, false]);
    let acks = pair.single_acks;
    pair.send_single(0, &LOW, b"one");
    pair.run(Duration::from_micros(50));
    // The acknowledgement of the first is in flight.
    pair.send_single(0, &LOW, b"two");
    pair.run(Duration::from_micros(8));
    assert_eq!(pair.single_acks, acks);
    pair.run(SOON);
    assert_eq!((got(&pair, 1).len(), pair.single_acks), (2, acks + 1));
    check_empty(&pair);
}

/// A message of several frames that arrive together is copied directly to the receive that waits
/// for it.
#[test]
fn multi_frame_message_uses_one_call_and_one_copy() {
    for wants in [[false, false], [true, true]] {
        let mut pair = up(&[LinkId::UDP], wants);
        pair.ends[1].core.open_port(TAKEN, PortMode::Posted);
        for len in [1473, 5000, 20_000, 60_000] {
            let bytes: Vec<u8> = (0..=250).cycle().take(len).collect();
            pair.ends[1].post(TAKEN, len, Some(A));
            let runs = pair.runs_taken;
            pair.send_single(0, &TO_TAKEN, &bytes);
            pair.run(SOON);
            assert_eq!(got(&pair, 1), [&bytes[..]], "{len}");
            assert!(pair.runs_taken > runs, "{len}");
            assert_eq!(pair.ends[1].core.counters().messages_held, 0);
            pair.ends[1].got.clear();
        }
        check_empty(&pair);
    }
}

#[test]
fn window_limited_remainder_follows() {
    let mut pair = up(&[LinkId::UDP], [false, false]);
    for (end, peer) in [(0, B), (1, A)] {
        let paths = pair.ends[end].core.peer_mut(peer).paths_mut();
        paths.get_mut(LinkId::UDP).unwrap().set_windows(8);
    }
    let bytes: Vec<u8> = (0..=252).cycle().take(40_000).collect();
    pair.send_single(0, &LOW, &bytes);
    assert_eq!(pair.ends[0].core.pending_work(), PendingWork::Unsent);
    pair.run(SOON);
    assert_eq!(got(&pair, 1), [&bytes[..]]);
    check_empty(&pair);
}

/// If a frame of a run is lost, the others gather, and the message goes to its buffer when it is
/// complete.
#[test]
fn run_with_a_gap_is_reassembled() {
    let mut pair = up(&[LinkId::UDP], [true, true]);
    pair.ends[1].core.open_port(TAKEN, PortMode::Posted);
    let bytes: Vec<u8> = (0..=248).cycle().take(20_000).collect();
    pair.ends[1].post(TAKEN, 20_000, None);
    pair.swallow = Some(bytes[9000..9040].to_vec());
    pair.send_single(0, &TO_TAKEN, &bytes);
    pair.run(Duration::from_micros(100));
    assert!(pair.ends[1].got.is_empty());
    pair.swallow = None;
    pair.run(Duration::from_millis(50));
    assert_eq!(got(&pair, 1), [&bytes[..]]);
    check_empty(&pair);
}

/// Returns the frames of a message of `len` bytes from end 0, which were sent and have not arrived.
fn frames_of(pair: &mut Pair, spec: &SendSpec, len: usize) -> Vec<Vec<u8>> {
    let core = &mut pair.ends[0].core;
    let sent = super::pair::submit(core, pair.now, B, spec, &[7; 60_000][..len]);
    let (_, mut frames) = sent.unwrap();
    while let Some(more) = core.poll_transmit(pair.now) {
        frames.extend(more.frames(&[]));
    }
    frames
}

/// The sender's window waits for the acknowledgement, whatever the time is.
#[test]
fn due_acknowledgement_after_a_run_is_sent_at_once() {
    let mut pair = up(&[LinkId::UDP], [false, false]);
    pair.ends[1].core.open_port(TAKEN, PortMode::Posted);
    let mut frame_count = 0;
    while frame_count < 64 {
        assert!(!pair.ends[1].core.needs_transmit(), "{frame_count} frames");
        let frames = frames_of(&mut pair, &TO_TAKEN, 40_000);
        pair.ends[1].post(TAKEN, 40_000, None);
        let datagrams = frames.iter().map(Vec::as_slice);
        let core = &mut pair.ends[1].core;
        let run = core.handle_run(pair.now, LinkId::UDP, datagrams).unwrap();
        assert_eq!(run.count, frames.len());
        frame_count += run.count;
        pair.ends[1].drain(&[]);
    }
    assert!(pair.ends[1].core.needs_transmit());
}

/// If a program computes after a receive, the acknowledgement is left to the thread that makes
/// progress for it.
#[test]
fn delayed_acknowledgement_is_pending_work() {
    let mut pair = up(&[LinkId::UDP], [false, false]);
    let frames = frames_of(&mut pair, &LOW, 8);
    let core = &mut pair.ends[1].core;
    assert_eq!(core.pending_work(), PendingWork::None);
    let mut admitted = core.admit(pair.now, LinkId::UDP, &frames[0]).unwrap();
    assert!(core.take_message(&mut admitted, &frames[0], None).is_some());
    assert!(admitted.is_done());
    assert_eq!(core.pending_work(), PendingWork::Unacknowledged);
}

/// A message length sent by a peer is bounded before it is used.
#[test]
fn run_with_impossible_length_is_dropped() {
    let mut pair = up(&[LinkId::UDP], [false, false]);
    pair.ends[1].core.open_port(TAKEN, PortMode::Posted);
    pair.ends[1].post(TAKEN, 60_000, None);
    let mut frames = frames_of(&mut pair, &TO_TAKEN, 4000);
    let at = portolan_wire::FRAME_HEADER_LEN + 8;
    for frame in &mut frames {
        frame[at..at + 4].copy_from_slice(&(u32::MAX - 8).to_le_bytes());
    }
    let datagrams = frames.iter().map(Vec::as_slice);
    let core = &mut pair.ends[1].core;
    assert!(core.handle_run(pair.now, LinkId::UDP, datagrams).is_none());
    core.handle_frame(pair.now, LinkId::UDP, &frames[0]);
    assert_eq!(core.counters().drops(DropReason::BadFragment), 1);
}
