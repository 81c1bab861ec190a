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
//! that asks, `target` the side whose memory it is. A region is memory
//! behind an operation of the engine ([`OpId`]), which never ends by itself.

mod initiator;
pub(crate) mod target;

use crate::mem::slab::Slab;
use crate::{OpId, PortId, RemoteFault};
use alloc::collections::BTreeMap;
use initiator::Outstanding;
use portolan_wire::LaneId;

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

    /// Opens the memory of `op` to all peers that know its key, which is returned; `None` if the key
    /// is in use. `random` draws one. `P12.1`
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

    /// Closes a region and returns the operation whose memory it was; `None` if there is none with
    /// this key. `P12.7`
    pub(crate) fn deregister(&mut self, key: u64) -> Option<OpId> {
        self.regions.remove(&key).map(|region| region.op)
    }
}
