// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs for replay: the calls of all processes in order, from the events in records.

use crate::record::{Call, Record, RecordError, read_directory};
use portolan_predict::{Action, Event, Matching, Process, Received, Shape, Trace};
use std::path::Path;

/// A run of a program.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// Executable of the first process.
    pub program: String,
    /// Seconds from the end of MPI_Init to MPI_Finalize in the slowest process.
    pub seconds: f64,
    /// Calls of the processes.
    pub trace: Trace,
    /// Data missing in the trace.
    pub notes: Vec<String>,
}

/// Kinds of events, as in `enum kind` of `shim/record.h`.
mod kind {
    pub(super) const SENT: u64 = 1;
    pub(super) const RECEIVED: u64 = 2;
    pub(super) const POSTED: u64 = 3;
    pub(super) const COMPLETED: u64 = 4;
    pub(super) const COLLECTIVE: u64 = 5;
    pub(super) const REMOTE: u64 = 6;
}

/// Reads the runs with records in `directory`, in the order of their start. Also returns the errors
/// of files that are named like records.
///
/// # Errors
/// The directory or a record's events cannot be read, there are no events, or threads of one
/// process called MPI at the same time.
pub fn read_runs(directory: &Path) -> Result<(Vec<Run>, Vec<String>), RecordError> {
    let (records, refused) = read_directory(directory)?;
    let notes = refused.iter().map(ToString::to_string).collect();
    let worlds = crate::profile::by_world(&records);
    let runs = worlds.iter().map(|records| Run::new(records));
    Ok((runs.collect::<Result<_, _>>()?, notes))
}

impl Run {
    /// Creates a run from the records of one world: at least one, sorted by rank.
    fn new(records: &[&Record]) -> Result<Run, RecordError> {
        let first = records[0];
        let mut processes = vec![Process::default(); first.rank_count as usize];
        let mut notes = Vec::new();
        for record in records {
            processes[record.rank as usize] = process(record)?;
            let dropped = record.events.dropped;
            if dropped > 0 {
                notes.push(format!(
                    "{dropped} events of process {} were dropped: profile again with a larger --events",
                    record.rank
                ));
            }
        }
        let is_missing = |rank: &u32| records.iter().all(|record| record.rank != *rank);
        for rank in (0..first.rank_count).filter(is_missing) {
            notes.push(format!(
                "process {rank} wrote no record: it is treated as idle"
            ));
        }
        Ok(Run {
            program: first.program.clone(),
            seconds: records
                .iter()
                .map(|record| record.seconds)
                .fold(0.0, f64::max),
            trace: Trace { processes },
            notes,
        })
    }
}

/// Returns the calls of one process.
fn process(record: &Record) -> Result<Process, RecordError> {
    let calls = record.calls()?;
    let times = |call: &Call| (call.start_ns, call.end_ns);
    let overlap =
        |pair: &[Call]| pair[0].end_ns > pair[1].start_ns && times(&pair[0]) != times(&pair[1]);
    if record.has_threads && calls.windows(2).any(overlap) {
        return Err(record.concurrent());
    }
    let event = |call: &Call| {
        let operation = record.operations.get(call.operation);
        let name = operation.map_or("", |operation| operation.name.as_str());
        Event {
            start_ns: call.start_ns,
            end_ns: call.end_ns,
            action: action(call, bare(name)),
        }
    };
    Ok(Process {
        events: calls.iter().map(event).collect(),
        end_ns: record.end_ns(),
    })
}

/// Strips `MPI_` and `_c`: `MPI_Iallreduce_c` becomes `Iallreduce`.
fn bare(name: &str) -> &str {
    let name = name.strip_prefix("MPI_").unwrap_or(name);
    name.strip_suffix("_c").unwrap_or(name)
}

/// Returns the action of a call of the function `name`. Communication with other worlds is omitted.
fn action(call: &Call, name: &str) -> Action {
    let peer = usize::try_from(call.peer).ok();
    let matching = Matching {
        group: call.group,
        tag: call.tag,
    };
    let request = (call.request > 0).then_some(call.request);
    match (call.kind, peer) {
        (kind::SENT, Some(to)) => Action::Send {
            to,
            matching,
            bytes: call.bytes,
            request,
        },
        (kind::RECEIVED, Some(from)) => Action::Receive(Received { from, matching }),
        (kind::POSTED, _) => Action::Post {
            request: call.request,
        },
        (kind::COMPLETED, _) => Action::Complete {
            request: call.request,
            received: peer.map(|from| Received { from, matching }),
        },
        (kind::COLLECTIVE, root) => Action::Collective {
            shape: shape(name),
            group: call.group,
            members: usize::try_from(call.tag).unwrap_or(0),
            root,
            bytes: call.bytes,
            request,
        },
        (kind::REMOTE, Some(to)) => Action::Remote {
            to,
            bytes: call.bytes,
            returns: returns(name),
        },
        _ if name == "Win_fence" => Action::Fence,
        _ if waits_for_remote(name) => Action::Flush,
        _ => Action::Poll,
    }
}

/// Returns the data flow of the operation `name`. Variants with counts per process and non-blocking
/// variants are equivalent.
fn shape(name: &str) -> Shape {
    // `Iallreduce` is an `Allreduce`; no blocking operation begins with I.
    let lower = name.strip_prefix('I').unwrap_or(name).to_ascii_lowercase();
    match lower.as_str() {
        "bcast" => Shape::Broadcast,
        "reduce" => Shape::Reduce,
        "allreduce" => Shape::Allreduce,
        "gather" | "gatherv" => Shape::Gather,
        "scatter" | "scatterv" => Shape::Scatter,
        "allgather" | "allgatherv" => Shape::Allgather,
        "alltoall" | "alltoallv" | "alltoallw" => Shape::Alltoall,
        "reduce_scatter" | "reduce_scatter_block" => Shape::ReduceScatter,
        "scan" | "exscan" => Shape::Scan,
        // Also all operations without data of their own.
        _ => Shape::Barrier,
    }
}

/// Returns true if the operation returns a value from the peer's memory.
fn returns(name: &str) -> bool {
    matches!(
        name,
        "Get" | "Rget" | "Get_accumulate" | "Rget_accumulate" | "Fetch_and_op" | "Compare_and_swap"
    )
}

fn waits_for_remote(name: &str) -> bool {
    name.starts_with("Win_flush") || name.starts_with("Win_unlock") || name == "Win_complete"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::{RawCall, record_with};
    use std::fs;

    const MESSAGE: u64 = 70;

    fn directory_of(records: [Vec<u8>; 2]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        for (rank, bytes) in records.iter().enumerate() {
            fs::write(directory.path().join(format!("1-{rank}.record")), bytes).unwrap();
        }
        directory
    }

    fn call(kind: u64, operation: u64, peer: i32) -> RawCall {
        RawCall {
            ticks: (3_001_000, 6_001_000),
            kind,
            operation,
            bytes: MESSAGE,
            peer,
            tag: 5,
            request: 0,
            group: 9,
        }
    }

    #[test]
    fn calls_become_replay_events_in_nanoseconds() {
        let records = [
            record_with(0, &[call(kind::SENT, 0, 1)]),
            record_with(1, &[call(kind::RECEIVED, 1, 0)]),
        ];
        let directory = directory_of(records);
        let (runs, notes) = read_runs(directory.path()).unwrap();
        assert!(notes.is_empty(), "{notes:?}");
        let [run] = &runs[..] else { panic!("{runs:?}") };
        assert_eq!((run.program.as_str(), run.notes.len()), ("/bin/program", 0));
        let matching = Matching { group: 9, tag: 5 };
        let event = |action| Event {
            start_ns: 1_000_000,
            end_ns: 2_000_000,
            action,
        };
        let sent = Action::Send {
            to: 1,
            matching,
            bytes: MESSAGE,
            request: None,
        };
        let received = Action::Receive(Received { from: 0, matching });
        let processes = &run.trace.processes;
        assert_eq!(processes[0].events, [event(sent)]);
        assert_eq!(processes[1].events, [event(received)]);
        assert_eq!(processes[0].end_ns, 2_000_000_000);
    }

    #[test]
    fn missing_and_full_records_are_noted() {
        let mut record = record_with(0, &[call(kind::SENT, 0, 1)]);
        record[64..72].copy_from_slice(&7_u64.to_ne_bytes());
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("1-0.record"), record).unwrap();
        let (runs, _) = read_runs(directory.path()).unwrap();
        let notes = runs[0].notes.join("; ");
        assert!(
            notes.contains("7 events of process 0 were dropped"),
            "{notes}"
        );
        assert!(notes.contains("process 1 wrote no record"), "{notes}");
    }

    #[test]
    fn records_without_events_are_rejected() {
        let directory = directory_of([record_with(0, &[]), record_with(1, &[])]);
        let error = read_runs(directory.path()).unwrap_err().to_string();
        assert!(error.contains("--events"), "{error}");
    }

    #[test]
    fn data_direction_follows_the_function_name() {
        let cases = [
            ("MPI_Bcast", Shape::Broadcast),
            ("MPI_Ibcast_c", Shape::Broadcast),
            ("MPI_Iallreduce", Shape::Allreduce),
            ("MPI_Reduce_scatter_block", Shape::ReduceScatter),
            ("MPI_Ireduce", Shape::Reduce),
            ("MPI_Alltoallv_c", Shape::Alltoall),
            ("MPI_Exscan", Shape::Scan),
            ("MPI_Ibarrier", Shape::Barrier),
        ];
        for (name, expected) in cases {
            assert_eq!(shape(bare(name)), expected, "{name}");
        }
        assert!(returns(bare("MPI_Rget_c")) && !returns(bare("MPI_Rput")));
        let action_of = |name: &str| {
            let call = Call {
                start_ns: 0,
                end_ns: 1,
                kind: 0,
                operation: 0,
                bytes: 0,
                peer: -1,
                tag: 0,
                request: 1,
                group: 0,
            };
            action(&call, bare(name))
        };
        assert_eq!(action_of("MPI_Win_fence"), Action::Fence);
        assert_eq!(action_of("MPI_Win_unlock_all"), Action::Flush);
        assert_eq!(action_of("MPI_Wait"), Action::Poll);
    }
}
