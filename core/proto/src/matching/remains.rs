// SPDX-License-Identifier: MIT OR Apache-2.0
//! Remainders of messages that no receive will take, after the failure of their peer or the close
//! of this process.

use super::port::Waiting;
use crate::{Address, HeldId, OpId, PeerId};
use alloc::vec::Vec;
use portolan_wire::LaneId;

/// Unfinished messages and receives of a failed peer.
#[derive(Debug, Default)]
pub(crate) struct Remains {
    /// Memory of messages that will not be delivered.
    pub(crate) held: Vec<HeldId>,
    /// Receives that will not be satisfied.
    pub(crate) ops: Vec<OpId>,
    /// Destinations at which a message is missing; no later message may be delivered there.
    pub(crate) broken: Vec<(LaneId, Address)>,
    /// Set if a put or an atomic operation of the lane is missing; nothing matched after it is
    /// kept.
    pub(crate) missing: [bool; 2],
}

impl Remains {
    pub(crate) fn holds_at(&self, lane: LaneId, to: &Address) -> bool {
        let is_broken = |(other, at): &(LaneId, Address)| *other == lane && at.shares_queue(to);
        !self.broken.iter().any(is_broken)
    }
}

/// Message that waited for a receive.
pub(crate) struct Discarded {
    pub(crate) peer: PeerId,
    pub(crate) lane: LaneId,
    /// Set if it holds credit of its lane.
    pub(crate) holds_credit: bool,
    /// Length in bytes of a message that is not held here.
    pub(crate) len: u64,
    pub(crate) what: Waiting,
}
