// SPDX-License-Identifier: MIT OR Apache-2.0
//! What an operation's completion is to say, and whether it is to be told.

use std::ffi::c_void;

use portolan::Cookie;

use super::queue::Entry;
use crate::abi::COMPLETION;

/// Flags of one direction of an endpoint.
#[derive(Clone, Copy)]
pub(crate) struct Side {
    /// Those of calls that pass none.
    default: u64,
    /// Only operations that ask for it are reported.
    selective: bool,
}

impl Side {
    pub(super) fn new(default: u64) -> Side {
        Side {
            default,
            selective: false,
        }
    }

    /// The flags of calls that pass none.
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

    /// An operation of this direction, by a call with these flags; its completion has those of `kind`.
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

/// An operation under way. The engine carries it, as a cookie.
#[derive(Clone, Copy)]
pub(crate) struct Op {
    /// The application's pointer, handed back and never followed.
    context: usize,
    /// The flags of its completion.
    flags: u64,
    /// Report success.
    reported: bool,
    /// Do not even report failure: the application gave no context, and could not tell whose it is.
    silent: bool,
}

/// In a cookie's flags, above those that libfabric has: [`Op::reported`] and [`Op::silent`].
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
    /// Without a context: neither success nor failure is reported.
    #[inline]
    pub(crate) fn untold(flags: u64) -> Op {
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

    /// The flags of its completion.
    #[inline]
    pub(super) fn flags(&self) -> u64 {
        self.flags
    }

    /// Whether success is told.
    #[inline]
    pub(super) fn is_reported(&self) -> bool {
        self.reported
    }

    /// Whether not even failure is told.
    #[inline]
    pub(super) fn is_silent(&self) -> bool {
        self.silent
    }

    /// What is told of one that has ended where the call is made.
    #[inline]
    pub(crate) fn entry(&self) -> Entry {
        Entry {
            context: self.context,
            flags: self.flags,
            ..Entry::default()
        }
    }
}
