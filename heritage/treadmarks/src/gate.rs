// SPDX-License-Identifier: MIT OR Apache-2.0
//! Wakes the helper thread for events of the node while the program computes, and only then: a
//! thread of the program that waits receives the same events.

use crate::error::{Failure, failure};
use std::ffi::c_int;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// An epoll set with the event descriptor of the node.
pub(crate) struct Gate {
    set: OwnedFd,
    event_fd: RawFd,
}

impl Gate {
    /// Creates a gate that is closed.
    pub(crate) fn new(event_fd: RawFd) -> Result<Gate, Failure> {
        // SAFETY: the call has no preconditions.
        let set = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if set < 0 {
            return Err(last());
        }
        // SAFETY: a new descriptor, which nothing else owns.
        let set = unsafe { OwnedFd::from_raw_fd(set) };
        let gate = Gate { set, event_fd };
        gate.control(libc::EPOLL_CTL_ADD, 0)?;
        Ok(gate)
    }

    /// Lets the next event wake the helper, and closes the gate behind it.
    pub(crate) fn open(&self) -> Result<(), Failure> {
        self.control(libc::EPOLL_CTL_MOD, libc::EPOLLIN | libc::EPOLLONESHOT)
    }

    /// Lets no event wake the helper.
    pub(crate) fn close(&self) -> Result<(), Failure> {
        self.control(libc::EPOLL_CTL_MOD, 0)
    }

    fn control(&self, operation: c_int, events: c_int) -> Result<(), Failure> {
        let mut event = libc::epoll_event {
            events: events.cast_unsigned(),
            u64: 0,
        };
        let set = self.set.as_raw_fd();
        // SAFETY: a live event; both descriptors are open.
        match unsafe { libc::epoll_ctl(set, operation, self.event_fd, &raw mut event) } {
            0 => Ok(()),
            _ => Err(last()),
        }
    }

    /// Returns the descriptor for [`pass`].
    pub(crate) fn set(&self) -> RawFd {
        self.set.as_raw_fd()
    }
}

/// Sleeps until an event passes the gate.
pub(crate) fn pass(set: RawFd) {
    let mut event = libc::epoll_event { events: 0, u64: 0 };
    // SAFETY: one live event. A descriptor that was closed is refused.
    unsafe { libc::epoll_wait(set, &raw mut event, 1, -1) };
}

#[cold]
fn last() -> Failure {
    let error = io::Error::last_os_error();
    failure(format!("cannot watch the events of the node: {error}"))
}
