// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waking a thread that sleeps on a foreign descriptor.

use crate::usage::{self, Call};
use crate::wait::wait_readable;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{read, write};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::thread;
use std::time::Duration;

/// An event descriptor that wakes the sleeper.
#[derive(Debug)]
pub(super) struct Bell(OwnedFd);

impl Bell {
    /// Creates a bell.
    ///
    /// # Errors
    /// Fails if descriptors are exhausted.
    pub(super) fn new() -> io::Result<Bell> {
        Ok(Bell(eventfd(
            0,
            EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK,
        )?))
    }

    /// Wakes the sleeping thread, or makes the next sleep return at once.
    pub(super) fn ring(&self) {
        usage::count_call(Call::Write);
        // Fails only after 2^64 - 2 rings without a wake-up.
        let _ = write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Sleeps until `fd` is readable, the bell is rung, or `most` has passed.
    pub(super) fn sleep(&self, fd: RawFd, most: Duration) {
        if wait_readable(&[fd, self.0.as_raw_fd()], Some(most)).is_err() {
            // Fails for lack of memory: polling at intervals is sufficient.
            thread::sleep(most.min(super::ABSENCE_GUARDED));
        }
        usage::count_call(Call::Read);
        // Fails if the bell was not rung.
        let _ = read(&self.0, &mut [0; 8]);
    }
}
