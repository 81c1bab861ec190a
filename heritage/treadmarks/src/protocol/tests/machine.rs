// SPDX-License-Identifier: MIT OR Apache-2.0
//! Simulated processes with simulated memory, and the network between them.

use crate::protocol::wire::{BarrierKind, Shape};
use crate::protocol::{Access, Dsm, DsmError, Limits, Memory};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::{BTreeMap, VecDeque};

pub(super) const PAGE_LEN: usize = 64;
const PAGE_COUNT: u32 = 64;

/// Steps after which a schedule counts as stuck.
const STEPS_MAX: usize = 1_000_000;

/// Memory of a process, with the program's access to each page.
pub(super) struct Pages {
    bytes: Vec<u8>,
    access: Vec<Access>,
}

impl Memory for Pages {
    fn protect(&mut self, first: u32, count: u32, access: Access) {
        self.access[first as usize..][..count as usize].fill(access);
    }

    fn read(&self, page: u32, bytes: &mut [u8]) {
        bytes.copy_from_slice(&self.bytes[page as usize * PAGE_LEN..][..PAGE_LEN]);
    }

    fn write(&mut self, page: u32, bytes: &[u8]) {
        self.bytes[page as usize * PAGE_LEN..][..PAGE_LEN].copy_from_slice(bytes);
    }
}

/// Step of a program.
#[derive(Clone, Copy, Debug)]
pub(super) enum Op {
    /// Stores the byte at the address in the given register.
    Load(usize, usize),
    Store(usize, u8),
    /// Adds 1 to the byte at the address.
    Add(usize),
    /// Compares the byte with the last one that was stored, in the order of the simulation.
    Check(usize),
    Acquire(u32),
    Release(u32),
    Barrier(u32),
    /// Waits for the condition of a lock until the byte at the address is not 0.
    Await(u32, u32, usize),
    Signal(u32, u32),
}

struct Process {
    dsm: Dsm<Pages>,
    program: VecDeque<Op>,
    registers: BTreeMap<usize, u8>,
    has_left: bool,
}

pub(super) struct Machine {
    processes: Vec<Process>,
    /// Messages in flight of each pair.
    links: BTreeMap<(u32, u32), VecDeque<Vec<u8>>>,
    /// Last stored byte of each address, in the order of the simulation.
    truth: Vec<u8>,
    random: ChaCha8Rng,
}

impl Machine {
    /// Creates processes with these programs. A barrier collects from `collect_at` bytes on.
    pub(super) fn new(programs: Vec<Vec<Op>>, collect_at: usize, seed: u64) -> Machine {
        let size = u32::try_from(programs.len()).unwrap();
        let shape = Shape {
            size,
            page_len: PAGE_LEN,
            page_count: PAGE_COUNT,
        };
        let process = |(me, program): (u32, Vec<Op>)| {
            let memory = Pages {
                bytes: vec![0; PAGE_LEN * PAGE_COUNT as usize],
                access: vec![Access::Read; PAGE_COUNT as usize],
            };
            Process {
                dsm: Dsm::new(me, Limits { shape, collect_at }, memory),
                program: program.into(),
                registers: BTreeMap::new(),
                has_left: false,
            }
        };
        Machine {
            processes: (0..size).zip(programs).map(process).collect(),
            links: BTreeMap::new(),
            truth: vec![0; PAGE_LEN * PAGE_COUNT as usize],
            random: ChaCha8Rng::seed_from_u64(seed),
        }
    }

    /// Runs all programs to their end. Returns the registers of each.
    ///
    /// # Errors
    /// That of the process that failed.
    pub(super) fn run(mut self) -> Result<Ended, DsmError> {
        for _ in 0..STEPS_MAX {
            if self
                .processes
                .iter()
                .all(|one| one.has_left && !one.dsm.is_waiting())
            {
                let statistics = self
                    .processes
                    .iter()
                    .map(|one| one.dsm.statistics().clone());
                return Ok(Ended {
                    statistics: statistics.collect(),
                    registers: self
                        .processes
                        .into_iter()
                        .map(|one| one.registers)
                        .collect(),
                });
            }
            self.step()?;
        }
        panic!("no process can continue: {:?}", self.links);
    }

    /// Lets a random program do a step, or delivers a random message.
    fn step(&mut self) -> Result<(), DsmError> {
        let ready: Vec<usize> = {
            let processes = self.processes.iter().enumerate();
            let ready = processes.filter(|(_, one)| !one.dsm.is_waiting() && !one.has_left);
            ready.map(|(index, _)| index).collect()
        };
        let links: Vec<(u32, u32)> = self.links.keys().copied().collect();
        let count = ready.len() + links.len();
        assert!(count > 0, "no process can continue");
        let choice = self.random.random_range(0..count);
        let active = match ready.get(choice) {
            Some(&process) => {
                self.advance(process)?;
                process
            }
            None => self.deliver(links[choice - ready.len()])?,
        };
        let from = u32::try_from(active).unwrap();
        while let Some((to, bytes)) = self.processes[active].dsm.poll_transmit() {
            self.links.entry((from, to)).or_default().push_back(bytes);
        }
        Ok(())
    }

    fn deliver(&mut self, link: (u32, u32)) -> Result<usize, DsmError> {
        let queue = self.links.get_mut(&link).unwrap();
        let bytes = queue.pop_front().unwrap();
        if queue.is_empty() {
            self.links.remove(&link);
        }
        let to = link.1 as usize;
        self.processes[to].dsm.handle(link.0, &bytes)?;
        Ok(to)
    }

    /// Does the next step of a program, or the fault that it causes.
    fn advance(&mut self, index: usize) -> Result<(), DsmError> {
        let process = &mut self.processes[index];
        let Some(op) = process.program.pop_front() else {
            process.has_left = true;
            return process.dsm.arrive_at(BarrierKind::Exit);
        };
        let (address, is_write) = match &op {
            Op::Load(at, _) | Op::Check(at) | Op::Await(_, _, at) => (*at, false),
            Op::Store(at, _) | Op::Add(at) => (*at, true),
            _ => return self.synchronise(index, &op),
        };
        let page = address / PAGE_LEN;
        let access = process.dsm.memory().access[page];
        let is_allowed = access == Access::Write || access == Access::Read && !is_write;
        if !is_allowed {
            process.program.push_front(op);
            // The kernel may not report which kind of access has failed.
            let is_known = self.random.random();
            return process
                .dsm
                .fault(u32::try_from(page).unwrap(), is_write && is_known);
        }
        let byte = &mut process.dsm.memory().bytes[address];
        match op {
            Op::Load(_, register) => {
                let value = *byte;
                process.registers.insert(register, value);
            }
            Op::Store(_, value) => (*byte, self.truth[address]) = (value, value),
            Op::Add(_) => {
                *byte = byte.wrapping_add(1);
                self.truth[address] = *byte;
            }
            Op::Check(_) => assert_eq!(*byte, self.truth[address], "process {index}, {address}"),
            Op::Await(lock, condition, _) if *byte == 0 => {
                process.program.push_front(op);
                return process.dsm.sleep(lock, condition);
            }
            _ => {}
        }
        Ok(())
    }

    fn synchronise(&mut self, index: usize, op: &Op) -> Result<(), DsmError> {
        let dsm = &mut self.processes[index].dsm;
        match *op {
            Op::Acquire(lock) => dsm.acquire(lock),
            Op::Release(lock) => dsm.release(lock),
            Op::Barrier(id) => dsm.arrive_at(BarrierKind::Barrier(id)),
            Op::Signal(lock, condition) => dsm.signal(lock, condition, true),
            _ => Ok(()),
        }
    }
}

/// Result of a schedule.
pub(super) struct Ended {
    pub(super) registers: Vec<BTreeMap<usize, u8>>,
    pub(super) statistics: Vec<crate::statistics::Statistics>,
}

impl Ended {
    pub(super) fn register(&self, process: usize, register: usize) -> u8 {
        self.registers[process][&register]
    }
}
