// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages of the plain space are delivered in the order of sending, although their bytes arrive
//! in another order (`P11.10`).

extern crate std;

use super::pair::*;
use crate::*;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

const MS: Duration = Duration::from_millis(1);
const COUNT: u64 = 60;

const ANY: Selector = Selector {
    space: Space::Plain,
    tag: 0,
    ignore: 0,
    source: None,
};

fn spec(space: Space, number: u64) -> SendSpec {
    let match_bits = MatchBits {
        space,
        tag: 0,
        imm: Some(number),
    };
    SendSpec {
        to: match_bits.into(),
        lane: LaneId::Low,
        best_effort: false,
    }
}

fn pattern(number: u64, len: usize) -> Vec<u8> {
    let byte = |at: usize| (at as u64 * 31 + number * 17).to_le_bytes()[0];
    (0..len).map(byte).collect()
}

/// Time and number of the receiver's buffers.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Posting {
    Before,
    After,
    OneForAll,
}

/// Draws the length of each message, and whether a short one is sent by rendezvous.
fn draw(seed: u64) -> Vec<(usize, bool)> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let lens = [1, 88, 144, 3_000, 20_000, 70_000, 300_000];
    let draw = |_| (lens[rng.random_range(0..lens.len())], rng.random_bool(0.5));
    (0..COUNT).map(draw).collect()
}

fn pair(links: &[LinkId], seed: u64) -> Pair {
    let mut pair = Pair::new(links, seed);
    pair.ends[1].core.connect(pair.now, A);
    for end in &mut pair.ends {
        end.core.shared_mut().ctx.limits_mut().stream = StreamUse::Auto;
        end.core.set_buffer_len(LinkId::STREAM, 4 << 20);
    }
    pair.run(50 * MS);
    pair
}

fn post(end: &mut End, posting: Posting, messages: &[(usize, bool)]) {
    match posting {
        Posting::OneForAll => {
            let len = messages.iter().map(|(len, _)| len).sum::<usize>();
            let op = end.op(vec![0xa5; len]);
            end.core.post_many(&ANY, op, len as u64, 0);
        }
        Posting::Before | Posting::After => {
            for &(len, _) in messages {
                end.post_tagged(&ANY, len);
            }
        }
    }
}

fn send_all(pair: &mut Pair, messages: &[(usize, bool)]) {
    for (number, &(len, asks)) in (0..).zip(messages) {
        let (bytes, spec) = (pattern(number, len), spec(Space::Plain, number));
        for attempt in 0.. {
            let end = &mut pair.ends[0];
            let sent = match asks {
                true => end.send_rendezvous(B, &spec, &bytes),
                false => end.send(B, &spec, &bytes),
            };
            match sent {
                Ok(()) => break,
                Err(refused) => assert_eq!(refused, Refused::Busy),
            }
            assert!(attempt < 1_000, "there is never room");
            pair.run(MS);
        }
    }
}

fn assert_in_order(pair: &Pair, messages: &[(usize, bool)], what: &str) {
    let got = &pair.ends[1].got_tagged;
    let numbers: Vec<_> = got.iter().filter_map(|got| got.match_bits.imm).collect();
    assert_eq!(numbers, Vec::from_iter(0..COUNT), "{what}");
    for ((number, got), (len, _)) in (0..).zip(got).zip(messages) {
        assert!(
            got.bytes == pattern(number, *len),
            "{what}: {number} differs"
        );
    }
}

// P11.10
#[test]
fn plain_messages_are_delivered_in_the_order_of_sending() {
    let network: &[LinkId] = &[LinkId::UDP, LinkId::PACKET];
    let cases = [(network, 0.0), (network, 0.05), (&[LinkId::SHM], 0.0)];
    for posting in [Posting::Before, Posting::After, Posting::OneForAll] {
        for (links, loss) in cases {
            for seed in 0..4 {
                let (messages, mut pair) = (draw(seed), pair(links, seed));
                if links == network {
                    pair.open_stream();
                }
                (pair.faults.drop, pair.faults.reorder) = (loss, loss);
                if posting != Posting::After {
                    post(&mut pair.ends[1], posting, &messages);
                }
                send_all(&mut pair, &messages);
                if posting == Posting::After {
                    pair.run(50 * MS);
                    post(&mut pair.ends[1], posting, &messages);
                }
                pair.run(2_000 * MS);
                let what = std::format!("{posting:?}, {links:?}, loss {loss}, seed {seed}");
                assert_in_order(&pair, &messages, &what);
            }
        }
    }
}

/// Returns a pair with a long plain message in flight, which has matched the first of `count`
/// receives.
fn with_transfer_under_way(count: usize) -> Pair {
    let mut pair = pair(&[LinkId::UDP], 1);
    for _ in 0..count {
        pair.ends[1].post_tagged(&ANY, 100_000);
    }
    // Its fragments are dropped until the test removes the limit.
    pair.narrow = Some((LinkId::UDP, 1_000));
    let long = pattern(0, 100_000);
    pair.ends[0]
        .send_rendezvous(B, &spec(Space::Plain, 0), &long)
        .unwrap();
    pair.run(MS / 4);
    pair
}

fn numbers_got(pair: &Pair) -> Vec<Option<u64>> {
    let got = pair.ends[1].got_tagged.iter();
    got.map(|got| got.match_bits.imm).collect()
}

// P11.4, P11.10
#[test]
fn tagged_messages_do_not_wait_for_a_plain_one() {
    let mut pair = with_transfer_under_way(2);
    let tagged = Selector {
        space: Space::Tagged,
        ..ANY
    };
    pair.ends[1].post_tagged(&tagged, 100);
    let end = &mut pair.ends[0];
    end.send(B, &spec(Space::Plain, 1), &[1; 100]).unwrap();
    end.send(B, &spec(Space::Tagged, 2), &[2; 100]).unwrap();
    pair.run(MS / 4);
    assert_eq!(numbers_got(&pair), [Some(2)]);
    pair.narrow = None;
    pair.run(2_000 * MS);
    assert_eq!(numbers_got(&pair), [Some(2), Some(0), Some(1)]);
    pair.assert_clean();
}

// P11.10
#[test]
fn held_message_waits_for_earlier_delivery() {
    let mut pair = with_transfer_under_way(1);
    let spec = spec(Space::Plain, 1);
    pair.ends[0].send(B, &spec, &[7; 100]).unwrap();
    pair.run(MS / 4);
    assert!(!pair.ends[1].core.has_event());
    assert!(pair.ends[1].core.take_held_tagged(&ANY, 100).is_none());
    pair.narrow = None;
    pair.run(2_000 * MS);
    assert_eq!(numbers_got(&pair), [Some(0)]);
    let core = &mut pair.ends[1].core;
    let (_, held) = core.take_held_tagged(&ANY, 100).unwrap();
    assert_eq!(core.held(held), [7; 100]);
    core.release(held);
}

// P11.10, P9.7
#[test]
fn complete_messages_are_delivered_when_the_sender_fails() {
    let mut pair = with_transfer_under_way(3);
    for number in 1..3 {
        let spec = spec(Space::Plain, number);
        pair.ends[0].send(B, &spec, &[7; 100]).unwrap();
    }
    pair.run(MS / 4);
    assert_eq!(numbers_got(&pair), []);
    pair.ends[1].core.fail_peer(A, Cause::ProcessExited);
    pair.ends[1].drain(&[]);
    assert_eq!(numbers_got(&pair), [Some(1), Some(2)]);
    assert!(
        pair.ends[1]
            .got_tagged
            .iter()
            .all(|got| got.bytes == [7; 100])
    );
    let failed = pair.ends[1].failed.iter();
    let receives = failed.filter(|event| matches!(event, Event::RecvFailed { .. }));
    assert_eq!(receives.count(), 1);
    assert_eq!(pair.ends[1].core.usage(), (0, 0, 0));
}

// P11.5, P11.10
#[test]
fn unexpected_message_is_truncated_to_its_buffer() {
    let mut pair = with_transfer_under_way(1);
    pair.ends[1].post_tagged(&ANY, 60);
    let spec = spec(Space::Plain, 1);
    pair.ends[0].send(B, &spec, &[7; 100]).unwrap();
    pair.run(MS / 4);
    pair.narrow = None;
    pair.run(2_000 * MS);
    let got = &pair.ends[1].got_tagged[1];
    assert_eq!((got.bytes.as_slice(), got.truncated), (&[7; 60][..], true));
}
