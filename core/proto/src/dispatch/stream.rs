// SPDX-License-Identifier: MIT OR Apache-2.0
//! Streams: reports of the engine, and queries about parts received (`P15`).

use super::receive::list_for_later;
use crate::session::token_index;
use crate::shared::Shared;
use crate::{
    Core, DropReason, Instant, MessagePlace, PartPlace, PeerId, PushPlace, PushRequest,
    StreamMessage, StreamUse,
};
use portolan_wire::{Chunk, Done, LaneId, Record, RemoteSource, Rts};

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

    /// Handles the request in the head of a pushed part of `len` bytes from `from`, and the completion
    /// before it, unless they were handled before. Events follow.
    ///
    /// # Errors
    /// The head is impossible; the stream must be closed. `P15.5`
    pub fn open_push(
        &mut self,
        now: Instant,
        from: PeerId,
        (request, done): (&PushRequest, Option<Done>),
        len: u64,
    ) -> Result<(), DropReason> {
        let Some(Some(peer)) = self.peers.get_mut(from.index()) else {
            return Err(DropReason::StaleSession);
        };
        if !peer.is_open() {
            return Err(DropReason::StaleSession);
        }
        if self.sh.transfers.has_push(from, request) {
            return Ok(());
        }
        peer.on_activity(now);
        if let Some(done) = done {
            match self.on_done(now, from, &done) {
                // P15.16: it was repeated, and arrived by a path.
                Ok(()) | Err(DropReason::StaleTransfer) => {}
                Err(reason) => return Err(reason),
            }
        }
        let handled = match request {
            PushRequest::Message(rts) => self.open_pushed_message(from, (request, rts), len),
            PushRequest::Reply(source) => self.open_pushed_reply(from, (request, source), len),
        };
        self.after_records(from);
        handled
    }

    fn open_pushed_message(
        &mut self,
        from: PeerId,
        (request, rts): (&PushRequest, &Rts),
        part_len: u64,
    ) -> Result<(), DropReason> {
        let Some(Some(peer)) = self.peers.get_mut(from.index()) else {
            return Ok(());
        };
        let lens = (part_len, rts.message_len);
        self.sh.transfers.begin_push(from, request, lens)?;
        let (lanes, env) = &mut peer.lanes(&mut self.sh);
        let record = Record::Rts(*rts);
        let handled = lanes.on_record(env, &record, 0..0, (crate::LinkId::STREAM, false));
        if handled.is_err() {
            self.sh.transfers.end_push(from);
        }
        match handled {
            // P15.15: it has arrived by a path.
            Err(DropReason::Duplicate) => Ok(()),
            handled => handled,
        }
    }

    fn open_pushed_reply(
        &mut self,
        from: PeerId,
        (request, source): (&PushRequest, &RemoteSource),
        part_len: u64,
    ) -> Result<(), DropReason> {
        let Ok((_, len)) = self.sh.remote.on_source(from, source) else {
            // P15.15: it has arrived by a path, or the get has ended.
            return Ok(());
        };
        self.sh
            .transfers
            .begin_push(from, request, (part_len, len))?;
        self.on_remote_source(from, crate::LinkId::STREAM, source)
    }

    /// Returns true if the pushed part with this request is being received.
    #[must_use]
    pub fn has_push(&self, from: PeerId, request: &PushRequest) -> bool {
        self.sh.transfers.has_push(from, request)
    }

    /// Returns the place of a pushed part, before more of it is received. Call it once a turn.
    pub fn place_push(&mut self, from: PeerId, request: &PushRequest) -> PushPlace {
        let Shared { transfers, ctx, .. } = &mut self.sh;
        transfers.place_push(ctx, from, request)
    }

    /// Returns the pushed part with this request as a chunk, of transfer 0 if it is discarded.
    #[must_use]
    pub fn push_chunk(&self, from: PeerId, request: &PushRequest) -> Chunk {
        self.sh.transfers.push_chunk(from, request)
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

    /// Handles the credit and the acknowledgement in the head of an eager message from `from`.
    ///
    /// # Errors
    /// The head is impossible; the stream must be closed. `P15.5`
    pub fn open_message(
        &mut self,
        from: PeerId,
        message: &StreamMessage,
    ) -> Result<(), DropReason> {
        let Some(Some(peer)) = self.peers.get_mut(from.index()) else {
            return Err(DropReason::StaleSession);
        };
        if !peer.is_open() {
            return Err(DropReason::StaleSession);
        }
        for (lane, limit) in LaneId::ALL.into_iter().zip(message.credit()) {
            if let Some(limit) = limit {
                peer.lanes_mut().tx(lane).on_credit(limit);
            }
        }
        peer.on_stream_ack(message.mark().received, &mut self.sh.slots)
    }

    /// Returns the place for `len` bytes of an eager message that `from` sends by a stream,
    /// starting at offset `off`. With its first bytes the message is matched; events may follow.
    ///
    /// # Errors
    /// The message contradicts its lane, or there is no memory for it; the stream must be closed.
    pub fn place_message(
        &mut self,
        from: PeerId,
        message: &StreamMessage,
        (off, len): (u64, u64),
    ) -> Result<MessagePlace, DropReason> {
        let Some(Some(peer)) = self.peers.get_mut(from.index()) else {
            return Ok(MessagePlace::Nowhere);
        };
        if !peer.is_open() {
            return Ok(MessagePlace::Nowhere);
        }
        let (lanes, env) = &mut peer.lanes(&mut self.sh);
        lanes.place_streamed(env, message, (off, len))
    }

    /// Handles bytes of an eager message that were received at their place, or discarded. Events
    /// follow; see the crate's contract.
    pub fn handle_message(
        &mut self,
        now: Instant,
        from: PeerId,
        message: &StreamMessage,
        (off, len): (u64, u64),
    ) {
        let Some(Some(peer)) = self.peers.get_mut(from.index()) else {
            return;
        };
        if !peer.is_open() {
            return;
        }
        peer.on_activity(now);
        peer.stream_mut().on_success();
        let (lanes, env) = &mut peer.lanes(&mut self.sh);
        let counted = lanes.on_streamed(env, message, (off, len));
        self.sh.ctx.counters_mut().stream_bytes += counted;
        if off + len == message.message_len() {
            let (num, len) = (message.mark().num, message.message_len());
            let eager = peer.stream_mut().eager_mut();
            if eager.on_arrived(now, num, u32::try_from(len).unwrap_or(u32::MAX)) {
                peer.push_stream_ack();
            }
            list_for_later(&mut self.timed, &mut self.pending_counts, peer);
        }
        self.after_records(from);
    }

    /// Records that no memory was left for an eager message from `from`. `P3.10`
    pub fn note_no_memory(&mut self, now: Instant, from: PeerId) {
        if let Some(Some(peer)) = self.peers.get_mut(from.index()) {
            let (lanes, env) = &mut peer.lanes(&mut self.sh);
            lanes.on_refused(now, env);
        }
    }

    /// Returns true if an eager message or a part may come by a stream from `peer`.
    #[must_use]
    pub fn has_stream(&self, peer: PeerId) -> bool {
        matches!(self.peers.get(peer.index()), Some(Some(state)) if state.stream_status().is_some())
    }
}
