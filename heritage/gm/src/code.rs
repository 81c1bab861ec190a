// SPDX-License-Identifier: MIT OR Apache-2.0
//! GM's numbers: statuses, versions and limits. They are those of the original, and must not
//! change.

use std::ffi::{CStr, c_char, c_int, c_uint};

/// Version 1.0 of the interface.
pub const GM_API_VERSION_1_0: c_uint = 0x100;
/// Version 1.1 of the interface.
pub const GM_API_VERSION_1_1: c_uint = 0x101;
/// Version 1.2 of the interface.
pub const GM_API_VERSION_1_2: c_uint = 0x102;
/// Version 1.3 of the interface.
pub const GM_API_VERSION_1_3: c_uint = 0x103;
/// Version 1.4 of the interface.
pub const GM_API_VERSION_1_4: c_uint = 0x104;
/// Version 1.5 of the interface.
pub const GM_API_VERSION_1_5: c_uint = 0x105;
/// Version 1.6 of the interface.
pub const GM_API_VERSION_1_6: c_uint = 0x106;
/// Version 2.0 of the interface.
pub const GM_API_VERSION_2_0: c_uint = 0x200;
/// Version 2.0.6 of the interface.
pub const GM_API_VERSION_2_0_6: c_uint = 0x20006;
/// Version 2.0.16 of the interface.
pub const GM_API_VERSION_2_0_16: c_uint = 0x20010;
/// The latest version.
pub const GM_API_VERSION: c_uint = 0x20010;

/// Maximum length of a host's name in bytes, including the final zero.
pub const GM_MAX_HOST_NAME_LEN: c_uint = 128;
/// Maximum length of a port's name in bytes, including the final zero.
pub const GM_MAX_PORT_NAME_LEN: c_uint = 32;
/// Number of no node; numbers of nodes begin at 1.
pub const GM_NO_SUCH_NODE_ID: c_uint = 0;
/// Priority of ordinary messages.
pub const GM_LOW_PRIORITY: c_uint = 0;
/// Priority of messages that must not wait behind ordinary ones.
pub const GM_HIGH_PRIORITY: c_uint = 1;
/// Number of priorities.
pub const GM_NUM_PRIORITIES: c_uint = 2;
/// Bytes of a page of gm_alloc_pages().
pub const GM_PAGE_LEN: c_uint = 4096;
/// Unit of the hardware's remote accesses, in bytes. Portolan has no such rule.
pub const GM_RDMA_GRANULARITY: c_uint = 64;
/// Unit of the hardware's memory accesses, in bytes. Portolan has no such rule.
pub const GM_MAX_DMA_GRANULARITY: c_uint = 8;

/// Result of an operation.
pub type gm_status_t = c_int;
/// A length.
pub type gm_size_t = std::ffi::c_ulong;
/// An address in the memory of another process.
pub type gm_remote_ptr_t = u64;

/// Success.
pub const GM_SUCCESS: c_int = 0;
/// Failure.
pub const GM_FAILURE: c_int = 1;
/// The input buffer is too small.
pub const GM_INPUT_BUFFER_TOO_SMALL: c_int = 2;
/// The output buffer is too small.
pub const GM_OUTPUT_BUFFER_TOO_SMALL: c_int = 3;
/// Try again.
pub const GM_TRY_AGAIN: c_int = 4;
/// The port is taken.
pub const GM_BUSY: c_int = 5;
/// Memory of the receiver was not registered.
pub const GM_MEMORY_FAULT: c_int = 6;
/// Interrupted.
pub const GM_INTERRUPTED: c_int = 7;
/// An argument is out of its range.
pub const GM_INVALID_PARAMETER: c_int = 8;
/// No memory is available.
pub const GM_OUT_OF_MEMORY: c_int = 9;
/// No such command.
pub const GM_INVALID_COMMAND: c_int = 10;
/// The receiver has not called gm_allow_remote_memory_access().
pub const GM_PERMISSION_DENIED: c_int = 11;
/// The library has a bug.
pub const GM_INTERNAL_ERROR: c_int = 12;
/// The port was closed, or never opened.
pub const GM_UNATTACHED: c_int = 13;
/// The device is not supported.
pub const GM_UNSUPPORTED_DEVICE: c_int = 14;
/// The receiver provided no buffer of this size and priority in time.
pub const GM_SEND_TIMED_OUT: c_int = 15;
/// The receiver does not accept this size: gm_set_acceptable_sizes().
pub const GM_SEND_REJECTED: c_int = 16;
/// The port is not open at the receiver.
pub const GM_SEND_TARGET_PORT_CLOSED: c_int = 17;
/// No such node exists, or it has failed.
pub const GM_SEND_TARGET_NODE_UNREACHABLE: c_int = 18;
/// The program has called gm_drop_sends().
pub const GM_SEND_DROPPED: c_int = 19;
/// The sending port was closed.
pub const GM_SEND_PORT_CLOSED: c_int = 20;
/// The node id is not set yet.
pub const GM_NODE_ID_NOT_YET_SET: c_int = 21;
/// Still shutting down.
pub const GM_STILL_SHUTTING_DOWN: c_int = 22;
/// The clone is busy.
pub const GM_CLONE_BUSY: c_int = 23;
/// There is no such unit.
pub const GM_NO_SUCH_DEVICE: c_int = 24;
/// Aborted.
pub const GM_ABORTED: c_int = 25;
/// The program was made for a later version.
pub const GM_INCOMPATIBLE_LIB_AND_DRIVER: c_int = 26;
/// An error of the system.
pub const GM_UNTRANSLATED_SYSTEM_ERROR: c_int = 27;
/// Access denied.
pub const GM_ACCESS_DENIED: c_int = 28;
/// The driver does not support it.
pub const GM_NO_DRIVER_SUPPORT: c_int = 29;
/// Too many references to a page.
pub const GM_PTE_REF_CNT_OVERFLOW: c_int = 30;
/// Not supported in the kernel.
pub const GM_NOT_SUPPORTED_IN_KERNEL: c_int = 31;
/// Not supported on this architecture.
pub const GM_NOT_SUPPORTED_ON_ARCH: c_int = 32;
/// No match.
pub const GM_NO_MATCH: c_int = 33;
/// An error of the program.
pub const GM_USER_ERROR: c_int = 34;
/// Timed out.
pub const GM_TIMED_OUT: c_int = 35;
/// The data are corrupted.
pub const GM_DATA_CORRUPTED: c_int = 36;
/// A fault of the hardware.
pub const GM_HARDWARE_FAULT: c_int = 37;
/// The send was orphaned.
pub const GM_SEND_ORPHANED: c_int = 38;
/// A number is too large.
pub const GM_MINOR_OVERFLOW: c_int = 39;
/// The page table is full.
pub const GM_PAGE_TABLE_FULL: c_int = 40;
/// An error of the unit controller.
pub const GM_UC_ERROR: c_int = 41;
/// Ports are 0 to 7.
pub const GM_INVALID_PORT_NUMBER: c_int = 42;
/// The device was not found.
pub const GM_DEV_NOT_FOUND: c_int = 43;
/// The firmware does not run.
pub const GM_FIRMWARE_NOT_RUNNING: c_int = 44;
/// No entry with that key.
pub const GM_YP_NO_MATCH: c_int = 45;
/// A parity error.
pub const GM_SRAM_PARITY_ERROR: c_int = 46;
/// The firmware was aborted.
pub const GM_FIRMWARE_ABORT: c_int = 47;

const NAMES: &[(c_int, &CStr)] = &[
    (GM_SUCCESS, c"GM_SUCCESS: success"),
    (GM_FAILURE, c"GM_FAILURE: failure"),
    (
        GM_INPUT_BUFFER_TOO_SMALL,
        c"GM_INPUT_BUFFER_TOO_SMALL: the input buffer is too small",
    ),
    (
        GM_OUTPUT_BUFFER_TOO_SMALL,
        c"GM_OUTPUT_BUFFER_TOO_SMALL: the output buffer is too small",
    ),
    (GM_TRY_AGAIN, c"GM_TRY_AGAIN: try again"),
    (GM_BUSY, c"GM_BUSY: busy: it is in use"),
    (
        GM_MEMORY_FAULT,
        c"GM_MEMORY_FAULT: memory that was not registered",
    ),
    (GM_INTERRUPTED, c"GM_INTERRUPTED: interrupted"),
    (
        GM_INVALID_PARAMETER,
        c"GM_INVALID_PARAMETER: an argument is out of its range",
    ),
    (GM_OUT_OF_MEMORY, c"GM_OUT_OF_MEMORY: no memory"),
    (GM_INVALID_COMMAND, c"GM_INVALID_COMMAND: no such command"),
    (
        GM_PERMISSION_DENIED,
        c"GM_PERMISSION_DENIED: permission denied",
    ),
    (
        GM_INTERNAL_ERROR,
        c"GM_INTERNAL_ERROR: the library has a bug",
    ),
    (GM_UNATTACHED, c"GM_UNATTACHED: the port is not open"),
    (
        GM_UNSUPPORTED_DEVICE,
        c"GM_UNSUPPORTED_DEVICE: the device is not supported",
    ),
    (
        GM_SEND_TIMED_OUT,
        c"GM_SEND_TIMED_OUT: the receiver provided no matching buffer in time",
    ),
    (
        GM_SEND_REJECTED,
        c"GM_SEND_REJECTED: the receiver does not accept messages of this size",
    ),
    (
        GM_SEND_TARGET_PORT_CLOSED,
        c"GM_SEND_TARGET_PORT_CLOSED: the port at the receiver is not open",
    ),
    (
        GM_SEND_TARGET_NODE_UNREACHABLE,
        c"GM_SEND_TARGET_NODE_UNREACHABLE: the node cannot be reached, or its process has ended",
    ),
    (
        GM_SEND_DROPPED,
        c"GM_SEND_DROPPED: the send was dropped, as the program requested",
    ),
    (
        GM_SEND_PORT_CLOSED,
        c"GM_SEND_PORT_CLOSED: the sending port was closed",
    ),
    (
        GM_NODE_ID_NOT_YET_SET,
        c"GM_NODE_ID_NOT_YET_SET: the node id is not set yet",
    ),
    (
        GM_STILL_SHUTTING_DOWN,
        c"GM_STILL_SHUTTING_DOWN: still shutting down",
    ),
    (GM_CLONE_BUSY, c"GM_CLONE_BUSY: the clone is busy"),
    (
        GM_NO_SUCH_DEVICE,
        c"GM_NO_SUCH_DEVICE: there is no such device",
    ),
    (GM_ABORTED, c"GM_ABORTED: aborted"),
    (
        GM_INCOMPATIBLE_LIB_AND_DRIVER,
        c"GM_INCOMPATIBLE_LIB_AND_DRIVER: the program wants another version of the library",
    ),
    (
        GM_UNTRANSLATED_SYSTEM_ERROR,
        c"GM_UNTRANSLATED_SYSTEM_ERROR: an error of the system",
    ),
    (GM_ACCESS_DENIED, c"GM_ACCESS_DENIED: access denied"),
    (
        GM_NO_DRIVER_SUPPORT,
        c"GM_NO_DRIVER_SUPPORT: the driver does not support it",
    ),
    (
        GM_PTE_REF_CNT_OVERFLOW,
        c"GM_PTE_REF_CNT_OVERFLOW: too many references to a page",
    ),
    (
        GM_NOT_SUPPORTED_IN_KERNEL,
        c"GM_NOT_SUPPORTED_IN_KERNEL: not supported in the kernel",
    ),
    (
        GM_NOT_SUPPORTED_ON_ARCH,
        c"GM_NOT_SUPPORTED_ON_ARCH: not supported on this architecture",
    ),
    (GM_NO_MATCH, c"GM_NO_MATCH: no match"),
    (GM_USER_ERROR, c"GM_USER_ERROR: an error of the program"),
    (GM_TIMED_OUT, c"GM_TIMED_OUT: timed out"),
    (
        GM_DATA_CORRUPTED,
        c"GM_DATA_CORRUPTED: the data are corrupted",
    ),
    (
        GM_HARDWARE_FAULT,
        c"GM_HARDWARE_FAULT: a fault of the hardware",
    ),
    (GM_SEND_ORPHANED, c"GM_SEND_ORPHANED: the send was orphaned"),
    (
        GM_MINOR_OVERFLOW,
        c"GM_MINOR_OVERFLOW: a number is too large",
    ),
    (
        GM_PAGE_TABLE_FULL,
        c"GM_PAGE_TABLE_FULL: the page table is full",
    ),
    (GM_UC_ERROR, c"GM_UC_ERROR: an error of the unit controller"),
    (
        GM_INVALID_PORT_NUMBER,
        c"GM_INVALID_PORT_NUMBER: there is no such port number",
    ),
    (
        GM_DEV_NOT_FOUND,
        c"GM_DEV_NOT_FOUND: the device was not found",
    ),
    (
        GM_FIRMWARE_NOT_RUNNING,
        c"GM_FIRMWARE_NOT_RUNNING: the firmware does not run",
    ),
    (GM_YP_NO_MATCH, c"GM_YP_NO_MATCH: no entry with that key"),
    (
        GM_SRAM_PARITY_ERROR,
        c"GM_SRAM_PARITY_ERROR: a parity error",
    ),
    (
        GM_FIRMWARE_ABORT,
        c"GM_FIRMWARE_ABORT: the firmware was aborted",
    ),
];

/// Returns the meaning of a status as text, which must not be changed; never null.
#[unsafe(no_mangle)]
pub extern "C" fn gm_strerror(status: gm_status_t) -> *mut c_char {
    let found = NAMES.iter().find(|(code, _)| *code == status);
    let text = found.map_or(c"no status of GM", |(_, text)| text);
    text.as_ptr().cast_mut()
}

/// Returns the reason for which the last function failed on this thread, as a sentence. Not in the
/// original.
#[unsafe(no_mangle)]
pub extern "C" fn gm_last_error() -> *const c_char {
    portolan_ffi::last_error()
}
