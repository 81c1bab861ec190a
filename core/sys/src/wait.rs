// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sleeping on descriptors owned elsewhere, and yielding the core.
#![allow(unsafe_code, reason = "ppoll on descriptor numbers")]

use crate::usage::{self, Call};
use std::io;
use std::os::fd::RawFd;
use std::ptr;
use std::time::Duration;

/// Sleeps until one of `fds` is readable (or hung up, or invalid) or `timeout` has passed; forever
/// without a timeout. Returns `true` if one is readable, and `false` also after a signal.
///
/// # Errors
/// Returns the error of `ppoll`, except interruptions.
pub fn wait_readable(fds: &[RawFd], timeout: Option<Duration>) -> io::Result<bool> {
    let entry = |&fd| libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    let mut entries: Vec<libc::pollfd> = fds.iter().map(entry).collect();
    let count = libc::nfds_t::try_from(entries.len()).map_err(io::Error::other)?;
    let timeout = timeout.map(|timeout| libc::timespec {
        // Longer than any machine runs; the kernel refuses only negative values.
        tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: libc::c_long::from(timeout.subsec_nanos().cast_signed()),
    });
    let timeout = timeout.as_ref().map_or(ptr::null(), ptr::from_ref);
    usage::count_call(Call::Ppoll);
    // SAFETY: `entries` has `count` elements and `timeout` is null or points to a local; both live
    // through the call. Descriptors are only polled; a stale number is reported as invalid.
    let ready = unsafe { libc::ppoll(entries.as_mut_ptr(), count, timeout, ptr::null()) };
    if ready >= 0 {
        return Ok(ready > 0);
    }
    match io::Error::last_os_error() {
        err if err.kind() == io::ErrorKind::Interrupted => Ok(false),
        err => Err(err),
    }
}

/// Yields the core to other processes that need it.
pub fn yield_now() {
    usage::count_call(Call::SchedYield);
    std::thread::yield_now();
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsRawFd;
    use std::time::Instant;

    #[test]
    fn returns_when_readable_and_when_late() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let fds = [reader.as_raw_fd()];
        let begin = Instant::now();
        assert!(!wait_readable(&fds, Some(Duration::from_millis(20))).unwrap());
        assert!(begin.elapsed() >= Duration::from_millis(20));
        writer.write_all(b"x").unwrap();
        assert!(wait_readable(&fds, None).unwrap());
    }
}
