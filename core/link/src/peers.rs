// SPDX-License-Identifier: MIT OR Apache-2.0
//! Per-peer state of a link, indexed by the peer's number without hashing.

use crate::{LinkError, LinkKind, PeerId, TxError};

/// Peers are ranks, dense from zero. The bound keeps a wrong number from allocating gigabytes.
const PEERS_MAX: PeerId = 1 << 20;

pub(crate) struct PeerTable<T>(Vec<Option<T>>);

impl<T> PeerTable<T> {
    pub(crate) fn new() -> Self {
        PeerTable(Vec::new())
    }

    /// Inserts or replaces the entry of `peer`.
    pub(crate) fn insert(&mut self, kind: LinkKind, peer: PeerId, to: T) -> Result<(), LinkError> {
        if peer >= PEERS_MAX {
            let why = "peer numbers are ranks, and this one is not below 2^20";
            return Err(LinkError::Unreachable { kind, peer, why });
        }
        let slot = peer as usize;
        if self.0.len() <= slot {
            self.0.resize_with(slot + 1, || None);
        }
        self.0[slot] = Some(to);
        Ok(())
    }

    pub(crate) fn remove(&mut self, peer: PeerId) {
        if let Some(slot) = self.0.get_mut(peer as usize) {
            *slot = None;
        }
    }

    #[inline]
    pub(crate) fn find(&self, peer: PeerId) -> Result<&T, TxError> {
        match self.0.get(peer as usize) {
            Some(Some(to)) => Ok(to),
            _ => Err(TxError::NotConnected(peer)),
        }
    }

    /// Returns the peers with an entry that satisfies `matches`. Searches all entries: for the
    /// control path.
    pub(crate) fn matching(&self, matches: impl Fn(&T) -> bool) -> impl Iterator<Item = PeerId> {
        (0..)
            .zip(&self.0)
            .filter_map(move |(peer, slot)| match slot {
                Some(to) if matches(to) => Some(peer),
                _ => None,
            })
    }
}
