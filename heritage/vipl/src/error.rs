// SPDX-License-Identifier: MIT OR Apache-2.0
//! Conversion of errors to results.

use crate::code::*;
use portolan::Error;
use portolan_ffi::Codes;
use std::ffi::c_int;

/// An error of a function, with its result code.
pub(crate) type Failure = portolan_ffi::Failure<Vipl>;

/// The result codes of this library.
pub(crate) struct Vipl;

impl Codes for Vipl {
    const LIBRARY: &'static str = "libvipl";
    const INTERNAL: c_int = VIP_ERROR_RESOURCE;
    const NULL: c_int = VIP_INVALID_PARAMETER;

    fn of(error: &Error) -> c_int {
        match error {
            // A missing resource for the path to a process is treated as permanent, too.
            Error::PeerGone { .. }
            | Error::NoPath { .. }
            | Error::NoAnswer { .. }
            | Error::OutOfResource { .. } => VIP_NOT_REACHABLE,
            _ => VIP_ERROR_RESOURCE,
        }
    }
}

/// Returns true if the error means that a process can no longer be reached.
pub(crate) fn is_about_peer(error: &Error) -> bool {
    Vipl::of(error) == VIP_NOT_REACHABLE
}

/// Returns true if the error means that memory is temporarily exhausted.
pub(crate) fn is_temporary(error: &Error) -> bool {
    matches!(
        error,
        Error::NoMemory { .. } | Error::UnexpectedMemoryFull { .. } | Error::SelfFull { .. }
    )
}

/// Creates an error for an invalid argument.
#[cold]
pub(crate) fn invalid(text: impl Into<String>) -> Failure {
    Failure::new(VIP_INVALID_PARAMETER, text)
}

/// Creates an error for a resource that is exhausted or in use.
#[cold]
pub(crate) fn exhausted(text: impl Into<String>) -> Failure {
    Failure::new(VIP_ERROR_RESOURCE, text)
}

/// Creates an error for a VI in the wrong state.
#[cold]
pub(crate) fn wrong_state(text: impl Into<String>) -> Failure {
    Failure::new(VIP_INVALID_STATE, text)
}
