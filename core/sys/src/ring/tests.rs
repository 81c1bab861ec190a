// SPDX-License-Identifier: MIT OR Apache-2.0
//! Both ends of a ring in one process.
#![cfg(not(loom))]

use super::layout::{self, Word};
use super::*;
use crate::barrier;
use std::collections::VecDeque;
use std::io::IoSlice;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

const RING_LEN: usize = RING_LEN_MIN;

fn pair() -> (RingSender, RingReceiver) {
    let (sender, fd) = create(RING_LEN).unwrap();
    (sender, open(fd, RING_LEN).unwrap())
}

/// Maps the sender's memory once more, for the actions of a hostile sender.
fn hostile() -> (RingMemory, RingReceiver) {
    let (_sender, fd) = create(RING_LEN).unwrap();
    (
        RingMemory::map(&fd, RING_LEN).unwrap(),
        open(fd, RING_LEN).unwrap(),
    )
}

/// A small xorshift generator: tests need no better randomness, and its state prints as one number.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: usize) -> usize {
        layout::to_usize(self.next() % bound as u64)
    }
}

fn pop(receiver: &mut RingReceiver) -> Option<Vec<u8>> {
    let entry = receiver.peek().unwrap()?;
    let mut frame = vec![0xa5; entry.len()];
    entry.copy_to(0, &mut frame);
    let _ = receiver.consume(frame.len());
    Some(frame)
}

#[test]
fn short_frames_of_one_or_two_pieces_arrive_intact() {
    let (mut sender, mut receiver) = pair();
    let bytes: Vec<u8> = (1..=80).collect();
    for len in 0..=bytes.len() {
        for head in [0, len / 3, len] {
            let payload = [IoSlice::new(&bytes[head..len])];
            let _ = sender.push(&bytes[..head], &payload).unwrap();
            assert_eq!(
                pop(&mut receiver).unwrap(),
                &bytes[..len],
                "{head} of {len}"
            );
        }
    }
}

#[test]
fn partial_copy_writes_only_its_length() {
    let (mut sender, mut receiver) = pair();
    let bytes: Vec<u8> = (1..=80).collect();
    let _ = sender.push(&bytes, &[]).unwrap();
    let entry = receiver.peek().unwrap().unwrap();
    for len in 0..=64 {
        let mut got = [0xa5; 80];
        entry.copy_to(3, &mut got[8..8 + len]);
        assert_eq!(got[..8], [0xa5; 8]);
        assert_eq!(got[8..8 + len], bytes[3..3 + len]);
        assert!(got[8 + len..].iter().all(|byte| *byte == 0xa5), "{len}");
    }
}

#[test]
fn ring_agrees_with_a_queue() {
    let (mut sender, mut receiver) = pair();
    let mut oracle: VecDeque<Vec<u8>> = VecDeque::new();
    let mut rng = Rng(0x5eed);
    for step in 0..200_000u32 {
        if rng.below(2) == 0 {
            let max = if rng.below(4) == 0 {
                sender.frame_len_max() + 1
            } else {
                100
            };
            let frame = vec![step.to_le_bytes()[rng.below(2)]; rng.below(max)];
            let cut = rng.below(frame.len() + 1);
            let payload = [IoSlice::new(&frame[cut..])];
            let queued: usize = oracle.iter().map(|frame| 8 + frame.len()).sum();
            match sender.push(&frame[..cut], &payload) {
                Ok(_) => oracle.push_back(frame),
                Err(PushError::Full) => assert!(queued > RING_LEN / 4, "full with {queued}"),
                Err(other) => panic!("{other}"),
            }
        } else {
            assert_eq!(pop(&mut receiver), oracle.pop_front());
        }
    }
    while let Some(frame) = oracle.pop_front() {
        assert_eq!(pop(&mut receiver), Some(frame));
    }
    assert_eq!(pop(&mut receiver), None);
}

#[test]
fn longest_frame_fits_at_every_offset() {
    let (mut sender, mut receiver) = pair();
    let frame = vec![7; sender.frame_len_max()];
    for small in 0..2000 {
        let _ = sender.push(&vec![1; small % 97], &[]).unwrap();
        assert!(pop(&mut receiver).is_some());
        let _ = sender.push(&frame, &[]).unwrap();
        assert_eq!(pop(&mut receiver).unwrap(), frame);
    }
    let excess = sender.push(&frame, &[IoSlice::new(b"x")]);
    assert_eq!(excess, Err(PushError::TooLong(frame.len())));
}

#[test]
fn threads_pass_frames_in_order_and_intact() {
    const COUNT: u64 = 300_000;
    let (mut sender, mut receiver) = pair();
    let producer = thread::spawn(move || {
        for number in 0..COUNT {
            let frame = number
                .to_le_bytes()
                .repeat(1 + layout::to_usize(number % 40));
            while sender.push(&frame, &[]) == Err(PushError::Full) {
                thread::yield_now();
            }
        }
    });
    for number in 0..COUNT {
        let frame = loop {
            match pop(&mut receiver) {
                Some(frame) => break frame,
                None => thread::yield_now(),
            }
        };
        assert!(
            frame.chunks(8).all(|chunk| chunk == number.to_le_bytes()),
            "frame {number}"
        );
        assert_eq!(frame.len(), 8 * (1 + layout::to_usize(number % 40)));
    }
    producer.join().unwrap();
}

#[test]
fn bell_rings_once_per_sleep() {
    let (mut sender, mut receiver) = pair();
    assert_eq!(sender.push(b"awake", &[]), Ok(Bell::Silent));
    receiver.arm();
    assert!(receiver.has_entry());
    assert_eq!(sender.push(b"asleep", &[]), Ok(Bell::Ring));
    assert_eq!(sender.push(b"being woken", &[]), Ok(Bell::Silent));
    receiver.arm();
    receiver.disarm();
    assert_eq!(sender.push(b"awake again", &[]), Ok(Bell::Silent));
}

#[test]
fn sender_waiting_for_space_is_rung_once() {
    let (mut sender, mut receiver) = pair();
    let frame = [0; 1000];
    while sender.push(&frame, &[]).is_ok() {}
    sender.arm();
    assert!(!sender.has_space(frame.len()).unwrap());
    let mut bells = 0;
    while let Some(entry) = receiver.peek().unwrap() {
        let len = entry.len();
        bells += usize::from(receiver.consume(len) == Bell::Ring);
    }
    assert_eq!(bells, 1);
    assert!(sender.has_space(frame.len()).unwrap());
}

#[test]
fn neither_end_sleeps_through_a_wake_up() {
    // A frame bounces between two threads that sleep after each poll. A lost wake-up would stop it.
    const ROUNDS: usize = 50_000;
    let ((mut to_a, from_b), (mut to_b, from_a)) = (pair(), pair());
    let (bell_a, bell_b) = (Parking::default(), Parking::default());
    let bounce = |mut rx: RingReceiver, tx: &mut RingSender, own: &Parking, other: &Parking| {
        for _ in 0..ROUNDS {
            while pop(&mut rx).is_none() {
                rx.arm();
                let _ = barrier::heavy();
                if !rx.has_entry() {
                    own.park();
                }
                rx.disarm();
            }
            if tx.push(b"ball", &[]).unwrap() == Bell::Ring {
                other.unpark();
            }
        }
    };
    let _ = to_a.push(b"ball", &[]).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| bounce(from_b, &mut to_b, &bell_a, &bell_b));
        scope.spawn(|| bounce(from_a, &mut to_a, &bell_b, &bell_a));
    });
}

/// A bell that waits 20 s, then fails the test instead of hanging it.
#[derive(Default)]
struct Parking(std::sync::Mutex<bool>, std::sync::Condvar);

impl Parking {
    fn park(&self) {
        let patience = std::time::Duration::from_secs(20);
        let rung = self.0.lock().unwrap();
        let (mut rung, late) = self
            .1
            .wait_timeout_while(rung, patience, |rung| !*rung)
            .unwrap();
        assert!(!late.timed_out(), "slept through a wake-up");
        *rung = false;
    }

    fn unpark(&self) {
        *self.0.lock().unwrap() = true;
        self.1.notify_one();
    }
}

#[test]
fn sender_lies_are_detected() {
    let max = layout::frame_len_max(RING_LEN);
    for raw in [
        1,
        max as u64,
        u64::MAX,
        1 << 63 | (max as u64 + 1),
        Word::Padding.encode(),
    ] {
        let (memory, mut receiver) = hostile();
        memory.word(0).store(raw, Ordering::Relaxed);
        assert!(receiver.peek().is_err(), "{raw:#x}");
    }
}

#[test]
fn entry_beyond_the_end_is_detected() {
    let (memory, mut receiver) = hostile();
    let max = layout::frame_len_max(RING_LEN);
    let words = [
        Word::Frame(max),
        Word::Frame(max),
        Word::Frame(max),
        Word::Frame(0),
    ];
    for (lap, word) in (0..).zip(words) {
        memory
            .word(lap * (max as u64 + 8))
            .store(word.encode(), Ordering::Relaxed);
        let len = receiver.peek().unwrap().unwrap().len();
        let _ = receiver.consume(len);
    }
    memory
        .word(3 * (max as u64 + 8) + 8)
        .store(Word::Frame(max).encode(), Ordering::Relaxed);
    assert_eq!(
        receiver.peek().unwrap_err().0,
        "an entry extends beyond the ring's end"
    );
}

#[test]
fn receiver_lies_are_detected() {
    for head in [8u64, 1 << 40, u64::MAX] {
        let (mut sender, fd) = create(RING_LEN).unwrap();
        let memory = RingMemory::map(&fd, RING_LEN).unwrap();
        memory.head().store(head, Ordering::Relaxed);
        assert!(sender.has_space(1).is_err(), "{head:#x}");
    }
}

#[test]
fn random_bytes_never_lead_outside() {
    // A thread overwrites the whole ring while the receiver reads it. Whenever the ring breaks, it
    // is mapped again. An access outside the mapping would kill the test.
    let (sender, fd) = create(RING_LEN).unwrap();
    let memory = RingMemory::map(&fd, RING_LEN).unwrap();
    let stop = AtomicBool::new(false);
    let (frames, breaks) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        scope.spawn(|| scribble(&memory, &stop));
        for _ in 0..300_000 {
            let mut receiver = open(&fd, RING_LEN).unwrap_or_else(|_| {
                memory.initialize();
                open(&fd, RING_LEN).unwrap()
            });
            read_until_broken(&mut receiver, &frames, &breaks);
        }
        stop.store(true, Ordering::Relaxed);
    });
    drop(sender);
    assert!(frames.load(Ordering::Relaxed) > 0 && breaks.load(Ordering::Relaxed) > 0);
}

fn scribble(memory: &RingMemory, stop: &AtomicBool) {
    let mut rng = Rng(0xbad_5eed);
    while !stop.load(Ordering::Relaxed) {
        let raw = match rng.below(4) {
            0 => rng.next(),
            1 => Word::Padding.encode(),
            2 => 0,
            _ => Word::Frame(rng.below(RING_LEN / 3)).encode(),
        };
        memory
            .word(rng.next() % 4096 * (1 + rng.next() % 4))
            .store(raw, Ordering::Relaxed);
        memory.head().store(rng.next(), Ordering::Relaxed);
    }
}

fn read_until_broken(receiver: &mut RingReceiver, frames: &AtomicU64, breaks: &AtomicU64) {
    let mut frame = [0; RING_LEN];
    for _ in 0..64 {
        match receiver.peek() {
            Ok(None) => return,
            Ok(Some(entry)) => {
                let len = entry.len();
                entry.copy_to(0, &mut frame[..len]);
                frames.fetch_add(1, Ordering::Relaxed);
                let _ = receiver.consume(len);
            }
            Err(_) => {
                breaks.fetch_add(1, Ordering::Relaxed);
                return;
            }
        }
    }
}

#[test]
fn file_of_another_layout_is_refused() {
    let fd = crate::memfd::create_sealed("portolan-test", file_len(RING_LEN) as u64).unwrap();
    assert_eq!(
        open(&fd, RING_LEN).unwrap_err().to_string(),
        "ring of another layout"
    );
    assert!(open(&fd, 2 * RING_LEN).is_err());
    assert!(open(&fd, 12_345).is_err());
    assert!(open(&fd, 0).is_err());
}

// Offers.

/// Returns a ring with a message of `len` bytes offered by its receiver.
fn offered(len: usize) -> (RingSender, RingReceiver) {
    let (sender, fd) = create(RING_LEN).unwrap();
    let mut receiver = open(&fd, RING_LEN).unwrap();
    assert_eq!(sender.offered(), None);
    receiver.offer(4096, 1 << 20, len);
    assert_eq!(sender.offered(), Some(4096));
    (sender, receiver)
}

#[test]
fn each_byte_of_an_offer_is_claimed_once() {
    for len in [OFFER_LEN_MIN, OFFER_LEN_MIN + 1, 1_000_000, 5 << 30] {
        for turns in 0..16_u32 {
            let (mut sender, mut receiver) = offered(len);
            let (mut front, mut back) = (0, len);
            loop {
                // The bits of `turns` choose the next claimant, repeatedly.
                let mut is_over = true;
                for bit in 0..4 {
                    if turns >> bit & 1 == 1 {
                        let Some(claim) = sender.claim_back(4096, len) else {
                            continue;
                        };
                        assert_eq!((claim.bytes.end, claim.bytes.is_empty()), (back, false));
                        assert_eq!(claim.target, (1 << 20) + claim.bytes.start as u64);
                        back = claim.bytes.start;
                        sender.finish(&claim, true);
                    } else {
                        let Some(bytes) = receiver.claim_front().unwrap() else {
                            continue;
                        };
                        assert_eq!((bytes.start, bytes.is_empty()), (front, false));
                        front = bytes.end;
                    }
                    is_over = false;
                }
                if is_over {
                    break;
                }
            }
            assert_eq!(receiver.claim_front(), Ok(None));
            assert_eq!((front, receiver.helped()), (back, Helped::From(front)));
            assert_eq!(sender.offered(), None);
        }
    }
}

#[test]
fn begun_share_is_awaited_and_unclaimed_share_is_withdrawn() {
    let (mut sender, mut receiver) = offered(1 << 20);
    let claim = sender.claim_back(4096, 1 << 20).unwrap();
    receiver.withdraw_offer();
    assert_eq!((sender.offered(), receiver.helped()), (None, Helped::Busy));
    assert!(sender.claim_back(4096, 1 << 20).is_none());
    assert_eq!(receiver.claim_front().ok(), None, "it is over");
    sender.finish(&claim, true);
    assert_eq!(receiver.helped(), Helped::From(claim.bytes.start));
    // A count of an earlier offer does not apply to the next.
    receiver.offer(4096, 0, 1 << 20);
    let late = sender.claim_back(4096, 1 << 20).unwrap();
    while receiver.claim_front().unwrap().is_some() {}
    assert_eq!(receiver.helped(), Helped::Busy);
    sender.finish(&late, true);
    assert_eq!(receiver.helped(), Helped::From(late.bytes.start));
}

#[test]
fn failed_sender_reports_it_and_claims_no_more() {
    let (mut sender, mut receiver) = offered(1 << 20);
    let first = sender.claim_back(4096, 1 << 20).unwrap();
    sender.finish(&first, true);
    let second = sender.claim_back(4096, 1 << 20).unwrap();
    sender.finish(&second, false);
    assert_eq!(sender.offered(), None);
    while receiver.claim_front().unwrap().is_some() {}
    assert_eq!(receiver.helped(), Helped::NotFrom(second.bytes.start));
    receiver.offer(4096, 0, 1 << 20);
    assert!(sender.claim_back(4096, 1 << 20).is_none());
}

#[test]
fn offers_that_do_not_match_the_message_are_ignored() {
    let (mut sender, mut receiver) = offered(1 << 20);
    assert!(sender.claim_back(8192, 1 << 20).is_none());
    assert!(sender.claim_back(4096, (1 << 20) - 1).is_none());
    assert!(sender.claim_back(4096, 2 << 20).is_some(), "it is cut off");
    receiver.withdraw_offer();
    assert!(sender.claim_back(4096, 1 << 20).is_none());
}

// P8.7
#[test]
fn invalid_claims_break_the_ring_and_stay_in_bounds() {
    let good = 1 << 32 | 16;
    for word in [
        0,
        u64::MAX,
        2 << 32 | 16,
        good + 1,
        good | 1 << 16,
        1 << 32 | 9 << 16 | 3,
    ] {
        let (sender, mut receiver) = offered(1 << 20);
        sender.memory.offer().store(word, Ordering::Relaxed);
        assert!(receiver.claim_front().is_err(), "{word:#x}");
        receiver.withdraw_offer();
        match receiver.helped() {
            Helped::From(begin) | Helped::NotFrom(begin) => assert!(begin <= 1 << 20),
            Helped::Busy => {}
        }
    }
    // Whatever the receiver writes there, the sender stays within its message.
    let (mut sender, receiver) = offered(1 << 20);
    let mut rng = Rng(9);
    for _ in 0..100_000 {
        let memory = &receiver.memory;
        memory.offer().store(rng.next(), Ordering::Relaxed);
        for field in memory.offer_fields() {
            let value = rng.next() >> rng.below(64);
            field.store(value, Ordering::Relaxed);
        }
        let source = memory.offer_fields()[0].load(Ordering::Relaxed);
        if let Some(claim) = sender.claim_back(source, 1 << 20) {
            assert!(claim.bytes.end <= 1 << 20 && !claim.bytes.is_empty());
        }
    }
}
