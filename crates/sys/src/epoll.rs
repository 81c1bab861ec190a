// SPDX-License-Identifier: MIT OR Apache-2.0
//! One descriptor that stands for many: it is readable when any of them is, so a sleeper waits for
//! one, and a look costs the same however many there are.

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Events taken in one look; what is left shows up in the next.
const EVENTS_MAX: usize = 64;

/// A set of descriptors, level-triggered, each with a number of the caller's.
pub struct Epoll {
    fd: OwnedFd,
    events: Vec<Event>,
}

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
        let fd = epoll::create(CreateFlags::CLOEXEC)?;
        Ok(Epoll {
            fd,
            events: Vec::with_capacity(EVENTS_MAX),
        })
    }

    /// Adds `source`; its events carry `token`.
    ///
    /// # Errors
    /// What `epoll_ctl` says.
    pub fn add(&self, source: impl AsFd, token: u64) -> io::Result<()> {
        let flags = EventFlags::IN | EventFlags::RDHUP;
        Ok(epoll::add(
            &self.fd,
            source,
            EventData::new_u64(token),
            flags,
        )?)
    }

    /// Changes the token of `source`, which was added before.
    ///
    /// # Errors
    /// What `epoll_ctl` says.
    pub fn change(&self, source: impl AsFd, token: u64) -> io::Result<()> {
        let flags = EventFlags::IN | EventFlags::RDHUP;
        Ok(epoll::modify(
            &self.fd,
            source,
            EventData::new_u64(token),
            flags,
        )?)
    }

    /// Removes `source`. Closing alone is not enough where a forked child holds a copy.
    pub fn remove(&self, source: impl AsFd) {
        // Fails only for a descriptor that is not in the set, which is what was wanted.
        let _ = epoll::delete(&self.fd, source);
    }

    /// Appends what is ready now to `ready`, without waiting.
    ///
    /// # Errors
    /// What `epoll_wait` says, interruptions excepted.
    pub fn look(&mut self, ready: &mut Vec<Ready>) -> io::Result<()> {
        self.events.clear();
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let buffer = rustix::buffer::spare_capacity(&mut self.events);
        match epoll::wait(&self.fd, buffer, Some(&now)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let gone = EventFlags::HUP | EventFlags::RDHUP | EventFlags::ERR;
        ready.extend(self.events.iter().map(|event| {
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
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doorbell;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    fn look(set: &mut Epoll) -> Vec<Ready> {
        let mut ready = Vec::new();
        set.look(&mut ready).unwrap();
        ready
    }

    #[test]
    fn bell_then_hang_up_are_reported_with_their_token() {
        let flags = SocketFlags::NONBLOCK;
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        let mut set = Epoll::new().unwrap();
        set.add(&ours, 7).unwrap();
        assert_eq!(look(&mut set), []);
        doorbell::ring(&theirs);
        assert_eq!(
            look(&mut set),
            [Ready {
                token: 7,
                hung_up: false
            }]
        );
        set.change(&ours, 8).unwrap();
        drop(theirs);
        assert_eq!(
            look(&mut set),
            [Ready {
                token: 8,
                hung_up: true
            }]
        );
        set.remove(&ours);
        assert_eq!(look(&mut set), []);
    }
}
