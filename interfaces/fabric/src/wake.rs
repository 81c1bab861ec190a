// SPDX-License-Identifier: MIT OR Apache-2.0
//! The descriptor on which an application sleeps until its queue has news.
//!
//! It is readable when an endpoint of the queue has work, or when another thread has put an entry
//! into the queue since the last look.

#![allow(
    unsafe_code,
    reason = "an event descriptor, which the standard library lacks"
)]

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use portolan_sys::epoll::Epoll;
use portolan_sys::fork::Owner;

/// Tokens are not used: whoever wakes looks at everything.
const ANY: u64 = 0;

/// The kernel's parts of it are the same in a forked child, which leaves them as they are.
pub(crate) struct Wake {
    owner: Owner,
    set: Epoll,
    bell: File,
    /// Somebody is about to sleep; the next entry has to ring.
    armed: bool,
}

impl Wake {
    pub(crate) fn new() -> io::Result<Wake> {
        // SAFETY: no memory is involved.
        let raw = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if raw < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just made, and nobody else's.
        let bell = File::from(unsafe { OwnedFd::from_raw_fd(raw) });
        let set = Epoll::new()?;
        set.add(&bell, ANY)?;
        Ok(Wake {
            owner: Owner::this_process(),
            set,
            bell,
            armed: false,
        })
    }

    /// Also wake when this endpoint has work.
    pub(crate) fn watch(&self, engine: RawFd) -> io::Result<()> {
        // SAFETY: the endpoint is open, and holds the descriptor open.
        self.set.add(unsafe { BorrowedFd::borrow_raw(engine) }, ANY)
    }

    pub(crate) fn forget(&self, engine: RawFd) {
        if !self.owner.is_another() {
            // SAFETY: as in `watch`; the endpoint is closed after this.
            self.set.remove(unsafe { BorrowedFd::borrow_raw(engine) });
        }
    }

    /// Take off old rings, and have the next entry ring.
    pub(crate) fn arm(&mut self) {
        if self.owner.is_another() {
            return;
        }
        let mut count = [0; 8];
        // Nothing to read is the usual case.
        let _ = self.bell.read(&mut count);
        self.armed = true;
    }

    #[inline]
    pub(crate) fn ring(&mut self) {
        if self.armed {
            self.ring_now();
        }
    }

    /// Wake whoever sleeps.
    #[cold]
    pub(crate) fn ring_now(&mut self) {
        self.armed = false;
        if self.owner.is_another() {
            return;
        }
        // Fails only if the counter is full, and then it is readable.
        let _ = self.bell.write(&1u64.to_ne_bytes());
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.set.as_fd().as_raw_fd()
    }
}
