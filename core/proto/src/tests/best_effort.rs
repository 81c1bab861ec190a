// SPDX-License-Identifier: MIT OR Apache-2.0
//! Best-effort messages of several frames arrive complete or not at all, and missing ones are
//! counted.

use super::hostile::FrameProbe;
use super::pair::*;
use crate::*;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;
use portolan_wire::{BEST_EFFORT_PART_LEN, BestEffortPart, CheckedFrame};

const PORT: PortId = PortId::user(5);
const LOW: SendSpec = SendSpec {
    to: Address::Port(PORT),
    lane: LaneId::Low,
    best_effort: true,
};
const HIGH: SendSpec = SendSpec {
    lane: LaneId::High,
    ..LOW
};
const NETWORK: &[LinkId] = &[LinkId::UDP, LinkId::PACKET];
const LONGEST: usize = 64 * 1024;

/// Returns a message with its number in the first bytes; the rest follows from the number.
fn numbered(number: u32, len: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..len)
        .map(|at| (at ^ number.wrapping_mul(0x9e37_79b9) as usize >> 7).to_le_bytes()[0])
        .collect();
    bytes[..4].copy_from_slice(&number.to_le_bytes());
    bytes
}

/// Returns connected ends, the second with a handler at the port.
fn up(links: &[LinkId], seed: u64) -> Pair {
    let mut pair = Pair::new(links, seed);
    pair.run(Duration::from_millis(50));
    pair.ends[1].core.open_port(PORT, PortMode::InPlace);
    pair
}

/// Checks that each message at the second end is unaltered and arrived once; returns their numbers.
fn check_arrivals(pair: &Pair) -> Vec<u32> {
    let mut numbers = Vec::new();
    for got in &pair.ends[1].got {
        let number = u32::from_le_bytes(got.bytes[..4].try_into().unwrap());
        assert!(got.bytes == numbered(number, got.bytes.len()), "{number}");
        numbers.push(number);
    }
    let mut sorted = numbers.clone();
    sorted.sort_unstable();
    sorted.dedup();
    assert_eq!(sorted.len(), numbers.len(), "a message came twice");
    numbers
}

fn drops_at(pair: &Pair, rank: usize, reason: DropReason) -> u64 {
    pair.ends[rank].core.counters().drops(reason)
}

fn drops(pair: &Pair, reason: DropReason) -> u64 {
    drops_at(pair, 1, reason)
}

/// Returns the frames of a message, without sending them.
fn frames_of(pair: &mut Pair, spec: &SendSpec, bytes: &[u8]) -> Vec<Vec<u8>> {
    let end = &mut pair.ends[0];
    end.send(B, spec, bytes).unwrap();
    let mut frames = Vec::new();
    while let Some(transmit) = end.core.poll_transmit(pair.now) {
        frames.extend(transmit.frames(&[]));
    }
    frames.iter().map(|frame| bare(frame)).collect()
}

/// Returns a frame without the checksum that the core may have put in front of it.
fn bare(frame: &[u8]) -> Vec<u8> {
    match CheckedFrame::parse(frame) {
        Ok(checked) => checked.frame.to_vec(),
        Err(_) => frame.to_vec(),
    }
}

fn receive_at(pair: &mut Pair, rank: usize, frame: &[u8]) {
    let end = &mut pair.ends[rank];
    end.core.handle_frame(pair.now, LinkId::UDP, frame);
    end.drain(frame);
}

fn receive(pair: &mut Pair, frame: &[u8]) {
    receive_at(pair, 1, frame);
}

const LENS: [usize; 6] = [1500, 2000, 8973, 30_000, LONGEST - 1, LONGEST];

// P7.5, P7.6, P7.7
#[test]
fn best_effort_messages_arrive_complete_and_unacknowledged() {
    for (links, checked) in [
        (NETWORK, false),
        (NETWORK, true),
        (&[LinkId::UDP], true),
        (&[LinkId::PACKET], false),
    ] {
        let mut pair = Pair::checked(links, 1, [checked; 2]);
        pair.run(Duration::from_millis(50));
        pair.ends[1].core.open_port(PORT, PortMode::InPlace);
        let credit = pair.ends[0].core.credit(B, LaneId::Low).unwrap();
        for (number, len) in (0..).zip(LENS.into_iter().cycle().take(60)) {
            let spec = if number % 3 == 0 { HIGH } else { LOW };
            let bytes = numbered(number, len);
            pair.ends[0].send(B, &spec, &bytes).unwrap();
            pair.run(Duration::from_micros(50));
        }
        pair.run(Duration::from_millis(1));
        assert_eq!(check_arrivals(&pair).len(), 60);
        let lens: Vec<_> = pair.ends[1].got.iter().map(|got| got.bytes.len()).collect();
        assert!(lens.contains(&LONGEST), "{lens:?}");
        // They have their own numbers, cost no credit, and are not retransmitted.
        assert_eq!(pair.ends[0].core.credit(B, LaneId::Low).unwrap(), credit);
        assert_eq!(pair.ends[0].core.counters().retransmits, 0);
        assert_eq!(pair.ends[1].core.counters().best_effort_lost, 0);
        assert_eq!(pair.ends[1].core.counters().iter_drops().count(), 0);
        assert_eq!(pair.summed > 0, checked);
        pair.assert_clean();
    }
}

// P7.6
#[test]
fn message_uses_the_minimum_of_calls() {
    let mut pair = up(&[LinkId::UDP], 2);
    pair.calls.clear();
    pair.ends[0].send(B, &LOW, &numbered(0, LONGEST)).unwrap();
    pair.run(Duration::from_millis(1));
    assert_eq!(check_arrivals(&pair), [0]);
    assert_eq!(pair.calls.iter().sum::<usize>(), LONGEST.div_ceil(1436));
    assert_eq!(pair.calls.len(), 2, "44 frames a call");
}

// P7.4, P7.7, P7.8
#[test]
fn lossy_messages_arrive_complete_or_are_counted_as_lost() {
    for (seed, faults) in [
        (
            3,
            Faults {
                drop: 0.01,
                ..Faults::default()
            },
        ),
        (
            4,
            Faults {
                drop: 0.1,
                duplicate: 0.1,
                reorder: 0.2,
                corrupt: 0.0,
            },
        ),
    ] {
        let mut pair = up(NETWORK, seed);
        pair.faults = faults;
        for (number, len) in (0..).zip(LENS.into_iter().cycle().take(600)) {
            pair.ends[0].send(B, &LOW, &numbered(number, len)).unwrap();
            pair.run(Duration::from_micros(300));
        }
        // The last number reveals the messages missing before it.
        pair.faults = Faults::default();
        pair.ends[0].send(B, &LOW, &numbered(600, 1500)).unwrap();
        pair.run(Duration::from_millis(200));
        let arrived = check_arrivals(&pair).len() as u64;
        let incomplete = drops(&pair, DropReason::BestEffortIncomplete);
        let lost = pair.ends[1].core.counters().best_effort_lost;
        assert_eq!(arrived + incomplete + lost, 601, "{incomplete}, {lost}");
        assert!(incomplete > 20, "{incomplete}");
        assert!(arrived > 100, "{arrived}");
        assert_eq!(pair.ends[0].core.counters().retransmits, 0);
        pair.assert_clean();
    }
}

#[test]
fn duplicates_and_reordering_lose_nothing() {
    let mut pair = up(NETWORK, 5);
    pair.faults = Faults {
        duplicate: 0.3,
        reorder: 0.3,
        ..Faults::default()
    };
    for number in 0..200 {
        pair.ends[0].send(B, &LOW, &numbered(number, 9000)).unwrap();
        pair.run(Duration::from_millis(1));
    }
    assert_eq!(check_arrivals(&pair).len(), 200);
    assert_eq!(pair.ends[1].core.counters().best_effort_lost, 0);
    assert!(drops(&pair, DropReason::Duplicate) > 100);
    pair.assert_clean();
}

// P7.8
#[test]
fn incomplete_message_expires_and_frees_its_memory() {
    let mut pair = up(&[LinkId::UDP], 6);
    for frame in frames_of(&mut pair, &LOW, &numbered(0, 20_000))
        .split_last()
        .unwrap()
        .1
    {
        receive(&mut pair, frame);
    }
    assert!(pair.ends[1].core.usage().1 > 0);
    pair.run(Duration::from_millis(99));
    assert!(pair.ends[1].core.usage().1 > 0);
    assert_eq!(drops(&pair, DropReason::BestEffortIncomplete), 0);
    pair.run(Duration::from_millis(100));
    assert_eq!(drops(&pair, DropReason::BestEffortIncomplete), 1);
    pair.assert_clean();
}

// P7.8
#[test]
fn expiry_waits_for_frames_unread_in_the_link() {
    let mut pair = up(&[LinkId::UDP], 7);
    let frames = frames_of(&mut pair, &LOW, &numbered(0, 20_000));
    receive(&mut pair, &frames[0]);
    // The program computes for a second. Its timer runs before it has read the rest.
    pair.now = pair.now + Duration::from_secs(1);
    let now = pair.now;
    pair.ends[1].core.begin_poll_gap(now);
    pair.ends[1].core.handle_timeout(now);
    for frame in &frames[1..] {
        receive(&mut pair, frame);
    }
    pair.ends[1].core.end_poll_gap(now);
    assert_eq!(check_arrivals(&pair), [0]);
}

/// The process polls its links at each timer, and each time later than due.
#[test]
fn sleeping_process_expires_incomplete_messages() {
    let mut pair = up(&[LinkId::UDP], 18);
    let frames = frames_of(&mut pair, &LOW, &numbered(0, 20_000));
    receive(&mut pair, &frames[0]);
    for wake_up in 1..=2 {
        let core = &mut pair.ends[1].core;
        pair.now = core.poll_timeout();
        core.begin_poll_gap(pair.now);
        core.handle_timeout(pair.now);
        core.end_poll_gap(pair.now);
        let dropped = drops(&pair, DropReason::BestEffortIncomplete);
        assert_eq!(dropped, wake_up / 2);
    }
    pair.run(Duration::from_millis(1));
    pair.assert_clean();
}

// P7.8
#[test]
fn fifth_incomplete_message_evicts_the_first() {
    let mut pair = up(&[LinkId::UDP], 8);
    let all: Vec<_> = (0..5)
        .map(|number| frames_of(&mut pair, &LOW, &numbered(number, 5000)))
        .collect();
    all.iter().for_each(|frames| receive(&mut pair, &frames[0]));
    assert_eq!(drops(&pair, DropReason::BestEffortIncomplete), 1);
    for frames in &all {
        frames[1..]
            .iter()
            .for_each(|frame| receive(&mut pair, frame));
    }
    assert_eq!(check_arrivals(&pair), [1, 2, 3, 4]);
    // The rest of the first arrived too late to be distinguished from duplicates.
    assert_eq!(drops(&pair, DropReason::Duplicate), 3);
    pair.run(Duration::from_millis(1));
    pair.assert_clean();
}

// P7.3
#[test]
fn complete_message_without_buffer_is_dropped_and_counted() {
    let mut pair = Pair::new(&[LinkId::UDP], 9);
    pair.run(Duration::from_millis(50));
    pair.ends[1].core.open_port(PORT, PortMode::Posted);
    pair.ends[0].send(B, &LOW, &numbered(0, 9000)).unwrap();
    pair.run(Duration::from_millis(1));
    assert_eq!(drops(&pair, DropReason::BestEffortNoBuffer), 1);
    pair.ends[1].post(PORT, 9000, None);
    pair.ends[1].post(PORT, 100, None);
    for number in 1..3 {
        pair.ends[0].send(B, &LOW, &numbered(number, 9000)).unwrap();
    }
    pair.run(Duration::from_millis(1));
    assert_eq!(check_arrivals(&pair).len(), 2);
    let error = Some(OpError::Truncated { message_len: 9000 });
    assert_eq!(pair.ends[1].got[1].error, error);
    pair.assert_clean();
}

/// `P7.3` drops a message without a buffer. A waiting receive is a buffer, even if it is not
/// posted.
#[test]
fn waiting_receive_gets_a_message_of_several_frames() {
    for (room, expected) in [(9000, 1), (8999, 0)] {
        let mut pair = Pair::new(&[LinkId::UDP], 10);
        pair.run(Duration::from_millis(50));
        pair.ends[1].core.open_port(PORT, PortMode::Posted);
        let frames = frames_of(&mut pair, &LOW, &numbered(7, 9000));
        let recv = WaitingRecv {
            filter: RecvFilter::Port(PORT, None),
            len: room,
        };
        for frame in &frames {
            let end = &mut pair.ends[1];
            let mut admitted = end.core.admit(pair.now, LinkId::UDP, frame).unwrap();
            assert!(
                end.core
                    .take_message(&mut admitted, frame, Some(&recv))
                    .is_none()
            );
            end.core.handle_rest(pair.now, &admitted, frame);
            end.drain(frame);
        }
        // The next posted receive takes it.
        assert_eq!(pair.ends[1].core.is_quiet(&recv.filter), expected == 0);
        let op = pair.ends[1].post(PORT, room, None);
        pair.ends[1].drain(&[]);
        assert_eq!(check_arrivals(&pair).len(), expected);
        let dropped = drops(&pair, DropReason::BestEffortNoBuffer);
        assert_eq!(dropped, 1 - expected as u64);
        pair.ends[1].core.cancel_recv(PORT, op);
        pair.ends[1].memory.clear();
        pair.run(Duration::from_millis(1));
        pair.assert_clean();
    }
}

// P7.5
#[test]
fn long_or_lossless_best_effort_is_sent_reliably() {
    for (links, len) in [(NETWORK, LONGEST + 1), (&[LinkId::SHM][..], 9000)] {
        let mut pair = Pair::new(links, 11);
        pair.ends[1].core.connect(pair.now, A);
        pair.run(Duration::from_millis(50));
        // Nothing is posted: reliable messages wait.
        pair.ends[1].core.open_port(PORT, PortMode::Posted);
        pair.faults.drop = 0.05;
        pair.ends[0].send(B, &LOW, &numbered(0, len)).unwrap();
        pair.run(Duration::from_millis(50));
        pair.ends[1].post(PORT, len, None);
        pair.run(Duration::from_millis(200));
        assert_eq!(check_arrivals(&pair), [0]);
    }
}

// P7.6
#[test]
fn messages_wait_for_a_full_link_and_then_for_room() {
    let mut pair = up(&[LinkId::UDP], 12);
    let core = &mut pair.ends[0].core;
    let mut count = 0;
    while let Ok(mut staging) = core.eager(B, &LOW, LONGEST) {
        staging.push(&numbered(count, LONGEST));
        count += 1;
    }
    assert_eq!(count, 16);
    // Refuse a transmit in the middle of a message.
    assert!(core.poll_transmit(pair.now).is_some());
    assert!(core.poll_transmit(pair.now).is_some());
    core.transmit_refused();
    core.link_ready(LinkId::UDP);
    // Its first call was sent, and is lost here.
    pair.run(Duration::from_millis(1));
    assert_eq!(check_arrivals(&pair), Vec::from_iter(1..count));
    pair.ends[0].send(B, &LOW, &numbered(16, LONGEST)).unwrap();
    pair.run(Duration::from_millis(200));
    assert_eq!(check_arrivals(&pair).last(), Some(&16));
    assert_eq!(drops(&pair, DropReason::BestEffortIncomplete), 1);
    pair.assert_clean();
}

// P7.5
#[test]
fn credit_free_message_needs_only_room() {
    let reliable = SendSpec {
        best_effort: false,
        ..LOW
    };
    for len in [1000, LONGEST] {
        let mut pair = Pair::new(&[LinkId::UDP], 15);
        pair.run(Duration::from_millis(50));
        // No receive takes these, so their credit is not returned.
        for _ in 0..100 {
            while pair.ends[0].send(B, &reliable, &[1; 1000]).is_ok() {}
            pair.run(Duration::from_millis(1));
        }
        let end = &mut pair.ends[0];
        let credit = end.core.credit(B, LaneId::Low).unwrap();
        assert!(credit.limit - credit.charged < 4096, "{credit:?}");
        assert_eq!(end.send(B, &reliable, &[1; 1000]), Err(Refused::Busy));
        while end.send(B, &LOW, &numbered(1, len)).is_ok() {}
        while end.core.poll_transmit(pair.now).is_some() {}
        assert_eq!(end.core.poll_event(), Some(Event::Writable(B)));
        assert_eq!(end.send(B, &LOW, &numbered(2, len)), Ok(()));
        // The reliable one keeps waiting, without a needless notification.
        while end.core.poll_transmit(pair.now).is_some() {}
        assert_eq!(end.core.poll_event(), None);
    }
}

#[test]
fn small_messages_do_not_expire_a_long_one_of_the_burst() {
    let mut pair = up(NETWORK, 13);
    pair.ends[0].send(B, &LOW, &numbered(0, 30_000)).unwrap();
    for number in 1..200 {
        pair.ends[0].send(B, &LOW, &numbered(number, 16)).unwrap();
    }
    pair.run(Duration::from_millis(5));
    assert_eq!(check_arrivals(&pair).len(), 200);
    assert_eq!(pair.ends[1].core.counters().best_effort_lost, 0);
}

// P9.7
#[test]
fn incomplete_messages_are_dropped_with_their_peer() {
    let mut pair = up(&[LinkId::UDP], 14);
    let frames = frames_of(&mut pair, &LOW, &numbered(0, 9000));
    // Its part still waits to be placed.
    pair.ends[1]
        .core
        .handle_frame(pair.now, LinkId::UDP, &frames[0]);
    pair.ends[1].core.fail_peer(A, Cause::NoPath);
    pair.ends[1].drain(&frames[0]);
    assert_eq!(pair.ends[1].core.usage(), (0, 0, 0));
    assert_eq!(drops(&pair, DropReason::BestEffortIncomplete), 1);
    // Waiting frames of the side that gives up are freed, too.
    pair.ends[0].send(B, &LOW, &numbered(1, 9000)).unwrap();
    pair.ends[0].core.fail_peer(B, Cause::NoPath);
    assert_eq!(pair.ends[0].core.usage(), (0, 0, 0));
}

// P6.2, P7.6
#[test]
fn oversized_frames_are_lost_after_mtu_drop() {
    let mut pair = up(&[LinkId::UDP], 15);
    pair.ends[0].send(B, &LOW, &numbered(0, 9000)).unwrap();
    let slots = |pair: &Pair| pair.ends[0].core.usage().0;
    assert_eq!(slots(&pair), 1);
    pair.ends[0].core.move_frames(B, LinkId::UDP, 600);
    assert_eq!(slots(&pair), 0);
    pair.ends[0].send(B, &LOW, &numbered(1, 9000)).unwrap();
    pair.run(Duration::from_millis(1));
    assert_eq!(check_arrivals(&pair), [1]);
    assert_eq!(pair.ends[1].core.counters().best_effort_lost, 1);
}

fn part(number: u32, len: usize, message_len: u32, offset: u32) -> BestEffortPart {
    BestEffortPart {
        lane: LaneId::Low,
        system: false,
        port: 5,
        len: len.try_into().unwrap(),
        message_len,
        offset,
        number,
    }
}

fn record(part: &BestEffortPart) -> Vec<u8> {
    let mut bytes = vec![part.number.to_le_bytes()[0]; BEST_EFFORT_PART_LEN + part.len as usize];
    part.emit(&mut bytes);
    bytes
}

/// Returns connected ends, the first with a handler at the port; the second will misbehave.
fn suspected(seed: u64) -> Pair {
    let mut pair = Pair::new(&[LinkId::UDP], seed);
    pair.run(Duration::from_millis(50));
    pair.ends[0].core.open_port(PORT, PortMode::InPlace);
    pair
}

// P1.7, P1.8, P7.7, P7.8
#[test]
fn parts_that_contradict_their_message_are_dropped_and_counted() {
    let mut pair = suspected(16);
    let mut probe = FrameProbe::new(&mut pair);
    let mut inject = |pair: &mut Pair, part: BestEffortPart| {
        let frame = probe.next(&record(&part));
        receive_at(pair, 0, &frame);
    };
    inject(&mut pair, part(0, 100, 1000, 0));
    // Another length, another port, and longer than allowed: all are rejected.
    inject(&mut pair, part(0, 100, 1001, 100));
    inject(
        &mut pair,
        BestEffortPart {
            port: 6,
            ..part(0, 100, 1000, 100)
        },
    );
    inject(&mut pair, part(1, 100, 64 * 1024 + 1, 0));
    inject(&mut pair, part(2, 100, u32::MAX, u32::MAX - 100));
    assert_eq!(drops_at(&pair, 0, DropReason::BadFragment), 4);
    // Repeated and overlapping: bytes count once.
    inject(&mut pair, part(0, 100, 1000, 0));
    assert_eq!(drops_at(&pair, 0, DropReason::Duplicate), 1);
    inject(&mut pair, part(0, 500, 1000, 50));
    inject(&mut pair, part(0, 450, 1000, 549));
    assert!(pair.ends[0].got.is_empty());
    inject(&mut pair, part(0, 2, 1000, 998));
    assert_eq!(pair.ends[0].got[0].bytes, [0; 1000]);
    // A number far ahead counts the ones before it as lost; one behind it is too late.
    inject(&mut pair, part(1 << 30, 10, 1000, 0));
    inject(&mut pair, part(1, 10, 1000, 0));
    assert_eq!(drops_at(&pair, 0, DropReason::Duplicate), 2);
    pair.run(Duration::from_millis(101));
    assert_eq!(pair.ends[0].core.usage(), (0, 0, 0));
}

// P1.8, P3.10, P7.8
#[test]
fn incomplete_messages_take_bounded_memory() {
    let mut pair = suspected(17);
    let mut probe = FrameProbe::new(&mut pair);
    for number in 0..1000 {
        for lane in LaneId::ALL {
            let part = BestEffortPart {
                lane,
                ..part(number, 1, 64 * 1024, 7)
            };
            let frame = probe.next(&record(&part));
            receive_at(&mut pair, 0, &frame);
            assert!(pair.ends[0].core.usage().1 <= 8 * 66 * 1024);
        }
    }
    assert_eq!(
        drops_at(&pair, 0, DropReason::BestEffortIncomplete),
        2 * 996
    );
    pair.run(Duration::from_millis(101));
    assert_eq!(drops_at(&pair, 0, DropReason::BestEffortIncomplete), 2000);
    assert_eq!(pair.ends[0].core.usage(), (0, 0, 0));
}
