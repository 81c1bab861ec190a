// SPDX-License-Identifier: MIT OR Apache-2.0
//! Settings that the core receives at its start: identity, links, limits.

use super::time::Span;
use core::fmt;
use core::time::Duration;
use portolan_wire::Sum;

/// Maximum length in bytes of one GSO batch: a UDP datagram without its headers.
pub(crate) const BATCH_LEN_MAX: usize = 65_000;

/// Packet numbers that one acknowledgement can cover. At 5 GB/s, 1500-byte frames use them up in
/// about one millisecond, in which a frame that was lost twice is repaired. Numbers beyond it count
/// as in flight.
pub(crate) const ACK_NUMBERS_MAX: u32 = 3072;

/// Windows of packet numbers that a sender may use beyond the lowest that has not arrived. Frames
/// after a lost one are still sent while the loss is detected (1.25 round trips) and repaired (0.5
/// round trips), and once more if the repair is lost.
const SPAN_WINDOWS: u32 = 4;

/// Returns the maximum number of packet numbers in use, from the lowest that has not arrived, on a
/// path with a window of `window_frames` frames. `P3.3`
#[inline]
pub(crate) const fn number_span(window_frames: u32) -> u32 {
    let most = if window_frames > ACK_NUMBERS_MAX {
        window_frames
    } else {
        ACK_NUMBERS_MAX
    };
    let span = window_frames.saturating_mul(SPAN_WINDOWS);
    if span < most { span } else { most }
}

/// Link number, the same on both sides of a path; acknowledgements name paths by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LinkId(u8);

impl LinkId {
    /// Shared memory.
    pub const SHM: LinkId = LinkId(0);
    /// UDP.
    pub const UDP: LinkId = LinkId(1);
    /// Raw Ethernet frames.
    pub const PACKET: LinkId = LinkId(2);
    /// UDP on a second network of the host.
    pub const UDP2: LinkId = LinkId(3);
    /// Kernel TCP connections. Not a path: it carries parts of transfers that were announced on
    /// another link (`P15`). The number is not used on the wire.
    pub const STREAM: LinkId = LinkId(4);
    /// Number of links.
    pub const COUNT: usize = 5;
    /// Number of links that are paths; their numbers are the lowest.
    pub(crate) const PATH_COUNT: usize = 4;
    /// All links.
    pub const ALL: [LinkId; Self::COUNT] =
        [Self::SHM, Self::UDP, Self::PACKET, Self::UDP2, Self::STREAM];
    /// Paths in the order of transmission: raw frames before datagrams, so small messages before
    /// bulk data.
    pub(crate) const IN_TURN: [LinkId; Self::PATH_COUNT] =
        [Self::PACKET, Self::UDP2, Self::UDP, Self::SHM];

    /// Returns the link with this number.
    #[inline]
    #[must_use]
    pub fn from_u8(number: u8) -> Option<LinkId> {
        (usize::from(number) < Self::COUNT).then_some(LinkId(number))
    }

    /// Returns the number used on the wire.
    #[inline]
    #[must_use]
    pub fn as_u8(self) -> u8 {
        self.0
    }

    /// Returns the number as an index.
    #[inline]
    #[must_use]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

impl fmt::Display for LinkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(["shm", "udp", "packet", "udp2", "stream"][self.index()])
    }
}

/// Parameters of a link that the core needs.
#[derive(Clone, Copy, Debug)]
pub struct LinkParams {
    /// Length in bytes of the largest frame.
    pub frame_len_max: usize,
    /// Maximum number of datagrams in one transmit.
    pub segments_max: usize,
    /// Set if the link loses, duplicates, reorders and corrupts nothing: frames have neither header
    /// nor number.
    pub lossless: bool,
    /// Set if the receiver can read announced memory itself.
    pub pull: bool,
    /// Set if no other layer detects corruption, so that frames need a checksum. Never set for a
    /// lossless link. `P13.1`
    pub checksum: bool,
    /// Function that computes a frame's checksum. If set, the frames of a run leave in one piece,
    /// each with its checksum in front. Otherwise the transmitting link computes all checksums.
    /// `P13.2`
    pub sum: Option<fn(&[u8]) -> Sum>,
    /// Bytes that the receive side buffers while this process does not receive.
    pub rx_buffer_len: usize,
}

/// Order in which a receiver grants waiting transfers. `P5.3`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Schedule {
    /// Fewest remaining bytes first; minimizes the mean transfer time.
    #[default]
    ShortestFirst,
    /// Round robin: all get the same share, and equal transfers complete together.
    Fair,
    /// One transfer at a time gets all but an eighth of the link, until it ends. The others share
    /// the rest. Long runs of one transfer make its next bytes predictable.
    Exclusive,
}

/// Use of streams for transfers over networks. `P15.1`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StreamUse {
    /// Streams are neither opened nor accepted.
    #[default]
    Off,
    /// Streams are used where a short trial shows that they are faster.
    Auto,
    /// Streams are used wherever one can be opened.
    On,
}

/// Size and time limits. Every structure in the core that holds memory is bounded by one of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of eager messages per peer and lane that may be in flight or unconsumed. Trade-off: a
    /// stream needs bandwidth × round trip (5 GB/s × 20 µs = 100 KB); memory use is this × busy
    /// peers.
    pub credit_len: u32,
    /// Longest message in bytes that is sent eagerly, at most 64 KiB. A rendezvous costs two short
    /// frames and a call per message, more than one call of segmentation offload saves: a stream of
    /// 64 KiB messages gains 60 % when sent eagerly.
    pub eager_len_max: usize,
    /// Longest eager message in bytes on lossless links, where pulling saves a copy and a
    /// rendezvous is cheap.
    pub eager_len_max_lossless: usize,
    /// Bytes of unexpected and early messages held here for all peers together.
    pub held_len_max: usize,
    /// Frames in flight on one path, not counting frames known to be lost.
    pub window_frames_max: u16,
    /// Maximum delay of an acknowledgement that waits to be piggybacked. Well below
    /// [`Limits::rto_min`].
    pub ack_delay: Duration,
    /// Numbered frames after which an acknowledgement is sent at once.
    pub ack_every: u32,
    /// Minimum retransmission timeout. Longer than the delay of acknowledgements and a scheduling
    /// hiccup of an awake receiver.
    pub rto_min: Duration,
    /// Maximum of the backed-off timeout; a healed path is detected with at most this delay.
    pub rto_max: Duration,
    /// Age of unacknowledged frames at which the core requests a check that the peer is alive.
    pub suspect_after: Duration,
    /// Bytes of granted but not yet received bulk data per link; 0 selects what the link buffers.
    pub grant_len_max: usize,
    /// Enables congestion control, which adapts windows to the delay of the network (`P3.13`). If
    /// `false`, only the receiver's bounds apply; for comparison.
    pub congestion_control: bool,
    /// Order of bulk data if several peers send to this process.
    pub schedule: Schedule,
    /// Use of streams for transfers.
    pub stream: StreamUse,
}

impl Limits {
    /// Returns the number of frames of one path that may be unacknowledged, including lost frames
    /// and those after them. It bounds the path's table of frames and their buffers. `P3.3`
    #[must_use]
    pub fn unacked_frames_max(&self) -> usize {
        number_span(u32::from(self.window_frames_max)) as usize
    }
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            // Eight of the longest eager messages, with their overhead. Credit is returned in
            // quarters of it, two such messages, so the sender never waits. With half as much, both
            // ends of a stream waited for each other.
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

/// Steps of [`Choice::single`]; the table in the papers had six.
pub const SINGLE_STEPS: usize = 6;

/// Steps of [`Choice::frames`]: one for each factor of the square root of two from 1 KiB to 16 KiB.
pub const FRAME_STEPS: usize = 8;

/// Minimum of [`FrameStep::payload_len`], the shortest in the papers. The frames of the longest
/// eager message then fit one buffer.
pub const FRAME_PAYLOAD_LEN_MIN: usize = 128;

/// Decisions of a measured path model. They concern only the sender; two processes may choose
/// differently. [`Choice::default`] applies without a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Longest message in bytes that is sent eagerly; [`Limits::eager_len_max`] remains its
    /// maximum.
    pub eager_len_max: usize,
    /// Longest eager message in bytes on lossless links, at most
    /// [`Limits::eager_len_max_lossless`].
    pub eager_len_max_lossless: usize,
    /// Longest message of several frames, in bytes, that takes the path of small messages. `P6.5`
    pub small_run_len_max: usize,
    /// Piece lengths for a message with nothing queued behind it, by ascending message length.
    /// `P4.11`
    pub single: [SingleStep; SINGLE_STEPS],
    /// Payload lengths of the frames of an eager message with nothing in flight before it, by
    /// ascending message length. `P4.11`
    pub frames: [FrameStep; FRAME_STEPS],
    /// Link to which `frames` applies; `None` for all.
    pub frames_on: Option<LinkId>,
}

/// Step of the piece table. It applies to messages longer than the previous step's maximum and up
/// to `message_len_max` bytes. They leave in calls of `call_len` bytes when nothing is queued
/// behind them, so that sender and receiver work at the same time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SingleStep {
    /// Maximum message length of the step in bytes; 0 ends the table.
    pub message_len_max: u64,
    /// Bytes per call; 0 for no limit.
    pub call_len: usize,
}

/// Step of the frame table. It applies to messages longer than the previous step's maximum and up
/// to `message_len_max` bytes, if they need several frames. Shorter frames use the stages of the
/// path at the same time, but cost each stage more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameStep {
    /// Maximum message length of the step in bytes; 0 ends the table.
    pub message_len_max: u64,
    /// Message bytes in a frame, at least [`FRAME_PAYLOAD_LEN_MIN`]; 0 for whole frames. A frame may
    /// have a few more, so that the last one has room for an acknowledgement.
    pub payload_len: usize,
}

impl Default for Choice {
    fn default() -> Self {
        Choice {
            eager_len_max: usize::MAX,
            eager_len_max_lossless: usize::MAX,
            small_run_len_max: 0,
            single: [SingleStep::default(); SINGLE_STEPS],
            frames: [FrameStep::default(); FRAME_STEPS],
            frames_on: None,
        }
    }
}

impl Choice {
    /// Returns the maximum bytes per call for a message of `len` bytes with nothing queued behind
    /// it.
    pub(crate) fn single_batch_len(&self, len: u64) -> usize {
        let step = self.single.iter().find(|step| len <= step.message_len_max);
        match step {
            Some(step) if step.call_len > 0 => step.call_len.min(BATCH_LEN_MAX),
            _ => BATCH_LEN_MAX,
        }
    }

    /// Returns the maximum payload length of a frame for a message of `len` bytes with nothing in
    /// flight before it.
    pub(crate) fn single_payload_len(&self, len: u64) -> usize {
        let step = self.frames.iter().find(|step| len <= step.message_len_max);
        match step {
            Some(step) if step.payload_len > 0 => step.payload_len.max(FRAME_PAYLOAD_LEN_MIN),
            _ => usize::MAX,
        }
    }
}

/// Time limits in the core's own unit.
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
    /// Job id.
    pub job_id: [u8; 16],
    /// Secret of the job; proves membership in the handshake.
    pub secret: [u8; 32],
    /// Rank of this process.
    pub rank: u32,
    /// Number of processes in the job, at most 2^20 (the index part of a session token).
    pub size: u32,
    /// First session epoch of this process. It must grow with each start of this rank; the start
    /// time in nanoseconds is suitable.
    pub epoch: u64,
    /// Fresh entropy from which session tokens are derived.
    pub seed: [u8; 32],
    /// Limits.
    pub limits: Limits,
}
