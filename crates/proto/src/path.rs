// SPDX-License-Identifier: MIT OR Apache-2.0
//! One way to one peer: its packet numbers, what is under way, and what waits to be sent.

pub(crate) mod ack;
mod calls;
pub(crate) mod congestion;
mod ecn;
pub(crate) mod failover;
mod loss;
pub(crate) mod probe;
pub(crate) mod refragment;
pub(crate) mod rtt;
pub(crate) mod stage;

use crate::base::config::number_span;
use crate::mem::slot::{SlotId, SlotPool};
use crate::{Instant, LinkId, LinkParams};
use ack::RxWindow;
use alloc::collections::VecDeque;
use core::time::Duration;
use portolan_wire::{CHECK_LEN, FRAME_HEADER_LEN};
use rtt::Rtt;

/// `P6.1`: frame length before the path MTU is known. IPv6 promises 1280 bytes; headers off.
pub(crate) const FRAME_LEN_SAFE: usize = 1200;

/// `P6.2`: no path is so narrow that frames must be shorter. IPv4 promises 576 bytes; headers off.
pub(crate) const FRAME_LEN_LEAST: usize = 512;

/// Bytes of the longest frame in which a lossless link's messages share. A frame costs a ring next
/// to nothing, so a burst leaves in parts that the receiver works on while the next part gathers.
pub(crate) const SHARED_FRAME_LEN_LOSSLESS: usize = 256;

/// Closed frames that may wait on a path before submissions are refused.
const CLOSED_MAX: usize = 64;

/// State of a path, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathStatus {
    /// Link it uses.
    pub link: LinkId,
    /// The peer has answered on it, and it was not left for another since.
    pub up: bool,
    /// Small messages take it.
    pub small: bool,
    /// Bulk data takes it.
    pub bulk: bool,
    /// Bytes of the largest frame that has passed.
    pub frame_len: usize,
    /// Shortest round trip seen.
    pub rtt_min: Option<Duration>,
    /// Smoothed round trip.
    pub rtt: Duration,
    /// Frames under way.
    pub inflight_count: usize,
    /// Frames that may be under way for the network's sake; `None` where nothing but the receiver
    /// holds this side back.
    pub window: Option<usize>,
}

/// What a numbered frame carries, for sending it again.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cargo {
    /// Bytes of a frame buffer.
    Slot { slot: SlotId, off: u32 },
    /// A fragment of the user's memory.
    Fragment { transfer: u32, index: u32 },
    /// A part of one that was cut again for a narrower path.
    Piece {
        transfer: u32,
        index: u32,
        within: u16,
    },
    /// Acknowledged; or moved to other frames, or its transfer is gone: then its number is filled
    /// by an empty frame.
    Nothing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TxState {
    Sent,
    Lost,
    Acked,
}

#[derive(Debug)]
pub(crate) struct InFlight {
    pub(crate) cargo: Cargo,
    pub(crate) sent_at: Instant,
    /// Bytes of the frame.
    pub(crate) len: u16,
    pub(crate) attempt: u8,
    pub(crate) state: TxState,
}

/// A frame that is being filled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenFrame {
    pub(crate) slot: SlotId,
    pub(crate) len: usize,
    /// Bytes that it may grow to. Its buffer was chosen for that; the path's frames may have become
    /// longer since.
    pub(crate) len_max: usize,
    pub(crate) numbered: bool,
}

/// A run of fragments of one eager message, in one frame buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    pub(crate) slot: SlotId,
    pub(crate) off: usize,
    pub(crate) len: usize,
    pub(crate) segment_len: usize,
    /// Most bytes of one call.
    pub(crate) call_len: usize,
}

impl Run {
    /// Bytes by which the last frame is shorter than the others.
    pub(crate) fn room_in_last(&self) -> usize {
        self.len.next_multiple_of(self.segment_len) - self.len
    }

    /// Makes the last frame as long as the others: with zeros, which end a frame (`P1.5`).
    pub(crate) fn fill_last(&mut self, slots: &mut SlotPool) {
        let (end, room) = (self.off + self.len, self.room_in_last());
        slots.bytes_mut(self.slot)[end..end + room].fill(0);
        self.len += room;
    }
}

#[derive(Debug)]
pub(crate) struct Path {
    pub(crate) link: LinkId,
    pub(crate) params: LinkParams,
    pub(crate) up: bool,
    /// Verified frame length.
    pub(crate) frame_len: usize,
    /// Upper bound for it, from both sides' links.
    pub(crate) frame_len_bound: usize,
    /// Frames travel with a checksum. `P13.1`
    pub(crate) checked: bool,
    /// Frames that the peer lets be on their way.
    pub(crate) window_frames: u32,
    pub(crate) rtt: Rtt,
    pub(crate) rx: RxWindow,
    pub(crate) probe: crate::path::probe::ProbeState,

    /// Number of the front entry of `inflight`.
    pub(crate) base_num: u32,
    pub(crate) inflight: VecDeque<InFlight>,
    pub(crate) lost: VecDeque<u32>,
    /// How many of those are on their way: neither acknowledged nor lost.
    pub(crate) flying: usize,
    pub(crate) loss: crate::path::loss::LossState,
    /// `None`: the receiver's window alone holds this side back.
    pub(crate) congestion: Option<crate::path::congestion::Congestion>,
    pub(crate) standing: crate::path::failover::Standing,

    /// One frame per lane, so that the lanes share nothing that is lost or ordered.
    pub(crate) open: [Option<OpenFrame>; 2],
    pub(crate) closed: [VecDeque<OpenFrame>; 2],
    pub(crate) runs: VecDeque<Run>,
    /// Number behind those of the last call of these.
    pub(crate) called: u32,
    /// The link had no room; cleared when it may have again.
    pub(crate) blocked: bool,
}

impl Path {
    pub(crate) fn new(link: LinkId, params: LinkParams, rx_window: u16) -> Self {
        let frame_len_bound = params.frame_len_max.min(portolan_wire::FRAME_LEN_MAX);
        assert!(
            frame_len_bound >= FRAME_LEN_LEAST,
            "a link must carry frames of 512 bytes"
        );
        Path {
            link,
            params,
            up: false,
            frame_len: if params.lossless {
                frame_len_bound
            } else {
                frame_len_bound.min(FRAME_LEN_SAFE)
            },
            frame_len_bound,
            checked: params.checksum,
            window_frames: 64,
            rtt: Rtt::new(),
            rx: RxWindow::new(rx_window),
            probe: crate::path::probe::ProbeState::default(),
            base_num: 0,
            inflight: VecDeque::new(),
            lost: VecDeque::new(),
            flying: 0,
            loss: crate::path::loss::LossState::default(),
            congestion: None,
            standing: crate::path::failover::Standing::default(),
            open: [None; 2],
            closed: [VecDeque::new(), VecDeque::new()],
            runs: VecDeque::new(),
            called: 0,
            blocked: false,
        }
    }

    /// Bytes that the link adds to each frame.
    pub(crate) fn check_len(&self) -> usize {
        if self.checked { CHECK_LEN } else { 0 }
    }

    /// Whether a frame that says of itself that it came with a right checksum, or without any, is one
    /// of this path. `P13.3`
    #[inline]
    pub(crate) fn takes(&self, checked: bool) -> bool {
        checked || !self.checked
    }

    /// Bytes before the first record of a frame.
    #[inline]
    pub(crate) fn header_len(&self) -> usize {
        if self.params.lossless {
            0
        } else {
            FRAME_HEADER_LEN
        }
    }

    /// Bytes that a shared frame may grow to; room for a short acknowledgement is kept free.
    #[inline]
    pub(crate) fn shared_frame_len(&self) -> usize {
        if self.params.lossless {
            self.frame_len.min(SHARED_FRAME_LEN_LOSSLESS)
        } else {
            // A jumbo frame; longer ones gain nothing for small messages and need larger buffers.
            self.frame_len.min(9000) - ACK_RESERVE
        }
    }

    /// Whether `lane` may put another message into frames here.
    #[inline]
    pub(crate) fn has_room(&self, lane: usize) -> bool {
        self.closed[lane].len() < CLOSED_MAX && self.runs.len() < CLOSED_MAX
    }

    /// An empty frame for messages.
    pub(crate) fn new_frame(&self, slots: &mut SlotPool) -> OpenFrame {
        let len_max = self.shared_frame_len();
        OpenFrame {
            slot: slots.take(len_max + crate::path::ack::ACK_LEN_MAX),
            len: self.header_len(),
            len_max,
            numbered: false,
        }
    }

    /// Nothing waits, and no more is under way than frames whose acknowledgement may be waiting for
    /// company: what is sent now is a message on its own. `P4.11`
    pub(crate) fn is_quiet(&self, ack_every: u32) -> bool {
        self.runs.is_empty() && self.inflight.len() < ack_every as usize
    }

    /// Frames that may still be put under way. `P3.3`, `P3.13`
    #[inline]
    pub(crate) fn window_left(&self) -> usize {
        let span = number_span(self.window_frames) as usize;
        let room = span.saturating_sub(self.inflight.len());
        room.min(self.flying_left())
    }

    /// Frames that may still be on their way: the receiver's buffer and the network bound them.
    /// `P3.3`, `P3.13`
    #[inline]
    pub(crate) fn flying_left(&self) -> usize {
        let buffered = self.window_frames as usize;
        let window = self
            .congestion
            .as_ref()
            .map_or(buffered, |c| c.window().min(buffered));
        window.saturating_sub(self.flying)
    }

    #[inline]
    pub(crate) fn next_num(&self) -> u32 {
        self.base_num
            .wrapping_add(u32::try_from(self.inflight.len()).unwrap_or(u32::MAX))
    }

    /// Takes the next number for a frame of `len` bytes that leaves now. `P3.1`
    pub(crate) fn push_inflight(&mut self, now: Instant, cargo: Cargo, len: usize) -> u32 {
        let num = self.next_num();
        if self.inflight.is_empty() {
            self.loss.progress_at = now;
        }
        self.flying += 1;
        self.inflight.push_back(InFlight {
            cargo,
            sent_at: now,
            len: u16::try_from(len).unwrap_or(u16::MAX),
            attempt: 0,
            state: TxState::Sent,
        });
        num
    }

    /// Something waits to be sent by this path.
    #[inline]
    pub(crate) fn has_waiting(&self) -> bool {
        !self.lost.is_empty()
            || !self.runs.is_empty()
            || self.open[0].is_some()
            || self.open[1].is_some()
            || !self.closed[0].is_empty()
            || !self.closed[1].is_empty()
            || self.probe.has_due()
    }

    /// Frames wait or are under way, or acknowledgements are owed.
    pub(crate) fn has_outstanding(&self) -> bool {
        self.has_unfinished() || self.rx.unacked_count() > 0
    }

    /// Something waits to be sent or acknowledged.
    pub(crate) fn has_unfinished(&self) -> bool {
        // What is under way on a path that was left has moved: only its numbers have not arrived.
        !self.inflight.is_empty() && !self.standing.silent
            || !self.runs.is_empty()
            || self.open.iter().any(Option::is_some)
            || self.closed.iter().any(|closed| !closed.is_empty())
    }

    /// The entry of `num`, if it is under way.
    #[inline]
    pub(crate) fn entry_mut(&mut self, num: u32) -> Option<&mut InFlight> {
        self.inflight
            .get_mut(num.wrapping_sub(self.base_num) as usize)
    }
}

/// Room kept free in shared frames: an acknowledgement with two words of bitmap.
const ACK_RESERVE: usize = portolan_wire::ACK_FIXED_LEN + 16;
