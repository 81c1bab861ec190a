// SPDX-License-Identifier: MIT OR Apache-2.0
//! From errors to numbers and texts, and the fence that no panic passes.

use crate::code::*;
use portolan::Error;
use portolan::launch::LaunchError;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Why a function failed. Boxed text: failures are rare, and results travel in registers.
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

    /// `what` is null and must not be.
    #[cold]
    pub(crate) fn null(what: &str) -> Failure {
        Failure::new(PORTOLAN_ERR_NULL, format!("{what} is null"))
    }

    fn record(&self) -> c_int {
        let text: Vec<u8> = self.text.bytes().filter(|&byte| byte != 0).collect();
        // Without zeros it cannot fail.
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
            Error::Launch(LaunchError::UnknownSetting(_)) => PORTOLAN_ERR_SETTING,
            Error::Launch(_) => PORTOLAN_ERR_LAUNCH,
            Error::Link(_) => PORTOLAN_ERR_LINK,
            Error::System { .. } => PORTOLAN_ERR_SYSTEM,
            Error::Setting { .. } => PORTOLAN_ERR_SETTING,
            Error::Forked => PORTOLAN_ERR_FORKED,
            Error::NoSuchRank { .. } => PORTOLAN_ERR_NO_SUCH_RANK,
            Error::PeerGone { .. } => PORTOLAN_ERR_PEER_GONE,
            Error::Lacking { .. } | Error::NoMemory { .. } => PORTOLAN_ERR_SYSTEM,
            Error::NoPath { .. } => PORTOLAN_ERR_NO_PATH,
            Error::NoAnswer { .. } => PORTOLAN_ERR_NO_ANSWER,
            Error::Undelivered { .. } => PORTOLAN_ERR_UNDELIVERED,
            Error::NobodyLeft { .. } => PORTOLAN_ERR_NOBODY_LEFT,
            Error::SelfFull { .. } => PORTOLAN_ERR_SELF_FULL,
            Error::Truncated { .. } | Error::TruncatedTagged { .. } => PORTOLAN_ERR_TRUNCATED,
            Error::RemoteRefused { .. } => PORTOLAN_ERR_REMOTE_REFUSED,
            Error::Refused { .. } => PORTOLAN_ERR_REFUSED,
            Error::PortClosed { .. } => PORTOLAN_ERR_PORT_CLOSED,
            Error::PortInUse { .. } => PORTOLAN_ERR_PORT_IN_USE,
            Error::Atomic { .. } => PORTOLAN_ERR_ARGUMENT,
            Error::StaleRequest => PORTOLAN_ERR_STALE_REQUEST,
            Error::Cancelled => PORTOLAN_ERR_CANCELLED,
            Error::CollectiveMismatch(found) if found.is_of_length() => {
                PORTOLAN_ERR_LENGTH_MISMATCH
            }
            Error::CollectiveMismatch(_) => PORTOLAN_ERR_COLLECTIVE_MISMATCH,
            Error::GroupBusy { .. } => PORTOLAN_ERR_GROUP_BUSY,
            Error::UnexpectedMemoryFull { .. } => PORTOLAN_ERR_NO_MEMORY,
            _ => PORTOLAN_ERR_OTHER,
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
        Err(panic) => on_panic(&*panic),
    }
}

#[cold]
fn on_panic(panic: &(dyn std::any::Any + Send)) -> c_int {
    let said = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("no reason given");
    let text = format!("bug in libportolan: {said}");
    Failure::new(PORTOLAN_ERR_INTERNAL, text).record()
}

/// Why the last function of the library that failed on this thread did so: one sentence that names
/// the thing and the cause. Valid until the next failure on this thread; empty before the first;
/// never null.
#[unsafe(no_mangle)]
pub extern "C" fn portolan_last_error() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr())
        .unwrap_or(CStr::as_ptr(c""))
}
