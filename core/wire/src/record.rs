// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records: the contents of data and unnumbered frames. A shared-memory frame consists only of
//! records.

use crate::Malformed;
use crate::ack::{ACK_FIXED_LEN, Ack, KIND_ACK};
use crate::best_effort::{BEST_EFFORT_PART_LEN, BestEffortPart, KIND_BEST_EFFORT_PART};
use crate::field::{put, u16_at, u32_at, u64_at};
use crate::flags;
use crate::marks::{KIND_MARKS, MARKS_LEN, Marks};
use crate::match_bits::{LABEL_LEN_MAX, MatchBits};
use crate::remote::{self, RemoteGet, RemoteReply, RemoteRts, RemoteSource, RemoteWrite};
use crate::stream_mark::{KIND_STREAM_MARK, STREAM_MARK_LEN, StreamMark};
use core::ops::Range;

/// Length in bytes of a message header without its match bits.
pub const MESSAGE_LEN: usize = 8;
/// Length in bytes of the longest message header.
pub const MESSAGE_LEN_MAX: usize = MESSAGE_LEN + LABEL_LEN_MAX;
/// Length in bytes of a fragment header without its match bits.
pub const FRAGMENT_LEN: usize = 16;
/// Length in bytes of a request to send without its match bits.
pub const RTS_LEN: usize = 32;
/// Length in bytes of a grant.
pub const GRANT_LEN: usize = 24;
/// Length in bytes of a chunk header.
pub const CHUNK_LEN: usize = 16;
/// Length in bytes of a [`Done`] record.
pub const DONE_LEN: usize = 8;
/// Length in bytes of a credit record.
pub const CREDIT_LEN: usize = 8;
/// Length in bytes of a probe.
pub const PROBE_LEN: usize = 8;

const KIND_PADDING: u8 = 0;
const KIND_MESSAGE: u8 = 1;
const KIND_FRAGMENT: u8 = 2;
const KIND_RTS: u8 = 3;
const KIND_GRANT: u8 = 4;
const KIND_CHUNK: u8 = 5;
const KIND_DONE: u8 = 6;
const KIND_CREDIT: u8 = 7;
const KIND_PROBE: u8 = 9;
/// Difference between the kinds of a tagged record and the same record to a port: 16, 17, 18.
const TAGGED: u8 = 15;
const KIND_TAGGED_MESSAGE: u8 = KIND_MESSAGE + TAGGED;
const KIND_TAGGED_FRAGMENT: u8 = KIND_FRAGMENT + TAGGED;
const KIND_TAGGED_RTS: u8 = KIND_RTS + TAGGED;
// Kinds 32 to 47 are records of remote memory (`remote`).

/// One of the two priorities.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LaneId {
    /// Ordinary traffic.
    Low,
    /// Never blocked by ordinary traffic.
    High,
}

impl LaneId {
    /// Both lanes, low first.
    pub const ALL: [LaneId; 2] = [LaneId::Low, LaneId::High];

    /// Returns 0 for low, 1 for high.
    #[inline]
    #[must_use]
    pub fn index(self) -> usize {
        match self {
            LaneId::Low => 0,
            LaneId::High => 1,
        }
    }
}

/// Header of a whole message; `len` bytes of payload follow.
///
/// ```text
/// | kind u8 | flags u8 | port u16 | len u16 | seq u16 |
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Priority.
    pub lane: LaneId,
    /// Set if the message is not retransmitted and not part of the lane's order. `seq` then counts
    /// only such messages.
    pub best_effort: bool,
    /// Set if the port belongs to the library (groups), not to the program.
    pub system: bool,
    /// Destination port; 0 for a tagged message.
    pub port: u16,
    /// Payload length in bytes.
    pub len: u16,
    /// Number of the message in its lane.
    pub seq: u16,
    /// Match bits, used instead of a port.
    pub match_bits: Option<MatchBits>,
}

impl Message {
    #[inline]
    fn parse(bytes: &[u8]) -> Result<Message, Malformed> {
        // P1.6
        if bytes[1] & !(flags::HIGH | flags::BEST_EFFORT | flags::SYSTEM) != 0 {
            return Err(Malformed::Field);
        }
        Ok(Message {
            lane: flags::lane_of(bytes[1]),
            best_effort: bytes[1] & flags::BEST_EFFORT != 0,
            system: bytes[1] & flags::SYSTEM != 0,
            port: u16_at(bytes, 2),
            len: u16_at(bytes, 4),
            seq: u16_at(bytes, 6),
            match_bits: None,
        })
    }

    /// Parses a header of `fixed_len` bytes and the match bits after it. `P11.1`
    fn parse_tagged(bytes: &[u8], fixed_len: usize) -> Result<Message, Malformed> {
        let (head, rest) = bytes
            .split_at_checked(fixed_len)
            .ok_or(Malformed::Truncated)?;
        // P1.6: neither best effort nor a system port.
        if head[1] & !flags::HIGH != 0 {
            return Err(Malformed::Field);
        }
        Ok(Message {
            lane: flags::lane_of(head[1]),
            best_effort: false,
            system: false,
            port: 0,
            len: u16_at(head, 4),
            seq: u16_at(head, 6),
            match_bits: Some(MatchBits::parse([head[2], head[3]], rest)?),
        })
    }

    /// Returns the length in bytes of the header, including its match bits.
    #[inline]
    #[must_use]
    pub fn header_len(&self) -> usize {
        MESSAGE_LEN + self.match_bits_len()
    }

    /// Returns the length in bytes of the match bits after the header.
    #[inline]
    #[must_use]
    pub fn match_bits_len(&self) -> usize {
        self.match_bits.as_ref().map_or(0, MatchBits::wire_len)
    }

    /// Parses the header of a whole message; `None` if the record is of another kind or malformed.
    #[inline]
    #[must_use]
    pub fn peek(bytes: &[u8]) -> Option<Message> {
        if bytes.len() < MESSAGE_LEN || bytes[0] != KIND_MESSAGE {
            return None;
        }
        Message::parse(bytes).ok()
    }

    /// Parses the header of a whole message to a port that is not best effort; `None` for any other
    /// record. Needs a single load and comparison.
    #[inline(always)]
    #[must_use]
    #[allow(clippy::cast_possible_truncation, reason = "the fields of the word")]
    pub fn peek_reliable(header: &[u8; MESSAGE_LEN]) -> Option<Message> {
        /// Bits of the kind and of all flags that such a message has cleared.
        const FIXED: u64 = 0xff | !((flags::HIGH | flags::SYSTEM) as u64) << 8 & 0xff00;
        let word = u64::from_le_bytes(*header);
        if word & FIXED != u64::from(KIND_MESSAGE) {
            return None;
        }
        let flags = (word >> 8) as u8;
        Some(Message {
            lane: flags::lane_of(flags),
            best_effort: false,
            system: flags & flags::SYSTEM != 0,
            port: (word >> 16) as u16,
            len: (word >> 32) as u16,
            seq: (word >> 48) as u16,
            match_bits: None,
        })
    }

    /// Parses the header of a whole tagged message; `None` if the record is of another kind or
    /// malformed.
    #[inline]
    #[must_use]
    pub fn peek_tagged(bytes: &[u8]) -> Option<Message> {
        if bytes.first() != Some(&KIND_TAGGED_MESSAGE) {
            return None;
        }
        Message::parse_tagged(bytes, MESSAGE_LEN).ok()
    }

    /// Writes the common part of a record with a header of `fixed_len` bytes, and the match bits.
    #[inline(always)]
    fn emit_as(&self, kind: u8, fixed_len: usize, bytes: &mut [u8]) {
        let mut flags = flags::of_lane(self.lane);
        if self.best_effort {
            flags |= flags::BEST_EFFORT;
        }
        if self.system {
            flags |= flags::SYSTEM;
        }
        let (kind, port) = match &self.match_bits {
            None => (kind, self.port),
            Some(match_bits) => {
                let form = match_bits.emit(&mut bytes[fixed_len..]);
                (kind + TAGGED, u16::from_le_bytes(form))
            }
        };
        // One word, because bytes stored one by one would stall the load that copies them.
        let word = u64::from(kind)
            | u64::from(flags) << 8
            | u64::from(port) << 16
            | u64::from(self.len) << 32
            | u64::from(self.seq) << 48;
        put(bytes, 0, word.to_le_bytes());
    }

    /// Writes the header into the first [`Message::header_len`] bytes.
    ///
    /// # Panics
    /// Panics if `bytes` is shorter.
    #[inline(always)]
    pub fn emit(&self, bytes: &mut [u8]) {
        self.emit_as(KIND_MESSAGE, MESSAGE_LEN, bytes);
    }
}

/// Part of an eager message that is longer than a frame; `message.len` bytes of payload follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// Message header; its `len` is the length of this fragment.
    pub message: Message,
    /// Length of the whole message in bytes.
    pub message_len: u32,
    /// Byte offset of this fragment in the message.
    pub offset: u32,
}

impl Fragment {
    #[inline]
    fn parse(message: Message, bytes: &[u8]) -> Result<Fragment, Malformed> {
        let fragment = Fragment {
            message,
            message_len: u32_at(bytes, 8),
            offset: u32_at(bytes, 12),
        };
        let end = u64::from(fragment.offset) + u64::from(fragment.message.len);
        if end > u64::from(fragment.message_len) {
            return Err(Malformed::Field);
        }
        Ok(fragment)
    }

    /// Returns true if the record at `at` has the kind of a fragment.
    #[inline]
    #[must_use]
    pub fn is_at(frame: &[u8], at: usize) -> bool {
        matches!(frame.get(at), Some(&(KIND_FRAGMENT | KIND_TAGGED_FRAGMENT)))
    }

    /// Parses the header of a fragment, with or without match bits; `None` if the record is of
    /// another kind or malformed.
    #[inline]
    #[must_use]
    pub fn peek(bytes: &[u8]) -> Option<Fragment> {
        if bytes.len() < FRAGMENT_LEN {
            return None;
        }
        let message = match bytes[0] {
            KIND_FRAGMENT => Message::parse(bytes),
            KIND_TAGGED_FRAGMENT => Message::parse_tagged(bytes, FRAGMENT_LEN),
            _ => return None,
        };
        Fragment::parse(message.ok()?, bytes).ok()
    }

    /// Returns the length in bytes of the header, including its match bits.
    #[inline]
    #[must_use]
    pub fn header_len(&self) -> usize {
        FRAGMENT_LEN + self.message.match_bits_len()
    }

    /// Writes the header into the first [`Fragment::header_len`] bytes.
    ///
    /// # Panics
    /// Panics if `bytes` is shorter.
    #[inline]
    pub fn emit(&self, bytes: &mut [u8]) {
        self.message.emit_as(KIND_FRAGMENT, FRAGMENT_LEN, bytes);
        put(bytes, 8, self.message_len.to_le_bytes());
        put(bytes, 12, self.offset.to_le_bytes());
    }
}

/// Request to send a message, which then waits for a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rts {
    /// Message header; its `len` is the length of each fragment but the last. It is 0 on a lossless
    /// link, where each chunk states its offset.
    pub message: Message,
    /// Length of the whole message in bytes.
    pub message_len: u64,
    /// Sender's number for the transfer.
    pub transfer: u32,
    /// Address of the message in the sender's memory, for links that can pull; 0 if pulling is not
    /// allowed.
    pub remote_addr: u64,
    /// Set if [`Done`] may wait for the receiving program's next call.
    pub late_done: bool,
}

impl Rts {
    #[inline]
    fn parse(message: Message, bytes: &[u8]) -> Rts {
        Rts {
            message,
            message_len: u64_at(bytes, 8),
            transfer: u32_at(bytes, 16),
            remote_addr: u64_at(bytes, 24),
            late_done: bytes[20] != 0,
        }
    }

    /// Returns the length in bytes of the record, including its match bits.
    #[must_use]
    pub fn wire_len(&self) -> usize {
        RTS_LEN + self.message.match_bits_len()
    }

    /// Writes the record into the first [`Rts::wire_len`] bytes.
    ///
    /// # Panics
    /// Panics if `bytes` is shorter.
    #[inline]
    pub fn emit(&self, bytes: &mut [u8]) {
        self.message.emit_as(KIND_RTS, RTS_LEN, bytes);
        put(bytes, 8, self.message_len.to_le_bytes());
        put(bytes, 16, self.transfer.to_le_bytes());
        put(bytes, 20, [u8::from(self.late_done), 0, 0, 0]);
        put(bytes, 24, self.remote_addr.to_le_bytes());
    }
}

/// Receiver's permission to send a transfer up to a byte limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Sender's number for the transfer.
    pub transfer: u32,
    /// Receiver's number for the transfer, repeated in every fragment.
    pub receiver_transfer: u32,
    /// Number of bytes that may be sent, from the start of the message. Never shrinks.
    pub limit: u64,
    /// Everything up to this many bytes before the limit has arrived; 0 if not stated. `P15.7`
    pub behind: u32,
}

impl Grant {
    #[inline]
    fn parse(bytes: &[u8]) -> Grant {
        Grant {
            transfer: u32_at(bytes, 4),
            receiver_transfer: u32_at(bytes, 8),
            limit: u64_at(bytes, 16),
            behind: u32_at(bytes, 12),
        }
    }

    /// Writes the record into the first [`GRANT_LEN`] bytes.
    ///
    /// # Panics
    /// Panics if `bytes` is shorter.
    #[inline]
    pub fn emit(&self, bytes: &mut [u8]) {
        bytes[0] = KIND_GRANT;
        put(bytes, 1, [0; 3]);
        put(bytes, 4, self.transfer.to_le_bytes());
        put(bytes, 8, self.receiver_transfer.to_le_bytes());
        put(bytes, 12, self.behind.to_le_bytes());
        put(bytes, 16, self.limit.to_le_bytes());
    }
}

/// Part of a granted transfer, on a lossless link or refragmented for a narrower path. The rest of
/// the frame is payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Receiver's number for the transfer.
    pub transfer: u32,
    /// Byte offset of the payload in the message.
    pub offset: u64,
}

impl Chunk {
    #[inline]
    fn parse(bytes: &[u8]) -> Chunk {
        Chunk {
            transfer: u32_at(bytes, 4),
            offset: u64_at(bytes, 8),
        }
    }

    /// Writes the header into the first [`CHUNK_LEN`] bytes.
    ///
    /// # Panics
    /// Panics if `bytes` is shorter.
    #[inline]
    pub fn emit(&self, bytes: &mut [u8]) {
        bytes[0] = KIND_CHUNK;
        put(bytes, 1, [0; 3]);
        put(bytes, 4, self.transfer.to_le_bytes());
        put(bytes, 8, self.offset.to_le_bytes());
    }
}

/// Outcome of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DoneStatus {
    /// Every byte has arrived.
    Complete,
    /// The receiver gave up the transfer. Reserved: this version parses it and never sends it.
    Refused,
    /// The receiver cannot write the memory of its operation.
    Unwritable,
    /// The sender cannot read the memory of its operation. The only outcome that a sender reports.
    Unreadable,
    /// Unknown outcome.
    Other(u8),
}

/// End of a transfer, reported by the receiver, or by a sender that cannot read its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// Outcome.
    pub status: DoneStatus,
    /// Sender's number for the transfer.
    pub transfer: u32,
}

impl Done {
    #[inline]
    fn parse(bytes: &[u8]) -> Done {
        let status = match bytes[1] {
            0 => DoneStatus::Complete,
            1 => DoneStatus::Refused,
            2 => DoneStatus::Unwritable,
            3 => DoneStatus::Unreadable,
            other => DoneStatus::Other(other),
        };
        Done {
            status,
            transfer: u32_at(bytes, 4),
        }
    }

    /// Writes the record into the first [`DONE_LEN`] bytes.
    ///
    /// # Panics
    /// Panics if `bytes` is shorter.
    #[inline]
    pub fn emit(&self, bytes: &mut [u8]) {
        bytes[0] = KIND_DONE;
        bytes[1] = match self.status {
            DoneStatus::Complete => 0,
            DoneStatus::Refused => 1,
            DoneStatus::Unwritable => 2,
            DoneStatus::Unreadable => 3,
            DoneStatus::Other(other) => other,
        };
        put(bytes, 2, [0; 2]);
        put(bytes, 4, self.transfer.to_le_bytes());
    }
}

/// Limit of a lane's eager bytes, counted from the start of the session (modulo 2^32).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credit {
    /// The lane.
    pub lane: LaneId,
    /// The limit.
    pub limit: u32,
}

impl Credit {
    #[inline]
    fn parse(bytes: &[u8]) -> Result<Credit, Malformed> {
        let lane = match bytes[1] {
            0 => LaneId::Low,
            1 => LaneId::High,
            _ => return Err(Malformed::Field),
        };
        Ok(Credit {
            lane,
            limit: u32_at(bytes, 4),
        })
    }

    /// Writes the record into the first [`CREDIT_LEN`] bytes.
    ///
    /// # Panics
    /// Panics if `bytes` is shorter.
    #[inline]
    pub fn emit(&self, bytes: &mut [u8]) {
        bytes[0] = KIND_CREDIT;
        bytes[1] = if self.lane == LaneId::High { 1 } else { 0 };
        put(bytes, 2, [0; 2]);
        put(bytes, 4, self.limit.to_le_bytes());
    }
}

/// Probe of a path, or the reply on the same path: measures round trips and path MTU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Set in a reply.
    pub reply: bool,
    /// Prober's number for the path.
    pub path: u8,
    /// Returned unchanged.
    pub nonce: u32,
}

impl Probe {
    #[inline]
    fn parse(bytes: &[u8]) -> Probe {
        Probe {
            reply: bytes[1] != 0,
            path: bytes[2],
            nonce: u32_at(bytes, 4),
        }
    }

    /// Writes the record into the first [`PROBE_LEN`] bytes.
    ///
    /// # Panics
    /// Panics if `bytes` is shorter.
    #[inline]
    pub fn emit(&self, bytes: &mut [u8]) {
        bytes[0] = KIND_PROBE;
        bytes[1] = u8::from(self.reply);
        bytes[2] = self.path;
        bytes[3] = 0;
        put(bytes, 4, self.nonce.to_le_bytes());
    }
}

/// Any record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// Whole message.
    Message(Message),
    /// Part of an eager message.
    Fragment(Fragment),
    /// Request to send.
    Rts(Rts),
    /// Permission to send.
    Grant(Grant),
    /// Part of a transfer on a lossless link.
    Chunk(Chunk),
    /// End of a transfer.
    Done(Done),
    /// Eager credit.
    Credit(Credit),
    /// Acknowledgement.
    Ack(Ack),
    /// Probe.
    Probe(Probe),
    /// Count of frames that the network has marked.
    Marks(Marks),
    /// Part of a best-effort message.
    BestEffortPart(BestEffortPart),
    /// Number and acknowledgement of eager messages on a stream.
    StreamMark(StreamMark),
    /// Put, atomic operation, or part of either.
    RemoteWrite(RemoteWrite),
    /// Request to put with a transfer.
    RemoteRts(RemoteRts),
    /// Request to read.
    RemoteGet(RemoteGet),
    /// Reply to a put, atomic operation or get.
    RemoteReply(RemoteReply),
    /// Transfer that answers a get.
    RemoteSource(RemoteSource),
}

/// Iterator over the records of a frame (`P1.5`).
///
/// Yields each record with the range of its payload in the frame. If only the head of the frame is
/// available (`total_len` beyond `bytes`), a payload may extend past the head.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    bytes: &'a [u8],
    total_len: usize,
    at: usize,
}

impl<'a> Records<'a> {
    /// Starts at offset `at` of `bytes`, the head of a frame of `total_len` bytes.
    #[inline]
    #[must_use]
    pub fn new(bytes: &'a [u8], at: usize, total_len: usize) -> Self {
        Records {
            bytes,
            total_len,
            at,
        }
    }

    fn fail(&mut self, malformed: Malformed) -> Result<(Record, Range<usize>), Malformed> {
        self.at = self.total_len;
        Err(malformed)
    }

    #[inline]
    fn step(&mut self) -> Result<(Record, Range<usize>), Malformed> {
        let bytes = self.bytes.get(self.at..).unwrap_or(&[]);
        if bytes.len() < MESSAGE_LEN {
            return self.fail(Malformed::Truncated);
        }
        let parsed = parse_record(bytes, self.total_len - self.at);
        match parsed {
            Ok((record, header_len, payload_len)) => {
                let start = self.at + header_len;
                let end = start + payload_len;
                // P1.7
                if end > self.total_len {
                    return self.fail(Malformed::Length);
                }
                self.at = end;
                Ok((record, start..end))
            }
            Err(malformed) => self.fail(malformed),
        }
    }
}

impl Iterator for Records<'_> {
    type Item = Result<(Record, Range<usize>), Malformed>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let padded = self.bytes.get(self.at) == Some(&KIND_PADDING);
        if self.at >= self.total_len || padded {
            return None;
        }
        Some(self.step())
    }
}

/// Returns the record, its header length and its payload length. `rest_len` is the number of bytes
/// from the record to the end of the frame. `bytes` holds at least eight.
#[inline]
fn parse_record(bytes: &[u8], rest_len: usize) -> Result<(Record, usize, usize), Malformed> {
    let need = |len: usize| {
        if bytes.len() < len {
            Err(Malformed::Truncated)
        } else {
            Ok(len)
        }
    };
    Ok(match bytes[0] {
        KIND_MESSAGE => {
            let message = Message::parse(bytes)?;
            (
                Record::Message(message),
                MESSAGE_LEN,
                usize::from(message.len),
            )
        }
        KIND_FRAGMENT => {
            need(FRAGMENT_LEN)?;
            let fragment = Fragment::parse(Message::parse(bytes)?, bytes)?;
            (
                Record::Fragment(fragment),
                FRAGMENT_LEN,
                usize::from(fragment.message.len),
            )
        }
        KIND_RTS => {
            need(RTS_LEN)?;
            let rts = Rts::parse(Message::parse(bytes)?, bytes);
            (Record::Rts(rts), RTS_LEN, 0)
        }
        KIND_TAGGED_MESSAGE..=KIND_TAGGED_RTS => parse_tagged(bytes)?,
        KIND_GRANT => (
            Record::Grant(Grant::parse(&bytes[..need(GRANT_LEN)?])),
            GRANT_LEN,
            0,
        ),
        KIND_CHUNK => {
            let header_len = need(CHUNK_LEN)?;
            (
                Record::Chunk(Chunk::parse(bytes)),
                header_len,
                rest_len - header_len,
            )
        }
        KIND_DONE => (Record::Done(Done::parse(bytes)), DONE_LEN, 0),
        KIND_CREDIT => (Record::Credit(Credit::parse(bytes)?), CREDIT_LEN, 0),
        KIND_ACK => {
            let header_len = need(ACK_FIXED_LEN)?;
            let ack = Ack::parse(bytes);
            (
                Record::Ack(ack),
                header_len,
                usize::from(ack.word_count) * 8,
            )
        }
        KIND_PROBE => (Record::Probe(Probe::parse(bytes)), PROBE_LEN, 0),
        KIND_MARKS => (Record::Marks(Marks::parse(bytes)), MARKS_LEN, 0),
        KIND_BEST_EFFORT_PART => {
            let header_len = need(BEST_EFFORT_PART_LEN)?;
            let part = BestEffortPart::parse(bytes)?;
            (Record::BestEffortPart(part), header_len, part.len.into())
        }
        other => return parse_rare(other, bytes),
    })
}

/// Parses the records of streams and of remote memory; see [`parse_record`].
fn parse_rare(kind: u8, bytes: &[u8]) -> Result<(Record, usize, usize), Malformed> {
    let need = |len: usize| bytes.get(..len).ok_or(Malformed::Truncated);
    Ok(match kind {
        remote::KIND_WRITE => {
            let write = RemoteWrite::parse(need(remote::REMOTE_WRITE_LEN)?)?;
            let len = usize::from(write.len);
            (Record::RemoteWrite(write), remote::REMOTE_WRITE_LEN, len)
        }
        remote::KIND_RTS => {
            let rts = RemoteRts::parse(need(remote::REMOTE_RTS_LEN)?)?;
            (Record::RemoteRts(rts), remote::REMOTE_RTS_LEN, 0)
        }
        remote::KIND_GET => {
            let get = RemoteGet::parse(need(remote::REMOTE_GET_LEN)?)?;
            (Record::RemoteGet(get), remote::REMOTE_GET_LEN, 0)
        }
        remote::KIND_REPLY => {
            let reply = RemoteReply::parse(need(remote::REMOTE_REPLY_LEN)?)?;
            let len = usize::from(reply.len);
            (Record::RemoteReply(reply), remote::REMOTE_REPLY_LEN, len)
        }
        remote::KIND_SOURCE => {
            let source = RemoteSource::parse(need(remote::REMOTE_SOURCE_LEN)?);
            (Record::RemoteSource(source), remote::REMOTE_SOURCE_LEN, 0)
        }
        KIND_STREAM_MARK => {
            let mark = StreamMark::parse(need(STREAM_MARK_LEN)?);
            (Record::StreamMark(mark), STREAM_MARK_LEN, 0)
        }
        other => return Err(Malformed::RecordKind(other)),
    })
}

/// Parses the records with match bits; see [`parse_record`].
fn parse_tagged(bytes: &[u8]) -> Result<(Record, usize, usize), Malformed> {
    let fixed_len = match bytes[0] {
        KIND_TAGGED_MESSAGE => MESSAGE_LEN,
        KIND_TAGGED_FRAGMENT => FRAGMENT_LEN,
        _ => RTS_LEN,
    };
    let message = Message::parse_tagged(bytes, fixed_len)?;
    let header_len = fixed_len + message.match_bits_len();
    let payload_len = usize::from(message.len);
    Ok(match bytes[0] {
        KIND_TAGGED_MESSAGE => (Record::Message(message), header_len, payload_len),
        KIND_TAGGED_FRAGMENT => {
            let fragment = Fragment::parse(message, bytes)?;
            (Record::Fragment(fragment), header_len, payload_len)
        }
        _ => (Record::Rts(Rts::parse(message, bytes)), header_len, 0),
    })
}

#[cfg(test)]
mod tests;
