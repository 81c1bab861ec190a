// SPDX-License-Identifier: MIT OR Apache-2.0
//! Plan of the one-shot regions: each is registered for one operation of a peer.

use super::{MS, NODES_MAX, Plan};
use portolan_proto::LaneId;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Operations of one process on one-shot regions of another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OneShotFlow {
    /// Process that reads or writes the regions.
    pub(crate) initiator: u32,
    pub(crate) target: u32,
    pub(crate) lane: LaneId,
    pub(crate) count: u32,
    /// Maximum number of operations in flight.
    pub(crate) at_once: usize,
    pub(crate) len_max: usize,
    pub(crate) start_ns: u64,
}

impl Plan {
    pub(super) fn draw_one_shots(&mut self, seed: u64) {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(u64::from(NODES_MAX) + 11);
        let rng = &mut rng;
        // Streams are the main subject: four fifths of the plans with streams, one fifth of those
        // without.
        if rng.random_bool(if self.streams.is_some() { 0.2 } else { 0.8 }) {
            return;
        }
        for _ in 0..rng.random_range(1..=2) {
            let target = rng.random_range(0..self.nodes);
            let initiator = (target + rng.random_range(1..self.nodes)) % self.nodes;
            let flow = OneShotFlow {
                initiator,
                target,
                lane: *LaneId::ALL.choose(rng).unwrap_or(&LaneId::Low),
                count: rng.random_range(4..=40),
                at_once: *[2, 4, 12, 64].choose(rng).unwrap_or(&4),
                len_max: *[90_000, 300_000].choose(rng).unwrap_or(&90_000),
                start_ns: rng.random_range(0..=self.traffic_ns.min(20 * MS)),
            };
            self.one_shots.push(flow);
            if rng.random_bool(0.5) {
                // The same in the other direction.
                self.one_shots.push(OneShotFlow {
                    initiator: target,
                    target: initiator,
                    ..flow
                });
            }
        }
    }
}
