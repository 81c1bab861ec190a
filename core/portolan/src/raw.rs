// SPDX-License-Identifier: MIT OR Apache-2.0
//! Types of an endpoint's interface: memory by address, and operations that carry the caller's
//! cookie until they end.

use crate::error::memory_full;
use portolan_proto::{Cause, ClaimId, OpError, OpId, PeerId, RemoteFault};
use portolan_sys::shortage::Shortage;
use std::fmt;
use std::ops::Range;
use std::ptr;

/// A peer of an endpoint, numbered from 0 in the order of insertion or first contact. Numbers are
/// the endpoint's own, and are not used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PeerIndex(pub u32);

/// A piece of memory. `ptr` may be null when `len` is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawPiece {
    /// Address of the first byte.
    pub ptr: *mut u8,
    /// Length, in bytes.
    pub len: usize,
}

/// Matching of a message. The two sets are matched separately, over one ordered stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RawSpace {
    /// Matched by the sender alone. Receives complete in the order in which the sender sent the
    /// messages.
    Plain,
    /// Matched by the sender and a tag.
    Tagged(u64),
}

/// Service of a sent message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawSend {
    /// Matching of the message.
    pub space: RawSpace,
    /// Immediate data: a word beside the message, which the receiver's completion contains.
    pub imm: Option<u64>,
    /// Set to complete only when the receiver has the message in its buffer. Otherwise the send
    /// completes as soon as its memory is free.
    pub delivered: bool,
}

/// Selection of messages by a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawRecv {
    /// The set, and the tag in it.
    pub space: RawSpace,
    /// Bits of the tag that may differ.
    pub ignore: u64,
    /// Required source; `None` for any.
    pub source: Option<PeerIndex>,
}

/// Properties of an unexpected message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RawEnvelope {
    /// Sender of the message.
    pub source: PeerIndex,
    /// Tag of the message; 0 for one without a tag.
    pub tag: u64,
    /// Length of the message, in bytes.
    pub len: u64,
    /// Immediate data of the message.
    pub imm: Option<u64>,
}

/// Message that is removed from matching with all receives but the one that is posted for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RawClaim {
    pub(crate) id: ClaimId,
    pub(crate) source: PeerId,
    pub(crate) is_tagged: bool,
}

/// Access of peers to registered memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RawAccess {
    /// Get, and the values that atomic operations return.
    pub read: bool,
    /// Put and atomic operations.
    pub write: bool,
}

/// Place in the memory of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawRemote {
    /// Address of the first byte, in the numbering that its owner chose when it registered the
    /// memory.
    pub addr: u64,
    /// Key of the region.
    pub key: u64,
}

/// Two words of the caller that an operation's completion returns. The library uses only
/// `context`, to find the operations to cancel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cookie {
    /// Identifies the operation for [`crate::binding::Endpoint::cancel`].
    pub context: u64,
    /// Flags of the caller, for use with the completion.
    pub flags: u64,
}

impl Cookie {
    /// Creates a cookie with a context and no flags.
    #[must_use]
    pub const fn new(context: u64) -> Cookie {
        Cookie { context, flags: 0 }
    }
}

/// Kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RawKind {
    /// Send of a message.
    Send,
    /// Receive of a message.
    Recv,
    /// Receive of a tagged message.
    RecvTagged,
    /// Put of bytes.
    Put,
    /// Get of bytes.
    Get,
    /// Atomic operation on numbers.
    Atomic,
    /// Put by a peer into memory of this process, with immediate data. Its cookie is 0.
    RemotePut,
}

/// Reason for the failure of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RawError {
    /// The message was longer than the buffer, which holds its first bytes.
    Truncated {
        /// Length of the message, in bytes.
        message_len: u64,
    },
    /// The peer has failed.
    PeerGone(Cause),
    /// The operation was cancelled.
    Cancelled,
    /// The receiver cancelled the receive that the message had matched.
    Refused,
    /// The owner of the memory refused.
    Remote(RemoteFault),
    /// The memory of the operation is unmapped, or its pages forbid the access.
    Fault,
    /// The peer cannot access the memory of its side of the operation.
    PeerFault,
    /// The awaited message is behind unexpected messages, and the memory for those is full.
    UnexpectedMemoryFull {
        /// Bytes that unexpected messages occupy.
        held_len: u64,
        /// Bytes that they may occupy.
        limit: u64,
    },
}

impl fmt::Display for RawError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RawError::Truncated { message_len } => {
                write!(f, "the message of {message_len} bytes does not fit")
            }
            RawError::PeerGone(cause) => write!(f, "the peer failed: {cause}"),
            RawError::Cancelled => f.write_str("the operation was cancelled"),
            RawError::Remote(fault) => write!(f, "remote memory: {fault}"),
            RawError::Refused => f.write_str("the receiver cancelled the buffer"),
            RawError::Fault => f.write_str(
                "the memory of the operation is unmapped, or its pages forbid the access",
            ),
            RawError::PeerFault => f.write_str("the peer cannot access its memory"),
            &RawError::UnexpectedMemoryFull { held_len, limit } => {
                f.write_str(&memory_full(held_len, limit))
            }
        }
    }
}

/// Result of an operation.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct RawCompletion {
    /// Cookie that the caller gave the operation.
    pub cookie: Cookie,
    /// Kind of the operation.
    pub kind: RawKind,
    /// Sender of a received message; otherwise the target of the operation. `None` for a receive
    /// from any source that ended without a message.
    pub peer: Option<PeerIndex>,
    /// Length, in bytes; for a truncated message, that of the part in the buffer.
    pub len: u64,
    /// Tag of a received tagged message.
    pub tag: u64,
    /// Immediate data of the message.
    pub imm: Option<u64>,
    /// Address of a received message.
    pub buf: *mut u8,
    /// Set when a buffer for many messages belongs to the caller again. False for all other
    /// operations, although their memory is always released.
    pub released: bool,
    /// Reason for a failure.
    pub error: Option<RawError>,
}

/// State of a send when its call returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a caller that treats a completed send as pending waits forever"]
pub enum Sent {
    /// The send is complete: its memory belongs to the caller again, and there is no completion.
    Done,
    /// The send is pending, and ends with a completion.
    Pending,
}

/// The caller's description of an endpoint operation, which the operation carries.
#[derive(Clone, Debug)]
pub(crate) struct RawOp {
    pub(crate) cookie: Cookie,
    pub(crate) kind: RawKind,
    pub(crate) what: RawWhat,
    /// Number of the operation in the order of submission.
    pub(crate) number: u64,
}

#[derive(Clone, Debug)]
pub(crate) enum RawWhat {
    /// Completed once; `true` for a send that completes when the receiver has the message.
    Send(bool),
    /// Operation without a completion: a message that was copied, or one that is discarded.
    Silent,
    Recv,
    /// Received into memory of the library, and then copied to pieces.
    Scatter(Box<[RawPiece]>),
    /// A buffer for many messages. Boxed, because it is rare and large.
    Many(Box<Many>),
    /// A part of such a buffer.
    Part(OpId),
}

/// A buffer for many messages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Many {
    buffer: RawPiece,
    /// Messages that are being received into it.
    open_count: usize,
    /// Set when it accepts no more messages.
    is_closed: bool,
    /// Reason for that, unless the buffer is full.
    error: Option<RawError>,
}

impl Many {
    pub(crate) fn new(buffer: RawPiece) -> Many {
        Many {
            buffer,
            open_count: 0,
            is_closed: false,
            error: None,
        }
    }

    /// Starts a message in the bytes `range` and returns its memory.
    pub(crate) fn begin(&mut self, range: Range<u64>, is_last: bool) -> RawPiece {
        self.open_count += 1;
        self.is_closed |= is_last;
        let offset = |off: u64| usize::try_from(off).unwrap_or(usize::MAX);
        RawPiece {
            ptr: self.buffer.ptr.wrapping_add(offset(range.start)),
            len: offset(range.end - range.start),
        }
    }

    /// Ends a message. Returns whether it was the last, and the reason why no more messages are
    /// accepted, unless the buffer is full.
    pub(crate) fn end(&mut self) -> (bool, Option<RawError>) {
        self.open_count -= 1;
        (self.is_closed && self.open_count == 0, self.error)
    }

    /// Stops accepting messages because of `error`. Returns whether no message is being received.
    pub(crate) fn close(&mut self, error: RawError) -> bool {
        (self.is_closed, self.error) = (true, Some(error));
        self.open_count == 0
    }
}

impl RawOp {
    /// Returns whether the operation is not a receive.
    #[inline]
    pub(crate) fn is_request(&self) -> bool {
        !matches!(self.kind, RawKind::Recv | RawKind::RecvTagged)
    }

    /// Creates a completion without a message.
    #[inline]
    pub(crate) fn completion(&self, awaited_peer: Option<PeerId>) -> RawCompletion {
        RawCompletion {
            cookie: self.cookie,
            kind: self.kind,
            peer: awaited_peer.map(|peer| PeerIndex(peer.0)),
            len: 0,
            tag: 0,
            imm: None,
            buf: ptr::null_mut(),
            released: matches!(self.what, RawWhat::Many(_)),
            error: None,
        }
    }
}

impl From<OpError> for RawError {
    fn from(error: OpError) -> RawError {
        match error {
            OpError::PeerFailed(_, cause) => RawError::PeerGone(cause),
            OpError::Truncated { message_len } => RawError::Truncated { message_len },
            OpError::Refused => RawError::Refused,
            OpError::Remote(_, fault) => RawError::Remote(fault),
            OpError::Fault { .. } => RawError::Fault,
            OpError::PeerFault(_) => RawError::PeerFault,
            OpError::MemoryFull { held_len, limit } => {
                RawError::UnexpectedMemoryFull { held_len, limit }
            }
            _ => RawError::Cancelled,
        }
    }
}

/// Reason for which an operation was not accepted. It then has no effect.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SubmitError {
    /// No capacity at present. Poll, and try again.
    Again,
    /// The claim was used before.
    StaleClaim,
    /// No such peer, or one that was removed.
    NoSuchPeer,
    /// The peer has failed. Nothing was sent.
    PeerGone(Cause),
    /// The atomic operation is not defined for this datatype, or lengths do not match.
    Unsupported,
    /// More bytes than [`crate::binding::EndpointLimits`] allow.
    TooLong,
    /// More pieces than [`crate::binding::EndpointLimits`] allow.
    TooManyPieces,
    /// The process was forked from the one that opened the endpoint.
    Forked,
    /// No memory for a copy of the pieces.
    NoMemory(Shortage),
}

impl fmt::Display for SubmitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SubmitError::Again => f.write_str("no capacity at present; poll and try again"),
            SubmitError::StaleClaim => f.write_str("the message was claimed before"),
            SubmitError::NoSuchPeer => f.write_str("no such peer; insert its address first"),
            SubmitError::PeerGone(cause) => write!(f, "the peer failed: {cause}"),
            SubmitError::Unsupported => {
                f.write_str("atomic operation not supported for this datatype")
            }
            SubmitError::TooLong => f.write_str("more bytes than the endpoint's limit"),
            SubmitError::Forked => f.write_str(
                "this process was forked after its parent had opened the endpoint; use it in the \
                 parent only",
            ),
            SubmitError::NoMemory(lack) => {
                write!(f, "cannot allocate a copy of the pieces: {lack}")
            }
            SubmitError::TooManyPieces => f.write_str("more pieces than the endpoint's limit"),
        }
    }
}

/// Formats the error as its sentence, because `main` prints a returned error in this form.
impl fmt::Debug for SubmitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for SubmitError {}

/// Limits of an endpoint's operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EndpointLimits {
    /// Longest message that is copied at once, in bytes.
    pub inject_len_max: usize,
    /// Maximum number of pieces of memory in an operation.
    pub pieces_max: usize,
    /// Longest message, in bytes.
    pub message_len_max: u64,
    /// Longest operands of an atomic operation, in bytes, including the numbers to compare with.
    pub atomic_len_max: usize,
}

/// Advice to the caller after a turn that moved nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Idle {
    /// Poll again.
    Spin,
    /// Yield the core to other threads, then poll again.
    Yield,
    /// Arm, sleep on the descriptor, then poll again.
    Sleep,
}
