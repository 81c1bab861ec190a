// SPDX-License-Identifier: MIT OR Apache-2.0
//! Closing processes: messages to them complete without delivery, and their credit is returned.

use super::pair::*;
use crate::*;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

const PORT: PortId = PortId::user(3);
const UNOPENED: PortId = PortId::user(4);
const HANDLED: PortId = PortId::user(5);
const MATCH_BITS: MatchBits = MatchBits {
    space: Space::Tagged,
    tag: 7,
    imm: None,
};
const SELECTOR: Selector = Selector {
    space: Space::Tagged,
    tag: 7,
    ignore: 0,
    source: None,
};
/// Lengths that fit a frame, that are cut into fragments if frames are short, and that need a
/// rendezvous.
const LENS: [usize; 3] = [10, 5000, 70_000];

fn spec(to: Address) -> SendSpec {
    SendSpec {
        to,
        lane: LaneId::Low,
        best_effort: false,
    }
}

fn send_all(end: &mut End, peer: PeerId, to: Address) {
    for len in LENS {
        end.send(peer, &spec(to), &vec![1; len]).unwrap();
    }
}

/// Checks that the rendezvous sends failed because the receiver closed.
fn assert_refused(end: &End, peer: PeerId, count: usize) {
    let error = OpError::PeerFailed(peer, Cause::Closed);
    assert_eq!(end.sent.len(), count);
    assert!(end.sent.values().all(|result| *result == Err(error)));
}

// P2.14
#[test]
fn closing_process_delivers_only_to_handlers() {
    for links in [&[LinkId::SHM][..], &[LinkId::UDP]] {
        for early in [false, true] {
            let mut pair = Pair::new(links, 31);
            pair.run(Duration::from_millis(20));
            pair.ends[1].core.open_port(HANDLED, PortMode::InPlace);
            pair.ends[1].core.open_port(PORT, PortMode::Posted);
            let places = [PORT.into(), UNOPENED.into(), MATCH_BITS.into()];
            if early {
                for to in places {
                    send_all(&mut pair.ends[0], B, to);
                }
                pair.run(Duration::from_millis(20));
            }
            let posted = pair.ends[1].post(PORT, 70_000, Some(B));
            let tagged = pair.ends[1].post_tagged(
                &Selector {
                    source: Some(B),
                    ..SELECTOR
                },
                70_000,
            );
            pair.ends[1].core.discard_unread();
            // The receives belong to the program again.
            for op in [posted, tagged] {
                pair.ends[1].memory.remove(&op.0);
            }
            if !early {
                for to in places {
                    send_all(&mut pair.ends[0], B, to);
                }
            }
            pair.ends[0].send(B, &spec(HANDLED.into()), b"x").unwrap();
            pair.run(Duration::from_millis(50));
            let got: Vec<_> = pair.ends[1].got.iter().map(|got| got.port).collect();
            assert_eq!(got, [HANDLED]);
            assert_eq!(pair.ends[1].got_tagged, []);
            assert_refused(&pair.ends[0], B, 3);
            assert!(!pair.ends[0].core.has_unfinished());
            let charged = pair.ends[0].core.credit(B, LaneId::Low).unwrap().charged;
            let consumed = pair.ends[1].core.credit(A, LaneId::Low).unwrap().consumed;
            assert_eq!(charged, consumed);
            pair.assert_clean();
        }
    }
}

// P2.14: a receive that is posted when its process closes takes nothing.
#[test]
fn closing_cancels_receives() {
    for links in [&[LinkId::SHM][..], &[LinkId::UDP]] {
        let mut pair = Pair::new(links, 32);
        pair.run(Duration::from_millis(20));
        for len in LENS {
            let ops = [
                pair.ends[1].post(PORT, len, None),
                pair.ends[1].post_tagged(&SELECTOR, len),
            ];
            pair.ends[1].core.discard_unread();
            for op in ops {
                pair.ends[1].memory.remove(&op.0);
            }
        }
        for to in [PORT.into(), MATCH_BITS.into()] {
            send_all(&mut pair.ends[0], B, to);
        }
        pair.run(Duration::from_millis(50));
        assert!(pair.ends[1].got.is_empty());
        assert!(pair.ends[1].got_tagged.is_empty());
        assert_refused(&pair.ends[0], B, 2);
        pair.assert_clean();
    }
}

// P2.14: neither waits for the other to receive.
#[test]
fn mutual_close_with_queued_messages_terminates() {
    for links in [&[LinkId::SHM][..], &[LinkId::UDP]] {
        for to in [MATCH_BITS.into(), PORT.into()] {
            let mut pair = Pair::new(links, 33);
            pair.run(Duration::from_millis(20));
            let mut queued = [0, 0];
            for (end, peer) in [(0, B), (1, A)] {
                // Until the credit is used up.
                while pair.ends[end].send(peer, &spec(to), &[2; 3000]).is_ok() {
                    queued[end] += 1;
                }
                pair.ends[end]
                    .send_rendezvous(peer, &spec(to), &[3; 100])
                    .ok();
                pair.run(Duration::from_millis(20));
            }
            assert!(queued.iter().all(|&count| count > 10), "{queued:?}");
            for end in &mut pair.ends {
                end.core.discard_unread();
            }
            pair.run(Duration::from_millis(200));
            for end in &pair.ends {
                assert!(!end.core.has_unfinished());
                assert_eq!(end.core.unfinished_transfers().count(), 0);
                assert!(end.got.is_empty() && end.got_tagged.is_empty());
            }
            pair.assert_clean();
        }
    }
}
