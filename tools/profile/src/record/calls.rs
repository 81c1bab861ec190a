// SPDX-License-Identifier: MIT OR Apache-2.0
//! Events of a record: the calls of its process in order.

use super::{Record, RecordError, Source};
use zerocopy::{FromBytes, Immutable, KnownLayout};

/// Widths of the fields of `what`: bytes and kind; the operation has the remaining bits.
const BYTES_BITS: u32 = 44;
const KIND_BITS: u32 = 4;

/// Position of the events in a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct EventTable {
    pub(super) off: u64,
    pub(super) count: u64,
    /// Number of events that did not fit.
    pub(crate) dropped: u64,
}

/// A call, or a part of its effects. Times start at the end of MPI_Init.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) start_ns: u64,
    pub(crate) end_ns: u64,
    /// Kind of the event, as in `enum kind` of `shim/record.h`.
    pub(crate) kind: u64,
    /// Index into the record's operations.
    pub(crate) operation: usize,
    pub(crate) bytes: u64,
    /// Rank in MPI_COMM_WORLD; negative for any rank and for processes of other worlds.
    pub(crate) peer: i32,
    /// Tag; for a collective operation, the number of members.
    pub(crate) tag: i32,
    /// Request id; 0 without a request.
    pub(crate) request: u32,
    pub(crate) group: u32,
}

/// Layout of `struct event`.
#[derive(FromBytes, KnownLayout, Immutable)]
#[repr(C)]
struct RawEvent {
    start: u64,
    end: u64,
    what: u64,
    peer: i32,
    tag: i32,
    request: u32,
    group: u32,
}

const _: () = assert!(size_of::<RawEvent>() == 40, "struct event of record.h");

impl Record {
    /// Reads the calls of the process from its file.
    ///
    /// # Errors
    /// There are calls but no events, or the file cannot be read.
    pub(crate) fn calls(&self) -> Result<Vec<Call>, RecordError> {
        let has_called = self.operations.iter().any(|operation| operation.calls > 0);
        if self.events.count == 0 && has_called {
            return Err(RecordError::Eventless {
                path: self.path.clone(),
            });
        }
        let source = Source::open(&self.path)?;
        let raw: Vec<RawEvent> = source.table(self.events.off, self.events.count)?;
        Ok(raw.iter().map(|event| self.call(event)).collect())
    }

    fn call(&self, raw: &RawEvent) -> Call {
        let kind = (raw.what >> BYTES_BITS) & ((1 << KIND_BITS) - 1);
        let operation = raw.what >> (BYTES_BITS + KIND_BITS);
        Call {
            start_ns: self.ns(raw.start),
            end_ns: self.ns(raw.end),
            kind,
            operation: usize::try_from(operation).unwrap_or(usize::MAX),
            bytes: raw.what & ((1 << BYTES_BITS) - 1),
            peer: raw.peer,
            tag: raw.tag,
            request: raw.request,
            group: raw.group,
        }
    }

    /// Returns the error for calls that overlap.
    pub(crate) fn concurrent(&self) -> RecordError {
        RecordError::Concurrent {
            path: self.path.clone(),
        }
    }

    /// Returns the duration of the process in nanoseconds, on the time scale of [`Call`].
    pub(crate) fn end_ns(&self) -> u64 {
        self.ns(self.clock.last)
    }

    fn ns(&self, ticks: u64) -> u64 {
        let seconds = self.clock.seconds(ticks.saturating_sub(self.init_ticks));
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a run of 500 years has 2^64 ns; what is longer is no time"
        )]
        let ns = (seconds * 1e9) as u64;
        ns
    }
}
