// SPDX-License-Identifier: MIT OR Apache-2.0
//! Results as numbers, which are never changed, and the fence that no panic passes.

use portolan::Error;
use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

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

/// Why a function failed.
#[derive(Debug)]
pub(crate) struct Failure {
    code: c_int,
    text: Box<str>,
}

impl Failure {
    #[cold]
    pub(crate) fn new(code: c_int, text: impl Into<String>) -> Failure {
        Failure {
            code,
            text: text.into().into_boxed_str(),
        }
    }

    fn record(&self) -> c_int {
        let text: Vec<u8> = self.text.bytes().filter(|&byte| byte != 0).collect();
        let text = CString::new(text).unwrap_or_default();
        // A thread that is ending has nowhere to put it, and nobody to read it.
        let _ = LAST.try_with(|last| *last.borrow_mut() = text);
        self.code
    }
}

impl From<Error> for Failure {
    #[cold]
    fn from(error: Error) -> Failure {
        let code = match &error {
            Error::Launch(_) | Error::Setting { .. } => GAMMA_ERR_LAUNCH,
            Error::Link(_)
            | Error::System { .. }
            | Error::Lacking { .. }
            | Error::NoMemory { .. } => GAMMA_ERR_SYSTEM,
            Error::Forked => GAMMA_ERR_FORKED,
            Error::NoSuchRank { .. } => GAMMA_ERR_NODE,
            Error::PeerGone { .. }
            | Error::NoPath { .. }
            | Error::NoAnswer { .. }
            | Error::Undelivered { .. } => GAMMA_ERR_NODE_GONE,
            _ => GAMMA_ERR_OTHER,
        };
        Failure::new(code, error.to_string())
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// Runs the body of a function: what it returns, or the number of its failure.
#[inline]
pub(crate) fn guard(body: impl FnOnce() -> Result<c_int, Failure>) -> c_int {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => value,
        Ok(Err(failure)) => failure.record(),
        Err(_) => Failure::new(GAMMA_ERR_INTERNAL, "bug in libgamma").record(),
    }
}

/// Why the last function that failed on this thread did so: one sentence. Not in the original.
#[unsafe(no_mangle)]
pub extern "C" fn gamma_last_error() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr())
        .unwrap_or(c"".as_ptr())
}
