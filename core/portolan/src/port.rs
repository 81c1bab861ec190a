// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ports as programs see them: targets, settings, and the messages that come.

use crate::buffer::Buffer;
use portolan_proto::{LaneId, PortId, SendSpec};
use std::fmt;

/// Priority of a message. Neither blocks the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Lane {
    /// Ordinary traffic.
    #[default]
    Low,
    /// For what must not wait behind ordinary traffic.
    High,
}

impl From<Lane> for LaneId {
    fn from(lane: Lane) -> LaneId {
        match lane {
            Lane::Low => LaneId::Low,
            Lane::High => LaneId::High,
        }
    }
}

/// Where a message goes, and with what service: the binding of an output port.
///
/// In one word, so that it passes in a register: a structure of short fields would be put together in
/// memory at each call, and read there at once as one word.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Target(u64);

/// Above the rank, which has the lowest 32 bits.
const PORT_SHIFT: u32 = 32;
const HIGH_BIT: u64 = 1 << 48;
const BEST_EFFORT_BIT: u64 = 1 << 49;

impl Target {
    /// `port` of process `rank`; reliable, flow-controlled, on the low lane.
    #[inline]
    #[must_use]
    pub fn new(rank: u32, port: u16) -> Self {
        Target(u64::from(rank) | u64::from(port) << PORT_SHIFT)
    }

    /// The same on another lane.
    #[inline]
    #[must_use]
    pub fn lane(self, lane: Lane) -> Self {
        match lane {
            Lane::Low => Target(self.0 & !HIGH_BIT),
            Lane::High => Target(self.0 | HIGH_BIT),
        }
    }

    /// The same without repair: what is lost is counted at the receiver, and a message that finds
    /// no buffer there is dropped. A message of several frames arrives whole or not at all: one of which
    /// a frame is missing is counted as [`crate::DropReason::BestEffortIncomplete`]. Messages of more than
    /// 64 KiB, and those that fill a frame of shared memory, are sent reliably all the same.
    #[inline]
    #[must_use]
    pub fn best_effort(self) -> Self {
        Target(self.0 | BEST_EFFORT_BIT)
    }

    /// The rank.
    #[inline]
    #[must_use]
    #[allow(clippy::cast_possible_truncation, reason = "the lowest 32 bits")]
    pub fn rank(&self) -> u32 {
        self.0 as u32
    }

    /// What the core is told.
    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "16 bits of them")]
    pub(crate) fn spec(self) -> SendSpec {
        let port = PortId::user((self.0 >> PORT_SHIFT) as u16);
        let lane = match self.0 & HIGH_BIT {
            0 => LaneId::Low,
            _ => LaneId::High,
        };
        SendSpec {
            to: port.into(),
            lane,
            best_effort: self.0 & BEST_EFFORT_BIT != 0,
        }
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Target({}, {:?})", self.rank(), self.spec())
    }
}

/// Settings of an input port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PortConfig {
    /// With a handler: hand messages over where they lie, without a posted buffer. Eager messages
    /// then cost no copy; longer ones get a buffer of the library's. Effect without a handler: none.
    pub in_place: bool,
}

impl PortConfig {
    /// Messages are handed to the handler where they lie.
    #[must_use]
    pub fn in_place() -> Self {
        PortConfig { in_place: true }
    }
}

/// A message, as a handler gets it.
#[derive(Debug)]
pub struct Message<'a> {
    pub(crate) source: u32,
    pub(crate) port: u16,
    pub(crate) bytes: &'a [u8],
    pub(crate) buffer: Option<Buffer>,
    pub(crate) message_len: u64,
}

impl Message<'_> {
    /// Rank of the sender.
    #[must_use]
    pub fn source(&self) -> u32 {
        self.source
    }

    /// The port it came to.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The message; when it was longer than its posted buffer, its first bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        let len = usize::try_from(self.message_len).unwrap_or(usize::MAX);
        match &self.buffer {
            Some(buffer) => &buffer[..len.min(buffer.len())],
            None => self.bytes,
        }
    }

    /// Bytes of the message, also of those that did not fit.
    #[must_use]
    pub fn message_len(&self) -> u64 {
        self.message_len
    }

    /// Whether the posted buffer was too short.
    #[must_use]
    pub fn is_truncated(&self) -> bool {
        self.bytes().len() as u64 != self.message_len
    }

    /// The posted buffer, to be kept or posted again; `None` for messages handed over in place.
    pub fn take_buffer(&mut self) -> Option<Buffer> {
        self.buffer.take()
    }
}
