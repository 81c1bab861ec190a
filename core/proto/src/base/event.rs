// SPDX-License-Identifier: MIT OR Apache-2.0
//! Events from the core to the engine, and the identifiers that both use.

use crate::{AtomicSpec, LinkId, PutNotice, RemoteFault, Reply};
use alloc::boxed::Box;
use core::fmt;
use core::ops::Range;
use portolan_wire::{EndpointId, LaneId, MatchBits, Message};

/// Peer, identified by its rank in the job.
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

/// Operation of the engine, identified by a number that the engine chooses. Numbers with the
/// highest bit set are chosen by the core, for parts of other operations
/// ([`Event::MultiRecvSegment`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OpId(pub u64);

impl OpId {
    /// Bit that is set in numbers chosen by the core.
    const PART_BIT: u64 = 1 << 63;

    /// Returns the id of the `number`th part that the core has made.
    pub(crate) const fn part(number: u64) -> OpId {
        OpId(OpId::PART_BIT | number)
    }

    /// Returns true for a part of another operation.
    #[inline]
    #[must_use]
    pub const fn is_part(self) -> bool {
        self.0 & OpId::PART_BIT != 0
    }
}

/// Memory of the core that holds a message until it is consumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HeldId(pub(crate) u32);

/// Port of this process. System ports belong to the library itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PortId {
    /// Port number.
    pub number: u16,
    /// Set for a port in the library's own number space.
    pub system: bool,
}

impl PortId {
    /// Returns a port of the program.
    #[inline]
    #[must_use]
    pub const fn user(number: u16) -> Self {
        PortId {
            number,
            system: false,
        }
    }

    /// Returns the port that a message was sent to.
    #[inline]
    pub(crate) fn of(message: &Message) -> Self {
        PortId {
            number: message.port,
            system: message.system,
        }
    }

    /// Returns a port of the library.
    #[inline]
    #[must_use]
    pub const fn system(number: u16) -> Self {
        PortId {
            number,
            system: true,
        }
    }
}

/// Key by which a message is matched with a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// Destination port.
    Port(PortId),
    /// Match bits of the message.
    MatchBits(MatchBits),
}

impl Address {
    /// Returns the address of a message that has arrived.
    #[inline]
    pub(crate) fn of(message: &Message) -> Address {
        match message.match_bits {
            Some(match_bits) => Address::MatchBits(match_bits),
            None => Address::Port(PortId::of(message)),
        }
    }

    /// Returns true if messages to both addresses wait in one queue: at one port, or in one space.
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

/// Delivery mode of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortMode {
    /// Each message needs a posted buffer.
    Posted,
    /// Eager messages are delivered in place; longer ones need a posted buffer.
    InPlace,
}

/// Location of a delivered message's payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Data {
    /// In the frame being handled.
    Frame(Range<usize>),
    /// In memory of the core; release it with [`crate::Core::release`] after use.
    Held(HeldId),
    /// Already in the operation's buffer.
    Placed,
}

/// Destination to which a part of a frame must be copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dest {
    /// This offset of the operation's buffer.
    Op(OpId, u64),
    /// This offset of held memory.
    Held(HeldId, usize),
}

/// Reason why a peer has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// Its process has exited, according to the operating system or the launcher.
    ProcessExited,
    /// No frame arrived from it on this path for too long.
    Silent(LinkId),
    /// It has restarted; operations on its earlier incarnation are lost.
    Restarted,
    /// It violated the protocol.
    Violation(&'static str),
    /// No path to it works.
    NoPath,
    /// It closed the session.
    Closed,
    /// It has run out of this resource, which the connection needed, and has reported that.
    PeerOutOfResource(&'static str),
    /// This process has run out of this resource, which the connection needed.
    OutOfResource(&'static str),
    /// Another process has reported it as lost.
    Reported,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::ProcessExited => f.write_str("its process has ended"),
            Cause::Silent(link) => write!(f, "it no longer responds on path {link}"),
            Cause::Restarted => f.write_str("it has restarted"),
            Cause::Violation(what) => write!(f, "it violated the protocol: {what}"),
            Cause::NoPath => f.write_str("no path to it works"),
            Cause::Closed => {
                f.write_str("it has closed the session, or has declared this process failed")
            }
            Cause::PeerOutOfResource(what) => write!(f, "it has run out of {what}"),
            Cause::Reported => f.write_str("another process has reported it as lost"),
            Cause::OutOfResource(what) => write!(f, "this process has run out of {what}"),
        }
    }
}

/// Reason why an operation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpError {
    /// The peer has failed.
    PeerFailed(PeerId, Cause),
    /// The message was longer than the buffer, which contains its first bytes.
    Truncated {
        /// Length of the message in bytes.
        message_len: u64,
    },
    /// The receiver gave up the transfer.
    Refused,
    /// The engine cancelled it.
    Cancelled,
    /// This process cannot access the memory of the operation.
    Fault {
        /// Set if the memory cannot be written; otherwise it cannot be read.
        written: bool,
    },
    /// The peer cannot access the memory of its side of the operation.
    PeerFault(PeerId),
    /// The peer refused the operation on its memory.
    Remote(PeerId, RemoteFault),
    /// The expected message is behind messages that no receive has taken, and the memory for those
    /// is full.
    MemoryFull {
        /// Bytes that these messages occupy.
        held_len: u64,
        /// Limit of that memory in bytes: [`crate::Limits::held_len_max`].
        limit: u64,
    },
}

impl OpError {
    /// Returns the error for a message that is longer than its buffer. `P4.9`
    #[inline]
    pub(crate) fn truncated(len: u64, capacity: u64) -> Option<OpError> {
        (len > capacity).then_some(OpError::Truncated { message_len: len })
    }
}

/// Event of the core. The engine must act on events in order.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// Copy a part of the frame being handled.
    Place {
        /// Destination.
        dest: Dest,
        /// Range in the frame.
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
        /// Length of the message in bytes.
        len: u64,
        /// Location of the payload.
        data: Data,
        /// Error, if the posted buffer was too short.
        error: Option<OpError>,
    },
    /// A multi-receive has taken a message into a part of its buffer. From now on the part is an
    /// operation of its own and completes as one.
    MultiRecvSegment {
        /// Multi-receive.
        op: OpId,
        /// Part.
        part: OpId,
        /// Offset of the part in the buffer.
        off: u64,
        /// Length of the part in bytes.
        len: u64,
        /// Set if the receive takes no more messages.
        is_last: bool,
    },
    /// A tagged message has arrived and matched a receive.
    Matched {
        /// Sender.
        peer: PeerId,
        /// Receive.
        op: OpId,
        /// Match bits, with the immediate data.
        match_bits: MatchBits,
        /// Length of the message in bytes.
        len: u64,
        /// Location of the payload.
        data: Data,
        /// Set if the buffer was too short.
        truncated: bool,
    },
    /// A posted receive has failed without a message.
    RecvFailed {
        /// The operation.
        op: OpId,
        /// Reason.
        error: OpError,
    },
    /// A rendezvous send has completed; its buffer may be reused.
    SendDone {
        /// Operation.
        op: OpId,
        /// Result.
        result: Result<(), OpError>,
    },
    /// Request to read a message from the peer's memory and then call [`crate::Core::pull_done`].
    Pull {
        /// Transfer to pass to `pull_done`.
        transfer: u32,
        /// Owner of the memory.
        peer: PeerId,
        /// Address in the peer's memory.
        remote_addr: u64,
        /// Operation that receives the bytes.
        op: OpId,
        /// Offset in its buffer.
        off: u64,
        /// Length in bytes.
        len: u64,
    },
    /// An operation on remote memory has completed; its buffer may be reused.
    RemoteDone {
        /// Operation.
        op: OpId,
        /// Result.
        result: Result<(), OpError>,
    },
    /// Request to copy the bytes of a put into a region, and to release them if they are held. A put
    /// with a transfer is already in place. If the memory cannot be written, or could not, call
    /// [`crate::Core::refuse_put`] before the next poll.
    RemoteWrite {
        /// Reply to the put, which is queued already.
        reply: Reply,
        /// Bytes of the put.
        len: u64,
        /// Bytes to copy.
        data: Data,
        /// Set if an [`Event::PutNotice`] of this put follows.
        notifies: bool,
    },
    /// The peer cannot read the memory of a message to `op`, which completes next, without the
    /// message.
    SourceFault {
        /// Receive, or get.
        op: OpId,
        /// Sender.
        peer: PeerId,
    },
    /// Request to release held memory.
    Discard {
        /// Held memory.
        held: HeldId,
    },
    /// Request to answer with bytes of a region: [`crate::Core::reply_read`].
    RemoteRead {
        /// Requester, and source of the bytes.
        reply: Reply,
        /// Length in bytes.
        len: u64,
    },
    /// Request to modify numbers in a region, then call [`crate::Core::reply`] or
    /// [`crate::Core::refuse`].
    RemoteAtomic {
        /// Requester, and location of the numbers.
        reply: Reply,
        /// Atomic operation.
        atomic: AtomicSpec,
        /// Operands.
        data: Data,
    },
    /// A put has been applied and the program must be notified.
    PutNotice(PutNotice),
    /// Memory for unexpected messages is full, and the waiting program takes none of them. The
    /// receives that cannot be satisfied fail.
    MemoryFull {
        /// Sender of the messages that are held back.
        peer: PeerId,
        /// [`OpError::MemoryFull`].
        error: OpError,
    },
    /// A message that needs a posted buffer has arrived at a port that delivers in place. If a
    /// buffer that is long enough is posted for its sender, it is reserved for this message.
    BufferNeeded {
        /// Port.
        port: PortId,
        /// Sender.
        peer: PeerId,
        /// Length of the message in bytes.
        len: u64,
    },
    /// The first message waits at a port that the program has not opened yet.
    PortUnopened {
        /// Port.
        port: PortId,
        /// Sender.
        peer: PeerId,
    },
    /// A process outside any job, which was not introduced here, has sent a hello to this process's
    /// address. The engine may call [`crate::Core::introduce`] and [`crate::Core::greet`], or
    /// ignore it.
    Unsolicited {
        /// Endpoint id of that process.
        endpoint_id: Box<EndpointId>,
    },
    /// A transfer to the peer would use a stream if one were open. The engine opens one, then calls
    /// [`crate::Core::stream_opened`] or [`crate::Core::stream_closed`].
    StreamNeeded(PeerId),
    /// The peer accepts messages.
    PeerUp(PeerId),
    /// The peer accepts messages again after a refusal.
    Writable(PeerId),
    /// Frames to the peer are not acknowledged; the engine must check that the peer is alive.
    Suspect {
        /// Peer.
        peer: PeerId,
        /// Silent path.
        link: LinkId,
    },
    /// The peer has failed; its operations were failed before this event.
    PeerFailed {
        /// Peer.
        peer: PeerId,
        /// Reason.
        cause: Cause,
        /// Set if messages with completed sends were not acknowledged. They may not have arrived.
        has_unacked: bool,
    },
}
