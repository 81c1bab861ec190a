// SPDX-License-Identifier: MIT OR Apache-2.0
//! Results as numbers. They are never renumbered; new ones are added at the end of their group.

use std::ffi::{CStr, c_char, c_int};

/// Version of the interface. It is raised when something is added. Programs that were built with a
/// lower number continue to work.
pub const PORTOLAN_ABI_VERSION: u32 = 1;

/// Success.
pub const PORTOLAN_OK: c_int = 0;
/// Result of portolan_test(): the operation is still pending.
pub const PORTOLAN_PENDING: c_int = 1;

/// A required pointer is null.
pub const PORTOLAN_ERR_NULL: c_int = -1;
/// An argument is out of range.
pub const PORTOLAN_ERR_ARGUMENT: c_int = -2;
/// The size at the start of a structure is not that of any of its versions.
pub const PORTOLAN_ERR_STRUCT_SIZE: c_int = -3;
/// The argument is not a node, or not a group.
pub const PORTOLAN_ERR_HANDLE: c_int = -4;
/// The node was closed, or the group freed.
pub const PORTOLAN_ERR_CLOSED: c_int = -5;
/// The node belongs to another thread; portolan_adopt() changes the thread.
pub const PORTOLAN_ERR_WRONG_THREAD: c_int = -6;
/// This function cannot be called from a handler, or from a condition of portolan_wait_until().
pub const PORTOLAN_ERR_IN_HANDLER: c_int = -7;
/// The library has a bug; the node can no longer be used.
pub const PORTOLAN_ERR_INTERNAL: c_int = -8;
/// A port number is above 65535.
pub const PORTOLAN_ERR_PORT: c_int = -9;
/// The launcher has ended or has another version.
pub const PORTOLAN_ERR_LAUNCH: c_int = -10;
/// A link could not be opened.
pub const PORTOLAN_ERR_LINK: c_int = -11;
/// The system refused a request.
pub const PORTOLAN_ERR_SYSTEM: c_int = -12;
/// A setting has an invalid value, or the name of a setting is unknown.
pub const PORTOLAN_ERR_SETTING: c_int = -13;
/// No option has that name.
pub const PORTOLAN_ERR_NO_OPTION: c_int = -14;
/// This process was forked after its parent had joined; the node belongs to the parent.
pub const PORTOLAN_ERR_FORKED: c_int = -15;
/// The rank does not exist.
pub const PORTOLAN_ERR_NO_SUCH_RANK: c_int = -20;
/// The peer process has ended, or no longer answers.
pub const PORTOLAN_ERR_PEER_GONE: c_int = -21;
/// No link reaches the process.
pub const PORTOLAN_ERR_NO_PATH: c_int = -22;
/// The process did not answer.
pub const PORTOLAN_ERR_NO_ANSWER: c_int = -23;
/// A process that may be alive may have missed messages that were sent to it.
pub const PORTOLAN_ERR_UNDELIVERED: c_int = -24;
/// Every other process of the job has ended, so no message can arrive.
pub const PORTOLAN_ERR_NOBODY_LEFT: c_int = -25;
/// Too many messages of this process to itself are unread.
pub const PORTOLAN_ERR_SELF_FULL: c_int = -26;
/// No process that listens at the address has answered before the timeout.
pub const PORTOLAN_ERR_NO_SERVER: c_int = -27;
/// The process that listens at the address has another secret, version or setting auth.
pub const PORTOLAN_ERR_SERVER_REFUSED: c_int = -28;
/// The address to listen at or to connect to cannot be used.
pub const PORTOLAN_ERR_ADDRESS: c_int = -29;
/// The message was longer than the buffer, which holds its first bytes.
pub const PORTOLAN_ERR_TRUNCATED: c_int = -30;
/// The receiver cancelled the matching receive.
pub const PORTOLAN_ERR_REFUSED: c_int = -31;
/// The port is not open.
pub const PORTOLAN_ERR_PORT_CLOSED: c_int = -32;
/// The port is open already, or has a handler.
pub const PORTOLAN_ERR_PORT_IN_USE: c_int = -33;
/// The request was completed before, or is not valid.
pub const PORTOLAN_ERR_STALE_REQUEST: c_int = -34;
/// The operation was cancelled.
pub const PORTOLAN_ERR_CANCELLED: c_int = -35;
/// Members of a group passed different numbers of values.
pub const PORTOLAN_ERR_LENGTH_MISMATCH: c_int = -36;
/// No claim has that number.
pub const PORTOLAN_ERR_NO_CLAIM: c_int = -37;
/// Members of a group called different collective operations.
pub const PORTOLAN_ERR_COLLECTIVE_MISMATCH: c_int = -38;
/// The group has pending collective operations, and cannot begin a blocking one.
pub const PORTOLAN_ERR_GROUP_BUSY: c_int = -39;
/// The awaited message is behind unread messages, and the memory for those is full: receive them
/// first, or raise the setting unexpected_memory.
pub const PORTOLAN_ERR_NO_MEMORY: c_int = -42;
/// The memory of the operation is unmapped, or its pages forbid the access. The peer gets
/// PORTOLAN_ERR_PEER_FAULT.
pub const PORTOLAN_ERR_FAULT: c_int = -43;
/// The peer cannot access the memory of its side of the operation.
pub const PORTOLAN_ERR_PEER_FAULT: c_int = -44;
/// Nothing happened before the timeout. The call can be repeated; a request stays valid.
pub const PORTOLAN_ERR_TIMEOUT: c_int = -45;
/// The peer refused access to its memory: no region has that key, or the place is outside the
/// region, or its access rights forbid the operation, or the memory is unmapped.
pub const PORTOLAN_ERR_REMOTE_REFUSED: c_int = -40;
/// No region of this process has that key.
pub const PORTOLAN_ERR_NO_REGION: c_int = -41;
/// An error without a number in this version.
pub const PORTOLAN_ERR_OTHER: c_int = -99;

/// A code, its name and its meaning.
type Entry = (c_int, &'static CStr, &'static CStr);

macro_rules! entries {
    ($($code:ident: $text:literal,)*) => {
        &[$(($code, {
            match CStr::from_bytes_with_nul(concat!(stringify!($code), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => c"",
            }
        }, $text),)*]
    };
}

const ENTRIES: &[Entry] = entries! {
    PORTOLAN_OK: c"success",
    PORTOLAN_PENDING: c"still pending",
    PORTOLAN_ERR_NULL: c"a required pointer is null",
    PORTOLAN_ERR_ARGUMENT: c"an argument is out of range",
    PORTOLAN_ERR_STRUCT_SIZE: c"the size at the start of a structure is wrong",
    PORTOLAN_ERR_HANDLE: c"this is not a node or not a group",
    PORTOLAN_ERR_CLOSED: c"the node was closed, or the group freed",
    PORTOLAN_ERR_WRONG_THREAD: c"the node belongs to another thread",
    PORTOLAN_ERR_IN_HANDLER: c"this cannot be called from a handler",
    PORTOLAN_ERR_INTERNAL: c"bug in the library",
    PORTOLAN_ERR_PORT: c"a port number is above 65535",
    PORTOLAN_ERR_LAUNCH: c"the launcher has ended or has another version",
    PORTOLAN_ERR_LINK: c"a link could not be opened",
    PORTOLAN_ERR_SYSTEM: c"the system refused a request",
    PORTOLAN_ERR_SETTING: c"a setting has an invalid value",
    PORTOLAN_ERR_NO_OPTION: c"no option has that name",
    PORTOLAN_ERR_FORKED: c"the node belongs to the parent, which forked this process after joining",
    PORTOLAN_ERR_NO_SUCH_RANK: c"the rank does not exist",
    PORTOLAN_ERR_PEER_GONE: c"the peer process has ended or no longer answers",
    PORTOLAN_ERR_NO_PATH: c"no link reaches the process",
    PORTOLAN_ERR_NO_ANSWER: c"the process did not answer",
    PORTOLAN_ERR_UNDELIVERED: c"some of the sent messages may not have arrived",
    PORTOLAN_ERR_NOBODY_LEFT: c"every other process of the job has ended",
    PORTOLAN_ERR_SELF_FULL: c"too many messages of this process to itself are unread",
    PORTOLAN_ERR_NO_SERVER: c"no server answered at the address",
    PORTOLAN_ERR_SERVER_REFUSED: c"the server has another secret, version or setting",
    PORTOLAN_ERR_ADDRESS: c"the address cannot be used",
    PORTOLAN_ERR_TRUNCATED: c"the message was longer than the buffer",
    PORTOLAN_ERR_REFUSED: c"the receiver cancelled the matching receive",
    PORTOLAN_ERR_PORT_CLOSED: c"the port is not open",
    PORTOLAN_ERR_PORT_IN_USE: c"the port is open already",
    PORTOLAN_ERR_STALE_REQUEST: c"the request was completed before",
    PORTOLAN_ERR_CANCELLED: c"the operation was cancelled",
    PORTOLAN_ERR_LENGTH_MISMATCH: c"members of a group passed different numbers of values",
    PORTOLAN_ERR_NO_CLAIM: c"no claim has that number",
    PORTOLAN_ERR_COLLECTIVE_MISMATCH: c"members of a group called different collective operations",
    PORTOLAN_ERR_GROUP_BUSY: c"the group has two pending collective operations",
    PORTOLAN_ERR_NO_MEMORY: c"the memory for unread messages is full",
    PORTOLAN_ERR_FAULT: c"the memory of the operation cannot be accessed",
    PORTOLAN_ERR_PEER_FAULT: c"the peer cannot access its memory of the operation",
    PORTOLAN_ERR_TIMEOUT: c"nothing happened before the timeout",
    PORTOLAN_ERR_REMOTE_REFUSED: c"the peer refused access to its memory",
    PORTOLAN_ERR_NO_REGION: c"no region of this process has that key",
    PORTOLAN_ERR_OTHER: c"an error without a number in this version",
};

fn entry(code: c_int) -> Option<&'static Entry> {
    ENTRIES.iter().find(|entry| entry.0 == code)
}

/// Returns the name of a result, such as "PORTOLAN_ERR_NULL"; never null.
#[unsafe(no_mangle)]
pub extern "C" fn portolan_error_name(code: c_int) -> *const c_char {
    entry(code)
        .map_or(c"(not a result of Portolan)", |entry| entry.1)
        .as_ptr()
}

/// Returns the general meaning of a result; never null. portolan_last_error() returns the cause.
#[unsafe(no_mangle)]
pub extern "C" fn portolan_strerror(code: c_int) -> *const c_char {
    entry(code)
        .map_or(c"not a result of Portolan", |entry| entry.2)
        .as_ptr()
}

/// Returns the version of the library, such as "0.1.0"; never null.
#[unsafe(no_mangle)]
pub extern "C" fn portolan_version() -> *const c_char {
    const VERSION: &CStr =
        match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(version) => version,
            Err(_) => c"",
        };
    VERSION.as_ptr()
}

/// Returns PORTOLAN_ABI_VERSION of the loaded library.
#[unsafe(no_mangle)]
pub extern "C" fn portolan_abi_version() -> u32 {
    PORTOLAN_ABI_VERSION
}
