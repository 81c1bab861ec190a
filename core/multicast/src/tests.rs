// SPDX-License-Identifier: MIT OR Apache-2.0
//! The source and its hosts together, over a lossy network with a simulated clock.

use super::caster::Caster;
use super::datagram::{Codec, Header};
use super::listener::Listener;
use super::{Keys, Report, Terms};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;
use std::time::Instant;

const PIECE_LEN: usize = 100;
const WINDOW: u64 = 64;

/// Valid lengths of a block in bytes.
const LENS: std::ops::RangeInclusive<usize> = 72..=(1 << 20) + 72;

/// Blocks that the source and each host can hold.
const BLOCKS_HELD: u64 = 6;

struct Host {
    listener: Listener,
    got: Vec<Vec<u8>>,
    loss: f64,
    has_failed: bool,
}

struct Net {
    random: ChaCha8Rng,
    now: Instant,
    caster: Caster<Instant>,
    codec: Codec,
    messages: Vec<Vec<u8>>,
    hosts: BTreeMap<u32, Host>,
    datagrams: u64,
    words: u64,
}

impl Net {
    fn new(seed: u64, losses: &[f64], block_count: usize) -> Net {
        Net::of_blocks(seed, losses, block_count, 100..9000)
    }

    fn of_blocks(
        seed: u64,
        losses: &[f64],
        block_count: usize,
        lens: std::ops::Range<usize>,
    ) -> Net {
        println!("SEED={seed}");
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let terms = Terms {
            piece_len: PIECE_LEN,
            window: WINDOW,
            serial: 7,
        };
        let messages = (0..block_count).map(|_| {
            let mut message = vec![0; random.random_range(lens.clone())];
            random.fill(&mut message[..]);
            message
        });
        let messages: Vec<_> = messages.collect();
        let now = Instant::now();
        let host = |loss: &f64| Host {
            listener: Listener::new(terms, LENS),
            got: Vec::new(),
            loss: *loss,
            has_failed: false,
        };
        Net {
            random,
            now,
            caster: Caster::new((1..).take(losses.len()), terms, now),
            codec: Codec::new(&Keys::draw().unwrap()).unwrap(),
            messages,
            hosts: (1..).zip(losses.iter().map(host)).collect(),
            datagrams: 0,
            words: 0,
        }
    }

    fn lowest(&self) -> u64 {
        let alive = self.hosts.values().filter(|host| !host.has_failed);
        alive.map(|host| host.got.len() as u64).min().unwrap_or(0)
    }

    /// Sends everything that may be sent now. Returns `false` if nothing was sent.
    fn send(&mut self) -> bool {
        let limit = (self.lowest() + BLOCKS_HELD).min(self.messages.len() as u64);
        let messages = &self.messages;
        let len_of = |seq| (seq < limit).then(|| messages[usize::try_from(seq).unwrap()].len());
        let Some(header) = self.caster.next(self.now, len_of) else {
            return false;
        };
        self.datagrams += 1;
        let message = &self.messages[usize::try_from(header.block).unwrap()];
        let mut bytes = Vec::new();
        self.codec.write(&mut bytes, &header, message, PIECE_LEN);
        let (header, body) = self.codec.read(&mut bytes).unwrap();
        for host in self.hosts.values_mut().filter(|host| !host.has_failed) {
            if self.random.random_bool(host.loss) {
                continue;
            }
            host.take(&header, body);
        }
        true
    }

    /// Delivers reports, and advances time if nothing else happens. Returns `false` at the end.
    fn step(&mut self) -> bool {
        let mut has_moved = self.send();
        // Some reports are delayed.
        let ranks: Vec<u32> = self.hosts.keys().copied().collect();
        for rank in ranks {
            let is_late = self.random.random_bool(0.3);
            let host = self.hosts.get_mut(&rank).unwrap();
            if host.has_failed || is_late {
                continue;
            }
            if let Some(report) = host.listener.take_report() {
                self.words += 1;
                self.caster.on_report(rank, &report);
                has_moved = true;
            }
        }
        self.caster.forget(self.lowest());
        if has_moved {
            return true;
        }
        let Some(timeout) = self.caster.timeout() else {
            return false;
        };
        self.now = self.now.max(timeout);
        for (rank, sent) in self.caster.on_time(self.now) {
            self.words += 1;
            let host = self.hosts.get_mut(&rank).unwrap();
            host.listener.on_sent(sent);
        }
        true
    }

    fn run(&mut self) {
        while self.step() {
            assert!(self.datagrams < 1_000_000, "the exchange does not end");
        }
        for (rank, host) in self.hosts.iter().filter(|(_, host)| !host.has_failed) {
            assert!(host.got == self.messages, "host {rank}");
        }
    }

    fn piece_count(&self) -> u64 {
        let pieces = self.messages.iter().map(|it| it.len().div_ceil(PIECE_LEN));
        pieces.sum::<usize>() as u64
    }
}

impl Host {
    fn take(&mut self, header: &Header, body: &[u8]) {
        let limit = self.got.len() as u64 + BLOCKS_HELD;
        self.listener
            .on_datagram(header, body, limit, || vec![0xa5; 3]);
        while let Some((seq, message)) = self.listener.take_block() {
            assert_eq!(seq, self.got.len() as u64);
            self.got.push(message);
        }
    }
}

#[test]
fn without_losses_each_piece_is_sent_once() {
    let mut net = Net::new(1, &[0.0; 5], 40);
    net.run();
    assert_eq!(net.datagrams, net.piece_count());
}

#[test]
fn all_hosts_get_all_blocks_despite_losses() {
    for seed in 0..40 {
        let mut random = ChaCha8Rng::seed_from_u64(1000 + seed);
        let count = random.random_range(1..9);
        let losses: Vec<f64> = (0..count).map(|_| random.random_range(0.0..0.6)).collect();
        Net::new(seed, &losses, 25).run();
    }
}

/// With one datagram per lost piece, the ratio would be 1.08.
#[test]
fn one_datagram_repairs_losses_of_several_hosts() {
    // As many pieces as a block of 1 MiB has.
    let mut net = Net::of_blocks(3, &[0.01; 8], 40, 73_000..73_700);
    net.run();
    let share = net.datagrams as f64 / net.piece_count() as f64;
    println!("{share} datagrams a piece, {} words", net.words);
    assert!(share < 1.03, "{share}");
}

#[test]
fn failed_hosts_are_not_awaited() {
    for seed in 0..20 {
        let mut net = Net::new(seed, &[0.05; 4], 30);
        let moment = net.random.random_range(1..1500);
        for step in 0.. {
            if step == moment {
                net.hosts.get_mut(&2).unwrap().has_failed = true;
                // Until its failure is reported, it may only delay the other hosts.
                for _ in 0..1000 {
                    net.step();
                }
                net.caster.remove_member(2);
            }
            if !net.step() && step > moment {
                break;
            }
        }
        net.run();
    }
}

#[test]
fn datagrams_that_do_not_fit_change_nothing() {
    let terms = Terms {
        piece_len: PIECE_LEN,
        window: WINDOW,
        serial: 0,
    };
    let mut listener = Listener::new(terms, LENS);
    let mut take = |block: u64, len: usize, pieces: &[u16], body_len: usize| {
        let header = Header {
            serial: 5,
            block,
            len,
            pieces: pieces.to_vec(),
        };
        listener.on_datagram(&header, &vec![1; body_len], 4, Vec::new);
        listener.take_block()
    };
    assert_eq!(take(0, 200, &[0], 100), None);
    // Another length, a piece beyond the end, bodies too short and too long, blocks beyond the
    // limit, no piece, an invalid block length.
    let wrong = [
        (0, 100, &[0][..], 100),
        (0, 200, &[2], 100),
        (0, 200, &[1], 99),
        (0, 200, &[1], 101),
        (0, 200, &[0, 1], 99),
        (4, 100, &[0], 100),
        (0, 200, &[], 100),
        (0, 10, &[0], 10),
        (0, 3 << 20, &[0], 100),
    ];
    for (block, len, pieces, body_len) in wrong {
        assert_eq!(take(block, len, pieces, body_len), None, "{pieces:?}");
    }
    let (seq, message) = take(0, 200, &[1], 100).unwrap();
    assert_eq!((seq, message), (0, vec![1; 200]));
    assert_eq!(take(0, 200, &[0], 100), None, "a second time");
}

#[test]
fn invalid_reports_are_harmless() {
    let mut net = Net::new(9, &[0.1; 2], 10);
    let mut random = ChaCha8Rng::seed_from_u64(9);
    for _ in 0..500 {
        net.step();
        let missing = super::MissingPieces {
            block: random.random_range(0..20),
            ranges: vec![(random.random(), random.random())],
        };
        let report = Report {
            seen: 0,
            next: 0,
            missing: vec![missing],
        };
        net.caster.on_report(random.random_range(0..4), &report);
    }
    net.run();
}

/// Datagrams that a source of another version might send: only the tag is valid.
#[test]
fn arbitrary_datagrams_do_not_panic() {
    let terms = Terms {
        piece_len: PIECE_LEN,
        window: WINDOW,
        serial: 0,
    };
    let mut random = ChaCha8Rng::seed_from_u64(11);
    let mut listener = Listener::new(terms, LENS);
    let mut taken = 0;
    for _ in 0..200_000 {
        let is_odd = random.random_bool(0.1);
        let count = random.random_range(0..9) / 3;
        let pieces: Vec<u16> = (0..count).map(|_| random.random_range(0..5)).collect();
        let header = Header {
            serial: random.random(),
            block: taken + random.random_range(0..8),
            len: match is_odd {
                true => random.random_range(0..1 << 24),
                false => 100 * random.random_range(0..4),
            },
            pieces,
        };
        let body = vec![
            1;
            if is_odd {
                random.random_range(0..200)
            } else {
                100
            }
        ];
        listener.on_datagram(&header, &body, taken + BLOCKS_HELD, Vec::new);
        if let Some((seq, message)) = listener.take_block() {
            assert_eq!(seq, taken);
            assert!(LENS.contains(&message.len()));
            taken += 1;
        }
        let report = listener.take_report();
        assert!(report.is_none_or(|report| report.missing.len() <= 512));
    }
    assert!(taken > 0, "no block was complete");
}
