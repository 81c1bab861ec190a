// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waking a thread that sleeps on a descriptor of somebody else's.

use crate::effort::{self, Call};
use crate::wait::wait_readable;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{read, write};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::thread;
use std::time::Duration;

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Bell(OwnedFd);

impl Bell {
    /// # Errors
    /// For want of descriptors.
    pub(super) fn new() -> io::Result<Bell> {
        Ok(Bell(eventfd(
            0,
            EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK,
        )?))
    }

    /// Wakes who sleeps, or who sleeps next.
    pub(super) fn ring(&self) {
        effort::calls(Call::Write);
        // Refused only when it was rung 2^64 - 2 times and nobody has woken.
        let _ = write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Sleeps until `fd` is readable, the bell is rung, or `most` has passed.
    pub(super) fn sleep(&self, fd: RawFd, most: Duration) {
        if wait_readable(&[fd, self.0.as_raw_fd()], Some(most)).is_err() {
            // For want of memory: looking now and then is as good.
            thread::sleep(most.min(super::ABSENCE_GUARDED));
        }
        effort::calls(Call::Read);
        // Nothing to read, where it was not rung.
        let _ = read(&self.0, &mut [0; 8]);
    }
}
