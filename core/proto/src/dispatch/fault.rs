// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ends operations on memory that a process cannot access, at both ends (`P5.12`, `P12.10`).

use crate::bulk::{FinishedRx, Origin, TxRole};
use crate::{Core, DropReason, Event, OpError, OpId, PeerId, RemoteFault, Reply};
use core::ops::Range;
use portolan_wire::{DoneStatus, LaneId};

impl Core {
    /// Ends the transfers into bytes `range` of the memory of `op`, which this process cannot write,
    /// and notifies their senders. An operation completes without an error here: the caller knows
    /// it. Returns the number of transfers.
    pub fn fail_writes(&mut self, op: OpId, range: &Range<u64>) -> usize {
        let ended = self.sh.transfers.end_within(op, range);
        let count = ended.len();
        for (mut done, theirs) in ended {
            done.pending_done = None;
            if let Some(Some(peer)) = self.peers.get_mut(done.peer.index())
                && done.origin != Origin::Region
            {
                peer.control().push_done(theirs, DoneStatus::Unwritable);
            }
            self.finish_faulty(&done, RemoteFault::Inaccessible);
        }
        self.serve_unblocked();
        self.schedule_grants();
        count
    }

    /// Ends the transfers out of bytes `range` of the memory of `op`, which this process cannot
    /// read, and notifies their receivers. Sends complete with an [`OpError::Fault`].
    pub fn fail_reads(&mut self, op: OpId, range: &Range<u64>) {
        // The request must reach the receiver before the report of the fault. These transfers
        // therefore fail when they are granted.
        let pushed = self.sh.transfers.take_pushed_within(op, range);
        for (to, request, done) in &pushed {
            if let Some(Some(peer)) = self.peers.get_mut(to.index()) {
                peer.move_push(&mut self.sh, request, *done);
            }
            self.touch(*to);
        }
        if !pushed.is_empty() {
            return;
        }
        let sh = &mut self.sh;
        for (to, key, role) in sh.transfers.end_out_within(&mut sh.ctx, op, range) {
            if let Some(Some(peer)) = self.peers.get_mut(to.index()) {
                match role {
                    TxRole::Send | TxRole::Put => {
                        peer.control().push_done(key, DoneStatus::Unreadable);
                    }
                    TxRole::Reply { op } => {
                        peer.push_reply(LaneId::High, op, Err(RemoteFault::Inaccessible));
                    }
                }
            }
            self.touch(to);
        }
    }

    /// Replaces the success of a put ([`Event::RemoteWrite`]) by a refusal, because this process
    /// cannot write the memory.
    pub fn refuse_put(&mut self, reply: &Reply) {
        if let Some(Some(peer)) = self.peers.get_mut(reply.peer.index()) {
            let fault = RemoteFault::Inaccessible;
            peer.control().refuse(reply.lane, reply.op, fault);
        }
    }

    /// Handles the report of a sender that cannot read the memory of its transfer.
    pub(super) fn on_source_fault(
        &mut self,
        from: PeerId,
        sender_transfer: u32,
    ) -> Result<(), DropReason> {
        let ended = self.sh.transfers.end_from(from, sender_transfer);
        let mut done = ended.ok_or(DropReason::StaleTransfer)?;
        done.pending_done = None;
        done.error = Some(OpError::PeerFault(from));
        if done.origin != Origin::Region {
            let (op, peer) = (done.op, from);
            self.sh.ctx.emit(Event::SourceFault { op, peer });
        }
        self.finish_faulty(&done, RemoteFault::Inaccessible);
        Ok(())
    }

    fn finish_faulty(&mut self, done: &FinishedRx, fault: RemoteFault) {
        if done.origin != Origin::Region {
            return self.finish_rx(done);
        }
        if let Some(Some(peer)) = self.peers.get_mut(done.peer.index()) {
            let (lanes, mut env) = peer.lanes(&mut self.sh);
            lanes.on_put_transferred(&mut env, done.lane, done.key, Err(fault));
        }
        self.touch(done.peer);
    }
}
