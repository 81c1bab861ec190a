// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sleeping on a node where something else than a message may end the sleep.

use portolan::{Error, Node};

/// As [`Node::arm`], but a job whose other processes have ended is no error: an alarm, a timeout or
/// another thread may still end the sleep.
///
/// # Errors
/// [`Error::System`].
pub fn arm(node: &mut Node) -> Result<bool, Error> {
    match node.arm() {
        Err(Error::NobodyLeft { .. }) => Ok(true),
        armed => armed,
    }
}
