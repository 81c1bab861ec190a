// SPDX-License-Identifier: MIT OR Apache-2.0
//! A single descriptor for all events: contains the descriptors of the engine and a timer.

use crate::error::Error;
use crate::links::Links;
use portolan_link::WakeSet;
use portolan_sys::epoll::Epoll;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

/// Descriptor that becomes readable when an event is possible; see the module documentation.
#[derive(Debug)]
pub(crate) struct Descriptor {
    epoll: Epoll,
    /// Expires when the protocol or the liveness checks need a turn.
    timer: OwnedFd,
    /// Descriptors on which the engine would sleep, as set by [`super::Engine::arm`].
    pub(super) wake: WakeSet,
    /// Descriptors of these that are in the epoll set.
    watched: Vec<RawFd>,
}

impl Descriptor {
    /// # Errors
    /// [`Error::System`] if no descriptors are left.
    pub(crate) fn new() -> Result<Descriptor, Error> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags);
        let timer = timer.map_err(|errno| failed(errno.into()))?;
        let epoll = Epoll::new().map_err(failed)?;
        epoll.add(&timer, 0).map_err(failed)?;
        Ok(Descriptor {
            epoll,
            timer,
            wake: WakeSet::default(),
            watched: Vec::new(),
        })
    }

    /// Creates a descriptor that is signalled by events of `links`.
    ///
    /// # Errors
    /// Same as [`Descriptor::new`].
    pub(crate) fn watching(links: &mut Links) -> Result<Descriptor, Error> {
        let mut descriptor = Descriptor::new()?;
        links.arm(&mut descriptor.wake);
        links.disarm();
        descriptor.watch()?;
        Ok(descriptor)
    }

    /// Returns the descriptor to sleep on until it is readable.
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Watches exactly the descriptors in `wake`. A number may refer to another descriptor than
    /// before, so all are added each time. Those that are already in the set stay.
    ///
    /// # Errors
    /// [`Error::System`] if a system call fails.
    pub(super) fn watch(&mut self) -> Result<(), Error> {
        let fds = &self.wake.fds;
        for &fd in &self.watched {
            if !fds.contains(&fd) {
                self.epoll.remove_raw(fd);
            }
        }
        for &fd in fds {
            self.epoll.add_raw(fd, 0).map_err(failed)?;
        }
        self.watched.clone_from(fds);
        Ok(())
    }

    /// Sets the timer to expire after `after`; `None` stops it.
    ///
    /// # Errors
    /// [`Error::System`] if a system call fails.
    pub(crate) fn set_timer(&self, after: Option<Duration>) -> Result<(), Error> {
        let time = |tv_sec, tv_nsec| Timespec { tv_sec, tv_nsec };
        let it_value = after.map_or(time(0, 0), |after| {
            // Zero would stop the timer; one nanosecond expires at once.
            let after = after.max(Duration::from_nanos(1));
            let seconds = i64::try_from(after.as_secs()).unwrap_or(i64::MAX);
            time(seconds, i64::from(after.subsec_nanos()))
        });
        let new = Itimerspec {
            it_interval: time(0, 0),
            it_value,
        };
        let set = timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &new);
        set.map(drop).map_err(|errno| failed(errno.into()))
    }
}

fn failed(errno: io::Error) -> Error {
    Error::System {
        what: "setting up a descriptor to wait for",
        errno,
    }
}
