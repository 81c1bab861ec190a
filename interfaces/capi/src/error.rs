// SPDX-License-Identifier: MIT OR Apache-2.0
//! Conversion of errors to numbers.

use crate::code::*;
use portolan::Error;
use portolan::binding::launch::LaunchError;
use portolan_ffi::Codes;
use std::ffi::c_int;

/// Reason why a function failed.
pub(crate) type Failure = portolan_ffi::Failure<Portolan>;

/// Mapping of errors to numbers.
pub(crate) struct Portolan;

impl Codes for Portolan {
    const LIBRARY: &'static str = "libportolan";
    const INTERNAL: c_int = PORTOLAN_ERR_INTERNAL;
    const NULL: c_int = PORTOLAN_ERR_NULL;

    fn of(error: &Error) -> c_int {
        match error {
            Error::Launch(LaunchError::UnknownSetting(_)) => PORTOLAN_ERR_SETTING,
            Error::Launch(_) => PORTOLAN_ERR_LAUNCH,
            Error::Link(_) => PORTOLAN_ERR_LINK,
            Error::System { .. } => PORTOLAN_ERR_SYSTEM,
            Error::Setting { .. } => PORTOLAN_ERR_SETTING,
            Error::Forked => PORTOLAN_ERR_FORKED,
            Error::NoSuchRank { .. } | Error::NoSuchMember { .. } => PORTOLAN_ERR_NO_SUCH_RANK,
            Error::PeerGone { .. } => PORTOLAN_ERR_PEER_GONE,
            Error::OutOfResource { .. } | Error::NoMemory { .. } => PORTOLAN_ERR_SYSTEM,
            Error::NoPath { .. } => PORTOLAN_ERR_NO_PATH,
            Error::NoAnswer { .. } => PORTOLAN_ERR_NO_ANSWER,
            Error::NoServer { .. } => PORTOLAN_ERR_NO_SERVER,
            Error::ServerRefused { .. } => PORTOLAN_ERR_SERVER_REFUSED,
            Error::Address { .. } => PORTOLAN_ERR_ADDRESS,
            Error::NotStandalone => PORTOLAN_ERR_ARGUMENT,
            Error::Undelivered { .. } => PORTOLAN_ERR_UNDELIVERED,
            Error::NobodyLeft { .. } => PORTOLAN_ERR_NOBODY_LEFT,
            Error::SelfFull { .. } => PORTOLAN_ERR_SELF_FULL,
            Error::Truncated { .. } | Error::TruncatedTagged { .. } => PORTOLAN_ERR_TRUNCATED,
            Error::RemoteRefused { .. } => PORTOLAN_ERR_REMOTE_REFUSED,
            Error::Refused { .. } => PORTOLAN_ERR_REFUSED,
            Error::Fault { .. } => PORTOLAN_ERR_FAULT,
            Error::PeerFault { .. } => PORTOLAN_ERR_PEER_FAULT,
            Error::PortClosed { .. } => PORTOLAN_ERR_PORT_CLOSED,
            Error::PortInUse { .. } | Error::PortHandled { .. } => PORTOLAN_ERR_PORT_IN_USE,
            Error::Atomic { .. } => PORTOLAN_ERR_ARGUMENT,
            Error::TimedOut { .. } => PORTOLAN_ERR_TIMEOUT,
            Error::PartialElement { .. } => PORTOLAN_ERR_ARGUMENT,
            Error::StaleRequest => PORTOLAN_ERR_STALE_REQUEST,
            Error::Cancelled => PORTOLAN_ERR_CANCELLED,
            Error::CollectiveMismatch(found) if found.is_of_length() => {
                PORTOLAN_ERR_LENGTH_MISMATCH
            }
            Error::CollectiveMismatch(_) => PORTOLAN_ERR_COLLECTIVE_MISMATCH,
            Error::GroupBusy { .. } => PORTOLAN_ERR_GROUP_BUSY,
            Error::UnexpectedMemoryFull { .. } => PORTOLAN_ERR_NO_MEMORY,
            _ => PORTOLAN_ERR_OTHER,
        }
    }
}
