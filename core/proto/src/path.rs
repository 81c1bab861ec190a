// SPDX-License-Identifier: MIT OR Apache-2.0
//! One way to one peer: its packet numbers, what is under way, and what waits to be sent.

pub(crate) mod ack;
mod batch;
pub(crate) mod best_effort;
pub(crate) mod congestion;
pub(crate) mod control;
pub(crate) mod dormant;
pub(crate) mod failover;
mod lone;
mod loss;
pub(crate) mod outgoing;
pub(crate) mod paths;
pub(crate) mod probe;
pub(crate) mod refragment;
pub(crate) mod rtt;
mod scoreboard;
pub(crate) mod stage;

use crate::base::config::{BATCH_LEN_MAX, number_span};
use crate::base::context::Context;
use crate::base::narrow::narrow;
use crate::base::poll_gap::PollGap;
use crate::base::time::Span;
use crate::mem::slot::{SlotId, SlotPool};
use crate::{DropReason, Instant, LinkId, LinkParams};
use ack::RxWindow;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use best_effort::BestEffortRun;
use congestion::Congestion;
use core::time::Duration;
use failover::{Standing, Suspicion};
use loss::LossState;
use portolan_wire::{CHECK_LEN, FRAME_HEADER_LEN, FrameHeader, FrameKind, Hello};
use probe::ProbeState;
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

/// What a core has left to do, were its program to call nothing more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Left {
    /// Nothing.
    #[default]
    Nothing,
    /// Frames under way, one of which may be lost; acknowledgements that are not awaited yet. Only a
    /// timer makes work of it.
    Unacknowledged,
    /// Frames or records that credit, a window or a full link holds back; long messages and requests
    /// that have begun: others wait for them.
    Unsent,
}

/// State of a path, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathStatus {
    /// Link it uses.
    pub link: LinkId,
    /// The peer has answered on it, and it was not left for another since.
    pub up: bool,
    /// A probe was answered on it, so frames pass in both directions.
    pub answered: bool,
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
pub(crate) enum Contents {
    /// Bytes of a frame buffer.
    Slot { slot: SlotId, off: u32 },
    /// A fragment of the user's memory.
    Fragment { transfer: u32, index: u32 },
    /// A part of one that was fragmented anew for a narrower path.
    FragmentPart {
        transfer: u32,
        index: u32,
        within: u16,
    },
    /// Acknowledged; or moved to other frames, or its transfer is gone: then its number is filled
    /// by an empty frame.
    Nothing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TxState {
    Sent,
    Lost,
    Acked,
}

#[derive(Debug)]
struct InFlight {
    contents: Contents,
    sent_at: Instant,
    /// Bytes of the frame.
    len: u16,
    attempt: u8,
    state: TxState,
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

/// Frames behind one another in one frame buffer, which leave in GSO batches: the fragments of eager
/// messages, or frames that messages of a burst share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    pub(crate) slot: SlotId,
    pub(crate) off: usize,
    pub(crate) len: usize,
    /// Bytes of a frame and of what stands in front of it.
    pub(crate) segment_len: usize,
    /// Bytes in front of each frame, for its checksum.
    pub(crate) front_len: usize,
    /// Most bytes of one GSO batch.
    pub(crate) batch_len: usize,
    /// More messages may go into its last frame, and frames behind it.
    pub(crate) is_shared: bool,
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

/// All paths to one peer, and the choice between them.
#[derive(Debug)]
pub(crate) struct Paths {
    by_link: [Option<Box<Path>>; LinkId::COUNT],
    /// For small messages and for bulk data.
    small: Option<LinkId>,
    bulk: Option<LinkId>,
    suspicion: Suspicion,
}

#[derive(Debug)]
pub(crate) struct Path {
    link: LinkId,
    params: LinkParams,
    up: bool,
    /// Verified frame length.
    frame_len: usize,
    /// Upper bound for it, from both sides' links.
    frame_len_bound: usize,
    /// Frames travel with a checksum. `P13.1`
    checked: bool,
    /// Frames that the peer lets be on their way.
    window_frames: u32,
    rtt: Rtt,
    rx: RxWindow,
    probe: crate::path::probe::ProbeState,

    /// Number of the front entry of `unacked`.
    base_num: u32,
    unacked: VecDeque<InFlight>,
    lost: VecDeque<u32>,
    /// How many of those are on their way: neither acknowledged nor lost.
    in_flight: usize,
    loss: crate::path::loss::LossState,
    /// `None`: the receiver's window alone holds this side back.
    congestion: Option<crate::path::congestion::Congestion>,
    standing: crate::path::failover::Standing,

    /// One frame per lane, so that the lanes share nothing that is lost or ordered.
    open: [Option<OpenFrame>; 2],
    closed: [VecDeque<OpenFrame>; 2],
    runs: VecDeque<Run>,
    best_effort_runs: VecDeque<BestEffortRun>,
    /// Number behind those of the last GSO batch of these.
    batch_end: u32,
    /// The link had no room; cleared when it may have again.
    blocked: bool,
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
            probe: ProbeState::default(),
            base_num: 0,
            unacked: VecDeque::new(),
            lost: VecDeque::new(),
            in_flight: 0,
            loss: LossState::default(),
            congestion: None,
            standing: Standing::default(),
            open: [None; 2],
            closed: [VecDeque::new(), VecDeque::new()],
            runs: VecDeque::new(),
            best_effort_runs: VecDeque::new(),
            batch_end: 0,
            blocked: false,
        }
    }

    /// Lets the window follow the delay of the network. `P3.13`
    pub(crate) fn control_congestion(&mut self) {
        self.congestion = Some(Congestion::new(self.params.segments_max));
    }

    #[inline]
    pub(crate) fn link(&self) -> LinkId {
        self.link
    }

    #[inline]
    pub(crate) fn is_lossless(&self) -> bool {
        self.params.lossless
    }

    /// Datagrams that one transmit may carry.
    #[inline]
    pub(crate) fn segments_max(&self) -> usize {
        self.params.segments_max
    }

    /// The peer has answered on it.
    #[inline]
    pub(crate) fn is_up(&self) -> bool {
        self.up
    }

    /// Up, and not left for another.
    #[inline]
    pub(crate) fn is_usable(&self) -> bool {
        self.up && !self.standing.is_silent()
    }

    /// Verified frame length.
    #[inline]
    pub(crate) fn frame_len(&self) -> usize {
        self.frame_len
    }

    /// Makes both windows `frames` long.
    #[cfg(test)]
    pub(crate) fn set_windows(&mut self, frames: u16) {
        self.window_frames = frames.into();
        self.rx = RxWindow::new(frames);
    }

    /// Frames in flight, and frames that are not acknowledged.
    #[cfg(test)]
    pub(crate) fn frame_counts(&self) -> (usize, usize) {
        (self.in_flight, self.unacked.len())
    }

    #[cfg(test)]
    pub(crate) fn set_frame_len(&mut self, frame_len: usize) {
        self.frame_len = frame_len;
    }

    /// Its frames travel with a checksum. `P13.1`
    #[inline]
    pub(crate) fn is_checked(&self) -> bool {
        self.checked
    }

    /// Bytes that the link adds to each frame.
    fn check_len(&self) -> usize {
        if self.checked { CHECK_LEN } else { 0 }
    }

    /// Bytes in front of a frame whose checksum is put there by the core.
    #[inline]
    pub(crate) fn front_len(&self) -> usize {
        match self.params.sum {
            Some(_) => self.check_len(),
            None => 0,
        }
    }

    /// Whether a frame that says of itself that it came with a right checksum, or without any, is one
    /// of this path. `P13.3`
    #[inline]
    pub(crate) fn takes(&self, checked: bool) -> bool {
        checked || !self.checked
    }

    /// The link has authenticated the peer, and holds it back by itself.
    pub(crate) fn establish_lossless(&mut self) {
        self.up = true;
        self.window_frames = u32::MAX;
    }

    /// What a hello says of the path. `P2.7`, `P13.1`
    pub(crate) fn on_hello(&mut self, hello: &Hello) {
        // Less leaves no room for a header and its records.
        let theirs = usize::from(hello.frame_len_max).max(FRAME_LEN_LEAST);
        self.checked = self.params.checksum || hello.checksum;
        let carried = theirs.min(self.params.frame_len_max) - self.check_len();
        self.frame_len_bound = self.frame_len_bound.min(carried);
        self.frame_len = self.frame_len.min(self.frame_len_bound);
        self.window_frames = u32::from(hello.window_frames.max(1));
    }

    /// The path has proven itself both ways, in a round trip of `sample` if that is known. `P2.6`
    pub(crate) fn establish(&mut self, now: Instant, sample: Option<Span>) {
        self.up = true;
        if let Some(sample) = sample {
            self.rtt.on_sample(sample);
        }
        self.start_probing(now);
    }

    /// The system says that the link carries frames of `frame_len_max` bytes at most; `true` if that
    /// is to be tried. `P6.2`
    pub(crate) fn on_told_frame_len(&mut self, frame_len_max: usize) -> bool {
        if frame_len_max >= self.frame_len + self.check_len() {
            return false;
        }
        let told = frame_len_max.saturating_sub(self.check_len());
        // The clock of the attempt starts when its probe leaves.
        self.confirm_frame_len(Instant::NEVER, told);
        true
    }

    /// Its round trip, as paths are compared by it: that of probes alone, since acknowledgements of
    /// data may come by another path. `P6.3`
    fn probed_rtt(&self) -> Option<Span> {
        self.probe.best()
    }

    /// The link had no room.
    pub(crate) fn block(&mut self) {
        self.blocked = true;
    }

    /// The link may have room again; whether it had none.
    pub(crate) fn unblock(&mut self) -> bool {
        core::mem::take(&mut self.blocked)
    }

    #[inline]
    pub(crate) fn is_blocked(&self) -> bool {
        self.blocked
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

    /// Nothing waits, and no more is under way than frames whose acknowledgement may be waiting for
    /// company: what is sent now is a message on its own. `P4.11`
    fn is_quiet(&self, ack_every: u32) -> bool {
        self.runs.is_empty() && self.unacked.len() < ack_every as usize
    }

    /// Most bytes of a GSO batch for a message of `len` bytes that begins now. `P4.11`
    pub(crate) fn batch_len(&self, ctx: &Context, len: usize) -> usize {
        match self.is_quiet(ctx.limits().ack_every) {
            true => ctx.choice().lone_batch_len(len as u64),
            false => BATCH_LEN_MAX,
        }
    }

    /// Frames that may still be put under way. `P3.3`, `P3.13`
    #[inline]
    pub(crate) fn window_left(&self) -> usize {
        let span = number_span(self.window_frames) as usize;
        let room = span.saturating_sub(self.unacked.len());
        room.min(self.in_flight_left())
    }

    /// Frames that may still be in flight: the receiver's buffer and the network bound them.
    /// `P3.3`, `P3.13`
    #[inline]
    fn in_flight_left(&self) -> usize {
        let buffered = self.window_frames as usize;
        let window = self
            .congestion
            .as_ref()
            .map_or(buffered, |c| c.window().min(buffered));
        window.saturating_sub(self.in_flight)
    }

    /// The number of the next frame.
    #[inline]
    pub(crate) fn next_num(&self) -> u32 {
        self.base_num.wrapping_add(narrow(self.unacked.len()))
    }

    /// Takes the next number for a frame of `len` bytes that leaves now. `P3.1`
    #[inline]
    pub(crate) fn number(&mut self, now: Instant, contents: Contents, len: usize) -> u32 {
        let num = self.next_num();
        if self.unacked.is_empty() {
            self.loss.on_first_sent(now);
        }
        self.loss.on_sent(now);
        self.in_flight += 1;
        self.unacked.push_back(InFlight {
            contents,
            sent_at: now,
            len: narrow(len),
            attempt: 0,
            state: TxState::Sent,
        });
        num
    }

    /// The header of a frame of `len` bytes.
    #[inline]
    pub(crate) fn header(
        &self,
        kind: FrameKind,
        (packet_num, attempt): (u32, u8),
        len: usize,
        session: u64,
    ) -> FrameHeader {
        FrameHeader {
            kind,
            attempt,
            checked: self.checked,
            frame_len: narrow(len),
            packet_num,
            session,
        }
    }

    /// The header of a fragment's frame of `len` bytes.
    pub(crate) fn bulk_header(&self, number: (u32, u8), len: usize, session: u64) -> FrameHeader {
        self.header(FrameKind::Bulk, number, len, session)
    }

    /// Something waits to be sent by this path.
    #[inline]
    pub(crate) fn has_waiting(&self) -> bool {
        !self.lost.is_empty() || self.has_more_waiting()
    }

    /// Something that was not lost waits to be sent by this path.
    #[inline]
    pub(crate) fn has_more_waiting(&self) -> bool {
        !self.runs.is_empty()
            || !self.best_effort_runs.is_empty()
            || self.has_frames()
            || self.probe.has_due()
    }

    /// Frames wait that are not numbered yet.
    #[inline]
    fn has_frames(&self) -> bool {
        self.open[0].is_some()
            || self.open[1].is_some()
            || !self.closed[0].is_empty()
            || !self.closed[1].is_empty()
    }

    /// What waits, or is due, should not wait for the program's next call.
    pub(crate) fn has_urgent(&self) -> bool {
        self.has_waiting() || self.rx.is_awaited()
    }

    /// What is left: frames wait, are under way, or acknowledgements are owed.
    #[inline]
    pub(crate) fn left(&self) -> Left {
        if self.has_waiting() {
            return Left::Unsent;
        }
        match self.has_unfinished() || self.rx.unacked_count() > 0 {
            true => Left::Unacknowledged,
            false => Left::Nothing,
        }
    }

    /// Something waits to be sent or acknowledged.
    pub(crate) fn has_unfinished(&self) -> bool {
        // What is under way on a path that was left has moved: only its numbers have not arrived.
        !self.unacked.is_empty() && !self.standing.is_silent()
            || !self.runs.is_empty()
            || !self.best_effort_runs.is_empty()
            || self.has_frames()
    }

    /// Frees everything that waits to be sent or acknowledged.
    pub(crate) fn abandon_tx(&mut self, slots: &mut SlotPool) {
        for entry in self.unacked.drain(..) {
            if let Contents::Slot { slot, .. } = entry.contents {
                slots.release(slot);
            }
        }
        self.in_flight = 0;
        self.lost.clear();
        let open = self.open.iter_mut().filter_map(Option::take);
        let closed = self.closed.iter_mut().flat_map(|closed| closed.drain(..));
        for frame in open.chain(closed) {
            slots.release(frame.slot);
        }
        for run in self.runs.drain(..) {
            slots.release(run.slot);
        }
        self.drop_best_effort(slots, 0);
    }

    /// The entry of `num`, if it is under way.
    #[inline]
    fn entry_mut(&mut self, num: u32) -> Option<&mut InFlight> {
        self.unacked
            .get_mut(num.wrapping_sub(self.base_num) as usize)
    }

    /// Whether a message whose send has ended is not known to have arrived; `holds` looks into a
    /// frame, whose records begin at an offset.
    pub(crate) fn has_unheard(
        &self,
        slots: &SlotPool,
        holds: impl Fn(&[u8], usize) -> bool,
    ) -> bool {
        let holds = |slot, off: usize, len: usize| {
            holds(&slots.bytes(slot)[off..off + len], self.header_len())
        };
        let under_way = self.unacked.iter().any(|entry| match entry.contents {
            Contents::Slot { slot, off } => {
                entry.state != TxState::Acked && holds(slot, off as usize, entry.len.into())
            }
            _ => false,
        });
        let waiting = self.open.iter().flatten();
        let mut waiting = waiting.chain(self.closed.iter().flatten());
        under_way
            || waiting.any(|frame| holds(frame.slot, 0, frame.len))
            || self.runs.iter().any(|run| {
                let len = run.len.min(run.segment_len) - run.front_len;
                holds(run.slot, run.off + run.front_len, len)
            })
    }
}

/// What has arrived by this path, and is to be acknowledged.
impl Path {
    /// Whether a frame's number is new and inside the window. One that is known is acknowledged
    /// soon. `P3.2`
    #[inline]
    pub(crate) fn check_num(
        &mut self,
        now: Instant,
        num: u32,
        attempt: u8,
    ) -> Result<(), DropReason> {
        let result = self.rx.check(num);
        if result == Err(DropReason::Duplicate) {
            self.rx.on_duplicate(now, num, attempt);
        }
        result
    }

    /// A frame was accepted, and an acknowledgement is owed after `every`; whether at once. `P3.5`
    #[inline]
    pub(crate) fn on_numbered(
        &mut self,
        now: Instant,
        (num, attempt): (u32, u8),
        (every, delay): (u32, Span),
    ) -> bool {
        self.rx.insert(now, num, attempt);
        self.rx.owe(now, every, delay)
    }

    /// How many numbers from `num` on may be accepted as one run. `P3.2`
    #[inline]
    pub(crate) fn run_max(&self, num: u32) -> u32 {
        self.rx.run_max(num)
    }

    /// [`Path::on_numbered`] of a run of frames.
    #[inline]
    pub(crate) fn on_numbered_run(
        &mut self,
        now: Instant,
        (first, count, attempt): (u32, u32, u8),
        (every, delay): (u32, Span),
    ) -> bool {
        self.rx.insert_run(now, first, count, attempt);
        self.rx.owe(now, every, delay)
    }

    /// `count` frames that have arrived had met congestion. `P3.14`
    pub(crate) fn on_marked(&mut self, count: u32) {
        self.rx.on_marked(count);
    }

    /// The peer's count of frames of this side that had; returns by how much it grew. `P3.14`
    pub(crate) fn on_ecn_count(&mut self, count: u32) -> u32 {
        let congestion = self.congestion.as_mut();
        congestion.map_or(0, |congestion| congestion.on_ecn_count(count))
    }

    /// When an acknowledgement is due.
    #[inline]
    pub(crate) fn ack_due(&self) -> Instant {
        self.rx.due()
    }

    /// The sender waits for an acknowledgement of what has arrived.
    pub(crate) fn expedite_ack(&mut self) {
        self.rx.set_awaited();
    }

    /// What is owed is due at `now`.
    pub(crate) fn flush_ack(&mut self, now: Instant) {
        if self.rx.unacked_count() > 0 {
            self.rx.set_due(now);
        }
    }

    /// Writes the acknowledgement that is owed, if it fits; returns the bytes it takes. `P3.4`
    #[inline]
    pub(crate) fn emit_ack(&mut self, now: Instant, poll_gap: &PollGap, out: &mut [u8]) -> usize {
        self.rx.emit(now, poll_gap, self.link.as_u8(), out)
    }
}

/// Room kept free in shared frames: an acknowledgement with two words of bitmap.
const ACK_RESERVE: usize = portolan_wire::ACK_FIXED_LEN + 16;
