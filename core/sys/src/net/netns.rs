// SPDX-License-Identifier: MIT OR Apache-2.0
//! Network namespaces.
#![allow(unsafe_code, reason = "setns is not in the standard library")]

use super::checked;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

/// Moves only the calling thread into the network namespace at `path` (for instance
/// `/run/netns/NAME`). Existing sockets stay in their namespace, and `/sys/class/net` does not
/// change.
///
/// # Errors
/// `ENOENT` if there is no such namespace, `EPERM` without `CAP_SYS_ADMIN`.
pub fn enter_netns(path: &Path) -> io::Result<()> {
    let file = File::open(path)?;
    // SAFETY: no pointers; `file` keeps the descriptor open for the call.
    checked(unsafe { libc::setns(file.as_raw_fd(), libc::CLONE_NEWNET) })
}
