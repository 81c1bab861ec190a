// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processes that exit, and peers that have not read their messages.

use super::{Flow, MS, NODES_MAX, Plan};
use crate::faults::{Fault, FaultKind, NEVER};
use portolan_proto::LaneId;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Number of messages that a process sends near its end; a few dozen fit the shortest ring.
const LAST_COUNT: u32 = 48;
const LAST_LEN_MAX: usize = 1000;

/// Approximate time before its end at which it starts to send them, in nanoseconds.
const LAST_NS: u64 = 500_000;

impl Plan {
    /// Draws orderly exits of processes before their messages are received. Not for plans with
    /// collective operations, which need all processes.
    pub(super) fn draw_leaves(&mut self, seed: u64) {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(u64::from(NODES_MAX) + 7);
        if !self.groups.is_empty() || rng.random_bool(0.5) {
            return;
        }
        for _ in 0..rng.random_range(1..=4) {
            let node = rng.random_range(0..self.nodes);
            let ends = |fault: &Fault| match fault.kind {
                FaultKind::Crash { node: other, .. } | FaultKind::Leave { node: other, .. } => {
                    other == node
                }
                _ => false,
            };
            if self.faults.iter().any(ends) {
                continue;
            }
            let delays = [None, Some(0), Some(20_000), self.reported_after_ns];
            let kind = FaultKind::Leave {
                node,
                reported_after_ns: *delays.choose(&mut rng).unwrap_or(&None),
                again_after_ns: (rng.random_bool(0.3)).then(|| rng.random_range(1..500) * MS),
            };
            self.faults.push(Fault {
                begin_ns: rng.random_range(0..=self.traffic_ns),
                end_ns: NEVER,
                kind,
            });
        }
        // Hundreds of flows that wait for seconds would cost more than they find.
        if self.nodes <= 20 && rng.random_bool(0.5) {
            for port in &mut self.ports {
                if rng.random_bool(0.3) {
                    port.open_ns = self.traffic_ns + rng.random_range(200..4000) * MS;
                }
            }
        }
    }

    /// Draws an exit of a process, killed or orderly, while another process of its host does not
    /// run. Its commits to shared memory are then unread.
    pub(super) fn draw_unread(&mut self, seed: u64) {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(u64::from(NODES_MAX) + 8);
        for index in 0..self.faults.len() {
            let Fault { begin_ns, kind, .. } = self.faults[index];
            let (FaultKind::Crash { node, .. } | FaultKind::Leave { node, .. }) = kind else {
                continue;
            };
            let mates = (0..self.nodes).filter(|mate| *mate != node);
            let mates: Vec<u32> = mates
                .filter(|mate| self.share_memory(node, *mate))
                .collect();
            if let Some(&mate) = mates.choose(&mut rng)
                && rng.random_bool(0.7)
            {
                self.leave_unread(&mut rng, (node, mate), begin_ns);
            }
        }
    }

    fn leave_unread(&mut self, rng: &mut ChaCha8Rng, (src, dst): (u32, u32), end_ns: u64) {
        let flow = Flow::to_some_port(&mut self.ports, rng, (src, dst), |_| LAST_LEN_MAX);
        let Some(flow) = flow else { return };
        self.flows.push(Flow {
            lane: *LaneId::ALL.choose(rng).unwrap_or(&LaneId::Low),
            count: LAST_COUNT,
            burst: 4,
            gap_ns: rng.random_range(LAST_NS / 20..LAST_NS / 5),
            start_ns: end_ns.saturating_sub(LAST_NS),
            ..flow
        });
        self.faults.push(Fault {
            begin_ns: end_ns.saturating_sub(rng.random_range(0..LAST_NS)),
            end_ns: end_ns + rng.random_range(1..300) * MS,
            kind: FaultKind::Pause { node: dst },
        });
    }
}
