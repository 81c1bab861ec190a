// SPDX-License-Identifier: MIT OR Apache-2.0
//! Piggybacking: credit, control records, acknowledgements and the last grant are appended to a
//! frame that leaves anyway, or to a frame sent for them.
//!
//! Invariant: a record is taken from its queue only if it fits the frame.

use super::Peer;
use crate::Instant;
use crate::mem::slot::SlotId;
use crate::path::OpenFrame;
use crate::shared::Shared;
use portolan_wire::GRANT_LEN;

impl Peer {
    /// Appends credit, grants and ends of transfers. They make the frame a numbered one, which
    /// requires `room` in the window.
    pub(crate) fn append_control(
        &mut self,
        sh: &mut Shared,
        frame: &mut OpenFrame,
        limit: usize,
        room: bool,
    ) {
        if !self.has_control() || !frame.numbered && !room {
            return;
        }
        if self.stream.eager().owes_ack() {
            self.push_stream_ack();
        }
        // An acknowledgement that is due does not take the completion from its answer.
        let leaves_control = self.control.is_late() && self.pushes_next(sh);
        if self.control.is_late() && !leaves_control {
            self.stream.on_late_done_sent(frame.numbered);
        }
        let bytes = sh.slots.bytes_mut(frame.slot);
        let limit = limit.min(bytes.len());
        let credit_len = self.lanes.emit_credit(
            sh.ctx.credit_len(),
            bytes.get_mut(frame.len..limit).unwrap_or(&mut []),
        );
        frame.len += credit_len;
        frame.numbered |= credit_len > 0;
        if leaves_control {
            return;
        }
        let control_len = self
            .control
            .emit(bytes.get_mut(frame.len..limit).unwrap_or(&mut []));
        frame.len += control_len;
        frame.numbered |= control_len > 0;
    }

    /// Appends the acknowledgements of every path that has any pending. `P3.5`
    #[inline]
    pub(crate) fn append_acks(
        &mut self,
        now: Instant,
        sh: &mut Shared,
        frame: &mut OpenFrame,
        limit: usize,
    ) {
        let bytes = sh.slots.bytes_mut(frame.slot);
        let limit = limit.min(bytes.len());
        let out = bytes.get_mut(frame.len..limit).unwrap_or(&mut []);
        frame.len += self.paths.emit_acks(now, sh.ctx.poll_gap(), out);
    }

    /// Repeats the last grant beside an acknowledgement. If the first was lost, its transfer would
    /// otherwise stall for a timeout. `P5.11`
    #[cold]
    pub(crate) fn repeat_grant(&mut self, sh: &mut Shared, frame: &mut OpenFrame, limit: usize) {
        let Some(grant) = self.control.last_grant() else {
            return;
        };
        if sh.transfers.has_taken_effect(&grant) {
            self.control.forget_grant();
            return;
        }
        let bytes = sh.slots.bytes_mut(frame.slot);
        let limit = limit.min(bytes.len());
        if frame.len + GRANT_LEN <= limit {
            grant.emit(&mut bytes[frame.len..]);
            frame.len += GRANT_LEN;
        }
    }

    /// Appends credit and acknowledgements in the room after a run; returns the bytes written.
    pub(crate) fn append_to_run(
        &mut self,
        now: Instant,
        sh: &mut Shared,
        (slot, at, end): (SlotId, usize, usize),
    ) -> usize {
        let bytes = sh.slots.bytes_mut(slot);
        let out = bytes.get_mut(at..end).unwrap_or(&mut []);
        let credit_len = self.lanes.emit_credit(sh.ctx.credit_len(), out);
        let acks_len = self
            .paths
            .emit_acks(now, sh.ctx.poll_gap(), &mut out[credit_len..]);
        credit_len + acks_len
    }
}
