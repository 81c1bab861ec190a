// SPDX-License-Identifier: MIT OR Apache-2.0
//! Streams: reports of the engine, and queries about parts received (`P15`).

use crate::session::token_index;
use crate::shared::Shared;
use crate::{Core, Instant, PartPlace, PeerId, StreamUse};
use portolan_wire::Chunk;

impl Core {
    /// Returns true if transfers may use streams.
    #[must_use]
    pub fn uses_streams(&self) -> bool {
        self.sh.ctx.limits().stream != StreamUse::Off
    }

    /// Returns the peer of the session with these tokens: `mine` was given to the peer, `theirs`
    /// received from it. A process that has both may open a stream. `P15.2`
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

    /// Reports that a stream with `peer` is open.
    pub fn stream_opened(&mut self, peer: PeerId) {
        self.revive(peer);
        if let Some(Some(state)) = self.peers.get_mut(peer.index()) {
            state.stream_mut().on_opened();
        }
        self.touch(peer);
    }

    /// Reports that a stream with `peer` could not be opened or has closed, `by_fault` or because
    /// it was idle. Its data that may not have arrived is sent on a path. `P15.7`
    pub fn stream_closed(&mut self, now: Instant, peer: PeerId, by_fault: bool) {
        let Some(Some(state)) = self.peers.get_mut(peer.index()) else {
            return;
        };
        state.on_stream_closed(now, &mut self.sh, by_fault);
        self.touch(peer);
    }

    /// Reports that the last transmit was for a stream that has closed. Combines
    /// [`Core::transmit_refused`] and [`Core::stream_closed`] by a fault.
    pub fn stream_refused(&mut self, now: Instant, peer: PeerId) {
        self.transmit_refused();
        self.stream_closed(now, peer, true);
    }

    /// Returns true if parts may be in flight to this process.
    #[inline]
    #[must_use]
    pub fn expects_parts(&self) -> bool {
        self.sh.transfers.expects_by(crate::LinkId::STREAM)
    }

    /// Returns the place for bytes of a part that `from` sends by a stream: `len` bytes from offset
    /// `off` of the part. Nothing else is received there from now on.
    pub fn place_part(&mut self, from: PeerId, chunk: &Chunk, off: u64, len: u64) -> PartPlace {
        self.sh.transfers.place_part(from, chunk, off, len)
    }

    /// Returns true if a part is still needed. Its transfer must not have ended, because the sender
    /// may then have reused the buffer, and must not have arrived as fragments meanwhile. An
    /// unneeded part need not be valid.
    #[must_use]
    pub fn needs_part(&self, from: PeerId, chunk: &Chunk) -> bool {
        self.sh.transfers.needs_part(from, chunk)
    }

    /// Handles bytes of a part that were received at their place. Events follow; see the crate's
    /// contract.
    pub fn handle_part(&mut self, now: Instant, from: PeerId, chunk: &Chunk, off: u64, len: u64) {
        let Some(Some(peer)) = self.peers.get_mut(from.index()) else {
            return;
        };
        peer.on_activity(now);
        let Shared { transfers, ctx, .. } = &mut self.sh;
        if let Some(done) = transfers.on_part_landed(ctx, from, chunk, off, len) {
            self.finish_rx(&done);
        }
        self.after_records(from);
    }
}
