// SPDX-License-Identifier: MIT OR Apache-2.0
//! Comparison of the engine that ships with published congestion controls, on equal networks.

use super::reference::{self, Outcome, Reference};
use super::scheduled;
use super::traffic::{CLASS_LENS, Traffic};
use std::fmt;

/// Seed of the random traffic.
const SEED: u64 = 1;

/// One line of the table.
#[derive(Clone, Debug)]
pub struct CompareRow {
    /// Name of the traffic.
    pub traffic: String,
    /// Name of the congestion control.
    pub control: &'static str,
    /// Time until all messages were complete over the ideal; `None` if they start at random times.
    pub ratio: Option<f64>,
    /// Median and 99th percentile of the slowdown, by length of the messages.
    pub slowdowns: [(f64, f64); CLASS_LENS.len() + 1],
    /// Frames sent. Portolan's include acknowledgements and handshakes.
    pub frames: u64,
    /// Frames lost at a full buffer.
    pub overflowed: u64,
}

impl CompareRow {
    /// Returns the header of the table.
    #[must_use]
    pub fn header() -> &'static str {
        "| traffic | control | time ÷ ideal | slowdown to 8 kB | to 100 kB | longer | frames | lost |\n\
         | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |"
    }
}

impl fmt::Display for CompareRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "| {} | {} | ", self.traffic, self.control)?;
        if let Some(ratio) = self.ratio {
            write!(f, "{ratio:.2}")?;
        }
        for (median, high) in self.slowdowns {
            match median > 0.0 {
                true => write!(f, " | {median:.1} / {high:.1}")?,
                false => write!(f, " |")?,
            }
        }
        write!(f, " | {} | {} |", self.frames, self.overflowed)
    }
}

/// Compares the controls in incasts of `senders`, a permutation of 64 hosts, and random traffic
/// between 32 hosts that uses 80 % of the cables.
pub fn compare(senders: u32, mut sink: impl FnMut(CompareRow)) {
    let random = Traffic::web_search(32, 80, 20_000_000, SEED);
    let all = [
        (Traffic::incast(senders, 64, 1000), true),
        (Traffic::incast(senders, 1, 256 << 10), true),
        (Traffic::permutation(64, 1 << 20), true),
        (random, false),
    ];
    for (traffic, is_at_once) in &all {
        let mut row = |control, outcome: &Outcome| {
            let end_ns = outcome.ends_ns.iter().max().copied().unwrap_or(0);
            let ratio = end_ns as f64 / traffic.ideal_ns() as f64;
            sink(CompareRow {
                traffic: traffic.name.clone(),
                control,
                ratio: is_at_once.then_some(ratio),
                slowdowns: traffic.slowdowns(&outcome.ends_ns),
                frames: outcome.frames,
                overflowed: outcome.overflowed,
            });
        };
        row("Portolan", &scheduled::run(traffic));
        row("like DCTCP", &reference::run(Reference::Dctcp, traffic));
        row("like Swift", &reference::run(Reference::Swift, traffic));
    }
}
