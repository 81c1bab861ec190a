// SPDX-License-Identifier: MIT OR Apache-2.0
//! Operations of an endpoint: what its caller said of each, and how each ended.

use super::types::{PeerIndex, RawCompletion, RawError, RawKind, RawPiece, RawRecv, RawSpace};
use crate::engine::Inner;
use portolan_proto::{OpError, OpId, PeerId};
use std::collections::VecDeque;

/// What is known of an operation beside its memory.
#[derive(Clone, Debug)]
pub(crate) struct RawOp {
    pub(crate) op: OpId,
    pub(crate) context: u64,
    pub(crate) what: RawWhat,
    /// Counted among what waits for this peer.
    pub(crate) waits_for: Option<PeerId>,
}

#[derive(Clone, Debug)]
pub(crate) enum RawWhat {
    Send,
    /// Copied; nobody waits for it.
    Inject,
    Recv(RawRecv),
    /// Received into memory of the library, and then handed out to pieces.
    Scatter(RawRecv, Box<[RawPiece]>),
    Multi(RawRecv, Multi),
}

/// A buffer for many messages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Multi {
    pub(crate) buffer: RawPiece,
    pub(crate) off: usize,
    pub(crate) min_free: usize,
}

/// See the module documentation.
#[derive(Default)]
pub(crate) struct Raw {
    /// By place of the operation.
    ops: Vec<Option<RawOp>>,
    pub(crate) done: VecDeque<RawCompletion>,
    /// By peer: operations that only it can end.
    waits: Vec<u32>,
}

// SAFETY: the pointers in it belong to operations that the caller has submitted; they are
// dereferenced through `&mut` of the endpoint only, by whichever thread has it.
unsafe impl Send for Raw {}

impl Raw {
    pub(crate) fn insert(&mut self, raw: RawOp) {
        let index = place_of(raw.op);
        if index >= self.ops.len() {
            self.ops.resize(index + 1, None);
        }
        self.ops[index] = Some(raw);
    }

    /// Takes what is known of `op`; `None` for one that has ended.
    #[inline]
    pub(crate) fn take(&mut self, op: OpId) -> Option<RawOp> {
        let place = self.ops.get_mut(place_of(op))?;
        place.take_if(|raw| raw.op == op)
    }

    /// The oldest receive with this context.
    pub(crate) fn find_recv(&self, context: u64) -> Option<OpId> {
        let all = self.ops.iter().flatten();
        let receives = all.filter(|raw| !matches!(raw.what, RawWhat::Send | RawWhat::Inject));
        let found = receives.filter(|raw| raw.context == context);
        found.map(|raw| raw.op).min_by_key(|op| op.0 >> 32)
    }

    /// One operation more that only `peer` can end; `true` if it is the first.
    pub(crate) fn wait(&mut self, peer: PeerId) -> bool {
        let index = peer.0 as usize;
        if index >= self.waits.len() {
            self.waits.resize(index + 1, 0);
        }
        self.waits[index] += 1;
        self.waits[index] == 1
    }

    /// One less; `true` if it was the last.
    pub(crate) fn unwait(&mut self, peer: PeerId) -> bool {
        let Some(count) = self.waits.get_mut(peer.0 as usize) else {
            return false;
        };
        *count = count.saturating_sub(1);
        *count == 0
    }
}

fn place_of(op: OpId) -> usize {
    usize::try_from(op.0 & u64::from(u32::MAX)).unwrap_or(usize::MAX)
}

impl From<OpError> for RawError {
    fn from(error: OpError) -> RawError {
        match error {
            OpError::PeerGone(_, cause) => RawError::PeerGone(cause),
            OpError::Truncated { message_len } => RawError::Truncated { message_len },
            OpError::Refused => RawError::Refused,
            _ => RawError::Cancelled,
        }
    }
}

impl RawWhat {
    fn kind(&self) -> RawKind {
        match self {
            RawWhat::Send | RawWhat::Inject => RawKind::Send,
            RawWhat::Recv(spec) | RawWhat::Scatter(spec, _) | RawWhat::Multi(spec, _) => {
                match spec.space {
                    RawSpace::Plain => RawKind::Recv,
                    RawSpace::Tagged(_) => RawKind::RecvTagged,
                }
            }
        }
    }
}

impl Inner {
    /// Takes an operation that has ended out of the books.
    #[inline]
    fn take_raw(&mut self, op: OpId) -> Option<RawOp> {
        let raw = self.raw.as_mut()?;
        let ended = raw.take(op)?;
        if let Some(peer) = ended.waits_for
            && raw.unwait(peer)
        {
            self.peers[peer.0 as usize].watched_since = None;
        }
        Some(ended)
    }

    fn complete_raw(&mut self, completion: RawCompletion) {
        if let Some(raw) = &mut self.raw {
            raw.done.push_back(completion);
        }
    }

    /// A send of an endpoint has ended.
    pub(crate) fn end_raw_send(&mut self, op: OpId, peer: PeerId, result: Result<(), OpError>) {
        let len = self.ops.bytes(op).len() as u64;
        let Some(ended) = self.take_raw(op) else {
            return;
        };
        if matches!(ended.what, RawWhat::Inject) {
            return;
        }
        self.complete_raw(RawCompletion {
            context: ended.context,
            kind: RawKind::Send,
            peer: Some(PeerIndex(peer.0)),
            len,
            tag: 0,
            imm: None,
            buf: std::ptr::null_mut(),
            released: true,
            error: result.err().map(RawError::from),
        });
    }

    /// A receive of an endpoint has its message, of which as much as fits lies in its memory.
    #[inline]
    pub(crate) fn end_raw_recv(&mut self, op: OpId, peer: PeerId, message_len: u64) {
        let bytes = self.ops.bytes_mut(op);
        let (buf, buf_len) = (bytes.as_mut_ptr(), bytes.len() as u64);
        let Some(ended) = self.take_raw(op) else {
            self.ops.forget(op);
            return;
        };
        let len = message_len.min(buf_len);
        let error = (len < message_len).then_some(RawError::Truncated { message_len });
        let mut completion = RawCompletion {
            context: ended.context,
            kind: ended.what.kind(),
            peer: Some(PeerIndex(peer.0)),
            len,
            tag: 0,
            imm: None,
            buf,
            released: true,
            error,
        };
        match ended.what {
            RawWhat::Scatter(_, pieces) => {
                completion.buf = pieces
                    .first()
                    .map_or(std::ptr::null_mut(), |first| first.ptr);
                scatter(
                    &self.ops.bytes(op)[..usize::try_from(len).unwrap_or(0)],
                    &pieces,
                );
                self.ops.forget(op);
            }
            RawWhat::Multi(spec, multi) => {
                self.ops.forget(op);
                let len = usize::try_from(len).unwrap_or(usize::MAX);
                let off = multi.off + len;
                let free = multi.buffer.len - off;
                completion.released = free == 0 || free < multi.min_free;
                if !completion.released {
                    self.post_multi(spec, Multi { off, ..multi }, ended.context);
                }
            }
            _ => self.ops.forget(op),
        }
        self.complete_raw(completion);
    }

    /// A receive of an endpoint has ended without a message.
    pub(crate) fn end_raw_recv_failed(&mut self, op: OpId, error: OpError) {
        self.ops.forget(op);
        let Some(ended) = self.take_raw(op) else {
            return;
        };
        let source = match &ended.what {
            RawWhat::Recv(spec) | RawWhat::Scatter(spec, _) | RawWhat::Multi(spec, _) => {
                spec.source
            }
            RawWhat::Send | RawWhat::Inject => None,
        };
        self.complete_raw(RawCompletion {
            context: ended.context,
            kind: ended.what.kind(),
            peer: source,
            len: 0,
            tag: 0,
            imm: None,
            buf: std::ptr::null_mut(),
            released: true,
            error: Some(error.into()),
        });
    }
}

/// Hands `bytes` out to `pieces`.
fn scatter(mut bytes: &[u8], pieces: &[RawPiece]) {
    for piece in pieces {
        let len = piece.len.min(bytes.len());
        let (now, rest) = bytes.split_at(len);
        if len > 0 {
            // SAFETY: the caller of `recv` has promised that the piece may be written until the
            // completion is handed out, which is later; `bytes` is memory of the library.
            unsafe { std::ptr::copy_nonoverlapping(now.as_ptr(), piece.ptr, len) };
        }
        bytes = rest;
    }
}
