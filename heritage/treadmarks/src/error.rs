// SPDX-License-Identifier: MIT OR Apache-2.0
//! Failures. TreadMarks has no error codes: a failure ends the job.

use crate::protocol::DsmError;
use portolan::Error;
use std::ffi::c_int;

/// A failure with its message.
pub(crate) type Failure = portolan_ffi::Failure<Tmk>;

/// The error codes of this library; see [`Failure`].
pub(crate) struct Tmk;

impl portolan_ffi::Codes for Tmk {
    const LIBRARY: &'static str = "libtmk";
    const INTERNAL: c_int = -1;
    const NULL: c_int = -1;

    fn of(_error: &Error) -> c_int {
        -1
    }
}

/// Creates a failure with the message `text`.
#[cold]
pub(crate) fn failure(text: impl Into<String>) -> Failure {
    Failure::new(-1, text)
}

#[cold]
pub(crate) fn of_dsm(error: &DsmError) -> Failure {
    failure(error.to_string())
}
