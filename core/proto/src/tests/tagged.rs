// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tagged messages match as in a plain list, and none is lost, stuck or leaked.

use super::pair::*;
use crate::*;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

const NETWORK: &[LinkId] = &[LinkId::UDP, LinkId::PACKET];
const SHARED: &[LinkId] = &[LinkId::SHM];
/// Lengths that fit a frame, that need a run of fragments (on shared memory a frame), and that need
/// a rendezvous.
const LENS: [usize; 4] = [0, 60, 9000, 90_000];

fn match_bits(tag: u64) -> MatchBits {
    MatchBits {
        space: Space::Tagged,
        tag,
        imm: None,
    }
}

fn spec(match_bits: MatchBits) -> SendSpec {
    SendSpec {
        to: match_bits.into(),
        lane: LaneId::Low,
        best_effort: false,
    }
}

fn exact(tag: u64) -> Selector {
    Selector {
        space: Space::Tagged,
        tag,
        ignore: 0,
        source: None,
    }
}

fn any() -> Selector {
    Selector {
        ignore: u64::MAX,
        ..exact(0)
    }
}

fn pattern(salt: u64, len: usize) -> Vec<u8> {
    (0..len as u64)
        .map(|at| (at.wrapping_mul(31) ^ salt.wrapping_mul(0x9e37_79b9)).to_le_bytes()[0])
        .collect()
}

/// Returns two ends with an open session.
fn ready(links: &[LinkId], seed: u64) -> Pair {
    let mut pair = Pair::new(links, seed);
    pair.ends[1].core.connect(pair.now, A);
    pair.run(Duration::from_millis(20));
    pair
}

fn send(pair: &mut Pair, match_bits: MatchBits, bytes: &[u8]) {
    pair.ends[0].send(B, &spec(match_bits), bytes).unwrap();
}

/// Returns (operation, tag) of the messages that end 1 received since the last call.
fn take_got(pair: &mut Pair) -> Vec<(OpId, u64)> {
    let got = core::mem::take(&mut pair.ends[1].got_tagged);
    got.iter().map(|got| (got.op, got.match_bits.tag)).collect()
}

// P11.1, P11.2
#[test]
fn all_lengths_carry_their_match_bits() {
    for links in [NETWORK, SHARED] {
        for early in [true, false] {
            let mut pair = ready(links, 1);
            for (salt, len) in (0..).zip(LENS) {
                for (space, imm) in [(Space::Tagged, None), (Space::Plain, Some(!salt))] {
                    let tag = if space == Space::Plain { 0 } else { salt + 7 };
                    let match_bits = MatchBits { space, tag, imm };
                    let selector = Selector {
                        space,
                        source: Some(A),
                        ..exact(tag)
                    };
                    if early {
                        pair.ends[1].post_tagged(&selector, len + 3);
                    }
                    send(&mut pair, match_bits, &pattern(salt, len));
                    pair.run(Duration::from_millis(20));
                    if !early {
                        assert_eq!(pair.ends[1].got_tagged, []);
                        pair.ends[1].post_tagged(&selector, len + 3);
                        pair.run(Duration::from_millis(20));
                    }
                    let got = pair.ends[1].got_tagged.pop().unwrap();
                    assert_eq!((got.from, got.match_bits, got.len), (A, match_bits, len));
                    assert!(got.bytes == pattern(salt, len) && !got.truncated);
                }
            }
            pair.run(Duration::from_secs(1));
            pair.assert_clean();
        }
    }
}

// P11.2
#[test]
fn receives_match_in_the_order_of_posting() {
    let mut pair = ready(NETWORK, 2);
    let end = &mut pair.ends[1];
    let masked = Selector {
        ignore: 0xff,
        ..exact(0x1200)
    };
    let first = end.post_tagged(&exact(0x1201), 9);
    let second = end.post_tagged(&masked, 9);
    let third = end.post_tagged(&exact(0x1201), 9);
    let fourth = end.post_tagged(&any(), 9);
    for tag in [0x1201, 0x1201, 0x1201, 0x1201] {
        send(&mut pair, match_bits(tag), b"x");
    }
    pair.run(Duration::from_millis(1));
    let ops: Vec<_> = take_got(&mut pair).into_iter().map(|got| got.0).collect();
    assert_eq!(ops, [first, second, third, fourth]);
    pair.run(Duration::from_secs(1));
    pair.assert_clean();
}

// P11.3
#[test]
fn unexpected_messages_match_in_arrival_order() {
    let mut pair = ready(NETWORK, 3);
    for tag in [5, 6, 5, 7, 6] {
        send(&mut pair, match_bits(tag), b"x");
    }
    pair.run(Duration::from_millis(1));
    let selectors = [exact(6), any(), any(), exact(6), any(), any()];
    let ops = selectors.map(|selector| pair.ends[1].post_tagged(&selector, 9));
    pair.run(Duration::from_millis(1));
    let expected = [
        (ops[0], 6),
        (ops[1], 5),
        (ops[2], 5),
        (ops[3], 6),
        (ops[4], 7),
    ];
    assert_eq!(take_got(&mut pair), expected);
    assert!(pair.ends[1].core.cancel_tagged(ops[5]));
    assert!(!pair.ends[1].core.cancel_tagged(ops[5]));
    pair.ends[1].memory.clear();
    pair.run(Duration::from_secs(1));
    pair.assert_clean();
}

// P11.2
#[test]
fn spaces_and_ports_match_independently() {
    let mut pair = ready(SHARED, 4);
    let port = PortId::user(0);
    let plain = Selector {
        space: Space::Plain,
        ..any()
    };
    let at_port = pair.ends[1].post(port, 9, None);
    let in_plain = pair.ends[1].post_tagged(&plain, 9);
    send(&mut pair, match_bits(0), b"tagged");
    pair.run(Duration::from_millis(1));
    assert_eq!(take_got(&mut pair), []);
    let in_tagged = pair.ends[1].post_tagged(&any(), 9);
    pair.run(Duration::from_millis(1));
    assert_eq!(take_got(&mut pair), [(in_tagged, 0)]);
    assert!(pair.ends[1].core.cancel_recv(port, at_port));
    assert!(pair.ends[1].core.cancel_tagged(in_plain));
}

// P11.4
#[test]
fn long_message_does_not_block_later_ones() {
    let mut pair = ready(&[LinkId::UDP], 5);
    let long = pair.ends[1].post_tagged(&exact(1), 4_000_000);
    let short = pair.ends[1].post_tagged(&exact(2), 10);
    send(&mut pair, match_bits(1), &pattern(1, 4_000_000));
    send(&mut pair, match_bits(2), b"short");
    pair.run(Duration::from_micros(30));
    assert_eq!(take_got(&mut pair), [(short, 2)]);
    pair.run(Duration::from_secs(2));
    assert_eq!(take_got(&mut pair), [(long, 1)]);
    pair.assert_clean();
}

// P11.5
#[test]
fn too_long_message_is_truncated_with_an_error() {
    for links in [NETWORK, SHARED] {
        for early in [true, false] {
            for len in [60, 9000, 90_000] {
                let mut pair = ready(links, 6);
                if early {
                    pair.ends[1].post_tagged(&exact(1), 50);
                }
                send(&mut pair, match_bits(1), &pattern(3, len));
                pair.run(Duration::from_millis(20));
                if !early {
                    pair.ends[1].post_tagged(&exact(1), 50);
                    pair.run(Duration::from_secs(1));
                }
                let got = &pair.ends[1].got_tagged[0];
                assert!(got.truncated && got.len == len);
                assert_eq!(got.bytes, pattern(3, len)[..50]);
                pair.run(Duration::from_secs(1));
                pair.assert_clean();
            }
        }
    }
}

// P11.3
#[test]
fn peek_keeps_a_message_and_claim_takes_it() {
    for len in [30, 90_000] {
        let mut pair = ready(NETWORK, 7);
        send(&mut pair, match_bits(1), &pattern(1, len));
        send(&mut pair, match_bits(1), &pattern(2, len));
        assert_eq!(pair.ends[1].core.peek_tagged(&any()), None);
        pair.run(Duration::from_millis(20));
        let core = &mut pair.ends[1].core;
        let envelope = core.peek_tagged(&exact(1)).unwrap();
        assert_eq!(core.peek_tagged(&any()), Some(envelope));
        assert_eq!(core.peek_tagged(&exact(2)), None);
        let (claim, claimed) = core.claim_tagged(&any()).unwrap();
        assert_eq!(claimed, envelope);
        let (peer, expected) = (A, match_bits(1));
        assert_eq!((claimed.peer, claimed.match_bits), (peer, expected));
        assert_eq!(claimed.len, len as u64);
        // Another receive gets the second one.
        let second = pair.ends[1].post_tagged(&any(), len);
        pair.run(Duration::from_secs(1));
        let first = pair.ends[1].op(vec![0xa5; len]);
        let core = &mut pair.ends[1].core;
        assert!(core.recv_claimed(claim, first, len as u64));
        assert!(!core.recv_claimed(claim, first, len as u64));
        pair.run(Duration::from_secs(1));
        let got = core::mem::take(&mut pair.ends[1].got_tagged);
        assert_eq!([got[0].op, got[1].op], [second, first]);
        assert!(got[0].bytes == pattern(2, len) && got[1].bytes == pattern(1, len));
        pair.run(Duration::from_secs(1));
        pair.assert_clean();
    }
}

// P9.6, P9.7, P11.8
#[test]
fn failed_peer_leaves_complete_messages_and_ends_others() {
    let mut pair = ready(NETWORK, 8);
    for (tag, len) in [(1, 10), (2, 20), (3, 90_000), (4, 30)] {
        send(&mut pair, match_bits(tag), &pattern(tag, len));
    }
    pair.run(Duration::from_millis(20));
    let core = &mut pair.ends[1].core;
    let (message, _) = core.claim_tagged(&exact(2)).unwrap();
    let (lost, _) = core.claim_tagged(&exact(3)).unwrap();
    let from_a = Selector {
        source: Some(A),
        ..exact(99)
    };
    let directed = pair.ends[1].post_tagged(&from_a, 10);
    let open = pair.ends[1].post_tagged(&exact(99), 10);
    pair.ends[1].core.fail_peer(A, Cause::ProcessExited);
    pair.run(Duration::from_millis(1));
    // The messages before the lost one are kept, and a receive for this peer takes them first.
    let retained = pair.ends[1].post_tagged(
        &Selector {
            source: Some(A),
            ..any()
        },
        10,
    );
    let claimed = [message, lost].map(|claim| {
        let op = pair.ends[1].op(vec![0xa5; 20]);
        assert!(pair.ends[1].core.recv_claimed(claim, op, 20));
        op
    });
    let late = pair.ends[1].post_tagged(&from_a, 10);
    pair.run(Duration::from_millis(1));
    assert_eq!(take_got(&mut pair), [(retained, 1), (claimed[0], 2)]);
    let failed: Vec<_> = pair.ends[1]
        .failed
        .iter()
        .filter_map(|event| match event {
            Event::RecvFailed { op, error } => {
                assert_eq!(*error, OpError::PeerFailed(A, Cause::ProcessExited));
                Some(*op)
            }
            _ => None,
        })
        .collect();
    assert_eq!(failed, [directed, claimed[1], late]);
    assert!(pair.ends[1].core.cancel_tagged(open));
    // Nothing is missing before the last: the claim of the lost one is known to the program.
    let last = pair.ends[1].post_tagged(&any(), 30);
    pair.run(Duration::from_millis(1));
    assert_eq!(take_got(&mut pair), [(last, 4)]);
    assert_eq!(pair.ends[1].core.usage(), (0, 0, 0));
}

// P9.6
#[test]
fn abandoned_transfer_fails_its_receive() {
    for early in [true, false] {
        let mut pair = ready(&[LinkId::UDP], 12);
        let bytes = pattern(1, 4_000_000);
        let op = match early {
            true => {
                let op = pair.ends[1].post_tagged(&any(), bytes.len());
                send(&mut pair, match_bits(1), &bytes);
                op
            }
            false => {
                send(&mut pair, match_bits(1), &bytes);
                pair.run(Duration::from_millis(20));
                pair.ends[1].post_tagged(&any(), bytes.len())
            }
        };
        pair.run(Duration::from_micros(40));
        assert_eq!(pair.ends[1].core.usage().2, 1, "it is in progress");
        pair.ends[1].core.fail_peer(A, Cause::ProcessExited);
        pair.run(Duration::from_millis(1));
        let error = OpError::PeerFailed(A, Cause::ProcessExited);
        let failed = Event::RecvFailed { op, error };
        assert!(pair.ends[1].failed.contains(&failed));
        assert_eq!(pair.ends[1].core.usage().2, 0);
    }
}

// P11.6
#[test]
fn unclaimed_messages_block_neither_lane_nor_memory() {
    for links in [&[LinkId::UDP], SHARED] {
        let mut pair = ready(links, 9);
        let limit = 1 << 20;
        pair.ends[1].core.shared_mut().ctx.limits_mut().held_len_max = limit;
        let mut sent = 0;
        for _ in 0..4000 {
            let bytes = pattern(1, 1000);
            match pair.ends[0].send(B, &spec(match_bits(1)), &bytes) {
                Ok(()) => sent += 1,
                Err(refused) => assert_eq!(refused, Refused::Busy),
            }
            pair.run(Duration::from_micros(100));
        }
        // A quarter of the memory in addition to a lane's credit; then the sender has to wait.
        let held = pair.ends[1].core.usage().1;
        let credit = 256 * 1024;
        assert!(
            (limit / 4..limit / 4 + 2 * credit).contains(&held),
            "{held}"
        );
        assert!(sent < 4000);
        // All of it arrives as it is taken.
        for _ in 0..sent {
            pair.ends[1].post_tagged(&any(), 1000);
        }
        pair.run(Duration::from_secs(1));
        assert_eq!(take_got(&mut pair).len(), sent);
        pair.ends[1].post_tagged(&any(), 1000);
        send(&mut pair, match_bits(1), &pattern(1, 1000));
        pair.run(Duration::from_secs(1));
        assert_eq!(take_got(&mut pair).len(), 1);
        pair.assert_clean();
    }
}

// P11.6
#[test]
fn last_of_many_messages_can_be_taken_first() {
    let mut pair = ready(&[LinkId::UDP], 10);
    for tag in 0..3000 {
        while pair.ends[0]
            .send(B, &spec(match_bits(tag)), &[7; 300])
            .is_err()
        {
            pair.run(Duration::from_micros(100));
        }
    }
    pair.run(Duration::from_secs(1));
    for tag in (0..3000).rev() {
        pair.ends[1].post_tagged(&exact(tag), 300);
    }
    pair.run(Duration::from_secs(1));
    let tags: Vec<_> = take_got(&mut pair).into_iter().map(|got| got.1).collect();
    assert_eq!(tags, (0..3000).rev().collect::<Vec<_>>());
    pair.assert_clean();
}

// P11.9
#[test]
fn multi_receive_takes_messages_until_full() {
    for links in [NETWORK, SHARED] {
        let mut pair = ready(links, 11);
        let lens = [100, 0, 70_000, 9000, 60];
        // Two wait, the others arrive later; the rest of the buffer is too short for the last.
        for (salt, len) in (0..).zip(lens).take(2) {
            send(&mut pair, match_bits(salt), &pattern(salt, len));
        }
        pair.run(Duration::from_millis(20));
        let many = OpId(500);
        pair.ends[1].core.post_many(&any(), many, 79_130, 31);
        for (salt, len) in (0..).zip(lens).skip(2) {
            send(&mut pair, match_bits(salt), &pattern(salt, len));
            pair.run(Duration::from_secs(1));
        }
        let portions = core::mem::take(&mut pair.ends[1].portions);
        let ends: Vec<_> = portions.iter().map(|at| (at.0, at.2, at.3)).collect();
        let expected = [(0, false), (100, false), (100, false), (70_100, true)];
        assert_eq!(ends, expected.map(|(off, is_last)| (many, off, is_last)));
        let got = pair.ends[1].got_tagged.iter();
        for (((salt, len), portion), got) in (0..).zip(lens).zip(&portions).zip(got) {
            assert_eq!((got.op, got.len, got.truncated), (portion.1, len, false));
            assert!(got.bytes == pattern(salt, len));
        }
        // It takes no more: the fifth waits for another receive, which truncates it.
        assert!(!pair.ends[1].core.cancel_tagged(many));
        pair.ends[1].core.post_many(&any(), many, 50, 10);
        pair.run(Duration::from_secs(1));
        let got = pair.ends[1].got_tagged.pop().unwrap();
        assert!(got.truncated && got.len == 60 && got.bytes == pattern(4, 60)[..50]);
        assert!(pair.ends[1].portions[0].3);
        pair.run(Duration::from_secs(1));
        pair.assert_clean();
    }
}

/// Model of receives and messages, in the simplest form.
struct Oracle {
    posted: Vec<(Selector, OpId)>,
    waiting: Vec<(u64, u64)>,
    expected: Vec<(OpId, u64)>,
}

impl Oracle {
    fn takes(selector: &Selector, tag: u64) -> bool {
        (selector.tag | selector.ignore) == (tag | selector.ignore)
            && selector.source.is_none_or(|source| source == A)
    }

    fn post(&mut self, selector: Selector, op: OpId) {
        let found = self.waiting.iter();
        match found
            .clone()
            .position(|message| Oracle::takes(&selector, message.0))
        {
            Some(index) => self.expected.push((op, self.waiting.remove(index).1)),
            None => self.posted.push((selector, op)),
        }
    }

    fn arrive(&mut self, tag: u64, salt: u64) {
        let found = self.posted.iter();
        match found
            .clone()
            .position(|posted| Oracle::takes(&posted.0, tag))
        {
            Some(index) => self.expected.push((self.posted.remove(index).1, salt)),
            None => self.waiting.push((tag, salt)),
        }
    }
}

/// Random sends, receives, claims and cancellations on a faulty wire. Sends use one lane, so that
/// the order of their arrival is known. They are complete before receives are posted.
// P11.2, P11.3
#[test]
fn matching_agrees_with_a_plain_list() {
    for seed in 0..12 {
        let links = if seed % 3 == 0 { SHARED } else { NETWORK };
        let mut pair = ready(links, seed);
        pair.faults = Faults {
            drop: 0.03,
            duplicate: 0.03,
            reorder: 0.1,
            corrupt: 0.0,
        };
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut oracle = Oracle {
            posted: Vec::new(),
            waiting: Vec::new(),
            expected: Vec::new(),
        };
        let mut salt = 0;
        for _ in 0..60 {
            draw_tagged_round(&mut pair, &mut oracle, &mut rng, &mut salt);
        }
        pair.run(Duration::from_secs(1));
        for (_, op) in oracle.posted.drain(..) {
            assert!(pair.ends[1].core.cancel_tagged(op), "seed {seed}");
            pair.ends[1].memory.remove(&op.0);
        }
        while !oracle.waiting.is_empty() {
            let op = pair.ends[1].post_tagged(&any(), 70_000);
            oracle.post(any(), op);
        }
        pair.run(Duration::from_secs(1));
        let mut got = Vec::new();
        for message in &pair.ends[1].got_tagged {
            let salt = message.match_bits.imm.unwrap();
            assert!(message.bytes == pattern(salt, message.len), "seed {seed}");
            got.push((message.op, salt));
        }
        // Long messages complete when their bytes have arrived.
        got.sort_unstable();
        oracle.expected.sort_unstable();
        assert_eq!(got, oracle.expected, "seed {seed}");
        pair.assert_clean();
    }
}

/// Sends some messages, then posts some receives and claims, and possibly cancels a receive.
fn draw_tagged_round(pair: &mut Pair, oracle: &mut Oracle, rng: &mut ChaCha8Rng, salt: &mut u64) {
    for _ in 0..rng.random_range(0..8) {
        *salt += 1;
        let tag = rng.random_range(0..4) | rng.random_range(0..2) << 40;
        let lens = [8, 8, 8, 700, 5000, 70_000];
        let len = lens[rng.random_range(0..lens.len())];
        let match_bits = MatchBits {
            imm: Some(*salt),
            ..match_bits(tag)
        };
        send(pair, match_bits, &pattern(*salt, len));
        oracle.arrive(tag, *salt);
    }
    pair.run(Duration::from_secs(1));
    for _ in 0..rng.random_range(0..8) {
        let selector = Selector {
            space: Space::Tagged,
            tag: rng.random_range(0..4),
            ignore: [0, 0, 0, 1 << 40, 3, u64::MAX][rng.random_range(0..6)],
            source: [None, Some(A), Some(B)][rng.random_range(0..3)],
        };
        if rng.random_bool(0.2) {
            claim(pair, oracle, &selector);
            continue;
        }
        let op = pair.ends[1].post_tagged(&selector, 70_000);
        oracle.post(selector, op);
    }
    if rng.random_bool(0.3) && !oracle.posted.is_empty() {
        let (_, op) = oracle
            .posted
            .remove(rng.random_range(0..oracle.posted.len()));
        assert!(pair.ends[1].core.cancel_tagged(op));
        pair.ends[1].memory.remove(&op.0);
    }
}

fn claim(pair: &mut Pair, oracle: &mut Oracle, selector: &Selector) {
    let waiting = oracle.waiting.iter();
    let expected = waiting
        .clone()
        .position(|message| Oracle::takes(selector, message.0));
    let end = &mut pair.ends[1];
    assert_eq!(end.core.peek_tagged(selector).is_some(), expected.is_some());
    let Some((claim, envelope)) = end.core.claim_tagged(selector) else {
        return;
    };
    let salt = oracle.waiting.remove(expected.unwrap()).1;
    assert_eq!(envelope.match_bits.imm, Some(salt));
    let op = end.op(vec![0xa5; 70_000]);
    assert!(end.core.recv_claimed(claim, op, 70_000));
    oracle.expected.push((op, salt));
}

/// Delivers a message of 50 bytes with tag 5, while a receive of `len` bytes waits for `selector`
/// without being posted and `post` is posted. Returns the destination of the message.
fn dest_of_tag_5(post: Option<Selector>, selector: Selector, len: usize) -> MessageDest {
    let mut pair = ready(SHARED, 16);
    send(&mut pair, match_bits(5), &[7; 50]);
    let frame = match pair.ends[0].core.poll_transmit(pair.now) {
        Some(Transmit::Frame { bytes, .. }) => bytes.to_vec(),
        other => panic!("{other:?}"),
    };
    let (now, core) = (pair.now, &mut pair.ends[1].core);
    if let Some(post) = post {
        core.post_tagged(&post, OpId(1), 50);
    }
    let filter = RecvFilter::MatchBits(selector);
    assert_eq!(core.is_quiet(&filter), post.is_none());
    let recv = WaitingRecv { filter, len };
    let mut take = || {
        let admitted = core.admit_lossless(now, LinkId::SHM, A, frame.len());
        core.take_tagged(&mut admitted.unwrap(), &frame, Some(&recv))
    };
    let taken = take().unwrap();
    assert_eq!(taken.match_bits, match_bits(5));
    assert_eq!(frame[taken.off..][..taken.len], [7; 50]);
    assert!(take().is_none(), "taken twice");
    let message = core.take_held_tagged(&exact(5), 50);
    let held = message.map(|(envelope, id)| (envelope.len, core.held(id).to_vec()));
    let is_held = taken.dest == MessageDest::Held;
    assert_eq!(held, is_held.then(|| (50, [7; 50].to_vec())));
    taken.dest
}

#[test]
fn waiting_receive_takes_only_unclaimed_matches() {
    let selector = |tag, ignore, source| Selector {
        ignore,
        source,
        ..exact(tag)
    };
    let dest = |selector, len| dest_of_tag_5(None, selector, len);
    assert_eq!(dest(selector(6, 0, None), 50), MessageDest::Held);
    assert_eq!(dest(selector(5, 0, Some(B)), 50), MessageDest::Held);
    assert_eq!(dest(selector(5, 0, Some(A)), 49), MessageDest::Held);
    assert_eq!(dest(selector(4, 1, Some(A)), 50), MessageDest::Waiting);
    // A posted receive takes precedence, even if it is for another message.
    let posted = |tag| dest_of_tag_5(Some(exact(tag)), exact(5), 50);
    assert_eq!(posted(6), MessageDest::Held);
    assert_eq!(posted(5), MessageDest::Posted(OpId(1)));
}

#[test]
fn held_message_waits_for_a_long_enough_receive() {
    let mut pair = ready(SHARED, 17);
    send(&mut pair, match_bits(5), &[7; 50]);
    pair.run(Duration::from_millis(1));
    let core = &mut pair.ends[1].core;
    assert!(core.take_held_tagged(&exact(5), 49).is_none());
    assert!(core.take_held_tagged(&exact(6), 50).is_none());
    let (envelope, id) = core.take_held_tagged(&exact(5), 50).unwrap();
    assert_eq!((envelope.peer, core.held(id)), (A, &[7; 50][..]));
    core.release(id);
    assert!(core.take_held_tagged(&exact(5), 50).is_none());
    assert_eq!(core.usage().1, 0, "its memory is free");
}
