// SPDX-License-Identifier: MIT OR Apache-2.0
//! Progress of a cast on standard error: one changing line on a terminal, otherwise a line every 10
//! s.

use portolan_cast::{Bound, Size};
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// Interval between progress lines if standard error is no terminal, so that logs stay short.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// Carriage return and erase in line (ECMA-48, EL).
const CLEAR: &str = "\r\x1b[K";

/// Share below which no remaining time is estimated: the first files are not representative.
const ESTIMATE_SHARE_MIN: f64 = 0.01;

/// Progress of an unfinished host.
pub(super) struct Row<'a> {
    pub(super) host: &'a str,
    pub(super) stored: Size,
    pub(super) bound: Option<Bound>,
}

/// State of the display.
pub(super) struct Progress {
    /// Time of the first report of stored data. Starting the hosts does not count in the rate.
    begin: Option<Instant>,
    last: Instant,
    is_terminal: bool,
    is_silent: bool,
    size: Option<Size>,
    is_shown: bool,
}

impl Progress {
    pub(super) fn new(now: Instant, is_silent: bool) -> Progress {
        Progress {
            begin: None,
            last: now,
            is_terminal: io::stderr().is_terminal(),
            is_silent,
            size: None,
            is_shown: false,
        }
    }

    /// Sets the total size.
    pub(super) fn set_size(&mut self, size: Size) {
        self.size = Some(size);
    }

    /// Records the time at which a host first stored something.
    pub(super) fn note_begin(&mut self, now: Instant) {
        self.begin.get_or_insert(now);
    }

    /// Shows the progress of the hosts, if it is due.
    pub(super) fn show<'a>(&mut self, now: Instant, rows: impl Iterator<Item = Row<'a>>) {
        let is_due = self.is_terminal || now.duration_since(self.last) >= LINE_INTERVAL;
        if self.is_silent || !is_due {
            return;
        }
        self.last = now;
        let rows: Vec<Row<'_>> = rows.collect();
        let passed = self.begin.map_or(Duration::ZERO, |begin| now - begin);
        let Some(line) = line(&rows, self.size, passed) else {
            return;
        };
        self.is_shown = self.is_terminal;
        // A closed standard error does not stop the cast.
        let _ = match self.is_terminal {
            true => write!(io::stderr(), "{CLEAR}{line}"),
            false => writeln!(io::stderr(), "portolan: {line}"),
        };
    }

    /// Clears the progress line, so that other lines can be printed.
    pub(super) fn clear(&mut self) {
        if std::mem::take(&mut self.is_shown) {
            let _ = write!(io::stderr(), "{CLEAR}");
        }
    }
}

/// Formats a number of bytes for display.
pub(super) fn amount(bytes: f64) -> String {
    match bytes {
        bytes if bytes >= 1e9 => format!("{:.2} GB", bytes / 1e9),
        bytes if bytes >= 1e6 => format!("{:.1} MB", bytes / 1e6),
        bytes => format!("{:.1} kB", bytes / 1e3),
    }
}

/// Returns the stored share of `all`: of the entries or of the bytes, whichever is smaller.
fn share(stored: Size, all: Size) -> f64 {
    let of = |part: u64, whole: u64| match whole {
        0 => 1.0,
        whole => (part as f64 / whole as f64).min(1.0),
    };
    of(stored.bytes, all.bytes).min(of(stored.entries, all.entries))
}

/// Describes the slowest host; `None` if nothing is known.
fn line(rows: &[Row<'_>], all: Option<Size>, passed: Duration) -> Option<String> {
    let share_of = |row: &Row<'_>| match all {
        Some(all) => share(row.stored, all),
        None => row.stored.bytes as f64,
    };
    let slowest = rows
        .iter()
        .min_by(|a, b| share_of(a).total_cmp(&share_of(b)))?;
    let bound = match slowest.bound? {
        Bound::Disk => "its disk",
        Bound::Network => "the network",
        Bound::Processor => "its processor",
    };
    Some(format!(
        "{} host{} copying; slowest {}: {}, {}, limited by {bound}",
        rows.len(),
        if rows.len() == 1 { "" } else { "s" },
        slowest.host,
        reached(slowest.stored, all, passed),
        rates(slowest.stored, all, passed),
    ))
}

/// Describes how much is stored, the total, and the remaining time.
fn reached(stored: Size, all: Option<Size>, passed: Duration) -> String {
    let bytes = amount(stored.bytes as f64);
    let Some(all) = all else {
        return bytes;
    };
    let done = share(stored, all);
    let entries = match has_entries(all) {
        true => format!("{} of {} entries, ", stored.entries, all.entries),
        false => String::new(),
    };
    let left = match done >= ESTIMATE_SHARE_MIN {
        true => format!(", {:.0} s left", passed.as_secs_f64() * (1.0 / done - 1.0)),
        false => String::new(),
    };
    let of = amount(all.bytes as f64);
    format!("{entries}{bytes} of {of} ({:.0} %){left}", 100.0 * done)
}

fn rates(stored: Size, all: Option<Size>, passed: Duration) -> String {
    let per_second = |count: u64| count as f64 / passed.as_secs_f64().max(1e-3);
    let bytes = format!("{}/s", amount(per_second(stored.bytes)));
    match all.is_some_and(has_entries) {
        true => format!("{:.0} entries/s, {bytes}", per_second(stored.entries)),
        false => bytes,
    }
}

/// Returns true for a directory: its entries are counted.
fn has_entries(all: Size) -> bool {
    all.entries > 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(host: &str, entries: u64, bytes: u64) -> Row<'_> {
        Row {
            host,
            stored: Size { entries, bytes },
            bound: Some(Bound::Disk),
        }
    }

    #[test]
    fn line_describes_the_slowest_host() {
        let rows = [row("n1", 1, 800_000_000), row("n2", 1, 500_000_000)];
        let all = Size {
            entries: 1,
            bytes: 1_000_000_000,
        };
        assert_eq!(
            line(&rows, Some(all), Duration::from_secs(5)).unwrap(),
            "2 hosts copying; slowest n2: 500.0 MB of 1.00 GB (50 %), 5 s left, 100.0 MB/s, \
             limited by its disk"
        );
        assert!(
            line(&rows[..1], None, Duration::from_secs(1))
                .unwrap()
                .contains(": 800.0 MB, 800.0 MB/s")
        );
        assert_eq!(line(&[], None, Duration::from_secs(1)), None);
    }

    #[test]
    fn line_counts_entries_of_a_directory() {
        let all = Size {
            entries: 20_000,
            bytes: 20_000,
        };
        let text = line(
            &[row("n1", 5_000, 5_100)],
            Some(all),
            Duration::from_secs(5),
        )
        .unwrap();
        assert!(
            text.contains(
                "5000 of 20000 entries, 5.1 kB of 20.0 kB (25 %), 15 s left, 1000 entries/s"
            ),
            "{text}"
        );
    }

    #[test]
    fn no_estimate_before_the_first_data() {
        let all = Size {
            entries: 1,
            bytes: 40_000_000,
        };
        let text = line(&[row("n1", 0, 0)], Some(all), Duration::ZERO).unwrap();
        assert!(
            text.contains("40.0 MB (0 %), ") && !text.contains("left"),
            "{text}"
        );
        let empty = Size {
            entries: 3,
            bytes: 0,
        };
        let text = line(&[row("n1", 1, 0)], Some(empty), Duration::from_secs(1)).unwrap();
        assert!(text.contains("1 of 3 entries"), "{text}");
    }
}
