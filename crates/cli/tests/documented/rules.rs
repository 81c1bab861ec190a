// SPDX-License-Identifier: MIT OR Apache-2.0
//! The documented numbers that predictions lean on, and what is not drawn yet.

/// A blocking send of so many bytes to another never waits for its receive, within the credit
/// (`P4.13`). One to the process itself never does.
pub(crate) const BUFFERED_MAX: usize = 64 << 10;

/// A non-blocking send of so many bytes asks on no path.
pub(crate) const UNASKED_MAX: usize = 16 << 10;

/// Unread bytes of a lane, charges included, up to which a send never waits for a receive.
pub(crate) const CREDIT: usize = 512 << 10;

/// What a message costs of it beside its bytes.
pub(crate) const CHARGE: usize = 32;

/// Promises that programs rely on only once the library keeps them. The test of each is to take it
/// off this list and run many programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Promise {
    /// A receive from anybody ends when nobody is left.
    NobodyLeft,
}

/// Promises that the library does not keep yet.
const BROKEN: &[Promise] = &[];

pub(crate) fn holds(promise: Promise) -> bool {
    !BROKEN.contains(&promise)
}
