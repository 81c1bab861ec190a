// SPDX-License-Identifier: MIT OR Apache-2.0
//! Staging: puts submitted messages into frames. A message goes into its lane's open frame if it
//! fits, otherwise it is cut into parts that state their offset.

use super::ack::ACK_ROOM;
use super::division::Division;
use super::{CLOSED_MAX, OpenFrame, Path, Paths, Run};
use crate::base::config::BATCH_LEN_MAX;
use crate::base::context::Context;
use crate::base::narrow::narrow;
use crate::mem::copy::copy;
use crate::mem::slot::{RUNS_LEN, SlotId, SlotPool};
use crate::{Address, Cause};
use portolan_wire::{FRAME_HEADER_LEN, Fragment, LaneId, MESSAGE_LEN, Message};

/// Destination and service of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendSpec {
    /// Port or match bits.
    pub to: Address,
    /// Priority.
    pub lane: LaneId,
    /// Set for best effort: no retransmission. Messages of more than 64 KiB or with match bits are
    /// sent reliably anyway, and so are messages that fill a frame on a lossless link. `P7.5`
    pub best_effort: bool,
}

impl SendSpec {
    /// Returns the header for a message, a fragment, or a request to send.
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

    /// Returns the header of a message if its length is `N` bytes.
    #[inline]
    pub(crate) fn message_as<const N: usize>(&self, len: u16, seq: u16) -> Option<Message> {
        let is_port = matches!(self.to, Address::Port(_));
        if N == MESSAGE_LEN && is_port || N != MESSAGE_LEN && self.header_len() == N {
            Some(self.message(len, seq))
        } else {
            None
        }
    }

    /// Returns the length of a message's header in bytes.
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

/// Reason why a message was not accepted. [`Refused::Busy`] and [`Refused::NotUp`] are
/// back-pressure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refused {
    /// The session is not open yet; [`crate::Event::PeerUp`] reports when it is.
    NotUp,
    /// No credit or no room; retry after [`crate::Event::Writable`].
    Busy,
    /// Too long for an eager message; use [`crate::Core::rendezvous`].
    TooLong,
    /// The peer has failed.
    PeerFailed(Cause),
    /// The peer was never connected.
    Unknown,
}

/// Advice when to flush the frame of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushHint {
    /// The frame has room for more messages.
    Open,
    /// Complete frames are queued and do not fill a system call. During a burst the caller may
    /// delay the flush to send more frames with it.
    Frames,
    /// A full frame or the frames of a full system call are queued; a delay gains nothing.
    Full,
}

/// Memory for the payload of an accepted message; must be filled completely.
#[derive(Debug)]
#[must_use = "the message will be sent with whatever was staged"]
pub struct Staging<'a> {
    bytes: &'a mut [u8],
    at: usize,
    /// Length in bytes of each payload run; runs start `stride` bytes apart.
    run_len: usize,
    stride: usize,
    hint: FlushHint,
}

impl<'a> Staging<'a> {
    /// Returns memory in one piece.
    #[inline]
    pub(crate) fn contiguous(bytes: &'a mut [u8], hint: FlushHint) -> Self {
        Staging {
            bytes,
            at: 0,
            run_len: 0,
            stride: 0,
            hint,
        }
    }

    /// Returns memory in runs of `run_len` bytes, `stride` bytes apart: full frames.
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
    /// Panics if the pieces exceed the submitted length.
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

    /// Returns the advice when to flush the frame.
    #[inline]
    #[must_use]
    pub fn hint(&self) -> FlushHint {
        self.hint
    }
}

impl OpenFrame {
    /// Returns room for a record of `need` bytes, which fits.
    #[inline]
    fn extend<'a>(&mut self, slots: &'a mut SlotPool, need: usize) -> &'a mut [u8] {
        let start = self.len;
        self.len += need;
        &mut slots.bytes_mut(self.slot)[start..self.len]
    }
}

impl Path {
    /// Returns true if `lane` may add another message to frames of this path.
    #[inline]
    pub(crate) fn has_room(&self, lane: usize) -> bool {
        self.closed[lane].len() < CLOSED_MAX && self.runs.len() < CLOSED_MAX
    }

    /// Returns true if a record of `len` bytes may share a frame.
    #[inline]
    pub(crate) fn fits_shared(&self, len: usize) -> bool {
        self.header_len() + len <= self.shared_frame_len()
    }

    /// Returns true if nothing of the lane waits here and the link is not known to be full.
    #[inline]
    pub(crate) fn is_idle(&self, lane: usize) -> bool {
        self.open[lane].is_none() && self.closed[lane].is_empty() && !self.blocked
    }

    /// Returns room for a record of `need` bytes in the lane's open frame, or in a new one.
    /// The frame gets a packet number if any of its records `is_numbered`. `P4.6`
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
            self.free_left = 0;
        }
        let Some(open) = &mut self.open[lane] else {
            unreachable!("it has just been opened");
        };
        // P7.2, P3.11
        open.numbered |= is_numbered;
        (open.extend(slots, need), hint)
    }

    /// Returns true if the lane's open frame has room for a record of `need` bytes.
    #[inline]
    pub(crate) fn has_open_room(&self, lane: usize, need: usize) -> bool {
        self.open[lane].is_some_and(|open| open.len + need <= open.len_max)
    }

    /// Returns an empty frame for messages.
    pub(super) fn new_frame(&self, slots: &mut SlotPool) -> OpenFrame {
        let len_max = self.shared_frame_len();
        OpenFrame {
            // Includes room for the acknowledgement that may be appended.
            slot: slots.take(len_max + ACK_ROOM),
            len: self.header_len(),
            len_max,
            numbered: false,
        }
    }

    /// Returns a lossless link's frame for a single record of `need` bytes.
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

    /// Cuts `len` bytes of a message, starting at the offset of `whole`, into frames of one
    /// fragment each. The frames are consecutive in one buffer.
    pub(crate) fn stage_run<'a>(
        &mut self,
        slots: &'a mut SlotPool,
        whole: &Fragment,
        len: usize,
        division: Division,
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
        self.stage_run_of(slots, &parts, division)
    }

    /// Cuts any record with parts that state their offset into frames of one part each. `len` is at
    /// least 1.
    pub(crate) fn stage_run_of<'a>(
        &mut self,
        slots: &'a mut SlotPool,
        parts: &Parts<'_>,
        division: Division,
    ) -> Staging<'a> {
        let layout = self.layout(parts.header_len, parts.len, division);
        let (slot, start) = self.place_run(
            slots,
            layout.count,
            layout.segment_len(),
            layout.total_len,
            division.batch_len(),
        );
        let hint = match self.has_batch_to_fill(layout.count) {
            true => FlushHint::Frames,
            false => FlushHint::Full,
        };
        let bytes = &mut slots.bytes_mut(slot)[start..start + layout.total_len];
        layout.stage(parts, bytes, hint)
    }

    /// Returns the layout of the frames of a record with `len` bytes of payload in several parts.
    /// Each part has a header of `header_len` bytes. `len` is at least 1.
    #[inline]
    pub(crate) fn layout(
        &self,
        header_len: usize,
        len: usize,
        division: Division,
    ) -> FragmentLayout {
        let header_len = FRAME_HEADER_LEN + header_len;
        let (count, payload_len) = self.cut_evenly(header_len, len, division.payload_len_max());
        let head_len = self.front_len() + header_len;
        FragmentLayout {
            count,
            payload_len,
            head_len,
            total_len: len + count * head_len,
        }
    }

    /// Returns the number of frames of a message of `len` bytes, and the payload length of each but
    /// the last, which has room for piggybacked records. It uses the fewest frames of about
    /// `payload_len_max` bytes of payload at most, all of one length. Messages of equal length then
    /// share a call, with little padding. `P4.12`
    fn cut_evenly(&self, header_len: usize, len: usize, payload_len_max: usize) -> (usize, usize) {
        // A fragment's length is a 16-bit field and the run must fit one buffer.
        let most = self.frame_len.min(16 * 1024) - header_len;
        let count = len.div_ceil(most.min(payload_len_max));
        let payload_len = (len + PIGGYBACK_RESERVE).div_ceil(count).min(most);
        // The room may have made the last of many short frames unnecessary.
        (len.div_ceil(payload_len), payload_len)
    }

    /// Queues a run of `count` frames and returns its position. It is appended to the previous run
    /// if that has frames of the same length and room in its buffer; that run's last frame is then
    /// padded. `P4.12`
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
        self.free_left = 0;
        // The last frame may carry acknowledgements, up to the length of the others. After a
        // waiting run, further runs are likely.
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

    /// Returns room for a numbered record of `need` bytes in the last waiting run of shared frames,
    /// or in a new one. `P4.16`
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
            // The path's frame length may have grown since the run was started.
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
        self.free_left = 0;
        // A short burst needs little memory; after a waiting run, much more is likely.
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

    /// Returns the `need` bytes at offset `at` of the run's buffer for the first record of a shared
    /// frame, which follows the headers, and the flush hint.
    fn staged_in_frame<'a>(
        &self,
        slots: &'a mut SlotPool,
        slot: SlotId,
        at: usize,
        need: usize,
    ) -> (&'a mut [u8], FlushHint) {
        let waiting = self.runs.back().map_or(0, |run| run.len);
        let hint = match self.has_batch_to_fill(0) && !is_worth_sharing(waiting, need) {
            true => FlushHint::Frames,
            false => FlushHint::Full,
        };
        (&mut slots.bytes_mut(slot)[at..at + need], hint)
    }

    /// Returns true if the last frame of a shared run has room for a record of `need` bytes of
    /// `lane`.
    #[inline]
    fn has_run_room(&self, lane: usize, need: usize) -> bool {
        let last = self.runs.back().filter(|run| run.is_shared);
        lane == LaneId::Low.index() && last.is_some_and(|run| need <= run.room_in_last())
    }

    /// Returns true if a run of shared frames waits, so that later records must join it.
    #[inline]
    fn has_shared_run(&self) -> bool {
        self.runs.back().is_some_and(|run| run.is_shared)
    }

    /// Returns true if frames of this path leave in GSO batches.
    #[inline]
    fn sends_batches(&self) -> bool {
        !self.params.lossless && self.params.segments_max > 1
    }

    /// Closes the lane's open frame. It waits for transmission, and the next message opens another.
    pub(super) fn close(&mut self, lane: usize) {
        if let Some(open) = self.open[lane].take() {
            self.closed[lane].push_back(open);
        }
    }
}

/// Record to be staged, with `len` bytes of payload, in one or more parts.
pub(crate) struct Parts<'a> {
    pub(crate) lane: LaneId,
    pub(crate) header_len: usize,
    pub(crate) len: usize,
    /// Writes the header of a part, given its offset, its length and the output.
    pub(crate) emit: &'a dyn Fn(usize, usize, &mut [u8]),
}

/// Layout of a record in consecutive frames of one part each.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FragmentLayout {
    pub(super) count: usize,
    /// Payload length in bytes of each frame but the last.
    pub(super) payload_len: usize,
    /// Bytes before the payload.
    pub(super) head_len: usize,
    /// Length of all frames in bytes.
    pub(super) total_len: usize,
}

impl FragmentLayout {
    /// Returns the length in bytes of each frame but the last, including its checksum header.
    pub(super) fn segment_len(&self) -> usize {
        self.head_len + self.payload_len
    }

    /// Returns the number of bytes missing from the last frame to the full segment length.
    #[inline]
    pub(crate) fn room_in_last(&self) -> usize {
        self.count * self.segment_len() - self.total_len
    }

    /// Writes the headers of the parts into `bytes`, which must have the length of all frames, and
    /// returns the memory for the payload.
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

/// Number of messages that take about as long to submit as the call that sends them. That many are
/// sent without waiting for more, so that the receiver handles them while the next ones gather.
/// `P4.16`
const SHARING_COUNT_MAX: usize = 64;

/// Returns true if `len` bytes of records like one of `need` bytes reach that number.
fn is_worth_sharing(len: usize, need: usize) -> bool {
    len >= SHARING_COUNT_MAX * need
}

/// Buffer length in bytes of the first run of shared frames: six ordinary Ethernet frames.
const SHORT_RUN_LEN: usize = 9 * 1024;

/// Room for an acknowledgement and credit in the last frame of a run.
const PIGGYBACK_RESERVE: usize = portolan_wire::ACK_FIXED_LEN + portolan_wire::CREDIT_LEN;

impl Paths {
    /// Returns memory for a record of `need` bytes in a shared frame of `lane`, on the path for
    /// small messages. During a burst, uses the path for bulk data if frames leave in batches
    /// there. `P4.16`
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
        if batches && is_numbered && self.belongs_in_run(lane, need) {
            return Some(self.bulk_mut()?.stage_in_run(slots, need));
        }
        let path = self.small_mut()?;
        let frame_len = path.shared_frame_len();
        let (out, hint) = path.stage_shared(slots, lane, need, is_numbered);
        let hint = match hint {
            FlushHint::Full if batches && !is_worth_sharing(frame_len, need) => FlushHint::Frames,
            hint => hint,
        };
        Some((out, hint))
    }

    /// Returns true if a record belongs into a run of shared frames. That is so if a full frame
    /// waits, which means a burst is in progress.
    fn belongs_in_run(&self, lane: usize, need: usize) -> bool {
        let (Some(small), Some(bulk)) = (self.small_path(), self.bulk_path()) else {
            return false;
        };
        let is_burst = bulk.has_shared_run()
            || !small.closed[lane].is_empty() && !small.has_open_room(lane, need);
        is_burst && bulk.fits_shared(need) && bulk.runs.len() < CLOSED_MAX && bulk.is_usable()
    }

    /// Returns the path of a run if its last frame has room for a record of `need` bytes of `lane`.
    fn run_mut(&mut self, lane: usize, need: usize) -> Option<&mut Path> {
        self.bulk_mut().filter(|path| path.has_run_room(lane, need))
    }

    /// Returns room for a record of `need` bytes in the open frame of `lane`, if there is any and
    /// `number` assigns a number.
    #[inline(always)]
    pub(crate) fn append<'a>(
        &mut self,
        slots: &'a mut SlotPool,
        lane: usize,
        need: usize,
        number: impl FnOnce() -> Option<u16>,
    ) -> Option<(u16, &'a mut [u8])> {
        let path = self.small_mut()?;
        if let Some(open) = &mut path.open[lane]
            && open.len + need <= open.len_max
        {
            let seq = number()?;
            open.numbered = true;
            return Some((seq, open.extend(slots, need)));
        }
        if path.is_lossless() {
            return None;
        }
        let path = self.run_mut(lane, need)?;
        let seq = number()?;
        Some((seq, path.stage_in_run(slots, need).0))
    }

    /// Returns memory for the payload of a record, cut into parts if it does not fit one frame;
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
            return Some(Staging::contiguous(&mut bytes[parts.header_len..], hint));
        }
        if path.is_lossless() {
            let bytes = path.stage_alone(slots, lane, need);
            (parts.emit)(0, parts.len, bytes);
            let bytes = &mut bytes[parts.header_len..];
            return Some(Staging::contiguous(bytes, FlushHint::Full));
        }
        let path = self.run_path_mut(ctx, parts.len)?;
        let division = path.division(ctx, parts.len);
        Some(path.stage_run_of(slots, parts, division))
    }
}

/// Cuts a payload of `len` bytes for records of at most `room` bytes. Yields offset and length of
/// each part; an empty payload has one empty part.
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
    fn parts_cover_the_message_once() {
        let parts = |len, room| cut_points(len, room).collect::<Vec<_>>();
        assert_eq!(parts(0, 7), [(0, 0)]);
        assert_eq!(parts(7, 7), [(0, 7)]);
        assert_eq!(parts(15, 7), [(0, 7), (7, 7), (14, 1)]);
    }
}
