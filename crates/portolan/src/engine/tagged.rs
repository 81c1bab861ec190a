// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages matched by label, between the core and the table of operations.

use super::Inner;
use crate::error::Error;
use crate::ops::{OpKind, Owner, Received};
use portolan_proto::{Admitted, Label, OpId, PeerId};

impl Inner {
    /// Takes the next message of a frame the short way, if it has a label and finds its receive.
    #[inline]
    pub(super) fn take_labelled(&mut self, frame: &mut Admitted, head: &[u8]) -> bool {
        let Some(taken) = self.core.take_labelled(frame, head) else {
            return false;
        };
        let bytes = &head[taken.off..taken.off + taken.len];
        let (op, label, len) = (taken.op, taken.label, taken.len as u64);
        if self.ops.raw(op).is_some() {
            self.end_raw_recv(op, frame.from, &label, len, Some(bytes));
        } else if self.ops.fill(op, bytes, frame.from.0, Some(label)) {
            self.ops.forget(op);
        }
        true
    }

    /// A tagged receive has its message.
    pub(super) fn complete_labelled(
        &mut self,
        op: OpId,
        peer: PeerId,
        label: Label,
        len: u64,
        truncated: bool,
    ) {
        match self.ops.owner(op) {
            Some(Owner::Request(_)) => {}
            Some(Owner::Caller(_)) => return self.end_raw_recv(op, peer, &label, len, None),
            Some(Owner::Nobody) | None => return self.ops.forget(op),
        }
        if truncated {
            let error = Error::TruncatedTagged {
                source_rank: peer.0,
                tag: label.tag,
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
        self.ops.complete_ok(op, received, Some(label));
    }

    /// Withdraws a posted receive; `false` if it is none, or has matched a message.
    pub(crate) fn withdraw(&mut self, op: OpId) -> bool {
        match self.ops.kind(op) {
            Some(OpKind::Recv { port, .. }) => self.core.cancel_recv(port, op),
            Some(OpKind::RecvTagged { .. }) => self.core.cancel_tagged(op),
            _ => false,
        }
    }
}
