// SPDX-License-Identifier: MIT OR Apache-2.0
//! An operation's completion data, and the flags that control its reporting.

use std::ffi::c_void;

use portolan::binding::Cookie;

use super::queue::Entry;
use crate::abi::COMPLETION;

/// Flags of one direction of an endpoint.
#[derive(Clone, Copy)]
pub(crate) struct Side {
    /// Flags of calls that pass none.
    default: u64,
    /// Set if only operations that request a completion are reported.
    selective: bool,
}

impl Side {
    pub(super) fn new(default: u64) -> Side {
        Side {
            default,
            selective: false,
        }
    }

    /// Returns the flags of calls that pass none.
    #[inline]
    pub(crate) fn default_flags(self) -> u64 {
        self.default
    }

    pub(super) fn set_default_flags(&mut self, flags: u64) {
        self.default = flags;
    }

    pub(super) fn set_selective(&mut self, selective: bool) {
        self.selective = selective;
    }

    /// Creates an operation of this direction, for a call with the flags `call`. Its completion has
    /// the flags `kind`.
    #[inline]
    pub(crate) fn op(self, context: *mut c_void, kind: u64, call: u64) -> Op {
        let reported = !self.selective || call & COMPLETION != 0;
        Op {
            context: context as usize,
            flags: kind,
            reported,
            silent: false,
        }
    }
}

/// An operation in flight. The engine carries it as a cookie.
#[derive(Clone, Copy)]
pub(crate) struct Op {
    /// The application's pointer, which is returned and never dereferenced.
    context: usize,
    /// Flags of the completion.
    flags: u64,
    /// Set if a success is reported.
    reported: bool,
    /// Set if not even a failure is reported. The application passed no context, so it could not
    /// identify the operation.
    silent: bool,
}

/// Bits of a cookie's flags above libfabric's, for [`Op::reported`] and [`Op::silent`].
const REPORTED: u64 = 1 << 63;
const SILENT: u64 = 1 << 62;

impl From<Op> for Cookie {
    #[inline]
    fn from(op: Op) -> Cookie {
        let mut cookie = Cookie::new(op.context as u64);
        cookie.flags = op.flags;
        cookie.flags |= if op.reported { REPORTED } else { 0 };
        cookie.flags |= if op.silent { SILENT } else { 0 };
        cookie
    }
}

impl Op {
    /// Creates an operation without a context, for which neither success nor failure is reported.
    #[inline]
    pub(crate) fn unreported(flags: u64) -> Op {
        Op {
            context: 0,
            flags,
            reported: false,
            silent: true,
        }
    }

    #[inline]
    pub(super) fn of(cookie: Cookie) -> Op {
        Op {
            context: usize::try_from(cookie.context).unwrap_or(0),
            flags: cookie.flags & !(REPORTED | SILENT),
            reported: cookie.flags & REPORTED != 0,
            silent: cookie.flags & SILENT != 0,
        }
    }

    /// Returns the flags of the completion.
    #[inline]
    pub(super) fn flags(&self) -> u64 {
        self.flags
    }

    /// Returns true if a success is reported.
    #[inline]
    pub(super) fn is_reported(&self) -> bool {
        self.reported
    }

    /// Returns true if not even a failure is reported.
    #[inline]
    pub(super) fn is_silent(&self) -> bool {
        self.silent
    }

    /// Returns the queue entry of an operation that completed within its call.
    #[inline]
    pub(crate) fn entry(&self) -> Entry {
        Entry {
            context: self.context,
            flags: self.flags,
            ..Entry::default()
        }
    }
}
