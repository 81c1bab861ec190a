// SPDX-License-Identifier: MIT OR Apache-2.0
//! Choice between copying a frame's payload and passing its pages by reference, by trying both. The
//! cheaper way depends on processor, kernel and network, and is measured for each connection and
//! length class.
//!
//! A sample is a period in which frames follow one another closely. Its cost is the time that it
//! took, which includes the receiver's work if that is slower, and the processor time of the sends.
//!
//! Invariant: nothing here reads a clock.

use std::time::Duration;

/// Longest payloads of the length classes but the last, in bytes.
const CLASS_LENS: [usize; 2] = [64 * 1024, 160 * 1024];
const CLASSES: usize = CLASS_LENS.len() + 1;

/// Bytes of a period: more than a socket buffers, so that the receiver's speed counts.
const PERIOD_LEN: u64 = 16 << 20;

/// Longest pause between frames of a period. A program that computes in between measures itself.
const PAUSE_MAX: Duration = Duration::from_micros(500);

/// Periods of each way in a trial. Their median counts, so one that was delayed by the scheduler
/// does not.
const SAMPLES: usize = 3;

/// Periods by the cheaper way before both are tried again. A trial costs a few per cent even if the
/// other way takes twice as long.
const TRIAL_EVERY: u32 = 100;

/// Way of a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Copy,
    Pages,
}

/// State of one connection.
#[derive(Debug, Default)]
pub(super) struct Lending {
    classes: [Class; CLASSES],
}

#[derive(Clone, Copy, Debug, Default)]
struct Class {
    /// Begin and end of the period in progress, once a frame was sent.
    period: Option<(Duration, Duration)>,
    /// Bytes of the period, and processor time of its sends.
    len: u64,
    busy: Duration,
    /// Costs of the periods of a trial in nanoseconds per MiB: by copies, by passing pages.
    costs: [[u64; SAMPLES]; 2],
    /// Complete periods since the trial, or the choice, began.
    periods: u32,
    cheaper: Option<Way>,
}

impl Lending {
    /// Returns the way of the next payload of `len` bytes.
    pub(super) fn way(&self, len: usize) -> Way {
        self.classes[class_of(len)].way()
    }

    /// Records that a payload of `len` bytes was sent between two times, which count from any fixed
    /// time.
    pub(super) fn on_sent(&mut self, len: usize, (begin, end): (Duration, Duration)) {
        self.classes[class_of(len)].on_sent(len as u64, (begin, end));
    }
}

impl Class {
    fn way(&self) -> Way {
        match (self.cheaper, self.periods % 2) {
            (Some(way), _) => way,
            (None, 0) => Way::Copy,
            (None, _) => Way::Pages,
        }
    }

    fn on_sent(&mut self, len: u64, (begin, end): (Duration, Duration)) {
        let first = match self.period {
            Some((first, last)) if begin.saturating_sub(last) <= PAUSE_MAX => first,
            _ => {
                (self.len, self.busy) = (0, Duration::ZERO);
                begin
            }
        };
        self.period = Some((first, end));
        self.len += len;
        self.busy += end.saturating_sub(begin);
        if self.len >= PERIOD_LEN {
            let took = end.saturating_sub(first) + self.busy;
            let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
            self.end_period(took.saturating_mul(1 << 20) / self.len);
            self.period = None;
        }
    }

    /// Handles the end of a period with this cost.
    fn end_period(&mut self, cost: u64) {
        let place = self.periods as usize;
        self.periods += 1;
        if self.cheaper.is_none() {
            self.costs[place % 2][place / 2] = cost;
            if place + 1 == 2 * SAMPLES {
                let [by_copy, by_pages] = self.costs.map(median);
                self.cheaper = Some(match by_pages < by_copy {
                    true => Way::Pages,
                    false => Way::Copy,
                });
                self.periods = 0;
            }
        } else if self.periods == TRIAL_EVERY {
            *self = Class::default();
        }
    }
}

fn median(mut costs: [u64; SAMPLES]) -> u64 {
    costs.sort_unstable();
    costs[SAMPLES / 2]
}

fn class_of(len: usize) -> usize {
    CLASS_LENS.iter().take_while(|most| len > **most).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: usize = 256 * 1024;
    /// Frames of a period.
    const FRAMES: u32 = 64;

    /// Sends `periods` periods of frames of `len` bytes. A frame takes the first time by a copy, the
    /// second by passing its pages. Returns the number of periods in which pages were passed.
    fn run(
        lending: &mut Lending,
        now: &mut Duration,
        (len, periods): (usize, u32),
        took: [Duration; 2],
        pause: Duration,
    ) -> u32 {
        let mut count = 0;
        for _ in 0..periods * FRAMES {
            let way = lending.way(len);
            count += u32::from(way == Way::Pages);
            let begin = *now;
            *now += took[usize::from(way == Way::Pages)];
            lending.on_sent(len, (begin, *now));
            *now += pause;
        }
        count / FRAMES
    }

    #[test]
    fn cheaper_way_is_used_and_both_are_tried_again() {
        let [short, long] = [20, 30].map(Duration::from_micros);
        for (took, is_passed) in [([long, short], true), ([short, long], false)] {
            let mut lending = Lending::default();
            let mut now = Duration::ZERO;
            let passed = run(&mut lending, &mut now, (LEN, 6 + TRIAL_EVERY), took, short);
            assert_eq!(passed, 3 + if is_passed { TRIAL_EVERY } else { 0 });
            // The machine has changed.
            let took = [took[1], took[0]];
            let passed = run(&mut lending, &mut now, (LEN, 6 + TRIAL_EVERY), took, short);
            assert_eq!(passed, 3 + if is_passed { 0 } else { TRIAL_EVERY });
        }
    }

    #[test]
    fn one_delayed_period_decides_nothing() {
        let mut lending = Lending::default();
        let mut now = Duration::ZERO;
        let [short, long] = [20, 30].map(Duration::from_micros);
        let delayed = [Duration::from_millis(1); 2];
        run(&mut lending, &mut now, (LEN, 3), [long, short], short);
        run(&mut lending, &mut now, (LEN, 1), delayed, short);
        run(&mut lending, &mut now, (LEN, 2), [long, short], short);
        assert_eq!(lending.way(LEN), Way::Pages);
    }

    #[test]
    fn time_in_which_nothing_is_sent_is_not_measured() {
        let mut lending = Lending::default();
        let mut now = Duration::ZERO;
        let took = [Duration::from_micros(30), Duration::from_micros(20)];
        let passed = run(&mut lending, &mut now, (LEN, 20), took, 2 * PAUSE_MAX);
        assert_eq!(passed, 0, "no period was complete");
    }

    #[test]
    fn length_classes_are_compared_separately() {
        let mut lending = Lending::default();
        let mut now = Duration::ZERO;
        let [short, long] = [20, 30].map(Duration::from_micros);
        run(&mut lending, &mut now, (LEN, 6), [long, short], short);
        let short_len = 64 * 1024;
        run(
            &mut lending,
            &mut now,
            (short_len, 24),
            [short, long],
            short,
        );
        assert_eq!(lending.way(LEN), Way::Pages);
        assert_eq!(lending.way(short_len), Way::Copy);
        assert_eq!(lending.way(100_000), Way::Copy, "not tried");
    }
}
