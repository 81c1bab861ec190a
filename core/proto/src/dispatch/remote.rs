// SPDX-License-Identifier: MIT OR Apache-2.0
//! Remote memory: registers regions, submits requests and answers them.

use crate::base::credit::charge;
use crate::base::narrow::narrow;
use crate::base::request::{Announced, Request};
use crate::bulk::send::Announcement;
use crate::bulk::{Origin, TxRole};
use crate::matching::port::Posted;
use crate::path::control::Control;
use crate::path::stage::Parts;
use crate::rma::REMOTE_PORT;
use crate::shared::Shared;
use crate::{
    ATOMIC_LEN_MAX, AtomicSpec, Core, DropReason, Instant, LinkId, OpId, PeerId, PushRequest,
    PutNotice, Refused, RegionSpec, RemoteFault, RemoteSpec, Reply, Staging,
};
use core::ops::Range;
use portolan_wire::{
    DoneStatus, LaneId, REMOTE_GET_LEN, REMOTE_REPLY_LEN, REMOTE_RTS_LEN, RemoteGet, RemoteHead,
    RemoteReply, RemoteRts, RemoteSource, RemoteStatus, RemoteWrite,
};

impl Core {
    /// Opens the memory of `op` to all peers that have its key, and returns the key; `None` if the
    /// key is in use. `P12.1`
    pub fn register(&mut self, op: OpId, spec: &RegionSpec) -> Option<u64> {
        let Shared {
            remote, entropy, ..
        } = &mut self.sh;
        remote.register(op, spec, || entropy.next_u64())
    }

    /// Closes a region and returns the operation that owns its memory; `None` if no region has this
    /// key. Transfers into it and out of it end, and their initiators are notified. `P12.7`
    pub fn deregister(&mut self, key: u64) -> Option<OpId> {
        let op = self.sh.remote.deregister(key)?;
        for transfer in self.sh.transfers.end_into(op) {
            if let Some(Some(peer)) = self.peers.get_mut(transfer.peer.index()) {
                let fault = Err(RemoteFault::Closed);
                let (lanes, mut env) = peer.lanes(&mut self.sh);
                lanes.on_put_transferred(&mut env, transfer.lane, transfer.key, fault);
            }
            self.touch(transfer.peer);
        }
        for (to, request, done) in self.sh.transfers.end_out_of(op) {
            if let Some(Some(peer)) = self.peers.get_mut(to.index()) {
                if let Some(request) = request {
                    peer.push_reply(LaneId::High, request, Err(RemoteFault::Closed));
                }
                // P15.16: the stream may end before it has carried the head.
                if let Some(done) = done {
                    peer.control().push(Control::Done(done));
                }
            }
            self.touch(to);
        }
        self.serve_unblocked();
        self.schedule_grants();
        Some(op)
    }

    /// Returns the credit of a notice that the program has taken to its sender. `P12.8`
    pub fn notice_taken(&mut self, notice: &PutNotice) {
        if let Some(Some(peer)) = self.peers.get_mut(notice.peer.index())
            && peer.session().token_mine() == notice.session
        {
            let (lanes, mut env) = peer.lanes(&mut self.sh);
            lanes.consume(&mut env, notice.lane, notice.charge);
            self.touch(notice.peer);
        }
    }

    /// Puts `len` bytes into memory of `peer`. Completes with an [`crate::Event::RemoteDone`] when
    /// the bytes are in place. Returns the memory to copy the bytes into, or `None` if they will be
    /// gathered from the buffer of `op`. A peer that may pull finds that buffer at `remote_addr`;
    /// otherwise it is 0.
    ///
    /// # Errors
    /// [`Refused`]; the state is then unchanged.
    pub fn put(
        &mut self,
        peer: PeerId,
        spec: &RemoteSpec,
        op: OpId,
        len: u64,
        remote_addr: u64,
    ) -> Result<Option<Staging<'_>>, Refused> {
        self.is_live(peer);
        let eager_len = self.short_len(peer, len);
        let charge = charge(eager_len.unwrap_or(0));
        let (head, key) = self.begin(peer, spec, charge, (op, 0, false))?;
        let Some(len) = eager_len else {
            self.put_by_transfer(peer, spec, &head, (op, key, len, remote_addr));
            return Ok(None);
        };
        let total_len = narrow(len);
        let write = RemoteWrite {
            head,
            code: 0,
            datatype: 0,
            fetch: false,
            len: 0,
            total_len,
            part_off: 0,
            span: total_len,
            imm: spec.imm,
        };
        self.stage_write(peer, &write).map(Some)
    }

    /// Performs an atomic operation on memory of `peer`. Returns the memory to copy the
    /// `operands_len` bytes of operands into. Completes with an [`crate::Event::RemoteDone`]; the
    /// values that the operation returns are then in the buffer of `op`.
    ///
    /// # Errors
    /// [`Refused`]; the state is then unchanged.
    pub fn atomic(
        &mut self,
        peer: PeerId,
        spec: &RemoteSpec,
        op: OpId,
        atomic: &AtomicSpec,
        operands_len: usize,
    ) -> Result<Staging<'_>, Refused> {
        let most = operands_len.max(atomic.span as usize);
        if most > ATOMIC_LEN_MAX || atomic.code == 0 {
            return Err(Refused::TooLong);
        }
        self.is_live(peer);
        let charge = charge(most);
        let back_len = if atomic.fetch { atomic.span.into() } else { 0 };
        let (head, _) = self.begin(peer, spec, charge, (op, back_len, false))?;
        let write = RemoteWrite {
            head,
            code: atomic.code,
            datatype: atomic.datatype,
            fetch: atomic.fetch,
            len: 0,
            total_len: narrow(operands_len),
            part_off: 0,
            span: atomic.span,
            imm: None,
        };
        self.stage_write(peer, &write)
    }

    /// Gets `len` bytes of memory of `peer` into the buffer of `op`. Completes with an
    /// [`crate::Event::RemoteDone`].
    ///
    /// # Errors
    /// [`Refused`]; the state is then unchanged.
    pub fn get(
        &mut self,
        peer: PeerId,
        spec: &RemoteSpec,
        op: OpId,
        len: u64,
    ) -> Result<(), Refused> {
        self.is_live(peer);
        let eager_len = self.short_len(peer, len);
        // P12.4: the initiator pays for the reply.
        let charge = charge(eager_len.unwrap_or(0));
        let (head, _) = self.begin(peer, spec, charge, (op, len, true))?;
        let get = RemoteGet {
            head,
            by_transfer: eager_len.is_none(),
            len,
        };
        self.stage_small(peer, spec.lane, REMOTE_GET_LEN, &|out| get.emit(out));
        Ok(())
    }

    /// Returns `len` if that many bytes are sent without a transfer.
    fn short_len(&self, peer: PeerId, len: u64) -> Option<usize> {
        let state = self.peers.get(peer.index())?.as_deref()?;
        let path = state.paths().small_path()?;
        let most = self.sh.ctx.eager_len_max(path.is_lossless());
        usize::try_from(len).ok().filter(|&len| len <= most)
    }

    /// Numbers and charges a request; `len` bytes will be returned. `P12.2`
    fn begin(
        &mut self,
        peer: PeerId,
        spec: &RemoteSpec,
        charge: u32,
        (op, len, gets): (OpId, u64, bool),
    ) -> Result<(RemoteHead, u32), Refused> {
        let Some(Some(state)) = self.peers.get_mut(peer.index()) else {
            return Err(Refused::Unknown);
        };
        if !state.session().is_up() {
            let refused = state.refuse_submission();
            self.touch(peer);
            return Err(refused);
        }
        let begun = state.begin_request(&mut self.sh, spec, charge, (op, len, gets))?;
        self.touch(peer);
        Ok(begun)
    }

    fn stage_write(&mut self, peer: PeerId, write: &RemoteWrite) -> Result<Staging<'_>, Refused> {
        let Some(Some(state)) = self.peers.get_mut(peer.index()) else {
            return Err(Refused::Unknown);
        };
        let parts = Parts {
            lane: write.head.lane,
            header_len: portolan_wire::REMOTE_WRITE_LEN,
            len: write.total_len as usize,
            emit: &|off, len, out| emit_part(write, off, len, out),
        };
        let staged = state
            .paths_mut()
            .stage_parts(&self.sh.ctx, &mut self.sh.slots, &parts);
        staged.ok_or(Refused::NotUp)
    }

    /// Stages a record without payload.
    fn stage_small(&mut self, peer: PeerId, lane: LaneId, len: usize, emit: &dyn Fn(&mut [u8])) {
        let Some(Some(state)) = self.peers.get_mut(peer.index()) else {
            return;
        };
        let parts = Parts {
            lane,
            header_len: len,
            len: 0,
            emit: &|_, _, out| emit(out),
        };
        // There is no payload to fill in; the record is complete.
        let _ = state
            .paths_mut()
            .stage_parts(&self.sh.ctx, &mut self.sh.slots, &parts);
    }

    fn put_by_transfer(
        &mut self,
        peer: PeerId,
        spec: &RemoteSpec,
        head: &RemoteHead,
        (op, key, len, remote_addr): (OpId, u32, u64, u64),
    ) {
        let Some(Some(state)) = self.peers.get_mut(peer.index()) else {
            return;
        };
        let announcement = Announcement {
            peer,
            role: TxRole::Put,
            op,
            base: 0,
            len,
        };
        let announced = self.sh.transfers.announce(&announcement, state.paths());
        let (transfer, fragment_len) = announced.expect("`begin` has checked that there is room");
        self.sh.remote.set_transfer(key, transfer);
        let rts = RemoteRts {
            head: *head,
            fragment_len,
            transfer,
            len,
            imm: spec.imm,
            remote_addr,
        };
        self.stage_small(peer, spec.lane, REMOTE_RTS_LEN, &|out| rts.emit(out));
    }

    /// Handles the completion of a request, or a part of its result.
    pub(super) fn on_remote_reply(
        &mut self,
        from: PeerId,
        reply: &RemoteReply,
        payload: Range<usize>,
    ) -> Result<(), DropReason> {
        let Shared { remote, ctx, .. } = &mut self.sh;
        if let Some(result) = remote.on_reply(ctx, from, reply, payload)? {
            self.sh.end_remote(reply.op, result);
        }
        Ok(())
    }

    /// Starts the transfer that answers a read. `P12.6`
    pub(super) fn on_remote_source(
        &mut self,
        from: PeerId,
        link: LinkId,
        source: &RemoteSource,
    ) -> Result<(), DropReason> {
        let Some(Some(peer)) = self.peers.get_mut(from.index()) else {
            return Err(DropReason::StaleSession);
        };
        let (op, len) = match self.sh.remote.on_source(from, source) {
            Ok(found) => found,
            Err(reason) => {
                // P15.15: the stream has ended, and the sender has not received this side's transfer
                // number.
                if let Some(grant) = self.sh.transfers.repeated_grant(from, source.transfer) {
                    peer.control().push(Control::Grant(grant));
                }
                return Err(reason);
            }
        };
        let (link, lossless) = peer.data_link(link);
        // P5.1
        let is_sound = lossless || source.fragment_len > 0;
        if !is_sound || !self.sh.transfers.has_rx_room() {
            peer.control()
                .push_done(source.transfer, DoneStatus::Refused);
            self.sh.end_remote(source.op, Err(RemoteFault::Refused));
            return Ok(());
        }
        let request = Request {
            peer: from,
            lane: LaneId::Low,
            to: REMOTE_PORT.into(),
            len,
            announced: Announced {
                sender_transfer: source.transfer,
                remote_addr: source.remote_addr,
                fragment_len: source.fragment_len,
                link,
            },
        };
        let posted = Posted {
            op,
            base: 0,
            len,
            source: None,
        };
        let Shared { transfers, ctx, .. } = &mut self.sh;
        let transfer = transfers.start(ctx, &request, posted, Origin::Get(source.op));
        self.sh.remote.set_transfer(source.op, transfer);
        Ok(())
    }

    /// Replies to a request with `len` bytes, to be copied into the memory returned; `None` if no
    /// process waits for them. `P12.5`
    pub fn reply(&mut self, reply: &Reply, len: usize) -> Option<Staging<'_>> {
        self.touch(reply.peer);
        let state = self.peers.get_mut(reply.peer.index())?.as_deref_mut()?;
        if !state.session().is_up() {
            return None;
        }
        let head = RemoteReply {
            lane: reply.lane,
            status: RemoteStatus::DONE,
            len: 0,
            op: reply.op,
            part_off: 0,
        };
        let parts = Parts {
            lane: reply.lane,
            header_len: REMOTE_REPLY_LEN,
            len,
            emit: &|off, len, out| {
                RemoteReply {
                    len: narrow(len),
                    part_off: narrow(off),
                    ..head
                }
                .emit(out);
            },
        };
        state
            .paths_mut()
            .stage_parts(&self.sh.ctx, &mut self.sh.slots, &parts)
    }

    /// Replies to a read of `len` bytes. Returns the memory to copy them into, or `None` if they are
    /// too many. They are then gathered from the region, which the peer may pull from
    /// `remote_addr`, its address in this process (0 if not).
    pub fn reply_read(
        &mut self,
        now: Instant,
        reply: &Reply,
        len: u64,
        remote_addr: u64,
    ) -> Option<Staging<'_>> {
        let state = self.peers.get_mut(reply.peer.index())?.as_deref_mut()?;
        if !state.session().is_up() {
            return None;
        }
        let lossless = state.paths().small_path()?.is_lossless();
        let short = usize::try_from(len).ok();
        if let Some(len) = short.filter(|&len| len <= self.sh.ctx.eager_len_max(lossless)) {
            return self.reply(reply, len);
        }
        if !self.sh.transfers.has_tx_room() {
            self.refuse(reply, RemoteFault::Refused);
            return None;
        }
        let announcement = Announcement {
            peer: reply.peer,
            role: TxRole::Reply { op: reply.op },
            op: reply.region,
            base: reply.off,
            len,
        };
        let start = state.early_start(&self.sh, len);
        let announced = self.sh.transfers.announce(&announcement, state.paths());
        let (transfer, fragment_len) = announced?;
        let source = RemoteSource {
            fragment_len,
            op: reply.op,
            transfer,
            remote_addr,
            late_done: false,
        };
        let request = PushRequest::Reply(source);
        let transfers = &mut self.sh.transfers;
        let begin = |start| {
            let (queue, _) = state.bulk_parts();
            transfers.begin_early(now, (transfer, request), start, queue)
        };
        if start.is_none_or(begin) {
            state.control().push(Control::Source(source));
        }
        self.touch(reply.peer);
        None
    }

    /// Refuses a request that passed the core's checks.
    pub fn refuse(&mut self, reply: &Reply, fault: RemoteFault) {
        if let Some(reason) = fault.drop_reason() {
            self.sh.ctx.drop_for(reason);
        }
        if let Some(Some(peer)) = self.peers.get_mut(reply.peer.index()) {
            peer.push_reply(reply.lane, reply.op, Err(fault));
            self.touch(reply.peer);
        }
    }
}

impl Shared {
    /// Ends a request and the transfer of its bytes.
    pub(crate) fn end_remote(&mut self, key: u32, result: Result<(), RemoteFault>) {
        let Shared {
            remote,
            ctx,
            transfers,
            ..
        } = self;
        remote.end(ctx, transfers, key, result);
    }
}

/// Writes the header of a part of `write`.
fn emit_part(write: &RemoteWrite, off: usize, len: usize, out: &mut [u8]) {
    RemoteWrite {
        len: narrow(len),
        part_off: write.part_off + narrow::<_, u32>(off),
        ..*write
    }
    .emit(out);
}
