// SPDX-License-Identifier: MIT OR Apache-2.0
//! The side that asks: submits requests and takes their answers.

use super::REMOTE_PORT;
use super::stage::{Parts, emit_part};
use crate::base::coverage::Coverage;
use crate::base::credit::charge;
use crate::base::request::{Asked, Request};
use crate::bulk::rendezvous::{Origin, TxRole, TxTransfer};
use crate::matching::port::Posted;
use crate::mem::slab::SLAB_LEN_MAX;
use crate::peer::Control;
use crate::{
    ATOMIC_LEN_MAX, AtomicSpec, Core, Dest, DropReason, Event, LinkId, OpError, OpId, PeerId,
    Refused, RemoteFault, RemoteSpec, Staging,
};
use core::ops::Range;
use portolan_wire::{
    Done, DoneStatus, LaneId, REMOTE_GET_LEN, REMOTE_RTS_LEN, RemoteAnswer, RemoteGet, RemoteHead,
    RemoteRts, RemoteSource, RemoteStatus, RemoteWrite,
};

/// A request that was not answered yet.
#[derive(Debug)]
pub(super) struct Outstanding {
    pub(super) peer: PeerId,
    op: OpId,
    /// Bytes that are to come back, and those that have.
    len: u64,
    received: Coverage,
    /// The transfer that carries its bytes: from this side if it puts, to this side if it gets.
    transfer: u32,
    gets: bool,
}

impl Core {
    /// Puts `len` bytes into memory of `peer`; the end is an [`Event::RemoteDone`], when they are
    /// there. With the memory to copy them into, or `None`: they will be gathered from the buffer of
    /// `op`, which lies at `remote_addr` for a peer that may pull it (else 0).
    ///
    /// # Errors
    /// [`Refused`]; nothing has changed then.
    pub fn put(
        &mut self,
        peer: PeerId,
        spec: &RemoteSpec,
        op: OpId,
        len: u64,
        remote_addr: u64,
    ) -> Result<Option<Staging<'_>>, Refused> {
        self.is_awake(peer);
        let eager_len = self.short_len(peer, len);
        let charge = charge(eager_len.unwrap_or(0));
        self.check_ready(peer, spec.lane, charge)?;
        let (head, key) = self.begin(peer, spec, charge, Outstanding::new(peer, op, 0, false))?;
        let Some(len) = eager_len else {
            self.put_by_transfer(peer, spec, &head, (op, key, len, remote_addr));
            return Ok(None);
        };
        let total_len = u32::try_from(len).unwrap_or(u32::MAX);
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

    /// Changes numbers in memory of `peer` by `operands_len` bytes of operands, to be copied into the
    /// memory returned. The end is an [`Event::RemoteDone`]; what the operation returns is then in the
    /// buffer of `op`.
    ///
    /// # Errors
    /// [`Refused`]; nothing has changed then.
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
        self.is_awake(peer);
        let charge = charge(most);
        self.check_ready(peer, spec.lane, charge)?;
        let back_len = if atomic.fetch { atomic.span.into() } else { 0 };
        let outstanding = Outstanding::new(peer, op, back_len, false);
        let (head, _) = self.begin(peer, spec, charge, outstanding)?;
        let write = RemoteWrite {
            head,
            code: atomic.code,
            datatype: atomic.datatype,
            fetch: atomic.fetch,
            len: 0,
            total_len: u32::try_from(operands_len).unwrap_or(u32::MAX),
            part_off: 0,
            span: atomic.span,
            imm: None,
        };
        self.stage_write(peer, &write)
    }

    /// Gets `len` bytes of memory of `peer` into the buffer of `op`; the end is an
    /// [`Event::RemoteDone`].
    ///
    /// # Errors
    /// [`Refused`]; nothing has changed then.
    pub fn get(
        &mut self,
        peer: PeerId,
        spec: &RemoteSpec,
        op: OpId,
        len: u64,
    ) -> Result<(), Refused> {
        self.is_awake(peer);
        let eager_len = self.short_len(peer, len);
        // P12.4: the answer is paid for by the one who wants it.
        let charge = charge(eager_len.unwrap_or(0));
        self.check_ready(peer, spec.lane, charge)?;
        let (head, _) = self.begin(peer, spec, charge, Outstanding::new(peer, op, len, true))?;
        let get = RemoteGet {
            head,
            by_transfer: eager_len.is_none(),
            len,
        };
        self.stage_small(peer, spec.lane, REMOTE_GET_LEN, &|out| get.emit(out));
        Ok(())
    }

    /// `len`, if so many bytes travel without a transfer.
    fn short_len(&self, peer: PeerId, len: u64) -> Option<usize> {
        let state = self.peers.get(peer.index())?.as_deref()?;
        let path = state.paths[state.small?.index()].as_deref()?;
        let most = self.sh.ctx.eager_len_max(path.params.lossless);
        usize::try_from(len).ok().filter(|&len| len <= most)
    }

    /// Whether a request can be submitted now.
    fn check_ready(&mut self, peer: PeerId, lane: LaneId, charge: u32) -> Result<(), Refused> {
        let Some(Some(state)) = self.peers.get_mut(peer.index()) else {
            return Err(Refused::Unknown);
        };
        if !state.session.up {
            let refused = state.session.failed.map_or(Refused::NotUp, Refused::Gone);
            state.session.want();
            self.touch(peer);
            return Err(refused);
        }
        let path = state.small_path().ok_or(Refused::NotUp)?;
        let room = path.has_room(lane.index())
            && self.sh.remote.outstanding.len() < SLAB_LEN_MAX
            && self.sh.tx_transfers.len() < SLAB_LEN_MAX;
        let tx = &mut state.lanes_tx[lane.index()];
        if !room || !tx.has_credit(charge) {
            tx.starved = true;
            return Err(Refused::Busy);
        }
        Ok(())
    }

    /// Gives a request its numbers and charges for it. `P12.2`
    fn begin(
        &mut self,
        peer: PeerId,
        spec: &RemoteSpec,
        charge: u32,
        outstanding: Outstanding,
    ) -> Result<(RemoteHead, u32), Refused> {
        let Some(Some(state)) = self.peers.get_mut(peer.index()) else {
            return Err(Refused::Unknown);
        };
        let Ok(key) = self.sh.remote.outstanding.insert(outstanding) else {
            return Err(Refused::Busy);
        };
        let tx = &mut state.lanes_tx[spec.lane.index()];
        let head = RemoteHead {
            lane: spec.lane,
            seq: tx.next_seq,
            op: key,
            key: spec.key,
            addr: spec.addr,
        };
        tx.next_seq = tx.next_seq.wrapping_add(1);
        tx.charged = tx.charged.wrapping_add(charge);
        self.touch(peer);
        Ok((head, key))
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
        state
            .stage_parts(&mut self.sh, &parts)
            .ok_or(Refused::NotUp)
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
        // Nothing to be filled: the record is whole.
        let _ = state.stage_parts(&mut self.sh, &parts);
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
        let fragment_len = state.fragment_len();
        let transfer = TxTransfer::new(state, op, len, TxRole::Put);
        // There is room: `check_ready` has looked.
        let transfer = self.sh.tx_transfers.insert(transfer).unwrap_or(0);
        if let Some(outstanding) = self.sh.remote.outstanding.get_mut(key) {
            outstanding.transfer = transfer;
        }
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

    /// The end of a request, or a part of what it returns. `P12.5`
    pub(crate) fn on_remote_answer(
        &mut self,
        from: PeerId,
        answer: &RemoteAnswer,
        payload: Range<usize>,
    ) -> Result<(), DropReason> {
        let outstanding = self.sh.remote.outstanding.get_mut(answer.op);
        let outstanding = outstanding.filter(|outstanding| outstanding.peer == from);
        let Some(outstanding) = outstanding else {
            return Err(DropReason::StaleTransfer);
        };
        if answer.status != RemoteStatus::DONE {
            self.end_remote(answer.op, Err(RemoteFault::from_status(answer.status)));
            return Ok(());
        }
        let off = u64::from(answer.part_off);
        let end = off + payload.len() as u64;
        // A transfer brings what it brings.
        if end > outstanding.len || outstanding.gets && outstanding.transfer != 0 {
            self.end_remote(answer.op, Err(RemoteFault::Refused));
            return Err(DropReason::BadFragment);
        }
        if outstanding.len > 0 && outstanding.received.insert(off, end) == 0 {
            return Err(DropReason::Duplicate);
        }
        let (op, is_whole) = (
            outstanding.op,
            outstanding.received.reaches(outstanding.len),
        );
        if !payload.is_empty() {
            let dest = Dest::Op(op, off);
            self.sh.ctx.emit(Event::Place { dest, src: payload });
        }
        if is_whole {
            self.end_remote(answer.op, Ok(()));
        }
        Ok(())
    }

    /// What was to be read comes as a transfer. `P12.6`
    pub(crate) fn on_remote_source(
        &mut self,
        from: PeerId,
        link: LinkId,
        source: &RemoteSource,
    ) -> Result<(), DropReason> {
        let outstanding = self.sh.remote.outstanding.get_mut(source.op);
        let expects = |outstanding: &&mut Outstanding| {
            let idle = outstanding.transfer == 0 && outstanding.received.is_empty();
            outstanding.peer == from && outstanding.gets && idle && outstanding.len > 0
        };
        let Some(outstanding) = outstanding.filter(expects) else {
            return Err(DropReason::StaleTransfer);
        };
        let Some(Some(peer)) = self.peers.get_mut(from.index()) else {
            return Err(DropReason::StaleSession);
        };
        let link = peer.bulk.unwrap_or(link);
        let lossless = peer.paths[link.index()]
            .as_ref()
            .is_some_and(|path| path.params.lossless);
        // P5.1
        let is_sound = lossless || source.fragment_len > 0;
        if !is_sound || self.sh.rx_transfers.len() >= SLAB_LEN_MAX {
            let (status, transfer) = (DoneStatus::Refused, source.transfer);
            peer.control
                .push_back(Control::Done(Done { status, transfer }));
            self.end_remote(source.op, Err(RemoteFault::Refused));
            return Ok(());
        }
        let (op, len) = (outstanding.op, outstanding.len);
        let request = Request {
            peer: from,
            lane: LaneId::Low,
            to: REMOTE_PORT.into(),
            len,
            asked: Asked {
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
        let transfer = self
            .sh
            .start_transfer(&request, posted, Origin::Get(source.op));
        if let Some(outstanding) = self.sh.remote.outstanding.get_mut(source.op) {
            outstanding.transfer = transfer;
        }
        Ok(())
    }

    /// A request has ended: whatever carried its bytes ends with it.
    pub(crate) fn end_remote(&mut self, key: u32, result: Result<(), RemoteFault>) {
        let Some(done) = self.sh.remote.outstanding.remove(key) else {
            return;
        };
        if done.gets {
            if let Some(transfer) = self.sh.rx_transfers.remove(done.transfer) {
                self.sh.scheduler.remove(done.transfer, &transfer);
            }
        } else {
            self.sh.tx_transfers.remove(done.transfer);
        }
        let result = result.map_err(|fault| OpError::Remote(done.peer, fault));
        let op = done.op;
        self.sh.ctx.emit(Event::RemoteDone { op, result });
    }

    /// Ends all requests to a peer that is gone.
    pub(crate) fn abandon_remote(&mut self, peer: PeerId, error: OpError) {
        let remote = &mut self.sh.remote;
        for key in remote.outstanding.keys_where(|done| done.peer == peer) {
            if let Some(done) = remote.outstanding.remove(key) {
                let (op, result) = (done.op, Err(error));
                self.sh.ctx.emit(Event::RemoteDone { op, result });
            }
        }
    }
}

impl Outstanding {
    fn new(peer: PeerId, op: OpId, len: u64, gets: bool) -> Self {
        Outstanding {
            peer,
            op,
            len,
            received: Coverage::default(),
            transfer: 0,
            gets,
        }
    }
}
