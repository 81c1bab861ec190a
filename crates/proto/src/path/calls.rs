// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs of eager fragments leave in calls: as many frames as one takes, whichever messages they
//! belong to (`P4.12`).

use super::{Cargo, Path, Run};
use crate::mem::slot::SlotPool;
use crate::peer::Peer;
use crate::peer::transmit::{Sent, View};
use crate::shared::Shared;
use crate::{Instant, LinkId, PeerId};
use portolan_wire::{FrameHeader, FrameKind};

/// What one call takes: a part of one run, and perhaps of the next.
struct Call {
    first: Run,
    second: Option<Run>,
}

impl Peer {
    /// The next run, or as much of the waiting ones as one call takes.
    pub(crate) fn next_run(&mut self, now: Instant, sh: &mut Shared, link: LinkId) -> Option<Sent> {
        let more = self.is_starved();
        let path = self.paths[link.index()].as_deref_mut()?;
        let mut call = path.take_call(&mut sh.slots, more)?;
        let last = call.second.as_mut().unwrap_or(&mut call.first);
        if !path.is_continued(last) {
            last.len += self.append_to_run(now, sh, last);
        }
        self.ack_waited = self.ack_is_due(now) || self.has_control();
        let path = self.paths[link.index()].as_deref_mut()?;
        Some(path.seal_call(now, sh, (self.id, self.session.token_theirs), &call))
    }
}

impl Path {
    /// Whether runs, or a part of them, fit a call and the window, and leave now: `more` stands
    /// behind them without credit.
    pub(crate) fn has_run_to_send(&self, more: bool) -> bool {
        let next = self.runs.front();
        self.window_left() > 0 && next.is_some_and(|run| !more || !self.waits_for_more(run))
    }

    /// Frames that one call takes of runs like this one.
    fn call_frames(&self, run: &Run) -> usize {
        let per_call = (run.call_len / run.segment_len).max(1);
        self.params.segments_max.max(1).min(per_call)
    }

    /// Less than a call waits for what stands behind it, while the call before is under way. `P4.12`
    fn waits_for_more(&self, run: &Run) -> bool {
        let ahead = self.called.wrapping_sub(self.base_num) as usize;
        let is_under_way = 0 < ahead && ahead <= self.inflight.len();
        is_under_way && self.frames_of_call(run) < self.call_frames(run)
    }

    /// Whether a run of `count` frames more would fit the call that those take which wait.
    pub(crate) fn has_call_to_fill(&self, count: usize) -> bool {
        self.runs.front().is_some_and(|run| {
            self.frames_of_call(run).saturating_add(count) <= self.call_frames(run)
        })
    }

    /// Frames of all runs, if they may share a call.
    fn frames_of_call(&self, run: &Run) -> usize {
        let alike = |other: &Run| other.segment_len == run.segment_len;
        let frames = |run: &Run| run.len.div_ceil(run.segment_len);
        match self.runs.iter().all(alike) {
            true => self.runs.iter().map(frames).sum(),
            false => usize::MAX,
        }
    }

    /// The rest of this run's buffer waits.
    fn is_continued(&self, run: &Run) -> bool {
        self.runs.front().is_some_and(|rest| rest.slot == run.slot)
    }

    /// As much of the waiting runs as one call and the window take.
    fn take_call(&mut self, slots: &mut SlotPool, more: bool) -> Option<Call> {
        let run = self.runs.front()?;
        if !self.has_run_to_send(more) {
            return None;
        }
        let (segment_len, room) = (run.segment_len, self.call_frames(run));
        let room = room.min(self.window_left());
        let mut first = self.take_part(room)?;
        let count = first.len.div_ceil(segment_len);
        let is_alike = |next: &Run| next.segment_len == segment_len;
        if count == room || self.is_continued(&first) || !self.runs.front().is_some_and(is_alike) {
            let second = None;
            return Some(Call { first, second });
        }
        first.fill_last(slots);
        let second = self.take_part(room - count);
        Some(Call { first, second })
    }

    /// Up to `count` frames of the first run.
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

    /// Numbers the frames of a call and writes their headers.
    fn seal_call(&mut self, now: Instant, sh: &mut Shared, to: (PeerId, u64), call: &Call) -> Sent {
        let first = self.next_num();
        self.seal_run(now, sh, to.1, &call.first);
        let mut what = View::Slot {
            slot: call.first.slot,
            off: call.first.off,
            len: call.first.len,
            segment_len: call.first.segment_len,
        };
        if let Some(second) = &call.second {
            self.seal_run(now, sh, to.1, second);
            let narrow = |len| u32::try_from(len).unwrap_or(0);
            what = View::Slots {
                slots: [call.first.slot, second.slot],
                off: narrow(call.first.off),
                lens: [narrow(call.first.len), narrow(second.len)],
                segment_len: narrow(second.segment_len),
            };
        }
        self.loss.last_sent_at = now;
        self.called = self.next_num();
        Sent::Numbered {
            peer: to.0,
            link: self.link,
            first,
            count: self.called.wrapping_sub(first),
            what,
        }
    }

    fn seal_run(&mut self, now: Instant, sh: &mut Shared, session: u64, run: &Run) {
        let count = run.len.div_ceil(run.segment_len);
        for ahead in 0..count {
            let start = run.off + ahead * run.segment_len;
            let len = run.segment_len.min(run.len - ahead * run.segment_len);
            let cargo = Cargo::Slot {
                slot: run.slot,
                off: u32::try_from(start).unwrap_or(u32::MAX),
            };
            let packet_num = self.push_inflight(now, cargo, len);
            let header = FrameHeader {
                kind: FrameKind::Data,
                attempt: 0,
                checked: self.checked,
                frame_len: u16::try_from(len).unwrap_or(u16::MAX),
                packet_num,
                session,
            };
            header.emit(&mut sh.slots.bytes_mut(run.slot)[start..]);
        }
        // The buffer has one reference per frame under way, and one until all of it was sent.
        sh.slots.retain(run.slot, u32::try_from(count).unwrap_or(0));
        if !self.is_continued(run) {
            sh.slots.release(run.slot);
        }
    }
}
