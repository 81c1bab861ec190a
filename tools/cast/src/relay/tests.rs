// SPDX-License-Identifier: MIT OR Apache-2.0
//! Simulation of chains and trees in virtual time, with processes that fail at random moments.

use super::*;
use crate::block::{Coding, Head};
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

const STALL: Duration = Duration::from_secs(30);

fn block(seq: u64, kind: Kind) -> Block {
    let head = Head {
        kind,
        coding: Coding::Plain,
        seq,
        raw_len: 0,
        batch: 0,
        index: u32::try_from(seq).unwrap(),
        hash: [0; 32],
    };
    Block::new(head, Vec::new())
}

/// A message in flight between two processes.
#[derive(Clone, Debug)]
enum Message {
    Block(Block),
    Control(Control),
}

struct Process {
    relay: Relay,
    /// Blocks waiting to be verified, then stored.
    unverified: VecDeque<u64>,
    unstored: VecDeque<u64>,
    stored: Vec<u64>,
    watched: BTreeSet<u32>,
    is_dead: bool,
    is_orphaned: bool,
    held_max: usize,
}

/// Processes, with ordered channels between each pair.
struct Net {
    processes: Vec<Process>,
    channels: BTreeMap<(u32, u32), VecDeque<Message>>,
    block_count: u64,
    fed: u64,
    now: Instant,
    bypassed: Vec<(u32, String)>,
}

impl Net {
    fn new(shape: Shape, window: usize, block_count: u64) -> Net {
        let now = Instant::now();
        let process = |rank| Process {
            relay: Relay::new(rank, shape, window, STALL, now),
            unverified: VecDeque::new(),
            unstored: VecDeque::new(),
            stored: Vec::new(),
            watched: BTreeSet::new(),
            is_dead: false,
            is_orphaned: false,
            held_max: 0,
        };
        let mut net = Net {
            processes: (0..shape.size).map(process).collect(),
            channels: BTreeMap::new(),
            block_count,
            fed: 0,
            now,
            bypassed: Vec::new(),
        };
        (0..shape.size).for_each(|rank| net.drain(rank));
        net
    }

    fn drain(&mut self, rank: u32) {
        while let Some(action) = self.processes[rank as usize].relay.poll_action() {
            let mut send = |to, message| {
                self.channels
                    .entry((rank, to))
                    .or_default()
                    .push_back(message);
            };
            match action {
                Action::Send { to, block } => send(to, Message::Block(block)),
                Action::SendControl { to, control } => send(to, Message::Control(control)),
                Action::Watch(peer) => {
                    self.processes[rank as usize].watched.insert(peer);
                }
                Action::Bypassed { rank, why } => self.bypassed.push((rank, why)),
                Action::Orphaned => self.processes[rank as usize].is_orphaned = true,
                Action::Dismissed(_) => self.processes[rank as usize].is_dead = true,
            }
        }
        let process = &mut self.processes[rank as usize];
        process.held_max = process.held_max.max(process.relay.ring.len());
    }

    fn feed(&mut self) {
        let source = &mut self.processes[0].relay;
        while source.free_slots() > 0 && self.fed < self.block_count {
            let is_last = self.fed + 1 == self.block_count;
            let kind = if is_last { Kind::End } else { Kind::Data };
            source.on_block(block(self.fed, kind));
            self.fed += 1;
            source.on_verified(self.fed);
            source.on_stored(self.fed, &mut Vec::new());
        }
        self.drain(0);
    }

    /// Performs one random possible step; returns `false` if there is none.
    fn step(&mut self, random: &mut ChaCha8Rng, stalled: Option<u32>) -> bool {
        self.feed();
        let is_up = |net: &Net, rank: &u32| !net.processes[*rank as usize].is_dead;
        let mut steps: Vec<(u32, u32)> = Vec::new();
        for (&(from, to), messages) in &self.channels {
            let has_free_slot = |process: &Process| process.relay.free_slots() > 0;
            let is_receivable = match messages.front() {
                None => false,
                Some(Message::Control(_)) => true,
                Some(Message::Block(_)) => {
                    let process = &self.processes[to as usize];
                    process.relay.parent() == Some(from) && has_free_slot(process)
                }
            };
            if is_receivable && is_up(self, &to) {
                steps.push((from, to));
            }
        }
        let ranks: Vec<u32> = (0..u32::try_from(self.processes.len()).unwrap()).collect();
        let busy = ranks.iter().copied().filter(|rank| {
            let process = &self.processes[*rank as usize];
            let stores = Some(*rank) != stalled && !process.unstored.is_empty();
            !process.is_dead && (!process.unverified.is_empty() || stores)
        });
        steps.extend(busy.map(|rank| (rank, rank)));
        let Some(&(from, to)) = steps.choose(random) else {
            return self.report_failures();
        };
        match from == to {
            true => self.work(to, random, stalled),
            false => self.deliver(from, to),
        }
        if random.random_bool(0.1) {
            self.report_failures();
        }
        true
    }

    fn work(&mut self, rank: u32, random: &mut ChaCha8Rng, stalled: Option<u32>) {
        let process = &mut self.processes[rank as usize];
        let may_store = Some(rank) != stalled && !process.unstored.is_empty();
        if !process.unverified.is_empty() && (!may_store || random.random_bool(0.5)) {
            let seq = process.unverified.pop_front().unwrap();
            process.unstored.push_back(seq);
            process.relay.on_verified(seq + 1);
        } else if may_store {
            let seq = process.unstored.pop_front().unwrap();
            process.stored.push(seq);
            process.relay.on_stored(seq + 1, &mut Vec::new());
        }
        self.drain(rank);
    }

    fn deliver(&mut self, from: u32, to: u32) {
        let message = self
            .channels
            .get_mut(&(from, to))
            .unwrap()
            .pop_front()
            .unwrap();
        let now = self.now;
        let process = &mut self.processes[to as usize];
        match message {
            Message::Control(control) => {
                process
                    .relay
                    .on_control(now, from, control, &mut Vec::new());
            }
            Message::Block(block) => {
                let seq = block.head.seq;
                if process.relay.on_block(block) {
                    process.unverified.push_back(seq);
                }
                let sender = &mut self.processes[from as usize];
                if !sender.is_dead {
                    sender.relay.on_sent(to, &mut Vec::new());
                }
            }
        }
        self.drain(to);
        self.drain(from);
    }

    /// Reports failures to the watching processes, after messages that the failed process had sent.
    /// Messages that it had not received are lost.
    fn report_failures(&mut self) -> bool {
        let mut failures = Vec::new();
        for (rank, process) in self.processes.iter().enumerate() {
            let rank = u32::try_from(rank).unwrap();
            for peer in process.watched.iter().filter(|_| !process.is_dead) {
                if self.processes[*peer as usize].is_dead {
                    failures.push((rank, *peer));
                }
            }
        }
        for (rank, peer) in &failures {
            while self
                .channels
                .get(&(*peer, *rank))
                .is_some_and(|messages| !messages.is_empty())
            {
                let messages = self.channels.get_mut(&(*peer, *rank)).unwrap();
                if let Some(Message::Control(control)) = messages.pop_front() {
                    let now = self.now;
                    let relay = &mut self.processes[*rank as usize].relay;
                    relay.on_control(now, *peer, control, &mut Vec::new());
                }
            }
            self.channels.remove(&(*rank, *peer));
            let process = &mut self.processes[*rank as usize];
            process.watched.remove(peer);
            process
                .relay
                .on_failed(self.now, *peer, "killed", &mut Vec::new());
            self.drain(*rank);
        }
        !failures.is_empty()
    }

    fn assert_complete(&self, live: impl Iterator<Item = u32>) {
        for rank in live {
            let process = &self.processes[rank as usize];
            let expected: Vec<u64> = (0..self.block_count).collect();
            assert!(
                process.stored == expected,
                "rank {rank} got {} blocks",
                process.stored.len()
            );
            assert!(process.relay.is_finished(), "rank {rank} is not finished");
        }
        assert!(self.processes[0].relay.is_finished());
    }
}

#[test]
fn all_members_receive_all_blocks_in_any_order() {
    for seed in 0..200 {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let shape = Shape {
            degree: random.random_range(1..4),
            size: random.random_range(2..10),
        };
        let window = random.random_range(1..12);
        let mut net = Net::new(shape, window, 40);
        while net.step(&mut random, None) {}
        net.assert_complete(1..shape.size);
        assert!(
            net.processes
                .iter()
                .all(|process| process.held_max <= window)
        );
        assert_eq!(net.bypassed, [], "seed {seed}");
    }
}

#[test]
fn live_members_receive_all_blocks_despite_failures() {
    for seed in 0..500 {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let shape = Shape {
            degree: random.random_range(1..4),
            size: random.random_range(3..12),
        };
        let mut net = Net::new(shape, random.random_range(1..12), 40);
        let deaths = random.random_range(1..shape.size);
        let mut when: Vec<u32> = (0..deaths).map(|_| random.random_range(0..600)).collect();
        when.sort_unstable();
        let mut steps = 0;
        loop {
            let is_due = when.first().is_some_and(|when| steps >= *when);
            if is_due {
                when.remove(0);
                let victim = random.random_range(1..shape.size);
                net.processes[victim as usize].is_dead = true;
            }
            if !net.step(&mut random, None) && when.is_empty() {
                break;
            }
            steps += 1;
        }
        let live = (1..shape.size).filter(|rank| !net.processes[*rank as usize].is_dead);
        net.assert_complete(live);
        assert!(
            net.processes.iter().all(|process| !process.is_orphaned),
            "seed {seed}"
        );
    }
}

#[test]
fn only_the_stalled_member_is_dismissed() {
    for seed in 0..100 {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let shape = Shape {
            degree: random.random_range(1..3),
            size: random.random_range(3..9),
        };
        let mut net = Net::new(shape, 4, 40);
        let stalled = random.random_range(1..shape.size);
        loop {
            while net.step(&mut random, Some(stalled)) {}
            if net.processes[0].relay.is_finished() {
                break;
            }
            net.now += STALL / 2;
            assert!(
                net.now.elapsed() < STALL,
                "seed {seed}: no member is dismissed"
            );
            for rank in 0..shape.size {
                if !net.processes[rank as usize].is_dead {
                    let now = net.now;
                    net.processes[rank as usize]
                        .relay
                        .on_time(now, &mut Vec::new());
                    net.drain(rank);
                }
            }
        }
        net.assert_complete((1..shape.size).filter(|rank| *rank != stalled));
        let ranks: BTreeSet<u32> = net.bypassed.iter().map(|(rank, _)| *rank).collect();
        assert_eq!(ranks, BTreeSet::from([stalled]), "seed {seed}");
    }
}

#[test]
fn orphan_without_live_ancestors_is_reported() {
    let mut net = Net::new(Shape { degree: 1, size: 3 }, 4, 40);
    let mut random = ChaCha8Rng::seed_from_u64(7);
    for _ in 0..20 {
        net.step(&mut random, None);
    }
    net.processes[0].is_dead = true;
    net.processes[1].is_dead = true;
    net.report_failures();
    net.report_failures();
    assert!(net.processes[2].is_orphaned);
}

#[test]
fn child_receives_only_missing_blocks() {
    let now = Instant::now();
    let mut relay = Relay::new(0, Shape { degree: 1, size: 2 }, 16, STALL, now);
    let mut bits = vec![0_u8; 1];
    bits[0] |= 1 << 3;
    let control = Control::Needs { batch: 0, bits };
    relay.on_control(now, 1, control, &mut Vec::new());
    for seq in 0..6 {
        let kind = if seq == 5 { Kind::End } else { Kind::Data };
        relay.on_block(block(seq, kind));
        relay.on_verified(seq + 1);
        relay.on_stored(seq + 1, &mut Vec::new());
    }
    let mut sent = Vec::new();
    while let Some(action) = relay.poll_action() {
        if let Action::Send { block, .. } = action {
            sent.push(block.head.seq);
        }
    }
    assert_eq!(sent, [3, 5]);
}
