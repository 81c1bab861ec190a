// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waiting for descriptors.
#![allow(unsafe_code, reason = "poll takes a pointer to an array")]

use crate::usage::{self, Call};
use libc::{c_int, pollfd};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

/// Events of a descriptor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Readiness {
    /// Set if data can be read.
    pub readable: bool,
    /// Set if an error is pending, or the other end hung up.
    pub error: bool,
}

/// Returns the current events of `fd`.
#[must_use]
pub fn readiness(fd: BorrowedFd<'_>) -> Readiness {
    let mut set = [pollfd {
        fd: fd.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    }];
    // A failed call leaves `revents` zero: nothing is ready, and the caller polls again.
    let _ = poll(&mut set, 0);
    let revents = set[0].revents;
    Readiness {
        readable: revents & libc::POLLIN != 0,
        error: revents & (libc::POLLERR | libc::POLLHUP) != 0,
    }
}

/// Sleeps until one of `fds` is readable or has an error, at most `timeout`. Returns `true` if one
/// is.
///
/// # Errors
/// The errno of `poll`. A signal is not an error: it ends the wait with `false`.
pub fn wait_readable(fds: &[RawFd], timeout: Duration) -> io::Result<bool> {
    let mut set: Vec<pollfd> = fds
        .iter()
        .map(|&fd| pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        })
        .collect();
    // Rounded up, so that a short timeout is not a busy loop.
    let timeout_ms = timeout.as_nanos().div_ceil(1_000_000);
    match poll(&mut set, c_int::try_from(timeout_ms).unwrap_or(c_int::MAX)) {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(false),
        other => other.map(|count| count > 0),
    }
}

/// Sleeps until `fd` is writable or has an error, at most `timeout`; a signal ends the wait.
///
/// # Errors
/// The errno of `poll`, except interruptions.
pub fn wait_writable(fd: BorrowedFd<'_>, timeout: Duration) -> io::Result<()> {
    let mut set = [pollfd {
        fd: fd.as_raw_fd(),
        events: libc::POLLOUT,
        revents: 0,
    }];
    let timeout_ms = timeout.as_nanos().div_ceil(1_000_000);
    match poll(&mut set, c_int::try_from(timeout_ms).unwrap_or(c_int::MAX)) {
        Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
        _ => Ok(()),
    }
}

/// Sleeps until `fd` is readable or has an error, at most `timeout` with nanosecond resolution.
/// Without a timeout, sleeps until then or until a signal.
///
/// # Errors
/// The errno of `ppoll`, except interruptions.
pub fn sleep_until_readable(fd: BorrowedFd<'_>, timeout: Option<Duration>) -> io::Result<()> {
    use rustix::event::{PollFd, PollFlags, Timespec};
    let timeout = timeout.map(|timeout| Timespec {
        tv_sec: timeout.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    });
    let mut set = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    usage::count_call(Call::Ppoll);
    match rustix::event::poll(&mut set, timeout.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

fn poll(set: &mut [pollfd], timeout_ms: c_int) -> io::Result<c_int> {
    usage::count_call(Call::Poll);
    // SAFETY: `set` is live and exclusively borrowed, with its length.
    let count = unsafe { libc::poll(set.as_mut_ptr(), set.len() as libc::nfds_t, timeout_ms) };
    if count < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(count)
    }
}
