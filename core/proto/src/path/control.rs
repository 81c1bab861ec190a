// SPDX-License-Identifier: MIT OR Apache-2.0
//! Control records: grants, ends of transfers, replies and acknowledgements of streams, which are sent with the next frame to
//! the peer.

use crate::RemoteFault;
use alloc::collections::VecDeque;
use portolan_wire::{
    DONE_LEN, Done, DoneStatus, GRANT_LEN, Grant, LaneId, REMOTE_REPLY_LEN, REMOTE_SOURCE_LEN,
    RemoteReply, RemoteSource, STREAM_MARK_LEN, StreamMark,
};

/// Record that waits for a frame.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Control {
    Grant(Grant),
    Done(Done),
    Reply(RemoteReply),
    Source(RemoteSource),
    StreamMark(StreamMark),
}

/// Length in bytes of the longest control record.
const CONTROL_LEN_MAX: usize = GRANT_LEN;
const _: () = assert!(
    CONTROL_LEN_MAX >= DONE_LEN
        && CONTROL_LEN_MAX >= REMOTE_REPLY_LEN
        && CONTROL_LEN_MAX >= REMOTE_SOURCE_LEN
        && CONTROL_LEN_MAX >= STREAM_MARK_LEN
);

/// Control records that wait for one peer, in order.
#[derive(Debug, Default)]
pub(crate) struct ControlQueue {
    waiting: VecDeque<Control>,
    /// Set if the only record is a `Done` that waits for the program's next call. `P15.16`
    is_late: bool,
    /// Last grant sent, as long as its transfer may wait for it. `P5.11`
    last_grant: Option<Grant>,
}

impl ControlQueue {
    #[inline]
    pub(crate) fn push(&mut self, control: Control) {
        self.waiting.push_back(control);
        self.is_late = false;
    }

    /// Queues the completion of a transfer for the peer.
    pub(crate) fn push_done(&mut self, transfer: u32, status: DoneStatus) {
        self.push(Control::Done(Done { status, transfer }));
    }

    /// Queues the completion of a transfer, which waits for the program's next call unless another
    /// record is queued. `P15.16`
    pub(crate) fn push_late_done(&mut self, transfer: u32) {
        let is_alone = self.is_empty();
        self.push_done(transfer, DoneStatus::Complete);
        self.is_late = is_alone;
    }

    /// Removes the completion that waits for the program's next call.
    pub(crate) fn take_late_done(&mut self) -> Option<Done> {
        if !core::mem::take(&mut self.is_late) {
            return None;
        }
        match self.waiting.pop_front() {
            Some(Control::Done(done)) => Some(done),
            _ => None,
        }
    }

    /// Returns true if a completion waits for the program's next call, and nothing else is queued.
    #[inline]
    pub(crate) fn is_late(&self) -> bool {
        self.is_late
    }

    /// Returns true if any record must be sent before the program's next call.
    #[inline]
    pub(crate) fn has_urgent(&self) -> bool {
        !self.is_empty() && !self.is_late
    }

    /// Replaces the queued reply to operation `op` of `lane` by a refusal.
    pub(crate) fn refuse(&mut self, lane: LaneId, op: u32, fault: RemoteFault) {
        for control in &mut self.waiting {
            if let Control::Reply(reply) = control
                && (reply.lane, reply.op) == (lane, op)
            {
                reply.status = fault.status();
            }
        }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.waiting.clear();
        self.is_late = false;
        self.last_grant = None;
    }

    /// Writes the records that fit `out`; returns the bytes written.
    pub(crate) fn emit(&mut self, out: &mut [u8]) -> usize {
        let mut len = 0;
        self.is_late = false;
        while len + CONTROL_LEN_MAX <= out.len()
            && let Some(control) = self.waiting.pop_front()
        {
            let out = &mut out[len..];
            len += match control {
                Control::Grant(grant) => {
                    self.last_grant = Some(grant);
                    grant.emit(out);
                    GRANT_LEN
                }
                Control::Done(done) => {
                    done.emit(out);
                    DONE_LEN
                }
                Control::Reply(reply) => {
                    reply.emit(out);
                    REMOTE_REPLY_LEN
                }
                Control::Source(source) => {
                    source.emit(out);
                    REMOTE_SOURCE_LEN
                }
                Control::StreamMark(mark) => {
                    mark.emit(out);
                    STREAM_MARK_LEN
                }
            };
        }
        len
    }

    /// Returns the last grant sent, if it may have to be repeated.
    #[inline]
    pub(crate) fn last_grant(&self) -> Option<Grant> {
        self.last_grant
    }

    /// Discards the last grant, which has reached its transfer.
    pub(crate) fn forget_grant(&mut self) {
        self.last_grant = None;
    }
}
