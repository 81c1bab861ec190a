// SPDX-License-Identifier: MIT OR Apache-2.0
//! A profile: the records of a program's processes, put together. Its JSON is what `--json` writes.

use crate::record::{CLASS_COUNT, Operation, PeerRecord, Record};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// What the JSON of a profile says that it is; the number changes with its shape.
pub const FORMAT: &str = "portolan-profile-1";

/// The least size of each class: the classes of Table 4 of the NPB paper, by decimal digits.
const CLASS_STARTS: [u64; CLASS_COUNT] = [0, 10, 100, 1_000, 10_000, 100_000];

/// What the programs of one command did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// [`FORMAT`].
    pub format: String,
    /// The command that was profiled; empty if only its records were read.
    pub command: Vec<String>,
    /// One for each MPI_COMM_WORLD, in the order of their beginnings.
    pub worlds: Vec<World>,
    /// What is wrong with the figures: records that could not be read.
    pub notes: Vec<String>,
}

/// One MPI_COMM_WORLD: a program's processes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct World {
    /// The program's file, of the first process.
    pub program: String,
    /// The MPI's name and version, as it says itself.
    pub library: String,
    /// Processes that the program has.
    pub process_count: u32,
    /// Their hosts.
    pub hosts: Vec<String>,
    /// From the end of MPI_Init to MPI_Finalize, of the process that took longest.
    pub seconds: f64,
    /// Messages by size, of all processes.
    pub sizes: Sizes,
    /// Those that left a record, by rank.
    pub processes: Vec<Process>,
    /// Ranks of those that left none.
    pub missing: Vec<u32>,
}

/// What was counted by size. Every class is listed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sizes {
    /// What one process sent to another.
    pub messages: Vec<SizeClass>,
    /// Puts, gets, accumulations and atomic operations.
    pub one_sided: Vec<SizeClass>,
    /// What collective operations are made of in the plainest way.
    pub of_collectives: Vec<SizeClass>,
}

/// The messages of some sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SizeClass {
    /// The least size, bytes.
    pub from: u64,
    /// The greatest size, bytes; none for the last class.
    pub to: Option<u64>,
    /// How many.
    #[serde(flatten)]
    pub tally: Tally,
}

/// Messages, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// How many.
    pub count: u64,
    /// Of all of them.
    pub bytes: u64,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum End {
    /// It came to MPI_Finalize.
    Finalized,
    /// It called MPI_Abort.
    Aborted,
    /// It was killed, or ended without a word to MPI. Figures go up to its last call.
    Lost,
}

/// One process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Process {
    /// In MPI_COMM_WORLD.
    pub rank: u32,
    /// Where it ran.
    pub host: String,
    /// Its id there.
    pub pid: u32,
    /// How it ended.
    pub end: End,
    /// The function of MPI in which it ended, if it did not finalize.
    pub ended_in: Option<String>,
    /// Several threads called MPI: the times of kinds are sums over threads.
    pub has_threads: bool,
    /// From the end of MPI_Init to MPI_Finalize, or to the last call of a process that was lost.
    pub seconds: f64,
    /// Of these, outside of MPI.
    pub computing_s: f64,
    /// Time by kind of call, in the order of the kinds' first use.
    pub kinds: Vec<KindTime>,
    /// Time by function, longest first.
    pub calls: Vec<CallTime>,
    /// Processes that it exchanged something with, by rank; those of other worlds last.
    pub peers: Vec<PeerCounts>,
}

/// Calls of one kind: `Send`, `Recv`, `Isend`, `Irecv`, `Sendrecv`, `Wait`, `Test`, `Start`,
/// `Probe`, `Collective`, `One-sided` or `Other`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KindTime {
    /// The kind.
    pub kind: String,
    /// How many.
    pub calls: u64,
    /// In them.
    pub seconds: f64,
    /// That they sent, put, got, or gave to a collective operation.
    pub bytes: u64,
}

/// Calls of one function.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CallTime {
    /// The function's.
    pub name: String,
    /// As of [`KindTime`].
    #[serde(flatten)]
    pub time: KindTime,
}

/// What a process exchanged with one other.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PeerCounts {
    /// Of the other one; none for all that are not in MPI_COMM_WORLD.
    pub rank: Option<u32>,
    /// Messages to it.
    pub sent: Tally,
    /// Messages from it.
    pub received: Tally,
    /// Operations on its memory.
    pub one_sided: Tally,
    /// In receives and waits that brought its messages, shared equally among what one call brought.
    pub waited_s: f64,
}

impl Profile {
    /// Puts the records of `command` together.
    #[must_use]
    pub fn new(command: Vec<String>, records: &[Record], notes: Vec<String>) -> Profile {
        let worlds = by_world(records).into_iter();
        Profile {
            format: FORMAT.to_owned(),
            command,
            worlds: worlds.map(World::new).collect(),
            notes,
        }
    }
}

/// The records of each program, by rank and one a rank, in the order of their beginnings.
pub(crate) fn by_world(records: &[Record]) -> Vec<Vec<&Record>> {
    let mut by_world: BTreeMap<u64, Vec<&Record>> = BTreeMap::new();
    for record in records {
        by_world.entry(record.world).or_default().push(record);
    }
    let mut worlds: Vec<Vec<&Record>> = by_world.into_values().collect();
    worlds.sort_by_key(|world| world.iter().map(|record| record.begin_ns).min());
    for world in &mut worlds {
        world.sort_by_key(|record| record.rank);
        world.dedup_by_key(|record| record.rank);
    }
    worlds
}

impl World {
    /// Of the records of a program, at least one, by rank.
    fn new(records: Vec<&Record>) -> World {
        let first = records[0];
        let ranks: BTreeSet<u32> = records.iter().map(|record| record.rank).collect();
        let hosts: BTreeSet<&String> = records.iter().map(|record| &record.host).collect();
        let longest = records.iter().map(|record| record.seconds);
        World {
            program: first.program.clone(),
            library: first.library.clone(),
            process_count: first.rank_count,
            hosts: hosts.into_iter().cloned().collect(),
            seconds: longest.fold(0.0, f64::max),
            sizes: Sizes {
                messages: classes(records.iter().map(|record| &record.messages)),
                one_sided: classes(records.iter().map(|record| &record.one_sided)),
                of_collectives: classes(records.iter().map(|record| &record.of_collectives)),
            },
            missing: (0..first.rank_count)
                .filter(|rank| !ranks.contains(rank))
                .collect(),
            processes: records.into_iter().map(Process::new).collect(),
        }
    }
}

/// The sums of all records, class by class.
fn classes<'a>(of: impl Iterator<Item = &'a [Tally; CLASS_COUNT]>) -> Vec<SizeClass> {
    let mut sums = [Tally::default(); CLASS_COUNT];
    for counts in of {
        for (sum, tally) in sums.iter_mut().zip(counts) {
            sum.add(*tally);
        }
    }
    let ends = CLASS_STARTS[1..].iter().map(|next| Some(next - 1));
    let bounds = CLASS_STARTS.iter().zip(ends.chain([None]));
    let class = |((from, to), tally): ((&u64, Option<u64>), Tally)| SizeClass {
        from: *from,
        to,
        tally,
    };
    bounds.zip(sums).map(class).collect()
}

impl Tally {
    /// Adds those of `other`. Counts of damaged records do not overflow.
    pub fn add(&mut self, other: Tally) {
        self.count = self.count.saturating_add(other.count);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

impl Process {
    fn new(record: &Record) -> Process {
        let used = record
            .operations
            .iter()
            .filter(|operation| operation.calls > 0);
        let mut calls: Vec<CallTime> = used.map(CallTime::new).collect();
        if !record.has_threads {
            fit(&mut calls, record.seconds);
        }
        let kinds = kinds(&calls);
        let in_mpi: f64 = calls.iter().map(|call| call.time.seconds).sum();
        calls.sort_by(|a, b| b.time.seconds.total_cmp(&a.time.seconds));
        let running = record.running.and_then(|at| record.operations.get(at));
        let was_lost = record.end != End::Finalized;
        Process {
            rank: record.rank,
            host: record.host.clone(),
            pid: record.pid,
            end: record.end,
            ended_in: running
                .filter(|_| was_lost)
                .map(|operation| operation.name.clone()),
            has_threads: record.has_threads,
            seconds: record.seconds,
            computing_s: (record.seconds - in_mpi).max(0.0),
            kinds,
            calls,
            peers: peers(&record.peers),
        }
    }

    /// In calls of MPI that returned, seconds.
    #[must_use]
    pub fn in_mpi_s(&self) -> f64 {
        self.kinds.iter().map(|kind| kind.seconds).sum()
    }

    /// All that it sent, received, and did to the memory of others.
    #[must_use]
    pub fn exchanged(&self) -> [Tally; 3] {
        let mut sums = [Tally::default(); 3];
        for peer in &self.peers {
            for (sum, tally) in sums
                .iter_mut()
                .zip([peer.sent, peer.received, peer.one_sided])
            {
                sum.add(tally);
            }
        }
        sums
    }
}

/// Takes the times of calls, which may be estimates, for no more than `seconds` together.
fn fit(calls: &mut [CallTime], seconds: f64) {
    let sum: f64 = calls.iter().map(|call| call.time.seconds).sum();
    if sum > seconds {
        for call in calls {
            call.time.seconds *= seconds / sum;
        }
    }
}

/// Calls of functions, added up by kind.
fn kinds(calls: &[CallTime]) -> Vec<KindTime> {
    let mut kinds: Vec<KindTime> = Vec::new();
    for CallTime { time, .. } in calls {
        match kinds.iter_mut().find(|known| known.kind == time.kind) {
            Some(known) => {
                known.calls += time.calls;
                known.seconds += time.seconds;
                known.bytes = known.bytes.saturating_add(time.bytes);
            }
            None => kinds.push(time.clone()),
        }
    }
    kinds
}

/// Those with whom something was exchanged; the last of `all` stands for other worlds.
fn peers(all: &[PeerRecord]) -> Vec<PeerCounts> {
    let others = all.len() - 1;
    let counts = all.iter().enumerate().map(|(at, peer)| PeerCounts {
        rank: u32::try_from(at).ok().filter(|_| at < others),
        sent: peer.sent,
        received: peer.received,
        one_sided: peer.one_sided,
        waited_s: peer.waited_s,
    });
    let is_known = |peer: &PeerCounts| {
        let tallies = [peer.sent, peer.received, peer.one_sided];
        tallies.iter().any(|tally| tally.count > 0)
    };
    counts.filter(is_known).collect()
}

impl CallTime {
    fn new(operation: &Operation) -> CallTime {
        CallTime {
            name: operation.name.clone(),
            time: KindTime {
                kind: operation.kind.clone(),
                calls: operation.calls,
                seconds: operation.seconds,
                bytes: operation.bytes,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(seconds: [f64; 2]) -> Vec<CallTime> {
        let time = |seconds| CallTime {
            name: "MPI_Send".into(),
            time: KindTime {
                kind: "send".into(),
                calls: 1,
                seconds,
                bytes: 0,
            },
        };
        seconds.map(time).into()
    }

    #[test]
    fn estimates_add_up_to_no_more_than_the_time_there_was() {
        let mut calls = times([3.0, 1.0]);
        fit(&mut calls, 2.0);
        assert_eq!(calls, times([1.5, 0.5]));
        fit(&mut calls, 3.0);
        assert_eq!(calls, times([1.5, 0.5]), "less than that is right");
    }
}
