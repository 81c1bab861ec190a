// SPDX-License-Identifier: MIT OR Apache-2.0
//! Events as programs receive them: numbers in network byte order, and functions that convert them.

use crate::code::gm_size_t;
use std::ffi::{c_uint, c_void};
use std::ptr;

/// No event.
pub const GM_NO_RECV_EVENT: c_uint = 0;
/// A send without a callback has failed. gm_unknown() ends the job.
pub const GM_SENDS_FAILED_EVENT: c_uint = 1;
/// An alarm is due. gm_unknown() calls its function.
pub const GM_ALARM_EVENT: c_uint = 2;
/// A send has ended. gm_unknown() calls its function.
pub const GM_SENT_EVENT: c_uint = 3;
/// The program has sent without a token. Nothing was sent.
pub const GM_SEND_TOKEN_VIOLATION_EVENT: c_uint = 7;
/// The program has provided a buffer without a token. The buffer was not taken.
pub const GM_RECV_TOKEN_VIOLATION_EVENT: c_uint = 8;
/// A message has filled a buffer.
pub const GM_RECV_EVENT: c_uint = 11;
/// A message with high priority has filled a buffer.
pub const GM_HIGH_RECV_EVENT: c_uint = 12;
/// A message from a port with the same number has filled a buffer.
pub const GM_PEER_RECV_EVENT: c_uint = 13;
/// A message from a port with the same number, with high priority, has filled a buffer.
pub const GM_HIGH_PEER_RECV_EVENT: c_uint = 14;
/// A short message is at `message`. Its buffer was not used.
pub const GM_FAST_RECV_EVENT: c_uint = 15;
/// A short message with high priority is at `message`.
pub const GM_FAST_HIGH_RECV_EVENT: c_uint = 16;
/// A short message from a port with the same number is at `message`.
pub const GM_FAST_PEER_RECV_EVENT: c_uint = 17;
/// A short message from a port with the same number, with high priority, is at `message`.
pub const GM_FAST_HIGH_PEER_RECV_EVENT: c_uint = 18;

/// Difference between the types of short messages and those of other messages.
const FAST: c_uint = GM_FAST_RECV_EVENT - GM_RECV_EVENT;

/// Fields of an event. Read them with gm_ntoh_u8() and the related functions.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gm_recv_event_fields {
    /// Address of a short message.
    pub message: u64,
    /// Buffer of the message.
    pub buffer: u64,
    /// Length of the message, in bytes.
    pub length: u32,
    /// Node that sent the message.
    pub sender_node_id: u16,
    /// Tag of the buffer.
    pub tag: u8,
    /// Size of the message and the buffer.
    pub size: u8,
    /// Port that sent the message.
    pub sender_port_id: u8,
    /// Type of the event.
    pub r#type: u8,
}

/// Fields of the event of a send without a callback: GM_SENT_EVENT, GM_SENDS_FAILED_EVENT.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gm_sent_event_fields {
    /// Address of a list of messages' addresses, which null ends. 0 for a send with a callback.
    pub message_list: u64,
    /// Reserved, 0.
    pub reserved: [u8; 17],
    /// Type of the event.
    pub r#type: u8,
}

/// Event of a port.
#[repr(C)]
#[derive(Clone, Copy)]
pub union gm_recv_event {
    /// Fields of the event. Messages have all of them, other events only the type.
    pub recv: gm_recv_event_fields,
    /// Fields of the event of a send without a callback.
    pub sent: gm_sent_event_fields,
}

const _: () = assert!(
    std::mem::offset_of!(gm_sent_event_fields, r#type)
        == std::mem::offset_of!(gm_recv_event_fields, r#type)
);

/// Event of a port.
pub type gm_recv_event_t = gm_recv_event;

impl gm_recv_event {
    pub(crate) const NONE: gm_recv_event = gm_recv_event::bare(GM_NO_RECV_EVENT);

    /// Creates an event that has only a type.
    #[allow(clippy::cast_possible_truncation, reason = "types are below 256")]
    pub(crate) const fn bare(kind: c_uint) -> gm_recv_event {
        gm_recv_event {
            recv: gm_recv_event_fields {
                message: 0,
                buffer: 0,
                length: 0,
                sender_node_id: 0,
                tag: 0,
                size: 0,
                sender_port_id: 0,
                r#type: kind as u8,
            },
        }
    }
}

/// Converts a type of events to the byte in the event.
pub(crate) fn type_of(kind: c_uint) -> u8 {
    u8::try_from(kind).unwrap_or(0)
}

/// Returns the type of the event of a message.
#[inline]
pub(crate) fn kind_of(is_fast: bool, is_high: bool, is_peer: bool) -> u8 {
    let mut kind = GM_RECV_EVENT + c_uint::from(is_high) + 2 * c_uint::from(is_peer);
    if is_fast {
        kind += FAST;
    }
    u8::try_from(kind).unwrap_or(0)
}

/// Returns the type of the same message in its buffer, for a short message elsewhere.
pub(crate) fn slow_kind(kind: u8) -> Option<u8> {
    let kind = c_uint::from(kind);
    let is_fast = (GM_FAST_RECV_EVENT..=GM_FAST_HIGH_PEER_RECV_EVENT).contains(&kind);
    is_fast.then(|| u8::try_from(kind - FAST).unwrap_or(0))
}

/// Converts a byte of an event.
#[unsafe(no_mangle)]
pub extern "C" fn gm_ntoh_u8(value: u8) -> u8 {
    value
}

/// Converts a 16-bit number of an event.
#[unsafe(no_mangle)]
pub extern "C" fn gm_ntoh_u16(value: u16) -> u16 {
    u16::from_be(value)
}

/// Converts a 32-bit number of an event.
#[unsafe(no_mangle)]
pub extern "C" fn gm_ntoh_u32(value: u32) -> u32 {
    u32::from_be(value)
}

/// Converts an address of an event.
#[unsafe(no_mangle)]
pub extern "C" fn gm_ntohp(value: u64) -> *mut c_void {
    let address = usize::try_from(u64::from_be(value)).unwrap_or(0);
    ptr::with_exposed_provenance_mut(address)
}

/// Copies the `length` bytes of a short message to its buffer, and returns the buffer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_memorize_message(
    message: *const c_void,
    buffer: *mut c_void,
    length: c_uint,
) -> *mut c_void {
    let length = usize::try_from(length).unwrap_or(0);
    if length > 0 && !message.is_null() && !buffer.is_null() {
        // SAFETY: the program passes a message and a buffer of at least `length` bytes.
        unsafe { ptr::copy(message.cast::<u8>(), buffer.cast::<u8>(), length) };
    }
    buffer
}

/// Returns the smallest size for messages of `length` bytes: 2 to the power of the size is at least
/// `length` + 8.
#[unsafe(no_mangle)]
pub extern "C" fn gm_min_size_for_length(length: gm_size_t) -> c_uint {
    length
        .saturating_add(SIZE_OVERHEAD)
        .checked_next_power_of_two()
        .map_or(gm_size_t::BITS, gm_size_t::trailing_zeros)
}

/// Returns the length of the longest message of `size` in bytes: 2 to the power of `size`, minus 8.
#[unsafe(no_mangle)]
pub extern "C" fn gm_max_length_for_size(size: c_uint) -> gm_size_t {
    let capacity: gm_size_t = 1_u64.checked_shl(size).unwrap_or(0);
    capacity.saturating_sub(SIZE_OVERHEAD)
}

/// Difference between 2 to the power of a size and the longest message, in bytes.
const SIZE_OVERHEAD: gm_size_t = 8;
