// SPDX-License-Identifier: MIT OR Apache-2.0
//! Error numbers, and the conversion of results to C return values.

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

use portolan::RemoteFault;
use portolan::binding::{RawError, SubmitError};

use crate::abi;

/// A positive error number: an errno value, or one that libfabric defines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Errno(pub(crate) i32);

impl Errno {
    pub(crate) const AGAIN: Errno = Errno(libc::EAGAIN);
    pub(crate) const INVAL: Errno = Errno(libc::EINVAL);
    pub(crate) const NODATA: Errno = Errno(libc::ENODATA);
    pub(crate) const NOSYS: Errno = Errno(libc::ENOSYS);
    pub(crate) const BUSY: Errno = Errno(libc::EBUSY);
    pub(crate) const NOMEM: Errno = Errno(libc::ENOMEM);
    pub(crate) const MSGSIZE: Errno = Errno(libc::EMSGSIZE);
    pub(crate) const NOPROTOOPT: Errno = Errno(libc::ENOPROTOOPT);
    pub(crate) const NOTCONN: Errno = Errno(libc::ENOTCONN);
    pub(crate) const CONNREFUSED: Errno = Errno(libc::ECONNREFUSED);
    pub(crate) const NOEQ: Errno = Errno(abi::ENOEQ);
    pub(crate) const OPBADSTATE: Errno = Errno(abi::EOPBADSTATE);
    pub(crate) const TIMEDOUT: Errno = Errno(libc::ETIMEDOUT);
    pub(crate) const AVAIL: Errno = Errno(abi::EAVAIL);
    pub(crate) const NOKEY: Errno = Errno(abi::ENOKEY);
    pub(crate) const TOOSMALL: Errno = Errno(abi::ETOOSMALL);
    pub(crate) const BADFLAGS: Errno = Errno(abi::EBADFLAGS);
}

impl From<std::io::Error> for Errno {
    fn from(error: std::io::Error) -> Errno {
        Errno(error.raw_os_error().unwrap_or(abi::EOTHER))
    }
}

impl From<SubmitError> for Errno {
    fn from(error: SubmitError) -> Errno {
        match error {
            SubmitError::Again => Errno::AGAIN,
            SubmitError::NoSuchPeer | SubmitError::TooManyPieces => Errno::INVAL,
            SubmitError::Unsupported => Errno(libc::EOPNOTSUPP),
            SubmitError::TooLong => Errno::MSGSIZE,
            SubmitError::Forked => Errno(abi::EOPBADSTATE),
            SubmitError::NoMemory(_) => Errno(libc::ENOMEM),
            SubmitError::PeerGone(_) => Errno(libc::ECONNRESET),
            _ => Errno(abi::EOTHER),
        }
    }
}

/// Returns the number that a completion with this error carries.
pub(crate) fn of_completion(error: &RawError) -> Errno {
    Errno(match error {
        RawError::Truncated { .. } => abi::ETRUNC,
        RawError::PeerGone(_) => libc::ECONNRESET,
        RawError::Cancelled => libc::ECANCELED,
        RawError::Refused => libc::ECONNREFUSED,
        RawError::UnexpectedMemoryFull { .. } => libc::ENOMEM,
        RawError::Remote(fault) => of_fault(*fault),
        RawError::Fault => libc::EFAULT,
        RawError::PeerFault => libc::EREMOTEIO,
        _ => abi::EOTHER,
    })
}

fn of_fault(fault: RemoteFault) -> i32 {
    match fault {
        RemoteFault::NoSuchKey | RemoteFault::Closed => libc::EKEYREJECTED,
        RemoteFault::OutOfBounds => libc::EFAULT,
        RemoteFault::NotAllowed => libc::EACCES,
        RemoteFault::Unsupported => libc::EOPNOTSUPP,
        _ => libc::EREMOTEIO,
    }
}

/// Runs the body of a C call that returns an `int`. A panic becomes an error.
pub(crate) fn status(body: impl FnOnce() -> Result<(), Errno>) -> c_int {
    integer(|| body().map(|()| 0))
}

/// Runs the body of a C call that returns a count as an `int`.
pub(crate) fn integer(body: impl FnOnce() -> Result<c_int, Errno>) -> c_int {
    caught(body).unwrap_or_else(|error| -error.0)
}

/// Runs the body of a data path call, which returns `ssize_t`.
#[inline(always)]
pub(crate) fn size(body: impl FnOnce() -> Result<isize, Errno>) -> isize {
    caught(body).unwrap_or_else(|error| -(error.0 as isize))
}

/// Runs the body of a data path call without a result.
#[inline(always)]
pub(crate) fn done(body: impl FnOnce() -> Result<(), Errno>) -> isize {
    size(|| body().map(|()| 0))
}

/// Catches a panic of `body`. Inlined, so that the captures of a data path call stay in registers.
#[inline(always)]
fn caught<T>(body: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
    // A panic may leave only the caller's objects in an inconsistent state. The caller gets an
    // error, after which it can only close them.
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(Err(Errno(abi::EOTHER)))
}

#[cfg(test)]
mod tests {
    use super::*;

    // P4.15
    #[test]
    fn full_unexpected_memory_is_nomem() {
        let error = RawError::UnexpectedMemoryFull {
            held_len: 2_000_000,
            limit: 1_048_576,
        };
        assert_eq!(of_completion(&error), Errno::NOMEM);
        let text = error.to_string();
        for word in ["2000000", "1048576", "PORTOLAN_UNEXPECTED_MEMORY"] {
            assert!(text.contains(word), "{text}");
        }
    }
}
