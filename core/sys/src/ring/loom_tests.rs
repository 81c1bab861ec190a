// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ring's protocol under loom: every interleaving and every stale value that the orderings allow.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p portolan-sys --lib --release`.
#![cfg(loom)]

use super::memory::RingMemory;
use super::{Bell, Helped, PushError, RingReceiver, RingSender};
use crate::barrier;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;

/// Eight words. An entry has one word; three entries fill the ring except the zero word behind
/// them.
const RING_LEN: usize = 64;

fn pair() -> (RingSender, RingReceiver) {
    let memory = RingMemory::model(RING_LEN);
    (RingSender::new(memory.clone()), RingReceiver::new(memory))
}

fn pop(receiver: &mut RingReceiver) -> Option<u64> {
    let entry = receiver.peek().unwrap()?;
    let mut frame = [0; 8];
    entry.copy_to(0, &mut frame);
    let _ = receiver.consume(8);
    Some(u64::from_ne_bytes(frame))
}

#[test]
fn frames_arrive_complete_and_in_order_across_a_lap() {
    loom::model(|| {
        let (mut sender, mut receiver) = pair();
        // Half a lap in advance, so that the threads reach the wrap.
        for number in 1..3 {
            let _ = sender.push(&u64::to_ne_bytes(number), &[]).unwrap();
            assert_eq!(pop(&mut receiver), Some(number));
        }
        let producer = thread::spawn(move || {
            for number in 3..6 {
                match sender.push(&u64::to_ne_bytes(number), &[]) {
                    Ok(_) => {}
                    Err(PushError::Full) => return number,
                    Err(other) => panic!("{other}"),
                }
            }
            6
        });
        let mut next = 3;
        for _ in 0..3 {
            if let Some(number) = pop(&mut receiver) {
                assert_eq!(number, next);
                next += 1;
            }
        }
        let end = producer.join().unwrap();
        while let Some(number) = pop(&mut receiver) {
            assert_eq!(number, next);
            next += 1;
        }
        assert_eq!(next, end);
    });
}

#[test]
fn space_is_reused_only_after_it_was_read() {
    loom::model(|| {
        let (mut sender, mut receiver) = pair();
        for number in 1..4 {
            let _ = sender.push(&u64::to_ne_bytes(number), &[]).unwrap();
        }
        let _ = sender.push(&[], &[]).unwrap();
        // The next entry overwrites the first. One push only: the fence at the end of a push would
        // order a second one after the receiver's reads, whatever the head is.
        let number = u64::to_ne_bytes(4);
        let producer = thread::spawn(move || sender.push(&number, &[]).is_ok());
        for number in 1..4 {
            assert_eq!(pop(&mut receiver), Some(number));
        }
        assert!(receiver.peek().unwrap().unwrap().is_empty());
        let _ = receiver.consume(0);
        let pushed = producer.join().unwrap();
        assert_eq!(pop(&mut receiver), pushed.then_some(4));
    });
}

#[test]
fn padding_and_frame_behind_it_appear_together() {
    loom::model(|| {
        let (mut sender, mut receiver) = pair();
        // An empty frame shifts the next entries by one word, so the fourth entry does not fit
        // before the ring's end.
        let _ = sender.push(&[], &[]).unwrap();
        assert!(receiver.peek().unwrap().unwrap().is_empty());
        let _ = receiver.consume(0);
        for number in 1..4 {
            let _ = sender.push(&u64::to_ne_bytes(number), &[]).unwrap();
            assert_eq!(pop(&mut receiver), Some(number));
        }
        let producer = thread::spawn(move || sender.push(&u64::to_ne_bytes(4), &[]).unwrap());
        let early = pop(&mut receiver);
        let _ = producer.join().unwrap();
        assert_eq!(early.or_else(|| pop(&mut receiver)), Some(4));
    });
}

#[test]
fn sleeping_receiver_is_rung_or_has_seen_the_frame() {
    loom::model(|| {
        let (mut sender, mut receiver) = pair();
        let rung = Arc::new(AtomicBool::new(false));
        let bell = rung.clone();
        let producer = thread::spawn(move || {
            if sender.push(&u64::to_ne_bytes(1), &[]).unwrap() == Bell::Ring {
                bell.store(true, Ordering::SeqCst);
            }
        });
        receiver.arm();
        let _ = barrier::heavy();
        let seen = receiver.has_entry();
        producer.join().unwrap();
        assert!(
            seen || rung.load(Ordering::SeqCst),
            "slept through a wake-up"
        );
    });
}

#[test]
fn sleeping_sender_is_rung_or_has_seen_the_space() {
    loom::model(|| {
        let (mut sender, mut receiver) = pair();
        for number in 1..4 {
            let _ = sender.push(&u64::to_ne_bytes(number), &[]).unwrap();
        }
        let consumer = thread::spawn(move || {
            let _ = receiver.peek().unwrap().unwrap();
            receiver.consume(8) == Bell::Ring
        });
        sender.arm();
        barrier::full();
        let has_space = sender.has_space(8).unwrap();
        let rung = consumer.join().unwrap();
        assert!(has_space || rung, "slept through a wake-up");
    });
}

#[test]
fn shares_do_not_overlap_and_are_visible_when_reported() {
    const UNIT: usize = 64 * 1024;
    loom::model(|| {
        let (mut sender, mut receiver) = pair();
        let bytes: Arc<Vec<AtomicBool>> =
            Arc::new((0..3).map(|_| AtomicBool::new(false)).collect());
        receiver.offer(7, 0, 3 * UNIT);
        let theirs = bytes.clone();
        let helper = thread::spawn(move || {
            if let Some(claim) = sender.claim_back(7, 3 * UNIT) {
                for unit in claim.bytes.start / UNIT..claim.bytes.end / UNIT {
                    assert!(!theirs[unit].load(Ordering::Relaxed));
                    theirs[unit].store(true, Ordering::Relaxed);
                }
                sender.finish(&claim, true);
            }
        });
        while let Some(claim) = receiver.claim_front().unwrap() {
            for unit in claim.start / UNIT..claim.end / UNIT {
                bytes[unit].store(true, Ordering::Relaxed);
            }
        }
        receiver.withdraw_offer();
        while receiver.helped() == Helped::Busy {
            thread::yield_now();
        }
        assert!(bytes.iter().all(|unit| unit.load(Ordering::Relaxed)));
        helper.join().unwrap();
    });
}
