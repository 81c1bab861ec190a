// SPDX-License-Identifier: MIT OR Apache-2.0
//! What an endpoint's caller says and hears: memory by address, operations by a cookie of the
//! caller's, which they carry to their end.

use crate::error::memory_full;
use portolan_proto::{Cause, ClaimId, OpError, OpId, PeerId, RemoteFault};
use portolan_sys::lack::Lack;
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
    /// Where.
    pub ptr: *mut u8,
    /// Bytes.
    pub len: usize,
}

/// What a message is matched by: two sets that are matched apart, over one ordered stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RawSpace {
    /// By the sender alone. Receives complete in the order in which the sender sent the messages.
    Plain,
    /// By the sender and a tag.
    Tagged(u64),
}

/// How a message is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawSend {
    /// What it is matched by.
    pub space: RawSpace,
    /// A word for the receiver beside the message.
    pub imm: Option<u64>,
    /// Complete only when the receiver has it in its buffer; else as soon as the memory is free.
    pub delivered: bool,
}

/// Which messages a receive takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawRecv {
    /// The set, and the tag in it.
    pub space: RawSpace,
    /// Bits of the tag that may differ.
    pub ignore: u64,
    /// From this peer only.
    pub source: Option<PeerIndex>,
}

/// What is known of a message that waits for a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RawEnvelope {
    /// The sender.
    pub source: PeerIndex,
    /// Its tag; 0 of one without.
    pub tag: u64,
    /// Bytes.
    pub len: u64,
    /// The word beside it.
    pub imm: Option<u64>,
}

/// A message that was taken from all receives but the one that is posted for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RawClaim {
    pub(crate) id: ClaimId,
    pub(crate) source: PeerId,
    pub(crate) is_tagged: bool,
}

/// Who may do what with registered memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RawAccess {
    /// Get, and the values that atomic operations return.
    pub read: bool,
    /// Put and atomic operations.
    pub write: bool,
}

/// A place in the memory of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawRemote {
    /// Address of the first byte, counted as the owner has said when it registered the memory.
    pub addr: u64,
    /// Key of the region.
    pub key: u64,
}

/// What a caller says of an operation and gets back with its end: two words, which nobody else reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cookie {
    /// Which operation it is: [`crate::Endpoint::cancel`] finds it by this word.
    pub context: u64,
    /// What the caller wants to know when it has ended.
    pub flags: u64,
}

impl Cookie {
    /// A context alone.
    #[must_use]
    pub const fn new(context: u64) -> Cookie {
        Cookie { context, flags: 0 }
    }
}

/// What an operation was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RawKind {
    /// A message was sent.
    Send,
    /// A message was received.
    Recv,
    /// A message was received by its tag.
    RecvTagged,
    /// Bytes were put.
    Put,
    /// Bytes were fetched.
    Get,
    /// Numbers were changed.
    Atomic,
    /// A peer has put bytes here, with a word beside them. Its cookie is 0.
    RemotePut,
}

/// Why an operation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RawError {
    /// The message was longer than the buffer; its first bytes are there.
    Truncated {
        /// Bytes of the message.
        message_len: u64,
    },
    /// The peer is gone.
    PeerGone(Cause),
    /// The operation was withdrawn.
    Cancelled,
    /// The receiver withdrew the buffer that it had matched.
    Refused,
    /// The owner of the memory refused.
    Remote(RemoteFault),
    /// What was waited for is behind messages that nobody has received, and the memory for those is
    /// full.
    UnexpectedMemoryFull {
        /// Bytes that they take.
        held_len: u64,
        /// Bytes that they may take.
        limit: u64,
    },
}

impl fmt::Display for RawError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RawError::Truncated { message_len } => {
                write!(f, "the message of {message_len} bytes does not fit")
            }
            RawError::PeerGone(cause) => write!(f, "the peer is gone: {cause}"),
            RawError::Cancelled => f.write_str("the operation was cancelled"),
            RawError::Remote(fault) => write!(f, "remote memory: {fault}"),
            RawError::Refused => f.write_str("the receiver withdrew the buffer"),
            &RawError::UnexpectedMemoryFull { held_len, limit } => {
                f.write_str(&memory_full(held_len, limit))
            }
        }
    }
}

/// How an operation ended.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct RawCompletion {
    /// What the caller has said of the operation.
    pub cookie: Cookie,
    /// What it was.
    pub kind: RawKind,
    /// The sender of a message that was received, else whom the operation went to. `None` for a
    /// receive from anybody that ended without a message.
    pub peer: Option<PeerIndex>,
    /// Bytes; of a message that was cut off, those in the buffer.
    pub len: u64,
    /// Tag of a message that was received by its tag.
    pub tag: u64,
    /// The word beside the message.
    pub imm: Option<u64>,
    /// Where a received message lies.
    pub buf: *mut u8,
    /// A buffer for many messages is the caller's again. Of other operations false, although their
    /// memory always is.
    pub released: bool,
    /// Why it failed.
    pub error: Option<RawError>,
}

/// How far a send has come when its call returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "whoever takes a send for pending that is done waits for ever"]
pub enum Sent {
    /// It has ended: its memory is the caller's again, and there is no completion.
    Done,
    /// It is under way, and ends with a completion.
    Pending,
}

/// What the caller of an endpoint has said of an operation. The operation carries it.
#[derive(Clone, Debug)]
pub(crate) struct RawOp {
    pub(crate) cookie: Cookie,
    pub(crate) kind: RawKind,
    pub(crate) what: RawWhat,
    /// In which order operations were entered.
    pub(crate) number: u64,
}

#[derive(Clone, Debug)]
pub(crate) enum RawWhat {
    /// Completed once; `true` for a send that ends when the receiver has it.
    Send(bool),
    /// Nobody waits for it: a message that was copied, or one that is thrown away.
    Silent,
    Recv,
    /// Received into memory of the library, and then handed out to pieces.
    Scatter(Box<[RawPiece]>),
    /// A buffer for many messages. Boxed, because it is rare, and long.
    Many(Box<Many>),
    /// A part of such a buffer.
    Part(OpId),
}

/// A buffer for many messages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Many {
    buffer: RawPiece,
    /// Messages that are on their way into it.
    open_count: usize,
    /// It takes no more messages.
    is_closed: bool,
    /// Why, if not because it is full.
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

    /// A message is on its way into the bytes `range`: their place.
    pub(crate) fn begin(&mut self, range: Range<u64>, is_last: bool) -> RawPiece {
        self.open_count += 1;
        self.is_closed |= is_last;
        let offset = |off: u64| usize::try_from(off).unwrap_or(usize::MAX);
        RawPiece {
            ptr: self.buffer.ptr.wrapping_add(offset(range.start)),
            len: offset(range.end - range.start),
        }
    }

    /// A message has ended. Whether it was the last, and why no more come, if not because the buffer
    /// is full.
    pub(crate) fn end(&mut self) -> (bool, Option<RawError>) {
        self.open_count -= 1;
        (self.is_closed && self.open_count == 0, self.error)
    }

    /// It takes no more messages, because of `error`. Whether none is on its way.
    pub(crate) fn close(&mut self, error: RawError) -> bool {
        (self.is_closed, self.error) = (true, Some(error));
        self.open_count == 0
    }
}

impl RawOp {
    /// Whether it is no receive.
    #[inline]
    pub(crate) fn asks(&self) -> bool {
        !matches!(self.kind, RawKind::Recv | RawKind::RecvTagged)
    }

    /// A completion without a message.
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
            OpError::PeerGone(_, cause) => RawError::PeerGone(cause),
            OpError::Truncated { message_len } => RawError::Truncated { message_len },
            OpError::Refused => RawError::Refused,
            OpError::Remote(_, fault) => RawError::Remote(fault),
            OpError::MemoryFull { held_len, limit } => {
                RawError::UnexpectedMemoryFull { held_len, limit }
            }
            _ => RawError::Cancelled,
        }
    }
}

/// Why an operation was not accepted; nothing has happened then.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SubmitError {
    /// No room now; poll, and try again.
    Again,
    /// The claim was used before.
    StaleClaim,
    /// No such peer, or one that was removed.
    NoSuchPeer,
    /// The peer is gone; nothing was sent.
    PeerGone(Cause),
    /// The atomic operation does not exist for such numbers, or lengths do not fit one another.
    Unsupported,
    /// More bytes than [`crate::EndpointLimits`] allow.
    TooLong,
    /// More pieces than [`crate::EndpointLimits`] allow.
    TooManyPieces,
    /// This process is a child of the one that has opened the endpoint.
    Forked,
    /// There is no memory for a copy of the pieces.
    NoMemory(Lack),
}

impl fmt::Display for SubmitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SubmitError::Again => f.write_str("no room now; poll, and try again"),
            SubmitError::StaleClaim => f.write_str("the message was claimed before"),
            SubmitError::NoSuchPeer => f.write_str("no such peer; insert its address first"),
            SubmitError::PeerGone(cause) => write!(f, "the peer is gone: {cause}"),
            SubmitError::Unsupported => f.write_str("no such atomic operation on such numbers"),
            SubmitError::TooLong => f.write_str("more bytes than the endpoint's limit"),
            SubmitError::Forked => f.write_str(
                "this process was forked after its parent had opened the endpoint; leave that to \
                 the parent",
            ),
            SubmitError::NoMemory(lack) => write!(f, "a copy of the pieces: {lack}"),
            SubmitError::TooManyPieces => f.write_str("more pieces than the endpoint's limit"),
        }
    }
}

/// Reads as the sentence does: a program that returns the error from `main` shows it in this form.
impl fmt::Debug for SubmitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for SubmitError {}

/// What an endpoint takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EndpointLimits {
    /// Bytes of a message that is copied at once.
    pub inject_len_max: usize,
    /// Pieces of memory of an operation.
    pub pieces_max: usize,
    /// Bytes of a message.
    pub message_len_max: u64,
    /// Bytes of the operands of an atomic operation, compared numbers included.
    pub atomic_len_max: usize,
}

/// What to do after a turn that brought nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Idle {
    /// Poll again.
    Spin,
    /// Let others have the core, then poll again.
    Yield,
    /// Arm, sleep on the descriptor, then poll again.
    Sleep,
}
