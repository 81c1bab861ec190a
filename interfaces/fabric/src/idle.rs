// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waiting without the lock: deadlines, and the action after a turn without progress.

#![allow(unsafe_code, reason = "sleeps on a descriptor")]

use std::ffi::c_int;
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

/// Longest single sleep. It bounds the delay if a wake-up is lost.
const SLEEP_MAX: Duration = Duration::from_millis(50);

/// End of an application's wait. As in `poll`, a negative timeout means no deadline.
#[derive(Clone, Copy)]
pub(crate) struct Deadline(Option<Instant>);

impl Deadline {
    pub(crate) fn after(timeout_ms: c_int) -> Deadline {
        let wait = u64::try_from(timeout_ms).map(Duration::from_millis);
        Deadline(wait.ok().and_then(|wait| Instant::now().checked_add(wait)))
    }

    pub(crate) fn is_over(self) -> bool {
        self.0.is_some_and(|at| Instant::now() >= at)
    }

    /// Returns the length of the next sleep.
    fn next_sleep(self) -> Duration {
        let left = |at: Instant| at.saturating_duration_since(Instant::now());
        self.0.map_or(SLEEP_MAX, left).min(SLEEP_MAX)
    }
}

/// Action after a turn without progress. If several are requested, the smallest value applies.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum IdleAction {
    Again,
    Yield,
    Sleep(RawFd),
}

impl IdleAction {
    /// Performs the action. A sleep ends at the deadline or earlier. The caller must not hold the
    /// lock.
    pub(crate) fn take(self, deadline: Deadline) {
        match self {
            IdleAction::Again => std::hint::spin_loop(),
            IdleAction::Yield => std::thread::yield_now(),
            IdleAction::Sleep(fd) => poll(fd, deadline.next_sleep()),
        }
    }
}

fn poll(fd: RawFd, at_most: Duration) {
    let mut entry = libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    // At least 1 ms: a timeout of zero would spin.
    let ms = c_int::try_from(at_most.as_millis())
        .unwrap_or(c_int::MAX)
        .max(1);
    // SAFETY: one entry, on the stack.
    unsafe { libc::poll(&raw mut entry, 1, ms) };
}
