// SPDX-License-Identifier: MIT OR Apache-2.0
//! How far a cast is, on standard error: one line that changes on a terminal, else a line now and then.

use portolan_cast::Bound;
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// Between two lines where nobody watches: a log shall not drown.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// Return to the beginning of the line, and clear it (ECMA-48, EL).
const CLEAR: &str = "\r\x1b[K";

/// A host that is not done.
pub(super) struct Row<'a> {
    pub(super) host: &'a str,
    pub(super) bytes: u64,
    pub(super) bound: Option<Bound>,
}

/// What is shown.
pub(super) struct Progress {
    begin: Instant,
    last: Instant,
    is_terminal: bool,
    is_silent: bool,
    size: Option<u64>,
    is_shown: bool,
}

impl Progress {
    pub(super) fn new(now: Instant, is_silent: bool) -> Progress {
        Progress {
            begin: now,
            last: now,
            is_terminal: io::stderr().is_terminal(),
            is_silent,
            size: None,
            is_shown: false,
        }
    }

    /// Bytes that there are.
    pub(super) fn set_size(&mut self, bytes: u64) {
        self.size = Some(bytes);
    }

    /// Shows how far the hosts are, if it is time.
    pub(super) fn show<'a>(&mut self, now: Instant, rows: impl Iterator<Item = Row<'a>>) {
        let is_due = self.is_terminal || now.duration_since(self.last) >= LINE_INTERVAL;
        if self.is_silent || !is_due {
            return;
        }
        self.last = now;
        let rows: Vec<Row<'_>> = rows.collect();
        let Some(line) = line(&rows, self.size, now.duration_since(self.begin)) else {
            return;
        };
        self.is_shown = self.is_terminal;
        // Where nobody looks, the cast goes on.
        let _ = match self.is_terminal {
            true => write!(io::stderr(), "{CLEAR}{line}"),
            false => writeln!(io::stderr(), "portolan: {line}"),
        };
    }

    /// Clears the line for others.
    pub(super) fn clear(&mut self) {
        if std::mem::take(&mut self.is_shown) {
            let _ = write!(io::stderr(), "{CLEAR}");
        }
    }
}

/// The host that is farthest behind speaks for all; `None` when nothing is known.
fn line(rows: &[Row<'_>], size: Option<u64>, passed: Duration) -> Option<String> {
    let slowest = rows.iter().min_by_key(|row| row.bytes)?;
    let rate = slowest.bytes as f64 / passed.as_secs_f64().max(1e-9);
    let bound = match slowest.bound? {
        Bound::Disk => "its disk",
        Bound::Network => "the network",
        Bound::Processor => "its processor",
    };
    let gigabytes = |bytes: u64| bytes as f64 / 1e9;
    let share = match size.filter(|size| *size > 0) {
        Some(size) => {
            let left = size.saturating_sub(slowest.bytes) as f64 / rate.max(1.0);
            format!(
                " of {:.2} GB ({:.0} %), {left:.0} s left",
                gigabytes(size),
                100.0 * slowest.bytes as f64 / size as f64
            )
        }
        None => " GB".to_owned(),
    };
    Some(format!(
        "{} host{} under way, {} behind all with {:.2}{share}, {:.0} MB/s, waits for {bound}",
        rows.len(),
        if rows.len() == 1 { "" } else { "s" },
        slowest.host,
        gigabytes(slowest.bytes),
        rate / 1e6,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_host_speaks_for_all() {
        let row = |host, bytes| Row {
            host,
            bytes,
            bound: Some(Bound::Disk),
        };
        let rows = [row("n1", 800_000_000), row("n2", 500_000_000)];
        assert_eq!(
            line(&rows, Some(1_000_000_000), Duration::from_secs(5)).unwrap(),
            "2 hosts under way, n2 behind all with 0.50 of 1.00 GB (50 %), 5 s left, 100 MB/s, waits for its disk"
        );
        assert!(
            line(&rows[..1], None, Duration::from_secs(1))
                .unwrap()
                .contains("0.80 GB, 800 MB/s")
        );
        assert_eq!(line(&[], None, Duration::from_secs(1)), None);
    }
}
