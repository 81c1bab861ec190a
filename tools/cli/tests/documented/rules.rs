// SPDX-License-Identifier: MIT OR Apache-2.0
//! Documented numbers on which predictions depend.

/// Largest blocking send to another process that never waits for its receive, within the credit
/// (`P4.13`). A send to the process itself never waits.
pub(crate) const BUFFERED_MAX: usize = 64 << 10;

/// Largest non-blocking send that is eager on every path.
pub(crate) const UNASKED_MAX: usize = 16 << 10;

/// Unread bytes of a lane, charges included, up to which a send never waits for a receive.
pub(crate) const CREDIT: usize = 512 << 10;

/// Charge for a message in addition to its bytes.
pub(crate) const CHARGE: usize = 32;
