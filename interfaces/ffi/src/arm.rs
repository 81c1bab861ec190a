// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sleep on a node that an event other than a message may end.

use portolan::{Error, Node};

/// Like [`Node::arm`], but succeeds after all other processes of the job have ended: an alarm, a
/// timeout or another thread may still end the sleep.
///
/// # Errors
/// [`Error::System`].
pub fn arm(node: &mut Node) -> Result<bool, Error> {
    match node.arm() {
        Err(Error::NobodyLeft { .. }) => Ok(true),
        armed => armed,
    }
}
