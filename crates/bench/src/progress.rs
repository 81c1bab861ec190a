// SPDX-License-Identifier: MIT OR Apache-2.0
//! One line on a terminal that says how far the measurements have come; nothing where nobody looks.

use std::io::{IsTerminal, Write};

/// Columns of the line: what every terminal has, so that it never breaks into two.
const COLUMNS: usize = 79;

/// Back to the beginning of the line, which is emptied (ECMA-48, EL).
const ERASE: &str = "\r\x1b[K";

/// See the module documentation. The line goes when it is dropped.
#[derive(Debug)]
pub(super) struct Progress {
    shown: bool,
    begun: usize,
    count: usize,
}

impl Progress {
    /// Of `count` measurements.
    pub(super) fn new(count: usize) -> Progress {
        Progress {
            shown: std::io::stderr().is_terminal(),
            begun: 0,
            count,
        }
    }

    /// Says that the next one begins.
    pub(super) fn begin(&mut self, what: &str) {
        self.begun += 1;
        self.show(&format!("{ERASE}{}", self.line(what)));
    }

    fn line(&self, what: &str) -> String {
        let line = format!("{} of {}: {what}", self.begun, self.count);
        line.chars().take(COLUMNS).collect()
    }

    fn show(&self, text: &str) {
        if self.shown {
            let mut err = std::io::stderr();
            // Nobody misses it where it cannot be written.
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
    fn a_line_counts_and_never_breaks() {
        let mut progress = Progress::new(12);
        progress.shown = false;
        progress.begin("one");
        progress.begin("two");
        assert_eq!(progress.line("pingpong"), "2 of 12: pingpong");
        assert_eq!(progress.line(&"µ".repeat(100)).chars().count(), COLUMNS);
    }
}
