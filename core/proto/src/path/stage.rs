// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is submitted goes into frames: into the lane's open one if it fits, else in parts, each of
//! which says where it belongs.

use super::ack::ACK_ROOM;
use super::{CLOSED_MAX, OpenFrame, Path, Paths, Run};
use crate::base::config::BATCH_LEN_MAX;
use crate::base::context::Context;
use crate::base::narrow::narrow;
use crate::mem::copy::copy;
use crate::mem::slot::{RUNS_LEN, SlotId, SlotPool};
use crate::{Address, Cause};
use portolan_wire::{FRAME_HEADER_LEN, Fragment, LaneId, MESSAGE_LEN, Message};

/// Where a message goes and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendSpec {
    /// What it is matched by.
    pub to: Address,
    /// Priority.
    pub lane: LaneId,
    /// Not to be repaired when lost. A message of more than 64 KiB, or with match bits, is sent reliably
    /// all the same, and so is one on a lossless link that fills a frame: best effort is a floor. `P7.5`
    pub best_effort: bool,
}

impl SendSpec {
    /// The header of a message, of a fragment of it, or of its request to send.
    #[inline]
    pub(crate) fn message(&self, len: u16, seq: u16) -> Message {
        let (port, system, match_bits) = match self.to {
            Address::Port(port) => (port.number, port.system, None),
            Address::MatchBits(match_bits) => (0, false, Some(match_bits)),
        };
        Message {
            lane: self.lane,
            best_effort: false,
            system,
            port,
            len,
            seq,
            match_bits,
        }
    }

    /// The header of a message, if that has `N` bytes.
    #[inline]
    pub(crate) fn message_as<const N: usize>(&self, len: u16, seq: u16) -> Option<Message> {
        let is_port = matches!(self.to, Address::Port(_));
        if N == MESSAGE_LEN && is_port || N != MESSAGE_LEN && self.header_len() == N {
            Some(self.message(len, seq))
        } else {
            None
        }
    }

    /// Bytes of a message's header.
    #[inline]
    #[must_use]
    pub fn header_len(&self) -> usize {
        MESSAGE_LEN + self.match_bits_len()
    }

    #[inline]
    fn match_bits_len(&self) -> usize {
        match &self.to {
            Address::Port(_) => 0,
            Address::MatchBits(match_bits) => match_bits.wire_len(),
        }
    }
}

/// Why a message was not accepted. [`Refused::Busy`] and [`Refused::NotUp`] are back-pressure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refused {
    /// The session is not open yet; [`crate::Event::PeerUp`] tells when.
    NotUp,
    /// No credit or no room; [`crate::Event::Writable`] tells when to try again.
    Busy,
    /// Too long to go without asking: use [`crate::Core::rendezvous`].
    TooLong,
    /// The peer is gone.
    Gone(Cause),
    /// The peer was never connected.
    Unknown,
}

/// When the frame that a message went into should leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushHint {
    /// The frame has room for more messages.
    Open,
    /// Whole frames wait, and a call has room for more: of a burst, more may be waited for.
    Frames,
    /// A full frame waits, or as many as a call takes; nothing is gained by waiting longer.
    Full,
}

/// Memory for the payload of an accepted message; must be filled completely.
#[derive(Debug)]
#[must_use = "the message will be sent with whatever was staged"]
pub struct Staging<'a> {
    bytes: &'a mut [u8],
    at: usize,
    /// Payload runs of `run_len` bytes lie `stride` bytes apart.
    run_len: usize,
    stride: usize,
    hint: FlushHint,
}

impl<'a> Staging<'a> {
    /// Memory in one piece.
    #[inline]
    pub(crate) fn whole(bytes: &'a mut [u8], hint: FlushHint) -> Self {
        Staging {
            bytes,
            at: 0,
            run_len: 0,
            stride: 0,
            hint,
        }
    }

    /// Memory in runs of `run_len` bytes, `stride` bytes apart: full frames.
    pub(crate) fn strided(
        bytes: &'a mut [u8],
        run_len: usize,
        stride: usize,
        hint: FlushHint,
    ) -> Self {
        Staging {
            bytes,
            at: 0,
            run_len,
            stride,
            hint,
        }
    }
}

impl Staging<'_> {
    /// Appends a piece of the payload.
    ///
    /// # Panics
    /// When the pieces exceed the length that was submitted.
    #[inline]
    pub fn push(&mut self, mut piece: &[u8]) {
        if self.stride == 0 {
            copy(&mut self.bytes[self.at..self.at + piece.len()], piece);
            self.at += piece.len();
            return;
        }
        while !piece.is_empty() {
            let (run, within) = (self.at / self.run_len, self.at % self.run_len);
            let len = piece.len().min(self.run_len - within);
            let start = run * self.stride + within;
            copy(&mut self.bytes[start..start + len], &piece[..len]);
            self.at += len;
            piece = &piece[len..];
        }
    }

    /// When the frame should leave.
    #[inline]
    #[must_use]
    pub fn hint(&self) -> FlushHint {
        self.hint
    }
}

impl Path {
    /// Whether `lane` may put another message into frames here.
    #[inline]
    pub(crate) fn has_room(&self, lane: usize) -> bool {
        self.closed[lane].len() < CLOSED_MAX && self.runs.len() < CLOSED_MAX
    }

    /// Whether a record of `len` bytes may share a frame.
    #[inline]
    pub(crate) fn fits_shared(&self, len: usize) -> bool {
        self.header_len() + len <= self.shared_frame_len()
    }

    /// Nothing of the lane waits here, and the link has room as far as is known.
    #[inline]
    pub(crate) fn is_idle(&self, lane: usize) -> bool {
        self.open[lane].is_none() && self.closed[lane].is_empty() && !self.blocked
    }

    /// Room for a record of `need` bytes that `is_numbered` in the lane's open frame, or in a new
    /// one. `P4.6`
    #[inline]
    pub(crate) fn stage_shared<'a>(
        &mut self,
        slots: &'a mut SlotPool,
        lane: usize,
        need: usize,
        is_numbered: bool,
    ) -> (&'a mut [u8], FlushHint) {
        let mut hint = FlushHint::Open;
        if let Some(open) = self.open[lane]
            && open.len + need > open.len_max
        {
            self.close(lane);
            hint = FlushHint::Full;
        }
        if self.open[lane].is_none() {
            self.open[lane] = Some(self.new_frame(slots));
        }
        let Some(open) = &mut self.open[lane] else {
            unreachable!("it has just been opened");
        };
        // P7.2, P3.11
        open.numbered |= is_numbered;
        let start = open.len;
        open.len += need;
        (&mut slots.bytes_mut(open.slot)[start..start + need], hint)
    }

    /// Whether the lane's open frame has room for a record of `need` bytes.
    #[inline]
    pub(crate) fn has_open_room(&self, lane: usize, need: usize) -> bool {
        self.open[lane].is_some_and(|open| open.len + need <= open.len_max)
    }

    /// An empty frame for messages.
    pub(super) fn new_frame(&self, slots: &mut SlotPool) -> OpenFrame {
        let len_max = self.shared_frame_len();
        OpenFrame {
            // With room for the acknowledgement that may be appended.
            slot: slots.take(len_max + ACK_ROOM),
            len: self.header_len(),
            len_max,
            numbered: false,
        }
    }

    /// A frame of a lossless link for one record alone, of `need` bytes.
    pub(crate) fn stage_alone<'a>(
        &mut self,
        slots: &'a mut SlotPool,
        lane: usize,
        need: usize,
    ) -> &'a mut [u8] {
        self.close(lane);
        let slot = slots.take(need);
        self.closed[lane].push_back(OpenFrame {
            slot,
            len: need,
            len_max: need,
            numbered: true,
        });
        &mut slots.bytes_mut(slot)[..need]
    }

    /// Cuts `len` bytes of a message, those from the offset of `whole` on, into frames of one
    /// fragment each, behind one another in one buffer.
    pub(crate) fn stage_run<'a>(
        &mut self,
        slots: &'a mut SlotPool,
        whole: &Fragment,
        len: usize,
        batch_len: usize,
    ) -> Staging<'a> {
        let emit = |offset: usize, part: usize, out: &mut [u8]| {
            let fragment = Fragment {
                message: Message {
                    len: narrow(part),
                    ..whole.message
                },
                message_len: whole.message_len,
                offset: whole.offset + narrow::<_, u32>(offset),
            };
            fragment.emit(out);
        };
        let parts = Parts {
            lane: whole.message.lane,
            header_len: whole.header_len(),
            len,
            emit: &emit,
        };
        self.stage_run_of(slots, &parts, batch_len)
    }

    /// The same for any record that says where its part belongs. There is at least one byte.
    pub(crate) fn stage_run_of<'a>(
        &mut self,
        slots: &'a mut SlotPool,
        parts: &Parts<'_>,
        batch_len: usize,
    ) -> Staging<'a> {
        let cut = self.cut(parts.header_len, parts.len);
        let (slot, start) = self.place_run(
            slots,
            cut.count,
            cut.segment_len(),
            cut.total_len,
            batch_len,
        );
        let hint = match self.has_batch_to_fill(cut.count) {
            true => FlushHint::Frames,
            false => FlushHint::Full,
        };
        let bytes = &mut slots.bytes_mut(slot)[start..start + cut.total_len];
        cut.stage(parts, bytes, hint)
    }

    /// How the frames of a record with `len` bytes of payload, in several parts, lie behind one another: each
    /// part has a header of `header_len` bytes. There is at least one byte.
    #[inline]
    pub(crate) fn cut(&self, header_len: usize, len: usize) -> Cut {
        let header_len = FRAME_HEADER_LEN + header_len;
        let (count, payload_len) = self.cut_evenly(header_len, len);
        let head_len = self.front_len() + header_len;
        Cut {
            count,
            payload_len,
            head_len,
            total_len: len + count * head_len,
        }
    }

    /// Into how many frames a message of `len` bytes is cut, and the bytes of each but the last, which
    /// has room for what is piggybacked. As many as must be, of one length: messages of one length fit
    /// into one call, behind one another, and few bytes are padding. `P4.12`
    fn cut_evenly(&self, header_len: usize, len: usize) -> (usize, usize) {
        // A fragment's length is a 16-bit field and the run must fit one buffer.
        let most = self.frame_len.min(16 * 1024) - header_len;
        let count = len.div_ceil(most);
        (count, (len + PIGGYBACK_RESERVE).div_ceil(count).min(most))
    }

    /// Queues a run of `count` frames and says where it lies: behind the one before, if that has
    /// frames as long and its buffer room; its last frame is then made as long as the others. `P4.12`
    fn place_run(
        &mut self,
        slots: &mut SlotPool,
        count: usize,
        segment_len: usize,
        len: usize,
        batch_len: usize,
    ) -> (SlotId, usize) {
        if let Some(run) = self
            .runs
            .back_mut()
            .filter(|run| run.segment_len == segment_len)
        {
            let start = run.off + run.len + run.room_in_last();
            run.batch_len = BATCH_LEN_MAX;
            run.is_shared = false;
            if start + count * segment_len <= slots.bytes(run.slot).len() {
                run.fill_last(slots);
                run.len += len;
                return (run.slot, start);
            }
        }
        // The last frame may carry acknowledgements, up to the length of the others. Behind a run that
        // waits, others may be expected.
        let slot = slots.take(match self.runs.is_empty() {
            true => count * segment_len,
            false => RUNS_LEN,
        });
        self.runs.push_back(Run {
            slot,
            off: 0,
            len,
            segment_len,
            front_len: self.front_len(),
            batch_len,
            is_shared: false,
        });
        (slot, 0)
    }

    /// Room for a numbered record of `need` bytes in the run of shared frames that waits last, or in a
    /// new one. `P4.16`
    fn stage_in_run<'a>(
        &mut self,
        slots: &'a mut SlotPool,
        need: usize,
    ) -> (&'a mut [u8], FlushHint) {
        if let Some(run) = self.runs.back_mut().filter(|run| run.is_shared) {
            let mut start = run.off + run.len;
            if need <= run.room_in_last() {
                run.len += need;
                return (
                    &mut slots.bytes_mut(run.slot)[start..start + need],
                    FlushHint::Open,
                );
            }
            start += run.room_in_last();
            // The path's frames may have become longer since the run began.
            let head_len = run.front_len + FRAME_HEADER_LEN;
            let fits = head_len + need <= run.segment_len;
            if fits && start + run.segment_len <= slots.bytes(run.slot).len() {
                run.fill_last(slots);
                run.len += head_len + need;
                let slot = run.slot;
                return self.staged_in_frame(slots, slot, start + head_len, need);
            }
        }
        let front_len = self.front_len();
        let head_len = front_len + FRAME_HEADER_LEN;
        let segment_len = front_len + self.shared_frame_len();
        // A short burst takes little; behind a run that waits, much more may be expected.
        let slot = slots.take(match self.runs.is_empty() {
            true => segment_len.max(SHORT_RUN_LEN),
            false => RUNS_LEN,
        });
        self.runs.push_back(Run {
            slot,
            off: 0,
            len: head_len + need,
            segment_len,
            front_len,
            batch_len: BATCH_LEN_MAX,
            is_shared: true,
        });
        self.staged_in_frame(slots, slot, head_len, need)
    }

    /// The first record of a shared frame of a run, which begins `at` that place of its buffer.
    fn staged_in_frame<'a>(
        &self,
        slots: &'a mut SlotPool,
        slot: SlotId,
        at: usize,
        need: usize,
    ) -> (&'a mut [u8], FlushHint) {
        let waiting = self.runs.back().map_or(0, |run| run.len);
        let hint = match self.has_batch_to_fill(0) && !is_company(waiting, need) {
            true => FlushHint::Frames,
            false => FlushHint::Full,
        };
        (&mut slots.bytes_mut(slot)[at..at + need], hint)
    }

    /// Whether the last frame of a shared run has room for a record of `lane`, of `need` bytes.
    #[inline]
    fn has_run_room(&self, lane: usize, need: usize) -> bool {
        let last = self.runs.back().filter(|run| run.is_shared);
        lane == LaneId::Low.index() && last.is_some_and(|run| need <= run.room_in_last())
    }

    /// A run of shared frames waits, so that what follows goes there, too.
    #[inline]
    fn has_shared_run(&self) -> bool {
        self.runs.back().is_some_and(|run| run.is_shared)
    }

    /// Frames leave in GSO batches here.
    #[inline]
    fn sends_batches(&self) -> bool {
        !self.params.lossless && self.params.segments_max > 1
    }

    /// Ends the lane's open frame: it waits for transmission, and the next message starts another.
    pub(super) fn close(&mut self, lane: usize) {
        if let Some(open) = self.open[lane].take() {
            self.closed[lane].push_back(open);
        }
    }
}

/// A record to be staged, with `len` bytes of payload, in one part or several.
pub(crate) struct Parts<'a> {
    pub(crate) lane: LaneId,
    pub(crate) header_len: usize,
    pub(crate) len: usize,
    /// Writes the header of a part: its offset, its length, where to.
    pub(crate) emit: &'a dyn Fn(usize, usize, &mut [u8]),
}

/// How a record lies in frames of one part each, behind one another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    pub(super) count: usize,
    /// Bytes of payload in each but the last.
    pub(super) payload_len: usize,
    /// Bytes in front of the payload.
    pub(super) head_len: usize,
    /// Bytes of all frames.
    pub(super) total_len: usize,
}

impl Cut {
    /// Bytes of each frame but the last, and of what stands in front of it.
    pub(super) fn segment_len(&self) -> usize {
        self.head_len + self.payload_len
    }

    /// Bytes that the last frame may take more, to be as long as the others.
    #[inline]
    pub(crate) fn room_in_last(&self) -> usize {
        self.count * self.segment_len() - self.total_len
    }

    /// Writes the headers of the parts into `bytes`, which are as many as the frames take, and hands
    /// out the places of the payload.
    pub(super) fn stage<'a>(
        &self,
        parts: &Parts<'_>,
        bytes: &'a mut [u8],
        hint: FlushHint,
    ) -> Staging<'a> {
        let segments = bytes.chunks_mut(self.segment_len());
        for (offset, segment) in (0..).step_by(self.payload_len).zip(segments) {
            let part = segment.len() - self.head_len;
            let out = &mut segment[self.head_len - parts.header_len..];
            (parts.emit)(offset, part, out);
        }
        let bytes = &mut bytes[self.head_len..];
        Staging::strided(bytes, self.payload_len, self.segment_len(), hint)
    }
}

/// Messages that take about as long to submit as a call takes that sends them: what has gathered so many
/// leaves, so that the receiver works on them while the next ones gather. `P4.16`
const COMPANY_COUNT: usize = 64;

/// Whether `len` bytes of records like one of `need` bytes are that many.
fn is_company(len: usize, need: usize) -> bool {
    len >= COMPANY_COUNT * need
}

/// Bytes of the buffer of the first run of shared frames: six frames of an ordinary Ethernet.
const SHORT_RUN_LEN: usize = 9 * 1024;

/// Room for an acknowledgement and credit in the last frame of a run.
const PIGGYBACK_RESERVE: usize = portolan_wire::ACK_FIXED_LEN + portolan_wire::CREDIT_LEN;

impl Paths {
    /// Memory for a record of `need` bytes that shares a frame of `lane`, on the path for small
    /// messages; of a burst, on that for bulk data, if frames leave in batches there. `P4.16`
    #[inline]
    pub(crate) fn stage_small<'a>(
        &mut self,
        slots: &'a mut SlotPool,
        lane: usize,
        need: usize,
        is_numbered: bool,
    ) -> Option<(&'a mut [u8], FlushHint)> {
        let batches =
            lane == LaneId::Low.index() && self.bulk_path().is_some_and(Path::sends_batches);
        if batches && is_numbered && self.goes_in_run(lane, need) {
            return Some(self.bulk_mut()?.stage_in_run(slots, need));
        }
        let path = self.small_mut()?;
        let frame_len = path.shared_frame_len();
        let (out, hint) = path.stage_shared(slots, lane, need, is_numbered);
        let hint = match hint {
            FlushHint::Full if batches && !is_company(frame_len, need) => FlushHint::Frames,
            hint => hint,
        };
        Some((out, hint))
    }

    /// Whether a record belongs into a run of shared frames: a full frame waits already, so a burst is
    /// under way.
    fn goes_in_run(&self, lane: usize, need: usize) -> bool {
        let (Some(small), Some(bulk)) = (self.small_path(), self.bulk_path()) else {
            return false;
        };
        let is_burst = bulk.has_shared_run()
            || !small.closed[lane].is_empty() && !small.has_open_room(lane, need);
        is_burst && bulk.fits_shared(need) && bulk.runs.len() < CLOSED_MAX && bulk.is_usable()
    }

    /// The path of a run whose last frame has room for a record of `lane`, of `need` bytes.
    fn run_mut(&mut self, lane: usize, need: usize) -> Option<&mut Path> {
        self.bulk_mut().filter(|path| path.has_run_room(lane, need))
    }

    /// Room for a record of `need` bytes in a frame that `lane` is filling, if there is any and
    /// `number` numbers it.
    #[inline]
    pub(crate) fn append<'a>(
        &mut self,
        slots: &'a mut SlotPool,
        lane: usize,
        need: usize,
        number: impl FnOnce() -> Option<u16>,
    ) -> Option<(u16, &'a mut [u8])> {
        let path = self.small_mut()?;
        if path.has_open_room(lane, need) {
            let seq = number()?;
            return Some((seq, path.stage_shared(slots, lane, need, true).0));
        }
        if path.is_lossless() {
            return None;
        }
        let path = self.run_mut(lane, need)?;
        let seq = number()?;
        Some((seq, path.stage_in_run(slots, need).0))
    }

    /// Memory for the payload of a record, which is cut into parts if no frame carries all of it;
    /// `None` if there is no path.
    pub(crate) fn stage_parts<'a>(
        &mut self,
        ctx: &Context,
        slots: &'a mut SlotPool,
        parts: &Parts<'_>,
    ) -> Option<Staging<'a>> {
        let path = self.small_mut()?;
        let (lane, need) = (parts.lane.index(), parts.header_len + parts.len);
        if path.fits_shared(need) {
            let (bytes, hint) = path.stage_shared(slots, lane, need, true);
            (parts.emit)(0, parts.len, bytes);
            return Some(Staging::whole(&mut bytes[parts.header_len..], hint));
        }
        if path.is_lossless() {
            let bytes = path.stage_alone(slots, lane, need);
            (parts.emit)(0, parts.len, bytes);
            let bytes = &mut bytes[parts.header_len..];
            return Some(Staging::whole(bytes, FlushHint::Full));
        }
        let path = self.run_path_mut(ctx, parts.len)?;
        let batch_len = path.batch_len(ctx, parts.len);
        Some(path.stage_run_of(slots, parts, batch_len))
    }
}

/// Cuts a payload of `len` bytes for records that carry `room` bytes at most: offset and length of
/// each part; of nothing, one empty part.
pub(crate) fn cut_points(len: usize, room: usize) -> impl Iterator<Item = (usize, usize)> {
    let room = room.max(1);
    let count = len.div_ceil(room).max(1);
    (0..count).map(move |index| (index * room, room.min(len - index * room)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn parts_cover_the_whole_once() {
        let parts = |len, room| cut_points(len, room).collect::<Vec<_>>();
        assert_eq!(parts(0, 7), [(0, 0)]);
        assert_eq!(parts(7, 7), [(0, 7)]);
        assert_eq!(parts(15, 7), [(0, 7), (7, 7), (14, 1)]);
    }
}
