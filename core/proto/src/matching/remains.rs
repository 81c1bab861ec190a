// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is left of messages that no receive will take: at the end of their peer, or of this process.

use super::port::Waiting;
use crate::{Address, HeldId, OpId, PeerId};
use alloc::vec::Vec;
use portolan_wire::LaneId;

/// What a peer that is gone leaves unfinished.
#[derive(Debug, Default)]
pub(crate) struct Remains {
    /// Memory of messages that will not be delivered.
    pub(crate) held: Vec<HeldId>,
    /// Receives that will not be filled.
    pub(crate) ops: Vec<OpId>,
    /// Where a message is missing: no later one may be delivered there as if it were the next.
    pub(crate) broken: Vec<(LaneId, Address)>,
    /// A put or an atomic operation is missing on the lane: nothing that is matched after it is kept.
    pub(crate) missing: [bool; 2],
}

impl Remains {
    pub(crate) fn keeps_at(&self, lane: LaneId, to: &Address) -> bool {
        let is_broken = |(other, at): &(LaneId, Address)| *other == lane && at.shares_queue(to);
        !self.broken.iter().any(is_broken)
    }
}

/// A message that waited for a receive.
pub(crate) struct Discarded {
    pub(crate) peer: PeerId,
    pub(crate) lane: LaneId,
    /// It counts as credit of its lane.
    pub(crate) keeps_credit: bool,
    /// Bytes, where they do not lie here.
    pub(crate) len: u64,
    pub(crate) what: Waiting,
}
