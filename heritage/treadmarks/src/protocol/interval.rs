// SPDX-License-Identifier: MIT OR Apache-2.0
//! Intervals: what a process has written between two synchronisations.

use super::clock::Clock;
use std::collections::VecDeque;

/// An interval of a process, with the pages that were written in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Interval {
    pub(crate) process: u32,
    /// Its clock. The number of the interval is the process's own entry.
    pub(crate) clock: Clock,
    /// Runs of pages: the first one and the count.
    pub(crate) runs: Vec<(u32, u32)>,
}

impl Interval {
    pub(crate) fn new(process: u32, clock: Clock, pages: Vec<u32>) -> Interval {
        Interval {
            process,
            clock,
            runs: runs_of(pages),
        }
    }

    pub(crate) fn number(&self) -> u32 {
        self.clock.of(self.process)
    }

    pub(crate) fn pages(&self) -> impl Iterator<Item = u32> + '_ {
        let runs = self.runs.iter();
        runs.flat_map(|&(first, count)| first..first.saturating_add(count))
    }

    /// Returns the approximate memory of the record.
    pub(crate) fn memory(&self) -> usize {
        size_of::<Interval>() + 4 * self.clock.as_slice().len() + 8 * self.runs.len()
    }
}

/// Returns the runs of distinct pages.
pub(super) fn runs_of(mut pages: Vec<u32>) -> Vec<(u32, u32)> {
    pages.sort_unstable();
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for page in pages {
        match runs.last_mut() {
            Some((first, count)) if *first + *count == page => *count += 1,
            _ => runs.push((page, 1)),
        }
    }
    runs
}

/// The known intervals of all processes since the last collection.
#[derive(Debug)]
pub(crate) struct Intervals {
    /// For each process, in order and without gaps.
    known: Vec<VecDeque<Interval>>,
}

impl Intervals {
    pub(crate) fn new(size: u32) -> Intervals {
        Intervals {
            known: (0..size).map(|_| VecDeque::new()).collect(),
        }
    }

    /// Adds the next interval of its process.
    pub(crate) fn push(&mut self, interval: Interval) {
        let list = &mut self.known[interval.process as usize];
        debug_assert!(
            list.back()
                .is_none_or(|last| last.number() + 1 == interval.number())
        );
        list.push_back(interval);
    }

    fn find(&self, process: u32, number: u32) -> Option<&Interval> {
        let list = &self.known[process as usize];
        let first = list.front()?.number();
        list.get(number.checked_sub(first)? as usize)
    }

    /// Returns the clock of a known interval.
    pub(crate) fn clock(&self, process: u32, number: u32) -> Option<&Clock> {
        self.find(process, number).map(|interval| &interval.clock)
    }

    pub(crate) fn after(&self, process: u32, after: u32) -> impl Iterator<Item = &Interval> {
        let list = &self.known[process as usize];
        let start = list.partition_point(|interval| interval.number() <= after);
        list.range(start..)
    }

    /// Returns copies of all intervals that `clock` does not cover.
    pub(crate) fn unknown_to(&self, clock: &Clock) -> Vec<Interval> {
        let processes = clock.as_slice().iter().zip(0..);
        let lists = processes.map(|(&number, process)| self.after(process, number));
        lists.flatten().cloned().collect()
    }

    pub(crate) fn clear(&mut self) {
        for list in &mut self.known {
            list.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_kept_as_runs() {
        let interval = Interval::new(0, Clock::new(1), vec![7, 3, 4, 9, 5]);
        assert_eq!(interval.runs, [(3, 3), (7, 1), (9, 1)]);
        assert!(interval.pages().eq([3, 4, 5, 7, 9]));
    }

    #[test]
    fn only_unknown_intervals_are_returned() {
        let mut intervals = Intervals::new(2);
        for number in 4..7 {
            let clock = Clock::from_vec(vec![number, 0]);
            intervals.push(Interval::new(0, clock, vec![number]));
        }
        let unknown = intervals.unknown_to(&Clock::from_vec(vec![5, 9]));
        assert_eq!(unknown.len(), 1);
        assert_eq!(unknown[0].number(), 6);
        assert!(intervals.clock(0, 4).is_some() && intervals.clock(0, 3).is_none());
    }
}
