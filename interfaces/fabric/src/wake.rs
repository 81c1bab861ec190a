// SPDX-License-Identifier: MIT OR Apache-2.0
//! The descriptor on which an application sleeps until its queue has entries.
//!
//! It is readable when an endpoint of the queue has work, or when another thread has added an entry
//! since the last [`Wake::arm`].

#![allow(
    unsafe_code,
    reason = "an event descriptor, which the standard library lacks"
)]

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use portolan_sys::epoll::Epoll;
use portolan_sys::fork::Owner;

/// Epoll token. It is unused, because a woken reader polls everything.
const ANY: u64 = 0;

/// A descriptor to sleep on. A forked child shares its kernel objects with the parent and does not
/// change them.
pub(crate) struct Wake {
    owner: Owner,
    set: Epoll,
    event: File,
    /// Set if a reader is about to sleep, so the next entry must notify.
    armed: bool,
}

impl Wake {
    pub(crate) fn new() -> io::Result<Wake> {
        // SAFETY: no memory is involved.
        let raw = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if raw < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just opened, and owned by no other value.
        let event = File::from(unsafe { OwnedFd::from_raw_fd(raw) });
        let set = Epoll::new()?;
        set.add(&event, ANY)?;
        Ok(Wake {
            owner: Owner::this_process(),
            set,
            event,
            armed: false,
        })
    }

    /// Also wakes when this endpoint has work.
    pub(crate) fn watch(&self, engine: RawFd) -> io::Result<()> {
        // SAFETY: the endpoint is open and keeps the descriptor open.
        self.set.add(unsafe { BorrowedFd::borrow_raw(engine) }, ANY)
    }

    pub(crate) fn forget(&self, engine: RawFd) {
        if !self.owner.is_another() {
            // SAFETY: as in `watch`; the endpoint is closed only after this call.
            self.set.remove(unsafe { BorrowedFd::borrow_raw(engine) });
        }
    }

    /// Clears earlier notifications and makes the next entry notify.
    pub(crate) fn arm(&mut self) {
        if self.owner.is_another() {
            return;
        }
        let mut count = [0; 8];
        // Usually there is nothing to read.
        let _ = self.event.read(&mut count);
        self.armed = true;
    }

    #[inline]
    pub(crate) fn notify(&mut self) {
        if self.armed {
            self.notify_now();
        }
    }

    /// Wakes all sleepers.
    #[cold]
    pub(crate) fn notify_now(&mut self) {
        self.armed = false;
        if self.owner.is_another() {
            return;
        }
        // Fails only if the counter is full, and then the descriptor is readable.
        let _ = self.event.write(&1u64.to_ne_bytes());
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.set.as_fd().as_raw_fd()
    }
}
