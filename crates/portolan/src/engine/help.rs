// SPDX-License-Identifier: MIT OR Apache-2.0
//! Copying a part of a long message to a receiver on the same host, which reads the rest: both work then,
//! instead of one that works and one that waits.
//!
//! The one invariant: only memory of operations that have not ended is written from.

use super::{Engine, Inner};
use portolan_proto::{OpId, PeerId};
use portolan_sys::ring::OFFER_LEN_MIN;

/// A message that its receiver may pull.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lent {
    peer: PeerId,
    op: OpId,
    addr: u64,
}

impl Inner {
    /// `peer` may pull the message of `op`, of `len` bytes at `addr`; 0 if it may not.
    pub(super) fn note_lent(&mut self, peer: PeerId, op: OpId, (addr, len): (u64, u64)) {
        if addr != 0 && len >= OFFER_LEN_MIN as u64 {
            self.lent.push(Lent { peer, op, addr });
        }
    }

    /// `op` has ended.
    pub(super) fn forget_lent(&mut self, op: OpId) {
        if let Some(index) = self.lent.iter().position(|lent| lent.op == op) {
            self.lent.swap_remove(index);
        }
    }
}

impl Engine {
    /// Copies a part of one message that is being pulled; returns how many parts it were. One a turn, so
    /// that what comes meanwhile waits for no more than that.
    pub(super) fn help(&mut self) -> usize {
        let (mut asked, mut offered) = (None, None);
        for &Lent { peer, op, addr } in &self.inner.lent {
            if asked != Some(peer) {
                (asked, offered) = (Some(peer), self.links.offered(peer));
            }
            if offered == Some(addr) {
                // Of an operation that was forgotten nothing is left, and nothing is written.
                let [memory, _] = self.inner.ops.pieces(op);
                return usize::from(self.links.help(peer, memory));
            }
        }
        0
    }
}
