// SPDX-License-Identifier: MIT OR Apache-2.0
//! Target of remote memory operations: takes requests in order, checks them, has the engine perform
//! them, and replies.

use super::{REMOTE_PORT, Remote};
use crate::base::context::Context;
use crate::base::coverage::Coverage;
use crate::base::credit::charge;
use crate::base::request::{Announced, Request};
use crate::bulk::{Origin, Transfers};
use crate::matching::port::Posted;
use crate::matching::remains::Remains;
use crate::path::control::{Control, ControlQueue};
use crate::{
    ATOMIC_LEN_MAX, Access, AtomicSpec, Data, Dest, DropReason, Event, HeldId, LinkId, PeerId,
    PutNotice, RemoteFault, Reply,
};
use core::ops::Range;
use portolan_wire::{
    LaneId, RemoteGet, RemoteHead, RemoteReply, RemoteRts, RemoteStatus, RemoteWrite,
};

/// Request that has not been performed yet.
#[derive(Debug)]
pub(crate) struct Job {
    head: RemoteHead,
    what: RequestKind,
    stage: Stage,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum RequestKind {
    /// A put (code 0) or an atomic operation on `spec.span` bytes.
    Write {
        spec: AtomicSpec,
        len: u32,
        imm: Option<u64>,
    },
    /// Put with a transfer.
    Put {
        announced: Announced,
        len: u64,
        imm: Option<u64>,
    },
    Read {
        len: u64,
    },
}

#[derive(Debug)]
enum Stage {
    /// Parts gather in held memory.
    Gathering { held: HeldId, received: Coverage },
    /// Complete; to be performed in order.
    Waiting(Option<HeldId>),
    /// The request's bytes are being transferred to the region.
    Transferring(u32),
    /// Performed or refused; to be answered in order.
    Settled(Result<(), RemoteFault>),
}

impl Job {
    /// Returns true if it can be finished in its turn.
    pub(crate) fn is_ready(&self) -> bool {
        matches!(self.stage, Stage::Waiting(_) | Stage::Settled(_))
    }

    /// Returns true if it is complete, and can be performed although its peer has failed.
    pub(crate) fn is_complete(&self) -> bool {
        matches!(self.stage, Stage::Waiting(_))
    }

    /// Records the outcome of transfer `key`.
    pub(crate) fn settle(&mut self, key: u32, result: Result<(), RemoteFault>) {
        if matches!(self.stage, Stage::Transferring(transfer) if transfer == key) {
            self.stage = Stage::Settled(result);
        }
    }

    /// Adds the memory of a request that will not be performed to `remains`.
    pub(crate) fn end(self, remains: &mut Remains) {
        if let Stage::Gathering { held, .. } | Stage::Waiting(Some(held)) = self.stage {
            remains.held.push(held);
        }
    }

    /// Matches the request in order; returns `false` if it must wait. A put with a transfer is
    /// bound to its region here, so that its bytes can arrive before it is answered in order.
    /// `P12.6`
    pub(crate) fn match_up(
        &mut self,
        ctx: &mut Context,
        remote: &Remote,
        transfers: &mut Transfers,
        peer: PeerId,
    ) -> bool {
        if matches!(self.stage, Stage::Gathering { .. }) {
            return false;
        }
        let RequestKind::Put { announced, len, .. } = self.what else {
            return true;
        };
        if ctx.is_leaving() || !matches!(self.stage, Stage::Waiting(_)) {
            return true;
        }
        if !transfers.has_rx_room() {
            return false;
        }
        let found = remote.find(self.head.key, self.head.addr, len, Access::WRITE);
        self.stage = match found {
            Err(fault) => Stage::Settled(Err(fault)),
            Ok((op, base)) => {
                let request = Request {
                    peer,
                    lane: self.head.lane,
                    to: REMOTE_PORT.into(),
                    len,
                    announced,
                };
                let posted = Posted {
                    op,
                    base,
                    len,
                    source: None,
                };
                Stage::Transferring(transfers.start(ctx, &request, posted, Origin::Region))
            }
        };
        true
    }

    /// Returns a write with parts that gather in held memory.
    pub(crate) fn gathering(head: RemoteHead, what: RequestKind, held: HeldId) -> Job {
        let received = Coverage::default();
        let stage = Stage::Gathering { held, received };
        Job { head, what, stage }
    }

    /// Returns a request that is a single record.
    pub(crate) fn waiting(head: RemoteHead, what: RequestKind) -> Job {
        let stage = Stage::Waiting(None);
        Job { head, what, stage }
    }

    /// Returns true if the request has this head.
    pub(crate) fn is_of(&self, head: &RemoteHead) -> bool {
        self.head == *head
    }

    /// Performs or answers the request in its turn. Returns the credit that is free now.
    pub(crate) fn finish(self, host: &mut Host<'_>, charge: u32) -> u32 {
        match self.stage {
            Stage::Waiting(held) => {
                let data = held.map_or(Data::Placed, Data::Held);
                host.perform(&self.head, self.what, data, charge)
            }
            Stage::Settled(result) => host.settle(&self.head, self.what, result, charge),
            Stage::Gathering { .. } | Stage::Transferring(_) => charge,
        }
    }
}

/// Requester, and context in which its requests are performed.
pub(crate) struct Host<'a> {
    pub(crate) peer: PeerId,
    /// This side's token in the session.
    pub(crate) session: u64,
    pub(crate) ctx: &'a mut Context,
    pub(crate) remote: &'a Remote,
    /// Queue for the reply; `None` if no process waits for it.
    pub(crate) control: Option<&'a mut ControlQueue>,
}

impl Host<'_> {
    /// Checks a request and passes it to the engine. `P12.3`
    pub(crate) fn perform(
        &mut self,
        head: &RemoteHead,
        what: RequestKind,
        data: Data,
        charge: u32,
    ) -> u32 {
        if self.ctx.is_leaving() {
            if let Data::Held(held) = data {
                self.ctx.emit(Event::Discard { held });
            }
            return charge;
        }
        let (len, need) = what.needs();
        let (region, off) = match self.remote.find(head.key, head.addr, len, need) {
            Ok(found) => found,
            Err(fault) => {
                if let Data::Held(held) = data {
                    self.ctx.emit(Event::Discard { held });
                }
                return self.settle(head, what, Err(fault), charge);
            }
        };
        let reply = Reply {
            peer: self.peer,
            region,
            off,
            lane: head.lane,
            op: head.op,
        };
        match what {
            RequestKind::Write { spec, .. } if spec.code != 0 => {
                self.ctx.counters_mut().remote_requests += 1;
                let atomic = spec;
                self.ctx.emit(Event::RemoteAtomic {
                    reply,
                    atomic,
                    data,
                });
                charge
            }
            RequestKind::Write { .. } | RequestKind::Put { .. } => {
                let is_empty = match &data {
                    Data::Frame(src) => src.is_empty(),
                    Data::Held(_) => false,
                    Data::Placed => true,
                };
                if !is_empty {
                    self.ctx.emit(Event::RemoteWrite {
                        reply,
                        len,
                        data,
                        notifies: what.notifies(),
                    });
                }
                self.settle(head, what, Ok(()), charge)
            }
            RequestKind::Read { len } => {
                self.ctx.counters_mut().remote_requests += 1;
                self.ctx.emit(Event::RemoteRead { reply, len });
                charge
            }
        }
    }

    /// Has the engine check that the bytes of a transfer are in place.
    fn report_placed(&mut self, head: &RemoteHead, len: u64, notifies: bool) {
        let found = self.remote.find(head.key, head.addr, len, Access::WRITE);
        if let Ok((region, off)) = found {
            let reply = Reply {
                peer: self.peer,
                region,
                off,
                lane: head.lane,
                op: head.op,
            };
            let data = Data::Placed;
            self.ctx.emit(Event::RemoteWrite {
                reply,
                len,
                data,
                notifies,
            });
        }
    }

    /// Replies to a put that is done or a request that is refused. Returns the credit that is free
    /// now.
    fn settle(
        &mut self,
        head: &RemoteHead,
        what: RequestKind,
        result: Result<(), RemoteFault>,
        charge: u32,
    ) -> u32 {
        self.ctx.counters_mut().remote_requests += 1;
        if let Some(reason) = result.err().and_then(RemoteFault::drop_reason) {
            self.ctx.drop_for(reason);
        }
        if let Some(control) = &mut self.control {
            control.push(Control::Reply(reply_record(head.lane, head.op, result)));
        }
        if let (RequestKind::Put { len, .. }, Ok(())) = (what, result) {
            self.report_placed(head, len, what.notifies());
        }
        let (RequestKind::Write { imm, .. } | RequestKind::Put { imm, .. }) = what else {
            return charge;
        };
        let (Some(imm), Ok(())) = (imm, result) else {
            return charge;
        };
        self.ctx.emit(Event::PutNotice(PutNotice {
            peer: self.peer,
            imm,
            key: head.key,
            addr: head.addr,
            len: what.needs().0,
            lane: head.lane,
            charge,
            session: self.session,
        }));
        // P12.8: the credit is returned when the program has taken the notice.
        0
    }
}

impl RequestKind {
    /// Returns the request of a write, and its lane credit cost. `P12.2`
    pub(crate) fn of_write(
        ctx: &Context,
        write: &RemoteWrite,
    ) -> Result<(RequestKind, u32), DropReason> {
        let len = write.total_len as usize;
        let is_put = write.code == 0;
        let most = if is_put {
            ctx.eager_taken_max()
        } else {
            ATOMIC_LEN_MAX
        };
        let is_sound = !is_put || write.span == write.total_len && !write.fetch;
        let touched = len.max(write.span as usize);
        if touched > most || !is_sound {
            return Err(DropReason::BadFragment);
        }
        let spec = AtomicSpec {
            code: write.code,
            datatype: write.datatype,
            fetch: write.fetch,
            span: write.span,
        };
        let what = RequestKind::Write {
            spec,
            len: write.total_len,
            imm: write.imm,
        };
        Ok((what, charge(touched)))
    }

    /// Returns the request of a put with a transfer that receives its bytes on a link. `P5.1`
    pub(crate) fn of_rts(
        rts: &RemoteRts,
        (link, lossless): (LinkId, bool),
    ) -> Result<RequestKind, DropReason> {
        if rts.len == 0 || !lossless && rts.fragment_len == 0 {
            return Err(DropReason::BadFragment);
        }
        let announced = Announced {
            sender_transfer: rts.transfer,
            remote_addr: rts.remote_addr,
            fragment_len: rts.fragment_len,
            link,
        };
        Ok(RequestKind::Put {
            announced,
            len: rts.len,
            imm: rts.imm,
        })
    }

    /// Returns the request of a read, and its lane credit cost.
    pub(crate) fn of_get(ctx: &Context, get: &RemoteGet) -> Result<(RequestKind, u32), DropReason> {
        let what = RequestKind::Read { len: get.len };
        if get.by_transfer {
            return Ok((what, charge(0)));
        }
        let len = usize::try_from(get.len).unwrap_or(usize::MAX);
        if len > ctx.eager_taken_max() {
            return Err(DropReason::BadFragment);
        }
        Ok((what, charge(len)))
    }

    /// Returns true if the target's program is notified of the operation.
    fn notifies(&self) -> bool {
        match self {
            RequestKind::Write { imm, .. } | RequestKind::Put { imm, .. } => imm.is_some(),
            RequestKind::Read { .. } => false,
        }
    }

    /// Returns the number of bytes of the region that it accesses, and the access it needs.
    fn needs(&self) -> (u64, Access) {
        match self {
            RequestKind::Write { spec, .. } => {
                let read = spec.fetch;
                (spec.span.into(), Access { read, write: true })
            }
            RequestKind::Put { len, .. } => (*len, Access::WRITE),
            RequestKind::Read { len } => (*len, Access::READ),
        }
    }
}

impl Job {
    /// Takes a part that has arrived.
    pub(crate) fn gather(
        &mut self,
        ctx: &mut Context,
        write: &RemoteWrite,
        payload: Range<usize>,
    ) -> Result<(), DropReason> {
        let (Stage::Gathering { held, received }, RequestKind::Write { len, .. }) =
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
        ctx.emit(Event::Place { dest, src: payload });
        Ok(())
    }
}

/// Returns the record that answers a request without data.
pub(crate) fn reply_record(lane: LaneId, op: u32, result: Result<(), RemoteFault>) -> RemoteReply {
    RemoteReply {
        lane,
        status: result.err().map_or(RemoteStatus::DONE, RemoteFault::status),
        len: 0,
        op,
        part_off: 0,
    }
}
