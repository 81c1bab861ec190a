// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ports as programs use them: targets, configuration, and received messages.

use crate::buffer::Buffer;
use portolan_proto::{LaneId, PortId, SendSpec};
use std::fmt;

/// Priority of a message at its sender and on the network. The lanes of a sender do not block each
/// other. A port gets the messages of both lanes in the order of their arrival.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Lane {
    /// Ordinary traffic.
    #[default]
    Low,
    /// Messages that must not wait behind ordinary traffic of the same sender.
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

/// Destination and service of a message: the binding of an output port.
///
/// One word, so that it is passed in a register. A structure of short fields would be written to
/// memory at each call and read back at once.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Target(u64);

/// Position of the port, above the 32 bits of the rank.
const PORT_SHIFT: u32 = 32;
const HIGH_BIT: u64 = 1 << 48;
const BEST_EFFORT_BIT: u64 = 1 << 49;

impl Target {
    /// Selects `port` of process `rank`: reliable, flow-controlled, on the low lane.
    ///
    /// # Examples
    /// See [`crate::Node::send`].
    #[inline]
    #[must_use]
    pub fn new(rank: u32, port: u16) -> Self {
        Target(u64::from(rank) | u64::from(port) << PORT_SHIFT)
    }

    /// Selects another lane.
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// node.send(own.lane(Lane::High), b"urgent")?;
    /// # node.recv(7, &mut [0; 6])?;
    /// # Ok(()) }
    /// ```
    #[inline]
    #[must_use]
    pub fn lane(self, lane: Lane) -> Self {
        match lane {
            Lane::Low => Target(self.0 & !HIGH_BIT),
            Lane::High => Target(self.0 | HIGH_BIT),
        }
    }

    /// Selects delivery without retransmission. Losses are counted at the receiver, and a message
    /// that finds no buffer there is dropped. A message of several frames arrives whole or not at
    /// all; an incomplete one is counted as [`crate::binding::DropReason::BestEffortIncomplete`]. Messages
    /// of more than 64 KiB, and those that fill a frame of shared memory, are sent reliably.
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// node.send(own.best_effort(), b"may be lost")?;
    /// # node.recv_timeout(7, &mut [0; 16], std::time::Duration::from_millis(1))?;
    /// # Ok(()) }
    /// ```
    #[inline]
    #[must_use]
    pub fn best_effort(self) -> Self {
        Target(self.0 | BEST_EFFORT_BIT)
    }

    /// Returns the rank.
    ///
    /// # Examples
    /// See [`crate::Node::send`].
    #[inline]
    #[must_use]
    #[allow(clippy::cast_possible_truncation, reason = "the lowest 32 bits")]
    pub fn rank(&self) -> u32 {
        self.0 as u32
    }

    /// Converts the target for the core.
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

/// Configuration of an input port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PortConfig {
    /// Passes messages to the handler in place, without a posted buffer. Eager messages are then
    /// not copied; longer ones are received into a buffer of the library. Ignored for ports without
    /// a handler.
    pub in_place: bool,
}

impl PortConfig {
    /// Passes messages to the handler where they are.
    ///
    /// # Examples
    /// See [`crate::Node::open_active`].
    #[must_use]
    pub fn in_place() -> Self {
        PortConfig { in_place: true }
    }
}

/// A message as passed to a handler.
#[derive(Debug)]
pub struct Message<'a> {
    pub(crate) source: u32,
    pub(crate) port: u16,
    pub(crate) bytes: &'a [u8],
    pub(crate) buffer: Option<Buffer>,
    pub(crate) message_len: u64,
}

impl Message<'_> {
    /// Returns the rank of the sender.
    ///
    /// # Examples
    /// See [`crate::Context::isend`].
    #[must_use]
    pub fn source(&self) -> u32 {
        self.source
    }

    /// Returns the port that received the message.
    ///
    /// # Examples
    /// See [`crate::Context::isend`].
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the message's bytes; if it was longer than the posted buffer, its first bytes.
    ///
    /// # Examples
    /// See [`crate::Context::isend`].
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        let len = usize::try_from(self.message_len).unwrap_or(usize::MAX);
        match &self.buffer {
            Some(buffer) => &buffer[..len.min(buffer.len())],
            None => self.bytes,
        }
    }

    /// Returns the message's length, including bytes that did not fit.
    ///
    /// # Examples
    /// See [`Message::take_buffer`].
    #[must_use]
    pub fn message_len(&self) -> u64 {
        self.message_len
    }

    /// Returns whether the posted buffer was too short.
    ///
    /// # Examples
    /// See [`Message::take_buffer`].
    #[must_use]
    pub fn is_truncated(&self) -> bool {
        self.bytes().len() as u64 != self.message_len
    }

    /// Takes the posted buffer, to keep it or to post it again; `None` for messages in place.
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// # let done = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    /// # let is_done = done.clone();
    /// node.open_active(8, PortConfig::default(), move |context, mut message| {
    ///     assert_eq!((message.message_len(), message.is_truncated()), (4, false));
    ///     if let Some(buffer) = message.take_buffer() {
    ///         let _ = context.post_recv(8, buffer);
    ///     }
    ///     done.store(true, std::sync::atomic::Ordering::Relaxed);
    /// })?;
    /// let _ = node.post_recv(8, vec![0; 16])?;
    /// node.send(Target::new(node.rank(), 8), b"ahoy")?;
    /// node.wait_until(|| is_done.load(std::sync::atomic::Ordering::Relaxed))?;
    /// # Ok(()) }
    /// ```
    pub fn take_buffer(&mut self) -> Option<Buffer> {
        self.buffer.take()
    }
}
