// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flags shared by records of several kinds. All other flags are defined beside their records.

use crate::LaneId;

/// The record belongs to the high-priority lane.
pub(crate) const HIGH: u8 = 1;
/// A lost message is not retransmitted.
pub(crate) const BEST_EFFORT: u8 = 2;
/// The port belongs to the library, not to the program.
pub(crate) const SYSTEM: u8 = 4;

/// Returns the lane that `flags` select.
#[inline]
pub(crate) fn lane_of(flags: u8) -> LaneId {
    match flags & HIGH {
        0 => LaneId::Low,
        _ => LaneId::High,
    }
}

/// Returns the flag of `lane`.
#[inline]
pub(crate) fn of_lane(lane: LaneId) -> u8 {
    match lane {
        LaneId::Low => 0,
        LaneId::High => HIGH,
    }
}
