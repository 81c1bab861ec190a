// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records of single processes of an MPI program, in the layout of `shim/record.h`.
//!
//! A killed process leaves an incomplete record. Therefore all fields are checked against the
//! length of the file.

mod calls;

pub(crate) use calls::{Call, EventTable};

use crate::profile::{End, Tally};
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use thiserror::Error;
use zerocopy::{FromBytes, Immutable, KnownLayout};

/// First bytes of a record. The last digit is the version of the layout.
const MAGIC: [u8; 8] = *b"PTLNMPI1";
/// Bits of `flags`.
const FINALIZED: u32 = 1;
const ABORTED: u32 = 2;
const SEVERAL_HOSTS: u32 = 4;
const SEVERAL_THREADS: u32 = 8;
/// Number of size classes, by decimal digits.
pub(crate) const CLASS_COUNT: usize = 6;
/// Maximum number of operations in a record.
const OPS_MAX: u64 = 256;
/// Maximum number of processes. A larger number indicates a damaged record.
const RANKS_MAX: u32 = 1 << 24;
/// Extension of a record's file name.
const EXTENSION: &str = "record";

/// Reason why a record cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The system refuses to read it.
    #[error("{} cannot be read ({source}): specify a directory written by --keep", path.display())]
    Unreadable {
        /// The file or directory.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// The process ended before its record was initialized.
    #[error("{} is empty: the process ended in MPI_Init", path.display())]
    Unstarted {
        /// The file.
        path: PathBuf,
    },
    /// The file is not a record.
    #[error("{} is not a record of an MPI process: `portolan profile --keep` writes records", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// The record has another layout.
    #[error("{} was written by another version of Portolan: profile the program again", path.display())]
    OtherVersion {
        /// The file.
        path: PathBuf,
    },
    /// The record has counts but no events.
    #[error("{} has no events: profile the program with --events 1000000", path.display())]
    Eventless {
        /// The file.
        path: PathBuf,
    },
    /// Calls of one process overlap.
    #[error("the threads of the process of {} called MPI at the same time: such a program \
             cannot be replayed", path.display())]
    Concurrent {
        /// The file.
        path: PathBuf,
    },
    /// The record has this layout, but its contents are inconsistent.
    #[error("{} is damaged, or has another byte order ({what}): profile the program again",
            path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The inconsistency.
        what: &'static str,
    },
}

/// Activity of one process between MPI_Init and MPI_Finalize.
#[derive(Clone, Debug)]
pub struct Record {
    pub(crate) rank: u32,
    pub(crate) rank_count: u32,
    pub(crate) pid: u32,
    pub(crate) end: End,
    pub(crate) has_threads: bool,
    /// Id of the MPI_COMM_WORLD, equal in all its processes and different from all others.
    pub(crate) world: u64,
    pub(crate) host: String,
    pub(crate) program: String,
    pub(crate) library: String,
    pub(crate) operations: Vec<Operation>,
    /// One entry per process of MPI_COMM_WORLD, and one for all other processes.
    pub(crate) peers: Vec<PeerRecord>,
    /// Messages, one-sided operations and the implied messages of collective operations, by size.
    pub(crate) messages: [Tally; CLASS_COUNT],
    pub(crate) one_sided: [Tally; CLASS_COUNT],
    pub(crate) of_collectives: [Tally; CLASS_COUNT],
    /// CLOCK_MONOTONIC of rank 0's host at the end of MPI_Init, in nanoseconds.
    pub(crate) begin_ns: i64,
    /// Seconds until MPI_Finalize or the last recorded activity.
    pub(crate) seconds: f64,
    /// Operation that had not returned.
    pub(crate) running: Option<usize>,
    pub(crate) events: EventTable,
    path: PathBuf,
    clock: Clock,
    init_ticks: u64,
}

/// A function of MPI.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    pub(crate) name: String,
    pub(crate) kind: String,
    pub(crate) calls: u64,
    pub(crate) seconds: f64,
    pub(crate) bytes: u64,
}

/// Communication with one process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerRecord {
    pub(crate) sent: Tally,
    pub(crate) received: Tally,
    pub(crate) one_sided: Tally,
    pub(crate) waited_s: f64,
}

/// Layout of `struct volume`.
#[derive(Clone, Copy, FromBytes, KnownLayout, Immutable)]
#[repr(C)]
struct RawVolume {
    count: u64,
    bytes: u64,
}

/// Layout of `struct header`.
#[derive(FromBytes, KnownLayout, Immutable)]
#[repr(C)]
struct RawHeader {
    magic: [u8; 8],
    rank: u32,
    rank_count: u32,
    pid: u32,
    flags: u32,
    world: u64,
    op_count: u64,
    ops_off: u64,
    peers_off: u64,
    event_count: u64,
    events_dropped: u64,
    events_off: u64,
    init_ticks: u64,
    init_ns: u64,
    end_ticks: u64,
    end_ns: u64,
    ticks_per_s: u64,
    init_ahead_ns: i64,
    end_ahead_ns: i64,
    running: u64,
    running_since: u64,
    last_ticks: u64,
    volumes: [[RawVolume; CLASS_COUNT]; 3],
    host: [u8; 64],
    program: [u8; 256],
    library: [u8; 128],
}

/// Layout of `struct op`.
#[derive(FromBytes, KnownLayout, Immutable)]
#[repr(C)]
struct RawOperation {
    name: [u8; 32],
    group: [u8; 16],
    calls: u64,
    ticks: u64,
    bytes: u64,
}

/// Layout of `struct peer`.
#[derive(FromBytes, KnownLayout, Immutable)]
#[repr(C)]
struct RawPeer {
    sent: RawVolume,
    received: RawVolume,
    remote: RawVolume,
    waited_ticks: u64,
}

const _: () = assert!(size_of::<RawHeader>() == 896, "struct header of record.h");
const _: () = assert!(size_of::<RawOperation>() == 72, "struct op of record.h");
const _: () = assert!(size_of::<RawPeer>() == 56, "struct peer of record.h");

/// Reads the records in `directory`. Also returns the errors of files that are named like records.
///
/// # Errors
/// The directory cannot be read.
pub fn read_directory(directory: &Path) -> Result<(Vec<Record>, Vec<RecordError>), RecordError> {
    let unreadable = |source| RecordError::Unreadable {
        path: directory.to_owned(),
        source,
    };
    let mut files = Vec::new();
    for entry in directory.read_dir().map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if path.extension().is_some_and(|end| end == EXTENSION) {
            files.push(path);
        }
    }
    // The errors always have the same order.
    files.sort();
    let mut records = Vec::new();
    let mut refused = Vec::new();
    for path in &files {
        match Record::read(path) {
            Ok(record) => records.push(record),
            Err(error) => refused.push(error),
        }
    }
    Ok((records, refused))
}

impl Record {
    /// Reads the record in the file `path`.
    ///
    /// # Errors
    /// See [`RecordError`].
    pub fn read(path: &Path) -> Result<Record, RecordError> {
        let source = Source::open(path)?;
        let header: RawHeader = source.header()?;
        check(&header).map_err(|what| source.damaged(what))?;
        let clock = Clock::of(&header);
        let raw_operations: Vec<RawOperation> = source.table(header.ops_off, header.op_count)?;
        let raw_peers = source.table(header.peers_off, u64::from(header.rank_count) + 1)?;
        let operations = raw_operations.iter().map(|raw| Operation::new(raw, &clock));
        let peers = raw_peers.iter().map(|raw| PeerRecord::new(raw, &clock));
        let [messages, one_sided, of_collectives] = header.volumes.map(|of| of.map(Tally::from));
        Ok(Record {
            rank: header.rank,
            rank_count: header.rank_count,
            pid: header.pid,
            end: match header.flags {
                flags if flags & ABORTED != 0 => End::Aborted,
                flags if flags & FINALIZED != 0 => End::Finalized,
                _ => End::Lost,
            },
            has_threads: header.flags & SEVERAL_THREADS != 0,
            world: header.world,
            host: text(&header.host),
            program: text(&header.program),
            // An MPI may separate its version by a tab.
            library: text(&header.library).replace('\t', " "),
            operations: operations.collect(),
            peers: peers.collect(),
            messages,
            one_sided,
            of_collectives,
            begin_ns: clock.begin_ns,
            seconds: clock.seconds(clock.last.saturating_sub(header.init_ticks)),
            running: header
                .running
                .checked_sub(1)
                .and_then(|at| usize::try_from(at).ok()),
            events: EventTable {
                off: header.events_off,
                count: header.event_count,
                dropped: header.events_dropped,
            },
            path: path.to_owned(),
            clock,
            init_ticks: header.init_ticks,
        })
    }
}

/// Checks the header before any table is read.
fn check(header: &RawHeader) -> Result<(), &'static str> {
    if header.rank_count == 0 || header.rank_count > RANKS_MAX {
        return Err("invalid number of processes");
    }
    if header.rank >= header.rank_count {
        return Err("its rank is not below the number of processes");
    }
    if header.op_count > OPS_MAX || header.running > header.op_count {
        return Err("too many operations");
    }
    if header.ticks_per_s == 0 {
        return Err("invalid clock rate");
    }
    let known = FINALIZED | ABORTED | SEVERAL_HOSTS | SEVERAL_THREADS;
    if header.flags & !known != 0 {
        return Err("unknown flags");
    }
    Ok(())
}

/// A file with its length.
struct Source<'a> {
    path: &'a Path,
    file: File,
    len: u64,
}

impl<'a> Source<'a> {
    fn open(path: &'a Path) -> Result<Source<'a>, RecordError> {
        let opened = File::open(path).and_then(|file| Ok((file.metadata()?, file)));
        match opened {
            Ok((metadata, file)) if metadata.is_file() => Ok(Source {
                path,
                file,
                len: metadata.len(),
            }),
            Ok(_) => Err(RecordError::Foreign {
                path: path.to_owned(),
            }),
            Err(source) => Err(RecordError::Unreadable {
                path: path.to_owned(),
                source,
            }),
        }
    }

    fn damaged(&self, what: &'static str) -> RecordError {
        RecordError::Damaged {
            path: self.path.to_owned(),
            what,
        }
    }

    /// Returns the header if the file begins like a record of this layout.
    fn header(&self) -> Result<RawHeader, RecordError> {
        let path = || self.path.to_owned();
        let magic: [u8; 8] = match self.table::<[u8; 8]>(0, 1) {
            Ok(mut found) => found.remove(0),
            Err(RecordError::Damaged { .. }) => {
                return Err(RecordError::Foreign { path: path() });
            }
            Err(error) => return Err(error),
        };
        let digit = MAGIC.len() - 1;
        match magic {
            MAGIC => Ok(self.table(0, 1)?.remove(0)),
            [0, ..] => Err(RecordError::Unstarted { path: path() }),
            _ if magic[..digit] == MAGIC[..digit] => {
                Err(RecordError::OtherVersion { path: path() })
            }
            _ => Err(RecordError::Foreign { path: path() }),
        }
    }

    /// Returns `count` items from the byte `offset` on.
    fn table<T: FromBytes>(&self, offset: u64, count: u64) -> Result<Vec<T>, RecordError> {
        let item_len = size_of::<T>();
        let table_len = count.checked_mul(item_len as u64);
        let end = table_len.and_then(|len| offset.checked_add(len));
        let fits = table_len.filter(|_| end.is_some_and(|end| end <= self.len));
        let Some(len) = fits.and_then(|len| usize::try_from(len).ok()) else {
            return Err(self.damaged("it is shorter than its tables"));
        };
        let mut bytes = vec![0; len];
        match self.file.read_exact_at(&mut bytes, offset) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                return Err(self.damaged("it became shorter while it was read"));
            }
            Err(source) => {
                return Err(RecordError::Unreadable {
                    path: self.path.to_owned(),
                    source,
                });
            }
        }
        let items = bytes.chunks_exact(item_len);
        Ok(items
            .filter_map(|item| T::read_from_bytes(item).ok())
            .collect())
    }
}

/// Conversion of a process's ticks to time.
#[derive(Clone, Copy, Debug)]
struct Clock {
    ticks_per_s: f64,
    /// Ticks of the end, or of the last recorded activity.
    last: u64,
    begin_ns: i64,
}

impl Clock {
    fn of(header: &RawHeader) -> Clock {
        let has_end = header.end_ticks > header.init_ticks && header.end_ns > header.init_ns;
        let begin_ns = i64::try_from(header.init_ns).unwrap_or(i64::MAX);
        let begin_ns = begin_ns.saturating_add(header.init_ahead_ns);
        if !has_end {
            let last = header.last_ticks.max(header.running_since);
            #[allow(
                clippy::cast_precision_loss,
                reason = "a rate of 2^53 ticks a second is no clock's"
            )]
            let ticks_per_s = header.ticks_per_s as f64;
            return Clock {
                ticks_per_s,
                last,
                begin_ns,
            };
        }
        // Averaged over the whole run, so its error is only that of the two pairs of clock reads.
        #[allow(
            clippy::cast_precision_loss,
            reason = "a millionth of a part is enough of a rate"
        )]
        let (ticks, ns) = (
            (header.end_ticks - header.init_ticks) as f64,
            (header.end_ns - header.init_ns) as f64,
        );
        Clock {
            ticks_per_s: ticks / ns * 1e9,
            last: header.end_ticks,
            begin_ns,
        }
    }

    fn seconds(&self, ticks: u64) -> f64 {
        #[allow(
            clippy::cast_precision_loss,
            reason = "a millionth of a part is enough of a time"
        )]
        let ticks = ticks as f64;
        ticks / self.ticks_per_s
    }
}

impl From<RawVolume> for Tally {
    fn from(raw: RawVolume) -> Tally {
        Tally {
            count: raw.count,
            bytes: raw.bytes,
        }
    }
}

impl Operation {
    fn new(raw: &RawOperation, clock: &Clock) -> Operation {
        Operation {
            name: text(&raw.name),
            kind: text(&raw.group),
            calls: raw.calls,
            seconds: clock.seconds(raw.ticks),
            bytes: raw.bytes,
        }
    }
}

impl PeerRecord {
    fn new(raw: &RawPeer, clock: &Clock) -> PeerRecord {
        PeerRecord {
            sent: raw.sent.into(),
            received: raw.received.into(),
            one_sided: raw.remote.into(),
            waited_s: clock.seconds(raw.waited_ticks),
        }
    }
}

/// Returns the text before the first zero. Invalid UTF-8 is replaced.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0);
    String::from_utf8_lossy(&bytes[..end.unwrap_or(bytes.len())]).into_owned()
}

#[cfg(test)]
pub(crate) mod tests;
