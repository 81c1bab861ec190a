// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bounded waiting for the other end.

use anyhow::{Result, bail};
use std::time::{Duration, Instant};

/// Attempts between two clock reads, so that their cost is negligible.
const CLOCK_READ_INTERVAL: u32 = 1 << 14;

/// Longest silence before the wait fails. It exceeds any scheduling delay and is short for a user.
const SILENCE_MAX: Duration = Duration::from_secs(5);

/// Counts unsuccessful attempts.
#[derive(Debug)]
pub(crate) struct SpinWait {
    yielding: bool,
    attempts: u32,
    silent_since: Option<Instant>,
}

impl SpinWait {
    /// Creates a new wait. With `yielding`, each unsuccessful attempt yields the core, for ends
    /// that share one.
    pub(crate) fn new(yielding: bool) -> Self {
        SpinWait {
            yielding,
            attempts: 0,
            silent_since: None,
        }
    }

    /// Counts an unsuccessful attempt.
    ///
    /// # Errors
    /// Nothing has arrived for [`SILENCE_MAX`].
    #[inline]
    pub(crate) fn wait(&mut self) -> Result<()> {
        self.attempts += 1;
        self.pause();
        if self.attempts == CLOCK_READ_INTERVAL {
            self.check_silence()
        } else {
            Ok(())
        }
    }

    /// Pauses after an unsuccessful attempt in a wait that is bounded elsewhere.
    #[inline]
    pub(crate) fn pause(&self) {
        if self.yielding {
            std::thread::yield_now();
        }
    }

    /// Resets the wait after a successful attempt.
    #[inline]
    pub(crate) fn reset(&mut self) {
        self.attempts = 0;
        self.silent_since = None;
    }

    #[cold]
    fn check_silence(&mut self) -> Result<()> {
        self.attempts = 0;
        if self.silent_since.get_or_insert_with(Instant::now).elapsed() > SILENCE_MAX {
            bail!(
                "the other end sent nothing for {SILENCE_MAX:?}: it has exited, or a message was lost"
            );
        }
        Ok(())
    }
}
