// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages matched by match bits, between the core and the table of operations.

use super::{Inbox, Inner};
use crate::error::Error;
use crate::ops::{OpKind, Owner, Received};
use portolan_proto::{Admitted, MatchBits, MessageDest, OpId, PeerId};
use portolan_sys::usage;

impl Inner {
    /// Takes the next message of a frame directly, if it has match bits and its receive is posted.
    #[inline]
    pub(super) fn take_tagged(
        &mut self,
        frame: &mut Admitted,
        head: &[u8],
        inbox: Option<&mut Inbox<'_>>,
    ) -> bool {
        let want = inbox.as_ref().map(|inbox| &inbox.want);
        let Some(taken) = self.core.take_tagged(frame, head, want) else {
            return false;
        };
        let bytes = &head[taken.off..taken.off + taken.len];
        let (match_bits, len) = (taken.match_bits, taken.len as u64);
        let op = match (taken.dest, inbox) {
            (MessageDest::Posted(op), _) => op,
            (MessageDest::Waiting, Some(inbox)) => {
                inbox.fill(frame.from, bytes, Some(match_bits));
                return true;
            }
            _ => {
                usage::count_copy();
                return true;
            }
        };
        let is_callers = self.end_raw_recv(op, frame.from, &match_bits, len, Some(bytes));
        if !is_callers && self.ops.fill(op, bytes, frame.from.0, Some(match_bits)) {
            self.ops.forget(op);
        }
        true
    }

    /// Completes a tagged receive with its message.
    pub(super) fn complete_tagged(
        &mut self,
        op: OpId,
        peer: PeerId,
        match_bits: MatchBits,
        len: u64,
        truncated: bool,
    ) {
        if let Some(error) = self.take_fault(op) {
            return self.fail_recv(op, error);
        }
        match self.ops.owner(op) {
            Some(Owner::Request(_)) => {}
            Some(Owner::Caller(_)) => {
                self.end_raw_recv(op, peer, &match_bits, len, None);
                return;
            }
            Some(Owner::None) | None => return self.ops.forget(op),
        }
        if truncated {
            let error = Error::TruncatedTagged {
                source_rank: peer.0,
                tag: match_bits.tag,
                imm: match_bits.imm,
                message_len: len,
                buffer_len: self.ops.bytes(op).len(),
            };
            self.ops.fail(op, error);
            return;
        }
        let received = Received {
            len: usize::try_from(len).unwrap_or(usize::MAX),
            source: peer.0,
        };
        self.ops.complete_ok(op, received, Some(match_bits));
    }

    /// Withdraws a posted receive. Returns `false` if `op` is not a receive or has matched a
    /// message.
    pub(crate) fn withdraw(&mut self, op: OpId) -> bool {
        match self.ops.kind(op) {
            Some(OpKind::Recv { port, .. }) => self.core.cancel_recv(port, op),
            Some(OpKind::RecvTagged { .. }) => self.core.cancel_tagged(op),
            _ => false,
        }
    }
}
