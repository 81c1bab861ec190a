// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random programs without races. Each load must return the byte that was stored last: a program
//! without races cannot tell release consistency from memory that all processes share.

use super::for_each_seed;
use super::machine::{Machine, Op, PAGE_LEN};
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Bytes of the shared memory that programs use, in few pages to cause false sharing.
const BYTES: usize = 5 * PAGE_LEN;
const LOCKS: usize = 4;

/// Bytes of a phase: some belong to a lock, others to one process, and the rest is only read.
struct Phase {
    by_lock: Vec<Vec<usize>>,
    by_process: Vec<Vec<usize>>,
    read_only: Vec<usize>,
}

impl Phase {
    fn new(processes: usize, random: &mut ChaCha8Rng) -> Phase {
        let mut phase = Phase {
            by_lock: vec![Vec::new(); LOCKS],
            by_process: vec![Vec::new(); processes],
            read_only: Vec::new(),
        };
        let mut bytes: Vec<usize> = (0..BYTES).collect();
        bytes.shuffle(random);
        for at in bytes.into_iter().take(60) {
            match random.random_range(0..3) {
                0 => phase.by_lock[random.random_range(0..LOCKS)].push(at),
                1 => phase.by_process[random.random_range(0..processes)].push(at),
                _ => phase.read_only.push(at),
            }
        }
        phase
    }

    fn access(bytes: &[usize], random: &mut ChaCha8Rng) -> Option<Op> {
        let at = *bytes.get(random.random_range(0..bytes.len().max(1)))?;
        Some(match random.random_range(0..3) {
            0 => Op::Check(at),
            1 => Op::Add(at),
            _ => Op::Store(at, random.random()),
        })
    }

    /// Returns the steps of process `me` until the end of the phase.
    fn steps(&self, me: usize, random: &mut ChaCha8Rng) -> Vec<Op> {
        let mut ops = Vec::new();
        for _ in 0..random.random_range(0..8) {
            let lock = random.random_range(0..LOCKS);
            let is_locked = random.random_bool(0.6);
            if is_locked {
                ops.push(Op::Acquire(u32::try_from(lock).unwrap()));
            }
            for _ in 0..random.random_range(0..6) {
                let bytes = match is_locked && random.random_bool(0.7) {
                    true => &self.by_lock[lock],
                    false => &self.by_process[me],
                };
                ops.extend(Phase::access(bytes, random));
                let read = random.random_range(0..self.read_only.len().max(1));
                ops.extend(self.read_only.get(read).map(|&at| Op::Check(at)));
            }
            if is_locked {
                ops.push(Op::Release(u32::try_from(lock).unwrap()));
            }
        }
        ops
    }
}

fn programs(seed: u64) -> Vec<Vec<Op>> {
    let random = &mut ChaCha8Rng::seed_from_u64(seed);
    let count = random.random_range(1..6);
    let mut programs = vec![Vec::new(); count];
    for _ in 0..random.random_range(1..6) {
        let phase = Phase::new(count, random);
        let barrier = Op::Barrier(random.random_range(0..3));
        for (me, program) in programs.iter_mut().enumerate() {
            program.extend(phase.steps(me, random));
            program.push(barrier);
        }
    }
    for program in &mut programs {
        program.extend((0..BYTES).map(Op::Check));
    }
    programs
}

#[test]
fn programs_without_races_read_what_was_stored_last() {
    for_each_seed(1500, |seed| {
        let collect_at = match seed % 3 {
            0 => 0,
            1 => 600,
            _ => usize::MAX,
        };
        Machine::new(programs(seed), collect_at, !seed)
            .run()
            .unwrap();
    });
}

/// The peak memory of intervals and diffs does not depend on the length of the program.
#[test]
fn collections_keep_memory_bounded() {
    let program = |me: usize, rounds: usize| {
        let round = |round: usize| {
            let value = u8::try_from(round % 256).unwrap();
            let stores =
                (0..PAGE_LEN).map(move |at| Op::Store(at * 3 % PAGE_LEN + me * PAGE_LEN, value));
            let other = (me + 1) % 2 * PAGE_LEN;
            stores.chain([Op::Barrier(0), Op::Check(other), Op::Barrier(1)])
        };
        (0..rounds).flat_map(round).collect::<Vec<Op>>()
    };
    let most = |rounds| {
        let programs = vec![program(0, rounds), program(1, rounds)];
        let ended = Machine::new(programs, 2000, 1).run().unwrap();
        ended.statistics[0].held_len_max
    };
    let (short, long) = (most(40), most(400));
    assert!(long <= short + 1000, "{short} bytes became {long}");
}
