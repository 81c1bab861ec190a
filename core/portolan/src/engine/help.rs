// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sender-side copying: copies a part of a long message to a receiver on the same host, which pulls
//! the rest. Both processes then work, instead of one working and one waiting.
//!
//! Invariant: only memory of incomplete operations is copied.

use super::{Engine, Inner};
use portolan_proto::{OpId, PeerId};
use portolan_sys::ring::OFFER_LEN_MIN;

/// Messages that their receivers may pull. Removing one takes constant time for any number of
/// messages, and a single comparison if there are none.
#[derive(Debug, Default)]
pub(crate) struct Exposed {
    count: usize,
    /// Operations and addresses of their messages, by peer.
    by_peer: Vec<Vec<(OpId, u64)>>,
    /// Peers that have messages here; some may no longer have any.
    peers: Vec<PeerId>,
    /// Peer and position in its list, by the operation's index in the table of operations.
    places: Vec<Option<(PeerId, usize)>>,
}

impl Exposed {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    fn add(&mut self, peer: PeerId, op: OpId, addr: u64) {
        let (index, place) = (peer.0 as usize, op_index(op));
        if self.by_peer.len() <= index {
            self.by_peer.resize_with(index + 1, Vec::new);
        }
        if self.places.len() <= place {
            self.places.resize(place + 1, None);
        }
        let list = &mut self.by_peer[index];
        if list.is_empty() && !self.peers.contains(&peer) {
            self.peers.push(peer);
        }
        self.places[place] = Some((peer, list.len()));
        list.push((op, addr));
        self.count += 1;
    }

    #[inline]
    fn remove(&mut self, op: OpId) {
        if self.count > 0 {
            self.take_out(op);
        }
    }

    fn take_out(&mut self, op: OpId) {
        let place = self.places.get_mut(op_index(op));
        let Some(&mut Some((peer, at))) = place else {
            return;
        };
        let list = &mut self.by_peer[peer.0 as usize];
        // A later operation may have reused this index of the table.
        if list[at].0 != op {
            return;
        }
        list.swap_remove(at);
        if let Some((moved, _)) = list.get(at) {
            self.places[op_index(*moved)] = Some((peer, at));
        }
        self.places[op_index(op)] = None;
        self.count -= 1;
    }

    /// Returns the first message for which `offered` reports that its receiver requests help. Calls
    /// it once per peer.
    fn find(&mut self, offered: impl Fn(PeerId) -> Option<u64>) -> Option<(PeerId, OpId)> {
        let by_peer = &self.by_peer;
        self.peers
            .retain(|peer| !by_peer[peer.0 as usize].is_empty());
        self.peers.iter().find_map(|peer| {
            let pulled = offered(*peer)?;
            let list = &by_peer[peer.0 as usize];
            let (op, _) = list.iter().find(|(_, addr)| *addr == pulled)?;
            Some((*peer, *op))
        })
    }
}

/// Returns the operation's index in the table of operations.
#[inline]
fn op_index(op: OpId) -> usize {
    usize::try_from(op.0 & u64::from(u32::MAX)).unwrap_or(usize::MAX)
}

impl Inner {
    /// Registers the message of `op` of `len` bytes at `addr`, which `peer` may pull. An `addr` of
    /// 0 forbids it.
    pub(super) fn note_exposed(&mut self, peer: PeerId, op: OpId, (addr, len): (u64, u64)) {
        if addr != 0 && len >= OFFER_LEN_MIN as u64 {
            self.exposed.add(peer, op, addr);
        }
    }

    /// Removes `op`, which has completed.
    #[inline]
    pub(super) fn forget_exposed(&mut self, op: OpId) {
        self.exposed.remove(op);
    }
}

impl Engine {
    /// Copies a part of one message that is being pulled. Returns the number of parts copied.
    /// Copies at most one part per turn, so that arriving frames wait no longer than that.
    pub(super) fn help(&mut self) -> usize {
        let links = &self.links;
        let found = self.inner.exposed.find(|peer| links.offered(peer));
        let Some((peer, op)) = found else { return 0 };
        // A forgotten operation has no memory left, so nothing is copied.
        let [memory, _] = self.inner.ops.pieces(op);
        usize::from(self.links.help(peer, memory))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    const A: PeerId = PeerId(1);
    const B: PeerId = PeerId(4);

    fn op(generation: u64, index: u64) -> OpId {
        OpId(generation << 32 | index)
    }

    #[test]
    fn completed_message_gets_no_help() {
        let mut exposed = Exposed::default();
        for index in 0..5 {
            let peer = if index % 2 == 0 { A } else { B };
            exposed.add(peer, op(1, index), 1000 + index);
        }
        let helped = |exposed: &mut Exposed, addr| exposed.find(|peer| (peer == A).then_some(addr));
        assert_eq!(helped(&mut exposed, 1004), Some((A, op(1, 4))));
        assert_eq!(helped(&mut exposed, 1001), None, "it is the other peer's");
        exposed.remove(op(1, 0));
        assert_eq!(helped(&mut exposed, 1000), None);
        assert_eq!(helped(&mut exposed, 1004), Some((A, op(1, 4))), "moved");
        exposed.remove(op(1, 4));
        assert_eq!(helped(&mut exposed, 1002), Some((A, op(1, 2))));
        for index in [1, 2, 3] {
            assert!(!exposed.is_empty());
            exposed.remove(op(1, index));
        }
        assert!(exposed.is_empty());
    }

    #[test]
    fn removing_an_unexposed_operation_changes_nothing() {
        let mut exposed = Exposed::default();
        exposed.remove(op(1, 7));
        exposed.add(A, op(1, 0), 64);
        // An earlier operation with the same index, one past the end, and the same one twice.
        for other in [op(0, 0), op(1, 1), op(2, 1 << 20)] {
            exposed.remove(other);
        }
        assert_eq!(exposed.find(|_| Some(64)), Some((A, op(1, 0))));
        exposed.remove(op(1, 0));
        exposed.remove(op(1, 0));
        assert!(exposed.is_empty());
        exposed.add(B, op(2, 0), 64);
        exposed.remove(op(1, 0));
        assert_eq!(exposed.find(|_| Some(64)), Some((B, op(2, 0))));
    }

    #[test]
    fn peer_is_checked_once_per_turn_while_it_has_messages() {
        let mut exposed = Exposed::default();
        for index in 0..100 {
            exposed.add(A, op(1, index), index + 1);
        }
        exposed.add(B, op(1, 100), 1);
        let asked = RefCell::new(Vec::new());
        let ask = |peer| {
            asked.borrow_mut().push(peer);
            None
        };
        assert_eq!(exposed.find(ask), None);
        assert_eq!(asked.take(), [A, B]);
        (0..100).for_each(|index| exposed.remove(op(1, index)));
        assert_eq!(exposed.find(ask), None);
        assert_eq!(asked.take(), [B]);
    }
}
