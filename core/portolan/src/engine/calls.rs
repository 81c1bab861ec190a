// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls to other processes, and their replies.
//!
//! A request is a message to a port, with the number of its call in front. A reply is a plain
//! message, with the number of the call and a status as immediate data. Programs of a job have no
//! other plain messages. The one invariant: a reply to an ended call is received and dropped, so
//! that later replies do not wait behind it.

use super::{Background, Engine, Inner};
use crate::buffer::{self, Buffer};
use crate::error::Error;
use crate::ops::{OpKind, Received};
use portolan_proto::{LaneId, MatchBits, OpId, PeerId, Selector, SendSpec, Space};
use std::collections::BTreeMap;

/// Bytes of the call's number in front of a request.
pub(crate) const CALL_HEAD_LEN: usize = 8;

/// Bits of the status in the immediate data of a reply, below the number of the call.
const STATUS_BITS: u32 = 16;

/// Calls of this process.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    next_number: u64,
    /// Calls without a reply, by number.
    pending: BTreeMap<u64, (OpId, PeerId)>,
    /// Replies that are being received: operation, sender and immediate data.
    receiving: Vec<(OpId, PeerId, u64)>,
    /// Set when a reply to an ended call may arrive.
    has_ended_calls: bool,
    is_running: bool,
}

impl Calls {
    /// Sets the number of the first call.
    pub(super) fn number_from(&mut self, first: u64) {
        self.next_number = first;
    }
}

/// Receives the replies.
struct Dispatcher;

impl Background for Dispatcher {
    /// No program waits for the dispatcher itself.
    fn op(&self) -> OpId {
        OpId(0)
    }

    fn advance(&mut self, engine: &mut Engine) -> bool {
        let calls = &engine.inner.calls;
        if !calls.pending.is_empty() || !calls.receiving.is_empty() || calls.has_ended_calls {
            engine.receive_replies();
        }
        false
    }

    fn give_up(&mut self, _: &mut Engine) {}
}

/// Returns address and lane of a reply.
pub(crate) fn reply_spec(number: u64, status: u16) -> SendSpec {
    let match_bits = MatchBits {
        space: Space::Plain,
        tag: 0,
        imm: Some(number << STATUS_BITS | u64::from(status)),
    };
    SendSpec {
        to: match_bits.into(),
        lane: LaneId::Low,
        best_effort: false,
    }
}

fn selector(source: Option<PeerId>) -> Selector {
    Selector {
        space: Space::Plain,
        tag: 0,
        ignore: u64::MAX,
        source,
    }
}

impl Engine {
    /// Begins a call to `peer`. Returns its operation and its number.
    pub(crate) fn begin_call(&mut self, peer: PeerId) -> (OpId, u64) {
        let op = self.inner.ops.without_memory(OpKind::Call(peer));
        let calls = &mut self.inner.calls;
        let number = calls.next_number;
        calls.next_number += 1;
        calls.pending.insert(number, (op, peer));
        if !std::mem::replace(&mut calls.is_running, true) {
            self.begin_background(Box::new(Dispatcher));
        }
        (op, number)
    }

    /// Ends a call without its reply, and removes its operation.
    pub(crate) fn end_call(&mut self, op: OpId) {
        self.inner.forget_call(op);
        self.inner.ops.forget(op);
    }

    fn receive_replies(&mut self) {
        while let Some(envelope) = self.inner.core.peek_tagged(&selector(None)) {
            let imm = envelope.match_bits.imm.unwrap_or(u64::MAX);
            if !self.inner.receive_reply(envelope.peer, envelope.len, imm) {
                break;
            }
            self.drain();
        }
        let receiving = std::mem::take(&mut self.inner.calls.receiving);
        for (op, peer, imm) in receiving {
            match self.inner.ops.is_done(op) {
                true => self.inner.end_reply(op, peer, imm),
                false => self.inner.calls.receiving.push((op, peer, imm)),
            }
        }
        self.inner.fail_lost_calls();
        for (_, peer) in self.inner.awaited_callees() {
            self.watch_background(peer);
        }
    }
}

impl Inner {
    /// Returns the number of calls of this process that have not ended.
    pub(super) fn pending_call_count(&self) -> usize {
        self.calls.pending.len()
    }

    /// Forgets a call, so that its reply is dropped. Returns `false` if it has ended already.
    pub(crate) fn forget_call(&mut self, op: OpId) -> bool {
        let calls = &mut self.calls;
        let before = calls.pending.len();
        calls.pending.retain(|_, (other, _)| *other != op);
        let is_forgotten = calls.pending.len() < before;
        calls.has_ended_calls |= is_forgotten;
        is_forgotten
    }

    /// Posts memory for a reply. Returns `false` if there is none.
    fn receive_reply(&mut self, peer: PeerId, len: u64, imm: u64) -> bool {
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        let memory = match buffer::zeroed("memory for a reply", len) {
            Ok(memory) => memory,
            Err(error) => {
                log::error!("{error}; the reply waits");
                return false;
            }
        };
        let source = Some(peer);
        let op = self
            .ops
            .owned(OpKind::RecvTagged { source }, Buffer::from(memory));
        self.core.post_tagged(&selector(source), op, len as u64);
        self.calls.receiving.push((op, peer, imm));
        true
    }

    /// Completes the call of a received reply, if it has not ended.
    fn end_reply(&mut self, reply: OpId, peer: PeerId, imm: u64) {
        let Some(done) = self.ops.finish(reply) else {
            return;
        };
        let number = imm >> STATUS_BITS;
        let is_callee = |call: &(OpId, PeerId)| call.1 == peer;
        if !self.calls.pending.get(&number).is_some_and(is_callee) {
            return;
        }
        let Some((op, _)) = self.calls.pending.remove(&number) else {
            return;
        };
        match done {
            Ok(done) => {
                let received = Received {
                    len: done.len,
                    source: peer.0,
                };
                let buffer = done.buffer.unwrap_or_else(|| Buffer::from(Vec::new()));
                let status = imm & ((1 << STATUS_BITS) - 1);
                let match_bits = MatchBits {
                    space: Space::Plain,
                    tag: 0,
                    imm: Some(status),
                };
                self.ops
                    .complete_with(op, buffer, Ok(received), Some(match_bits));
            }
            Err(failed) => self.ops.fail(op, failed.into()),
        }
    }

    /// Fails the calls to processes that have ended.
    fn fail_lost_calls(&mut self) {
        let lost = self.calls.pending.iter();
        let lost = lost.filter(|(_, (_, peer))| self.is_gone(*peer));
        let lost: Vec<(u64, OpId, PeerId)> = lost
            .map(|(number, (op, peer))| (*number, *op, *peer))
            .collect();
        for (number, op, peer) in lost {
            self.calls.pending.remove(&number);
            let error = self.check_gone(peer).err().unwrap_or(Error::Cancelled);
            self.ops.fail(op, error);
        }
    }

    fn awaited_callees(&self) -> Vec<(OpId, PeerId)> {
        self.calls.pending.values().copied().collect()
    }
}
