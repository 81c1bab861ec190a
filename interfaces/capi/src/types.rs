// SPDX-License-Identifier: MIT OR Apache-2.0
//! Structures and constants that C and Rust share. Fields are only added at the end.

use std::ffi::{c_char, c_int, c_void};

/// Any rank as the source.
pub const PORTOLAN_ANY_SOURCE: u32 = 0xffff_ffff;

/// Flag of sends: the lane for messages that must not wait behind ordinary traffic.
pub const PORTOLAN_HIGH: u32 = 1;
/// Flag of sends: no retransmission. Losses are counted at the receiver, and a message that finds
/// no buffer there is dropped. A message of several frames arrives whole or not at all. Messages of
/// more than 64 KiB, and those that fill a frame of shared memory, are sent reliably.
pub const PORTOLAN_BEST_EFFORT: u32 = 2;

/// Flag of portolan_open_active(): the handler reads messages where they are, without a posted
/// buffer.
pub const PORTOLAN_IN_PLACE: u32 = 1;

/// A non-blocking operation, to be waited for or tested. 0 is no operation.
pub type portolan_request_t = u64;

/// Colour of a process that portolan_group_split() puts in no group.
pub const PORTOLAN_NO_COLOUR: u32 = 0xffff_ffff;

/// A piece of a message, with the layout of struct iovec.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct portolan_piece_t {
    /// First byte; may be null when the length is 0.
    pub bytes: *const c_void,
    /// Number of bytes.
    pub len: usize,
}

/// A received message.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct portolan_received_t {
    /// Size of this structure, set by the program.
    pub size: usize,
    /// Length of the message.
    pub len: u64,
    /// Rank of the sender.
    pub source: u32,
}

/// Result of a non-blocking operation.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct portolan_completion_t {
    /// Size of this structure, set by the program.
    pub size: usize,
    /// Length of the message.
    pub len: u64,
    /// Buffer of the operation; null if it has no bytes.
    pub buffer: *mut c_void,
    /// Rank of the sender; for a send, of the receiver.
    pub source: u32,
    /// 1 if the message was tagged and has immediate data, else 0.
    pub has_imm: u32,
    /// Tag of a received tagged message; else 0.
    pub tag: u64,
    /// Immediate data of the message; 0 if it has none.
    pub imm: u64,
}

/// A reply to a call.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct portolan_reply_t {
    /// Size of this structure, set by the program.
    pub size: usize,
    /// Length of the reply.
    pub len: u64,
    /// Status that the server has chosen; 0 is success by convention.
    pub status: u32,
}

/// A request that a server has received.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct portolan_call_t {
    /// Size of this structure, set by the program.
    pub size: usize,
    /// Number of the call, for its reply.
    pub number: u64,
    /// Bytes of the request, allocated by malloc().
    pub memory: *mut c_void,
    /// Number of bytes.
    pub len: u64,
    /// Rank of the caller.
    pub source: u32,
}

/// A message for a handler; valid while the handler runs.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct portolan_message_t {
    /// Size of this structure, set by the library.
    pub size: usize,
    /// Bytes of the message; if it was longer than the posted buffer, its first bytes.
    pub bytes: *const c_void,
    /// Number of bytes there.
    pub len: u64,
    /// Length of the message.
    pub message_len: u64,
    /// The posted buffer, which belongs to the program again; null for messages in place.
    pub buffer: *mut c_void,
    /// Length of the posted buffer.
    pub buffer_len: u64,
    /// Rank of the sender.
    pub source: u32,
    /// Port that received the message.
    pub port: u32,
}

/// Counters of the protocol in this process.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct portolan_counters_t {
    /// Size of this structure, set by the program.
    pub size: usize,
    /// Frames passed to a link, including retransmitted ones.
    pub frames_sent: u64,
    /// Accepted frames.
    pub frames_received: u64,
    /// Retransmitted frames.
    pub retransmits: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// Paths that were abandoned because they were silent and another answered.
    pub paths_left: u64,
    /// Messages accepted for sending.
    pub messages_sent: u64,
    /// Messages delivered.
    pub messages_received: u64,
    /// Payload bytes of delivered messages.
    pub bytes_received: u64,
    /// Messages that were held because they arrived early or found no buffer.
    pub messages_held: u64,
    /// Best-effort messages that did not arrive.
    pub best_effort_lost: u64,
    /// Bulk frames that were received directly into their place.
    pub placement_hits: u64,
    /// Frames that were received where another one was expected.
    pub placement_misses: u64,
    /// Bytes that were copied to correct this.
    pub placement_repaired_bytes: u64,
    /// Frames that a link could not take at once.
    pub link_full: u64,
    /// All drops; portolan_drops() counts them by reason.
    pub drops: u64,
    /// Requests for memory of this process that were handled.
    pub remote_requests: u64,
    /// Accepted frames with a congestion mark of the network.
    pub frames_marked: u64,
    /// Sent frames that peers reported as marked.
    pub marks_heard: u64,
    /// Bytes of transfers that arrived on streams.
    pub stream_bytes: u64,
}

/// Operation of reductions and atomic operations: the sum; integers wrap around.
pub const PORTOLAN_SUM: c_int = 0;
/// The product; integers wrap around.
pub const PORTOLAN_PRODUCT: c_int = 1;
/// The minimum.
pub const PORTOLAN_MIN: c_int = 2;
/// The maximum.
pub const PORTOLAN_MAX: c_int = 3;

/// Bits set in both numbers. This and the next two are for integers only.
pub const PORTOLAN_BIT_AND: c_int = 4;
/// Bits set in at least one number.
pub const PORTOLAN_BIT_OR: c_int = 5;
/// Bits set in exactly one number.
pub const PORTOLAN_BIT_XOR: c_int = 6;
/// 1 if both are not 0, else 0. This and all following ones are for atomic operations only.
pub const PORTOLAN_LOGICAL_AND: c_int = 7;
/// 1 if at least one is not 0, else 0.
pub const PORTOLAN_LOGICAL_OR: c_int = 8;
/// 1 if exactly one is not 0, else 0.
pub const PORTOLAN_LOGICAL_XOR: c_int = 9;
/// The operand.
pub const PORTOLAN_WRITE: c_int = 10;
/// The unchanged number, for the returned value. Has no operands.
pub const PORTOLAN_READ: c_int = 11;
/// The operand if the number equals the compared one.
pub const PORTOLAN_SWAP_IF_EQUAL: c_int = 12;
/// The operand if the number differs from the compared one.
pub const PORTOLAN_SWAP_IF_NOT_EQUAL: c_int = 13;
/// The operand if the compared number is less than the number.
pub const PORTOLAN_SWAP_IF_LESS: c_int = 14;
/// The operand if the compared number is not greater.
pub const PORTOLAN_SWAP_IF_NOT_GREATER: c_int = 15;
/// The operand if the compared number is greater.
pub const PORTOLAN_SWAP_IF_GREATER: c_int = 16;
/// The operand if the compared number is not less.
pub const PORTOLAN_SWAP_IF_NOT_LESS: c_int = 17;
/// The operand's bits where the compared number has ones. Integers only.
pub const PORTOLAN_SWAP_MASKED: c_int = 18;

/// int8_t
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

/// Properties of a tagged message.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct portolan_envelope_t {
    /// Size of this structure, set by the program.
    pub size: usize,
    /// Length of the message.
    pub len: u64,
    /// Tag of the message.
    pub tag: u64,
    /// Immediate data of the message; 0 if it has none.
    pub imm: u64,
    /// Rank of the sender.
    pub source: u32,
    /// 1 if it has immediate data, else 0.
    pub has_imm: u32,
}

/// A message that is removed from matching. 0 is no claim.
pub type portolan_claim_t = u64;

/// Flag of portolan_register(): other processes may get, and read by atomic operations.
pub const PORTOLAN_READ_ACCESS: u32 = 1;
/// Flag of portolan_register(): other processes may put, and change numbers by atomic operations.
pub const PORTOLAN_WRITE_ACCESS: u32 = 2;

/// Flag of portolan_remote_t: the target's program gets a notice when a put is in place.
pub const PORTOLAN_NOTIFY: u32 = 4;

/// A place in the memory of another process, and the service to reach it with.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct portolan_remote_t {
    /// Size of this structure, set by the program.
    pub size: usize,
    /// Key of the region.
    pub key: u64,
    /// Offset from the start of the region, in bytes.
    pub offset: u64,
    /// Word for the notice, with PORTOLAN_NOTIFY.
    pub notice: u64,
    /// Rank of the process.
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
    /// PORTOLAN_SUM or another operation.
    pub operation: c_int,
    /// PORTOLAN_DOUBLE or another type.
    pub r#type: c_int,
    /// Numbers at the target, and in each of these arrays.
    pub count: usize,
    /// One operand for each number; not used by PORTOLAN_READ.
    pub operands: *const c_void,
    /// Numbers to compare with; used only by operations that compare.
    pub compare: *const c_void,
    /// Receives the previous values; null if they are not needed.
    pub before: *mut c_void,
}

/// Notice of a put into a region of this process.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct portolan_notice_t {
    /// Size of this structure, set by the program.
    pub size: usize,
    /// Word of the process that put.
    pub word: u64,
    /// Key of the region.
    pub key: u64,
    /// Offset of the first byte.
    pub offset: u64,
    /// Length of the put.
    pub len: u64,
    /// Rank of the process that put.
    pub source: u32,
}

/// Kind of a peer event: the peer left the job normally, or ended its session with this process. A
/// peer of a standalone process has disconnected.
pub const PORTOLAN_PEER_LEFT: u32 = 1;
/// Kind of a peer event: the peer has failed, or can no longer be reached.
pub const PORTOLAN_PEER_LOST: u32 = 2;
/// Kind of a peer event: the peer has connected with this standalone process.
pub const PORTOLAN_PEER_JOINED: u32 = 3;

/// Bytes of the reason in a portolan_peer_event_t, with the terminating zero.
pub const PORTOLAN_PEER_REASON_LEN: usize = 256;

/// A peer of a standalone process.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct portolan_peer_t {
    /// Size of this structure, set by the program.
    pub size: usize,
    /// Rank by which this process addresses the peer. Another peer gets it at the earliest one
    /// second after this one has ended, and not before the program has taken the event of the end.
    pub rank: u32,
    /// Number of peers that had the rank before.
    pub generation: u32,
}

/// Event of a peer.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct portolan_peer_event_t {
    /// Size of this structure, set by the program.
    pub size: usize,
    /// Rank of the peer.
    pub rank: u32,
    /// PORTOLAN_PEER_JOINED, PORTOLAN_PEER_LEFT or PORTOLAN_PEER_LOST.
    pub kind: u32,
    /// Number of peers of a standalone process that had the rank before; 0 in a job.
    pub generation: u32,
    /// Reason as a UTF-8 string, truncated if it is too long.
    pub reason: [c_char; PORTOLAN_PEER_REASON_LEN],
}

/// Result of portolan_model(): no model is stored, and defaults apply.
pub const PORTOLAN_MODEL_ABSENT: c_int = 0;
/// The stored model is used.
pub const PORTOLAN_MODEL_USED: c_int = 1;
/// A setting turned it off, and defaults apply.
pub const PORTOLAN_MODEL_OFF: c_int = 2;
/// It does not fit this machine, for the reason in the text, and defaults apply.
pub const PORTOLAN_MODEL_REFUSED: c_int = 3;

/// Pieces of messages up to a length, when no other message is pending.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct portolan_lone_pieces_t {
    /// Longest message that this applies to.
    pub message_len_max: u64,
    /// Bytes per call; 0 for whole messages.
    pub call_len: usize,
}

/// Path and form in which messages leave.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct portolan_choices_t {
    /// Size of this structure, set by the program.
    pub size: usize,
    /// Longest message on a network that is sent without announcement; 0 for the protocol's limit.
    pub eager_len_max: usize,
    /// The same on shared memory.
    pub eager_len_max_shm: usize,
    /// Longest message of several frames that uses raw Ethernet rather than UDP.
    pub packet_len_max: usize,
    /// Pieces of lone messages, by ascending length; entries after the sixth are not used.
    pub lone: *const portolan_lone_pieces_t,
    /// Number of entries there.
    pub lone_count: usize,
}
