// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the engine tells of streams, and asks about what comes by them (`P15`).

use crate::session::token_index;
use crate::shared::Shared;
use crate::{Core, Instant, PartPlace, PeerId, StreamUse};
use portolan_wire::Chunk;

impl Core {
    /// Whether transfers may go by streams at all.
    #[must_use]
    pub fn uses_streams(&self) -> bool {
        self.sh.ctx.limits().stream != StreamUse::Off
    }

    /// Whose session has these tokens: `mine` was given to the peer, `theirs` is its own. Who knows both
    /// may open a stream. `P15.2`
    #[must_use]
    pub fn stream_owner(&self, mine: u64, theirs: u64) -> Option<PeerId> {
        if !self.uses_streams() || theirs == 0 {
            return None;
        }
        let peer = PeerId(u32::try_from(token_index(mine)).ok()?);
        let ids = self.session_ids(peer)?;
        let is_up = self.peer_status(peer) == crate::PeerStatus::Up;
        (is_up && ids.mine.1 == mine && ids.theirs.1 == theirs).then_some(peer)
    }

    /// A stream with `peer` stands.
    pub fn stream_opened(&mut self, peer: PeerId) {
        self.revive(peer);
        if let Some(Some(state)) = self.peers.get_mut(peer.index()) {
            state.stream_mut().on_opened();
        }
        self.touch(peer);
    }

    /// A stream with `peer` could not be opened, or has ended: `by_fault`, or because it was not used.
    /// What it carried, and is not known to have arrived, goes by a path. `P15.7`
    pub fn stream_closed(&mut self, now: Instant, peer: PeerId, by_fault: bool) {
        let Some(Some(state)) = self.peers.get_mut(peer.index()) else {
            return;
        };
        state.on_stream_closed(now, &mut self.sh, by_fault);
        self.touch(peer);
    }

    /// The last transmit was for a stream that has ended: as [`Core::transmit_refused`], and
    /// [`Core::stream_closed`] by a fault.
    pub fn stream_refused(&mut self, now: Instant, peer: PeerId) {
        self.transmit_refused();
        self.stream_closed(now, peer, true);
    }

    /// Whether parts may be on their way to this process.
    #[inline]
    #[must_use]
    pub fn expects_parts(&self) -> bool {
        self.sh.transfers.expects_by(crate::LinkId::STREAM)
    }

    /// Where bytes of a part are to be received that comes from `from` by a stream: `len` of them, `off`
    /// bytes behind its begin. Nothing else is received there from now on.
    pub fn place_part(&mut self, from: PeerId, chunk: &Chunk, off: u64, len: u64) -> PartPlace {
        self.sh.transfers.place_part(from, chunk, off, len)
    }

    /// Whether a part is still of use: the transfer that it is of has neither ended, so that its sender may
    /// have written to what it lent, nor come as fragments meanwhile. What is of none need not be right.
    #[must_use]
    pub fn wants_part(&self, from: PeerId, chunk: &Chunk) -> bool {
        self.sh.transfers.wants_part(from, chunk)
    }

    /// These bytes have landed there. Events follow; see the crate's contract.
    pub fn handle_part(&mut self, now: Instant, from: PeerId, chunk: &Chunk, off: u64, len: u64) {
        let Some(Some(peer)) = self.peers.get_mut(from.index()) else {
            return;
        };
        peer.on_heard(now);
        let Shared { transfers, ctx, .. } = &mut self.sh;
        if let Some(done) = transfers.on_part_landed(ctx, from, chunk, off, len) {
            self.finish_rx(&done);
        }
        self.after_records(from);
    }
}
