// SPDX-License-Identifier: MIT OR Apache-2.0
//! Results as numbers. They are never renumbered; new ones are added at the end of their group.

use std::ffi::{CStr, c_char, c_int};

/// The interface's version: raised when something is added; programs that were built with a lower
/// number go on working.
pub const PORTOLAN_ABI_VERSION: u32 = 1;

/// Success.
pub const PORTOLAN_OK: c_int = 0;
/// Of portolan_test(): the operation is still under way.
pub const PORTOLAN_PENDING: c_int = 1;

/// A pointer that is needed is null.
pub const PORTOLAN_ERR_NULL: c_int = -1;
/// An argument is out of its range.
pub const PORTOLAN_ERR_ARGUMENT: c_int = -2;
/// The size in front of a structure is not that of any version of it.
pub const PORTOLAN_ERR_STRUCT_SIZE: c_int = -3;
/// What was given as a node or a group is none.
pub const PORTOLAN_ERR_HANDLE: c_int = -4;
/// The node was closed, or the group freed.
pub const PORTOLAN_ERR_CLOSED: c_int = -5;
/// The node belongs to another thread; portolan_adopt() changes that.
pub const PORTOLAN_ERR_WRONG_THREAD: c_int = -6;
/// This function cannot be called from a handler, or from a condition of portolan_wait_until().
pub const PORTOLAN_ERR_IN_HANDLER: c_int = -7;
/// The library has a bug; the node cannot be used any more.
pub const PORTOLAN_ERR_INTERNAL: c_int = -8;
/// A port number is above 65535.
pub const PORTOLAN_ERR_PORT: c_int = -9;
/// The program that should have started this one is gone, or of another version.
pub const PORTOLAN_ERR_LAUNCH: c_int = -10;
/// A link could not be opened.
pub const PORTOLAN_ERR_LINK: c_int = -11;
/// The system refused something.
pub const PORTOLAN_ERR_SYSTEM: c_int = -12;
/// A setting has a value that cannot be, or there is no setting of that name.
pub const PORTOLAN_ERR_SETTING: c_int = -13;
/// There is no option of that name.
pub const PORTOLAN_ERR_NO_OPTION: c_int = -14;
/// This process was forked after its parent had joined; the node is the parent's.
pub const PORTOLAN_ERR_FORKED: c_int = -15;
/// There is no such rank.
pub const PORTOLAN_ERR_NO_SUCH_RANK: c_int = -20;
/// The process at the other end is gone.
pub const PORTOLAN_ERR_PEER_GONE: c_int = -21;
/// No link leads to the process.
pub const PORTOLAN_ERR_NO_PATH: c_int = -22;
/// The process did not answer.
pub const PORTOLAN_ERR_NO_ANSWER: c_int = -23;
/// A process that may live may not have got all that was sent to it.
pub const PORTOLAN_ERR_UNDELIVERED: c_int = -24;
/// Every other process of the job has ended: nothing can come any more.
pub const PORTOLAN_ERR_NOBODY_LEFT: c_int = -25;
/// Too much that this process has sent to itself waits to be received.
pub const PORTOLAN_ERR_SELF_FULL: c_int = -26;
/// The message was longer than the buffer, which has its first bytes.
pub const PORTOLAN_ERR_TRUNCATED: c_int = -30;
/// The receiver gave the message up.
pub const PORTOLAN_ERR_REFUSED: c_int = -31;
/// The port is not open.
pub const PORTOLAN_ERR_PORT_CLOSED: c_int = -32;
/// The port is open already, or has a handler.
pub const PORTOLAN_ERR_PORT_IN_USE: c_int = -33;
/// The request was completed before, or never was one.
pub const PORTOLAN_ERR_STALE_REQUEST: c_int = -34;
/// The operation was withdrawn.
pub const PORTOLAN_ERR_CANCELLED: c_int = -35;
/// Members of a group gave different numbers of values.
pub const PORTOLAN_ERR_LENGTH_MISMATCH: c_int = -36;
/// There is no claim of that number.
pub const PORTOLAN_ERR_NO_CLAIM: c_int = -37;
/// Members of a group called different collective operations.
pub const PORTOLAN_ERR_COLLECTIVE_MISMATCH: c_int = -38;
/// The group has two collective operations under way, and cannot begin a third.
pub const PORTOLAN_ERR_GROUP_BUSY: c_int = -39;
/// What was waited for is behind messages that nobody has received, and the memory for those is full:
/// receive them first, or raise the setting unexpected_memory.
pub const PORTOLAN_ERR_NO_MEMORY: c_int = -42;
/// The process at the other end refused access to its memory: there is no region with that key, or
/// the place is outside of it, or others may not do that with it.
pub const PORTOLAN_ERR_REMOTE_REFUSED: c_int = -40;
/// There is no region of this process with that key.
pub const PORTOLAN_ERR_NO_REGION: c_int = -41;
/// An error that this version has no number for.
pub const PORTOLAN_ERR_OTHER: c_int = -99;

/// A code, its name and what it means.
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
    PORTOLAN_PENDING: c"still under way",
    PORTOLAN_ERR_NULL: c"a pointer that is needed is null",
    PORTOLAN_ERR_ARGUMENT: c"an argument is out of its range",
    PORTOLAN_ERR_STRUCT_SIZE: c"the size in front of a structure is wrong",
    PORTOLAN_ERR_HANDLE: c"this is no node and no group",
    PORTOLAN_ERR_CLOSED: c"the node was closed, or the group freed",
    PORTOLAN_ERR_WRONG_THREAD: c"the node belongs to another thread",
    PORTOLAN_ERR_IN_HANDLER: c"this cannot be called from a handler",
    PORTOLAN_ERR_INTERNAL: c"bug in the library",
    PORTOLAN_ERR_PORT: c"a port number is above 65535",
    PORTOLAN_ERR_LAUNCH: c"the launcher is gone or of another version",
    PORTOLAN_ERR_LINK: c"a link could not be opened",
    PORTOLAN_ERR_SYSTEM: c"the system refused something",
    PORTOLAN_ERR_SETTING: c"a setting has a value that cannot be",
    PORTOLAN_ERR_NO_OPTION: c"there is no option of that name",
    PORTOLAN_ERR_FORKED: c"the node is the parent's, which forked this process after joining",
    PORTOLAN_ERR_NO_SUCH_RANK: c"there is no such rank",
    PORTOLAN_ERR_PEER_GONE: c"the process at the other end is gone",
    PORTOLAN_ERR_NO_PATH: c"no link leads to the process",
    PORTOLAN_ERR_NO_ANSWER: c"the process did not answer",
    PORTOLAN_ERR_UNDELIVERED: c"not all that was sent is known to have arrived",
    PORTOLAN_ERR_NOBODY_LEFT: c"every other process of the job has ended",
    PORTOLAN_ERR_SELF_FULL: c"too much that was sent to this process itself waits to be received",
    PORTOLAN_ERR_TRUNCATED: c"the message was longer than the buffer",
    PORTOLAN_ERR_REFUSED: c"the receiver gave the message up",
    PORTOLAN_ERR_PORT_CLOSED: c"the port is not open",
    PORTOLAN_ERR_PORT_IN_USE: c"the port is open already",
    PORTOLAN_ERR_STALE_REQUEST: c"the request was completed before",
    PORTOLAN_ERR_CANCELLED: c"the operation was withdrawn",
    PORTOLAN_ERR_LENGTH_MISMATCH: c"members of a group gave different numbers of values",
    PORTOLAN_ERR_NO_CLAIM: c"there is no claim of that number",
    PORTOLAN_ERR_COLLECTIVE_MISMATCH: c"members of a group called different collective operations",
    PORTOLAN_ERR_GROUP_BUSY: c"the group has two collective operations under way",
    PORTOLAN_ERR_NO_MEMORY: c"the memory for messages that nobody has received is full",
    PORTOLAN_ERR_REMOTE_REFUSED: c"the process at the other end refused access to its memory",
    PORTOLAN_ERR_NO_REGION: c"there is no region of this process with that key",
    PORTOLAN_ERR_OTHER: c"an error that this version has no number for",
};

fn entry(code: c_int) -> Option<&'static Entry> {
    ENTRIES.iter().find(|entry| entry.0 == code)
}

/// Name of a result, such as "PORTOLAN_ERR_NULL"; never null.
#[unsafe(no_mangle)]
pub extern "C" fn portolan_error_name(code: c_int) -> *const c_char {
    entry(code)
        .map_or(c"(no result of Portolan's)", |entry| entry.1)
        .as_ptr()
}

/// What a result means, in general; never null. portolan_last_error() tells the cause.
#[unsafe(no_mangle)]
pub extern "C" fn portolan_strerror(code: c_int) -> *const c_char {
    entry(code)
        .map_or(c"no result of Portolan's", |entry| entry.2)
        .as_ptr()
}

/// Version of the library, such as "0.1.0"; never null.
#[unsafe(no_mangle)]
pub extern "C" fn portolan_version() -> *const c_char {
    const VERSION: &CStr =
        match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(version) => version,
            Err(_) => c"",
        };
    VERSION.as_ptr()
}

/// PORTOLAN_ABI_VERSION of the library that is loaded.
#[unsafe(no_mangle)]
pub extern "C" fn portolan_abi_version() -> u32 {
    PORTOLAN_ABI_VERSION
}
