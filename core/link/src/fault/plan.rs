// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random choice of faults.

use super::FaultSpec;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::time::Duration;

/// Faults of one datagram.
#[derive(Clone, Copy, Default)]
pub(super) struct Fate {
    pub(super) drop: bool,
    pub(super) duplicate: bool,
    pub(super) reorder: bool,
    /// Index of the flipped bit.
    pub(super) corrupt_bit: Option<usize>,
    pub(super) delay: Option<Duration>,
}

impl Fate {
    pub(super) fn is_unaltered(&self) -> bool {
        !self.drop
            && !self.duplicate
            && !self.reorder
            && self.corrupt_bit.is_none()
            && self.delay.is_none()
    }

    /// Returns `true` if a copy leaves unaltered together with its run.
    pub(super) fn leaves_in_run(&self) -> bool {
        let leaves = Fate {
            duplicate: false,
            ..*self
        };
        leaves.is_unaltered()
    }

    /// Returns `true` if no copy of the datagram is sent.
    pub(super) fn is_loss(&self) -> bool {
        self.drop && !self.duplicate && self.corrupt_bit.is_none()
    }
}

pub(super) struct Plan {
    spec: FaultSpec,
    rng: ChaCha8Rng,
}

impl Plan {
    pub(super) fn new(spec: FaultSpec) -> Self {
        let rng = ChaCha8Rng::seed_from_u64(spec.seed);
        Plan { spec, rng }
    }

    /// Draws the faults of `count` datagrams of `len` bytes into `fates`.
    pub(super) fn draw(&mut self, count: usize, len: usize, fates: &mut Vec<Fate>) {
        fates.clear();
        fates.extend((0..count).map(|_| self.fate(len)));
    }

    fn fate(&mut self, len: usize) -> Fate {
        let (spec, rng) = (&self.spec, &mut self.rng);
        // Skips draws with probability 0: a hundred of them cost as much as a copy.
        let mut falls = |chance: f64| chance > 0.0 && rng.random_bool(chance);
        let corrupt = len > 0 && falls(spec.corrupt);
        let drop = falls(spec.drop);
        let duplicate = falls(spec.duplicate);
        let reorder = falls(spec.reorder);
        let delay = falls(spec.delay).then_some(spec.delay_by);
        Fate {
            drop,
            duplicate,
            reorder,
            corrupt_bit: corrupt.then(|| rng.random_range(0..len * 8)),
            delay,
        }
    }
}
