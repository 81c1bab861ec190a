// SPDX-License-Identifier: MIT OR Apache-2.0
//! One descriptor for many: it is readable when any of them is. A sleeper waits for one, and a poll
//! costs the same for any number of them.
#![allow(
    unsafe_code,
    reason = "descriptors of others are named by their numbers"
)]

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};

/// Events read in one poll; the next poll returns the rest.
const EVENTS_MAX: usize = 64;

/// A level-triggered set of descriptors, each with a token chosen by the caller.
#[derive(Debug)]
pub struct Epoll(OwnedFd);

/// A descriptor with an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// Token of the descriptor.
    pub token: u64,
    /// Set if the other end is closed; data may still be waiting.
    pub hung_up: bool,
}

impl Epoll {
    /// Creates an empty set.
    ///
    /// # Errors
    /// Fails if descriptors are exhausted.
    pub fn new() -> io::Result<Self> {
        Ok(Epoll(epoll::create(CreateFlags::CLOEXEC)?))
    }

    /// Adds `source`; its events carry `token`.
    ///
    /// # Errors
    /// Returns the error of `epoll_ctl`.
    pub fn add(&self, source: impl AsFd, token: u64) -> io::Result<()> {
        let flags = EventFlags::IN | EventFlags::RDHUP;
        Ok(epoll::add(
            &self.0,
            source,
            EventData::new_u64(token),
            flags,
        )?)
    }

    /// Adds a descriptor owned elsewhere by its number, unless it is in the set.
    ///
    /// # Errors
    /// Returns the error of `epoll_ctl`.
    pub fn add_raw(&self, fd: RawFd, token: u64) -> io::Result<()> {
        // SAFETY: the kernel only resolves the number during this call, and refuses one that is not
        // open.
        match self.add(unsafe { BorrowedFd::borrow_raw(fd) }, token) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            other => other,
        }
    }

    /// Removes a descriptor added by [`Epoll::add_raw`].
    pub fn remove_raw(&self, fd: RawFd) {
        // SAFETY: as in `add_raw`.
        self.remove(unsafe { BorrowedFd::borrow_raw(fd) });
    }

    /// Changes the token of `source`, which is in the set.
    ///
    /// # Errors
    /// Returns the error of `epoll_ctl`.
    pub fn change(&self, source: impl AsFd, token: u64) -> io::Result<()> {
        let flags = EventFlags::IN | EventFlags::RDHUP;
        Ok(epoll::modify(
            &self.0,
            source,
            EventData::new_u64(token),
            flags,
        )?)
    }

    /// Starts or stops reporting `source`, which is in the set with `token`, also when it is
    /// writable.
    ///
    /// # Errors
    /// Returns the error of `epoll_ctl`.
    pub fn watch_writable(
        &self,
        source: impl AsFd,
        token: u64,
        is_watched: bool,
    ) -> io::Result<()> {
        let mut flags = EventFlags::IN | EventFlags::RDHUP;
        flags.set(EventFlags::OUT, is_watched);
        Ok(epoll::modify(
            &self.0,
            source,
            EventData::new_u64(token),
            flags,
        )?)
    }

    /// Removes `source`. Closing it is not enough if a forked child holds a copy.
    pub fn remove(&self, source: impl AsFd) {
        // Fails only for a descriptor that is not in the set, which is harmless.
        let _ = epoll::delete(&self.0, source);
    }

    /// Appends the current events to `ready` without waiting.
    ///
    /// # Errors
    /// Returns the error of `epoll_wait`, except interruptions.
    pub fn poll(&self, ready: &mut Vec<Ready>) -> io::Result<()> {
        let mut events = [MaybeUninit::<Event>::uninit(); EVENTS_MAX];
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let (events, _) = match epoll::wait(&self.0, &mut events[..], Some(&now)) {
            Err(Errno::INTR) => return Ok(()),
            other => other?,
        };
        let closed = EventFlags::HUP | EventFlags::RDHUP | EventFlags::ERR;
        ready.extend(events.iter().map(|event| {
            let (data, flags) = (event.data, event.flags);
            Ready {
                token: data.u64(),
                hung_up: flags.intersects(closed),
            }
        }));
        Ok(())
    }
}

impl AsFd for Epoll {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doorbell;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    fn poll(set: &Epoll) -> Vec<Ready> {
        let mut ready = Vec::new();
        set.poll(&mut ready).unwrap();
        ready
    }

    #[test]
    fn bell_then_hang_up_are_reported_with_their_token() {
        let flags = SocketFlags::NONBLOCK;
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        let set = Epoll::new().unwrap();
        set.add(&ours, 7).unwrap();
        assert_eq!(poll(&set), []);
        doorbell::ring(&theirs);
        assert_eq!(
            poll(&set),
            [Ready {
                token: 7,
                hung_up: false
            }]
        );
        set.change(&ours, 8).unwrap();
        drop(theirs);
        assert_eq!(
            poll(&set),
            [Ready {
                token: 8,
                hung_up: true
            }]
        );
        set.remove(&ours);
        assert_eq!(poll(&set), []);
    }
}
