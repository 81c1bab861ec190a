// SPDX-License-Identifier: MIT OR Apache-2.0
//! Initiator of remote memory operations: its requests, and their replies.

use super::Remote;
use crate::base::context::Context;
use crate::base::coverage::Coverage;
use crate::bulk::Transfers;
use crate::mem::slab::SLAB_LEN_MAX;
use crate::{Dest, DropReason, Event, OpError, OpId, PeerId, RemoteFault};
use core::ops::Range;
use portolan_wire::{RemoteReply, RemoteSource, RemoteStatus};

/// Request without a reply yet.
#[derive(Debug)]
pub(super) struct Outstanding {
    peer: PeerId,
    op: OpId,
    /// Bytes to be returned, and those that have arrived.
    len: u64,
    received: Coverage,
    /// Transfer of its bytes: from this side for a put, to this side for a get.
    transfer: u32,
    gets: bool,
}

impl Remote {
    /// Returns true if another request can be submitted.
    pub(crate) fn has_room(&self) -> bool {
        self.outstanding.len() < SLAB_LEN_MAX
    }

    /// Stores a request to `peer`, and returns its number. `len` bytes will be returned, or
    /// transferred if it `gets`.
    pub(crate) fn begin(&mut self, peer: PeerId, op: OpId, len: u64, gets: bool) -> Option<u32> {
        let outstanding = Outstanding {
            peer,
            op,
            len,
            received: Coverage::default(),
            transfer: 0,
            gets,
        };
        self.outstanding.insert(outstanding).ok()
    }

    /// Records the transfer that carries the bytes of a request.
    pub(crate) fn set_transfer(&mut self, key: u32, transfer: u32) {
        if let Some(outstanding) = self.outstanding.get_mut(key) {
            outstanding.transfer = transfer;
        }
    }

    /// Handles the completion of a request, or a part of its result. Returns the outcome if it has
    /// completed. `P12.5`
    pub(crate) fn on_reply(
        &mut self,
        ctx: &mut Context,
        from: PeerId,
        reply: &RemoteReply,
        payload: Range<usize>,
    ) -> Result<Option<Result<(), RemoteFault>>, DropReason> {
        let outstanding = self.outstanding.get_mut(reply.op);
        let outstanding = outstanding.filter(|outstanding| outstanding.peer == from);
        let Some(outstanding) = outstanding else {
            return Err(DropReason::StaleTransfer);
        };
        if reply.status != RemoteStatus::DONE {
            return Ok(Some(Err(RemoteFault::from_status(reply.status))));
        }
        let off = u64::from(reply.part_off);
        let end = off + payload.len() as u64;
        // With a transfer, the reply itself contains no bytes.
        if end > outstanding.len || outstanding.gets && outstanding.transfer != 0 {
            ctx.drop_for(DropReason::BadFragment);
            return Ok(Some(Err(RemoteFault::Refused)));
        }
        if outstanding.len > 0 && outstanding.received.insert(off, end) == 0 {
            return Err(DropReason::Duplicate);
        }
        if !payload.is_empty() {
            let dest = Dest::Op(outstanding.op, off);
            ctx.emit(Event::Place { dest, src: payload });
        }
        let is_complete = outstanding.received.reaches(outstanding.len);
        Ok(is_complete.then_some(Ok(())))
    }

    /// Returns the operation with the buffer for the transfer that answers a get, and its length.
    /// `P12.6`
    pub(crate) fn on_source(
        &self,
        from: PeerId,
        source: &RemoteSource,
    ) -> Result<(OpId, u64), DropReason> {
        let expects = |outstanding: &&Outstanding| {
            let idle = outstanding.transfer == 0 && outstanding.received.is_empty();
            outstanding.peer == from && outstanding.gets && idle && outstanding.len > 0
        };
        let outstanding = self.outstanding.get(source.op).filter(expects);
        let outstanding = outstanding.ok_or(DropReason::StaleTransfer)?;
        Ok((outstanding.op, outstanding.len))
    }

    /// Ends a request and the transfer of its bytes.
    pub(crate) fn end(
        &mut self,
        ctx: &mut Context,
        transfers: &mut Transfers,
        key: u32,
        result: Result<(), RemoteFault>,
    ) {
        let Some(done) = self.outstanding.remove(key) else {
            return;
        };
        if done.gets {
            transfers.end_rx(done.transfer);
        } else {
            transfers.end_tx(done.transfer);
        }
        let result = result.map_err(|fault| OpError::Remote(done.peer, fault));
        let op = done.op;
        ctx.emit(Event::RemoteDone { op, result });
    }

    /// Fails all requests to a failed peer.
    pub(crate) fn abandon(&mut self, ctx: &mut Context, peer: PeerId, error: OpError) {
        for key in self.outstanding.keys_where(|done| done.peer == peer) {
            if let Some(done) = self.outstanding.remove(key) {
                let (op, result) = (done.op, Err(error));
                ctx.emit(Event::RemoteDone { op, result });
            }
        }
    }
}
