// SPDX-License-Identifier: MIT OR Apache-2.0
//! Submissions that the core has refused for now, in the order of their peer and lane.
//!
//! They are retried when the core reports that their peer accepts messages. Until then they cost
//! nothing and block only their own lane.

use super::Inner;
use crate::canary::Canary;
use portolan_proto::{Instant, LaneId, OpId, PeerId, SendSpec};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Interval between retries for all peers. The tables of transfers and requests are shared by all
/// peers, and record no peer to wake. They hold tens of thousands of entries, so a full table is
/// rare.
const RETRY_ALL: Duration = Duration::from_millis(10);

/// Queue of refused submissions; see the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    peers: BTreeMap<PeerId, Waiting>,
    /// Peers to retry, each once.
    woken: VecDeque<PeerId>,
    retry_all_at: Instant,
    /// Number of retries so far.
    #[cfg(test)]
    tried_count: u64,
}

/// Submissions that wait for one peer. At least one lane is not empty.
#[derive(Debug, Default)]
struct Waiting {
    lanes: [VecDeque<(OpId, SendSpec)>; LaneId::ALL.len()],
    is_woken: bool,
}

impl Pending {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.peers.is_empty()
    }

    /// Tests whether a submission to the same peer and lane is waiting.
    #[inline]
    pub(crate) fn has(&self, peer: PeerId, spec: &SendSpec) -> bool {
        let lane = spec.lane;
        !self.peers.is_empty() && self.front(peer, lane).is_some()
    }

    pub(super) fn push(&mut self, peer: PeerId, spec: SendSpec, op: OpId) {
        let waiting = self.peers.entry(peer).or_default();
        waiting.lanes[spec.lane.index()].push_back((op, spec));
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (PeerId, OpId)> + '_ {
        let all = self.peers.iter();
        all.flat_map(|(&peer, waiting)| waiting.ops().map(move |op| (peer, op)))
    }

    /// Tests whether `op` waits to be sent to `peer`.
    pub(crate) fn holds(&self, peer: PeerId, op: OpId) -> bool {
        let waiting = self.peers.get(&peer);
        waiting.is_some_and(|waiting| waiting.ops().any(|other| other == op))
    }

    /// Removes `op` if it waits to be sent to `peer`. Returns whether it did.
    pub(super) fn remove(&mut self, peer: PeerId, op: OpId) -> bool {
        let Some(waiting) = self.peers.get_mut(&peer) else {
            return false;
        };
        let mut found = false;
        for lane in &mut waiting.lanes {
            let before = lane.len();
            lane.retain(|&(other, _)| other != op);
            found |= lane.len() < before;
        }
        if waiting.lanes.iter().all(VecDeque::is_empty) {
            self.peers.remove(&peer);
        }
        found
    }

    /// Removes and returns all operations that wait for `peer`.
    pub(crate) fn take_peer(&mut self, peer: PeerId) -> Vec<OpId> {
        let waiting = self.peers.remove(&peer);
        waiting.map_or_else(Vec::new, |waiting| waiting.ops().collect())
    }

    #[cfg(test)]
    pub(crate) fn tried_count(&self) -> u64 {
        self.tried_count
    }

    /// Schedules a retry for `peer`, which accepts messages again.
    pub(super) fn wake(&mut self, peer: PeerId) {
        if let Some(waiting) = self.peers.get_mut(&peer)
            && !waiting.is_woken
        {
            waiting.is_woken = true;
            self.woken.push_back(peer);
        }
    }

    /// Schedules a retry for all peers once per [`RETRY_ALL`].
    pub(super) fn on_time(&mut self, now: Instant) {
        if now >= self.retry_all_at {
            self.retry_all_at = now + RETRY_ALL;
            self.woken.clear();
            for (peer, waiting) in &mut self.peers {
                waiting.is_woken = true;
                self.woken.push_back(*peer);
            }
        }
    }

    fn next_woken(&mut self) -> Option<PeerId> {
        loop {
            let peer = self.woken.pop_front()?;
            // A missing entry was given up meanwhile.
            if let Some(waiting) = self.peers.get_mut(&peer) {
                waiting.is_woken = false;
                return Some(peer);
            }
        }
    }

    fn front(&self, peer: PeerId, lane: LaneId) -> Option<(OpId, SendSpec)> {
        self.peers.get(&peer)?.lanes[lane.index()].front().copied()
    }

    fn pop(&mut self, peer: PeerId, lane: LaneId) {
        if let Some(waiting) = self.peers.get_mut(&peer) {
            waiting.lanes[lane.index()].pop_front();
            if waiting.lanes.iter().all(VecDeque::is_empty) {
                self.peers.remove(&peer);
            }
        }
    }
}

impl Waiting {
    fn ops(&self) -> impl Iterator<Item = OpId> + '_ {
        self.lanes.iter().flatten().map(|&(op, _)| op)
    }
}

impl Inner {
    /// Retries the submissions to peers that accept messages again.
    pub(super) fn retry_pending(&mut self) {
        if Canary::LostRetry.strikes() {
            return;
        }
        while let Some(peer) = self.pending.next_woken() {
            for lane in LaneId::ALL {
                self.retry_lane(peer, lane);
            }
        }
    }

    fn retry_lane(&mut self, peer: PeerId, lane: LaneId) {
        while let Some((op, spec)) = self.pending.front(peer, lane) {
            #[cfg(test)]
            {
                self.pending.tried_count += 1;
            }
            if self.ops.exists(op) && !self.try_op(peer, &spec, op) {
                return;
            }
            self.pending.pop(peer, lane);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use portolan_proto::PortId;

    fn spec(lane: LaneId) -> SendSpec {
        SendSpec {
            to: PortId::user(1).into(),
            lane,
            best_effort: false,
        }
    }

    #[test]
    fn pending_blocks_only_its_peer_and_lane() {
        let mut pending = Pending::default();
        let (low, high) = (spec(LaneId::Low), spec(LaneId::High));
        pending.push(PeerId(1), low, OpId(7));
        assert!(pending.has(PeerId(1), &low) && pending.holds(PeerId(1), OpId(7)));
        assert!(!pending.has(PeerId(1), &high) && !pending.has(PeerId(2), &low));
        pending.pop(PeerId(1), LaneId::Low);
        assert!(pending.is_empty() && !pending.has(PeerId(1), &low));
    }

    #[test]
    fn removed_submission_unblocks_its_lane() {
        let mut pending = Pending::default();
        let low = spec(LaneId::Low);
        pending.push(PeerId(1), low, OpId(7));
        pending.push(PeerId(1), low, OpId(8));
        assert!(!pending.remove(PeerId(2), OpId(7)) && !pending.remove(PeerId(1), OpId(9)));
        assert!(pending.remove(PeerId(1), OpId(7)));
        assert!(!pending.holds(PeerId(1), OpId(7)) && pending.has(PeerId(1), &low));
        assert!(pending.remove(PeerId(1), OpId(8)));
        assert!(pending.is_empty());
    }

    #[test]
    fn only_woken_peers_are_retried_once_per_wake() {
        let mut pending = Pending::default();
        for peer in 0..3 {
            pending.push(PeerId(peer), spec(LaneId::Low), OpId(u64::from(peer)));
        }
        pending.wake(PeerId(9));
        pending.wake(PeerId(1));
        pending.wake(PeerId(1));
        assert_eq!(pending.next_woken(), Some(PeerId(1)));
        assert_eq!(pending.next_woken(), None);
        pending.wake(PeerId(1));
        pending.wake(PeerId(2));
        assert_eq!(pending.take_peer(PeerId(1)), [OpId(1)], "given up");
        assert_eq!(pending.next_woken(), Some(PeerId(2)));
        assert_eq!(pending.next_woken(), None);
    }

    #[test]
    fn all_peers_are_retried_periodically() {
        let mut pending = Pending::default();
        let now = Instant::default() + RETRY_ALL;
        for peer in 0..3 {
            pending.push(PeerId(peer), spec(LaneId::Low), OpId(u64::from(peer)));
        }
        pending.wake(PeerId(2));
        pending.on_time(now);
        let woken = std::iter::from_fn(|| pending.next_woken());
        assert_eq!(Vec::from_iter(woken), [PeerId(0), PeerId(1), PeerId(2)]);
        pending.on_time(now);
        assert_eq!(pending.next_woken(), None);
    }
}
