// SPDX-License-Identifier: MIT OR Apache-2.0
//! Progress line on a terminal. Nothing is shown if standard error is not a terminal.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// Maximum columns of the line. Every terminal has as many, so the line never wraps.
const COLUMNS: usize = 79;

/// Returns to the start of the line and clears it (ECMA-48, EL).
const ERASE: &str = "\r\x1b[K";

/// Progress of the measurements. The line is erased on drop.
#[derive(Debug)]
pub(super) struct Progress {
    shown: bool,
    begun: usize,
    count: usize,
    since: Instant,
}

impl Progress {
    /// Creates the progress of `count` measurements.
    pub(super) fn new(count: usize) -> Progress {
        Progress {
            shown: std::io::stderr().is_terminal(),
            begun: 0,
            count,
            since: Instant::now(),
        }
    }

    /// Shows the start of the next measurement.
    pub(super) fn begin(&mut self, what: &str) {
        self.begun += 1;
        self.show(&format!("{ERASE}{}", self.line(what)));
    }

    fn line(&self, what: &str) -> String {
        let left = self.left(self.since.elapsed());
        let line = format!("{} of {}{left}: {what}", self.begun, self.count);
        line.chars().take(COLUMNS).collect()
    }

    /// Returns the estimated remaining time, from the number of measurements done in `elapsed`.
    fn left(&self, elapsed: Duration) -> String {
        let done = u32::try_from(self.begun.saturating_sub(1)).unwrap_or(u32::MAX);
        let rest = u32::try_from(self.count.saturating_sub(done as usize)).unwrap_or(u32::MAX);
        match (elapsed / done.max(1) * rest).as_secs() {
            _ if done == 0 => String::new(),
            seconds @ ..60 => format!(", {seconds} s left"),
            seconds => format!(", {} min left", seconds.div_ceil(60)),
        }
    }

    fn show(&self, text: &str) {
        if self.shown {
            let mut err = std::io::stderr();
            // Progress is optional, so write errors are ignored.
            let _ = err.write_all(text.as_bytes()).and_then(|()| err.flush());
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.show(ERASE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_line_counts_and_does_not_wrap() {
        let mut progress = Progress::new(12);
        progress.shown = false;
        progress.begin("one");
        progress.begin("two");
        assert!(progress.line("pingpong").starts_with("2 of 12"));
        assert!(progress.line("pingpong").ends_with(": pingpong"));
        assert_eq!(progress.line(&"µ".repeat(100)).chars().count(), COLUMNS);
    }

    #[test]
    fn remaining_time_is_extrapolated() {
        let mut progress = Progress::new(11);
        assert_eq!(progress.left(Duration::from_secs(9)), "");
        progress.begun = 2;
        assert_eq!(progress.left(Duration::from_secs(3)), ", 30 s left");
        assert_eq!(progress.left(Duration::from_secs(9)), ", 2 min left");
    }
}
