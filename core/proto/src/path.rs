// SPDX-License-Identifier: MIT OR Apache-2.0
//! Path to a peer on one link: packet numbers, frames in flight, and frames waiting to be sent.

pub(crate) mod ack;
mod batch;
pub(crate) mod best_effort;
pub(crate) mod congestion;
pub(crate) mod control;
pub(crate) mod division;
pub(crate) mod dormant;
pub(crate) mod failover;
mod loss;
pub(crate) mod outgoing;
pub(crate) mod paths;
pub(crate) mod probe;
pub(crate) mod refragment;
pub(crate) mod rtt;
mod scoreboard;
mod sharing;
mod single;
pub(crate) mod stage;

use crate::base::config::number_span;
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
use failover::{PathHealth, Suspicion};
use loss::LossState;
use portolan_wire::{CHECK_LEN, FRAME_HEADER_LEN, FrameHeader, FrameKind, Hello};
use probe::ProbeState;
use rtt::Rtt;

/// `P6.1`: frame length before the path MTU is known. IPv6 guarantees 1280 bytes, headers included.
pub(crate) const FRAME_LEN_SAFE: usize = 1200;

/// `P6.2`: minimum frame length of every path. IPv4 guarantees 576 bytes, headers included.
pub(crate) const FRAME_LEN_LEAST: usize = 512;

/// Maximum length in bytes of a shared frame on a lossless link. A frame costs a ring almost
/// nothing, so a burst leaves in parts. The receiver handles one part while the next fills.
pub(crate) const SHARED_FRAME_LEN_LOSSLESS: usize = 256;

/// Maximum number of closed frames on a path before submissions are refused.
const CLOSED_MAX: usize = 64;

/// Work that remains even if the program makes no further call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum PendingWork {
    /// No work.
    #[default]
    None,
    /// Frames in flight, one of which may be lost, or acknowledgements that the peer does not await
    /// yet. Only a timer can turn these into work.
    Unacknowledged,
    /// Frames or records held back by credit, a window or a full link; or long messages and
    /// requests in progress, for which other processes wait.
    Unsent,
}

/// State of a path, for display.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathStatus {
    /// Link it uses.
    pub link: LinkId,
    /// Set if the peer has answered on it, and it was not abandoned for another path since.
    pub up: bool,
    /// Set if a probe was answered on it, so frames pass in both directions.
    pub validated: bool,
    /// Set if small messages use it.
    pub small: bool,
    /// Set if bulk data uses it.
    pub bulk: bool,
    /// Length in bytes of the largest frame that has passed.
    pub frame_len: usize,
    /// Shortest round trip measured.
    pub rtt_min: Option<Duration>,
    /// Smoothed round trip.
    pub rtt: Duration,
    /// Frames in flight.
    pub inflight_count: usize,
    /// Congestion window in frames; `None` if only the receiver limits this side.
    pub window: Option<usize>,
}

/// Contents of a numbered frame, for retransmission.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Contents {
    /// Part of a frame buffer.
    Slot { slot: SlotId, off: u32 },
    /// Fragment of user memory.
    Fragment { transfer: u32, index: u32 },
    /// Part of a fragment that was refragmented for a narrower path.
    FragmentPart {
        transfer: u32,
        index: u32,
        within: u16,
    },
    /// Nothing to retransmit: the frame was acknowledged or moved to other frames, or its transfer
    /// has ended. If its number is missing, an empty frame fills it.
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
    /// Length of the frame in bytes.
    len: u16,
    attempt: u8,
    state: TxState,
}

/// Frame that is being filled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenFrame {
    pub(crate) slot: SlotId,
    pub(crate) len: usize,
    /// Maximum length in bytes. The buffer was chosen for it; the path's frame length may have
    /// grown since.
    pub(crate) len_max: usize,
    pub(crate) numbered: bool,
}

/// Consecutive frames in one frame buffer, which leave in GSO batches: the fragments of eager
/// messages, or shared frames with messages of a burst.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    pub(crate) slot: SlotId,
    pub(crate) off: usize,
    pub(crate) len: usize,
    /// Length in bytes of a frame and its checksum header.
    pub(crate) segment_len: usize,
    /// Bytes before each frame, for its checksum.
    pub(crate) front_len: usize,
    /// Maximum length of one GSO batch in bytes.
    pub(crate) batch_len: usize,
    /// Set if more messages may be added to its last frame, and more frames after it.
    pub(crate) is_shared: bool,
}

impl Run {
    /// Returns the number of bytes missing from the last frame to the full segment length.
    pub(crate) fn room_in_last(&self) -> usize {
        self.len.next_multiple_of(self.segment_len) - self.len
    }

    /// Extends the last frame to the length of the others with zeros, which end a frame (`P1.5`).
    pub(crate) fn fill_last(&mut self, slots: &mut SlotPool) {
        let (end, room) = (self.off + self.len, self.room_in_last());
        slots.bytes_mut(self.slot)[end..end + room].fill(0);
        self.len += room;
    }
}

/// All paths to one peer, and the choice between them.
#[derive(Debug)]
pub(crate) struct Paths {
    by_link: [Option<Box<Path>>; LinkId::PATH_COUNT],
    /// Paths for small messages and for bulk data.
    small: Option<LinkId>,
    bulk: Option<LinkId>,
    /// Path on a further network that shares bulk data with `bulk`. `P6.8`
    second: Option<LinkId>,
    suspicion: Suspicion,
}

#[derive(Debug)]
pub(crate) struct Path {
    link: LinkId,
    params: LinkParams,
    up: bool,
    /// Verified frame length.
    frame_len: usize,
    /// Upper bound of `frame_len`, from the links of both sides.
    frame_len_bound: usize,
    /// Set if frames carry a checksum. `P13.1`
    checked: bool,
    /// Number of frames that the peer allows in flight.
    window_frames: u32,
    rtt: Rtt,
    rx: RxWindow,
    probe: crate::path::probe::ProbeState,

    /// Number of the front entry of `unacked`.
    base_num: u32,
    unacked: VecDeque<InFlight>,
    lost: VecDeque<u32>,
    /// Number of entries in flight: neither acknowledged nor lost.
    in_flight: usize,
    loss: crate::path::loss::LossState,
    /// `None` if only the receiver's window limits this side.
    congestion: Option<crate::path::congestion::Congestion>,
    health: crate::path::failover::PathHealth,

    /// One open frame per lane, so that a lost or delayed frame of one lane does not affect the
    /// other.
    open: [Option<OpenFrame>; 2],
    closed: [VecDeque<OpenFrame>; 2],
    runs: VecDeque<Run>,
    best_effort_runs: VecDeque<BestEffortRun>,
    /// Packet number after the last GSO batch of the runs.
    batch_end: u32,
    /// Set while the link has no room.
    blocked: bool,
    /// Lower bound of the number of frames that may be sent past the queues, because nothing waits
    /// and the window has room. 0 after any change that may reduce it.
    free_left: usize,
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
            health: PathHealth::default(),
            open: [None; 2],
            closed: [VecDeque::new(), VecDeque::new()],
            runs: VecDeque::new(),
            best_effort_runs: VecDeque::new(),
            batch_end: 0,
            blocked: false,
            free_left: 0,
        }
    }

    /// Enables congestion control on this path. `P3.13`
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

    /// Returns the maximum number of datagrams in one transmit.
    #[inline]
    pub(crate) fn segments_max(&self) -> usize {
        self.params.segments_max
    }

    /// Returns true if the peer has answered on this path.
    #[inline]
    pub(crate) fn is_up(&self) -> bool {
        self.up
    }

    /// Returns true if the path is up and was not abandoned for another.
    #[inline]
    pub(crate) fn is_usable(&self) -> bool {
        self.up && !self.health.is_silent()
    }

    /// Returns the verified frame length.
    #[inline]
    pub(crate) fn frame_len(&self) -> usize {
        self.frame_len
    }

    /// Sets both windows to `frames` frames.
    #[cfg(test)]
    pub(crate) fn set_windows(&mut self, frames: u16) {
        self.window_frames = frames.into();
        self.free_left = 0;
        self.rx = RxWindow::new(frames);
    }

    /// Returns the number of frames in flight, and of unacknowledged frames.
    #[cfg(test)]
    pub(crate) fn frame_counts(&self) -> (usize, usize) {
        (self.in_flight, self.unacked.len())
    }

    #[cfg(test)]
    pub(crate) fn set_frame_len(&mut self, frame_len: usize) {
        self.frame_len = frame_len;
    }

    /// Returns true if frames of this path carry a checksum. `P13.1`
    #[inline]
    pub(crate) fn is_checked(&self) -> bool {
        self.checked
    }

    /// Returns the number of bytes that the link adds to each frame.
    #[inline]
    fn check_len(&self) -> usize {
        if self.checked { CHECK_LEN } else { 0 }
    }

    /// Returns the number of bytes before each frame for a checksum that the core writes.
    #[inline]
    pub(crate) fn front_len(&self) -> usize {
        match self.params.sum {
            Some(_) => self.check_len(),
            None => 0,
        }
    }

    /// Returns true if the path accepts a frame; `checked` states whether the frame had a valid
    /// checksum. `P13.3`
    #[inline]
    pub(crate) fn takes(&self, checked: bool) -> bool {
        checked || !self.checked
    }

    /// Marks the path as up. The link has authenticated the peer and provides flow control.
    pub(crate) fn establish_lossless(&mut self) {
        self.up = true;
        self.window_frames = u32::MAX;
    }

    /// Applies the path parameters of a hello. `P2.7`, `P13.1`
    pub(crate) fn on_hello(&mut self, hello: &Hello) {
        // A shorter frame has no room for a header and its records.
        let theirs = usize::from(hello.frame_len_max).max(FRAME_LEN_LEAST);
        self.checked = self.params.checksum || hello.checksum;
        let carried = theirs.min(self.params.frame_len_max) - self.check_len();
        self.frame_len_bound = self.frame_len_bound.min(carried);
        self.frame_len = self.frame_len.min(self.frame_len_bound);
        self.window_frames = u32::from(hello.window_frames.max(1));
        self.free_left = 0;
    }

    /// Marks the path as up after frames passed in both directions, with the round trip if known.
    /// `P2.6`
    pub(crate) fn establish(&mut self, now: Instant, sample: Option<Span>) {
        self.up = true;
        if let Some(sample) = sample {
            self.rtt.on_sample(sample);
        }
        self.start_probing(now);
    }

    /// Handles a report that the link carries frames of at most `frame_len_max` bytes. Returns
    /// `true` if the report must be verified by probes. `P6.2`
    pub(crate) fn on_reported_frame_len(&mut self, frame_len_max: usize) -> bool {
        if frame_len_max >= self.frame_len + self.check_len() {
            return false;
        }
        let reported = frame_len_max.saturating_sub(self.check_len());
        // The timer of the attempt starts when its probe is sent.
        self.confirm_frame_len(Instant::NEVER, reported);
        true
    }

    /// Returns the round trip used to compare paths. Only probes count, because acknowledgements of
    /// data may arrive on another path. `P6.3`, `P6.5`
    ///
    /// It is measured while the processes start, and both sides choose independently. Raw Ethernet
    /// bypasses much of the kernel, so if it measured slower then, something else was most likely
    /// the cause. It counts half.
    fn likely_rtt(&self) -> Option<Span> {
        let rtt = self.probe.best()?;
        Some(match self.link {
            LinkId::PACKET => rtt / 2,
            _ => rtt,
        })
    }

    /// Marks the link as full.
    pub(crate) fn block(&mut self) {
        self.blocked = true;
        self.free_left = 0;
    }

    /// Clears the mark of a full link; returns whether it was set.
    pub(crate) fn unblock(&mut self) -> bool {
        core::mem::take(&mut self.blocked)
    }

    #[inline]
    pub(crate) fn is_blocked(&self) -> bool {
        self.blocked
    }

    /// Returns the length in bytes of everything before a frame's first record.
    #[inline]
    pub(crate) fn header_len(&self) -> usize {
        if self.params.lossless {
            0
        } else {
            FRAME_HEADER_LEN
        }
    }

    /// Returns the maximum length in bytes of a shared frame, less room for a short
    /// acknowledgement.
    #[inline]
    pub(crate) fn shared_frame_len(&self) -> usize {
        if self.params.lossless {
            self.frame_len.min(SHARED_FRAME_LEN_LOSSLESS)
        } else {
            // A jumbo frame. Longer frames do not help small messages and need larger buffers.
            self.frame_len.min(9000) - ACK_RESERVE
        }
    }

    /// Returns the number of frames that may still be sent. `P3.3`, `P3.13`
    #[inline]
    pub(crate) fn window_left(&self) -> usize {
        let span = number_span(self.window_frames) as usize;
        let room = span.saturating_sub(self.unacked.len());
        room.min(self.in_flight_left())
    }

    /// Returns the number of further frames that may be in flight, limited by the receiver's buffer
    /// and the congestion window. `P3.3`, `P3.13`
    #[inline]
    fn in_flight_left(&self) -> usize {
        let buffered = self.window_frames as usize;
        let window = self
            .congestion
            .as_ref()
            .map_or(buffered, |c| c.window().min(buffered));
        window.saturating_sub(self.in_flight)
    }

    /// Returns the number of the next frame.
    #[inline]
    pub(crate) fn next_num(&self) -> u32 {
        self.base_num.wrapping_add(narrow(self.unacked.len()))
    }

    /// Assigns the next number to a frame of `len` bytes that is sent now. `P3.1`
    #[inline]
    pub(crate) fn number(&mut self, now: Instant, contents: Contents, len: usize) -> u32 {
        let num = self.next_num();
        if self.unacked.is_empty() {
            self.loss.on_first_sent(now);
        }
        self.loss.on_sent(now);
        self.in_flight += 1;
        self.free_left = self.free_left.saturating_sub(1);
        self.unacked.push_back(InFlight {
            contents,
            sent_at: now,
            len: narrow(len),
            attempt: 0,
            state: TxState::Sent,
        });
        num
    }

    /// Returns the header of a frame of `len` bytes.
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

    /// Returns the header of a fragment's frame of `len` bytes.
    pub(crate) fn bulk_header(&self, number: (u32, u8), len: usize, session: u64) -> FrameHeader {
        self.header(FrameKind::Bulk, number, len, session)
    }

    /// Returns true if anything waits to be sent on this path.
    #[inline]
    pub(crate) fn has_waiting(&self) -> bool {
        !self.lost.is_empty() | self.has_more_waiting()
    }

    /// Returns true if anything other than a retransmission waits to be sent on this path.
    #[inline]
    pub(crate) fn has_more_waiting(&self) -> bool {
        // Few branches: nearly always all of them are empty.
        let has_runs = !self.runs.is_empty() | !self.best_effort_runs.is_empty();
        has_runs | self.has_frames() | self.probe.has_due()
    }

    /// Returns true if unnumbered frames wait.
    #[inline]
    fn has_frames(&self) -> bool {
        let has_open = self.open[0].is_some() | self.open[1].is_some();
        has_open | !self.closed[0].is_empty() | !self.closed[1].is_empty()
    }

    /// Returns true if anything to send must not wait for the program's next call.
    pub(crate) fn has_urgent(&self) -> bool {
        self.has_waiting() || self.rx.is_awaited()
    }

    /// Returns the work left: frames waiting or in flight, or acknowledgements pending.
    #[inline]
    pub(crate) fn pending_work(&self) -> PendingWork {
        if self.has_waiting() {
            return PendingWork::Unsent;
        }
        match self.has_unfinished() || self.rx.unacked_count() > 0 {
            true => PendingWork::Unacknowledged,
            false => PendingWork::None,
        }
    }

    /// Returns true if anything waits to be sent or acknowledged.
    pub(crate) fn has_unfinished(&self) -> bool {
        // Frames in flight on an abandoned path were moved; only their numbers have not arrived.
        !self.unacked.is_empty() && !self.health.is_silent()
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

    /// Returns the entry of frame `num`, if it is in flight.
    #[inline]
    fn entry_mut(&mut self, num: u32) -> Option<&mut InFlight> {
        self.unacked
            .get_mut(num.wrapping_sub(self.base_num) as usize)
    }

    /// Returns true if a message with a completed send may not have arrived. `holds` checks a frame
    /// for messages, given the offset of its records.
    pub(crate) fn has_unacked_messages(
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

/// Receive side: the frames that have arrived, and their acknowledgement.
impl Path {
    /// Checks that a frame's number is new and in the window. A duplicate is acknowledged soon.
    /// `P3.2`
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

    /// Records an accepted frame; an acknowledgement is due after `every` frames. Returns true if
    /// it is due now. `P3.5`
    #[inline]
    pub(crate) fn on_numbered(
        &mut self,
        now: Instant,
        (num, attempt): (u32, u8),
        (every, delay): (u32, Span),
    ) -> bool {
        self.rx.insert(now, num, attempt);
        self.rx.schedule(now, every, delay)
    }

    /// Returns how many numbers starting at `num` may be accepted as one run. `P3.2`
    #[inline]
    pub(crate) fn run_max(&self, num: u32) -> u32 {
        self.rx.run_max(num)
    }

    /// Records an accepted run of frames; see [`Path::on_numbered`].
    #[inline]
    pub(crate) fn on_numbered_run(
        &mut self,
        now: Instant,
        (first, count, attempt): (u32, u32, u8),
        (every, delay): (u32, Span),
    ) -> bool {
        self.rx.insert_run(now, first, count, attempt);
        self.rx.schedule(now, every, delay)
    }

    /// Records that `count` received frames had a congestion mark. `P3.14`
    pub(crate) fn on_marked(&mut self, count: u32) {
        self.rx.on_marked(count);
    }

    /// Handles the peer's count of marked frames of this side; returns its increase. `P3.14`
    pub(crate) fn on_ecn_count(&mut self, count: u32) -> u32 {
        let congestion = self.congestion.as_mut();
        congestion.map_or(0, |congestion| congestion.on_ecn_count(count))
    }

    /// Returns the time when an acknowledgement is due.
    #[inline]
    pub(crate) fn ack_due(&self) -> Instant {
        self.rx.due()
    }

    /// Notes that the sender waits for an acknowledgement of the frames received.
    pub(crate) fn expedite_ack(&mut self) {
        self.rx.set_awaited();
    }

    /// Makes a pending acknowledgement due at `now`.
    pub(crate) fn flush_ack(&mut self, now: Instant) {
        if self.rx.unacked_count() > 0 {
            self.rx.set_due(now);
        }
    }

    /// Writes the pending acknowledgement if it fits, and returns its length in bytes. `P3.4`
    #[inline]
    pub(crate) fn emit_ack(&mut self, now: Instant, poll_gap: &PollGap, out: &mut [u8]) -> usize {
        self.rx.emit(now, poll_gap, self.link.as_u8(), out)
    }
}

/// Room reserved in shared frames: an acknowledgement with two words of bitmap.
const ACK_RESERVE: usize = portolan_wire::ACK_FIXED_LEN + 16;
