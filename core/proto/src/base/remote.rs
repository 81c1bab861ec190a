// SPDX-License-Identifier: MIT OR Apache-2.0
//! Types that describe operations on remote memory.

use crate::{DropReason, OpId, PeerId};
use core::fmt;
use portolan_wire::{LaneId, RemoteStatus};

/// Atomic operation. The core interprets only the number of bytes that it accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicSpec {
    /// Operation code, from 1.
    pub code: u8,
    /// Number type.
    pub datatype: u8,
    /// Set if the previous value is returned.
    pub fetch: bool,
    /// Bytes of the region that it accesses.
    pub span: u32,
}

/// Reason why a target refused an operation on its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RemoteFault {
    /// No region has this key, or it was closed.
    NoSuchKey,
    /// The operation extends beyond the region.
    OutOfBounds,
    /// The region does not allow the access.
    NotAllowed,
    /// The region was closed during the operation, which may be partly done.
    Closed,
    /// The target does not support the atomic operation, or not with this number type.
    Unsupported,
    /// The target has no room for another transfer, or the reply is invalid.
    Refused,
    /// The memory of the region is unmapped, or may not be accessed in this way.
    Inaccessible,
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
            RemoteFault::Inaccessible => 7,
        })
    }

    pub(crate) fn from_status(status: RemoteStatus) -> RemoteFault {
        match status.0 {
            1 => RemoteFault::NoSuchKey,
            2 => RemoteFault::OutOfBounds,
            3 => RemoteFault::NotAllowed,
            4 => RemoteFault::Closed,
            5 => RemoteFault::Unsupported,
            7 => RemoteFault::Inaccessible,
            _ => RemoteFault::Refused,
        }
    }

    /// Returns the reason under which the target counts the fault. Closing a region is not an
    /// error, so it has none.
    pub(crate) fn drop_reason(self) -> Option<DropReason> {
        match self {
            RemoteFault::NoSuchKey => Some(DropReason::RemoteKey),
            RemoteFault::OutOfBounds => Some(DropReason::RemoteBounds),
            RemoteFault::NotAllowed => Some(DropReason::RemoteAccess),
            RemoteFault::Unsupported => Some(DropReason::RemoteUnsupported),
            RemoteFault::Closed | RemoteFault::Refused | RemoteFault::Inaccessible => None,
        }
    }
}

impl fmt::Display for RemoteFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RemoteFault::NoSuchKey => "the target has no region with this key",
            RemoteFault::OutOfBounds => "the request exceeds the region",
            RemoteFault::NotAllowed => "the region does not allow this access",
            RemoteFault::Closed => "the region was deregistered during the operation",
            RemoteFault::Unsupported => {
                "the target does not support this operation for this data type"
            }
            RemoteFault::Refused => "the target lacks memory for the request",
            RemoteFault::Inaccessible => {
                "the memory of the region is unmapped there, or its pages forbid the access"
            }
        })
    }
}

/// Reply that the engine must send to a read or to an atomic operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Requester.
    pub peer: PeerId,
    /// Region of the request.
    pub region: OpId,
    /// Offset of the first byte in the region.
    pub off: u64,
    pub(crate) lane: LaneId,
    /// Requester's number for the operation.
    pub(crate) op: u32,
}

/// Completed put that is reported to the program at the target; see [`crate::Core::notice_taken`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PutNotice {
    /// Initiator.
    pub peer: PeerId,
    /// Immediate data.
    pub imm: u64,
    /// Key of the region.
    pub key: u64,
    /// Address of the first byte, counted from the region's base.
    pub addr: u64,
    /// Number of bytes put.
    pub len: u64,
    pub(crate) lane: LaneId,
    /// Credit that is returned when the program has taken the notice, in this session.
    pub(crate) charge: u32,
    pub(crate) session: u64,
}
