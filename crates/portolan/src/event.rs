// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waiting in a program's own event loop: one descriptor for everything that may happen here.

use crate::error::Error;
use crate::node::Node;
use crate::wait;
use portolan_link::WakeSet;
use portolan_sys::epoll::Epoll;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

/// What [`Node::event_fd`] made; absent in programs that never ask for it.
#[derive(Debug)]
pub(crate) struct EventSet {
    epoll: Epoll,
    /// Rings when the protocol or the search for silent peers wants a turn.
    timer: OwnedFd,
    /// Descriptors of the links and the launcher that are in the set.
    watched: Vec<RawFd>,
    wake: WakeSet,
}

impl EventSet {
    fn new() -> io::Result<EventSet> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        let epoll = Epoll::new()?;
        epoll.add(&timer, 0)?;
        Ok(EventSet {
            epoll,
            timer,
            watched: Vec::new(),
            wake: WakeSet::default(),
        })
    }

    /// Watches exactly what `wake` names. A number may since stand for another descriptor, so all
    /// are added each time; those that are there already stay.
    fn watch(&mut self) -> io::Result<()> {
        for &fd in &self.watched {
            if !self.wake.fds.contains(&fd) {
                self.epoll.remove_raw(fd);
            }
        }
        for &fd in &self.wake.fds {
            self.epoll.add_raw(fd, 0)?;
        }
        self.watched.clone_from(&self.wake.fds);
        Ok(())
    }

    fn set_timer(&self, after: Duration) -> io::Result<()> {
        // Zero would stop the timer; a nanosecond rings at once.
        let after = after.max(Duration::from_nanos(1));
        let it_value = Timespec {
            tv_sec: i64::try_from(after.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(after.subsec_nanos()),
        };
        let it_interval = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let new = Itimerspec {
            it_interval,
            it_value,
        };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &new)?;
        Ok(())
    }
}

fn failed(errno: io::Error) -> Error {
    Error::System {
        what: "setting up the descriptor of an event loop",
        errno,
    }
}

impl Node {
    /// The descriptor for a program's own event loop, to be waited for until it is readable.
    ///
    /// Before each wait call [`Node::arm`], after it [`Node::disarm`]. Never read from it.
    ///
    /// # Errors
    /// [`Error::System`] for want of descriptors.
    pub fn event_fd(&mut self) -> Result<BorrowedFd<'_>, Error> {
        Ok(self.event_set()?.epoll.as_fd())
    }

    fn event_set(&mut self) -> Result<&mut EventSet, Error> {
        if self.events.is_none() {
            self.events = Some(Box::new(EventSet::new().map_err(failed)?));
        }
        let Some(events) = &mut self.events else {
            return Err(failed(io::ErrorKind::NotFound.into()));
        };
        Ok(events)
    }

    /// Makes [`Node::event_fd`] readable as soon as there is something to do here. `false`: there
    /// is already, so do not wait; call [`Node::progress`] and look at what has ended.
    ///
    /// # Errors
    /// [`Error::System`] when the system refuses.
    pub fn arm(&mut self) -> Result<bool, Error> {
        self.event_set()?;
        // What the helper received while the program sleeps would not wake it.
        let engine = self.engine.hold_mut();
        engine.inner.check_owner()?;
        engine.flush();
        let now = engine.inner.read_clock();
        let Some(mut events) = self.events.take() else {
            return Ok(false);
        };
        events.wake.fds.clear();
        let quiet = engine.links.arm(&mut events.wake);
        let mut result = Ok(quiet);
        if quiet {
            if let Some(launch) = &engine.launch {
                events.wake.fds.push(launch.fd());
            }
            let after = wait::sleep_max(engine, now);
            let armed = events.watch().and_then(|()| events.set_timer(after));
            result = armed.map(|()| true).map_err(failed);
        }
        self.events = Some(events);
        if !matches!(result, Ok(true)) {
            self.engine.enter().links.disarm();
        }
        result
    }

    /// Ends what [`Node::arm`] began, and does what has become due: timers, news of peers, messages.
    pub fn disarm(&mut self) {
        let engine = &mut *self.engine.enter();
        if engine.inner.owner.is_another() {
            return;
        }
        engine.links.disarm();
        engine.inner.read_clock();
        engine.look_around();
        engine.on_timeout();
        engine.progress();
    }
}
