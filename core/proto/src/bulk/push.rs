// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pushed parts: the first bytes of a transfer, which leave with its request or with the answer to
//! a get (`P15.13`), before the receiver has granted any. The receiver places them if a buffer is
//! posted soon. Otherwise it discards them, and grants the transfer from its first byte (`P15.14`).
//!
//! Invariant: a pushed part needs no memory except the posted buffer. Its sender keeps the bytes
//! until the transfer has ended.

use super::part::{HEAD_LEN_MAX, PART_LEN_MAX};
use super::send::SendQueue;
use super::trial::Carrier;
use super::{RxTransfer, Transfers, TxTransfer};
use crate::base::context::Context;
use crate::base::request::Request;
use crate::mem::scratch::Scratch;
use crate::path::control::ControlQueue;
use crate::path::outgoing::{Outgoing, OutgoingKind};
use crate::{DropReason, Instant, LinkId, OpId, PeerId};
use alloc::vec::Vec;
use core::ops::Range;
use portolan_wire::{
    CHECK_LEN, CheckedFrame, Chunk, DONE_LEN, Done, Grant, REMOTE_SOURCE_LEN, RemoteSource, Rts,
    Sum,
};

/// Turns in which a pushed part waits for its buffer. A program that exchanges messages posts the
/// receive within microseconds; the part takes longer to be sent again.
const WAIT_TURNS: u32 = 64;

/// Most transfers that are pushed before the first of them is answered.
pub(crate) const PUSHES_MAX: usize = 64;

/// Record that announces a transfer, in the head of its first part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PushRequest {
    /// Request to send a message.
    Message(Rts),
    /// Answer to a get.
    Reply(RemoteSource),
}

impl PushRequest {
    /// Returns the sender's number for the transfer.
    #[must_use]
    pub fn transfer(&self) -> u32 {
        match self {
            PushRequest::Message(rts) => rts.transfer,
            PushRequest::Reply(source) => source.transfer,
        }
    }

    fn fragment_len(&self) -> u16 {
        match self {
            PushRequest::Message(rts) => rts.message.len,
            PushRequest::Reply(source) => source.fragment_len,
        }
    }

    fn has_late_done(&self) -> bool {
        match self {
            PushRequest::Message(rts) => rts.late_done,
            PushRequest::Reply(source) => source.late_done,
        }
    }

    fn set_late_done(&mut self, late_done: bool) {
        match self {
            PushRequest::Message(rts) => rts.late_done = late_done,
            PushRequest::Reply(source) => source.late_done = late_done,
        }
    }

    /// Returns true if the head with this request, and a checksum if `checked`, has room for a
    /// completion.
    fn carries_done(&self, checked: bool) -> bool {
        let check_len = if checked { CHECK_LEN } else { 0 };
        check_len + self.wire_len() + DONE_LEN <= HEAD_LEN_MAX
    }

    fn wire_len(&self) -> usize {
        match self {
            PushRequest::Message(rts) => rts.wire_len(),
            PushRequest::Reply(_) => REMOTE_SOURCE_LEN,
        }
    }

    fn emit(&self, out: &mut [u8]) {
        match self {
            PushRequest::Message(rts) => rts.emit(out),
            PushRequest::Reply(source) => source.emit(out),
        }
    }
}

/// Start of a transfer before its first grant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EarlyStart {
    carrier: Carrier,
    is_alone: bool,
    /// Set if its `Done` may wait for an answer of the receiving program. `P15.16`
    late_done: bool,
}

impl EarlyStart {
    /// Returns the start of a transfer that is alone. With `is_trial`, its time decides on the
    /// carrier and must not include the wait for the program's answer.
    pub(crate) fn alone(carrier: Carrier, is_trial: bool) -> EarlyStart {
        EarlyStart {
            carrier,
            is_alone: true,
            late_done: !is_trial,
        }
    }

    /// Returns the start of a transfer that is pushed while earlier ones are in progress.
    pub(crate) fn pushed_behind() -> EarlyStart {
        EarlyStart {
            carrier: Carrier::Stream,
            is_alone: false,
            late_done: true,
        }
    }
}

/// Pushed part that is being received.
#[derive(Debug)]
pub(super) struct Push {
    from: PeerId,
    sender_transfer: u32,
    len: u64,
    /// Transfer of this process, 0 until the message is matched.
    transfer: u32,
    /// Turns in which the part has waited.
    waited: u32,
    late_done: bool,
}

impl Push {
    fn is(&self, from: PeerId, sender_transfer: u32) -> bool {
        (self.from, self.sender_transfer) == (from, sender_transfer)
    }
}

/// Place of a pushed part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PushPlace {
    /// The part is one of this transfer, which may have ended.
    Part(Chunk),
    /// Its buffer may be posted soon: receive nothing more of the stream in this turn.
    Wait,
}

/// Returns the length of the part that is pushed with the request of a transfer: whole fragments, so
/// that the transfer can continue as fragments behind it. `P5.4`
fn push_len(len: u64, fragment_len: u16) -> u64 {
    if len <= PART_LEN_MAX {
        return len;
    }
    PART_LEN_MAX - PART_LEN_MAX % u64::from(fragment_len.max(1))
}

impl Transfers {
    /// Begins the newly announced transfer `key` in the manner of `start`. With a stream, `request`
    /// leaves with the first part. Returns true if it must be sent on a path.
    pub(crate) fn begin_early(
        &mut self,
        now: Instant,
        (key, mut request): (u32, PushRequest),
        start: EarlyStart,
        ready: &mut SendQueue,
    ) -> bool {
        let Some(transfer) = self.tx.get_mut(key) else {
            return true;
        };
        (transfer.carrier, transfer.granted_at) = (Some(start.carrier), now);
        (transfer.is_alone, transfer.is_untimed) = (start.is_alone, !start.is_alone);
        self.timed = (!start.late_done).then_some(key);
        if start.carrier != Carrier::Stream {
            return true;
        }
        request.set_late_done(start.late_done);
        transfer.pushed = Some(request);
        transfer.granted = push_len(transfer.len, transfer.fragment_len);
        transfer.queued = true;
        ready.push_ready(key);
        false
    }

    /// Returns true if a transfer of `len` bytes may be pushed to `peer` while earlier ones are in
    /// progress: all are on the stream as a whole, and fewer than `most` are pushed without an
    /// answer. A partly sent transfer would wait behind this one, which may wait for its buffer.
    pub(crate) fn may_push_behind(&self, peer: PeerId, len: u64, most: usize) -> bool {
        let is_whole = |tx: &TxTransfer| {
            tx.peer == peer && tx.carrier == Some(Carrier::Stream) && tx.granted == tx.len
        };
        len <= PART_LEN_MAX
            && self.tx.len() <= PUSHES_MAX
            && self.tx.iter().all(is_whole)
            && self.tx.iter().filter(|tx| tx.pushed.is_some()).count() < most
    }

    /// Returns true if a transfer in `queue` has a part to push, and its head has room for a
    /// completion.
    pub(crate) fn carries_done(&self, queue: &SendQueue, checked: bool) -> bool {
        queue.has_ready(|key| {
            let request = self.tx.get(key).and_then(|tx| tx.pushed.as_ref());
            request.is_some_and(|request| request.carries_done(checked))
        })
    }

    /// Removes the completion that left with the request of transfer `key`.
    pub(crate) fn take_carried_done(&mut self, key: u32) -> Option<Done> {
        self.tx.get_mut(key)?.carried.take()
    }

    /// Takes back the requests to `peer` that were to be pushed and have not left. They must be sent
    /// on a path, because the receiver takes no pushed parts now.
    pub(crate) fn retract_pushes(&mut self, peer: PeerId) -> Vec<PushRequest> {
        let is_unsent =
            |tx: &TxTransfer| tx.peer == peer && tx.pushed.is_some() && tx.next_off == 0;
        let keys = self.tx.keys_where(is_unsent);
        let requests = keys.into_iter().filter_map(|key| {
            let transfer = self.tx.get_mut(key)?;
            let request = transfer.unpush()?;
            transfer.carrier = None;
            transfer.is_untimed = false;
            Some(request)
        });
        requests.collect()
    }

    /// Returns true if the request of transfer `key` to `peer` was pushed and has not been answered.
    pub(crate) fn is_pushed(&self, peer: PeerId, key: u32) -> bool {
        let transfer = self.tx.get(key).filter(|transfer| transfer.peer == peer);
        transfer.is_some_and(|transfer| transfer.pushed.is_some())
    }

    /// Takes back the requests to `peer` that were pushed and not answered, because the stream has
    /// ended, each with the completion that left with it. They must be sent on a path. `P15.15`
    pub(crate) fn take_pushed(&mut self, peer: PeerId) -> Vec<(PushRequest, Option<Done>)> {
        let keys = self
            .tx
            .keys_where(|tx| tx.peer == peer && tx.pushed.is_some());
        let requests = keys.into_iter().filter_map(|key| {
            let transfer = self.tx.get_mut(key)?;
            Some((transfer.unpush()?, transfer.carried.take()))
        });
        requests.collect()
    }

    /// Takes back the pushed requests of transfers out of bytes `range` of the memory of `op`, which
    /// cannot be read. Returns each with its peer, and the completion that was to leave with it.
    pub(crate) fn take_pushed_within(
        &mut self,
        op: OpId,
        range: &Range<u64>,
    ) -> Vec<(PeerId, PushRequest, Option<Done>)> {
        let touches = |tx: &TxTransfer| {
            let (begin, end) = (tx.base, tx.base.saturating_add(tx.len));
            tx.op == op && tx.pushed.is_some() && begin < range.end && range.start < end
        };
        let keys = self.tx.keys_where(touches);
        let requests = keys.into_iter().filter_map(|key| {
            let transfer = self.tx.get_mut(key)?;
            Some((transfer.peer, transfer.unpush()?, transfer.carried.take()))
        });
        requests.collect()
    }

    /// Begins to receive a pushed part of `part_len` bytes of a transfer of `len` bytes.
    ///
    /// # Errors
    /// [`DropReason::BadFragment`] if no sender would push this part.
    pub(crate) fn begin_push(
        &mut self,
        from: PeerId,
        request: &PushRequest,
        (part_len, len): (u64, u64),
    ) -> Result<(), DropReason> {
        self.end_push(from);
        if part_len == 0 || part_len != push_len(len, request.fragment_len()) {
            return Err(DropReason::BadFragment);
        }
        self.pushes.push(Push {
            from,
            sender_transfer: request.transfer(),
            len: part_len,
            transfer: 0,
            waited: 0,
            late_done: request.has_late_done(),
        });
        Ok(())
    }

    /// Returns true if the part with this request is being received.
    pub(crate) fn has_push(&self, from: PeerId, request: &PushRequest) -> bool {
        let transfer = request.transfer();
        self.pushes.iter().any(|push| push.is(from, transfer))
    }

    /// Ends the reception of the pushed part from `from`. Bytes that follow are discarded.
    pub(crate) fn end_push(&mut self, from: PeerId) {
        self.pushes.retain(|push| push.from != from);
    }

    /// Returns the place of a pushed part before more of it is received. A part that has waited for
    /// its buffer too long is discarded.
    pub(crate) fn place_push(
        &mut self,
        ctx: &mut Context,
        from: PeerId,
        request: &PushRequest,
    ) -> PushPlace {
        let mut pushes = self.pushes.iter_mut();
        let transfer = match pushes.find(|push| push.is(from, request.transfer())) {
            Some(push) if push.transfer == 0 => {
                push.waited += 1;
                if push.waited < WAIT_TURNS {
                    return PushPlace::Wait;
                }
                self.end_push(from);
                ctx.counters_mut().pushes_missed += 1;
                0
            }
            Some(push) => push.transfer,
            None => 0,
        };
        PushPlace::Part(Chunk {
            transfer,
            offset: 0,
        })
    }

    /// Returns the transfer of a pushed part as a chunk; the transfer is 0 if there is none.
    pub(crate) fn push_chunk(&self, from: PeerId, request: &PushRequest) -> Chunk {
        let mut pushes = self.pushes.iter();
        let found = pushes.find(|push| push.is(from, request.transfer()));
        Chunk {
            transfer: found.map_or(0, |push| push.transfer),
            offset: 0,
        }
    }

    /// Grants the new transfer `key` the part that was pushed with its request, if that is being
    /// received. Returns true if nothing remains to be granted.
    pub(super) fn accept_push(&mut self, ctx: &mut Context, key: u32, request: &Request) -> bool {
        if self.pushes.is_empty() {
            return false;
        }
        let sender_transfer = request.announced.sender_transfer;
        let mut pushes = self.pushes.iter_mut();
        let found = pushes.find(|push| push.is(request.peer, sender_transfer));
        let (Some(push), Some(transfer)) = (found, self.rx.get_mut(key)) else {
            return false;
        };
        if push.transfer != 0 || transfer.lossless {
            return false;
        }
        push.transfer = key;
        ctx.counters_mut().pushes_placed += 1;
        transfer.granted = push.len;
        transfer.streamed = true;
        transfer.late_done = push.late_done;
        self.scheduler.on_pushed(transfer.link, push.len);
        transfer.granted == transfer.len
    }

    /// Returns the last grant of the transfer with this number at its sender `peer`, which has
    /// repeated its request. `P15.15`
    pub(crate) fn repeated_grant(&self, peer: PeerId, sender_transfer: u32) -> Option<Grant> {
        let is_it = |rx: &RxTransfer| rx.peer == peer && rx.sender_transfer == sender_transfer;
        let key = *self.rx.keys_where(is_it).first()?;
        let transfer = self.rx.get(key)?;
        (transfer.granted > 0).then(|| transfer.last_grant(key))
    }
}

impl TxTransfer {
    /// Returns the part that leaves with the request, and with the completion that waits in
    /// `control` if there is room.
    pub(super) fn push_part(
        &mut self,
        key: u32,
        control: &mut ControlQueue,
        scratch: &mut Scratch,
        checked: bool,
    ) -> Option<Outgoing> {
        let request = self.pushed.as_ref()?;
        let check_len = if checked { CHECK_LEN } else { 0 };
        let mut header_len = check_len + request.wire_len();
        if request.carries_done(checked) {
            self.carried = control.take_late_done();
            header_len += if self.carried.is_some() { DONE_LEN } else { 0 };
        }
        let out = scratch.start(header_len);
        if checked {
            // The link, which has the bytes, computes the sum.
            out[..CHECK_LEN].copy_from_slice(&CheckedFrame::front(Sum::default()));
        }
        let mut at = check_len;
        if let Some(done) = &self.carried {
            done.emit(&mut out[at..]);
            at += DONE_LEN;
        }
        request.emit(&mut out[at..]);
        self.next_off = self.granted;
        let len = usize::try_from(self.granted).unwrap_or(usize::MAX);
        Some(Outgoing {
            link: LinkId::STREAM,
            bytes: self.put_bytes(scratch, 0, len, header_len),
            kind: OutgoingKind::Chunk {
                transfer: key,
                off: 0,
            },
        })
    }

    /// Takes back a pushed request. The transfer waits for a grant, as fragments.
    fn unpush(&mut self) -> Option<PushRequest> {
        let request = self.pushed.take()?;
        (self.next_off, self.granted, self.acked) = (0, 0, 0);
        self.carrier = Some(Carrier::Moved);
        Some(request)
    }
}
