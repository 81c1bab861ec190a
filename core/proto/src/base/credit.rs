// SPDX-License-Identifier: MIT OR Apache-2.0
//! Credit cost of messages. `P4.3`

/// Bytes charged per message in addition to its payload, so that credit also bounds the bookkeeping
/// of small messages.
pub(crate) const CHARGE_OVERHEAD: u32 = 32;

/// Returns the lane credit that a message of `eager_len` bytes costs. `P4.3`
#[inline]
pub(crate) fn charge(eager_len: usize) -> u32 {
    u32::try_from(eager_len).unwrap_or(u32::MAX / 2) + CHARGE_OVERHEAD
}
