// SPDX-License-Identifier: MIT OR Apache-2.0
//! The side whose memory it is: takes requests in their turn, checks them, has the engine perform
//! them, and answers.

use super::REMOTE_PORT;
use super::stage::Parts;
use crate::base::coverage::Coverage;
use crate::base::credit::charge;
use crate::base::request::{Asked, Request};
use crate::bulk::rendezvous::{Origin, TxRole, TxTransfer};
use crate::matching::port::Posted;
use crate::matching::remains::Remains;
use crate::mem::slab::SLAB_LEN_MAX;
use crate::peer::{Control, Peer};
use crate::shared::Shared;
use crate::{
    ATOMIC_LEN_MAX, Access, Answer, AtomicSpec, Core, Data, Dest, DropReason, Event, HeldId,
    LinkId, PeerId, PutNotice, RemoteFault, Staging,
};
use core::ops::Range;
use portolan_wire::{
    LaneId, REMOTE_ANSWER_LEN, RemoteAnswer, RemoteGet, RemoteHead, RemoteRts, RemoteSource,
    RemoteStatus, RemoteWrite,
};

/// A request that has not been performed yet.
#[derive(Debug)]
pub(crate) struct Job {
    head: RemoteHead,
    what: What,
    stage: Stage,
}

#[derive(Clone, Copy, Debug)]
enum What {
    /// A put (code 0) or an atomic operation on `spec.span` bytes.
    Write {
        spec: AtomicSpec,
        len: u32,
        imm: Option<u64>,
    },
    /// A put by a transfer.
    Put {
        asked: Asked,
        len: u64,
        imm: Option<u64>,
    },
    Read {
        len: u64,
    },
}

#[derive(Debug)]
enum Stage {
    /// Its parts gather in held memory.
    Gathering { held: HeldId, received: Coverage },
    /// All there: to be performed in its turn.
    Waiting(Option<HeldId>),
    /// Its bytes are on their way to the region.
    Transferring(u32),
    /// Performed or refused: to be answered in its turn.
    Settled(Result<(), RemoteFault>),
}

impl Job {
    /// Its turn may come.
    pub(crate) fn is_ready(&self) -> bool {
        matches!(self.stage, Stage::Waiting(_) | Stage::Settled(_))
    }

    /// It is there, and can be performed although its peer is gone.
    pub(crate) fn is_whole(&self) -> bool {
        matches!(self.stage, Stage::Waiting(_))
    }

    /// The transfer `key` has ended.
    pub(crate) fn settle(&mut self, key: u32, result: Result<(), RemoteFault>) {
        if matches!(self.stage, Stage::Transferring(transfer) if transfer == key) {
            self.stage = Stage::Settled(result);
        }
    }

    /// What a request that will not be performed holds.
    pub(crate) fn end(self, remains: &mut Remains) {
        if let Stage::Gathering { held, .. } | Stage::Waiting(Some(held)) = self.stage {
            remains.held.push(held);
        }
    }

    /// In its turn among what is to be matched; `false` if it must wait. A put by a transfer finds
    /// its region here, so that its bytes can come before its turn to be answered. `P12.6`
    pub(crate) fn match_up(&mut self, sh: &mut Shared, peer: PeerId) -> bool {
        if matches!(self.stage, Stage::Gathering { .. }) {
            return false;
        }
        let What::Put { asked, len, .. } = self.what else {
            return true;
        };
        if !matches!(self.stage, Stage::Waiting(_)) {
            return true;
        }
        if !sh.has_transfer_room() {
            return false;
        }
        let found = sh
            .remote
            .find(self.head.key, self.head.addr, len, Access::WRITE);
        self.stage = match found {
            Err(fault) => Stage::Settled(Err(fault)),
            Ok((op, base)) => {
                let request = Request {
                    peer,
                    lane: self.head.lane,
                    to: REMOTE_PORT.into(),
                    len,
                    asked,
                };
                let posted = Posted {
                    op,
                    base,
                    len,
                    source: None,
                };
                Stage::Transferring(sh.start_transfer(&request, posted, Origin::Region))
            }
        };
        true
    }
}

impl Peer {
    /// A put or an atomic operation, or a part of one.
    pub(crate) fn on_remote_write(
        &mut self,
        sh: &mut Shared,
        write: &RemoteWrite,
        payload: Range<usize>,
    ) -> Result<(), DropReason> {
        let len = write.total_len as usize;
        let is_put = write.code == 0;
        let most = if is_put {
            sh.ctx.eager_taken_max()
        } else {
            ATOMIC_LEN_MAX
        };
        // P12.2
        let is_sound = !is_put || write.span == write.total_len && !write.fetch;
        if len.max(write.span as usize) > most || !is_sound {
            return Err(DropReason::BadFragment);
        }
        let spec = AtomicSpec {
            code: write.code,
            datatype: write.datatype,
            fetch: write.fetch,
            span: write.span,
        };
        let what = What::Write {
            spec,
            len: write.total_len,
            imm: write.imm,
        };
        let (lane, charge) = (write.head.lane, charge(len.max(write.span as usize)));
        let rx = &mut self.lanes_rx[lane.index()];
        if rx.is_next(write.head.seq) && payload.len() == len {
            rx.admit(charge)?;
            rx.skip_next();
            let spent = self.perform(sh, &write.head, what, Data::Frame(payload), charge);
            self.consume(sh, lane, spent);
            return Ok(());
        }
        let index = rx.index(write.head.seq)?;
        if rx.is_vacant(index) {
            rx.admit(charge)?;
            let job = Job {
                head: write.head,
                what,
                stage: Stage::Gathering {
                    held: sh.held.take(len),
                    received: Coverage::default(),
                },
            };
            rx.put_job(index, job, charge);
        }
        let job = self.lanes_rx[lane.index()].job_mut(index);
        let Some(job) = job.filter(|job| job.head == write.head) else {
            return Err(DropReason::Duplicate);
        };
        job.gather(sh, write, payload)?;
        self.advance(sh, lane);
        Ok(())
    }

    /// A request to put by a transfer.
    pub(crate) fn on_remote_rts(
        &mut self,
        sh: &mut Shared,
        link: LinkId,
        rts: &RemoteRts,
    ) -> Result<(), DropReason> {
        let link = self.bulk.unwrap_or(link);
        let lossless = self.paths[link.index()]
            .as_ref()
            .is_some_and(|path| path.params.lossless);
        // P5.1
        if rts.len == 0 || !lossless && rts.fragment_len == 0 {
            return Err(DropReason::BadFragment);
        }
        let asked = Asked {
            sender_transfer: rts.transfer,
            remote_addr: rts.remote_addr,
            fragment_len: rts.fragment_len,
            link,
        };
        let what = What::Put {
            asked,
            len: rts.len,
            imm: rts.imm,
        };
        self.enqueue(sh, rts.head, what, charge(0))
    }

    /// A request to read.
    pub(crate) fn on_remote_get(
        &mut self,
        sh: &mut Shared,
        get: &RemoteGet,
    ) -> Result<(), DropReason> {
        let what = What::Read { len: get.len };
        if get.by_transfer {
            return self.enqueue(sh, get.head, what, charge(0));
        }
        let len = usize::try_from(get.len).unwrap_or(usize::MAX);
        if len > sh.ctx.eager_taken_max() {
            return Err(DropReason::BadFragment);
        }
        self.enqueue(sh, get.head, what, charge(len))
    }

    /// Puts a request that is one record among the messages of its lane.
    fn enqueue(
        &mut self,
        sh: &mut Shared,
        head: RemoteHead,
        what: What,
        charge: u32,
    ) -> Result<(), DropReason> {
        let rx = &mut self.lanes_rx[head.lane.index()];
        let index = rx.fresh(head.seq)?;
        rx.admit(charge)?;
        let stage = Stage::Waiting(None);
        rx.put_job(index, Job { head, what, stage }, charge);
        self.advance(sh, head.lane);
        Ok(())
    }

    /// The turn of a request has come. Returns the credit that is free now.
    pub(crate) fn finish_job(&mut self, sh: &mut Shared, job: Job, charge: u32) -> u32 {
        match job.stage {
            Stage::Waiting(held) => {
                let data = held.map_or(Data::Placed, Data::Held);
                self.perform(sh, &job.head, job.what, data, charge)
            }
            Stage::Settled(result) => self.settle(sh, &job.head, job.what, result, charge),
            Stage::Gathering { .. } | Stage::Transferring(_) => charge,
        }
    }

    /// Checks a request and hands it to the engine. `P12.3`
    fn perform(
        &mut self,
        sh: &mut Shared,
        head: &RemoteHead,
        what: What,
        data: Data,
        charge: u32,
    ) -> u32 {
        let (len, need) = what.needs();
        let (region, off) = match sh.remote.find(head.key, head.addr, len, need) {
            Ok(found) => found,
            Err(fault) => {
                if let Data::Held(held) = data {
                    sh.ctx.emit(Event::Discard { held });
                }
                return self.settle(sh, head, what, Err(fault), charge);
            }
        };
        let answer = Answer {
            peer: self.id,
            region,
            off,
            lane: head.lane,
            op: head.op,
        };
        match what {
            What::Write { spec, .. } if spec.code != 0 => {
                sh.ctx.counters_mut().remote_requests += 1;
                let atomic = spec;
                sh.ctx.emit(Event::RemoteAtomic {
                    answer,
                    atomic,
                    data,
                });
                charge
            }
            What::Write { .. } | What::Put { .. } => {
                match data {
                    Data::Frame(src) if !src.is_empty() => {
                        let dest = Dest::Op(region, off);
                        sh.ctx.emit(Event::Place { dest, src });
                    }
                    Data::Held(held) => {
                        sh.ctx.emit(Event::RemoteWrite { region, off, held });
                    }
                    Data::Frame(_) | Data::Placed => {}
                }
                self.settle(sh, head, what, Ok(()), charge)
            }
            What::Read { len } => {
                sh.ctx.counters_mut().remote_requests += 1;
                sh.ctx.emit(Event::RemoteRead { answer, len });
                charge
            }
        }
    }

    /// A put is done, or a request is refused: says so. Returns the credit that is free now.
    fn settle(
        &mut self,
        sh: &mut Shared,
        head: &RemoteHead,
        what: What,
        result: Result<(), RemoteFault>,
        charge: u32,
    ) -> u32 {
        sh.ctx.counters_mut().remote_requests += 1;
        if let Some(reason) = result.err().and_then(RemoteFault::drop_reason) {
            sh.ctx.drop_for(reason);
        }
        self.push_answer(head.lane, head.op, result);
        let (What::Write { imm, .. } | What::Put { imm, .. }) = what else {
            return charge;
        };
        let (Some(imm), Ok(())) = (imm, result) else {
            return charge;
        };
        sh.ctx.emit(Event::PutNotice(PutNotice {
            peer: self.id,
            imm,
            key: head.key,
            addr: head.addr,
            len: what.needs().0,
            lane: head.lane,
            charge,
            session: self.session.token_mine,
        }));
        // P12.8: it comes back when the program has taken the notice.
        0
    }

    /// Owes the end of a request, without bytes.
    pub(super) fn push_answer(&mut self, lane: LaneId, op: u32, result: Result<(), RemoteFault>) {
        if self.session.failed.is_some() {
            return;
        }
        self.control.push_back(Control::Answer(RemoteAnswer {
            lane,
            status: result.err().map_or(RemoteStatus::DONE, RemoteFault::status),
            len: 0,
            op,
            part_off: 0,
        }));
    }
}

impl What {
    /// Bytes of the region that it touches, and what for.
    fn needs(&self) -> (u64, Access) {
        match self {
            What::Write { spec, .. } => {
                let read = spec.fetch;
                (spec.span.into(), Access { read, write: true })
            }
            What::Put { len, .. } => (*len, Access::WRITE),
            What::Read { len } => (*len, Access::READ),
        }
    }
}

impl Job {
    fn gather(
        &mut self,
        sh: &mut Shared,
        write: &RemoteWrite,
        payload: Range<usize>,
    ) -> Result<(), DropReason> {
        let (Stage::Gathering { held, received }, What::Write { len, .. }) =
            (&mut self.stage, self.what)
        else {
            return Err(DropReason::Duplicate);
        };
        if len != write.total_len {
            return Err(DropReason::BadFragment);
        }
        let (held, off) = (*held, u64::from(write.part_off));
        if received.insert(off, off + payload.len() as u64) == 0 && len > 0 {
            return Err(DropReason::Duplicate);
        }
        if received.reaches(len.into()) {
            self.stage = Stage::Waiting(Some(held));
        }
        let dest = Dest::Held(held, write.part_off as usize);
        sh.ctx.emit(Event::Place { dest, src: payload });
        Ok(())
    }
}

impl Core {
    /// Answers a request with `len` bytes, to be copied into the memory returned; `None` if nobody
    /// waits for them any more. `P12.5`
    pub fn answer(&mut self, answer: &Answer, len: usize) -> Option<Staging<'_>> {
        self.touch(answer.peer);
        let state = self.peers.get_mut(answer.peer.index())?.as_deref_mut()?;
        if !state.session.up {
            return None;
        }
        let head = RemoteAnswer {
            lane: answer.lane,
            status: RemoteStatus::DONE,
            len: 0,
            op: answer.op,
            part_off: 0,
        };
        let parts = Parts {
            lane: answer.lane,
            header_len: REMOTE_ANSWER_LEN,
            len,
            emit: &|off, len, out| {
                RemoteAnswer {
                    len: u16::try_from(len).unwrap_or(u16::MAX),
                    part_off: u32::try_from(off).unwrap_or(u32::MAX),
                    ..head
                }
                .emit(out);
            },
        };
        state.stage_parts(&mut self.sh, &parts)
    }

    /// Answers a read of `len` bytes. Where they are too many to be copied, the answer is `None`: they
    /// will be gathered from the region, which the peer may pull from `remote_addr`, where they lie in
    /// this process's memory (else 0).
    pub fn answer_read(
        &mut self,
        answer: &Answer,
        len: u64,
        remote_addr: u64,
    ) -> Option<Staging<'_>> {
        let state = self.peers.get_mut(answer.peer.index())?.as_deref_mut()?;
        if !state.session.up {
            return None;
        }
        let lossless = state.small_path()?.params.lossless;
        let short = usize::try_from(len).ok();
        if let Some(len) = short.filter(|&len| len <= self.sh.ctx.eager_len_max(lossless)) {
            return self.answer(answer, len);
        }
        if self.sh.tx_transfers.len() >= SLAB_LEN_MAX {
            self.refuse(answer, RemoteFault::Refused);
            return None;
        }
        let role = TxRole::Answer { op: answer.op };
        let transfer = TxTransfer {
            base: answer.off,
            ..TxTransfer::new(state, answer.region, len, role)
        };
        let fragment_len = transfer.fragment_len;
        let Ok(transfer) = self.sh.tx_transfers.insert(transfer) else {
            return None;
        };
        state.control.push_back(Control::Source(RemoteSource {
            fragment_len,
            op: answer.op,
            transfer,
            remote_addr,
        }));
        self.touch(answer.peer);
        None
    }

    /// Refuses a request that the core found no fault with.
    pub fn refuse(&mut self, answer: &Answer, fault: RemoteFault) {
        if let Some(reason) = fault.drop_reason() {
            self.sh.ctx.drop_for(reason);
        }
        if let Some(Some(peer)) = self.peers.get_mut(answer.peer.index()) {
            peer.push_answer(answer.lane, answer.op, Err(fault));
            self.touch(answer.peer);
        }
    }
}
