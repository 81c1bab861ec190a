// SPDX-License-Identifier: MIT OR Apache-2.0
//! Conversion of errors to statuses.

use crate::code::*;
use portolan::Error;
use portolan_ffi::Codes;
use std::ffi::c_int;

/// Reason for the failure of a function.
pub(crate) type Failure = portolan_ffi::Failure<Gm>;

/// Conversion of errors to GM's statuses.
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
            // A process that cannot be reached for lack of a resource here is permanently given up
            // too.
            Error::PeerGone { .. }
            | Error::NoPath { .. }
            | Error::NoAnswer { .. }
            | Error::OutOfResource { .. } => GM_SEND_TARGET_NODE_UNREACHABLE,
            _ => GM_FAILURE,
        }
    }
}

/// Returns whether an error means that a process can no longer be reached. All other errors concern
/// one operation, or this process.
pub(crate) fn is_about_peer(error: &Error) -> bool {
    Gm::of(error) == GM_SEND_TARGET_NODE_UNREACHABLE
}

/// Creates the failure for an invalid argument.
#[cold]
pub(crate) fn invalid(text: impl Into<String>) -> Failure {
    Failure::new(GM_INVALID_PARAMETER, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_resource_error_is_not_about_a_peer() {
        let full = Error::SelfFull {
            len: 1,
            unread: 2,
            limit: 2,
        };
        let no_path = Error::NoPath {
            rank: 1,
            host: "host".to_owned(),
            why: "no link leads there".to_owned(),
        };
        assert!(is_about_peer(&no_path) && !is_about_peer(&full));
        assert!(!is_about_peer(&Error::Cancelled));
        assert_eq!(Gm::of(&full), GM_FAILURE);
    }
}
