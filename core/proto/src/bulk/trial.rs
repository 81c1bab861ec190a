// SPDX-License-Identifier: MIT OR Apache-2.0
//! Choice of the carrier of transfers to one peer, fragments or a stream, by trying both (`P15.8`).
//! The time from the first grant to the completion is compared, for consecutive transfers of
//! similar length.

use crate::{Instant, StreamUse};
use alloc::boxed::Box;

/// Way of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Carrier {
    /// Fragments, on the path for bulk data.
    Fragments,
    /// Stream.
    Stream,
    /// Fragments, since its stream has closed.
    Moved,
}

/// Length classes within which transfers are compared; longer ones are a class of their own.
/// Transfers of different lengths share different resources: the cache, a grant, the call.
const CLASS_LENS: [u64; 2] = [160 * 1024, 1 << 20];
const CLASSES: usize = CLASS_LENS.len() + 1;

/// Length of a transfer, and whether it is alone. Transfers that are alone are compared among
/// themselves, since their time includes the request.
pub(crate) type Kind = (u64, bool);

/// Transfers measured per carrier in a trial. Their median counts, so one that was delayed by the
/// scheduler does not.
const SAMPLES: u32 = 5;

/// Unmeasured transfers per carrier before that. The window of a new connection, and of an idle
/// path, is a few frames, and doubles with each round trip.
const WARM_UP: u32 = 5;

/// Most transfers per carrier in a trial. It continues as long as each transfer by the stream is
/// faster than the one before: the window of a connection that was idle grows slowly.
const WARM_UP_MAX: u32 = 40;

/// Transfers by the better carrier before both are tried again. Even if the other costs ten times
/// as much, a trial costs a few per cent.
const TRIAL_EVERY: u32 = 1000;

/// Slowdown of the carrier in use, compared with its trial, after which both are tried again.
const COLLAPSE: u64 = 3;

/// Trial state of one peer. Without a trial in progress it costs one pointer.
#[derive(Debug, Default)]
pub(crate) struct Trial {
    classes: Option<Box<[Class; 2 * CLASSES]>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Class {
    /// Transfers started since the trial began.
    begun: u32,
    /// Nanoseconds per 64 KiB: of fragments, of a stream.
    costs: [Samples; 2],
    /// Better carrier, once both were tried, and its cost then.
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

    /// Returns true if each of the last samples was lower than the one before.
    fn is_falling(&self) -> bool {
        let mut costs = self.costs;
        costs.rotate_left((self.count % SAMPLES) as usize);
        costs
            .windows(2)
            .all(|pair| pair[1] < pair[0] - pair[0] / 32)
    }

    /// Returns the median of the last samples.
    fn median(&self) -> Option<u64> {
        let mut costs = self.costs;
        costs.sort_unstable();
        (self.count >= WARM_UP + SAMPLES).then(|| costs[costs.len() / 2])
    }
}

impl Trial {
    /// Chooses the carrier of the next transfer.
    pub(crate) fn choose(&mut self, usage: StreamUse, kind: Kind) -> Carrier {
        match usage {
            StreamUse::Off => return Carrier::Fragments,
            StreamUse::On => return Carrier::Stream,
            StreamUse::Auto => {}
        }
        let class = &mut self.classes.get_or_insert_default()[class_of(kind)];
        let place = class.begun;
        class.begun += 1;
        let is_stream = match class.better {
            Some((is_stream, _)) => {
                if class.begun >= TRIAL_EVERY {
                    *class = Class::default();
                }
                is_stream
            }
            // Several of each in a row, because transfers in progress at once share the resources.
            None => place / SAMPLES % 2 == 1,
        };
        if is_stream {
            Carrier::Stream
        } else {
            Carrier::Fragments
        }
    }

    /// Returns true if both carriers were tried for transfers of this kind.
    pub(crate) fn is_decided(&self, kind: Kind) -> bool {
        let classes = self.classes.as_ref();
        classes.is_some_and(|classes| classes[class_of(kind)].better.is_some())
    }

    /// Returns true if transfers of `len` bytes are faster as fragments, and counts another one.
    pub(crate) fn has_rejected_stream(&mut self, len: u64) -> bool {
        let Some(classes) = &mut self.classes else {
            return false;
        };
        let class = &mut classes[class_of((len, false))];
        let is_rejected = class.better.is_some_and(|(is_stream, _)| !is_stream);
        if is_rejected {
            class.begun += 1;
            if class.begun >= TRIAL_EVERY {
                *class = Class::default();
            }
        }
        is_rejected
    }

    /// Returns true if transfers of `len` bytes use a stream. The trial of lone transfers decides, and
    /// before it has ended, the trial of concurrent ones.
    pub(crate) fn prefers_stream(&self, len: u64) -> bool {
        let better = |is_alone| {
            let classes = self.classes.as_ref()?;
            classes[class_of((len, is_alone))].better
        };
        let better = better(true).or_else(|| better(false));
        matches!(better, Some((true, _)))
    }

    /// Records the completion of a transfer that used one carrier from its start: the first
    /// grant, or its announcement if it was alone.
    pub(crate) fn on_end(
        &mut self,
        carrier: Carrier,
        kind: Kind,
        (begin, now): (Instant, Instant),
    ) {
        let is_stream = match carrier {
            Carrier::Fragments => false,
            Carrier::Stream => true,
            Carrier::Moved => return,
        };
        let Some(classes) = &mut self.classes else {
            return;
        };
        let class = &mut classes[class_of(kind)];
        let len = kind.0;
        let took = now.as_nanos().saturating_sub(begin.as_nanos());
        let cost = took.saturating_mul(64 * 1024) / len.max(1);
        let samples = &mut class.costs[usize::from(is_stream)];
        samples.add(cost);
        match class.better {
            None => {
                let by_stream = &class.costs[1];
                if by_stream.is_falling() && by_stream.count < WARM_UP_MAX {
                    return;
                }
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

    /// Resets the trial after a stream failed: streams must be tried again before they are
    /// preferred.
    pub(crate) fn forget(&mut self) {
        *self = Trial::default();
    }
}

fn class_of((len, is_alone): Kind) -> usize {
    let class = CLASS_LENS.iter().take_while(|most| len > **most).count();
    class + if is_alone { CLASSES } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs transfers of `len` bytes that take `took` nanoseconds per carrier; returns how many
    /// used a stream.
    fn run(trial: &mut Trial, count: u32, len: u64, took: [u64; 2]) -> u32 {
        let mut streamed = 0;
        for _ in 0..count {
            let carrier = trial.choose(StreamUse::Auto, (len, false));
            let is_stream = carrier == Carrier::Stream;
            streamed += u32::from(is_stream);
            let end = Instant::from_nanos(took[usize::from(is_stream)]);
            trial.on_end(carrier, (len, false), (Instant::default(), end));
        }
        streamed
    }

    #[test]
    fn faster_carrier_is_used_and_other_retried_rarely() {
        let mut trial = Trial::default();
        let streamed = run(&mut trial, 900, 256 * 1024, [100_000, 50_000]);
        assert_eq!(streamed, 900 - WARM_UP - SAMPLES);
        let mut trial = Trial::default();
        let streamed = run(&mut trial, 900, 256 * 1024, [50_000, 100_000]);
        assert_eq!(streamed, WARM_UP + SAMPLES);
        // A change is detected in time.
        let streamed = run(&mut trial, 3000, 256 * 1024, [50_000, 10_000]);
        assert!(streamed > 2500, "{streamed}");
    }

    #[test]
    fn slower_stream_is_not_reopened_soon() {
        let mut trial = Trial::default();
        assert!(!trial.has_rejected_stream(1 << 20), "it was never tried");
        run(&mut trial, 30, 1 << 20, [50_000, 100_000]);
        let rejected = (0..TRIAL_EVERY).filter(|_| trial.has_rejected_stream(1 << 20));
        assert_eq!(rejected.count(), TRIAL_EVERY as usize - 10);
        assert!(!trial.has_rejected_stream(1 << 20));
    }

    #[test]
    fn length_classes_are_compared_separately() {
        let mut trial = Trial::default();
        run(&mut trial, 100, 100_000, [100_000, 50_000]);
        run(&mut trial, 100, 4 << 20, [50_000, 100_000]);
        assert_eq!(
            trial.choose(StreamUse::Auto, (80_000, false)),
            Carrier::Stream
        );
        assert_eq!(
            trial.choose(StreamUse::Auto, (8 << 20, false)),
            Carrier::Fragments
        );
        let alone = trial.choose(StreamUse::Auto, (80_000, true));
        assert_eq!(alone, Carrier::Fragments, "the first of a trial of its own");
    }

    #[test]
    fn stream_that_becomes_faster_is_not_judged_yet() {
        let mut trial = Trial::default();
        let mut cost = 1_000_000;
        let mut streamed = 0;
        for _ in 0..100 {
            let is_stream = run(&mut trial, 1, 100_000, [100_000, cost]) > 0;
            if is_stream {
                streamed += 1;
                cost = 50_000.max(cost * 4 / 5);
            }
        }
        assert_eq!(
            trial.choose(StreamUse::Auto, (100_000, false)),
            Carrier::Stream
        );
        assert!(streamed > 50);
        // Its trial has an end.
        let mut trial = Trial::default();
        let mut cost = 1_000_000_000;
        for _ in 0..100 {
            cost -= u64::from(run(&mut trial, 1, 100_000, [100_000, cost])) * cost / 20;
        }
        assert_eq!(
            trial.choose(StreamUse::Auto, (100_000, false)),
            Carrier::Fragments
        );
    }

    #[test]
    fn collapsed_carrier_is_abandoned_soon() {
        let mut trial = Trial::default();
        run(&mut trial, 100, 1 << 20, [100_000, 50_000]);
        let streamed = run(&mut trial, 100, 1 << 20, [100_000, 5_000_000]);
        assert!(
            streamed < 20,
            "{streamed} by a carrier that makes no progress"
        );
    }

    #[test]
    fn settings_override_the_trial() {
        let mut trial = Trial::default();
        for _ in 0..50 {
            assert_eq!(
                trial.choose(StreamUse::On, (1 << 20, true)),
                Carrier::Stream
            );
            assert_eq!(
                trial.choose(StreamUse::Off, (1 << 20, true)),
                Carrier::Fragments
            );
        }
    }
}
