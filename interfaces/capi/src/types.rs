// SPDX-License-Identifier: MIT OR Apache-2.0
//! What passes between C and Rust by memory. Fields are only added at the end.

use std::ffi::{c_int, c_void};

/// From any rank.
pub const PORTOLAN_ANY_SOURCE: u32 = 0xffff_ffff;

/// Of sends: on the lane of what must not wait behind ordinary traffic.
pub const PORTOLAN_HIGH: u32 = 1;
/// Of sends: without repair. What is lost is counted at the receiver, and a message that finds no
/// buffer there is dropped. A message of several frames arrives whole or not at all. Messages of more
/// than 64 KiB, and those that fill a frame of shared memory, are sent reliably all the same.
pub const PORTOLAN_BEST_EFFORT: u32 = 2;

/// Of portolan_open_active(): the handler gets messages where they lie, without a posted buffer.
pub const PORTOLAN_IN_PLACE: u32 = 1;

/// A non-blocking operation, to be waited for or tested. 0 is none.
pub type portolan_request_t = u64;

/// A collective operation that does not wait, to be tested. 0 is none.
pub type portolan_collective_t = u64;

/// A piece of a message. Laid out as struct iovec.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct portolan_piece_t {
    /// First byte; may be null when the length is 0.
    pub bytes: *const c_void,
    /// Bytes.
    pub len: usize,
}

/// A message that was received.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct portolan_received_t {
    /// Size of this structure, set by the program.
    pub size: usize,
    /// Bytes of the message.
    pub len: u64,
    /// Rank of the sender.
    pub source: u32,
}

/// How a non-blocking operation ended.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct portolan_completion_t {
    /// Size of this structure, set by the program.
    pub size: usize,
    /// Bytes of the message.
    pub len: u64,
    /// The buffer of the operation; null if it has no bytes.
    pub buffer: *mut c_void,
    /// Rank of the sender; of a send, of the receiver.
    pub source: u32,
    /// 1 if the message was tagged and has immediate data, else 0.
    pub has_imm: u32,
    /// Tag of a tagged message that was received; else 0.
    pub tag: u64,
    /// Its immediate data; 0 if it has none.
    pub imm: u64,
}

/// A message as a handler gets it; valid while the handler runs.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct portolan_message_t {
    /// Size of this structure, set by the library.
    pub size: usize,
    /// The message; when it was longer than its posted buffer, its first bytes.
    pub bytes: *const c_void,
    /// Bytes there.
    pub len: u64,
    /// Bytes of the message.
    pub message_len: u64,
    /// The posted buffer, which is the program's again; null for messages handed over in place.
    pub buffer: *mut c_void,
    /// Bytes of the posted buffer.
    pub buffer_len: u64,
    /// Rank of the sender.
    pub source: u32,
    /// The port it came to.
    pub port: u32,
}

/// What the protocol has done so far, in this process.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct portolan_counters_t {
    /// Size of this structure, set by the program.
    pub size: usize,
    /// Frames handed out for transmission, those that were sent again included.
    pub frames_sent: u64,
    /// Frames accepted.
    pub frames_received: u64,
    /// Frames sent again.
    pub retransmits: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// Paths that were left because another answered and they did not.
    pub paths_left: u64,
    /// Messages accepted for sending.
    pub messages_sent: u64,
    /// Messages delivered.
    pub messages_received: u64,
    /// Payload bytes of delivered messages.
    pub bytes_received: u64,
    /// Messages that were held because they came early or found no buffer.
    pub messages_held: u64,
    /// Best-effort messages that never arrived here.
    pub best_effort_lost: u64,
    /// Bulk frames that were received at their place.
    pub placement_hits: u64,
    /// Frames that were received where another was expected.
    pub placement_misses: u64,
    /// Bytes that were copied to put those right.
    pub placement_repaired_bytes: u64,
    /// Frames whose sending a link put off.
    pub link_full: u64,
    /// Everything that was dropped; portolan_drops() tells it by reason.
    pub drops: u64,
    /// Requests for memory of this process that were dealt with.
    pub remote_requests: u64,
    /// Frames accepted that the network had marked as having met congestion.
    pub frames_marked: u64,
    /// Frames sent of which peers said that they were marked so.
    pub marks_heard: u64,
    /// Bytes of transfers that came by streams.
    pub stream_bytes: u64,
}

/// Of reductions and atomic operations: the sum; whole numbers wrap around.
pub const PORTOLAN_SUM: c_int = 0;
/// The product; whole numbers wrap around.
pub const PORTOLAN_PRODUCT: c_int = 1;
/// The least.
pub const PORTOLAN_MIN: c_int = 2;
/// The greatest.
pub const PORTOLAN_MAX: c_int = 3;

/// Of atomic operations, from here on: bits that both numbers have. Whole numbers only, as the next
/// two.
pub const PORTOLAN_BIT_AND: c_int = 4;
/// Bits that either has.
pub const PORTOLAN_BIT_OR: c_int = 5;
/// Bits that one has.
pub const PORTOLAN_BIT_XOR: c_int = 6;
/// 1 if neither is 0, else 0.
pub const PORTOLAN_LOGICAL_AND: c_int = 7;
/// 1 if one is not 0, else 0.
pub const PORTOLAN_LOGICAL_OR: c_int = 8;
/// 1 if exactly one is not 0, else 0.
pub const PORTOLAN_LOGICAL_XOR: c_int = 9;
/// The operand.
pub const PORTOLAN_WRITE: c_int = 10;
/// The number as it is, for what is returned. Has no operands.
pub const PORTOLAN_READ: c_int = 11;
/// The operand if the number is equal to the compared one.
pub const PORTOLAN_SWAP_IF_EQUAL: c_int = 12;
/// The operand if the compared number is another.
pub const PORTOLAN_SWAP_IF_NOT_EQUAL: c_int = 13;
/// The operand if the compared number is less than the number.
pub const PORTOLAN_SWAP_IF_LESS: c_int = 14;
/// The operand if the compared number is not greater.
pub const PORTOLAN_SWAP_IF_NOT_GREATER: c_int = 15;
/// The operand if the compared number is greater.
pub const PORTOLAN_SWAP_IF_GREATER: c_int = 16;
/// The operand if the compared number is not less.
pub const PORTOLAN_SWAP_IF_NOT_LESS: c_int = 17;
/// The operand's bits where the compared number has ones. Whole numbers only.
pub const PORTOLAN_SWAP_MASKED: c_int = 18;

/// int8_t; of atomic operations only, as all of 8 and 16 bits.
pub const PORTOLAN_INT8: c_int = 0;
/// uint8_t
pub const PORTOLAN_UINT8: c_int = 1;
/// int16_t
pub const PORTOLAN_INT16: c_int = 2;
/// uint16_t
pub const PORTOLAN_UINT16: c_int = 3;
/// int32_t
pub const PORTOLAN_INT32: c_int = 4;
/// uint32_t
pub const PORTOLAN_UINT32: c_int = 5;
/// int64_t
pub const PORTOLAN_INT64: c_int = 6;
/// uint64_t
pub const PORTOLAN_UINT64: c_int = 7;
/// float
pub const PORTOLAN_FLOAT: c_int = 8;
/// double
pub const PORTOLAN_DOUBLE: c_int = 9;

/// A tagged message, as far as it is known before it is received, or was.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct portolan_envelope_t {
    /// Size of this structure, set by the program.
    pub size: usize,
    /// Bytes of the message.
    pub len: u64,
    /// Its tag.
    pub tag: u64,
    /// Its immediate data; 0 if it has none.
    pub imm: u64,
    /// Rank of the sender.
    pub source: u32,
    /// 1 if it has immediate data, else 0.
    pub has_imm: u32,
}

/// A message that no other receive takes any more. 0 is none.
pub type portolan_claim_t = u64;

/// Of portolan_register(): others may get, and read by atomic operations.
pub const PORTOLAN_READ_ACCESS: u32 = 1;
/// Of portolan_register(): others may put, and change numbers by atomic operations.
pub const PORTOLAN_WRITE_ACCESS: u32 = 2;

/// Of portolan_remote_t: when a put is in place, the program there gets a notice.
pub const PORTOLAN_NOTIFY: u32 = 4;

/// A place in the memory of another process, and with what service it is reached.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct portolan_remote_t {
    /// Size of this structure, set by the program.
    pub size: usize,
    /// Key of the region.
    pub key: u64,
    /// Bytes from its beginning.
    pub offset: u64,
    /// Word for the notice, with PORTOLAN_NOTIFY.
    pub notice: u64,
    /// The process.
    pub rank: u32,
    /// 0, or PORTOLAN_HIGH, PORTOLAN_NOTIFY, or both.
    pub flags: u32,
}

/// An atomic operation.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct portolan_atomic_t {
    /// Size of this structure, set by the program.
    pub size: usize,
    /// PORTOLAN_SUM and so on.
    pub operation: c_int,
    /// PORTOLAN_DOUBLE and so on.
    pub r#type: c_int,
    /// Numbers at the target, and of each of the arrays here.
    pub count: usize,
    /// One for each number; not used by PORTOLAN_READ.
    pub operands: *const c_void,
    /// What the numbers are compared with, by operations that do; else not used.
    pub compare: *const c_void,
    /// Gets the numbers as they were before; null if they are not wanted.
    pub before: *mut c_void,
}

/// Tells of a put into a region of this process.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct portolan_notice_t {
    /// Size of this structure, set by the program.
    pub size: usize,
    /// Word of the process that has put.
    pub word: u64,
    /// Key of the region.
    pub key: u64,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
    /// Rank of the process that has put.
    pub source: u32,
}

/// Of portolan_model(): none is stored, defaults hold.
pub const PORTOLAN_MODEL_ABSENT: c_int = 0;
/// The stored model is used.
pub const PORTOLAN_MODEL_USED: c_int = 1;
/// It was switched off by a setting, defaults hold.
pub const PORTOLAN_MODEL_OFF: c_int = 2;
/// It is of no use here, as the text says, and defaults hold.
pub const PORTOLAN_MODEL_REFUSED: c_int = 3;

/// How messages up to a length are cut when nothing waits behind them.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct portolan_lone_pieces_t {
    /// Last message length that this holds for.
    pub message_len_max: u64,
    /// Bytes of a call; 0 for whole messages.
    pub call_len: usize,
}

/// By which path, and in which way, messages leave.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct portolan_choices_t {
    /// Size of this structure, set by the program.
    pub size: usize,
    /// Longest message on a network that goes without asking; 0 for as long as the protocol allows.
    pub eager_len_max: usize,
    /// The same through shared memory.
    pub eager_len_max_shm: usize,
    /// Longest message of several frames that takes raw Ethernet rather than UDP.
    pub packet_len_max: usize,
    /// Pieces of lone messages, by ascending length; entries beyond the sixth are not used.
    pub lone: *const portolan_lone_pieces_t,
    /// Entries there.
    pub lone_count: usize,
}
