// SPDX-License-Identifier: MIT OR Apache-2.0
//! Best-effort messages of several frames. The frames are kept consecutively in a buffer until they
//! are sent, and are then freed (`P7.6`).
//!
//! Invariant: each run in the queue has one reference to its buffer.

use super::Path;
use super::division::Division;
use super::outgoing::{Bytes, Outgoing, OutgoingKind};
use super::stage::Parts;
use crate::base::config::BATCH_LEN_MAX;
use crate::base::narrow::narrow;
use crate::mem::slot::{SlotId, SlotPool};
use crate::{FlushHint, Staging};
use portolan_wire::FrameKind;

/// Maximum number of messages waiting on a path before submissions are refused. They wait only for
/// the next flush, and each may be 64 KiB long.
const BEST_EFFORT_RUNS_MAX: usize = 16;

/// Frames that will not be retransmitted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BestEffortRun {
    slot: SlotId,
    off: u32,
    len: u32,
    /// Length in bytes of a frame and its checksum header.
    segment_len: u32,
    front_len: u32,
}

impl BestEffortRun {
    /// Returns the buffer that the run references.
    pub(crate) fn slot(&self) -> SlotId {
        self.slot
    }
}

impl Path {
    /// Returns true if another best-effort message of several frames can be queued.
    pub(crate) fn has_best_effort_room(&self) -> bool {
        self.best_effort_runs.len() < BEST_EFFORT_RUNS_MAX
    }

    /// Cuts a message into frames of one part each.
    pub(crate) fn stage_best_effort<'a>(
        &mut self,
        slots: &'a mut SlotPool,
        parts: &Parts<'_>,
    ) -> Staging<'a> {
        let layout = self.layout(parts.header_len, parts.len, Division::WHOLE);
        let slot = slots.take(layout.total_len);
        self.free_left = 0;
        self.best_effort_runs.push_back(BestEffortRun {
            slot,
            off: 0,
            len: narrow(layout.total_len),
            segment_len: narrow(layout.segment_len()),
            front_len: narrow(self.front_len()),
        });
        let bytes = &mut slots.bytes_mut(slot)[..layout.total_len];
        layout.stage(parts, bytes, FlushHint::Full)
    }

    /// Returns as many frames of the first queued message as one call can send. No window limits
    /// them.
    #[inline]
    pub(crate) fn next_best_effort(
        &mut self,
        slots: &mut SlotPool,
        session: u64,
    ) -> Option<Outgoing> {
        let run = self.best_effort_runs.pop_front()?;
        Some(self.emit_best_effort(slots, session, run))
    }

    fn emit_best_effort(
        &mut self,
        slots: &mut SlotPool,
        session: u64,
        run: BestEffortRun,
    ) -> Outgoing {
        let (segment_len, front_len) = (run.segment_len as usize, run.front_len as usize);
        let per_call = (BATCH_LEN_MAX / segment_len).clamp(1, self.params.segments_max.max(1));
        let part = BestEffortRun {
            len: run.len.min(narrow(per_call * segment_len)),
            ..run
        };
        if part.len < run.len {
            slots.retain(run.slot, 1);
            self.best_effort_runs.push_front(BestEffortRun {
                off: run.off + part.len,
                len: run.len - part.len,
                ..run
            });
        }
        let (off, len) = (part.off as usize, part.len as usize);
        let bytes = &mut slots.bytes_mut(run.slot)[off..off + len];
        for segment in bytes.chunks_mut(segment_len) {
            let header_len = segment.len() - front_len;
            let header = self.header(FrameKind::Unnumbered, (0, 0), header_len, session);
            let (front, frame) = segment.split_at_mut(front_len);
            header.emit(frame);
            self.put_sum(front, frame);
        }
        let bytes = match len <= segment_len {
            // A single frame leaves like any other frame.
            true => Bytes::frame(run.slot, off + front_len, len - front_len),
            false => Bytes::Slot {
                slot: run.slot,
                off,
                len,
                segment_len,
            },
        };
        Outgoing {
            link: self.link,
            bytes,
            kind: OutgoingKind::BestEffort(part),
        }
    }

    /// Puts back the last run, for which the link had no room.
    pub(crate) fn put_back_best_effort(&mut self, run: BestEffortRun) {
        self.best_effort_runs.push_front(run);
        self.free_left = 0;
    }

    /// Drops runs with frames of more than `len_max` bytes, which the path no longer carries.
    /// `P7.6`
    pub(crate) fn drop_best_effort(&mut self, slots: &mut SlotPool, len_max: usize) {
        self.best_effort_runs.retain(|run| {
            let fits = (run.segment_len - run.front_len) as usize <= len_max;
            if !fits {
                slots.release(run.slot);
            }
            fits
        });
    }
}
