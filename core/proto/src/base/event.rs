// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the core tells the engine, and the names both use.

use crate::{Answer, AtomicSpec, LinkId, PutNotice, RemoteFault};
use alloc::boxed::Box;
use core::fmt;
use core::ops::Range;
use portolan_wire::{EndpointId, LaneId, MatchBits, Message};

/// A peer: its rank in the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PeerId(pub u32);

impl PeerId {
    #[inline]
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for PeerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {}", self.0)
    }
}

/// An operation of the engine, by a number that the engine chose. Those with the highest bit set are
/// parts of other operations, and chosen by the core ([`Event::MultiRecvSegment`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OpId(pub u64);

impl OpId {
    /// Set in the numbers that the core chooses.
    const PART_BIT: u64 = 1 << 63;

    /// The `number`th part that the core has made.
    pub(crate) const fn part(number: u64) -> OpId {
        OpId(OpId::PART_BIT | number)
    }

    /// Whether it is a part of another operation.
    #[inline]
    #[must_use]
    pub const fn is_part(self) -> bool {
        self.0 & OpId::PART_BIT != 0
    }
}

/// Memory of the core that holds a message until it is consumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HeldId(pub(crate) u32);

/// A port of this process. System ports belong to the library itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PortId {
    /// Number.
    pub number: u16,
    /// In the library's own number space.
    pub system: bool,
}

impl PortId {
    /// A port of the program.
    #[inline]
    #[must_use]
    pub const fn user(number: u16) -> Self {
        PortId {
            number,
            system: false,
        }
    }

    /// The port that a message was sent to.
    #[inline]
    pub(crate) fn of(message: &Message) -> Self {
        PortId {
            number: message.port,
            system: message.system,
        }
    }

    /// A port of the library.
    #[inline]
    #[must_use]
    pub const fn system(number: u16) -> Self {
        PortId {
            number,
            system: true,
        }
    }
}

/// What a message is matched with a buffer by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// The port that it goes to.
    Port(PortId),
    /// Its match bits.
    MatchBits(MatchBits),
}

impl Address {
    /// Where a message goes that has arrived.
    #[inline]
    pub(crate) fn of(message: &Message) -> Address {
        match message.match_bits {
            Some(match_bits) => Address::MatchBits(match_bits),
            None => Address::Port(PortId::of(message)),
        }
    }

    /// Messages to both wait in one queue: at one port, or in one space.
    pub(crate) fn shares_queue(&self, other: &Address) -> bool {
        match (self, other) {
            (Address::MatchBits(one), Address::MatchBits(other)) => one.space == other.space,
            (one, other) => one == other,
        }
    }
}

impl From<PortId> for Address {
    fn from(port: PortId) -> Address {
        Address::Port(port)
    }
}

impl From<MatchBits> for Address {
    fn from(match_bits: MatchBits) -> Address {
        Address::MatchBits(match_bits)
    }
}

/// How a port takes messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortMode {
    /// Each message needs a posted buffer.
    Posted,
    /// Eager messages are handed over where they lie; longer ones need a posted buffer.
    InPlace,
}

/// Where the payload of a delivered message is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Data {
    /// In the frame that is being handled.
    Frame(Range<usize>),
    /// In memory of the core; release it with [`crate::Core::release`] afterwards.
    Held(HeldId),
    /// Already in the operation's buffer.
    Placed,
}

/// Where a part of a frame must be copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dest {
    /// At this offset of the operation's buffer.
    Op(OpId, u64),
    /// At this offset of held memory.
    Held(HeldId, usize),
}

/// Why a peer is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// Its process ended; the system or the launcher said so.
    ProcessGone,
    /// Nothing was heard of it for too long on this path.
    Silent(LinkId),
    /// It started again; what its earlier life was asked is lost.
    Restarted,
    /// It broke the protocol.
    Violation(&'static str),
    /// No path to it worked.
    NoPath,
    /// It closed the session.
    Closed,
    /// It has run out of this, which the connection needed, and has said so.
    Starved(&'static str),
    /// This process has run out of this, which the connection needed.
    Lacking(&'static str),
    /// Another process says that it is lost.
    Reported,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::ProcessGone => f.write_str("its process has ended"),
            Cause::Silent(link) => write!(f, "it no longer answers on path {link}"),
            Cause::Restarted => f.write_str("it was started again"),
            Cause::Violation(what) => write!(f, "it broke the protocol: {what}"),
            Cause::NoPath => f.write_str("no path to it works"),
            Cause::Closed => f.write_str("it has closed, or has given this process up"),
            Cause::Starved(what) => write!(f, "it has run out of {what}"),
            Cause::Reported => f.write_str("another process says that it is lost"),
            Cause::Lacking(what) => write!(f, "this process has run out of {what}"),
        }
    }
}

/// Why an operation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpError {
    /// The peer is gone.
    PeerGone(PeerId, Cause),
    /// The message was longer than the buffer; its first bytes are in the buffer.
    Truncated {
        /// Bytes of the message.
        message_len: u64,
    },
    /// The receiver gave the transfer up.
    Refused,
    /// The engine cancelled it.
    Cancelled,
    /// The peer would not have it done to its memory.
    Remote(PeerId, RemoteFault),
    /// What it waits for is behind messages that nobody has received, and for those no memory is left.
    MemoryFull {
        /// Bytes that they take.
        held_len: u64,
        /// Bytes that they may take: [`crate::Limits::held_len_max`].
        limit: u64,
    },
}

impl OpError {
    /// The error of a message that is longer than its buffer. `P4.9`
    #[inline]
    pub(crate) fn truncated(len: u64, capacity: u64) -> Option<OpError> {
        (len > capacity).then_some(OpError::Truncated { message_len: len })
    }
}

/// What happened. The order of events is the order in which the engine must act on them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// Copy a part of the frame being handled.
    Place {
        /// To there.
        dest: Dest,
        /// From here.
        src: Range<usize>,
    },
    /// A message has arrived.
    Deliver {
        /// Sender.
        peer: PeerId,
        /// Port it was sent to.
        port: PortId,
        /// Priority it was sent with.
        lane: LaneId,
        /// The posted operation that it consumes; `None` for delivery in place.
        op: Option<OpId>,
        /// Bytes of the message.
        len: u64,
        /// Where it is.
        data: Data,
        /// The posted buffer was too short.
        error: Option<OpError>,
    },
    /// A receive of many messages has taken one, into a part of its buffer. The part is an operation
    /// of its own from now on, and ends as such.
    MultiRecvSegment {
        /// The receive.
        op: OpId,
        /// The part.
        part: OpId,
        /// Where in the buffer it begins.
        off: u64,
        /// Bytes of the buffer that it has.
        len: u64,
        /// The receive takes no more messages.
        is_last: bool,
    },
    /// A tagged message has arrived, for a receive that takes it.
    Matched {
        /// Sender.
        peer: PeerId,
        /// The receive.
        op: OpId,
        /// What it was matched by, and its immediate data.
        match_bits: MatchBits,
        /// Bytes of the message.
        len: u64,
        /// Where it is.
        data: Data,
        /// The buffer was too short.
        truncated: bool,
    },
    /// A posted receive ended without a message.
    RecvFailed {
        /// The operation.
        op: OpId,
        /// Reason.
        error: OpError,
    },
    /// A rendezvous send has ended; its buffer is free.
    SendDone {
        /// The operation.
        op: OpId,
        /// How.
        result: Result<(), OpError>,
    },
    /// Fetch a message from the peer's memory, then call [`crate::Core::pull_done`].
    Pull {
        /// Number to report with.
        transfer: u32,
        /// Whose memory.
        peer: PeerId,
        /// Where.
        remote_addr: u64,
        /// Into this operation's buffer.
        op: OpId,
        /// At this offset of it.
        off: u64,
        /// Bytes.
        len: u64,
    },
    /// A request for remote memory has ended; its buffer is free.
    RemoteDone {
        /// The operation.
        op: OpId,
        /// How.
        result: Result<(), OpError>,
    },
    /// Copy a held message into a region, then release it.
    RemoteWrite {
        /// The operation whose memory the region is.
        region: OpId,
        /// At this offset.
        off: u64,
        /// From here.
        held: HeldId,
    },
    /// Release held memory.
    Discard {
        /// Which.
        held: HeldId,
    },
    /// Answer with bytes of a region: [`crate::Core::answer_read`].
    RemoteRead {
        /// Whom, and from where.
        answer: Answer,
        /// Bytes.
        len: u64,
    },
    /// Change numbers in a region, then [`crate::Core::answer`] or [`crate::Core::refuse`].
    RemoteAtomic {
        /// Whom, and where the numbers are.
        answer: Answer,
        /// What to do.
        atomic: AtomicSpec,
        /// The operands.
        data: Data,
    },
    /// A put was applied of which the program is to be told.
    PutNotice(PutNotice),
    /// The program waits, takes nothing of what waits for it, and the memory for that is full; the
    /// receives that cannot be filled end.
    MemoryFull {
        /// A peer that is held back.
        peer: PeerId,
        /// [`OpError::MemoryFull`].
        error: OpError,
    },
    /// A port that takes messages in place was sent one that needs a posted buffer. One posted for
    /// its sender from now on, and long enough, is kept for it.
    BufferWanted {
        /// The port.
        port: PortId,
        /// The sender.
        peer: PeerId,
        /// Bytes of the message.
        len: u64,
    },
    /// The first message waits at a port that the program has not opened. It may do so later.
    PortUnopened {
        /// The port.
        port: PortId,
        /// The sender.
        peer: PeerId,
    },
    /// A process without a job that nobody has introduced says hello, and knows the address of
    /// this one: [`crate::Core::introduce`] and [`crate::Core::greet`] it, or let it be.
    Unsolicited {
        /// Its endpoint id.
        endpoint_id: Box<EndpointId>,
    },
    /// A transfer to the peer would go by a stream, if there were one: open it, then call
    /// [`crate::Core::stream_opened`] or [`crate::Core::stream_closed`].
    StreamWanted(PeerId),
    /// The peer can be sent to.
    PeerUp(PeerId),
    /// The peer takes messages again after a refusal.
    Writable(PeerId),
    /// Frames to the peer stay unanswered: find out whether it lives.
    Suspect {
        /// The peer.
        peer: PeerId,
        /// The path that is silent.
        link: LinkId,
    },
    /// The peer was given up; its operations have been failed before this event.
    PeerFailed {
        /// The peer.
        peer: PeerId,
        /// Reason.
        cause: Cause,
        /// Messages to it whose sends had ended were not acknowledged: they may not have arrived.
        unheard: bool,
    },
}
