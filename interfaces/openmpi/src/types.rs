// SPDX-License-Identifier: MIT OR Apache-2.0
//! Structures and numbers of the C interface.

use std::ffi::{c_char, c_int, c_void};

/// Length of an endpoint's address in bytes.
pub const PORTOLAN_BTL_ADDRESS_LEN: usize = 64;

/// The operation is complete: the caller may reuse its memory, and no completion follows.
pub const PORTOLAN_BTL_DONE: c_int = 1;
/// Success. For an operation: it was accepted, and a completion follows.
pub const PORTOLAN_BTL_OK: c_int = 0;
/// Back-pressure: poll, then retry.
pub const PORTOLAN_BTL_AGAIN: c_int = -1;
/// The peer has died or cannot be reached.
pub const PORTOLAN_BTL_GONE: c_int = -2;
/// A null pointer or an invalid argument.
pub const PORTOLAN_BTL_INVALID: c_int = -3;
/// The operation failed; portolan_btl_error() has the reason.
pub const PORTOLAN_BTL_FAILED: c_int = -4;
/// A bug in this library.
pub const PORTOLAN_BTL_INTERNAL: c_int = -5;

/// A message was sent.
pub const PORTOLAN_BTL_SENT: c_int = 0;
/// Memory of a peer was read, written or changed.
pub const PORTOLAN_BTL_REMOTE: c_int = 1;

/// An open endpoint.
#[allow(non_camel_case_types, reason = "named as in C")]
pub type portolan_btl_t = crate::channel::Channel;

/// The completion of an operation.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(non_camel_case_types, reason = "named as in C")]
pub struct portolan_btl_done_t {
    /// Context of the operation, as the caller passed it.
    pub context: u64,
    /// PORTOLAN_BTL_SENT or PORTOLAN_BTL_REMOTE.
    pub kind: c_int,
    /// PORTOLAN_BTL_OK, PORTOLAN_BTL_GONE or PORTOLAN_BTL_FAILED.
    pub status: c_int,
    /// Reason of a failure as text, valid during the call. Null after success.
    pub why: *const c_char,
}

/// Callbacks. They run in portolan_btl_poll() and may call every function of this interface except
/// portolan_btl_close().
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(non_camel_case_types, reason = "named as in C")]
pub struct portolan_btl_hooks_t {
    /// First argument of the callbacks.
    pub user: *mut c_void,
    /// Called for each message. Its bytes are valid during the call.
    pub on_message:
        Option<unsafe extern "C" fn(user: *mut c_void, tag: u8, bytes: *const c_void, len: usize)>,
    /// Called for each completion.
    pub on_done: Option<unsafe extern "C" fn(user: *mut c_void, done: *const portolan_btl_done_t)>,
}

/// A transfer between local memory and memory of a peer.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(non_camel_case_types, reason = "named as in C")]
pub struct portolan_btl_transfer_t {
    /// The peer.
    pub peer: u32,
    /// Local memory, in use until the completion.
    pub local: *mut c_void,
    /// Length in bytes.
    pub len: usize,
    /// Address at the peer.
    pub remote: u64,
    /// Key of the peer's registration.
    pub key: u64,
    /// Returned with the completion.
    pub context: u64,
}

/// Operations on a number in memory of a peer.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(non_camel_case_types, reason = "named as in C")]
#[allow(missing_docs, reason = "the names say it")]
pub enum portolan_btl_op_t {
    PORTOLAN_BTL_ADD,
    PORTOLAN_BTL_AND,
    PORTOLAN_BTL_OR,
    PORTOLAN_BTL_XOR,
    PORTOLAN_BTL_LAND,
    PORTOLAN_BTL_LOR,
    PORTOLAN_BTL_LXOR,
    PORTOLAN_BTL_SWAP,
    PORTOLAN_BTL_MIN,
    PORTOLAN_BTL_MAX,
    PORTOLAN_BTL_COMPARE_SWAP,
}

/// Kinds of numbers.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(non_camel_case_types, reason = "named as in C")]
#[allow(missing_docs, reason = "the names say it")]
pub enum portolan_btl_number_t {
    PORTOLAN_BTL_INT32,
    PORTOLAN_BTL_INT64,
    PORTOLAN_BTL_FLOAT,
    PORTOLAN_BTL_DOUBLE,
}

/// An atomic operation on one number in memory of a peer.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(non_camel_case_types, reason = "named as in C")]
pub struct portolan_btl_atomic_t {
    /// The peer.
    pub peer: u32,
    /// The operation.
    pub op: portolan_btl_op_t,
    /// Kind of the number. A number of 32 bits is the low half of the words below.
    pub number: portolan_btl_number_t,
    /// The operand.
    pub operand: u64,
    /// Expected value, for PORTOLAN_BTL_COMPARE_SWAP only.
    pub compare: u64,
    /// Receives the previous value; may be null.
    pub before: *mut c_void,
    /// Address at the peer.
    pub remote: u64,
    /// Key of the peer's registration.
    pub key: u64,
    /// Returned with the completion.
    pub context: u64,
}
