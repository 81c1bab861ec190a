// SPDX-License-Identifier: MIT OR Apache-2.0
//! Short measurements for [`crate::Model`]: reading, hashing, storing, and each host's link to the
//! next.
//!
//! Hosts that run on one machine take turns, and so do pairs of hosts that have a machine in
//! common. Each is measured alone, and the model adds them up.
//!
//! Invariant: nothing is left behind. The written file has no name.

use crate::block::Kind;
use crate::event::Event;
use crate::fault::Fault;
use crate::model::{Cost, Rates};
use crate::source::{self, Out};
use crate::spec::{BLOCK_LEN, Source, Spec};
use crate::wait::wait_for_event;
use portolan::{Buffer, Node, PortConfig, Request, Target};
use rustix::fs::{Mode, OFlags};
use rustix::time::{ClockId, clock_gettime};
use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Port of the blocks.
const DATA: u16 = 1;

/// Duration of each measurement. In this time a disk starts to read ahead, and a link of 1 Gb/s
/// carries 30 MB.
const MEASURING_TIME: Duration = Duration::from_millis(300);

/// Limit of reading and writing in bytes, so that they use little of a disk and its cache. Only
/// time limits the sending, which needs no storage.
const BYTES_MAX: u64 = 64 << 20;

/// Longest sleep, for events that do not wake the process.
const SLEEP_MAX: Duration = Duration::from_secs(1);

/// Blocks used in turn. As in a cast, none of them is in the processor's cache.
const BLOCKS: usize = 32;

/// Blocks in flight, as in a cast.
const IN_FLIGHT_MAX: usize = 4;

/// Warm-up of the path: minimum blocks and time that do not count. Congestion windows grow, and the
/// library tests which of its links is fastest. At 10 Gb/s six blocks take only 5 ms.
const WARM_UP_BLOCKS: u64 = 6;
const WARM_UP_TIME: Duration = Duration::from_millis(150);

/// Time for which blocks are sent to another host: the measurement after the warm-up.
const SENDING_TIME: Duration = MEASURING_TIME.saturating_add(WARM_UP_TIME);

/// Bytes of the id of a machine, a UUID.
const MACHINE_LEN: usize = 36;

/// Measures this process's part and reports it as [`Event::Surveyed`].
#[must_use]
pub fn survey(spec: &Spec) -> ExitCode {
    match measure(spec) {
        Ok(rates) => {
            Event::Surveyed(rates).emit();
            ExitCode::SUCCESS
        }
        Err(fault) => {
            let why = fault.to_string();
            Event::Failed { why }.emit();
            ExitCode::FAILURE
        }
    }
}

fn measure(spec: &Spec) -> Result<Rates, Fault> {
    let mut node = Node::join()?;
    node.open(DATA, PortConfig::default())?;
    let machines = machines(&mut node)?;
    let rank = node.rank();
    let own = &machines[rank as usize];
    // Between the barriers this cast uses no processor.
    node.barrier()?;
    let processors = free_processors();
    node.barrier()?;
    let mut rates = Rates {
        machine: String::from_utf8_lossy(own).into_owned(),
        processors,
        disk: None,
        hash: hashing(),
        read: None,
        write: None,
        send: None,
        receive: None,
    };
    for turn in 0..turns(&machines) {
        if turn == turn_of(&machines, rank as usize) {
            files(spec, rank, &mut rates);
        }
        node.barrier()?;
    }
    let rounds = rounds(&machines);
    for round in 0..=rounds.iter().copied().max().unwrap_or(0) {
        for (from, _) in rounds.iter().enumerate().filter(|(_, at)| **at == round) {
            let size = node.size();
            // There is one pair per rank.
            let from = u32::try_from(from).unwrap_or(0);
            let to = (from + 1) % size;
            if from == rank && to != rank {
                rates.send = sending(&mut node, to)?;
            } else if to == rank && from != rank {
                rates.receive = receiving(&mut node)?;
            }
        }
        node.barrier()?;
    }
    node.close()?;
    Ok(rates)
}

/// Time in which the load of other programs is measured: ten ticks of the kernel.
const LOAD_TIME: Duration = Duration::from_millis(100);

/// Minimum share of the processors for the cast. Other programs would share with it.
const FREE_SHARE_MIN: f64 = 0.5;

/// Returns the number of processors that other programs leave free.
fn free_processors() -> f64 {
    let before = busy_ticks();
    std::thread::sleep(LOAD_TIME);
    let after = busy_ticks();
    let all = std::thread::available_parallelism().map_or(1, std::num::NonZero::get) as f64;
    let (busy, total) = (after[0] - before[0], after[1] - before[1]);
    all * (1.0 - busy / total.max(1.0)).max(FREE_SHARE_MIN)
}

/// Returns the busy time of all processors, without work of low priority, and the total time, in
/// ticks (proc(5)). Both are zero if the system does not report them.
fn busy_ticks() -> [f64; 2] {
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let first = stat.lines().next().unwrap_or_default();
    // User, nice, system, idle, waiting for disks, interrupts, soft interrupts, stolen.
    let fields: Vec<f64> = first
        .split_whitespace()
        .skip(1)
        .take(8)
        .filter_map(|text| text.parse().ok())
        .collect();
    let low_priority = [1, 3, 4].iter().filter_map(|&at| fields.get(at));
    let total: f64 = fields.iter().sum();
    [total - low_priority.sum::<f64>(), total]
}

type Machine = [u8; MACHINE_LEN];

/// Returns the machine of each process.
fn machines(node: &mut Node) -> Result<Vec<Machine>, Fault> {
    // The id differs for each start of a kernel (random(4)).
    let own = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let mut all = Vec::new();
    for root in 0..node.size() {
        let mut machine = [0; MACHINE_LEN];
        if root == node.rank() {
            let text = own.trim().as_bytes();
            let len = text.len().min(MACHINE_LEN);
            machine[..len].copy_from_slice(&text[..len]);
        }
        node.broadcast(root, &mut machine)?;
        all.push(machine);
    }
    Ok(all)
}

/// Returns the number of lower ranks on the same machine.
fn turn_of(machines: &[Machine], rank: usize) -> usize {
    let before = machines[..rank].iter();
    before.filter(|other| **other == machines[rank]).count()
}

fn turns(machines: &[Machine]) -> usize {
    let turns = (0..machines.len()).map(|rank| turn_of(machines, rank) + 1);
    turns.max().unwrap_or(0)
}

/// Returns the round in which each host sends to the next, and the last to the first. In one round
/// a machine takes part in at most one pair.
fn rounds(machines: &[Machine]) -> Vec<usize> {
    let mut busy: Vec<Vec<&Machine>> = Vec::new();
    let mut rounds = Vec::new();
    for (from, machine) in machines.iter().enumerate() {
        let ends = [machine, &machines[(from + 1) % machines.len()]];
        let is_free = |at: &Vec<&Machine>| !ends.iter().any(|end| at.contains(end));
        let round = busy.iter().position(is_free).unwrap_or(busy.len());
        if round == busy.len() {
            busy.push(Vec::new());
        }
        busy[round].extend(ends);
        rounds.push(round);
    }
    rounds
}

/// Elapsed time and processor time since a moment.
struct Stopwatch {
    begin: Instant,
    cpu: f64,
}

impl Stopwatch {
    fn start() -> Stopwatch {
        Stopwatch {
            begin: Instant::now(),
            cpu: cpu_seconds(),
        }
    }

    fn cost(&self, bytes: u64) -> Option<Cost> {
        let (seconds, cpu) = (self.begin.elapsed().as_secs_f64(), cpu_seconds() - self.cpu);
        (bytes > 0 && seconds > 0.0).then(|| Cost {
            seconds: seconds / bytes as f64,
            cpu: cpu.clamp(0.0, seconds) / bytes as f64,
        })
    }

    fn is_over(&self, bytes: u64) -> bool {
        bytes >= BYTES_MAX || self.begin.elapsed() >= MEASURING_TIME
    }
}

/// Transferred blocks and their cost.
struct Tally {
    stopwatch: Stopwatch,
    blocks: u64,
    /// Bytes that count.
    bytes: u64,
    is_warm: bool,
}

impl Tally {
    fn start() -> Tally {
        Tally {
            stopwatch: Stopwatch::start(),
            blocks: 0,
            bytes: 0,
            is_warm: false,
        }
    }

    /// Adds a block that arrived `since` after the start of the first. The count restarts after the
    /// warm-up, unless this is the last block. On the slowest paths only warm-up blocks are
    /// available.
    fn add(&mut self, len: u64, since: Duration, is_last: bool) {
        self.blocks += 1;
        self.bytes += len;
        let is_warm = self.blocks >= WARM_UP_BLOCKS && since >= WARM_UP_TIME;
        if is_warm && !self.is_warm && !is_last {
            (self.stopwatch, self.bytes, self.is_warm) = (Stopwatch::start(), 0, true);
        }
    }

    fn cost(&self) -> Option<Cost> {
        self.stopwatch.cost(self.bytes)
    }
}

/// Returns the processor seconds of all threads of this process.
fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn blocks() -> Vec<Vec<u8>> {
    (0..BLOCKS)
        .map(|_| vec![0x5a; BLOCK_LEN as usize])
        .collect()
}

/// Measures hashing by processor time, because other hosts of the same machine may be hashing now.
fn hashing() -> Cost {
    let blocks = blocks();
    let cpu = cpu_seconds();
    for block in &blocks {
        std::hint::black_box(blake3::hash(block));
    }
    let bytes = blocks.len() as u64 * u64::from(BLOCK_LEN);
    let seconds = (cpu_seconds() - cpu).max(f64::MIN_POSITIVE) / bytes as f64;
    Cost {
        seconds,
        cpu: seconds,
    }
}

/// Measures the files. The cast itself reports files that cannot be read or written.
fn files(spec: &Spec, rank: u32, rates: &mut Rates) {
    if rank > 0 {
        if let Some((disk, cost)) = writing(spec, rank) {
            (rates.disk, rates.write) = (Some(disk), cost);
        }
        return;
    }
    // Standard input could not be read again.
    if let Source::Path(name) = &spec.source {
        let metadata = std::fs::metadata(crate::path_of(name));
        rates.disk = metadata.ok().map(|metadata| metadata.dev());
        rates.read = reading(&spec.source);
    }
}

fn reading(source: &Source) -> Option<Cost> {
    let mut sample = Sample {
        stopwatch: Stopwatch::start(),
        bytes: 0,
    };
    // Ends with an error if enough was read or the source cannot be read.
    let _ = source::read(source, crate::spec::Hashes::None, &mut sample);
    sample.stopwatch.cost(sample.bytes)
}

/// Receives and counts blocks.
struct Sample {
    stopwatch: Stopwatch,
    bytes: u64,
}

impl Out for Sample {
    fn memory(&mut self) -> Vec<u8> {
        Vec::with_capacity(BLOCK_LEN as usize)
    }

    fn give_back(&mut self, _: Vec<u8>) {}

    fn emit(&mut self, _: Kind, _: u32, _: u32, payload: Vec<u8>) -> Result<(), Fault> {
        self.bytes += payload.len() as u64;
        match self.stopwatch.is_over(self.bytes) {
            true => Err(Fault::Protocol("the measurement is complete")),
            false => Ok(()),
        }
    }

    fn skip(&mut self, _: &[u8; 32]) {}

    fn needs(&mut self, _: u32) -> Result<Vec<u8>, Fault> {
        Err(Fault::Protocol("blocks are requested during a survey"))
    }

    fn warn(&mut self, _: String) {}
}

/// Returns the device of the target and the cost of storing there; `None` if it is not a file.
fn writing(spec: &Spec, rank: u32) -> Option<(u64, Option<Cost>)> {
    let target = spec.target_path(rank)?;
    let parent = target.parent().map_or_else(PathBuf::new, PathBuf::from);
    // A device is written in place, so no file beside it can be measured.
    let is_file =
        std::fs::metadata(&target).map_or(true, |there| there.is_file() || there.is_dir());
    let flags = OFlags::WRONLY | OFlags::TMPFILE | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(parent, flags, Mode::RUSR | Mode::WUSR).ok()?);
    let disk = file.metadata().ok()?.dev();
    if !is_file {
        return None;
    }
    let blocks = blocks();
    let (stopwatch, mut bytes) = (Stopwatch::start(), 0);
    for block in blocks.iter().cycle() {
        if stopwatch.is_over(bytes) {
            break;
        }
        if file.write_all_at(block, bytes).is_err() {
            return Some((disk, None));
        }
        bytes += block.len() as u64;
    }
    if spec.sync {
        file.sync_data().ok()?;
    }
    Some((disk, stopwatch.cost(bytes)))
}

/// Sends blocks to one process for a while. The first byte of a block marks the last one.
fn sending(node: &mut Node, to: u32) -> Result<Option<Cost>, Fault> {
    let begin = Instant::now();
    let mut tally = Tally::start();
    let mut memory: VecDeque<Vec<u8>> = blocks().into();
    let mut in_flight: VecDeque<Request> = VecDeque::new();
    let mut is_last = false;
    loop {
        while in_flight.len() < IN_FLIGHT_MAX && !is_last {
            is_last = begin.elapsed() >= SENDING_TIME;
            let mut block = memory.pop_front().unwrap_or_default();
            block.resize(BLOCK_LEN as usize, 0);
            block[0] = u8::from(is_last);
            in_flight.push_back(node.isend(Target::new(to, DATA), Buffer::from(block))?);
        }
        let Some(request) = in_flight.front() else {
            return Ok(tally.cost());
        };
        let Some(completion) = node.test(*request)? else {
            sleep(node)?;
            continue;
        };
        in_flight.pop_front();
        memory.extend(completion.buffer.map(Vec::from));
        tally.add(u64::from(BLOCK_LEN), begin.elapsed(), in_flight.is_empty());
    }
}

fn receiving(node: &mut Node) -> Result<Option<Cost>, Fault> {
    let begin = Instant::now();
    let mut tally = Tally::start();
    let mut posted: VecDeque<Request> = VecDeque::new();
    let mut memory: VecDeque<Vec<u8>> = blocks().into();
    for block in memory.drain(..IN_FLIGHT_MAX) {
        posted.push_back(node.post_recv(DATA, Buffer::from(block))?);
    }
    while let Some(request) = posted.front() {
        let Some(completion) = node.test(*request)? else {
            sleep(node)?;
            continue;
        };
        posted.pop_front();
        let len = completion.len as u64;
        let block = completion.buffer.map(Vec::from).unwrap_or_default();
        let is_last = block.first() == Some(&1);
        tally.add(len, begin.elapsed(), is_last);
        if is_last {
            break;
        }
        memory.push_back(block);
        let block = memory.pop_front().unwrap_or_default();
        posted.push_back(node.post_recv(DATA, Buffer::from(block))?);
    }
    let cost = tally.cost();
    for request in posted {
        node.cancel(request);
    }
    Ok(cost)
}

/// Sleeps as a cast does.
fn sleep(node: &mut Node) -> Result<(), Fault> {
    wait_for_event(node, [], SLEEP_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(names: &[u8]) -> Vec<Machine> {
        names.iter().map(|&name| [name; MACHINE_LEN]).collect()
    }

    #[test]
    fn path_with_few_blocks_has_a_cost() {
        for last in [1, WARM_UP_BLOCKS - 1, WARM_UP_BLOCKS, WARM_UP_BLOCKS + 1] {
            let mut tally = Tally::start();
            (1..=last).for_each(|block| tally.add(10, WARM_UP_TIME, block == last));
            let counted = if last > WARM_UP_BLOCKS {
                last - WARM_UP_BLOCKS
            } else {
                last
            };
            assert_eq!(tally.bytes, counted * 10, "{last} blocks");
            assert!(tally.cost().is_some(), "{last} blocks");
        }
    }

    #[test]
    fn fast_path_becomes_warm() {
        let mut tally = Tally::start();
        let early = WARM_UP_TIME - Duration::from_millis(1);
        (0..100).for_each(|_| tally.add(10, early, false));
        assert_eq!(tally.bytes, 1000);
        (0..5).for_each(|_| tally.add(10, WARM_UP_TIME, false));
        assert_eq!(tally.bytes, 40, "the first of them ends the warm-up");
    }

    #[test]
    fn hosts_of_one_machine_take_turns() {
        let machines = named(b"aabab");
        let turns_of: Vec<usize> = (0..5).map(|rank| turn_of(&machines, rank)).collect();
        assert_eq!(turns_of, [0, 1, 0, 2, 1]);
        assert_eq!(turns(&machines), 3);
    }

    #[test]
    fn machine_is_in_one_pair_at_a_time() {
        for names in [
            &b"abcdefg"[..],
            b"abcdef",
            b"aaaa",
            b"ab",
            b"a",
            b"aabbccab",
        ] {
            let machines = named(names);
            let rounds = rounds(&machines);
            let ends = |from: usize| [machines[from], machines[(from + 1) % machines.len()]];
            for (one, two) in (0..names.len()).flat_map(|a| (0..a).map(move |b| (a, b))) {
                let shared = ends(one).iter().any(|end| ends(two).contains(end));
                assert!(!shared || rounds[one] != rounds[two], "{one} {two}");
            }
        }
        let last = |names: &[u8]| rounds(&named(names)).into_iter().max();
        assert_eq!((last(b"abcdef"), last(b"abcdefg")), (Some(1), Some(2)));
    }
}
