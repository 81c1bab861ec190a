// SPDX-License-Identifier: MIT OR Apache-2.0
//! The events of a record: what its process did, in the order of its calls.

use super::{Record, RecordError, Source};
use zerocopy::{FromBytes, Immutable, KnownLayout};

/// Bits of `what` below the kind, and of the kind: bytes, kind, operation.
const BYTES_BITS: u32 = 44;
const KIND_BITS: u32 = 4;

/// Where the events of a record are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct EventTable {
    pub(super) off: u64,
    pub(super) count: u64,
    /// Those that had no room.
    pub(crate) dropped: u64,
}

/// A call, or a part of what it did; times are from the end of MPI_Init.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) start_ns: u64,
    pub(crate) end_ns: u64,
    /// `enum kind` of `shim/record.h`.
    pub(crate) kind: u64,
    /// Of the record's operations.
    pub(crate) operation: usize,
    pub(crate) bytes: u64,
    /// Of MPI_COMM_WORLD; negative for anybody and for processes of other worlds.
    pub(crate) peer: i32,
    /// Of a collective operation: how many take part.
    pub(crate) tag: i32,
    /// 0 if there is none.
    pub(crate) request: u32,
    pub(crate) group: u32,
}

/// `struct event`.
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
    /// What the process did, from its file.
    ///
    /// # Errors
    /// There are no events in it though there were calls, or it cannot be read.
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

    /// Why its calls are in no order.
    pub(crate) fn concurrent(&self) -> RecordError {
        RecordError::Concurrent {
            path: self.path.clone(),
        }
    }

    /// How long the process ran, as [`Call`] has times.
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
