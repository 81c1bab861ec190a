// SPDX-License-Identifier: MIT OR Apache-2.0
//! From errors to results.

use crate::code::*;
use portolan::Error;
use portolan_ffi::Codes;
use std::ffi::c_int;

/// Why a function failed.
pub(crate) type Failure = portolan_ffi::Failure<Vipl>;

/// Which result an error has.
pub(crate) struct Vipl;

impl Codes for Vipl {
    const LIBRARY: &'static str = "libvipl";
    const INTERNAL: c_int = VIP_ERROR_RESOURCE;
    const NULL: c_int = VIP_INVALID_PARAMETER;

    fn of(error: &Error) -> c_int {
        match error {
            // A process that this one lacks something to reach is given up for good, too.
            Error::PeerGone { .. }
            | Error::NoPath { .. }
            | Error::NoAnswer { .. }
            | Error::Lacking { .. } => VIP_NOT_REACHABLE,
            _ => VIP_ERROR_RESOURCE,
        }
    }
}

/// Whether an error says that a process cannot be reached any more.
pub(crate) fn is_about_peer(error: &Error) -> bool {
    Vipl::of(error) == VIP_NOT_REACHABLE
}

/// Whether an error says that there is no memory for something now.
pub(crate) fn is_for_now(error: &Error) -> bool {
    matches!(
        error,
        Error::NoMemory { .. } | Error::UnexpectedMemoryFull { .. } | Error::SelfFull { .. }
    )
}

/// An argument that cannot be.
#[cold]
pub(crate) fn invalid(text: impl Into<String>) -> Failure {
    Failure::new(VIP_INVALID_PARAMETER, text)
}

/// Something has run out, or is in use.
#[cold]
pub(crate) fn lacking(text: impl Into<String>) -> Failure {
    Failure::new(VIP_ERROR_RESOURCE, text)
}

/// A VI is in another state.
#[cold]
pub(crate) fn wrong_state(text: impl Into<String>) -> Failure {
    Failure::new(VIP_INVALID_STATE, text)
}
