// SPDX-License-Identifier: MIT OR Apache-2.0
//! Operations that may complete within their call, and are then reported immediately.

#![allow(unsafe_code, reason = "passes memory of the application to the engine")]

use portolan::binding::{RawEnvelope, RawPiece, RawSend, Sent};

use super::State;
use super::op::Op;
use super::queue::Entry;
use crate::abi::{REMOTE_CQ_DATA, SEND};
use crate::errno::Errno;

impl State {
    /// Sends a message.
    ///
    /// # Safety
    /// The pieces stay valid until the completion.
    #[inline(always)]
    pub(crate) unsafe fn send(
        &mut self,
        at: usize,
        to: u64,
        what: &RawSend,
        pieces: &[RawPiece],
        op: &Op,
    ) -> Result<(), Errno> {
        // SAFETY: guaranteed by the caller.
        let sent = unsafe { self.eps[at].send(to, what, pieces, op) }?;
        if sent == Sent::Done {
            self.delivery(at).succeed(op, op.entry());
        }
        Ok(())
    }

    pub(crate) fn send_copy(
        &mut self,
        at: usize,
        to: u64,
        what: &RawSend,
        bytes: &[u8],
        op: &Op,
    ) -> Result<(), Errno> {
        self.eps[at].inject(to, what, bytes)?;
        self.delivery(at).succeed(op, op.entry());
        Ok(())
    }

    /// Sends a copy, without a completion.
    #[inline(always)]
    pub(crate) fn inject(
        &mut self,
        at: usize,
        to: u64,
        what: &RawSend,
        bytes: &[u8],
    ) -> Result<(), Errno> {
        self.eps[at].inject(to, what, bytes)?;
        self.delivery(at).count(SEND);
        Ok(())
    }

    /// Reports a message that a peek found, of which `len` bytes were found.
    pub(crate) fn found(&mut self, at: usize, op: &Op, envelope: &RawEnvelope, len: usize) {
        let has_data = match envelope.imm {
            Some(_) => REMOTE_CQ_DATA,
            None => 0,
        };
        let entry = Entry {
            flags: op.flags() | has_data,
            len,
            data: envelope.imm.unwrap_or(0),
            tag: envelope.tag,
            source: self.eps[at].index_of(envelope.source),
            ..op.entry()
        };
        self.delivery(at).found(op, entry);
    }

    /// Reports that a peek found no message.
    pub(crate) fn not_found(&mut self, at: usize, op: &Op) {
        let why = self.eps[at].shortage();
        self.delivery(at).not_found(op, why);
    }
}
