// SPDX-License-Identifier: MIT OR Apache-2.0
//! Profiles: the combined records of a program's processes. `--json` writes them as JSON.

use crate::record::{CLASS_COUNT, Operation, PeerRecord, Record};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Format name in the JSON of a profile. The number changes with the format.
pub const FORMAT: &str = "portolan-profile-1";

/// Smallest size of each class: the classes of Table 4 of the NPB paper, by decimal digits.
const CLASS_STARTS: [u64; CLASS_COUNT] = [0, 10, 100, 1_000, 10_000, 100_000];

/// Profile of the programs of one command.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// [`FORMAT`].
    pub format: String,
    /// Profiled command; empty if only its records were read.
    pub command: Vec<String>,
    /// One entry per MPI_COMM_WORLD, in the order of their start.
    pub worlds: Vec<World>,
    /// Problems with the figures: records that could not be read.
    pub notes: Vec<String>,
}

/// One MPI_COMM_WORLD: the processes of a program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct World {
    /// Executable of the first process.
    pub program: String,
    /// Name and version of the MPI, as reported by the MPI itself.
    pub library: String,
    /// Number of processes of the program.
    pub process_count: u32,
    /// Hosts of the processes.
    pub hosts: Vec<String>,
    /// Seconds from the end of MPI_Init to MPI_Finalize in the slowest process.
    pub seconds: f64,
    /// Messages by size, of all processes.
    pub sizes: Sizes,
    /// Processes that left a record, by rank.
    pub processes: Vec<Process>,
    /// Ranks of processes without a record.
    pub missing: Vec<u32>,
}

/// Counts by size, with all classes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sizes {
    /// Messages between two processes.
    pub messages: Vec<SizeClass>,
    /// Puts, gets, accumulations and atomic operations.
    pub one_sided: Vec<SizeClass>,
    /// Messages that simple algorithms would use for the collective operations.
    pub of_collectives: Vec<SizeClass>,
}

/// Messages of one size class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SizeClass {
    /// Smallest size in bytes.
    pub from: u64,
    /// Largest size in bytes; none for the last class.
    pub to: Option<u64>,
    /// Number of messages, and their bytes.
    #[serde(flatten)]
    pub tally: Tally,
}

/// Number of messages, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Number of messages.
    pub count: u64,
    /// Total bytes.
    pub bytes: u64,
}

/// End of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum End {
    /// The process called MPI_Finalize.
    Finalized,
    /// The process called MPI_Abort.
    Aborted,
    /// The process was killed, or exited without MPI_Finalize. Its figures extend to its last call.
    Lost,
}

/// One process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Process {
    /// Rank in MPI_COMM_WORLD.
    pub rank: u32,
    /// Host of the process.
    pub host: String,
    /// Process id on that host.
    pub pid: u32,
    /// How the process ended.
    pub end: End,
    /// MPI function in which it ended, if it did not finalize.
    pub ended_in: Option<String>,
    /// Set if several threads called MPI. The times of kinds are then sums over threads.
    pub has_threads: bool,
    /// Seconds from the end of MPI_Init to MPI_Finalize, or to the last call of a lost process.
    pub seconds: f64,
    /// Seconds outside MPI.
    pub computing_s: f64,
    /// Time by kind of call, in the order of first use.
    pub kinds: Vec<KindTime>,
    /// Time by function, longest first.
    pub calls: Vec<CallTime>,
    /// Processes that it communicated with, by rank; those of other worlds last.
    pub peers: Vec<PeerCounts>,
}

/// Calls of one kind: `Send`, `Recv`, `Isend`, `Irecv`, `Sendrecv`, `Wait`, `Test`, `Start`,
/// `Probe`, `Collective`, `One-sided` or `Other`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KindTime {
    /// Name of the kind.
    pub kind: String,
    /// Number of calls.
    pub calls: u64,
    /// Seconds in these calls.
    pub seconds: f64,
    /// Bytes sent, put, got, or passed to a collective operation.
    pub bytes: u64,
}

/// Calls of one function.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CallTime {
    /// Name of the function.
    pub name: String,
    /// Number of calls, time and bytes, as in [`KindTime`].
    #[serde(flatten)]
    pub time: KindTime,
}

/// Communication of a process with one peer.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PeerCounts {
    /// Rank of the peer; none for all processes outside MPI_COMM_WORLD.
    pub rank: Option<u32>,
    /// Messages to the peer.
    pub sent: Tally,
    /// Messages from the peer.
    pub received: Tally,
    /// Operations on the peer's memory.
    pub one_sided: Tally,
    /// Seconds in receives and waits for its messages. The time of one call is shared equally among
    /// its messages.
    pub waited_s: f64,
}

impl Profile {
    /// Combines the records of `command`.
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

/// Groups the records by program in the order of their start. Within a program they are sorted by
/// rank, with one per rank.
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
    /// Creates a world from the records of a program: at least one, sorted by rank.
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

/// Returns the sums of all records by class.
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
    /// Adds `other`. The sums saturate, because counts of damaged records may be huge.
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

    /// Returns the seconds in completed calls of MPI.
    #[must_use]
    pub fn in_mpi_s(&self) -> f64 {
        self.kinds.iter().map(|kind| kind.seconds).sum()
    }

    /// Returns all that the process sent, received, and did to the memory of other processes.
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

/// Limits the sum of the calls' times, which may be estimates, to `seconds`.
fn fit(calls: &mut [CallTime], seconds: f64) {
    let sum: f64 = calls.iter().map(|call| call.time.seconds).sum();
    if sum > seconds {
        for call in calls {
            call.time.seconds *= seconds / sum;
        }
    }
}

/// Sums the calls of functions by kind.
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

/// Returns the peers with any communication. The last entry of `all` stands for other worlds.
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
    fn estimates_do_not_exceed_the_elapsed_time() {
        let mut calls = times([3.0, 1.0]);
        fit(&mut calls, 2.0);
        assert_eq!(calls, times([1.5, 0.5]));
        fit(&mut calls, 3.0);
        assert_eq!(calls, times([1.5, 0.5]), "less than that is right");
    }
}
