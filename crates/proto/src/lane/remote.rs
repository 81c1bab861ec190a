// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests for remote memory in their lane: performed and answered in their turn (`P12.2`).

use crate::base::credit::charge;
use crate::path::control::Control;
use crate::peer::Peer;
use crate::rma::target::{Host, Job, What, answer_record};
use crate::shared::Shared;
use crate::{Data, DropReason, LinkId, RemoteFault};
use core::ops::Range;
use portolan_wire::{LaneId, RemoteGet, RemoteHead, RemoteRts, RemoteWrite};

impl Peer {
    /// A put or an atomic operation, or a part of one.
    pub(crate) fn on_remote_write(
        &mut self,
        sh: &mut Shared,
        write: &RemoteWrite,
        payload: Range<usize>,
    ) -> Result<(), DropReason> {
        let (what, charge) = What::of_write(&sh.ctx, write)?;
        let (lane, len) = (write.head.lane, write.total_len as usize);
        let rx = &mut self.lanes_rx[lane.index()];
        if rx.is_next(write.head.seq) && payload.len() == len {
            rx.admit(charge)?;
            rx.skip_next();
            let data = Data::Frame(payload);
            let spent = self.host(sh).perform(&write.head, what, data, charge);
            self.consume(sh, lane, spent);
            return Ok(());
        }
        let index = rx.index(write.head.seq)?;
        if rx.is_vacant(index) {
            rx.admit(charge)?;
            let job = Job::gathering(write.head, what, sh.held.take(len));
            rx.put_job(index, job, charge);
        }
        let job = self.lanes_rx[lane.index()].job_mut(index);
        let Some(job) = job.filter(|job| job.is_of(&write.head)) else {
            return Err(DropReason::Duplicate);
        };
        job.gather(&mut sh.ctx, write, payload)?;
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
        let what = What::of_rts(rts, self.paths.data_link(link))?;
        self.enqueue(sh, rts.head, what, charge(0))
    }

    /// A request to read.
    pub(crate) fn on_remote_get(
        &mut self,
        sh: &mut Shared,
        get: &RemoteGet,
    ) -> Result<(), DropReason> {
        let (what, charge) = What::of_get(&sh.ctx, get)?;
        self.enqueue(sh, get.head, what, charge)
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
        rx.put_job(index, Job::waiting(head, what), charge);
        self.advance(sh, head.lane);
        Ok(())
    }

    /// What requests of this peer are performed on.
    pub(crate) fn host<'a>(&'a mut self, sh: &'a mut Shared) -> Host<'a> {
        let is_open = self.session.failed.is_none();
        Host {
            peer: self.id,
            session: self.session.token_mine,
            ctx: &mut sh.ctx,
            remote: &sh.remote,
            control: is_open.then_some(&mut self.control),
        }
    }

    /// Owes the end of a request, without bytes.
    pub(crate) fn push_answer(&mut self, lane: LaneId, op: u32, result: Result<(), RemoteFault>) {
        if self.session.failed.is_none() {
            let answer = answer_record(lane, op, result);
            self.control.push(Control::Answer(answer));
        }
    }
}
