// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frame, or batch of frames, passed to a link: where its bytes are, and how it is handled if the
//! link has no room.

use super::best_effort::BestEffortRun;
use super::{Contents, OpenFrame, Path, TxState};
use crate::mem::slot::{SlotId, SlotPool};
use crate::{Instant, LinkId};
use portolan_wire::{ATTEMPT_MAX, CHECK_LEN, FRAME_HEADER_LEN, FrameKind};

/// See the module documentation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outgoing {
    pub(crate) link: LinkId,
    pub(crate) bytes: Bytes,
    pub(crate) kind: OutgoingKind,
}

/// Offset of the records in the buffer of a frame that is sent past the queues. Its checksum and
/// its header precede them.
pub(crate) const RECORDS_AT: usize = CHECK_LEN + FRAME_HEADER_LEN;

/// Frame for a link to send now, which [`crate::Core::submit`] has filled.
#[derive(Debug)]
pub struct SingleFrame<'a> {
    /// Link to use.
    pub link: LinkId,
    /// Frame, with its checksum in front if it has one.
    pub bytes: &'a [u8],
    /// Number of the frame.
    num: u32,
}

impl<'a> SingleFrame<'a> {
    #[inline]
    pub(super) fn new(link: LinkId, bytes: &'a [u8], num: u32) -> Self {
        SingleFrame { link, bytes, num }
    }

    /// Returns the number of the frame.
    #[inline]
    pub(crate) fn num(&self) -> u32 {
        self.num
    }
}

/// Location of the bytes of a transmit.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Bytes {
    /// Consecutive frames of `segment_len` bytes in a frame buffer; the last may be shorter.
    Slot {
        slot: SlotId,
        off: usize,
        len: usize,
        segment_len: usize,
    },
    /// End of one buffer's frames and start of the next one's.
    Slots {
        slots: [SlotId; 2],
        off: u32,
        lens: [u32; 2],
        segment_len: u32,
    },
    /// Headers in the scratch buffer, and payload in the memory of operations that it lists.
    Gathered {
        header_len: usize,
        fragment_len: usize,
    },
    /// Head of an eager message for a stream in the scratch buffer, and `len` bytes of payload.
    Message { slot: SlotId, len: usize },
    /// The scratch buffer.
    Scratch,
}

impl Bytes {
    /// Returns the location of one frame.
    #[inline]
    pub(crate) fn frame(slot: SlotId, off: usize, len: usize) -> Bytes {
        Bytes::Slot {
            slot,
            off,
            len,
            segment_len: len,
        }
    }
}

/// Kind of a transmit, which determines its handling after a refusal.
#[derive(Clone, Copy, Debug)]
pub(crate) enum OutgoingKind {
    /// Numbered frames, `count` starting at `first`; they count as lost if not sent.
    Numbered { first: u32, count: u32 },
    /// Lost frames, with their numbers in the scratch buffer, and `count` new ones starting at
    /// `first`.
    Repairs { first: u32, count: u32 },
    /// Frame of a lossless link; keeps waiting if not sent, and is freed when sent.
    Lossless { lane: usize, frame: OpenFrame },
    /// Frame without a number; freed in either case.
    Unnumbered { slot: SlotId },
    /// Unnumbered frames of a best-effort message; keep waiting if not sent, and are freed when
    /// sent.
    BestEffort(BestEffortRun),
    /// Chunk of a transfer on a lossless link; sent again from its first byte.
    Chunk { transfer: u32, off: u64 },
    /// Eager message by stream; keeps waiting if not sent.
    Message,
    /// Handshake, probe or reset; repeated by its own timer.
    Repeating,
}

impl OutgoingKind {
    /// Returns the buffer that is kept only until the transmit was sent.
    #[inline]
    pub(crate) fn kept_slot(&self) -> Option<SlotId> {
        match self {
            OutgoingKind::Lossless { frame, .. } => Some(frame.slot),
            OutgoingKind::Unnumbered { slot } => Some(*slot),
            OutgoingKind::BestEffort(run) => Some(run.slot()),
            OutgoingKind::Numbered { .. }
            | OutgoingKind::Repairs { .. }
            | OutgoingKind::Chunk { .. }
            | OutgoingKind::Message
            | OutgoingKind::Repeating => None,
        }
    }
}

impl Path {
    /// Returns the transmit for a numbered frame, or run of frames, that was just written.
    #[inline]
    pub(crate) fn outgoing(&self, (first, count): (u32, u32), bytes: Bytes) -> Outgoing {
        Outgoing {
            link: self.link,
            bytes,
            kind: OutgoingKind::Numbered { first, count },
        }
    }

    /// Takes the lane's next frame, if the window has room for it. `P3.3`
    #[inline]
    pub(crate) fn take_frame(&mut self, lane: usize) -> Option<OpenFrame> {
        let numbered = match self.closed[lane].front() {
            Some(frame) => frame.numbered,
            None => self.open[lane]?.numbered,
        };
        if numbered && self.window_left() == 0 {
            return None;
        }
        self.closed[lane]
            .pop_front()
            .or_else(|| self.open[lane].take())
    }

    /// Returns true if the lane has a frame to send.
    #[inline]
    pub(crate) fn has_frame(&self, lane: usize) -> bool {
        self.open[lane].is_some() || !self.closed[lane].is_empty()
    }

    /// Returns an empty frame for records that cannot be piggybacked.
    pub(crate) fn empty_frame(&self, slots: &mut SlotPool) -> OpenFrame {
        OpenFrame {
            // Control records and a full acknowledgement fit the smallest buffer.
            slot: slots.take(2048),
            len: self.header_len(),
            len_max: self.header_len(),
            numbered: false,
        }
    }

    /// Numbers a frame, if it needs an acknowledgement, and writes its header.
    #[inline]
    pub(crate) fn seal(
        &mut self,
        now: Instant,
        slots: &mut SlotPool,
        session: u64,
        frame: &OpenFrame,
    ) -> Outgoing {
        let (slot, len) = (frame.slot, frame.len);
        let link = self.link;
        let bytes = Bytes::frame(slot, 0, len);
        let out = slots.bytes_mut(slot);
        if !frame.numbered {
            let header = self.header(FrameKind::Unnumbered, (0, 0), len, session);
            header.emit(out);
            let kind = OutgoingKind::Unnumbered { slot };
            return Outgoing { link, bytes, kind };
        }
        let num = self.number(now, Contents::Slot { slot, off: 0 }, len);
        let header = self.header(FrameKind::Data, (num, 0), len, session);
        header.emit(out);
        self.outgoing((num, 1), bytes)
    }

    /// Puts back a transmit for which the link had no room.
    pub(crate) fn take_back(&mut self, slots: &mut SlotPool, kind: OutgoingKind) {
        match kind {
            OutgoingKind::Numbered { first, count } | OutgoingKind::Repairs { first, count } => {
                for ahead in (0..count).rev() {
                    self.put_back(first.wrapping_add(ahead));
                }
            }
            // Frames of a lossless link are never sent past the queues as single ones.
            OutgoingKind::Lossless { lane, frame } => self.closed[lane].push_front(frame),
            OutgoingKind::Unnumbered { slot } => slots.release(slot),
            OutgoingKind::BestEffort(run) => self.put_back_best_effort(run),
            OutgoingKind::Chunk { .. } | OutgoingKind::Message | OutgoingKind::Repeating => {}
        }
    }

    /// Returns the contents of the next lost frame. `P3.1`
    pub(crate) fn peek_lost(&mut self) -> Option<Contents> {
        loop {
            let num = *self.lost.front()?;
            match self.entry_mut(num) {
                Some(entry) if entry.state == TxState::Lost => return Some(entry.contents),
                _ => self.lost.pop_front(),
            };
        }
    }

    /// Takes the next lost frame, which is retransmitted now. `P3.1`
    pub(crate) fn next_lost(&mut self, now: Instant) -> Option<LostFrame> {
        while let Some(num) = self.lost.pop_front() {
            let Some(entry) = self.entry_mut(num) else {
                continue;
            };
            if entry.state != TxState::Lost {
                continue;
            }
            entry.state = TxState::Sent;
            entry.sent_at = now;
            entry.attempt = (entry.attempt + 1).min(ATTEMPT_MAX);
            let lost = LostFrame {
                num,
                contents: entry.contents,
                len: usize::from(entry.len),
                attempt: entry.attempt,
            };
            self.in_flight += 1;
            self.loss.on_repaired(now);
            return Some(lost);
        }
        None
    }
}

/// Frame that is retransmitted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LostFrame {
    pub(crate) num: u32,
    pub(crate) contents: Contents,
    pub(crate) len: usize,
    pub(crate) attempt: u8,
}
