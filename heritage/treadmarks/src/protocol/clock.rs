// SPDX-License-Identifier: MIT OR Apache-2.0
//! Vector timestamps.

/// The number of the last known interval of each process. Intervals are numbered from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Clock(Vec<u32>);

impl Clock {
    /// Returns the clock of `size` processes without any interval.
    pub(crate) fn new(size: u32) -> Clock {
        Clock(vec![0; size as usize])
    }

    pub(crate) fn from_vec(numbers: Vec<u32>) -> Clock {
        Clock(numbers)
    }

    pub(crate) fn as_slice(&self) -> &[u32] {
        &self.0
    }

    /// Returns the last known interval of `process`.
    pub(crate) fn of(&self, process: u32) -> u32 {
        self.0[process as usize]
    }

    pub(crate) fn set(&mut self, process: u32, number: u32) {
        self.0[process as usize] = number;
    }

    /// Returns whether interval `number` of `process` is known.
    pub(crate) fn covers(&self, process: u32, number: u32) -> bool {
        self.of(process) >= number
    }

    /// Returns a number that is higher for each later clock. It orders diffs: an interval that
    /// happened before another has a lower one.
    pub(crate) fn height(&self) -> u64 {
        self.0.iter().map(|&number| u64::from(number)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_clock_is_higher() {
        let early = Clock::from_vec(vec![1, 2, 0]);
        let mut late = early.clone();
        late.set(2, 1);
        assert!(late.height() > early.height());
        assert!(late.covers(1, 2) && !late.covers(1, 3) && !early.covers(2, 1));
    }
}
