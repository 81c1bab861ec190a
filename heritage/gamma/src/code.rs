// SPDX-License-Identifier: MIT OR Apache-2.0
//! Results as numbers, which are never changed.

pub(crate) use crate::error::Failure;
pub(crate) use portolan_ffi::guard;
use std::ffi::{c_char, c_int};

/// gamma_init() was not called.
pub const GAMMA_ERR_NOT_INITIALISED: c_int = -1;
/// gamma_exit() was called.
pub const GAMMA_ERR_EXITED: c_int = -2;
/// gamma_init() was called before.
pub const GAMMA_ERR_ALREADY: c_int = -3;
/// The processes could not be started, or not so many.
pub const GAMMA_ERR_LAUNCH: c_int = -4;
/// A pointer that is needed is null.
pub const GAMMA_ERR_NULL: c_int = -5;
/// An argument is out of its range.
pub const GAMMA_ERR_ARGUMENT: c_int = -6;
/// There is no such node in this group.
pub const GAMMA_ERR_NODE: c_int = -7;
/// The parallel PID is that of another group.
pub const GAMMA_ERR_PAR_PID: c_int = -8;
/// The port was not set.
pub const GAMMA_ERR_PORT: c_int = -9;
/// This function cannot be called from a handler.
pub const GAMMA_ERR_IN_HANDLER: c_int = -10;
/// A handler reported an error, or a message was longer than its buffer.
pub const GAMMA_ERR_SIGNALLED: c_int = -11;
/// A node is gone, or cannot be reached.
pub const GAMMA_ERR_NODE_GONE: c_int = -12;
/// The system refused something.
pub const GAMMA_ERR_SYSTEM: c_int = -13;
/// The library has a bug.
pub const GAMMA_ERR_INTERNAL: c_int = -14;
/// This process was forked after its parent had called gamma_init(); the group is the parent's.
pub const GAMMA_ERR_FORKED: c_int = -15;
/// Another error of the network.
pub const GAMMA_ERR_OTHER: c_int = -99;

/// Why the last function that failed on this thread did so: one sentence. Not in the original.
#[unsafe(no_mangle)]
pub extern "C" fn gamma_last_error() -> *const c_char {
    portolan_ffi::last_error()
}
