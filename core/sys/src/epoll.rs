// SPDX-License-Identifier: MIT OR Apache-2.0
//! One descriptor that stands for many: it is readable when any of them is, so a sleeper waits for
//! one, and a look costs the same however many there are.
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

/// Events taken in one look; what is left shows up in the next.
const EVENTS_MAX: usize = 64;

/// A set of descriptors, level-triggered, each with a number of the caller's.
#[derive(Debug)]
pub struct Epoll(OwnedFd);

/// A descriptor that has something to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// The number it was added with.
    pub token: u64,
    /// The other end is closed (there may still be something to read).
    pub hung_up: bool,
}

impl Epoll {
    /// Creates an empty set.
    ///
    /// # Errors
    /// For want of descriptors.
    pub fn new() -> io::Result<Self> {
        Ok(Epoll(epoll::create(CreateFlags::CLOEXEC)?))
    }

    /// Adds `source`; its events carry `token`.
    ///
    /// # Errors
    /// What `epoll_ctl` says.
    pub fn add(&self, source: impl AsFd, token: u64) -> io::Result<()> {
        let flags = EventFlags::IN | EventFlags::RDHUP;
        Ok(epoll::add(
            &self.0,
            source,
            EventData::new_u64(token),
            flags,
        )?)
    }

    /// Adds a descriptor of somebody else's by its number, unless it is in the set.
    ///
    /// # Errors
    /// What `epoll_ctl` says.
    pub fn add_raw(&self, fd: RawFd, token: u64) -> io::Result<()> {
        // SAFETY: the kernel only looks the number up during this call, and refuses one that is
        // not open.
        match self.add(unsafe { BorrowedFd::borrow_raw(fd) }, token) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            other => other,
        }
    }

    /// Removes a descriptor that [`Epoll::add_raw`] added.
    pub fn remove_raw(&self, fd: RawFd) {
        // SAFETY: as in `add_raw`.
        self.remove(unsafe { BorrowedFd::borrow_raw(fd) });
    }

    /// Changes the token of `source`, which was added before.
    ///
    /// # Errors
    /// What `epoll_ctl` says.
    pub fn change(&self, source: impl AsFd, token: u64) -> io::Result<()> {
        let flags = EventFlags::IN | EventFlags::RDHUP;
        Ok(epoll::modify(
            &self.0,
            source,
            EventData::new_u64(token),
            flags,
        )?)
    }

    /// Has `source`, which was added before with `token`, count as ready also when it has room to write,
    /// or no more.
    ///
    /// # Errors
    /// What `epoll_ctl` says.
    pub fn watch_room(&self, source: impl AsFd, token: u64, wanted: bool) -> io::Result<()> {
        let mut flags = EventFlags::IN | EventFlags::RDHUP;
        flags.set(EventFlags::OUT, wanted);
        Ok(epoll::modify(
            &self.0,
            source,
            EventData::new_u64(token),
            flags,
        )?)
    }

    /// Removes `source`. Closing alone is not enough where a forked child holds a copy.
    pub fn remove(&self, source: impl AsFd) {
        // Fails only for a descriptor that is not in the set, which is what was wanted.
        let _ = epoll::delete(&self.0, source);
    }

    /// Appends what is ready now to `ready`, without waiting.
    ///
    /// # Errors
    /// What `epoll_wait` says, interruptions excepted.
    pub fn look(&self, ready: &mut Vec<Ready>) -> io::Result<()> {
        let mut events = [MaybeUninit::<Event>::uninit(); EVENTS_MAX];
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let (events, _) = match epoll::wait(&self.0, &mut events[..], Some(&now)) {
            Err(Errno::INTR) => return Ok(()),
            other => other?,
        };
        let gone = EventFlags::HUP | EventFlags::RDHUP | EventFlags::ERR;
        ready.extend(events.iter().map(|event| {
            let (data, flags) = (event.data, event.flags);
            Ready {
                token: data.u64(),
                hung_up: flags.intersects(gone),
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

    fn look(set: &Epoll) -> Vec<Ready> {
        let mut ready = Vec::new();
        set.look(&mut ready).unwrap();
        ready
    }

    #[test]
    fn bell_then_hang_up_are_reported_with_their_token() {
        let flags = SocketFlags::NONBLOCK;
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        let set = Epoll::new().unwrap();
        set.add(&ours, 7).unwrap();
        assert_eq!(look(&set), []);
        doorbell::ring(&theirs);
        assert_eq!(
            look(&set),
            [Ready {
                token: 7,
                hung_up: false
            }]
        );
        set.change(&ours, 8).unwrap();
        drop(theirs);
        assert_eq!(
            look(&set),
            [Ready {
                token: 8,
                hung_up: true
            }]
        );
        set.remove(&ours);
        assert_eq!(look(&set), []);
    }
}
