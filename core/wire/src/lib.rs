// SPDX-License-Identifier: MIT OR Apache-2.0
//! Wire format of the Portolan protocol: typed views over frames and records.
//!
//! `docs/reference/protocol.md` draws the layouts and numbers the rules. All other crates read and
//! write frames through this crate. It only parses and emits: it has no sessions, allocates no
//! memory and keeps no state.
//!
//! Invariant: a view made by a checked constructor never reads outside its bytes, whatever they
//! contain. All integers are little-endian.

#![no_std]
#![forbid(unsafe_code)]

mod ack;
mod best_effort;
mod check;
mod connection;
mod endpoint_id;
mod field;
mod flags;
mod frame;
mod hello;
mod marks;
mod match_bits;
mod record;
mod remote;
mod seal;
mod stream_mark;
mod train;

pub use ack::{ACK_FIXED_LEN, Ack};
pub use best_effort::{BEST_EFFORT_PART_LEN, BestEffortPart};
pub use check::{CHECK_LEN, CheckedFrame, Sum};
pub use connection::{
    CONNECTION_DATA_LEN_MAX, CONNECTION_HEAD_LEN, CONNECTION_LEN_MAX, ConnectionFrame,
    ConnectionKind,
};
pub use endpoint_id::{
    ENDPOINT_ID_LEN, EndpointId, OPEN_HELLO_FRAME_LEN, OPEN_JOB_ID, endpoint_id_of,
};
pub use frame::{
    ATTEMPT_MAX, BULK_HEADER_LEN, BulkHeader, FRAME_HEADER_LEN, FrameHeader, FrameKind, VERSION,
};
pub use hello::{HELLO_LEN, Hello, MAC_LEN};
pub use marks::{MARKS_LEN, Marks};
pub use match_bits::{LABEL_LEN_MAX, MatchBits, Space};
pub use record::{
    CHUNK_LEN, CREDIT_LEN, Chunk, Credit, DONE_LEN, Done, DoneStatus, FRAGMENT_LEN, Fragment,
    GRANT_LEN, Grant, LaneId, MESSAGE_LEN, MESSAGE_LEN_MAX, Message, PROBE_LEN, Probe, RTS_LEN,
    Record, Records, Rts,
};
pub use remote::{
    REMOTE_GET_LEN, REMOTE_REPLY_LEN, REMOTE_RTS_LEN, REMOTE_SOURCE_LEN, REMOTE_WRITE_LEN,
    RemoteGet, RemoteHead, RemoteReply, RemoteRts, RemoteSource, RemoteStatus, RemoteWrite,
};
pub use seal::{SEAL_LEN, SEAL_TAG_LEN, SealNumber, SealedFrame, seal_header};
pub use stream_mark::{STREAM_MARK_LEN, StreamMark};
pub use train::{FragmentFrame, PartAhead};

use core::fmt;

/// EtherType of Portolan on plain Ethernet: "IEEE 802 Local Experimental 1" (IEEE Std 802-2014).
pub const ETHERTYPE: u16 = 0x88B5;

/// Length of the largest frame in bytes; the length is a 16-bit field.
pub const FRAME_LEN_MAX: usize = 65_535;

/// Reason why bytes are not a valid frame or record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Malformed {
    /// The structure is longer than the bytes received.
    Truncated,
    /// The protocol version is not supported.
    Version(u8),
    /// The frame's length field contradicts the bytes received.
    Length,
    /// Unknown kind of frame.
    FrameKind(u8),
    /// Unknown kind of record.
    RecordKind(u8),
    /// A field has a value outside its range.
    Field,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Malformed::Truncated => f.write_str("truncated"),
            Malformed::Version(version) => write!(f, "version {version}, not {VERSION}"),
            Malformed::Length => f.write_str("length field contradicts the bytes received"),
            Malformed::FrameKind(kind) => write!(f, "unknown frame kind {kind}"),
            Malformed::RecordKind(kind) => write!(f, "unknown record kind {kind}"),
            Malformed::Field => f.write_str("a field is out of range"),
        }
    }
}

impl core::error::Error for Malformed {}
