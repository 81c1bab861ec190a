// SPDX-License-Identifier: MIT OR Apache-2.0
//! From errors to statuses.

use crate::code::*;
use portolan::Error;
use portolan_ffi::Codes;
use std::ffi::c_int;

/// Why a function failed.
pub(crate) type Failure = portolan_ffi::Failure<Gm>;

/// Which status an error has.
pub(crate) struct Gm;

impl Codes for Gm {
    const LIBRARY: &'static str = "libgm";
    const INTERNAL: c_int = GM_INTERNAL_ERROR;
    const NULL: c_int = GM_INVALID_PARAMETER;

    fn of(error: &Error) -> c_int {
        match error {
            Error::System { .. } | Error::Link(_) => GM_UNTRANSLATED_SYSTEM_ERROR,
            Error::NoMemory { .. } => GM_OUT_OF_MEMORY,
            Error::Forked => GM_ACCESS_DENIED,
            Error::PeerGone { .. } | Error::NoPath { .. } | Error::NoAnswer { .. } => {
                GM_SEND_TARGET_NODE_UNREACHABLE
            }
            _ => GM_FAILURE,
        }
    }
}

/// An argument that cannot be.
#[cold]
pub(crate) fn invalid(text: impl Into<String>) -> Failure {
    Failure::new(GM_INVALID_PARAMETER, text)
}
