// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the core is told at its start: identity, links, limits.

use super::time::Span;
use core::fmt;
use core::time::Duration;
use portolan_wire::Sum;

/// Most bytes of one GSO batch: a UDP datagram's, headers off.
pub(crate) const BATCH_LEN_MAX: usize = 65_000;

/// Numbers of which an acknowledgement can tell. At 5 GB/s frames of 1500 bytes take a millisecond for
/// them: a frame that was lost twice is repaired by then. What cannot be told counts as in flight.
pub(crate) const ACK_NUMBERS_MAX: u32 = 3072;

/// Windows of numbers that a sender may use beyond the lowest that has not arrived: what follows a
/// lost frame goes on while the loss is noticed (one round trip and a quarter), repaired (another
/// half), and that again if the repair is lost.
const SPAN_WINDOWS: u32 = 4;

/// Numbers in use at most, from the lowest that has not arrived, on a path that may have
/// `window_frames` frames under way. `P3.3`
pub(crate) const fn number_span(window_frames: u32) -> u32 {
    let most = if window_frames > ACK_NUMBERS_MAX {
        window_frames
    } else {
        ACK_NUMBERS_MAX
    };
    let span = window_frames.saturating_mul(SPAN_WINDOWS);
    if span < most { span } else { most }
}

/// Number of a link, the same on both sides of a path; acknowledgements name paths by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LinkId(u8);

impl LinkId {
    /// Shared memory.
    pub const SHM: LinkId = LinkId(0);
    /// UDP.
    pub const UDP: LinkId = LinkId(1);
    /// Raw Ethernet frames.
    pub const PACKET: LinkId = LinkId(2);
    /// Kernel TCP connections. No path: it carries parts of transfers that were announced by another
    /// link (`P15`).
    pub const STREAM: LinkId = LinkId(3);
    /// How many there are.
    pub const COUNT: usize = 4;
    /// All of them.
    pub const ALL: [LinkId; Self::COUNT] = [Self::SHM, Self::UDP, Self::PACKET, Self::STREAM];

    /// The link with this number.
    #[inline]
    #[must_use]
    pub fn from_u8(number: u8) -> Option<LinkId> {
        (usize::from(number) < Self::COUNT).then_some(LinkId(number))
    }

    /// The number as it travels.
    #[inline]
    #[must_use]
    pub fn as_u8(self) -> u8 {
        self.0
    }

    /// The number as an index.
    #[inline]
    #[must_use]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

impl fmt::Display for LinkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(["shm", "udp", "packet", "stream"][self.index()])
    }
}

/// What the core must know of a link.
#[derive(Clone, Copy, Debug)]
pub struct LinkParams {
    /// Bytes of the largest frame.
    pub frame_len_max: usize,
    /// Datagrams that one transmit may carry.
    pub segments_max: usize,
    /// Nothing is lost, duplicated, reordered or corrupted: frames carry neither header nor number.
    pub lossless: bool,
    /// The receiver may fetch announced memory itself.
    pub pull: bool,
    /// Nobody else checks what arrives: frames are to have a checksum of their own. Never of a lossless
    /// link. `P13.1`
    pub checksum: bool,
    /// Takes a frame's checksum. With it, the frames of a run leave with their sums in front, behind one
    /// another in one piece; without it, all sums are left to who transmits. `P13.2`
    pub sum: Option<fn(&[u8]) -> Sum>,
    /// Bytes that the receive side holds while nobody receives.
    pub rx_buffer_len: usize,
}

/// The order in which a receiver grants the transfers that wait for it. `P5.3`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Schedule {
    /// The least bytes left first: the mean time of a transfer is the shortest possible.
    #[default]
    ShortestFirst,
    /// Each in turn: all get the same share, and equal ones end together.
    Fair,
}

/// Whether transfers over networks may go by streams. `P15.1`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StreamUse {
    /// Never, and none is accepted.
    #[default]
    Off,
    /// Where a short trial shows that it is faster.
    Auto,
    /// Wherever one can be opened.
    On,
}

/// Sizes and times with a reason each; every holder of memory in the core is bounded by one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of eager messages per peer and lane that may be under way or unconsumed. Trade-off: a
    /// stream needs bandwidth × round trip (5 GB/s × 20 µs = 100 KB); memory is this × busy peers.
    pub credit_len: u32,
    /// Longest message that is sent without asking, at most 64 KiB. Asking costs two short frames
    /// and a call for each message, which one call of segmentation offload does not pay back: a
    /// stream of 64 KiB messages gains 60 % by not asking.
    pub eager_len_max: usize,
    /// The same on lossless links, where a pulled message saves a copy and asking is cheap.
    pub eager_len_max_lossless: usize,
    /// Bytes of unexpected and early messages that all peers together may have held here.
    pub held_len_max: usize,
    /// Frames on their way on one path, not counting those that are known to be lost.
    pub window_frames_max: u16,
    /// Longest time an acknowledgement waits for company. Well below [`Limits::rto_min`].
    pub ack_delay: Duration,
    /// Numbered frames after which an acknowledgement does not wait.
    pub ack_every: u32,
    /// Floor of the retransmission timeout. Above the delay of acknowledgements and a scheduling
    /// hiccup of an awake receiver.
    pub rto_min: Duration,
    /// Ceiling of the backed-off timeout: a healed path is noticed this late.
    pub rto_max: Duration,
    /// Unacknowledged frames older than this make the core ask the engine whether the peer lives.
    pub suspect_after: Duration,
    /// Bytes of granted but not yet received bulk data per link; 0 means what the link buffers.
    pub grant_len_max: usize,
    /// Windows follow the delay of the network (`P3.13`); `false` leaves the receiver's bounds alone,
    /// for comparing.
    pub congestion_control: bool,
    /// Whose bulk data comes first when several send to this process.
    pub schedule: Schedule,
    /// Whether transfers may go by streams.
    pub stream: StreamUse,
}

impl Limits {
    /// Frames of one path that may be unacknowledged, lost ones and those behind them included: what
    /// bounds the table of them, and their buffers. `P3.3`
    #[must_use]
    pub fn unacked_frames_max(&self) -> usize {
        number_span(u32::from(self.window_frames_max)) as usize
    }
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            // Eight messages of the longest that leave without asking, with what each costs beside: a
            // quarter, which is told at a time, is two, and the sender never waits for it. Half as
            // much made both ends of a stream wait for one another.
            credit_len: 8 * (64 * 1024 + 32),
            eager_len_max: 64 * 1024,
            eager_len_max_lossless: 16 * 1024,
            held_len_max: 256 * 1024 * 1024,
            window_frames_max: 4096,
            ack_delay: Duration::from_micros(50),
            ack_every: 16,
            rto_min: Duration::from_micros(500),
            rto_max: Duration::from_millis(100),
            suspect_after: Duration::from_millis(100),
            grant_len_max: 0,
            congestion_control: true,
            schedule: Schedule::default(),
            stream: StreamUse::default(),
        }
    }
}

/// Steps of [`Choice::lone`]; the papers' table had six.
pub const LONE_STEPS: usize = 6;

/// What a measured model of the paths decides. All of it is the sender's own matter: two processes
/// may choose differently. [`Choice::default`] is what is right without a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Longest message that is sent without asking; [`Limits::eager_len_max`] stays its ceiling.
    pub eager_len_max: usize,
    /// The same on lossless links, below [`Limits::eager_len_max_lossless`].
    pub eager_len_max_lossless: usize,
    /// Longest message of several frames that takes the path of small messages. `P6.5`
    pub small_run_len_max: usize,
    /// Pieces of a message that nothing waits behind, by ascending message length. `P4.11`
    pub lone: [LoneStep; LONE_STEPS],
}

/// Messages of up to `message_len_max` bytes, and beyond the step before, leave `call_len` bytes a
/// call when nothing waits behind them, so that sender and receiver work at the same time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoneStep {
    /// Last message length of the step; 0 ends the table.
    pub message_len_max: u64,
    /// Bytes of a call; 0 for as many as it takes.
    pub call_len: usize,
}

impl Default for Choice {
    fn default() -> Self {
        Choice {
            eager_len_max: usize::MAX,
            eager_len_max_lossless: usize::MAX,
            small_run_len_max: 0,
            lone: [LoneStep::default(); LONE_STEPS],
        }
    }
}

impl Choice {
    /// Most bytes of a call for a message of `len` bytes that nothing waits behind.
    pub(crate) fn lone_batch_len(&self, len: u64) -> usize {
        let step = self.lone.iter().find(|step| len <= step.message_len_max);
        match step {
            Some(step) if step.call_len > 0 => step.call_len.min(BATCH_LEN_MAX),
            _ => BATCH_LEN_MAX,
        }
    }
}

/// The times among the limits, in the core's own unit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    pub(crate) ack_delay: Span,
    pub(crate) rto_min: Span,
    pub(crate) rto_max: Span,
    pub(crate) suspect_after: Span,
}

impl From<&Limits> for Times {
    fn from(limits: &Limits) -> Times {
        Times {
            ack_delay: limits.ack_delay.into(),
            rto_min: limits.rto_min.into(),
            rto_max: limits.rto_max.into(),
            suspect_after: limits.suspect_after.into(),
        }
    }
}

/// Identity of this process within its job.
#[derive(Clone, Debug)]
pub struct Config {
    /// The job.
    pub job_id: [u8; 16],
    /// The job's secret; proves membership in the handshake.
    pub secret: [u8; 32],
    /// This process.
    pub rank: u32,
    /// Processes in the job, at most 2^20 (the index part of a session token).
    pub size: u32,
    /// Session epochs of this process start here; must grow with each start of this rank (the time
    /// of the start in nanoseconds will do).
    pub epoch: u64,
    /// Fresh entropy, from which session tokens are derived.
    pub seed: [u8; 32],
    /// Limits.
    pub limits: Limits,
}
