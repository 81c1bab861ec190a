// SPDX-License-Identifier: MIT OR Apache-2.0
//! Many unexpected messages in front of one that a receive waits for.

use super::pair::*;
use crate::*;
use alloc::vec::Vec;
use core::time::Duration;

const PORT: PortId = PortId::user(7);

fn to(to: impl Into<Address>) -> SendSpec {
    SendSpec {
        to: to.into(),
        lane: LaneId::Low,
        best_effort: false,
    }
}

fn match_bits(tag: u64) -> MatchBits {
    MatchBits {
        space: Space::Tagged,
        tag,
        imm: None,
    }
}

fn exact(tag: u64) -> Selector {
    Selector {
        space: Space::Tagged,
        tag,
        ignore: 0,
        source: Some(A),
    }
}

/// Returns two ends with an open session, the second with `limit` bytes for unexpected messages.
fn ready(links: &[LinkId], limit: usize) -> Pair {
    let mut pair = Pair::new(links, 1);
    pair.ends[1].core.connect(pair.now, A);
    pair.ends[1].core.shared_mut().ctx.limits_mut().held_len_max = limit;
    pair.run(Duration::from_millis(20));
    pair
}

/// Returns the receives that failed for lack of memory.
fn ended(pair: &mut Pair) -> Vec<OpId> {
    let failed = pair.ends[1].failed.drain(..);
    failed
        .filter_map(|event| match event {
            Event::RecvFailed { op, error } => {
                assert!(matches!(error, OpError::MemoryFull { .. }), "{error:?}");
                Some(op)
            }
            _ => None,
        })
        .collect()
}

/// Sends `count` messages, waiting for credit if necessary; returns how many were accepted.
fn flood(pair: &mut Pair, count: u64, spec: impl Fn(u64) -> SendSpec, len: usize) -> u64 {
    let bytes = [7; 4096];
    for number in 0..count {
        let mut patience = 0;
        while pair.ends[0].send(B, &spec(number), &bytes[..len]).is_err() {
            if patience == 200 {
                return number;
            }
            pair.run(Duration::from_millis(1));
            patience += 1;
        }
    }
    pair.run(Duration::from_millis(100));
    count
}

// P4.14
#[test]
fn last_message_of_a_flood_is_taken_first() {
    for links in [&[LinkId::UDP], &[LinkId::SHM]] {
        let count = 60_000;
        let mut pair = ready(links, 16 << 20);
        let last = pair.ends[1].post_tagged(&exact(count - 1), 8);
        assert_eq!(flood(&mut pair, count, |tag| to(match_bits(tag)), 8), count);
        let got: Vec<_> = pair.ends[1].got_tagged.drain(..).collect();
        assert_eq!(got.iter().map(|got| got.op).collect::<Vec<_>>(), [last]);
        for tag in 0..count - 1 {
            pair.ends[1].post_tagged(&exact(tag), 8);
        }
        pair.run(Duration::from_secs(1));
        let tags = pair.ends[1].got_tagged.iter().map(|got| got.match_bits.tag);
        assert!(tags.eq(0..count - 1));
        pair.assert_clean();
    }
}

// P4.14
#[test]
fn waiting_messages_of_one_port_do_not_block_another() {
    for links in [&[LinkId::UDP], &[LinkId::SHM]] {
        let mut pair = ready(links, 16 << 20);
        pair.ends[1].core.open_port(PORT, PortMode::Posted);
        let awaited = PortId::user(8);
        pair.ends[1].post(awaited, 8, None);
        let spec = |number| to(if number < 5000 { PORT } else { awaited });
        assert_eq!(flood(&mut pair, 5001, spec, 1000), 5001);
        let got = &mut pair.ends[1].got;
        assert_eq!(got.pop().map(|got| got.port), Some(awaited));
        for _ in 0..5000 {
            pair.ends[1].post(PORT, 1000, None);
        }
        pair.run(Duration::from_secs(1));
        assert_eq!(pair.ends[1].got.len(), 5000);
        pair.assert_clean();
    }
}

// P3.10, P4.14
#[test]
fn eight_byte_message_costs_less_than_128() {
    const COUNT: u64 = 200_000;
    for tagged in [true, false] {
        let mut pair = ready(&[LinkId::SHM], 256 << 20);
        let spec = |tag| {
            if tagged {
                to(match_bits(tag))
            } else {
                to(PORT)
            }
        };
        // A receive waits for a message that never arrives, so that all messages are admitted.
        pair.ends[1].post(PortId::user(9), 8, None);
        assert_eq!(flood(&mut pair, COUNT, spec, 8), COUNT);
        let each = pair.ends[1].core.usage().1 as u64 / COUNT;
        super::std::println!("tagged {tagged}: {each} bytes a message");
        assert!((20..128).contains(&each), "{each}");
    }
}

// P4.15
#[test]
fn receive_fails_if_memory_is_exhausted() {
    for links in [&[LinkId::UDP], &[LinkId::SHM]] {
        let limit = 1 << 20;
        let mut pair = ready(links, limit);
        let last = pair.ends[1].post_tagged(&exact(u64::MAX), 8);
        let other = Selector {
            source: Some(B),
            ..exact(u64::MAX)
        };
        let other = pair.ends[1].post_tagged(&other, 8);
        let sent = flood(&mut pair, 100_000, |tag| to(match_bits(tag)), 8);
        assert!((10_000..100_000).contains(&sent), "{sent}");
        let held_len = pair.ends[1].core.usage().1;
        let credit = pair.ends[1].core.shared_mut().ctx.credit_len() as usize;
        assert!(
            (limit..limit + 4 * credit).contains(&held_len),
            "{held_len}"
        );
        assert_eq!(ended(&mut pair), []);
        pair.run(Duration::from_secs(6));
        assert_eq!(ended(&mut pair), [last]);
        assert!(pair.ends[1].core.cancel_tagged(other));
        pair.ends[1].memory.clear();
        // Waiting messages are still there, and those held back follow.
        for tag in 0..sent {
            pair.ends[1].post_tagged(&exact(tag), 8);
        }
        pair.run(Duration::from_secs(10));
        assert_eq!(pair.ends[1].got_tagged.len() as u64, sent);
        pair.run(Duration::from_secs(10));
        pair.assert_clean();
    }
}

// P4.15
#[test]
fn peek_reports_exhausted_memory() {
    let mut pair = ready(&[LinkId::SHM], 1 << 20);
    let mut sent = 0;
    for _ in 0..600 {
        while pair.ends[0]
            .send(B, &to(match_bits(sent)), &[7; 64])
            .is_ok()
        {
            sent += 1;
        }
        pair.run(Duration::from_millis(21));
        assert_eq!(pair.ends[1].core.peek_tagged(&exact(u64::MAX)), None);
    }
    assert!(matches!(
        pair.ends[1].core.shortage(),
        Some(OpError::MemoryFull { .. })
    ));
    // It continues when something is taken.
    for tag in 0..sent {
        pair.ends[1].post_tagged(&exact(tag), 64);
    }
    pair.run(Duration::from_secs(1));
    assert_eq!(pair.ends[1].core.peek_tagged(&exact(u64::MAX)), None);
    pair.run(Duration::from_secs(1));
    assert_eq!(pair.ends[1].core.shortage(), None);
}

// P4.14
#[test]
fn slow_program_throttles_its_sender() {
    for links in [&[LinkId::UDP], &[LinkId::SHM]] {
        let mut pair = ready(links, 64 << 20);
        pair.ends[1].core.open_port(PORT, PortMode::Posted);
        // It would be notified of a failed receive at the other port, but keeps reading.
        pair.ends[1].post(PortId::user(8), 8, None);
        let (mut sent, mut most) = (0, 0);
        for _ in 0..20_000 {
            while pair.ends[0].send(B, &to(PORT), &[1; 1000]).is_ok() {
                sent += 1;
            }
            pair.run(Duration::from_micros(100));
            pair.ends[1].post(PORT, 1000, None);
            most = most.max(pair.ends[1].core.usage().1);
        }
        assert!((20_000..21_000).contains(&sent), "{sent}");
        assert!(most < 1 << 20, "{most} bytes");
        assert_eq!(ended(&mut pair), []);
    }
}

// P3.10
#[test]
fn early_messages_in_full_memory_do_not_block_an_awaited_one() {
    for len in [8, 4000] {
        let mut pair = ready(&[LinkId::UDP], 64 << 10);
        pair.ends[1].core.open_port(PORT, PortMode::Posted);
        let most = (4 << 20) / (len as u64 + 32);
        let mut sent = 0;
        for posted in 0..most {
            while sent < most && pair.ends[0].send(B, &to(PORT), &[1; 4000][..len]).is_ok() {
                sent += 1;
            }
            pair.ends[1].post(PORT, len, None);
            // The refused message is retransmitted, at the latest after its sender's longest
            // timeout.
            let received = (1..=200).any(|millis| {
                pair.run(Duration::from_millis(millis));
                pair.ends[1].core.counters().messages_received > posted
            });
            assert!(received, "message {posted} of {len} bytes");
        }
        assert_eq!(ended(&mut pair), []);
    }
}

// P4.14
#[test]
fn no_credit_is_returned_early_while_the_program_computes() {
    let mut pair = ready(&[LinkId::UDP], 64 << 20);
    pair.ends[1].post(PortId::user(8), 8, None);
    pair.ends[1].core.set_away(true);
    let sent = flood(&mut pair, 2000, |_| to(PORT), 1000);
    assert!(sent < 1000, "{sent}");
    pair.ends[1].core.set_away(false);
    // The next check is at most 20 ms away.
    pair.run(Duration::from_millis(25));
    assert_eq!(flood(&mut pair, 2000, |_| to(PORT), 1000), 2000);
}

// P4.14
#[test]
fn two_programs_that_send_before_receiving_make_progress() {
    for links in [&[LinkId::UDP], &[LinkId::SHM]] {
        let mut pair = ready(links, 64 << 20);
        for end in &mut pair.ends {
            end.core.open_port(PORT, PortMode::Posted);
        }
        let mut sent = [0; 2];
        for _ in 0..2000 {
            for (end, (sent, peer)) in pair.ends.iter_mut().zip(sent.iter_mut().zip([B, A])) {
                while *sent < 2000 && end.send(peer, &to(PORT), &[1; 1000]).is_ok() {
                    *sent += 1;
                }
            }
            pair.run(Duration::from_millis(1));
        }
        assert_eq!(sent, [2000; 2]);
    }
}
