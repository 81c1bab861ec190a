// SPDX-License-Identifier: MIT OR Apache-2.0
//! Eager messages by stream (`P15.9`): each leaves whole, as one record, and is kept here until the
//! peer acknowledges it. If the stream ends before, the message continues as fragments.
//!
//! Invariant: a message that is kept here is on no path, and has been passed to at most one stream.

use super::Peer;
use super::stream::StreamState;
use crate::base::context::Context;
use crate::base::narrow::narrow;
use crate::base::time::Span;
use crate::bulk::part::HEAD_LEN_MAX;
use crate::mem::copy::copy;
use crate::mem::slot::{FRAGMENTED_LEN_MAX, SlotId, SlotPool};
use crate::path::Path;
use crate::path::control::Control;
use crate::path::outgoing::{Bytes, Outgoing, OutgoingKind};
use crate::shared::Shared;
use crate::{DropReason, FlushHint, Instant, LinkId, PendingWork, Staging, StreamUse};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use portolan_wire::{
    CHECK_LEN, CREDIT_LEN, CheckedFrame, Fragment, STREAM_MARK_LEN, StreamMark, Sum,
};

/// Length in bytes of the shortest message that is sent by stream with [`StreamUse::On`], if it does
/// not fit one frame. Below it, a datagram costs less than the record's front and TCP's own work.
/// [`StreamUse::Auto`] sends eager messages as fragments: where both were measured, runs of fragments
/// by UDP were faster at each length up to 64 KiB.
const STREAM_MESSAGE_LEN_MIN: usize = 2 * 1024;

/// Bytes of received messages after which they are acknowledged at once. A sender keeps a copy of
/// each until then. A quarter of what it may have in flight, so it needs few buffers.
const ACK_LEN: u32 = 256 * 1024;

/// Maximum time for which an acknowledgement waits to be piggybacked. Nothing but memory depends on
/// it, since TCP repeats what is lost.
const ACK_DELAY: Span = Span::from_millis(5);

/// Message that has been passed to the stream, or waits for it.
#[derive(Debug)]
struct Kept {
    num: u32,
    slot: SlotId,
    /// Header of the message as one fragment.
    fragment: Fragment,
}

impl Kept {
    fn len(&self) -> usize {
        self.fragment.message_len as usize
    }
}

/// Numbers that outlive a stream, and a time without traffic.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StreamNumbers {
    /// Number of the last message that was staged here.
    sent: u32,
    /// Number of the last message that was received.
    received: u32,
}

/// Eager messages by stream, in both directions.
#[derive(Debug)]
pub(crate) struct EagerStream {
    numbers: StreamNumbers,
    /// In the order of their numbers; those that have not left are the last.
    kept: VecDeque<Kept>,
    unsent_count: usize,
    /// Bytes of received messages that have not been acknowledged, and the time when they are.
    unacked_len: u32,
    ack_at: Instant,
    pending_work: PendingWork,
}

impl Default for EagerStream {
    fn default() -> Self {
        EagerStream {
            numbers: StreamNumbers::default(),
            kept: VecDeque::new(),
            unsent_count: 0,
            unacked_len: 0,
            ack_at: Instant::NEVER,
            pending_work: PendingWork::None,
        }
    }
}

impl EagerStream {
    pub(crate) fn numbers(&self) -> StreamNumbers {
        self.numbers
    }

    pub(crate) fn restore(&mut self, numbers: StreamNumbers) {
        self.numbers = numbers;
    }

    /// Returns true if messages wait for their acknowledgement, or to be sent.
    pub(crate) fn has_kept(&self) -> bool {
        !self.kept.is_empty()
    }

    /// Returns true if a message waits to be sent.
    #[inline]
    pub(crate) fn has_unsent(&self) -> bool {
        self.unsent_count > 0
    }

    /// Returns true if an acknowledgement is owed.
    pub(crate) fn owes_ack(&self) -> bool {
        self.unacked_len > 0
    }

    /// Returns the work that is left if the program makes no further call.
    #[inline]
    pub(crate) fn pending_work(&self) -> PendingWork {
        self.pending_work
    }

    /// Returns the time when an acknowledgement is due.
    #[inline]
    pub(crate) fn ack_timer(&self) -> Instant {
        self.ack_at
    }

    fn update_pending_work(&mut self) {
        self.pending_work = match (self.unsent_count, self.unacked_len) {
            (0, 0) => PendingWork::None,
            (0, _) => PendingWork::Unacknowledged,
            _ => PendingWork::Unsent,
        };
    }

    fn push(&mut self, slot: SlotId, fragment: Fragment) {
        self.numbers.sent = self.numbers.sent.wrapping_add(1);
        let num = self.numbers.sent;
        self.kept.push_back(Kept {
            num,
            slot,
            fragment,
        });
        self.unsent_count += 1;
        self.update_pending_work();
    }

    /// Returns the next message to be sent, which counts as sent from now on.
    fn next_unsent(&mut self) -> Option<&Kept> {
        let place = self.kept.len() - self.unsent_count;
        let kept = self.kept.get(place)?;
        self.unsent_count -= 1;
        Some(kept)
    }

    /// Puts the message sent last back, because the stream was full.
    fn put_back(&mut self) {
        self.unsent_count += 1;
        self.update_pending_work();
    }

    /// Returns the record that acknowledges everything received so far.
    fn take_ack(&mut self, num: u32) -> StreamMark {
        (self.unacked_len, self.ack_at) = (0, Instant::NEVER);
        self.update_pending_work();
        StreamMark {
            num,
            received: self.numbers.received,
        }
    }

    /// Handles the peer's acknowledgement: frees the messages up to number `received`. Returns true
    /// if there were any.
    fn on_received(&mut self, received: u32, slots: &mut SlotPool) -> Result<bool, DropReason> {
        // A number can be old: acknowledgements overtake one another.
        if (self.numbers.sent.wrapping_sub(received) as i32) < 0 {
            return Err(DropReason::BadAck);
        }
        let sent_count = self.kept.len() - self.unsent_count;
        let mut has_freed = false;
        for _ in 0..sent_count {
            let first = self.kept.front();
            if first.is_none_or(|kept| (received.wrapping_sub(kept.num) as i32) < 0) {
                break;
            }
            if let Some(kept) = self.kept.pop_front() {
                slots.release(kept.slot);
                has_freed = true;
            }
        }
        Ok(has_freed)
    }

    /// Records that message `num` of `len` bytes has arrived. Returns true if it must be
    /// acknowledged at once.
    pub(crate) fn on_arrived(&mut self, now: Instant, num: u32, len: u32) -> bool {
        if (num.wrapping_sub(self.numbers.received) as i32) > 0 {
            self.numbers.received = num;
        }
        self.unacked_len = self.unacked_len.saturating_add(len);
        self.ack_at = self.ack_at.min(now + ACK_DELAY);
        self.update_pending_work();
        self.unacked_len >= ACK_LEN
    }

    /// Frees everything that is kept, after the session has ended.
    pub(crate) fn abandon(&mut self, slots: &mut SlotPool) {
        for kept in self.kept.drain(..) {
            slots.release(kept.slot);
        }
        self.unsent_count = 0;
        (self.unacked_len, self.ack_at) = (0, Instant::NEVER);
        self.update_pending_work();
    }

    /// Takes everything that is kept, because the stream has ended.
    fn take_kept(&mut self) -> Vec<Kept> {
        self.unsent_count = 0;
        self.update_pending_work();
        self.kept.drain(..).collect()
    }
}

impl StreamState {
    /// Returns true if eager messages to `peer` use the stream. If there is none, requests it. `now`
    /// is the time of the last frame from the peer, or later. `P15.9`
    fn takes_message(&mut self, now: Instant, ctx: &mut Context, peer: crate::PeerId) -> bool {
        let usage = ctx.limits().stream;
        let is_excluded = usage != StreamUse::On || peer.0 == ctx.config().rank;
        if is_excluded {
            return false;
        }
        if !self.is_open() {
            self.request(now, ctx, peer);
        }
        self.is_open()
    }
}

impl Peer {
    /// Handles the peer's acknowledgement of messages up to number `received`. `P15.11`
    pub(crate) fn on_stream_ack(
        &mut self,
        received: u32,
        slots: &mut SlotPool,
    ) -> Result<(), DropReason> {
        if self.stream.eager_mut().on_received(received, slots)? {
            self.stream.on_success();
        }
        Ok(())
    }

    /// Accepts a message for the stream, if it takes it, and returns the memory to copy it into.
    /// `fragment` is the whole message as one fragment.
    pub(super) fn stage_for_stream<'a>(
        &mut self,
        slots: &'a mut SlotPool,
        fragment: Fragment,
    ) -> Staging<'a> {
        let len = fragment.message_len as usize;
        let (slot, bytes) = slots.take_message(len);
        self.stream.eager_mut().push(slot, fragment);
        Staging::contiguous(&mut bytes[..len], FlushHint::Full)
    }

    /// Keeps a copy of `bytes`, the message that was sent last.
    pub(crate) fn keep_message(&self, slots: &mut SlotPool, bytes: &[u8]) {
        if let Some(kept) = self.stream.eager().kept.back() {
            copy(&mut slots.bytes_mut(kept.slot)[..bytes.len()], bytes);
        }
    }

    /// Returns true if an eager message of `len` bytes, which does not fit one frame, uses the
    /// stream. `P15.9`
    #[inline]
    pub(super) fn is_for_stream(&mut self, now: Instant, ctx: &mut Context, len: usize) -> bool {
        (STREAM_MESSAGE_LEN_MIN..=FRAGMENTED_LEN_MAX).contains(&len)
            && !self.paths.small_path().is_some_and(Path::is_lossless)
            && !self.avoids_stream(ctx)
            && self.stream.takes_message(now, ctx, self.id)
    }

    /// Returns the next eager message for the stream, with its head in the scratch buffer. Credit
    /// and acknowledgements are piggybacked. `P15.9`
    pub(super) fn next_for_stream(&mut self, sh: &mut Shared) -> Option<Outgoing> {
        let is_checked = self.paths.bulk_path().is_some_and(Path::is_checked);
        let eager = self.stream.eager_mut();
        let kept = eager.next_unsent()?;
        let (slot, num, fragment, len) = (kept.slot, kept.num, kept.fragment, kept.len());
        let mark = eager.take_ack(num);
        let mut head = [0; HEAD_LEN_MAX];
        let mut at = 0;
        if is_checked {
            // The link, which has the bytes, computes the sum.
            head[..CHECK_LEN].copy_from_slice(&CheckedFrame::front(Sum::default()));
            at = CHECK_LEN;
        }
        mark.emit(&mut head[at..]);
        at += STREAM_MARK_LEN;
        let room = HEAD_LEN_MAX - at - fragment.header_len();
        if self.lanes.has_credit_due() && room >= CREDIT_LEN {
            at += (self.lanes).emit_credit(sh.ctx.credit_len(), &mut head[at..][..room]);
        }
        fragment.emit(&mut head[at..]);
        at += fragment.header_len();
        sh.scratch.start(at).copy_from_slice(&head[..at]);
        Some(Outgoing {
            link: LinkId::STREAM,
            bytes: Bytes::Message { slot, len },
            kind: OutgoingKind::Message,
        })
    }

    /// Puts back the message that was passed to the stream last, which is full. The credit and the
    /// acknowledgement in its head leave with another.
    pub(super) fn take_back_message(&mut self) {
        self.stream.eager_mut().put_back();
        self.push_stream_ack();
        self.lanes.repeat_credit([true; 2]);
    }

    /// Queues the acknowledgement of the messages received by stream.
    pub(crate) fn push_stream_ack(&mut self) {
        let mark = self.stream.eager_mut().take_ack(0);
        self.control.push(Control::StreamMark(mark));
    }

    /// Moves the messages that the stream has not carried, as far as is known, to the path for
    /// messages of several frames. Credit that it carried is sent again. `P15.12`
    pub(super) fn move_stream_messages(&mut self, sh: &mut Shared) {
        let all = self.stream.eager_mut().take_kept();
        for kept in &all {
            let bytes = sh.slots.bytes(kept.slot)[..kept.len()].to_vec();
            sh.slots.release(kept.slot);
            let Some(path) = self.paths.any_run_path_mut(&sh.ctx, bytes.len()) else {
                debug_assert!(false, "a session has a path");
                continue;
            };
            let division = path.division(&sh.ctx, bytes.len());
            let slots = &mut sh.slots;
            path.stage_run(slots, &kept.fragment, bytes.len(), division)
                .push(&bytes);
        }
        let StreamNumbers { sent, received } = self.stream.eager_mut().numbers;
        if sent > 0 {
            self.lanes.repeat_credit([true; 2]);
        }
        if received > 0 {
            self.push_stream_ack();
        }
    }
}

/// Returns the header of a message of `len` bytes as one fragment, as its record contains it. The
/// length of a record's payload is in its front.
pub(super) fn as_fragment(message: portolan_wire::Message, len: usize) -> Fragment {
    Fragment {
        message: portolan_wire::Message { len: 0, ..message },
        message_len: narrow(len),
        offset: 0,
    }
}
