// SPDX-License-Identifier: MIT OR Apache-2.0
//! Receives that take a held message at once have the same results as posted ones.

use super::pair::*;
use crate::*;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

const PORT: PortId = PortId::user(5);
const LOW: SendSpec = SendSpec {
    to: Address::Port(PORT),
    lane: LaneId::Low,
    best_effort: false,
};

/// Returns the first frame that `pair.ends[0]` has to send.
fn next_frame(pair: &mut Pair) -> Vec<u8> {
    match pair.ends[0].core.poll_transmit(pair.now) {
        Some(Transmit::Frame { bytes, .. }) => bytes.to_vec(),
        other => panic!("{other:?}"),
    }
}

// P4.3, P4.7
#[test]
fn unexpected_messages_are_held_in_arrival_order() {
    let mut pair = Pair::new(&[LinkId::SHM], 18);
    pair.ends[1].core.connect(pair.now, A);
    pair.run(Duration::from_millis(1));
    pair.ends[1].core.open_port(PORT, PortMode::Posted);
    for fill in 0..4 {
        pair.ends[0].send(B, &LOW, &[fill; 50]).unwrap();
    }
    let frame = next_frame(&mut pair);
    let core = &mut pair.ends[1].core;
    let admitted = core.admit_lossless(pair.now, LinkId::SHM, A, frame.len());
    let mut admitted = admitted.unwrap();
    while !admitted.is_done() {
        let message = core.take_message(&mut admitted, &frame, None).unwrap();
        assert_eq!(message.dest, MessageDest::Held);
    }
    assert!(!core.has_event(), "nothing is left for the engine");
    assert_eq!(core.counters().messages_held, 4);
    let mut bytes = [0xa5; 50];
    assert!(
        core.take_held(PORT, Some(B), &mut bytes) == Err(NotTaken::Other),
        "another sender"
    );
    let short = &mut bytes[..49];
    assert!(
        core.take_held(PORT, None, short) == Err(NotTaken::Other),
        "too short"
    );
    assert_eq!(core.peek_port(PORT, Some(B)), None);
    assert_eq!(core.peek_port(PORT, None), Some((A, 50)));
    assert_eq!(core.peek_port(PORT, Some(A)), Some((A, 50)), "it stays");
    for fill in 0..4 {
        let taken = core.take_held(PORT, Some(A), &mut bytes).unwrap();
        assert_eq!((taken.peer, taken.len), (A, 50));
        assert_eq!(bytes, [fill; 50]);
    }
    assert_eq!(
        core.take_held(PORT, None, &mut bytes),
        Err(NotTaken::Nothing)
    );
    assert_eq!((core.usage().1, core.counters().messages_received), (0, 4));
    let charged = pair.ends[0].core.credit(B, LaneId::Low).unwrap().charged;
    let consumed = pair.ends[1].core.credit(A, LaneId::Low).unwrap().consumed;
    assert_eq!(consumed, charged, "all credit came back");
}

#[test]
fn posted_receive_precedes_an_immediate_one() {
    let mut pair = Pair::new(&[LinkId::SHM], 19);
    pair.ends[1].core.connect(pair.now, A);
    pair.run(Duration::from_millis(1));
    pair.ends[1].core.open_port(PORT, PortMode::Posted);
    pair.ends[1].post(PORT, 100, Some(B));
    pair.ends[0].send(B, &LOW, &[7; 50]).unwrap();
    let frame = next_frame(&mut pair);
    let core = &mut pair.ends[1].core;
    let admitted = core.admit_lossless(pair.now, LinkId::SHM, A, frame.len());
    let message = core.take_message(&mut admitted.unwrap(), &frame, None);
    assert_eq!(message.unwrap().dest, MessageDest::Held);
    assert!(core.take_held(PORT, None, &mut [0; 50]) == Err(NotTaken::Other));
}

/// Results of a session for the program, and the state of both peers.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    /// Per receive: the message's number, the number of bytes received, and whether it was
    /// truncated.
    received: BTreeMap<u64, (Option<u8>, usize, bool)>,
    withdrawn: Vec<u64>,
    failed: Vec<Event>,
    unopened: Vec<(PortId, PeerId)>,
    counters: [Counters; 2],
    credits: Vec<Option<CreditStatus>>,
    usage: (usize, usize, usize),
}

/// Random session. If `at_once`, a message and a receive are matched at once where possible;
/// otherwise each is posted or delivered by an event.
struct Session {
    pair: Pair,
    rng: ChaCha8Rng,
    at_once: bool,
    posted: Vec<(Option<PortId>, OpId)>,
    withdrawn: Vec<u64>,
    sent: u8,
    /// Number of receives that took a held message at once.
    taken_count: usize,
}

impl Session {
    fn new(seed: u64, at_once: bool) -> Session {
        let mut pair = Pair::new(&[LinkId::SHM], seed);
        pair.ends[1].core.connect(pair.now, A);
        pair.takes = at_once;
        pair.run(Duration::from_millis(1));
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        if rng.random_bool(0.3) {
            // With little memory, the receiver withholds credit and returns it early.
            let limits = pair.ends[1].core.shared_mut().ctx.limits_mut();
            limits.held_len_max = 40_000;
        }
        pair.ends[1].core.open_port(PORT, PortMode::Posted);
        Session {
            pair,
            rng,
            at_once,
            posted: Vec::new(),
            withdrawn: Vec::new(),
            sent: 0,
            taken_count: 0,
        }
    }

    /// Returns one of two ports, of which only [`PORT`] is open at first, or one of three tags.
    fn draw_address(&mut self) -> Address {
        match self.rng.random_range(0..5) {
            0 | 1 => PORT.into(),
            2 => PortId::user(6).into(),
            tag => MatchBits {
                space: Space::Tagged,
                tag: tag - 2,
                imm: None,
            }
            .into(),
        }
    }

    fn send(&mut self) {
        let spec = SendSpec {
            to: self.draw_address(),
            lane: LaneId::ALL[self.rng.random_range(0..2)],
            best_effort: false,
        };
        let len = [0, 8, 60, 3_000, 9_000][self.rng.random_range(0..5)];
        let bytes = alloc::vec![self.sent; len];
        let asks = len > 0 && self.rng.random_bool(0.1);
        let end = &mut self.pair.ends[0];
        let result = match asks {
            true => end.send_rendezvous(B, &spec, &bytes),
            false => end.send(B, &spec, &bytes),
        };
        self.sent = self.sent.wrapping_add(u8::from(result.is_ok()));
    }

    fn recv(&mut self) {
        let len = [0, 8, 50, 100, 10_000][self.rng.random_range(0..5)];
        let source = [None, Some(A), Some(B)][self.rng.random_range(0..3)];
        let to = self.draw_address();
        let ignore = [0, u64::MAX][self.rng.random_range(0..2)];
        let end = &mut self.pair.ends[1];
        let op = end.op(alloc::vec![0xa5; len]);
        let (port, selector) = match to {
            Address::Port(port) => (Some(port), None),
            Address::MatchBits(MatchBits { space, tag, .. }) => {
                let selector = Selector {
                    space,
                    tag,
                    ignore,
                    source,
                };
                (None, Some(selector))
            }
        };
        self.posted.push((port, op));
        let held = match (&selector, port) {
            _ if !self.at_once => None,
            (Some(selector), _) => {
                let taken = end.core.take_held_tagged(selector, len);
                taken.map(|(_, id)| {
                    let bytes = end.core.held(id).to_vec();
                    end.core.release(id);
                    bytes
                })
            }
            (_, Some(port)) => {
                let mut bytes = vec![0; len];
                let taken = end.core.take_held(port, source, &mut bytes);
                taken.ok().map(|taken| bytes[..taken.len].to_vec())
            }
            _ => None,
        };
        if let Some(bytes) = held {
            self.taken_count += 1;
            end.memory.remove(&op.0);
            end.received.insert(op.0, (bytes, false));
            return;
        }
        match (&selector, port) {
            (Some(selector), _) => end.core.post_tagged(selector, op, len as u64),
            (_, Some(port)) => end.core.post_recv(port, op, len as u64, source),
            _ => {}
        }
        end.drain(&[]);
    }

    fn withdraw(&mut self) {
        if self.posted.is_empty() {
            return;
        }
        let at = self.rng.random_range(0..self.posted.len());
        let (port, op) = self.posted.swap_remove(at);
        let core = &mut self.pair.ends[1].core;
        let withdrawn = match port {
            Some(port) => core.cancel_recv(port, op),
            None => core.cancel_tagged(op),
        };
        if withdrawn {
            self.pair.ends[1].memory.remove(&op.0);
            self.withdrawn.push(op.0);
        }
    }

    fn step(&mut self) {
        match self.rng.random_range(0..100) {
            0..40 => self.send(),
            40..80 => self.recv(),
            80..85 => self.withdraw(),
            85..86 => {
                let port = PortId::user(6);
                self.pair.ends[1].core.open_port(port, PortMode::Posted);
            }
            _ => self.pair.run(Duration::from_micros(50)),
        }
    }

    fn outcome(mut self) -> Outcome {
        self.pair.run(Duration::from_millis(1));
        let [from, to] = &mut self.pair.ends;
        to.drain(&[]);
        let received = core::mem::take(&mut to.received).into_iter();
        let received = received
            .map(|(op, (bytes, is_cut))| (op, (bytes.first().copied(), bytes.len(), is_cut)))
            .collect();
        let credit = |core: &Core, peer| LaneId::ALL.map(|lane| core.credit(peer, lane));
        Outcome {
            received,
            withdrawn: self.withdrawn,
            failed: core::mem::take(&mut to.failed),
            unopened: core::mem::take(&mut to.unopened),
            counters: [from.core.counters().clone(), to.core.counters().clone()],
            credits: [credit(&from.core, B), credit(&to.core, A)].concat(),
            usage: to.core.usage(),
        }
    }
}

/// Plays a session in both modes, checks that the results are equal, and returns how many receives
/// took a held message at once. At the end the peer fails if it `goes`, and its leftovers are
/// received.
fn compare(seed: u64, steps: usize, goes: bool) -> usize {
    let mut taken_count = 0;
    let [ordinary, short] = [false, true].map(|at_once| {
        let mut session = Session::new(seed, at_once);
        (0..steps).for_each(|_| session.step());
        if goes {
            let end = &mut session.pair.ends[1];
            end.core.fail_peer(A, Cause::ProcessExited);
            end.drain(&[]);
            (0..steps).for_each(|_| session.recv());
        }
        taken_count += session.taken_count;
        session.outcome()
    });
    assert_eq!(ordinary, short, "seed {seed}");
    taken_count
}

/// Order, truncation, cancellation, credit and counts: P4.3, P4.4, P4.7, P11.2, P11.6.
#[test]
fn immediate_receives_match_like_posted_ones() {
    let taken: usize = (0..400).map(|seed| compare(seed, 150, false)).sum();
    assert!(taken > 2_000, "{taken} are too few to tell");
}

// P9.7, P11.8
#[test]
fn messages_of_failed_peer_match_like_posted_receives() {
    let taken: usize = (1000..1200).map(|seed| compare(seed, 60, true)).sum();
    assert!(taken > 500, "{taken} are too few to tell");
}

// P4.4
#[test]
fn returned_credit_is_sent_at_once() {
    let mut pair = Pair::new(&[LinkId::SHM], 20);
    pair.ends[1].core.connect(pair.now, A);
    pair.takes = true;
    pair.run(Duration::from_millis(1));
    pair.ends[1].core.open_port(PORT, PortMode::Posted);
    while pair.ends[0].send(B, &LOW, &[7; 9_000]).is_ok() {}
    pair.run(Duration::from_millis(1));
    let limit = |pair: &Pair| pair.ends[0].core.credit(B, LaneId::Low).unwrap().limit;
    let before = limit(&pair);
    let core = &mut pair.ends[1].core;
    assert!(!core.needs_transmit());
    while core.take_held(PORT, None, &mut [0; 9_000]).is_ok() {}
    assert!(core.needs_transmit());
    pair.run(Duration::from_millis(1));
    assert!(limit(&pair) > before);
    assert!(pair.ends[0].send(B, &LOW, &[7; 9_000]).is_ok());
}

#[test]
fn messages_are_not_taken_before_earlier_events() {
    let mut pair = Pair::new(&[LinkId::SHM], 21);
    pair.ends[1].core.connect(pair.now, A);
    pair.run(Duration::from_millis(1));
    pair.ends[1].core.open_port(PORT, PortMode::Posted);
    for fill in 0..2 {
        pair.ends[0].send(B, &LOW, &[fill; 50]).unwrap();
    }
    pair.run(Duration::from_millis(1));
    pair.ends[1].post(PORT, 50, None);
    let end = &mut pair.ends[1];
    assert!(
        end.core.has_event()
            && end.core.take_held(PORT, None, &mut [0; 50]) == Err(NotTaken::Other)
    );
    end.drain(&[]);
    let mut bytes = [0; 50];
    assert_eq!(end.core.take_held(PORT, None, &mut bytes).unwrap().len, 50);
    assert_eq!(bytes, [1; 50]);
}
