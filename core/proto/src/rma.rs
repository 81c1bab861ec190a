// SPDX-License-Identifier: MIT OR Apache-2.0
//! Remote memory: a process opens regions of its memory. Other processes put into them, get from
//! them and modify numbers in them without a receive (`P12`).
//!
//! Requests are numbered among the messages of their lane, cost its credit, and are performed in
//! order. Whatever is sent after a put finds its bytes in place. Short requests contain their
//! bytes; long ones become transfers like long messages. Answers are neither numbered nor charged:
//! the initiator records its requests and accepts each answer once.
//!
//! This module has the table of regions and the checks before every access. `initiator` is the
//! requesting side, `target` the side that owns the memory. A region is memory of an operation of
//! the engine ([`OpId`]) that never completes by itself.

mod initiator;
pub(crate) mod target;

use crate::mem::slab::Slab;
use crate::{OpId, PortId, RemoteFault};
use alloc::collections::BTreeMap;
use initiator::Outstanding;
use portolan_wire::LaneId;

/// Maximum length in bytes of an atomic operation's operands: one page, 512 numbers of 8 bytes.
/// They are processed in one piece, and held in memory if they arrive out of order.
pub const ATOMIC_LEN_MAX: usize = 4096;

/// Pseudo port for requests among messages; not used as a port by the library.
pub(crate) const REMOTE_PORT: PortId = PortId::system(u16::MAX);

/// Access that other processes have to a region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Allows gets, and atomic operations that return values.
    pub read: bool,
    /// Allows puts and atomic operations.
    pub write: bool,
}

impl Access {
    /// Allows gets.
    pub const READ: Access = Access {
        read: true,
        write: false,
    };
    /// Allows puts, and atomic operations that return no values.
    pub const WRITE: Access = Access {
        read: false,
        write: true,
    };
    /// Allows all operations.
    pub const BOTH: Access = Access {
        read: true,
        write: true,
    };
}

/// Parameters of a region to be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionSpec {
    /// Key by which other processes refer to it; `None` selects an unpredictable key.
    pub key: Option<u64>,
    /// Address of its first byte in requests; 0 for offsets.
    pub base: u64,
    /// Length in bytes.
    pub len: u64,
    /// Access for other processes.
    pub access: Access,
}

/// Target and service of an operation on remote memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteSpec {
    /// Priority; operations are ordered within a lane.
    pub lane: LaneId,
    /// Key of the region.
    pub key: u64,
    /// Address of the first byte, counted from the region's base.
    pub addr: u64,
    /// Immediate data of a put for the program at the target.
    pub imm: Option<u64>,
}

#[derive(Debug)]
struct Region {
    op: OpId,
    base: u64,
    len: u64,
    access: Access,
}

/// State of remote memory operations, as target and as initiator.
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

    /// Returns the number of operations that wait for an answer.
    #[inline]
    pub(crate) fn outstanding_count(&self) -> usize {
        self.outstanding.len()
    }

    /// Returns the operation that owns the requested memory, and the offset in it. `P12.3`
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

    /// Opens the memory of `op` to all peers that have the key, and returns the key; `None` if the
    /// key is in use. `random` draws an unpredictable key. `P12.1`
    pub(crate) fn register(
        &mut self,
        op: OpId,
        spec: &RegionSpec,
        mut random: impl FnMut() -> u64,
    ) -> Option<u64> {
        let key = match spec.key {
            Some(key) if self.regions.contains_key(&key) => return None,
            Some(key) => key,
            None => loop {
                let key = random();
                if !self.regions.contains_key(&key) {
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
        self.regions.insert(key, region);
        Some(key)
    }

    /// Closes a region and returns the operation that owns its memory; `None` if no region has this
    /// key. `P12.7`
    pub(crate) fn deregister(&mut self, key: u64) -> Option<OpId> {
        self.regions.remove(&key).map(|region| region.op)
    }
}
