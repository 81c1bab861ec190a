// SPDX-License-Identifier: MIT OR Apache-2.0
//! What rides along: credit, control records, acknowledgements and the last grant, appended to a
//! frame that leaves anyway, or to one that leaves for them.
//!
//! The one invariant: nothing is taken from where it waits that does not fit the frame.

use super::{Control, Peer};
use crate::Instant;
use crate::path::{OpenFrame, Run};
use crate::shared::Shared;
use portolan_wire::{
    CREDIT_LEN, Credit, DONE_LEN, GRANT_LEN, LaneId, REMOTE_ANSWER_LEN, REMOTE_SOURCE_LEN,
};

/// The longest of the control records.
const CONTROL_LEN_MAX: usize = GRANT_LEN;
const _: () = assert!(
    CONTROL_LEN_MAX >= DONE_LEN
        && CONTROL_LEN_MAX >= REMOTE_ANSWER_LEN
        && CONTROL_LEN_MAX >= REMOTE_SOURCE_LEN
);

impl Peer {
    /// Credit, grants and ends of transfers; they make the frame a numbered one, for which there
    /// must be `room` in the window.
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
        let bytes = sh.slots.bytes_mut(frame.slot);
        let limit = limit.min(bytes.len());
        let credit_len = self.emit_credit(
            sh.ctx.credit_len(),
            bytes.get_mut(frame.len..limit).unwrap_or(&mut []),
        );
        frame.len += credit_len;
        frame.numbered |= credit_len > 0;
        while frame.len + CONTROL_LEN_MAX <= limit
            && let Some(control) = self.control.pop_front()
        {
            let out = &mut bytes[frame.len..];
            frame.len += match control {
                Control::Grant(grant) => {
                    self.last_grant = Some(grant);
                    grant.emit(out);
                    GRANT_LEN
                }
                Control::Done(done) => {
                    done.emit(out);
                    DONE_LEN
                }
                Control::Answer(answer) => {
                    answer.emit(out);
                    REMOTE_ANSWER_LEN
                }
                Control::Source(source) => {
                    source.emit(out);
                    REMOTE_SOURCE_LEN
                }
            };
            frame.numbered = true;
        }
    }

    /// Acknowledgements of every path that has something to acknowledge. `P3.5`
    #[inline]
    pub(crate) fn append_acks(
        &mut self,
        now: Instant,
        sh: &mut Shared,
        frame: &mut OpenFrame,
        limit: usize,
    ) {
        for path in self.paths.iter_mut().flatten() {
            if path.rx.unacked_count() == 0 {
                continue;
            }
            let bytes = sh.slots.bytes_mut(frame.slot);
            let limit = limit.min(bytes.len());
            let out = bytes.get_mut(frame.len..limit).unwrap_or(&mut []);
            frame.len += path.rx.emit(now, sh.ctx.poll_gap(), path.link.as_u8(), out);
        }
    }

    /// Says the last grant once more, beside an acknowledgement: had it been lost, its transfer would
    /// stand still for a timeout. `P5.11`
    #[cold]
    pub(crate) fn repeat_grant(&mut self, sh: &mut Shared, frame: &mut OpenFrame, limit: usize) {
        let Some(grant) = self.last_grant else { return };
        let transfer = sh.rx_transfers.get(grant.receiver_transfer);
        if transfer.is_none_or(|transfer| transfer.frontier >= grant.limit) {
            self.last_grant = None;
            return;
        }
        let bytes = sh.slots.bytes_mut(frame.slot);
        let limit = limit.min(bytes.len());
        if frame.len + GRANT_LEN <= limit {
            grant.emit(&mut bytes[frame.len..]);
            frame.len += GRANT_LEN;
        }
    }

    /// Credit and acknowledgements for the last frame of a run; returns the bytes they take.
    pub(crate) fn append_to_run(&mut self, now: Instant, sh: &mut Shared, run: &Run) -> usize {
        let mut end = run.off + run.len;
        let limit = end + run.room_in_last();
        let credit_len = sh.ctx.credit_len();
        let out = sh.slots.bytes_mut(run.slot).get_mut(end..limit);
        end += self.emit_credit(credit_len, out.unwrap_or(&mut []));
        for path in self.paths.iter_mut().flatten() {
            if path.rx.unacked_count() > 0 {
                let out = sh.slots.bytes_mut(run.slot).get_mut(end..limit);
                end += path.rx.emit(
                    now,
                    sh.ctx.poll_gap(),
                    path.link.as_u8(),
                    out.unwrap_or(&mut []),
                );
            }
        }
        end - run.off - run.len
    }

    /// Writes the credit of each lane that owes it and fits `out`; returns the bytes it takes.
    fn emit_credit(&mut self, credit_len: u32, out: &mut [u8]) -> usize {
        let mut len = 0;
        for lane in LaneId::ALL {
            if self.credit_due[lane.index()] && len + CREDIT_LEN <= out.len() {
                self.credit_due[lane.index()] = false;
                let limit = self.lanes_rx[lane.index()].advertise(credit_len);
                Credit { lane, limit }.emit(&mut out[len..]);
                len += CREDIT_LEN;
            }
        }
        len
    }
}
