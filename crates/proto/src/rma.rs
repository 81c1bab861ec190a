// SPDX-License-Identifier: MIT OR Apache-2.0
//! Remote memory: a process opens regions of its memory, and others put into them, get out of them
//! and change numbers in them without a receive (`P12`).
//!
//! Requests are numbered among the messages of their lane, cost its credit, and are performed in
//! their turn, so whatever is sent behind a put finds its bytes in place. Short ones carry their
//! bytes; long ones become transfers like long messages. Answers are neither numbered nor charged:
//! the asking side knows what it has asked for, and takes each answer once.
//!
//! Here is the table of regions, with the checks that stand before every access. `initiator` is the side
//! that asks, `target` the side whose memory it is, `stage` puts both into frames. A region is memory
//! behind an operation of the engine ([`OpId`]), which never ends by itself.

mod deregister;
mod initiator;
mod stage;
mod target;

pub(crate) use stage::{Parts, cut_points};
pub(crate) use target::Job;

use crate::base::event::{OpId, PeerId, PortId};
use crate::mem::slab::Slab;
use crate::{Core, DropReason, LaneId};
use alloc::collections::BTreeMap;
use core::fmt;
use initiator::Outstanding;
use portolan_wire::RemoteStatus;

/// Most bytes of the operands of an atomic operation: a page, 512 numbers of 8 bytes. They are taken
/// in one piece, and held in memory if they come before their turn.
pub const ATOMIC_LEN_MAX: usize = 4096;

/// In the place of a port where a request stands among messages; no port of the library's.
pub(crate) const REMOTE_PORT: PortId = PortId::system(u16::MAX);

/// What others may do with a region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Get, and the values that atomic operations return.
    pub read: bool,
    /// Put and atomic operations.
    pub write: bool,
}

impl Access {
    /// Others may get.
    pub const READ: Access = Access {
        read: true,
        write: false,
    };
    /// Others may put, and change numbers.
    pub const WRITE: Access = Access {
        read: false,
        write: true,
    };
    /// Others may do everything.
    pub const BOTH: Access = Access {
        read: true,
        write: true,
    };
}

/// A region to be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionSpec {
    /// By which others name it; `None`: one that nobody can guess.
    pub key: Option<u64>,
    /// Address of its first byte as others count: 0 for offsets.
    pub base: u64,
    /// Bytes.
    pub len: u64,
    /// What others may do.
    pub access: Access,
}

/// Which remote memory an operation is about, and with what service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteSpec {
    /// Priority; operations are ordered within a lane.
    pub lane: LaneId,
    /// Key of the region.
    pub key: u64,
    /// First byte, counted from the region's base.
    pub addr: u64,
    /// With a put: a word for the program at the target.
    pub imm: Option<u64>,
}

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
    fn status(self) -> RemoteStatus {
        RemoteStatus(match self {
            RemoteFault::NoSuchKey => 1,
            RemoteFault::OutOfBounds => 2,
            RemoteFault::NotAllowed => 3,
            RemoteFault::Closed => 4,
            RemoteFault::Unsupported => 5,
            RemoteFault::Refused => 6,
        })
    }

    fn from_status(status: RemoteStatus) -> RemoteFault {
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
    fn drop_reason(self) -> Option<DropReason> {
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

/// A put that the program at the target is to be told of; see [`Core::notice_taken`].
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
    lane: LaneId,
    /// Credit that comes back when the program has taken it, in this session.
    charge: u32,
    session: u64,
}

#[derive(Debug)]
struct Region {
    op: OpId,
    base: u64,
    len: u64,
    access: Access,
}

/// Of both sides.
#[derive(Debug)]
pub(crate) struct Remote {
    regions: BTreeMap<u64, Region>,
    outstanding: Slab<Outstanding>,
}

impl Remote {
    pub(crate) fn new() -> Self {
        Remote {
            regions: BTreeMap::new(),
            outstanding: Slab::new(),
        }
    }

    /// Operations that wait for their answer.
    pub(crate) fn outstanding_count(&self) -> usize {
        self.outstanding.len()
    }

    /// The memory that a request names: whose operation, and where in it. `P12.3`
    fn find(
        &self,
        key: u64,
        addr: u64,
        len: u64,
        need: Access,
    ) -> Result<(OpId, u64), RemoteFault> {
        let region = self.regions.get(&key).ok_or(RemoteFault::NoSuchKey)?;
        let access = region.access;
        if need.read && !access.read || need.write && !access.write {
            return Err(RemoteFault::NotAllowed);
        }
        let off = addr
            .checked_sub(region.base)
            .ok_or(RemoteFault::OutOfBounds)?;
        let end = off.checked_add(len).ok_or(RemoteFault::OutOfBounds)?;
        if end > region.len {
            return Err(RemoteFault::OutOfBounds);
        }
        Ok((region.op, off))
    }
}

impl Core {
    /// Opens the memory of `op` to all peers that know its key, which is returned; `None` if the key
    /// is in use. `P12.1`
    pub fn expose(&mut self, op: OpId, spec: &RegionSpec) -> Option<u64> {
        let remote = &mut self.sh.remote;
        let key = match spec.key {
            Some(key) if remote.regions.contains_key(&key) => return None,
            Some(key) => key,
            None => loop {
                let key = self.sh.entropy.next_u64();
                if !remote.regions.contains_key(&key) {
                    break key;
                }
            },
        };
        let region = Region {
            op,
            base: spec.base,
            len: spec.len,
            access: spec.access,
        };
        remote.regions.insert(key, region);
        Some(key)
    }

    /// The program has taken a notice: its sender may use the credit again. `P12.8`
    pub fn notice_taken(&mut self, notice: &PutNotice) {
        if let Some(Some(peer)) = self.peers.get_mut(notice.peer.index())
            && peer.session.token_mine == notice.session
        {
            peer.consume(&mut self.sh, notice.lane, notice.charge);
            self.touch(notice.peer);
        }
    }
}
