// SPDX-License-Identifier: MIT OR Apache-2.0
//! The end of this process, by force.

use rustix::process::{Signal, getpid, kill_process};

/// Kills this process as `kill -9` does: no destructor, no handler, no farewell.
pub fn kill_self() -> ! {
    let _ = kill_process(getpid(), Signal::KILL);
    // A signal to oneself is delivered before the call returns; without it, the next worst.
    std::process::abort();
}
