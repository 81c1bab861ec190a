// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flags that records of several kinds have in common. The others are beside their records.

use crate::LaneId;

/// The record belongs to the lane of high priority.
pub(crate) const HIGH: u8 = 1;
/// Nobody repairs the message.
pub(crate) const BEST_EFFORT: u8 = 2;
/// The port belongs to the library, not to the program.
pub(crate) const SYSTEM: u8 = 4;

/// The lane that `flags` tell of.
#[inline]
pub(crate) fn lane_of(flags: u8) -> LaneId {
    match flags & HIGH {
        0 => LaneId::Low,
        _ => LaneId::High,
    }
}

/// The flag of `lane`.
#[inline]
pub(crate) fn of_lane(lane: LaneId) -> u8 {
    match lane {
        LaneId::Low => 0,
        LaneId::High => HIGH,
    }
}
