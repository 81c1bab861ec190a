// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reports of what the ranks of a job wait for, for the user of a job that hangs.
//!
//! Invariant: every rank that received the request has one line, with or without an answer.

use portolan::binding::launch::wire::Waits;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Time limit for answers. A rank answers in each of its calls, and a waiting rank within
/// milliseconds; on a loaded host each answer may take a second.
const ANSWER_DELAY: Duration = Duration::from_secs(2);

/// Answers of the ranks.
#[derive(Debug)]
pub(super) struct Explanation {
    until: Instant,
    /// Answers by rank; `None` if there is no answer yet.
    answers: BTreeMap<u32, Option<Waits>>,
}

impl Explanation {
    /// Starts collecting answers of `ranks` at `now`.
    pub(super) fn new(now: Instant, ranks: impl Iterator<Item = u32>) -> Explanation {
        Explanation {
            until: now + ANSWER_DELAY,
            answers: ranks.map(|rank| (rank, None)).collect(),
        }
    }

    /// Returns the time after which missing answers are not waited for.
    pub(super) fn until(&self) -> Instant {
        self.until
    }

    pub(super) fn on_waits(&mut self, rank: u32, waits: Waits) {
        if let Some(answer) = self.answers.get_mut(&rank) {
            answer.get_or_insert(waits);
        }
    }

    /// Returns true if all have answered or the time limit has passed.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        now >= self.until || self.answers.values().all(Option::is_some)
    }

    /// Returns a line for each rank and one for a cycle, if there is one, with the rank that it
    /// concerns.
    pub(super) fn lines(&self) -> Vec<(u32, String)> {
        let line = |(rank, waits): (&u32, &Option<Waits>)| {
            let text = match waits {
                Some(waits) => waits.text.as_str(),
                None => "does not answer: it computes, or waits outside Portolan",
            };
            (*rank, format!("rank {rank} {text}"))
        };
        let mut lines: Vec<_> = self.answers.iter().map(line).collect();
        if let Some(cycle) = self.cycle() {
            let ranks: Vec<String> = cycle.iter().map(u32::to_string).collect();
            let text = format!(
                "ranks wait for one another in a cycle: {}",
                ranks.join(", ")
            );
            lines.push((cycle[0], text));
        }
        lines
    }

    /// Finds a cycle of ranks in which each waits only for the next.
    fn cycle(&self) -> Option<Vec<u32>> {
        self.answers
            .keys()
            .find_map(|first| self.cycle_from(*first))
    }

    /// Follows the chain of ranks, each of which waits only for the next.
    fn cycle_from(&self, first: u32) -> Option<Vec<u32>> {
        let mut path = vec![first];
        loop {
            let next = self.awaited_by(*path.last()?)?;
            if next == first {
                return (path.len() > 1).then_some(path);
            }
            if path.contains(&next) {
                return None;
            }
            path.push(next);
        }
    }

    /// Returns the only rank that `rank` waits for.
    fn awaited_by(&self, rank: u32) -> Option<u32> {
        match self.answers.get(&rank)?.as_ref()?.on[..] {
            [only] => Some(only),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(on: &[u32]) -> Waits {
        Waits {
            text: "waits".into(),
            on: on.to_vec(),
        }
    }

    #[test]
    fn cycle_is_found_and_chain_is_not() {
        let now = Instant::now();
        let mut explanation = Explanation::new(now, 0..4);
        for (rank, on) in [(0, 1), (1, 2), (2, 3)] {
            explanation.on_waits(rank, waits(&[on]));
        }
        assert!(!explanation.is_due(now));
        assert_eq!(explanation.cycle(), None);
        explanation.on_waits(3, waits(&[1]));
        assert!(explanation.is_due(now));
        assert_eq!(explanation.cycle(), Some(vec![1, 2, 3]));
    }

    #[test]
    fn silent_rank_has_a_line() {
        let now = Instant::now();
        let explanation = Explanation::new(now, 3..4);
        assert!(explanation.is_due(explanation.until()));
        let lines = explanation.lines();
        assert_eq!(lines.len(), 1);
        assert!(
            lines[0].1.starts_with("rank 3 does not answer"),
            "{lines:?}"
        );
    }
}
