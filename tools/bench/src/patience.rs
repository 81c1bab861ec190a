// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waiting for the other end without waiting for ever.

use anyhow::{Result, bail};
use std::time::{Duration, Instant};

/// Attempts between two looks at the clock: rare enough to cost nothing.
const LOOK_EVERY: u32 = 1 << 14;

/// Longer than any scheduler keeps a process waiting, short enough for a person.
const SILENCE_MAX: Duration = Duration::from_secs(5);

/// Counts attempts in vain.
#[derive(Debug)]
pub(crate) struct Patience {
    yielding: bool,
    attempts: u32,
    silent_since: Option<Instant>,
}

impl Patience {
    /// With `yielding`, each attempt in vain gives the core away: for ends that share one.
    pub(crate) fn new(yielding: bool) -> Self {
        Patience {
            yielding,
            attempts: 0,
            silent_since: None,
        }
    }

    /// To be called after an attempt in vain.
    ///
    /// # Errors
    /// Nothing has come for [`SILENCE_MAX`].
    #[inline]
    pub(crate) fn wait(&mut self) -> Result<()> {
        self.attempts += 1;
        self.pause();
        if self.attempts == LOOK_EVERY {
            self.look()
        } else {
            Ok(())
        }
    }

    /// To be called after an attempt in vain that something else will end.
    #[inline]
    pub(crate) fn pause(&self) {
        if self.yielding {
            std::thread::yield_now();
        }
    }

    /// To be called when something came.
    #[inline]
    pub(crate) fn reward(&mut self) {
        self.attempts = 0;
        self.silent_since = None;
    }

    #[cold]
    fn look(&mut self) -> Result<()> {
        self.attempts = 0;
        if self.silent_since.get_or_insert_with(Instant::now).elapsed() > SILENCE_MAX {
            bail!("the other end was silent for {SILENCE_MAX:?}: it ended, or a message was lost");
        }
        Ok(())
    }
}
