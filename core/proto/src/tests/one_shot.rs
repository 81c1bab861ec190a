// SPDX-License-Identifier: MIT OR Apache-2.0
//! One-shot regions, as MPI libraries use them for active messages: the target registers a buffer
//! and sends its key, the initiator gets or puts the bytes and reports that, and the target
//! deregisters the buffer.

use super::pair::*;
use crate::*;
use alloc::collections::BTreeMap;
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
const MS: Duration = Duration::from_millis(1);

/// Kinds of messages, in their first byte.
const GET: u8 = 1;
const PUT: u8 = 2;
const DONE: u8 = 3;

const MESSAGE_LEN: usize = 17;

fn message(kind: u8, key: u64, len: usize) -> Vec<u8> {
    let mut bytes = Vec::from([kind]);
    bytes.extend_from_slice(&key.to_le_bytes());
    bytes.extend_from_slice(&(len as u64).to_le_bytes());
    bytes
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().unwrap())
}

/// Returns the bytes of the get or put on the region with this key.
fn pattern(key: u64, len: usize) -> Vec<u8> {
    let salt = usize::from(key.to_le_bytes()[0]) * 7 + usize::from(key.to_le_bytes()[3]);
    let byte = |at: usize| (at * 31 + at / 253 + salt).to_le_bytes()[0];
    (0..len).map(byte).collect()
}

/// One process of the exchange.
#[derive(Default)]
struct Party {
    /// Registered regions by key, and whether the peer writes them.
    open: BTreeMap<u64, (OpId, bool)>,
    /// Operations in flight on the peer's regions: the key, and whether it is a put.
    under_way: BTreeMap<u64, (u64, bool)>,
    /// Messages that lack credit.
    unsent: Vec<Vec<u8>>,
    left: usize,
    closed: usize,
}

struct Exchange {
    pair: Pair,
    parties: [Party; 2],
    at_once: usize,
    rng: ChaCha8Rng,
}

impl Exchange {
    /// Each side registers `count` regions, at most `at_once` at a time.
    fn new(mut pair: Pair, at_once: usize, count: usize, seed: u64) -> Exchange {
        for end in &mut pair.ends {
            end.core.open_port(PORT, PortMode::InPlace);
        }
        let party = || Party {
            left: count,
            ..Party::default()
        };
        Exchange {
            pair,
            parties: [party(), party()],
            at_once,
            rng: ChaCha8Rng::seed_from_u64(seed),
        }
    }

    fn open_some(&mut self, side: usize) {
        while self.parties[side].left > 0 && self.parties[side].open.len() < self.at_once {
            let end = &mut self.pair.ends[side];
            let len = self.rng.random_range(1..300_000);
            let is_put = self.rng.random_bool(0.4);
            let region = end.op(alloc::vec![0; len]);
            let spec = RegionSpec {
                key: None,
                base: 0,
                len: len as u64,
                access: match is_put {
                    true => Access::WRITE,
                    false => Access::READ,
                },
            };
            let key = end.core.register(region, &spec).unwrap();
            let kind = match is_put {
                true => PUT,
                false => {
                    end.memory.insert(region.0, pattern(key, len));
                    GET
                }
            };
            let party = &mut self.parties[side];
            party.open.insert(key, (region, is_put));
            party.unsent.push(message(kind, key, len));
            party.left -= 1;
        }
    }

    fn send_some(&mut self, side: usize) {
        let to = [B, A][side];
        let unsent = core::mem::take(&mut self.parties[side].unsent);
        let mut unsent = unsent.into_iter().peekable();
        while let Some(message) = unsent.peek() {
            match self.pair.ends[side].send(to, &LOW, message) {
                Ok(()) => drop(unsent.next()),
                Err(refused) => {
                    assert_eq!(refused, Refused::Busy);
                    break;
                }
            }
        }
        self.parties[side].unsent = unsent.collect();
    }

    /// Handles the messages that one side has received. The first that lacks credit stops it.
    fn handle_messages(&mut self, side: usize) {
        let got = core::mem::take(&mut self.pair.ends[side].got);
        for (index, message) in got.iter().enumerate() {
            assert_eq!(message.bytes.len(), MESSAGE_LEN);
            let key = number(&message.bytes[1..9]);
            let len = usize::try_from(number(&message.bytes[9..])).unwrap();
            let is_taken = match message.bytes[0] {
                DONE => {
                    self.deregister(side, key);
                    true
                }
                kind => self.start(side, kind == PUT, key, len),
            };
            if !is_taken {
                self.pair.ends[side].got = got[index..].to_vec();
                return;
            }
        }
    }

    fn start(&mut self, side: usize, is_put: bool, key: u64, len: usize) -> bool {
        let to = [B, A][side];
        let spec = RemoteSpec {
            lane: LaneId::Low,
            key,
            addr: 0,
            imm: None,
        };
        let end = &mut self.pair.ends[side];
        let bytes = match is_put {
            true => pattern(key, len),
            false => alloc::vec![0xa5; len],
        };
        let op = end.op(bytes.clone());
        let result = match is_put {
            true => end.core.put(to, &spec, op, len as u64, 0).map(|staging| {
                if let Some(mut staging) = staging {
                    staging.push(&bytes);
                }
            }),
            false => end.core.get(to, &spec, op, len as u64),
        };
        match result {
            Ok(()) => {
                self.parties[side].under_way.insert(op.0, (key, is_put));
                true
            }
            Err(refused) => {
                assert_eq!(refused, Refused::Busy);
                end.memory.remove(&op.0);
                false
            }
        }
    }

    /// Deregisters a region that the peer has finished with.
    fn deregister(&mut self, side: usize, key: u64) {
        let (region, is_put) = self.parties[side].open.remove(&key).unwrap();
        let end = &mut self.pair.ends[side];
        let bytes = end.memory.remove(&region.0).unwrap();
        assert_eq!(end.core.deregister(key), Some(region));
        if is_put {
            assert!(bytes == pattern(key, bytes.len()), "what was put differs");
        }
        self.parties[side].closed += 1;
    }

    /// Checks completed operations and reports them to the peer.
    fn complete_some(&mut self, side: usize) {
        for (op, result) in core::mem::take(&mut self.pair.ends[side].ended) {
            let (key, is_put) = self.parties[side].under_way.remove(&op).unwrap();
            let bytes = self.pair.ends[side].memory.remove(&op).unwrap();
            assert_eq!(result, Ok(()), "is_put: {is_put}, {} bytes", bytes.len());
            assert!(
                is_put || bytes == pattern(key, bytes.len()),
                "what was got differs"
            );
            self.parties[side].unsent.push(message(DONE, key, 0));
        }
    }

    /// Runs until all regions are deregistered; calls `each` after each step.
    fn run(&mut self, mut each: impl FnMut(&mut Pair, usize)) {
        for step in 0..100_000 {
            for side in 0..2 {
                self.open_some(side);
                self.handle_messages(side);
                self.complete_some(side);
                self.send_some(side);
            }
            let begin = self.pair.now;
            for doubled in 0..24 {
                self.pair.run(MS / 50 * (1 << doubled));
                if self.pair.now > begin {
                    break;
                }
            }
            each(&mut self.pair, step);
            let is_done = |party: &Party| party.left == 0 && party.open.is_empty();
            if self.parties.iter().all(is_done)
                && self.parties.iter().all(|p| p.under_way.is_empty())
            {
                return;
            }
        }
        panic!("regions are never deregistered");
    }
}

fn pair(usage: StreamUse, seed: u64) -> Pair {
    let mut pair = Pair::new(&[LinkId::UDP, LinkId::PACKET], seed);
    for end in &mut pair.ends {
        end.core.shared_mut().ctx.limits_mut().stream = usage;
        end.core.set_buffer_len(LinkId::STREAM, 4 << 20);
    }
    pair.run(50 * MS);
    pair
}

// P12.7, P15.6, P15.7
#[test]
fn concurrent_one_shot_regions_transfer_completely() {
    for usage in [StreamUse::On, StreamUse::Auto, StreamUse::Off] {
        for (at_once, loss) in [(2, 0.05), (12, 0.0), (64, 0.05)] {
            let seed = at_once as u64;
            let mut pair = pair(usage, seed);
            (pair.faults.drop, pair.faults.reorder) = (loss, loss);
            let mut exchange = Exchange::new(pair, at_once, 64, seed);
            exchange.run(|pair, step| match step % 40 {
                _ if usage == StreamUse::Off => {}
                0 => pair.open_stream(),
                35 => pair.close_stream(),
                _ => {}
            });
            exchange.pair.faults = Faults::default();
            exchange.pair.run(500 * MS);
            exchange.pair.assert_clean();
        }
    }
}
