// SPDX-License-Identifier: MIT OR Apache-2.0
//! Draws random programs from a seed.
//!
//! Steps that belong together (a send and its receive, a key and its uses) are drawn as one event.
//! The steps of an event run at once or some events later. The order of calls is therefore mixed in
//! every process, and a receive may be posted long before its message or long after it.

mod messages;
mod others;

use crate::model::ANY_TAGS;
use crate::plan::{
    Goal, How, Members, Message, Path, Pick, Place, Program, Reducer, Remote, Step, Wanted,
};
use crate::rules::BUFFERED_MAX;
use rand::rngs::StdRng;
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{Rng, SeedableRng};

/// Ports that receive from one sender each.
const PORTS: [u16; 4] = [1, 2, 7, 40_000];
/// A port that receives from any rank.
const ANY_PORT: u16 = 100;
/// A port with a handler.
const HANDLED_PORT: u16 = 101;
/// Ports of keys and bursts, and one that is never opened.
const KEY_PORT: u16 = 200;
const BURST_PORT: u16 = 300;
const CLOSED_PORT: u16 = 999;
/// Tags of cancelled receives, which no message has.
const WITHDRAWN_TAGS: u64 = 0xcc << 56;
/// All bits of a tag except its class.
const ANY_BITS: u64 = !(0xff << 56);

/// Lengths around the limits of words, frames, fragments, eager and rendezvous.
const LENS: [usize; 14] = [
    0, 1, 7, 8, 64, 255, 256, 1_400, 1_473, 4_096, 16_383, 16_384, 16_385, 32_769,
];
const LONG_LENS: [usize; 6] = [65_535, 65_536, 65_537, 100_001, 262_145, 700_000];

/// Way in which the processes of a program end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// All together.
    Barrier,
    /// Each after its part is done.
    Each,
    /// One long before the other processes, by itself.
    Early,
    /// One long before the other processes, by a signal.
    Killed,
}

/// A program under construction.
struct Drawing {
    rng: StdRng,
    path: Path,
    size: u32,
    now: usize,
    /// Delayed steps: (when, rank, (event, step)), in the order of drawing.
    later: Vec<(usize, u32, (usize, Step))>,
    processes: Vec<Vec<(usize, Step)>>,
    next_id: u32,
    next_slot: u32,
    next_region: u32,
    next_group: u16,
    /// The rank that ends early, and a flag set after its end.
    victim: Option<u32>,
    victim_ended: bool,
    opened: Vec<(u32, u16)>,
    handled: Vec<u32>,
    lanes: u64,
}

/// A program, with the event of each step.
#[derive(Clone, Debug)]
pub(crate) struct Drawn {
    pub(crate) program: Program,
    pub(crate) events: Vec<Vec<usize>>,
}

/// Event of steps that other events may depend on.
pub(crate) const EVERYBODYS: usize = usize::MAX;

/// Draws the program of `seed`. It has not been checked and may be unsound.
pub(crate) fn draw(seed: u64, paths: &[Path]) -> Drawn {
    let mut rng = StdRng::seed_from_u64(seed);
    let size = rng.random_range(2..=5);
    let path = *paths.choose(&mut rng).unwrap();
    let lanes = rng.random();
    let end = *[
        End::Barrier,
        End::Barrier,
        End::Each,
        End::Early,
        End::Killed,
    ]
    .choose(&mut rng)
    .unwrap();
    let events = rng.random_range(3..=24);
    let victim = matches!(end, End::Early | End::Killed).then(|| rng.random_range(0..size));
    let mut drawing = Drawing {
        rng,
        path,
        size,
        now: 0,
        later: Vec::new(),
        processes: vec![Vec::new(); size as usize],
        next_id: 1,
        next_slot: 0,
        next_region: 0,
        next_group: 1,
        victim,
        victim_ended: false,
        opened: Vec::new(),
        handled: Vec::new(),
        lanes,
    };
    let death = drawing.rng.random_range(1..=events);
    for event in 0..events {
        drawing.event();
        if event + 1 == death {
            drawing.end_victim(end);
        }
        drawing.tick();
    }
    drawing.finish(end)
}

impl Drawing {
    fn event(&mut self) {
        match self.rng.random_range(0..100) {
            0..40 => self.message(),
            40..50 => self.send_to_anybody(),
            50..55 => self.send_to_handler(),
            55..62 => self.collective(),
            62..69 => self.remote(),
            69..73 => self.claim(),
            73..76 => self.withdrawal(),
            76..80 => self.burst(),
            80..84 => self.flood(),
            84..90 => self.mistake(),
            90..93 => self.farewells(),
            _ => self.pause(),
        }
    }

    /// Performs the steps that were delayed until this event.
    fn tick(&mut self) {
        self.now += 1;
        let (due, later) = std::mem::take(&mut self.later)
            .into_iter()
            .partition(|(event, ..)| *event <= self.now);
        self.later = later;
        for (_, rank, (event, step)) in due {
            self.push_of(event, rank, step);
        }
    }

    fn push(&mut self, rank: u32, step: Step) {
        self.push_of(self.now, rank, step);
    }

    fn push_of(&mut self, event: usize, rank: u32, step: Step) {
        if !(self.victim == Some(rank) && self.victim_ended) {
            self.processes[rank as usize].push((event, step));
        }
    }

    fn put_off(&mut self, events: usize, rank: u32, step: Step) {
        match events {
            0 => self.push(rank, step),
            _ => self.later.push((self.now + events, rank, (self.now, step))),
        }
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.rng.random_range(0..100) < percent
    }

    /// Returns a delay: mostly none, sometimes several events.
    fn delay(&mut self) -> usize {
        match self.chance(50) {
            true => 0,
            false => self.rng.random_range(1..8),
        }
    }

    fn rank(&mut self) -> u32 {
        self.rng.random_range(0..self.size)
    }

    /// Returns two ranks, seldom the same.
    fn pair(&mut self) -> (u32, u32) {
        let from = self.rank();
        if self.chance(8) {
            return (from, from);
        }
        let others: Vec<u32> = (0..self.size).filter(|&rank| rank != from).collect();
        (from, *others.choose(&mut self.rng).unwrap())
    }

    fn message_of(&mut self, len: usize) -> Message {
        let id = self.next_id;
        self.next_id += 1;
        Message { id, len }
    }

    fn slot(&mut self) -> u32 {
        self.next_slot += 1;
        self.next_slot
    }

    fn short_len(&mut self) -> usize {
        match self.chance(60) {
            true => *LENS.choose(&mut self.rng).unwrap(),
            false => self.rng.random_range(0..3_000),
        }
    }

    fn len(&mut self) -> usize {
        match self.chance(12) {
            true => *LONG_LENS.choose(&mut self.rng).unwrap(),
            false => self.short_len(),
        }
    }

    /// Returns the buffer length for a message of `len` bytes: mostly equal, or longer, or too
    /// short.
    fn buffer(&mut self, len: usize) -> usize {
        match self.rng.random_range(0..10) {
            0 => len / 2,
            1 => len.saturating_sub(1),
            2 => len + 1,
            3 => len + 1_000,
            _ => len,
        }
    }

    fn how(&mut self) -> How {
        *[How::Plain, How::Plain, How::Gathered, How::Copied]
            .choose(&mut self.rng)
            .unwrap()
    }

    /// Returns the lane, which is fixed for each sender, receiver and port.
    fn lane(&self, from: u32, to: u32, port: u16) -> bool {
        let bit = u64::from(from) * 5 + u64::from(to) + u64::from(port) * 7;
        self.lanes >> (bit % 64) & 1 == 1
    }

    fn open(&mut self, rank: u32, port: u16) {
        if !self.opened.contains(&(rank, port)) {
            self.opened.push((rank, port));
            // Opened before or after messages arrive, but before the first receive.
            self.push_of(EVERYBODYS, rank, Step::Open(port));
        }
    }

    fn finish(mut self, end: End) -> Drawn {
        while !self.later.is_empty() {
            self.tick();
        }
        for rank in std::mem::take(&mut self.handled) {
            let step = Step::Handled {
                port: HANDLED_PORT,
                count: 0,
            };
            self.push(rank, step);
        }
        let survivors: Vec<u32> = (0..self.size)
            .filter(|&rank| self.victim != Some(rank))
            .collect();
        let lonely = end == End::Each && self.chance(30);
        if let Some(&rank) = survivors.first().filter(|_| lonely) {
            let pick = Pick::Tag {
                tag: WITHDRAWN_TAGS,
                ignore: 0,
            };
            let which = Wanted::from_anybody(pick);
            self.push(rank, Step::recv(which, 8));
        }
        for &rank in &survivors {
            if end == End::Barrier || self.victim.is_some() {
                let group = Members {
                    id: 16_000,
                    ranks: survivors.clone(),
                };
                self.push(rank, Step::Barrier(group));
            }
            self.push(rank, Step::Close);
        }
        let (events, processes) = self
            .processes
            .into_iter()
            .map(|steps| steps.into_iter().unzip())
            .unzip();
        let mut program = Program {
            path: self.path,
            processes,
        };
        count_handled(&mut program);
        Drawn { program, events }
    }
}

/// Makes each process wait for as many messages to its handler as are sent to it.
pub(crate) fn count_handled(program: &mut Program) {
    let goals = program
        .processes
        .iter()
        .flatten()
        .filter_map(|step| match step {
            Step::Send { to, .. } | Step::Start { to, .. } => Some(*to),
            _ => None,
        });
    let goals: Vec<Goal> = goals.collect();
    for (rank, steps) in (0..).zip(&mut program.processes) {
        for step in steps {
            if let Step::Handled { port, count } = step {
                let place = Place::Port(*port);
                let ours = |goal: &&Goal| goal.rank == rank && goal.place == place;
                *count = goals.iter().filter(ours).count();
            }
        }
    }
}
