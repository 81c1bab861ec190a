// SPDX-License-Identifier: MIT OR Apache-2.0
//! Result codes. Their values never change.

pub(crate) use crate::error::Failure;
pub(crate) use portolan_ffi::guard;
use std::ffi::{c_char, c_int};

/// gamma_init() was not called.
pub const GAMMA_ERR_NOT_INITIALISED: c_int = -1;
/// gamma_exit() was called.
pub const GAMMA_ERR_EXITED: c_int = -2;
/// gamma_init() was called before.
pub const GAMMA_ERR_ALREADY: c_int = -3;
/// The processes could not be started, or their number is wrong.
pub const GAMMA_ERR_LAUNCH: c_int = -4;
/// A required pointer is null.
pub const GAMMA_ERR_NULL: c_int = -5;
/// An argument is out of range.
pub const GAMMA_ERR_ARGUMENT: c_int = -6;
/// The node does not exist in this group.
pub const GAMMA_ERR_NODE: c_int = -7;
/// The parallel PID is that of another group.
pub const GAMMA_ERR_PAR_PID: c_int = -8;
/// The port was not set.
pub const GAMMA_ERR_PORT: c_int = -9;
/// The function cannot be called from a handler.
pub const GAMMA_ERR_IN_HANDLER: c_int = -10;
/// A handler reported an error, or a message was longer than its buffer.
pub const GAMMA_ERR_SIGNALLED: c_int = -11;
/// A node has failed or exited, or cannot be reached.
pub const GAMMA_ERR_NODE_GONE: c_int = -12;
/// A system call failed.
pub const GAMMA_ERR_SYSTEM: c_int = -13;
/// Internal error of the library.
pub const GAMMA_ERR_INTERNAL: c_int = -14;
/// This process was forked after its parent had called gamma_init(). The group belongs to the
/// parent.
pub const GAMMA_ERR_FORKED: c_int = -15;
/// Another error of the network.
pub const GAMMA_ERR_OTHER: c_int = -99;

/// Returns a description of the last error of this thread. It is one sentence. Not in the original.
#[unsafe(no_mangle)]
pub extern "C" fn gamma_last_error() -> *const c_char {
    portolan_ffi::last_error()
}
