// SPDX-License-Identifier: MIT OR Apache-2.0
//! What messages cost of their lane's credit. `P4.3`

/// Charged per message beside its bytes, so that credit also bounds the bookkeeping of small ones.
pub(crate) const CHARGE_OVERHEAD: u32 = 32;

/// What a message of `eager_len` bytes costs of its lane's credit. `P4.3`
#[inline]
pub(crate) fn charge(eager_len: usize) -> u32 {
    u32::try_from(eager_len).unwrap_or(u32::MAX / 2) + CHARGE_OVERHEAD
}
