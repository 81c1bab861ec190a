// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is told of operations on remote memory.

use crate::{DropReason, OpId, PeerId};
use core::fmt;
use portolan_wire::{LaneId, RemoteStatus};

/// What an atomic operation does; the core looks at nothing of it but the bytes it touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicSpec {
    /// Operation, from 1.
    pub code: u8,
    /// Kind of number.
    pub datatype: u8,
    /// The value before it is returned.
    pub fetch: bool,
    /// Bytes of the region that it touches.
    pub span: u32,
}

/// Why a target refused an operation on its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RemoteFault {
    /// No region has this key (any more).
    NoSuchKey,
    /// It reaches beyond the region.
    OutOfBounds,
    /// The region is not open for that.
    NotAllowed,
    /// The region was closed meanwhile; part of it may have happened.
    Closed,
    /// The target does not know the atomic operation, or not with this kind of number.
    Unsupported,
    /// The target has no room for another transfer, or the answer makes no sense.
    Refused,
}

impl RemoteFault {
    pub(crate) fn status(self) -> RemoteStatus {
        RemoteStatus(match self {
            RemoteFault::NoSuchKey => 1,
            RemoteFault::OutOfBounds => 2,
            RemoteFault::NotAllowed => 3,
            RemoteFault::Closed => 4,
            RemoteFault::Unsupported => 5,
            RemoteFault::Refused => 6,
        })
    }

    pub(crate) fn from_status(status: RemoteStatus) -> RemoteFault {
        match status.0 {
            1 => RemoteFault::NoSuchKey,
            2 => RemoteFault::OutOfBounds,
            3 => RemoteFault::NotAllowed,
            4 => RemoteFault::Closed,
            5 => RemoteFault::Unsupported,
            _ => RemoteFault::Refused,
        }
    }

    /// Under what it is counted at the target; closing a region is nobody's mistake.
    pub(crate) fn drop_reason(self) -> Option<DropReason> {
        match self {
            RemoteFault::NoSuchKey => Some(DropReason::RemoteKey),
            RemoteFault::OutOfBounds => Some(DropReason::RemoteBounds),
            RemoteFault::NotAllowed => Some(DropReason::RemoteAccess),
            RemoteFault::Unsupported => Some(DropReason::RemoteUnsupported),
            RemoteFault::Closed | RemoteFault::Refused => None,
        }
    }
}

impl fmt::Display for RemoteFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RemoteFault::NoSuchKey => "no region there has this key",
            RemoteFault::OutOfBounds => "it reaches beyond the region",
            RemoteFault::NotAllowed => "the region is not open for that",
            RemoteFault::Closed => "the region was closed meanwhile",
            RemoteFault::Unsupported => "the operation is not known there for this kind of number",
            RemoteFault::Refused => "the target had no room for it",
        })
    }
}

/// An answer that the engine owes: to a read, or to an atomic operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// To whom.
    pub peer: PeerId,
    /// The region that was named.
    pub region: OpId,
    /// First byte in it.
    pub off: u64,
    pub(crate) lane: LaneId,
    /// The asking side's number.
    pub(crate) op: u32,
}

/// A put that the program at the target is to be told of; see [`crate::Core::notice_taken`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PutNotice {
    /// From whom.
    pub peer: PeerId,
    /// Its word.
    pub imm: u64,
    /// Key of the region.
    pub key: u64,
    /// First byte, counted from the region's base.
    pub addr: u64,
    /// Bytes that were put.
    pub len: u64,
    pub(crate) lane: LaneId,
    /// Credit that comes back when the program has taken it, in this session.
    pub(crate) charge: u32,
    pub(crate) session: u64,
}
