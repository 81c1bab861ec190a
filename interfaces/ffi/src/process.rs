// SPDX-License-Identifier: MIT OR Apache-2.0
//! Thread identification, handling of forked children, and leaving a job.

use portolan::{Error, Node};
use std::time::Duration;

/// Time that a leaving process waits for the other processes to leave. Meanwhile it repeats
/// acknowledgements lost on a network, so that a sender that waits for one does not report a failed
/// peer. 1 s allows many retransmissions and delays no program for long.
const LINGER: Duration = Duration::from_secs(1);

/// Returns the calling thread's number, never 0. It is the pthread handle, which is cheaper than a
/// thread-local variable of a shared library. No two live threads have the same number.
#[inline]
#[must_use]
pub fn this_thread() -> usize {
    // SAFETY: the call has no preconditions.
    let thread = unsafe { libc::pthread_self() };
    usize::try_from(thread).unwrap_or(usize::MAX).max(1)
}

/// Runs `disown` in each child forked from now on. Call it once.
pub fn watch_forks(disown: extern "C" fn()) {
    // SAFETY: the function exists as long as the library that contains it, which is never unloaded
    // while the program uses it.
    let error = unsafe { libc::pthread_atfork(None, None, Some(disown)) };
    if error != 0 {
        let error = std::io::Error::from_raw_os_error(error);
        eprintln!(
            "portolan: cannot install the fork handler: {error}; forked children must not call the \
             library"
        );
    }
}

/// Leaves the job, for interfaces with programs that exit without leaving. Returns when all
/// processes have called this or 1 s has passed, and all sent data has arrived.
///
/// # Errors
/// As [`Node::close`].
pub fn leave(mut node: Node) -> Result<(), Error> {
    // Failed processes, or processes in other calls, do not concern a leaving one.
    if let Ok(barrier) = node.ibarrier() {
        let _ = node.wait_timeout(barrier, LINGER);
    }
    node.close()
}

/// Returns the name of a process: that of its host, followed by its number there, as in `host:1`,
/// unless it is the first.
#[must_use]
pub fn name_of(node: &Node, rank: u32) -> String {
    let host = node.host_name(rank).unwrap_or_default();
    let before = (0..rank).filter(|other| node.host_name(*other).as_deref() == Some(&*host));
    match before.count() {
        0 => host,
        number => format!("{host}:{number}"),
    }
}
