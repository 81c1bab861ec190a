// SPDX-License-Identifier: MIT OR Apache-2.0
//! Completions of an endpoint's operations. Each operation has one completion, which is stored here
//! until the caller polls for it.
#![allow(
    unsafe_code,
    reason = "what was received is handed out to pieces of memory that the caller names by address"
)]

use super::Inner;
use crate::canary::Canary;
use crate::ops::{Ended, Memory, OpKind, Owner};
use crate::raw::{
    Cookie, Many, PeerIndex, RawCompletion, RawError, RawKind, RawOp, RawPiece, RawWhat,
};
use portolan_proto::{MatchBits, OpError, OpId, PeerId, copy};
use portolan_sys::memory::copy_raw;
use portolan_sys::usage;
use std::ops::Range;
use std::ptr;

/// Maximum number of sends, puts, gets and atomic operations in flight, injected ones included.
/// Without it, a program that does not wait for its peers would fill memory with injected messages.
const REQUESTS_MAX: usize = 32_768;

/// Completions that the caller has not taken. Empty in a node.
#[derive(Default)]
pub(crate) struct Completions {
    done: Vec<RawCompletion>,
    next_number: u64,
    /// Number of incomplete operations other than receives.
    request_count: usize,
}

// SAFETY: the pointers in it belong to the caller and are returned to it; they are never
// dereferenced.
unsafe impl Send for Completions {}

impl Completions {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.done.is_empty()
    }

    /// Takes all completions that are queued now.
    #[inline]
    pub(crate) fn drain(&mut self) -> impl ExactSizeIterator<Item = RawCompletion> + '_ {
        self.done.drain(..)
    }

    /// Tests whether an operation must complete before another one may be submitted.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.request_count >= REQUESTS_MAX
    }
}

impl Inner {
    /// Enters an operation of an endpoint's caller.
    #[inline]
    pub(crate) fn enter_raw(
        &mut self,
        kind: OpKind,
        memory: Memory,
        (raw_kind, what, cookie): (RawKind, RawWhat, Cookie),
    ) -> OpId {
        let number = self.completions.next_number;
        self.completions.next_number += 1;
        let raw = RawOp {
            cookie,
            kind: raw_kind,
            what,
            number,
        };
        self.completions.request_count += usize::from(raw.is_request());
        self.ops.enter(kind, memory, Owner::Caller(raw))
    }

    /// Removes a completed operation from the table.
    #[inline]
    fn take_raw(&mut self, op: OpId) -> Option<Ended> {
        let ended = self.ops.take_raw(op)?;
        self.completions.request_count -= usize::from(ended.raw.is_request());
        self.await_less(ended.awaited_peer);
        Some(ended)
    }

    /// Records that an operation which only this peer could complete has completed.
    #[inline]
    fn await_less(&mut self, awaited_peer: Option<PeerId>) {
        if let Some(peer) = awaited_peer {
            let info = &mut self.peers[peer.0 as usize];
            info.awaited_count -= 1;
            if info.awaited_count == 0 {
                info.watched_since = None;
            }
        }
    }

    /// Removes an operation that was not accepted.
    pub(crate) fn forget_raw(&mut self, op: OpId) {
        self.take_raw(op);
    }

    /// Queues `completion` for the next poll.
    #[inline]
    pub(crate) fn complete_raw(&mut self, completion: RawCompletion) {
        if Canary::CompleteTwice.strikes() && completion.cookie.context == 57 {
            self.completions.done.push(completion);
        }
        self.completions.done.push(completion);
    }

    /// Tests whether a message that is short enough for eager must use rendezvous, because its
    /// sender requires confirmation that it arrived.
    #[inline]
    pub(super) fn needs_rendezvous(&self, op: OpId) -> bool {
        let raw = self.ops.raw(op);
        raw.is_some_and(|raw| matches!(raw.what, RawWhat::Send(true)))
            && !self.ops.bytes(op).is_empty()
    }

    /// Returns the posted receives that match `wanted`, oldest first. Some may have just completed.
    pub(crate) fn posted_where(&self, wanted: impl Fn(&Cookie) -> bool) -> Vec<OpId> {
        let is_posted = |raw: &RawOp| {
            wanted(&raw.cookie)
                && !raw.is_request()
                && !matches!(raw.what, RawWhat::Silent | RawWhat::Part(_))
        };
        let found = self.ops.iter_raw().filter(|(_, raw)| is_posted(raw));
        let mut found: Vec<_> = found.map(|(op, raw)| (raw.number, op)).collect();
        found.sort_unstable();
        found.into_iter().map(|(_, op)| op).collect()
    }

    /// Completes a send, or an operation on a peer's memory.
    pub(super) fn end_raw_send(&mut self, op: OpId, peer: PeerId, result: Result<(), OpError>) {
        let Some(ended) = self.take_raw(op) else {
            return;
        };
        let bytes = ended.memory.bytes();
        match &ended.raw.what {
            RawWhat::Silent => return,
            RawWhat::Scatter(pieces) if result.is_ok() => scatter(bytes, pieces),
            _ => {}
        }
        self.complete_raw(RawCompletion {
            peer: Some(PeerIndex(peer.0)),
            len: bytes.len() as u64,
            error: result.err().map(RawError::from),
            ..ended.raw.completion(None)
        });
    }

    /// Completes a receive of an endpoint. The message is in the receive's memory as far as it
    /// fits, or in `payload`. Returns `false` without effect if `op` does not belong to an
    /// endpoint.
    #[inline]
    pub(super) fn end_raw_recv(
        &mut self,
        op: OpId,
        peer: PeerId,
        match_bits: &MatchBits,
        message_len: u64,
        payload: Option<&[u8]>,
    ) -> bool {
        let Some(recv) = self.ops.take_plain_recv(op) else {
            return self.end_other_recv(op, peer, match_bits, message_len, payload);
        };
        self.await_less(recv.awaited_peer);
        let len = message_len.min(recv.buf_len as u64);
        if let Some(payload) = payload.filter(|payload| payload.len() <= recv.buf_len) {
            // SAFETY: the caller of `recv` has exposed the buffer until the completion, which is
            // queued below. No other code has a reference to the bytes into which the frame is
            // copied.
            unsafe { copy_raw(payload.as_ptr(), recv.buf, payload.len()) };
        }
        self.complete_raw(RawCompletion {
            cookie: recv.cookie,
            kind: recv.kind,
            peer: Some(PeerIndex(peer.0)),
            len,
            tag: match_bits.tag,
            imm: match_bits.imm,
            buf: recv.buf,
            released: false,
            error: (len < message_len).then_some(RawError::Truncated { message_len }),
        });
        true
    }

    /// Completes a receive into several pieces, or for many messages.
    #[cold]
    fn end_other_recv(
        &mut self,
        op: OpId,
        peer: PeerId,
        match_bits: &MatchBits,
        message_len: u64,
        payload: Option<&[u8]>,
    ) -> bool {
        let Some(mut ended) = self.take_raw(op) else {
            return false;
        };
        let bytes = ended.memory.bytes_mut();
        if let Some(payload) = payload {
            usage::count_copy();
            copy(&mut bytes[..payload.len()], payload);
        }
        let (buf, buf_len) = (bytes.as_mut_ptr(), bytes.len() as u64);
        let len = message_len.min(buf_len);
        let mut completion = RawCompletion {
            peer: Some(PeerIndex(peer.0)),
            len,
            tag: match_bits.tag,
            imm: match_bits.imm,
            buf,
            error: (len < message_len).then_some(RawError::Truncated { message_len }),
            ..ended.raw.completion(None)
        };
        match ended.raw.what {
            RawWhat::Recv | RawWhat::Send(_) | RawWhat::Many(_) => {}
            RawWhat::Silent => return true,
            RawWhat::Scatter(pieces) => {
                completion.buf = pieces.first().map_or(ptr::null_mut(), |first| first.ptr);
                let len = usize::try_from(len).unwrap_or(0);
                scatter(&ended.memory.bytes()[..len], &pieces);
            }
            RawWhat::Part(whole) => {
                self.end_part(whole, completion);
                return true;
            }
        }
        self.complete_raw(completion);
        true
    }

    /// Completes a receive that got no message, with an error.
    pub(crate) fn end_raw_recv_failed(&mut self, op: OpId, error: OpError) {
        if let Some(many) = self.many_mut(op)
            && !many.close(error.into())
        {
            // The completion of its last message releases the buffer.
            return;
        }
        let Some(ended) = self.take_raw(op) else {
            return;
        };
        let completion = RawCompletion {
            error: Some(error.into()),
            ..ended.raw.completion(ended.awaited_peer)
        };
        match ended.raw.what {
            RawWhat::Silent => {}
            RawWhat::Part(whole) => self.end_part(whole, completion),
            _ => self.complete_raw(completion),
        }
    }

    fn many_mut(&mut self, op: OpId) -> Option<&mut Many> {
        match &mut self.ops.raw_mut(op)?.what {
            RawWhat::Many(many) => Some(many),
            _ => None,
        }
    }

    /// Enters an operation for a message that a buffer for many messages has accepted in its bytes
    /// `range`.
    pub(super) fn begin_raw_part(
        &mut self,
        op: OpId,
        part: OpId,
        range: Range<u64>,
        is_last: bool,
    ) {
        let Some(many) = self.many_mut(op) else {
            return;
        };
        let piece = many.begin(range, is_last);
        let Some(whole) = self.ops.raw(op) else {
            return;
        };
        let raw = RawOp {
            what: RawWhat::Part(op),
            ..*whole
        };
        // SAFETY: the caller of `recv_multi` exposes the buffer until its last completion, and no
        // other part covers these bytes.
        let memory = unsafe { Memory::of_piece(piece) };
        let kind = OpKind::RecvTagged { source: None };
        let id = self.ops.enter(kind, memory, Owner::Caller(raw));
        self.ops.name_part(part, id);
    }

    /// Completes one message in a buffer for many. The last one releases the buffer.
    fn end_part(&mut self, whole: OpId, mut completion: RawCompletion) {
        let mut error = None;
        completion.released = false;
        if let Some(many) = self.many_mut(whole) {
            (completion.released, error) = many.end();
        }
        if !completion.released {
            return self.complete_raw(completion);
        }
        let ended = self.take_raw(whole);
        // A withdrawn buffer is reported by a completion of its own, which is the last.
        completion.released = error.is_none();
        self.complete_raw(completion);
        if let (Some(_), Some(ended)) = (error, ended) {
            self.complete_raw(RawCompletion {
                error,
                ..ended.raw.completion(ended.awaited_peer)
            });
        }
    }
}

/// Copies `bytes` to `pieces`, in order.
fn scatter(mut bytes: &[u8], pieces: &[RawPiece]) {
    for piece in pieces {
        let len = piece.len.min(bytes.len());
        let (now, rest) = bytes.split_at(len);
        if len > 0 {
            usage::count_copy();
            // SAFETY: the caller of `recv` has promised that the piece may be written until the
            // completion is handed out, which happens later. `bytes` is memory of the library.
            unsafe { copy_raw(now.as_ptr(), piece.ptr, len) };
        }
        bytes = rest;
    }
}
