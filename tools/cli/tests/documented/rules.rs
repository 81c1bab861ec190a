// SPDX-License-Identifier: MIT OR Apache-2.0
//! The documented numbers that predictions lean on.

/// A blocking send of so many bytes to another never waits for its receive, within the credit
/// (`P4.13`). One to the process itself never does.
pub(crate) const BUFFERED_MAX: usize = 64 << 10;

/// A non-blocking send of so many bytes asks on no path.
pub(crate) const UNASKED_MAX: usize = 16 << 10;

/// Unread bytes of a lane, charges included, up to which a send never waits for a receive.
pub(crate) const CREDIT: usize = 512 << 10;

/// What a message costs of it beside its bytes.
pub(crate) const CHARGE: usize = 32;
