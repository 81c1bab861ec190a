// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shortcuts for a single message: its frame, and the acknowledgement of everything in flight. A
//! ping-pong consists of these. Both do the same as the general code (`outgoing`, `loss`) without
//! checks for what cannot occur.

use super::outgoing::{Bytes, Outgoing};
use super::stage::FragmentLayout;
use super::{Contents, InFlight, Path};
use crate::base::narrow::narrow;
use crate::mem::copy::copy;
use crate::mem::slot::{SlotId, SlotPool};
use crate::{Instant, SingleFrame};
use portolan_wire::{Ack, CHECK_LEN, FRAME_HEADER_LEN, Fragment, FrameKind, Message};

impl Path {
    /// Returns true for a network path on which nothing waits, if its window and link have room. A
    /// message submitted now may be sent now.
    #[inline]
    pub(crate) fn is_free(&mut self) -> bool {
        debug_assert!(
            self.free_left <= self.count_free(),
            "a change was not noted"
        );
        if self.free_left == 0 {
            self.free_left = self.count_free();
        }
        self.free_left > 0
    }

    /// Returns the number of frames that may be sent past the queues.
    #[inline(never)]
    fn count_free(&self) -> usize {
        match self.params.lossless || self.blocked || self.has_waiting() {
            true => 0,
            false => self.window_left(),
        }
    }

    /// Numbers the frame of a single message and writes its header and checksum. Its records begin
    /// at [`RECORDS_AT`](super::outgoing::RECORDS_AT) of `bytes`, the start of the buffer `slot`.
    #[inline]
    pub(crate) fn seal_single<'a>(
        &mut self,
        now: Instant,
        session: u64,
        slot: SlotId,
        bytes: &'a mut [u8],
    ) -> SingleFrame<'a> {
        let (front, frame) = bytes.split_at_mut(CHECK_LEN);
        let off = narrow(CHECK_LEN);
        let num = self.number(now, Contents::Slot { slot, off }, frame.len());
        let header = self.header(FrameKind::Data, (num, 0), frame.len(), session);
        header.emit(frame);
        let link = self.link;
        let start = match self.params.sum {
            Some(_) if self.checked => {
                self.put_sum(front, frame);
                0
            }
            _ => CHECK_LEN,
        };
        let bytes = &bytes[start..];
        SingleFrame::new(link, bytes, num)
    }

    /// Returns true if a message with this [layout](Path::layout) can be sent with one call now.
    #[inline]
    pub(crate) fn takes_at_once(&self, layout: &FragmentLayout, batch_len: usize) -> bool {
        // Headers are shorter than the space that a call leaves in the longest datagram.
        let per_call = self.batch_frames(self.frame_len, batch_len);
        layout.count <= per_call.min(self.window_left())
    }

    /// Writes and numbers the frames of a message with this [layout](Path::layout), with `tail`
    /// after the last part.
    pub(crate) fn seal_single_run(
        &mut self,
        now: Instant,
        slots: &mut SlotPool,
        session: u64,
        (whole, layout): (&Fragment, FragmentLayout),
        (bytes, tail): (&[u8], &[u8]),
    ) -> Outgoing {
        let front_len = self.front_len();
        let head_len = layout.head_len - front_len;
        let segment_len = layout.segment_len();
        let slot = slots.take(layout.count * segment_len);
        let first = self.next_num();
        let (mut at, mut offset) = (0, 0);
        for part in bytes.chunks(layout.payload_len) {
            let tail = match offset + part.len() == bytes.len() {
                true => tail,
                false => &[],
            };
            let payload_end = head_len + part.len();
            let len = payload_end + tail.len();
            let contents = Contents::Slot {
                slot,
                off: narrow(at + front_len),
            };
            let num = self.number(now, contents, len);
            let (front, frame) =
                slots.bytes_mut(slot)[at..][..front_len + len].split_at_mut(front_len);
            self.header(FrameKind::Data, (num, 0), len, session)
                .emit(frame);
            let fragment = Fragment {
                message: Message {
                    len: narrow(part.len()),
                    ..whole.message
                },
                offset: narrow(offset),
                ..*whole
            };
            fragment.emit(&mut frame[FRAME_HEADER_LEN..]);
            copy(&mut frame[head_len..payload_end], part);
            frame[payload_end..].copy_from_slice(tail);
            self.put_sum(front, frame);
            at += front_len + len;
            offset += part.len();
        }
        let count = narrow(layout.count);
        slots.retain(slot, count - 1);
        self.batch_end = self.next_num();
        let bytes = Bytes::Slot {
            slot,
            off: 0,
            len: at,
            segment_len,
        };
        self.outgoing((first, count), bytes)
    }

    /// Applies an acknowledgement of everything in flight, if all frames are in buffers and none
    /// counts as lost. Returns `false`, with no state changed, for any other acknowledgement.
    #[inline]
    pub(crate) fn on_ack_of_all(&mut self, now: Instant, ack: &Ack, slots: &mut SlotPool) -> bool {
        let count = self.unacked.len();
        let in_slot = |entry: &InFlight| matches!(entry.contents, Contents::Slot { .. });
        let is_plain = ack.word_count == 0
            && ack.base == self.next_num()
            && self.in_flight == count
            && count > 0
            && self.unacked.iter().all(in_slot);
        if !is_plain {
            return false;
        }
        self.sample(now, ack);
        for entry in self.unacked.drain(..) {
            if let Contents::Slot { slot, .. } = entry.contents {
                slots.release(slot);
            }
        }
        self.base_num = ack.base;
        self.in_flight = 0;
        self.pop_acked();
        self.loss.on_all_landed(now);
        self.update_window(now, count);
        true
    }
}
