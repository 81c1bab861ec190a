// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests for remote memory in their lane: performed and answered in order (`P12.2`).

use super::{Env, Lanes};
use crate::base::credit::charge;
use crate::rma::target::{Job, RequestKind};
use crate::{Data, DropReason, LinkId};
use core::ops::Range;
use portolan_wire::{RemoteGet, RemoteHead, RemoteRts, RemoteWrite};

impl Lanes {
    /// Handles a put, an atomic operation, or a part of either.
    pub(crate) fn on_remote_write(
        &mut self,
        env: &mut Env<'_>,
        write: &RemoteWrite,
        payload: Range<usize>,
    ) -> Result<(), DropReason> {
        let (what, charge) = RequestKind::of_write(&env.sh.ctx, write)?;
        let (lane, len) = (write.head.lane, write.total_len as usize);
        let rx = &mut self.rx[lane.index()];
        if rx.is_next(write.head.seq) && payload.len() == len {
            rx.admit(charge)?;
            rx.skip_next();
            let data = Data::Frame(payload);
            let spent = env.host().perform(&write.head, what, data, charge);
            self.consume(env, lane, spent);
            return Ok(());
        }
        let index = rx.index(write.head.seq)?;
        if rx.is_vacant(index) {
            rx.admit(charge)?;
            let job = Job::gathering(write.head, what, env.sh.held.take(len));
            rx.put_job(index, job, charge);
        }
        let job = self.rx[lane.index()].job_mut(index);
        let Some(job) = job.filter(|job| job.is_of(&write.head)) else {
            return Err(DropReason::Duplicate);
        };
        job.gather(&mut env.sh.ctx, write, payload)?;
        self.advance(env, lane);
        Ok(())
    }

    /// Handles a request to put with a transfer.
    pub(crate) fn on_remote_rts(
        &mut self,
        env: &mut Env<'_>,
        data_link: (LinkId, bool),
        rts: &RemoteRts,
    ) -> Result<(), DropReason> {
        let what = RequestKind::of_rts(rts, data_link)?;
        self.enqueue(env, rts.head, what, charge(0))
    }

    /// Handles a request to read.
    pub(crate) fn on_remote_get(
        &mut self,
        env: &mut Env<'_>,
        get: &RemoteGet,
    ) -> Result<(), DropReason> {
        let (what, charge) = RequestKind::of_get(&env.sh.ctx, get)?;
        self.enqueue(env, get.head, what, charge)
    }

    /// Queues a request of a single record among the messages of its lane.
    fn enqueue(
        &mut self,
        env: &mut Env<'_>,
        head: RemoteHead,
        what: RequestKind,
        charge: u32,
    ) -> Result<(), DropReason> {
        let rx = &mut self.rx[head.lane.index()];
        let index = rx.fresh(head.seq)?;
        rx.admit(charge)?;
        rx.put_job(index, Job::waiting(head, what), charge);
        self.advance(env, head.lane);
        Ok(())
    }
}
