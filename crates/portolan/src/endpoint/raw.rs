// SPDX-License-Identifier: MIT OR Apache-2.0
//! Operations of an endpoint: what its caller said of each, and how each ended.

use super::types::{PeerIndex, RawCompletion, RawError, RawKind, RawPiece};
use crate::engine::Inner;
use crate::ops::OpKind;
use portolan_proto::{Label, OpError, OpId, PeerId};
use std::collections::VecDeque;
use std::ops::Range;
use std::ptr;

/// Sends, puts, gets and atomic operations that have not ended, injected ones included: a program
/// that does not wait for its peers would otherwise fill memory with what it injects.
const ASKED_MAX: usize = 32_768;

/// What is known of an operation beside its memory.
#[derive(Clone, Debug)]
pub(crate) struct RawOp {
    pub(crate) op: OpId,
    pub(crate) context: u64,
    pub(crate) kind: RawKind,
    pub(crate) what: RawWhat,
    /// Counted among what waits for this peer.
    pub(crate) waits_for: Option<PeerId>,
}

#[derive(Clone, Debug)]
pub(crate) enum RawWhat {
    /// Completed once; `true` for a send that ends when the receiver has it.
    Send(bool),
    /// Nobody waits for it: a message that was copied, or one that is thrown away.
    Silent,
    Recv,
    /// Received into memory of the library, and then handed out to pieces.
    Scatter(Box<[RawPiece]>),
    /// A buffer for many messages.
    Many(Many),
    /// A part of such a buffer.
    Part(OpId),
}

/// A buffer for many messages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Many {
    pub(crate) buffer: RawPiece,
    /// Messages that are on their way into it.
    pub(crate) open_count: usize,
    /// It takes no more messages.
    pub(crate) is_closed: bool,
    /// Why, if not because it is full.
    pub(crate) error: Option<RawError>,
}

/// See the module documentation.
#[derive(Default)]
pub(crate) struct Raw {
    /// By place of the operation.
    ops: Vec<Option<RawOp>>,
    /// In which order they were entered.
    numbers: Vec<u64>,
    next_number: u64,
    pub(crate) done: VecDeque<RawCompletion>,
    /// By peer: operations that only it can end.
    waits: Vec<u32>,
    /// Operations that are no receives.
    asked_count: usize,
}

// SAFETY: the pointers in it belong to operations that the caller has submitted; they are
// dereferenced through `&mut` of the endpoint only, by whichever thread has it.
unsafe impl Send for Raw {}

impl Raw {
    pub(crate) fn insert(&mut self, raw: RawOp) {
        let index = place_of(raw.op);
        if index >= self.ops.len() {
            self.ops.resize(index + 1, None);
            self.numbers.resize(index + 1, 0);
        }
        self.asked_count += usize::from(raw.asks());
        self.numbers[index] = self.next_number;
        self.next_number += 1;
        self.ops[index] = Some(raw);
    }

    /// Takes what is known of `op`; `None` for one that has ended.
    #[inline]
    fn take(&mut self, op: OpId) -> Option<RawOp> {
        let place = self.ops.get_mut(place_of(op))?;
        let ended = place.take_if(|raw| raw.op == op)?;
        self.asked_count -= usize::from(ended.asks());
        Some(ended)
    }

    /// No more can be asked of peers before something has ended.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.asked_count >= ASKED_MAX
    }

    fn get_mut(&mut self, op: OpId) -> Option<&mut RawOp> {
        let place = self.ops.get_mut(place_of(op))?.as_mut();
        place.filter(|raw| raw.op == op)
    }

    /// Whether nobody waits for `op`: it was injected, so its sender takes it for sent.
    pub(crate) fn is_silent(&self, op: OpId) -> bool {
        let found = self.ops.get(place_of(op)).and_then(Option::as_ref);
        found.is_some_and(|raw| matches!(raw.what, RawWhat::Silent))
    }

    /// Whether `op` is a send that ends when the receiver has it.
    fn is_delivered(&self, op: OpId) -> bool {
        let found = self.ops.get(place_of(op)).and_then(Option::as_ref);
        found.is_some_and(|raw| matches!(raw.what, RawWhat::Send(true)))
    }

    /// The receives with this context that are posted, or were until now, the oldest first.
    pub(crate) fn posted_with(&self, context: u64) -> Vec<OpId> {
        let all = self.ops.iter().flatten();
        let receives = all.filter(|raw| {
            matches!(
                raw.what,
                RawWhat::Recv | RawWhat::Scatter(_) | RawWhat::Many(_)
            )
        });
        let found = receives.filter(|raw| raw.context == context);
        let mut ops: Vec<_> = found.map(|raw| raw.op).collect();
        ops.sort_by_key(|&op| self.numbers[place_of(op)]);
        ops
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

    /// Whether there is an operation that only `peer` can end.
    pub(super) fn waits_for(&self, peer: PeerId) -> bool {
        self.waits
            .get(peer.0 as usize)
            .is_some_and(|&count| count > 0)
    }

    /// One less; `true` if it was the last.
    fn unwait(&mut self, peer: PeerId) -> bool {
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
            OpError::Remote(_, fault) => RawError::Remote(fault),
            OpError::MemoryFull { held_len, limit } => {
                RawError::UnexpectedMemoryFull { held_len, limit }
            }
            _ => RawError::Cancelled,
        }
    }
}

impl RawOp {
    /// Whether it is no receive.
    fn asks(&self) -> bool {
        !matches!(self.kind, RawKind::Recv | RawKind::RecvTagged)
    }

    /// A completion without a message.
    fn completion(&self) -> RawCompletion {
        RawCompletion {
            context: self.context,
            kind: self.kind,
            peer: self.waits_for.map(|peer| PeerIndex(peer.0)),
            len: 0,
            tag: 0,
            imm: None,
            buf: ptr::null_mut(),
            released: matches!(self.what, RawWhat::Many(_)),
            error: None,
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

    /// Forgets an operation that was not accepted.
    pub(super) fn forget_raw(&mut self, op: OpId) {
        self.take_raw(op);
        self.ops.forget(op);
    }

    #[inline]
    fn complete_raw(&mut self, completion: RawCompletion) {
        if let Some(raw) = &mut self.raw {
            raw.done.push_back(completion);
        }
    }

    /// Whether a message that is short enough to leave at once must be announced all the same, so
    /// that its sender hears of its arrival.
    #[inline]
    pub(crate) fn must_ask(&self, op: OpId) -> bool {
        let raw = self.raw.as_ref();
        raw.is_some_and(|raw| raw.is_delivered(op)) && !self.ops.bytes(op).is_empty()
    }

    /// What an endpoint has sent, or asked of a peer's memory, has ended.
    pub(crate) fn end_raw_send(&mut self, op: OpId, peer: PeerId, result: Result<(), OpError>) {
        let len = self.ops.bytes(op).len() as u64;
        let Some(ended) = self.take_raw(op) else {
            return;
        };
        match &ended.what {
            RawWhat::Silent => return,
            RawWhat::Scatter(pieces) if result.is_ok() => scatter(self.ops.bytes(op), pieces),
            _ => {}
        }
        self.complete_raw(RawCompletion {
            peer: Some(PeerIndex(peer.0)),
            len,
            error: result.err().map(RawError::from),
            ..ended.completion()
        });
    }

    /// A receive of an endpoint has its message, of which as much as fits lies in its memory. The
    /// caller forgets the operation.
    #[inline]
    pub(crate) fn end_raw_recv(&mut self, op: OpId, peer: PeerId, label: &Label, message_len: u64) {
        let bytes = self.ops.bytes_mut(op);
        let (buf, buf_len) = (bytes.as_mut_ptr(), bytes.len() as u64);
        let Some(ended) = self.take_raw(self.ops.real(op)) else {
            return;
        };
        let len = message_len.min(buf_len);
        let mut completion = RawCompletion {
            peer: Some(PeerIndex(peer.0)),
            len,
            tag: label.tag,
            imm: label.imm,
            buf,
            error: (len < message_len).then_some(RawError::Truncated { message_len }),
            ..ended.completion()
        };
        match ended.what {
            RawWhat::Recv | RawWhat::Send(_) | RawWhat::Many(_) => {}
            RawWhat::Silent => return,
            RawWhat::Scatter(pieces) => {
                completion.buf = pieces.first().map_or(ptr::null_mut(), |first| first.ptr);
                let len = usize::try_from(len).unwrap_or(0);
                scatter(&self.ops.bytes(op)[..len], &pieces);
            }
            RawWhat::Part(whole) => return self.end_part(whole, completion),
        }
        self.complete_raw(completion);
    }

    /// A receive of an endpoint has ended without a message.
    pub(crate) fn end_raw_recv_failed(&mut self, op: OpId, error: OpError) {
        let real = self.ops.real(op);
        let raw = self.raw.as_mut();
        if let Some(RawOp {
            what: RawWhat::Many(many),
            ..
        }) = raw.and_then(|raw| raw.get_mut(real))
        {
            (many.is_closed, many.error) = (true, Some(error.into()));
            if many.open_count > 0 {
                // The last of its messages releases it.
                return;
            }
        }
        self.ops.forget(op);
        let Some(ended) = self.take_raw(real) else {
            return;
        };
        let completion = RawCompletion {
            error: Some(error.into()),
            ..ended.completion()
        };
        match ended.what {
            RawWhat::Silent => {}
            RawWhat::Part(whole) => self.end_part(whole, completion),
            _ => self.complete_raw(completion),
        }
    }

    /// A buffer for many messages has taken one, for the bytes `range` of it.
    pub(crate) fn begin_raw_part(
        &mut self,
        op: OpId,
        part: OpId,
        range: Range<u64>,
        is_last: bool,
    ) {
        let raw = self.raw.as_mut();
        let Some(whole) = raw.and_then(|raw| raw.get_mut(op)) else {
            return;
        };
        let RawWhat::Many(many) = &mut whole.what else {
            return;
        };
        many.open_count += 1;
        many.is_closed |= is_last;
        let offset = |off: u64| usize::try_from(off).unwrap_or(usize::MAX);
        let piece = RawPiece {
            ptr: many.buffer.ptr.wrapping_add(offset(range.start)),
            len: offset(range.end - range.start),
        };
        let (context, kind) = (whole.context, whole.kind);
        // SAFETY: `recv_multi`'s caller lends the buffer until its last completion, and no other
        // part has these bytes.
        let id = unsafe { self.lend(piece, OpKind::RecvTagged { source: None }) };
        self.ops.name_part(part, id);
        if let Some(raw) = &mut self.raw {
            raw.insert(RawOp {
                op: id,
                context,
                kind,
                what: RawWhat::Part(op),
                waits_for: None,
            });
        }
    }

    /// A message in a buffer for many has ended; the last one gives the buffer back.
    fn end_part(&mut self, whole: OpId, mut completion: RawCompletion) {
        let raw = self.raw.as_mut().and_then(|raw| raw.get_mut(whole));
        let mut error = None;
        completion.released = false;
        if let Some(RawOp {
            what: RawWhat::Many(many),
            ..
        }) = raw
        {
            many.open_count -= 1;
            completion.released = many.is_closed && many.open_count == 0;
            error = many.error;
        }
        if !completion.released {
            return self.complete_raw(completion);
        }
        self.ops.forget(whole);
        let ended = self.take_raw(whole);
        // What was withdrawn is told of by a completion of its own, the last.
        completion.released = error.is_none();
        self.complete_raw(completion);
        if let (Some(_), Some(ended)) = (error, ended) {
            self.complete_raw(RawCompletion {
                error,
                ..ended.completion()
            });
        }
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
            unsafe { ptr::copy_nonoverlapping(now.as_ptr(), piece.ptr, len) };
        }
        bytes = rest;
    }
}
