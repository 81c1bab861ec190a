// SPDX-License-Identifier: MIT OR Apache-2.0
//! Control records: grants, ends of transfers and answers, which wait for any frame to the peer.

use alloc::collections::VecDeque;
use portolan_wire::{
    DONE_LEN, Done, DoneStatus, GRANT_LEN, Grant, REMOTE_ANSWER_LEN, REMOTE_SOURCE_LEN,
    RemoteAnswer, RemoteSource,
};

/// A record that waits for a frame.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Control {
    Grant(Grant),
    Done(Done),
    Answer(RemoteAnswer),
    Source(RemoteSource),
}

/// The longest of the control records.
const CONTROL_LEN_MAX: usize = GRANT_LEN;
const _: () = assert!(
    CONTROL_LEN_MAX >= DONE_LEN
        && CONTROL_LEN_MAX >= REMOTE_ANSWER_LEN
        && CONTROL_LEN_MAX >= REMOTE_SOURCE_LEN
);

/// Those that wait for one peer, in order.
#[derive(Debug, Default)]
pub(crate) struct ControlQueue {
    waiting: VecDeque<Control>,
    /// The grant that was sent last, while its transfer may wait for it. `P5.11`
    last_grant: Option<Grant>,
}

impl ControlQueue {
    #[inline]
    pub(crate) fn push(&mut self, control: Control) {
        self.waiting.push_back(control);
    }

    /// Tells the peer how its transfer has ended.
    pub(crate) fn push_done(&mut self, transfer: u32, status: DoneStatus) {
        self.push(Control::Done(Done { status, transfer }));
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.waiting.clear();
        self.last_grant = None;
    }

    /// Writes those that fit `out`; returns the bytes they take.
    pub(crate) fn emit(&mut self, out: &mut [u8]) -> usize {
        let mut len = 0;
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
                Control::Answer(answer) => {
                    answer.emit(out);
                    REMOTE_ANSWER_LEN
                }
                Control::Source(source) => {
                    source.emit(out);
                    REMOTE_SOURCE_LEN
                }
            };
        }
        len
    }

    /// The grant that was sent last, if it may have to be said again.
    #[inline]
    pub(crate) fn last_grant(&self) -> Option<Grant> {
        self.last_grant
    }

    /// The last grant has reached its transfer.
    pub(crate) fn forget_grant(&mut self) {
        self.last_grant = None;
    }
}
