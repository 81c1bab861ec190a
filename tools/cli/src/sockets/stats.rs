// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `--stats` prints: one row for each kind of connection and process.

use std::collections::BTreeMap;
use std::fmt::Write;

/// Rows that are printed; the sum has all.
const ROWS_MAX: usize = 40;

/// Words of the library for the reason why a connection used the kernel, with explanations.
const REASONS: [(&str, &str); 10] = [
    ("-", ""),
    ("short", "it ended before its ends searched for each other"),
    (
        "elsewhere",
        "the other end is on another host, or is not TCP",
    ),
    (
        "alone",
        "the other end does not run under `portolan sockets`, or was shut",
    ),
    ("no-memory", "memory or descriptors were exhausted"),
    ("passed", "its descriptor was passed to another process"),
    (
        "inherited",
        "another program inherited it, or it became a FILE",
    ),
    (
        "option",
        "the program used an option that only the kernel has",
    ),
    ("out-of-band", "the program sent out-of-band data"),
    ("io-uring", "the program uses io_uring"),
];

/// Sums of connections that have process, end and reason in common.
#[derive(Default)]
struct Sum {
    connections: u64,
    /// Bytes sent by shared memory and by the kernel, and received by both.
    bytes: [u64; 4],
}

impl Sum {
    fn add(&mut self, connections: u64, bytes: [u64; 4]) {
        self.connections = self.connections.saturating_add(connections);
        for (place, more) in self.bytes.iter_mut().zip(bytes) {
            *place = place.saturating_add(more);
        }
    }

    fn row(&self, process: &str, end: &str, why: &str) -> String {
        let [a, b, c, d] = self.bytes;
        let count = self.connections;
        format!("{process:>8} {end:>9} {count:>6} {a:>14} {b:>14} {c:>14} {d:>14}  {why}\n")
    }
}

/// Key of a row: process, end, and the reason for using the kernel.
type Key<'a> = (u32, &'a str, &'a str);

fn parse(line: &str) -> Option<(Key<'_>, [u64; 4])> {
    let mut words = line.split(' ');
    let process = words.next()?.parse().ok()?;
    let (end, _, why) = (words.next()?, words.next()?, words.next()?);
    let mut bytes = [0; 4];
    for place in &mut bytes {
        *place = words.next()?.parse().ok()?;
    }
    Some(((process, end, why), bytes))
}

/// Returns the table for the lines that the library wrote. Its last row is the sum of all.
pub(super) fn render(lines: &str) -> String {
    let mut sums: BTreeMap<Key<'_>, Sum> = BTreeMap::new();
    let mut total = Sum::default();
    for (key, bytes) in lines.lines().filter_map(parse) {
        sums.entry(key).or_default().add(1, bytes);
        total.add(1, bytes);
    }
    if sums.is_empty() {
        return "portolan: no process of the program had a TCP connection\n".into();
    }
    let mut text = format!(
        "{:>8} {:>9} {:>6} {:>14} {:>14} {:>14} {:>14}  kernel because\n",
        "process", "end", "count", "sent: memory", "kernel", "got: memory", "kernel"
    );
    for ((process, end, why), sum) in sums.iter().take(ROWS_MAX) {
        let known = REASONS.iter().find(|(word, _)| word == why);
        let why = known.map_or(*why, |(_, reason)| *reason);
        text.push_str(&sum.row(&process.to_string(), end, why));
    }
    if sums.len() > ROWS_MAX {
        // Writing to a string does not fail.
        let _ = writeln!(text, "and {} more rows", sums.len() - ROWS_MAX);
    }
    text.push_str(&total.row("all", "total", ""));
    text.push_str(
        "Bytes are counted from the moment at which both ends were connected by memory.\n",
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_of_one_kind_are_summed() {
        let lines = "7 accepted joined - 10 2 3 4\n7 accepted joined - 1 1 1 1\n\
                     7 connected kernel alone 0 0 0 0\nnonsense\n";
        let text = render(lines);
        let rows: Vec<Vec<&str>> = text
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(rows[1], ["7", "accepted", "2", "11", "3", "4", "5"]);
        assert_eq!(rows[2][..3], ["7", "connected", "1"]);
        assert!(text.contains("does not run under"));
        assert_eq!(rows[3], ["all", "total", "3", "11", "3", "4", "5"]);
    }

    #[test]
    fn sum_includes_the_rows_that_are_not_printed() {
        let lines: String = (0..100)
            .map(|pid| format!("{pid} accepted joined - 1 2 3 4\n"))
            .collect();
        let text = render(&lines);
        assert!(text.contains("and 60 more rows"));
        let sum = text.lines().find(|line| line.contains("total")).unwrap();
        let words: Vec<&str> = sum.split_whitespace().collect();
        assert_eq!(words, ["all", "total", "100", "100", "200", "300", "400"]);
    }

    #[test]
    fn program_without_connections_is_reported() {
        assert!(render("").contains("no process"));
    }
}
