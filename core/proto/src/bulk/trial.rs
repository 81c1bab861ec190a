// SPDX-License-Identifier: MIT OR Apache-2.0
//! By which way transfers to one peer go, as fragments or by a stream: found out by trying both
//! (`P15.8`). What is compared is the time from the first grant of a transfer to its end; transfers of
//! like length, one after another, meet like conditions.

use crate::{Instant, StreamUse};
use alloc::boxed::Box;

/// By which way a transfer goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// As fragments, by the path for bulk data.
    Fragments,
    /// By a stream.
    Stream,
    /// As fragments, since its stream has ended.
    Moved,
}

/// Lengths up to which transfers are compared with one another; longer ones are a class of their own.
/// By length differs what is shared: the cache, a grant, the call.
const CLASS_LENS: [u64; 2] = [160 * 1024, 1 << 20];
const CLASSES: usize = CLASS_LENS.len() + 1;

/// Transfers by each way in a trial. Their median counts: one that met a scheduler does not.
const SAMPLES: u32 = 5;

/// Transfers by each way before these: the window of a new connection, and of a path that was idle, is
/// a few frames, and doubles with each round trip.
const WARM_UP: u32 = 5;

/// Transfers by the better way before both are tried again: what the other costs, up to ten times as
/// much, is felt as a few per cent.
const TRIAL_EVERY: u32 = 1000;

/// The way in use has become so much slower than in its trial: both are tried again.
const COLLAPSE: u64 = 3;

/// What one peer's transfers go by. A peer without a trial under way costs a pointer.
#[derive(Debug, Default)]
pub(crate) struct Trial {
    classes: Option<Box<[Class; CLASSES]>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Class {
    /// Transfers begun since the trial began.
    begun: u32,
    /// Nanoseconds for each 64 KiB: of fragments, of a stream.
    costs: [Samples; 2],
    /// The better one, once both were tried, and its cost then.
    better: Option<(bool, u64)>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Samples {
    costs: [u64; SAMPLES as usize],
    count: u32,
}

impl Samples {
    fn add(&mut self, cost: u64) {
        let place = self.count % SAMPLES;
        self.costs[place as usize] = cost;
        self.count = self.count.saturating_add(1);
    }

    /// Of the last ones.
    fn median(&self) -> Option<u64> {
        let mut costs = self.costs;
        costs.sort_unstable();
        (self.count >= WARM_UP + SAMPLES).then(|| costs[costs.len() / 2])
    }
}

impl Trial {
    /// The way of the next transfer of `len` bytes.
    pub(crate) fn choose(&mut self, usage: StreamUse, len: u64) -> Way {
        match usage {
            StreamUse::Off => return Way::Fragments,
            StreamUse::On => return Way::Stream,
            StreamUse::Auto => {}
        }
        let class = &mut self.classes.get_or_insert_default()[class_of(len)];
        let place = class.begun;
        class.begun += 1;
        let is_stream = match class.better {
            Some((is_stream, _)) => {
                if class.begun >= TRIAL_EVERY {
                    *class = Class::default();
                }
                is_stream
            }
            // Several of each in a row: those under way at once share what there is.
            None => place / SAMPLES % 2 == 1,
        };
        if is_stream {
            Way::Stream
        } else {
            Way::Fragments
        }
    }

    /// Whether transfers of `len` bytes are faster as fragments; one more has gone so.
    pub(crate) fn has_rejected_stream(&mut self, len: u64) -> bool {
        let Some(classes) = &mut self.classes else {
            return false;
        };
        let class = &mut classes[class_of(len)];
        let is_rejected = class.better.is_some_and(|(is_stream, _)| !is_stream);
        if is_rejected {
            class.begun += 1;
            if class.begun >= TRIAL_EVERY {
                *class = Class::default();
            }
        }
        is_rejected
    }

    /// A transfer of `len` bytes that went one way from its first grant on has ended.
    pub(crate) fn on_end(&mut self, way: Way, len: u64, (begin, now): (Instant, Instant)) {
        let is_stream = match way {
            Way::Fragments => false,
            Way::Stream => true,
            Way::Moved => return,
        };
        let Some(classes) = &mut self.classes else {
            return;
        };
        let class = &mut classes[class_of(len)];
        let took = now.as_nanos().saturating_sub(begin.as_nanos());
        let cost = took.saturating_mul(64 * 1024) / len.max(1);
        let samples = &mut class.costs[usize::from(is_stream)];
        samples.add(cost);
        match class.better {
            None => {
                let [fragments, stream] = class.costs.map(|samples| samples.median());
                if let (Some(fragments), Some(stream)) = (fragments, stream) {
                    let is_stream = stream < fragments;
                    class.better = Some((is_stream, fragments.min(stream)));
                    class.begun = 0;
                }
            }
            Some((better, before)) if better == is_stream => {
                let median = samples.median().unwrap_or(before);
                if median / COLLAPSE > before {
                    *class = Class::default();
                }
            }
            Some(_) => {}
        }
    }

    /// A stream has ended by a fault: nothing is better by streams until they were tried again.
    pub(crate) fn forget(&mut self) {
        *self = Trial::default();
    }
}

fn class_of(len: u64) -> usize {
    CLASS_LENS.iter().take_while(|most| len > **most).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Transfers of `len` bytes that take so long by each way, in nanoseconds; how many of them went by
    /// a stream.
    fn run(trial: &mut Trial, count: u32, len: u64, took: [u64; 2]) -> u32 {
        let mut streamed = 0;
        for _ in 0..count {
            let way = trial.choose(StreamUse::Auto, len);
            let is_stream = way == Way::Stream;
            streamed += u32::from(is_stream);
            let end = Instant::from_nanos(took[usize::from(is_stream)]);
            trial.on_end(way, len, (Instant::default(), end));
        }
        streamed
    }

    #[test]
    fn the_faster_way_is_kept_and_the_other_tried_rarely() {
        let mut trial = Trial::default();
        let streamed = run(&mut trial, 900, 256 * 1024, [100_000, 50_000]);
        assert_eq!(streamed, 900 - WARM_UP - SAMPLES);
        let mut trial = Trial::default();
        let streamed = run(&mut trial, 900, 256 * 1024, [50_000, 100_000]);
        assert_eq!(streamed, WARM_UP + SAMPLES);
        // What has changed is found out in time.
        let streamed = run(&mut trial, 3000, 256 * 1024, [50_000, 10_000]);
        assert!(streamed > 2500, "{streamed}");
    }

    #[test]
    fn a_stream_that_was_slower_is_not_opened_again_for_a_while() {
        let mut trial = Trial::default();
        assert!(!trial.has_rejected_stream(1 << 20), "it was never tried");
        run(&mut trial, 30, 1 << 20, [50_000, 100_000]);
        let rejected = (0..TRIAL_EVERY).filter(|_| trial.has_rejected_stream(1 << 20));
        assert_eq!(rejected.count(), TRIAL_EVERY as usize - 10);
        assert!(!trial.has_rejected_stream(1 << 20));
    }

    #[test]
    fn lengths_are_judged_apart() {
        let mut trial = Trial::default();
        run(&mut trial, 100, 100_000, [100_000, 50_000]);
        run(&mut trial, 100, 4 << 20, [50_000, 100_000]);
        assert_eq!(trial.choose(StreamUse::Auto, 80_000), Way::Stream);
        assert_eq!(trial.choose(StreamUse::Auto, 8 << 20), Way::Fragments);
    }

    #[test]
    fn a_way_that_collapses_is_left_soon() {
        let mut trial = Trial::default();
        run(&mut trial, 100, 1 << 20, [100_000, 50_000]);
        let streamed = run(&mut trial, 100, 1 << 20, [100_000, 5_000_000]);
        assert!(
            streamed < 20,
            "{streamed} by a way that does not get through"
        );
    }

    #[test]
    fn settings_decide_without_a_trial() {
        let mut trial = Trial::default();
        for _ in 0..50 {
            assert_eq!(trial.choose(StreamUse::On, 1 << 20), Way::Stream);
            assert_eq!(trial.choose(StreamUse::Off, 1 << 20), Way::Fragments);
        }
    }
}
