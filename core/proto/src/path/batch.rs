// SPDX-License-Identifier: MIT OR Apache-2.0
//! GSO batches of eager runs: as many frames as a batch takes, whichever messages they belong to
//! (`P4.12`).

use super::outgoing::{Bytes, Outgoing};
use super::{Contents, Path, Run};
use crate::Instant;
use crate::base::narrow::narrow;
use crate::mem::slot::{SlotId, SlotPool};
use portolan_wire::{CHECK_LEN, CheckedFrame, FrameKind};

/// Contents of one GSO batch: a part of one run, and possibly of the next.
pub(crate) struct Batch {
    first: Run,
    second: Option<Run>,
}

impl Path {
    /// Returns true if runs, or parts of them, fit a batch and the window and are sent now. `more`
    /// is set if further messages wait for credit.
    pub(crate) fn has_run_to_send(&self, more: bool) -> bool {
        let next = self.runs.front();
        self.window_left() > 0 && next.is_some_and(|run| !more || !self.waits_for_more(run))
    }

    /// Returns the number of frames of `segment_len` bytes in one GSO batch of at most `batch_len`
    /// bytes.
    pub(super) fn batch_frames(&self, segment_len: usize, batch_len: usize) -> usize {
        let per_batch = (batch_len / segment_len).max(1);
        self.params.segments_max.max(1).min(per_batch)
    }

    /// Returns true if the run should wait for further frames: it does not fill a batch, and the
    /// batch before it is in flight. `P4.12`
    fn waits_for_more(&self, run: &Run) -> bool {
        let ahead = self.batch_end.wrapping_sub(self.base_num) as usize;
        let is_under_way = 0 < ahead && ahead <= self.unacked.len();
        is_under_way
            && self.frames_of_batch(run) < self.batch_frames(run.segment_len, run.batch_len)
    }

    /// Returns true if a further run of `count` frames would fit the batch of the waiting runs.
    pub(crate) fn has_batch_to_fill(&self, count: usize) -> bool {
        self.runs.front().is_some_and(|run| {
            self.frames_of_batch(run).saturating_add(count)
                <= self.batch_frames(run.segment_len, run.batch_len)
        })
    }

    /// Returns the number of frames of all runs, if they may share a batch.
    fn frames_of_batch(&self, run: &Run) -> usize {
        let alike = |other: &Run| other.segment_len == run.segment_len;
        let frames = |run: &Run| run.len.div_ceil(run.segment_len);
        match self.runs.iter().all(alike) {
            true => self.runs.iter().map(frames).sum(),
            false => usize::MAX,
        }
    }

    /// Returns true if the rest of this run's buffer waits.
    fn is_continued(&self, run: &Run) -> bool {
        self.runs.front().is_some_and(|rest| rest.slot == run.slot)
    }

    /// Takes as much of the waiting runs as one GSO batch and the window allow.
    pub(crate) fn take_batch(&mut self, slots: &mut SlotPool, more: bool) -> Option<Batch> {
        let run = self.runs.front()?;
        if !self.has_run_to_send(more) {
            return None;
        }
        let (segment_len, room) = (
            run.segment_len,
            self.batch_frames(run.segment_len, run.batch_len),
        );
        let room = room.min(self.window_left());
        let mut first = self.take_part(room)?;
        let count = first.len.div_ceil(segment_len);
        let is_alike = |next: &Run| next.segment_len == segment_len;
        if count == room || self.is_continued(&first) || !self.runs.front().is_some_and(is_alike) {
            let second = None;
            return Some(Batch { first, second });
        }
        first.fill_last(slots);
        let second = self.take_part(room - count);
        Some(Batch { first, second })
    }

    /// Takes up to `count` frames of the first run.
    fn take_part(&mut self, count: usize) -> Option<Run> {
        let run = self.runs.front_mut()?;
        let len = run.len.min(count * run.segment_len);
        let part = Run { len, ..*run };
        if len == run.len {
            self.runs.pop_front();
        } else {
            run.off += len;
            run.len -= len;
        }
        Some(part)
    }

    /// Returns the room for acknowledgements and credit in the last frame of a batch: the buffer,
    /// and its start and end. `None` if more of that buffer waits.
    pub(crate) fn room_behind(&self, batch: &Batch) -> Option<(SlotId, usize, usize)> {
        let last = batch.second.as_ref().unwrap_or(&batch.first);
        let end = last.off + last.len;
        (!self.is_continued(last)).then_some((last.slot, end, end + last.room_in_last()))
    }

    /// Numbers the frames of a batch and writes their headers.
    pub(crate) fn seal_batch(
        &mut self,
        now: Instant,
        slots: &mut SlotPool,
        session: u64,
        batch: &Batch,
    ) -> Outgoing {
        let first = self.next_num();
        self.seal_run(now, slots, session, &batch.first);
        let mut bytes = Bytes::Slot {
            slot: batch.first.slot,
            off: batch.first.off,
            len: batch.first.len,
            segment_len: batch.first.segment_len,
        };
        if batch.second.is_none() && batch.first.len <= batch.first.segment_len {
            // A single frame leaves like any other frame.
            let (off, len) = (batch.first.off, batch.first.len);
            let front_len = batch.first.front_len;
            bytes = Bytes::frame(batch.first.slot, off + front_len, len - front_len);
        }
        if let Some(second) = &batch.second {
            self.seal_run(now, slots, session, second);
            bytes = Bytes::Slots {
                slots: [batch.first.slot, second.slot],
                off: narrow(batch.first.off),
                lens: [narrow(batch.first.len), narrow(second.len)],
                segment_len: narrow(second.segment_len),
            };
        }
        self.batch_end = self.next_num();
        self.outgoing((first, self.batch_end.wrapping_sub(first)), bytes)
    }

    fn seal_run(&mut self, now: Instant, slots: &mut SlotPool, session: u64, run: &Run) {
        let count = run.len.div_ceil(run.segment_len);
        for ahead in 0..count {
            let start = run.off + ahead * run.segment_len;
            let len = run.segment_len.min(run.len - ahead * run.segment_len) - run.front_len;
            let off = narrow(start + run.front_len);
            let slot = run.slot;
            let num = self.number(now, Contents::Slot { slot, off }, len);
            let header = self.header(FrameKind::Data, (num, 0), len, session);
            let (front, frame) = slots.bytes_mut(slot)[start..].split_at_mut(run.front_len);
            header.emit(frame);
            self.put_sum(front, &frame[..len]);
        }
        // The buffer has one reference per frame in flight, and one until all of it was sent.
        slots.retain(run.slot, narrow(count));
        if !self.is_continued(run) {
            slots.release(run.slot);
        }
    }
}

impl Path {
    /// Writes the checksum of `frame` into the bytes in `front` of it, if any. `P13.2`
    #[inline]
    pub(super) fn put_sum(&self, front: &mut [u8], frame: &[u8]) {
        if let (Ok(front), Some(sum)) = (<&mut [u8; CHECK_LEN]>::try_from(front), self.params.sum) {
            *front = CheckedFrame::front(sum(frame));
        }
    }
}

impl Batch {
    /// Adds `len` bytes to the last frame.
    pub(crate) fn grow(&mut self, len: usize) {
        self.second.as_mut().unwrap_or(&mut self.first).len += len;
    }
}
