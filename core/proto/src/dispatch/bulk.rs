// SPDX-License-Identifier: MIT OR Apache-2.0
//! Long messages: their announcement and progress.

use crate::bulk::{FinishedRx, Origin};
use crate::path::control::Control;
use crate::shared::Shared;
use crate::{
    Core, Data, DropReason, ExpectedRun, Instant, LinkId, OpId, PeerId, Refused, SendSpec,
};
use core::ops::Range;
use portolan_wire::{Chunk, DoneStatus};

impl Core {
    /// Announces a message of `len` bytes in the buffer of `op`. It completes with a
    /// [`crate::Event::SendDone`]. `remote_addr` is the buffer's address if the peer may pull from
    /// it, or 0. Returns true if its first part leaves with the request.
    ///
    /// # Errors
    /// [`Refused`]; the state is then unchanged.
    ///
    /// # Panics
    /// Panics if `len` is 0: an empty message is eager.
    pub fn rendezvous(
        &mut self,
        now: Instant,
        peer: PeerId,
        spec: &SendSpec,
        op: OpId,
        len: u64,
        remote_addr: u64,
    ) -> Result<bool, Refused> {
        assert!(len > 0, "an empty message is eager");
        if !self.is_live(peer) {
            return Err(Refused::Unknown);
        }
        let Some(Some(state)) = self.peers.get_mut(peer.index()) else {
            return Err(Refused::Unknown);
        };
        let result = match state.session().is_up() {
            true => state.rendezvous(now, &mut self.sh, spec, op, len, remote_addr),
            false => Err(state.refuse_submission()),
        };
        // If refused for lack of room, it has nothing new to send.
        if result != Err(Refused::Busy) {
            self.touch(peer);
        }
        result
    }

    /// Reports that the engine has pulled a message ([`crate::Event::Pull`]). If `ok` is false, it
    /// could not, and the bytes are requested as frames.
    pub fn pull_done(&mut self, transfer: u32, ok: bool) {
        if let Some(done) = self.sh.transfers.on_pulled(transfer, ok) {
            self.finish_rx(&done);
            self.serve_unblocked();
        } else {
            self.schedule_grants();
        }
    }

    /// Completes a transfer of which every byte has arrived.
    pub(super) fn finish_rx(&mut self, done: &FinishedRx) {
        let Some(Some(peer)) = self.peers.get_mut(done.peer.index()) else {
            return;
        };
        match done.pending_done {
            Some(transfer) if done.late_done => peer.push_late_done(transfer),
            Some(transfer) => peer.control().push_done(transfer, DoneStatus::Complete),
            None => {
                // P3.5
                for path in peer.paths_mut().iter_mut() {
                    path.expedite_ack();
                }
            }
        }
        let (lanes, mut env) = peer.lanes(&mut self.sh);
        match done.origin {
            Origin::Lane => {
                lanes.on_transferred(&mut env, done.lane, done.key, done.op, done.error);
            }
            Origin::Port => self.on_late_transferred(done),
            Origin::Region => lanes.on_put_transferred(&mut env, done.lane, done.key, Ok(())),
            Origin::Get(request) => self.sh.end_remote(request, Ok(())),
            Origin::Receive => {
                let (op, data) = (Some(done.op), Data::Placed);
                let (lane, to) = (done.lane, &done.to);
                lanes.deliver(&mut env, lane, to, op, done.len, data, done.error);
            }
        }
        self.sh.start_late();
        self.touch(done.peer);
    }

    /// Handles a bulk frame with a new packet number.
    pub(super) fn on_bulk(
        &mut self,
        from: PeerId,
        link: LinkId,
        frame: &[u8],
        frame_len: usize,
    ) -> Result<(), DropReason> {
        let Shared { transfers, ctx, .. } = &mut self.sh;
        if let Some(done) = transfers.on_fragment(ctx, from, link, frame, frame_len)? {
            self.finish_rx(&done);
        }
        Ok(())
    }

    /// Handles a part of a transfer in a frame of records.
    pub(super) fn on_chunk(
        &mut self,
        from: PeerId,
        chunk: &Chunk,
        payload: Range<usize>,
    ) -> Result<(), DropReason> {
        let Shared { transfers, ctx, .. } = &mut self.sh;
        if let Some(done) = transfers.on_chunk(ctx, from, chunk, payload)? {
            self.finish_rx(&done);
        }
        Ok(())
    }

    /// Issues all grants that can be made now.
    pub(super) fn schedule_grants(&mut self) {
        if !self.sh.transfers.take_grantable() {
            return;
        }
        let schedule = self.sh.ctx.limits().schedule;
        for link in LinkId::ALL {
            while let Some((peer, grant)) = self.sh.transfers.next_grant(schedule, link) {
                if let Some(Some(state)) = self.peers.get_mut(peer.index()) {
                    state.control().push(Control::Grant(grant));
                }
                self.touch(peer);
            }
        }
    }

    /// Returns true if more than `count` transfers to `peer` are in progress.
    #[must_use]
    pub fn sends_more_than(&self, count: usize, peer: PeerId) -> bool {
        self.sh.transfers.sends_more_than(count, peer)
    }

    /// Returns the number of transfers in progress.
    #[must_use]
    pub fn transfer_count(&self) -> usize {
        self.sh.transfers.count()
    }

    /// Returns true while a transfer is timed to the microsecond, for which the clock must be read
    /// in each turn. `P15.8`
    #[inline]
    #[must_use]
    pub fn is_timing(&self) -> bool {
        self.sh.transfers.is_timing()
    }

    /// Returns true if long messages are being received, so bulk frames may be expected.
    #[inline]
    #[must_use]
    pub fn expects_bulk(&self) -> bool {
        self.sh.transfers.has_rx()
    }

    /// Returns the bulk frames that `link` most likely receives next. They are of the transfer that
    /// followed the current one last time, else of the current one, else of a granted one. Call it
    /// before each batch of frames is received. Their destination contains nothing of value yet.
    pub fn expected_run(&mut self, link: LinkId) -> Option<ExpectedRun> {
        let (peer, run) = self.sh.transfers.expected_run(link)?;
        let peer = self.peers[peer.index()].as_ref()?;
        let checked = peer.paths().get(link)?.is_checked();
        Some(run.in_session(peer.session().token_mine(), checked))
    }

    /// Handles a datagram recognised by [`ExpectedRun::matches`]. `head` is its header; its
    /// `payload_len` bytes of payload are already in place. No event requests a copy.
    pub fn handle_placed(&mut self, now: Instant, link: LinkId, head: &[u8], payload_len: usize) {
        match self.on_datagram(now, link, head, head.len() + payload_len) {
            Ok(None) => self.sh.ctx.counters_mut().placement_hits += 1,
            Ok(Some(_)) => self.sh.ctx.drop_for(DropReason::Misplaced),
            Err(reason) => self.sh.ctx.drop_for(reason),
        }
    }

    /// Counts frames of a batch that were received in the wrong place, and the bytes copied to
    /// correct that.
    pub fn note_missed(&mut self, frame_count: usize, copied_len: usize) {
        let counters = self.sh.ctx.counters_mut();
        counters.placement_misses += frame_count as u64;
        counters.placement_repaired_bytes += copied_len as u64;
    }
}

impl Shared {
    /// Starts the transfers that waited for room.
    pub(crate) fn start_late(&mut self) {
        while self.transfers.has_rx_room()
            && let Some((posted, request)) = self.matching.pop_late()
        {
            let transfers = &mut self.transfers;
            transfers.start(&mut self.ctx, &request, posted, Origin::Receive);
        }
    }
}
