// SPDX-License-Identifier: MIT OR Apache-2.0
//! Conversion of errors to result codes.

use crate::code::*;
use portolan::Error;
use portolan_ffi::Codes;
use std::ffi::c_int;

/// An error of a function, with its result code.
pub(crate) type Failure = portolan_ffi::Failure<Gamma>;

/// The result codes of this library.
pub(crate) struct Gamma;

impl Codes for Gamma {
    const LIBRARY: &'static str = "libgamma";
    const INTERNAL: c_int = GAMMA_ERR_INTERNAL;
    const NULL: c_int = GAMMA_ERR_NULL;

    fn of(error: &Error) -> c_int {
        match error {
            Error::Launch(_) | Error::Setting { .. } => GAMMA_ERR_LAUNCH,
            Error::Link(_)
            | Error::System { .. }
            | Error::OutOfResource { .. }
            | Error::NoMemory { .. } => GAMMA_ERR_SYSTEM,
            Error::Forked => GAMMA_ERR_FORKED,
            Error::NoSuchRank { .. } | Error::NoSuchMember { .. } => GAMMA_ERR_NODE,
            Error::PeerGone { .. }
            | Error::NobodyLeft { .. }
            | Error::NoPath { .. }
            | Error::NoAnswer { .. }
            | Error::Undelivered { .. } => GAMMA_ERR_NODE_GONE,
            _ => GAMMA_ERR_OTHER,
        }
    }
}
