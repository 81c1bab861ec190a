// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which thread this is, what happens in children that the program forks, and leaving a job.

use portolan::{Error, Group, Node};
use std::time::{Duration, Instant};

/// How long a process that leaves waits for the others to come as far. In that time it answers: the
/// acknowledgement that a lossy network has swallowed is given again, so that a sender who waits for it is
/// not told that its peer is gone. A second is many retransmissions, and no program is kept for long.
const LINGER: Duration = Duration::from_secs(1);

/// The calling thread's number, never 0: what the system's library has at hand, cheaper than a variable
/// of the thread's, which a shared library has to look up. No two threads that live at the same time
/// have the same.
#[inline]
#[must_use]
pub fn this_thread() -> usize {
    // SAFETY: has no conditions.
    let thread = unsafe { libc::pthread_self() };
    usize::try_from(thread).unwrap_or(usize::MAX).max(1)
}

/// From now on runs `disown` in each child that the program forks. Call it once.
pub fn watch_forks(disown: extern "C" fn()) {
    // SAFETY: the function exists as long as the library that gives it, which is never unloaded while
    // the program has it.
    let error = unsafe { libc::pthread_atfork(None, None, Some(disown)) };
    if error != 0 {
        let error = std::io::Error::from_raw_os_error(error);
        eprintln!(
            "portolan: children that this program forks will not be told to leave its job alone, so none \
             of them may call the library: {error}"
        );
    }
}

/// Leaves the job, for interfaces whose programs just end: when all processes have come here or a second
/// is over, and what was sent has arrived.
///
/// # Errors
/// As [`Node::close`].
pub fn leave(mut node: Node) -> Result<(), Error> {
    let begun = Instant::now();
    // Others that are gone, or in calls of their own, are no concern of one that leaves.
    if let Ok(mut barrier) = node.begin_barrier(&Group::all(&node)) {
        let _ = node.poll_barrier(&mut barrier, || begun.elapsed() >= LINGER);
    }
    node.close()
}
