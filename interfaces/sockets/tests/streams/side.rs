// SPDX-License-Identifier: MIT OR Apache-2.0
//! One side of a connection: sends and receives its streams as its plan demands.
#![allow(unsafe_code)]

use super::calls;
use super::plan::{Event, Mode, Plan, Random, check, fill};
use libc::{c_int, epoll_event};
use std::io::ErrorKind;

/// Longest sleep without an event before the test fails.
const PATIENCE_MS: c_int = 20_000;

/// A running side.
pub(crate) struct Side {
    fd: c_int,
    plan: Plan,
    random: Random,
    sent: u64,
    received: u64,
    buffer: Vec<u8>,
    is_shut: bool,
    at_end: bool,
    had_event: bool,
    /// Set if the peer may end at any time.
    tolerant: bool,
    children: Vec<c_int>,
}

/// Result of an attempt.
#[derive(PartialEq, Eq)]
enum Tried {
    Moved,
    /// The call would block.
    Wait,
    /// Nothing is left to do.
    Done,
}

impl Side {
    /// Creates the side of connection `fd` after the first `sent` and `received` bytes of its
    /// streams.
    pub(crate) fn new(fd: c_int, plan: Plan, random: Random, tolerant: bool) -> Side {
        Side {
            fd,
            plan,
            random,
            sent: 0,
            received: 0,
            buffer: vec![0; 200_000],
            is_shut: false,
            at_end: false,
            had_event: false,
            tolerant,
            children: Vec::new(),
        }
    }

    /// Runs to the end of both streams, and closes the descriptor.
    pub(crate) fn run(&mut self) {
        match self.plan.mode {
            Mode::Threads => self.run_threads(),
            _ => self.run_events(),
        }
        // SAFETY: the side owns its descriptor.
        unsafe { libc::close(self.fd) };
        for child in &self.children {
            let mut status = 0;
            // SAFETY: the status is a valid place.
            unsafe { libc::waitpid(*child, &raw mut status, 0) };
            assert_eq!(status, 0, "a child failed");
        }
    }

    fn try_send(&mut self) -> Tried {
        if self.is_shut {
            return Tried::Done;
        }
        let left = self.plan.out_len - self.sent;
        if left == 0 {
            if !self.at_end && self.plan.shuts_late {
                return Tried::Done;
            }
            self.is_shut = true;
            // SAFETY: no preconditions.
            let shut = unsafe { libc::shutdown(self.fd, libc::SHUT_WR) };
            assert!(shut == 0 || self.tolerant, "shutdown");
            return Tried::Done;
        }
        let len = self.random.len().min(usize::try_from(left).unwrap());
        let mut bytes = std::mem::take(&mut self.buffer);
        fill(self.plan.out_key, self.sent, &mut bytes[..len]);
        let sent = calls::send(self.fd, &bytes[..len], &mut self.random);
        self.buffer = bytes;
        match sent {
            Ok(sent) => {
                self.sent += sent as u64;
                Tried::Moved
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Tried::Wait,
            Err(error) if error.kind() == ErrorKind::Interrupted => Tried::Moved,
            Err(error) => {
                assert!(self.tolerant, "send after {} bytes: {error}", self.sent);
                self.is_shut = true;
                Tried::Done
            }
        }
    }

    fn try_receive(&mut self) -> Tried {
        if self.at_end {
            return Tried::Done;
        }
        let len = self.random.len();
        let mut bytes = std::mem::take(&mut self.buffer);
        let got = calls::receive(self.fd, &mut bytes[..len], &mut self.random);
        if let Ok(got) = &got {
            check(self.plan.in_key, self.received, &bytes[..*got]);
        }
        self.buffer = bytes;
        match got {
            Ok(0) => {
                self.at_end = true;
                let whole = self.received == self.plan.in_len;
                assert!(whole || self.tolerant, "end after {} bytes", self.received);
                Tried::Done
            }
            Ok(got) => {
                self.received += got as u64;
                assert!(self.received <= self.plan.in_len, "too many bytes");
                self.maybe_event();
                Tried::Moved
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Tried::Wait,
            Err(error) if error.kind() == ErrorKind::Interrupted => Tried::Moved,
            Err(error) => {
                assert!(self.tolerant, "receive after {}: {error}", self.received);
                self.at_end = true;
                Tried::Done
            }
        }
    }

    fn maybe_event(&mut self) {
        if self.had_event || self.received < self.plan.event_at {
            return;
        }
        self.had_event = true;
        // SAFETY: all calls have valid arguments; each side owns its descriptors.
        unsafe {
            match self.plan.event {
                Event::Option => {
                    let one: c_int = 1;
                    let value = (&raw const one).cast();
                    libc::setsockopt(self.fd, libc::SOL_SOCKET, libc::SO_RCVLOWAT, value, 4);
                }
                Event::Spawn => {
                    let flags = libc::fcntl(self.fd, libc::F_GETFD);
                    libc::fcntl(self.fd, libc::F_SETFD, flags & !libc::FD_CLOEXEC);
                    libc::system(c"true".as_ptr());
                }
                Event::Replace => {
                    let spare = libc::dup(self.fd);
                    assert_eq!(libc::dup2(spare, self.fd), self.fd);
                    libc::close(spare);
                }
                _ => {}
            }
        }
    }

    /// Sends in a thread of its own, and receives in this one; both block.
    fn run_threads(&mut self) {
        let fd = self.fd;
        let mut sender = Side::new(
            fd,
            self.plan,
            Random::new(self.plan.out_key, 5),
            self.tolerant,
        );
        sender.plan.shuts_late = false;
        std::thread::scope(|scope| {
            scope.spawn(move || while sender.try_send() != Tried::Done {});
            while self.try_receive() != Tried::Done {}
        });
    }

    fn is_done(&self) -> bool {
        self.at_end && self.is_shut
    }

    /// Sends and receives without blocking.
    fn run_events(&mut self) {
        // SAFETY: no preconditions.
        unsafe {
            let flags = libc::fcntl(self.fd, libc::F_GETFL);
            libc::fcntl(self.fd, libc::F_SETFL, flags | libc::O_NONBLOCK);
        }
        let mut set = EpollSet::new(self.plan.mode);
        set.add(self.fd, true);
        let mut round = 0_u32;
        while !self.is_done() {
            // Edges are reported once: everything must be done before the next wait.
            let most = if self.plan.mode == Mode::Edge {
                usize::MAX
            } else {
                3
            };
            self.drain(most, Side::try_receive);
            let send_waits = self.drain(most, Side::try_send);
            if self.is_done() {
                break;
            }
            self.switch(&mut set);
            round = round.wrapping_add(1);
            self.wait(&mut set, send_waits);
        }
        set.close();
    }

    /// Repeats an attempt while it moves bytes. Returns true if it must wait.
    fn drain(&mut self, most: usize, attempt: fn(&mut Side) -> Tried) -> bool {
        for _ in 0..most {
            match attempt(self) {
                Tried::Moved => {}
                Tried::Wait => return true,
                Tried::Done => return false,
            }
        }
        true
    }

    /// Moves to another descriptor or process if the plan has that at this point.
    fn switch(&mut self, set: &mut EpollSet) {
        if !self.had_event || self.plan.event == Event::None {
            return;
        }
        let event = std::mem::replace(&mut self.plan.event, Event::None);
        // SAFETY: all calls have valid arguments. A child only uses what it owns.
        unsafe {
            match event {
                Event::Dup => {
                    set.close();
                    let other = libc::dup(self.fd);
                    libc::close(self.fd);
                    self.fd = other;
                    *set = EpollSet::new(self.plan.mode);
                    set.add(self.fd, true);
                }
                Event::ForkShared => {
                    let child = libc::fork();
                    if child == 0 {
                        libc::usleep(2000);
                        libc::_exit(0);
                    }
                    self.children.push(child);
                }
                Event::ForkAway | Event::ForkChild => {
                    let child = libc::fork();
                    if child == 0 {
                        self.continue_in_child(set);
                    }
                    if event == Event::ForkAway {
                        set.close();
                        *set = EpollSet::new(Mode::Poll);
                        libc::close(self.fd);
                        self.fd = -1;
                    }
                    self.children.push(child);
                    self.is_shut = true;
                    self.at_end = true;
                    let mut status = 0;
                    let child = self.children.pop().unwrap_or(child);
                    libc::waitpid(child, &raw mut status, 0);
                    assert_eq!(status, 0, "the child failed");
                }
                _ => {}
            }
        }
    }

    /// Completes the side in a forked child, which ends.
    fn continue_in_child(&mut self, set: &mut EpollSet) -> ! {
        // SAFETY: no preconditions.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
        set.close();
        self.children.clear();
        let finished = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            self.run_events();
        }));
        // SAFETY: no preconditions.
        unsafe {
            libc::close(self.fd);
            libc::_exit(i32::from(finished.is_err()))
        }
    }

    fn wait(&mut self, set: &mut EpollSet, send_waits: bool) {
        if self.is_done() {
            return;
        }
        let may_shut = self.at_end || !self.plan.shuts_late;
        let left = self.sent < self.plan.out_len || may_shut;
        let wants_out = send_waits && !self.is_shut && left;
        let wants_in = !self.at_end;
        if !wants_in && !wants_out {
            return;
        }
        let ready = match self.plan.mode {
            Mode::Poll | Mode::Threads => poll(self.fd, wants_in, wants_out),
            Mode::Select if self.fd < 1000 => select(self.fd, wants_in, wants_out),
            Mode::Select => poll(self.fd, wants_in, wants_out),
            _ => set.wait(self.fd, wants_in, wants_out),
        };
        assert!(
            ready,
            "nothing happened: {:?}, sent {}, received {}",
            self.plan, self.sent, self.received
        );
    }
}

fn is_interrupted() -> bool {
    std::io::Error::last_os_error().kind() == ErrorKind::Interrupted
}

fn poll(fd: c_int, wants_in: bool, wants_out: bool) -> bool {
    let mut entry = libc::pollfd {
        fd,
        events: 0,
        revents: 0,
    };
    if wants_in {
        entry.events |= libc::POLLIN;
    }
    if wants_out {
        entry.events |= libc::POLLOUT;
    }
    // SAFETY: one valid entry.
    let ready = unsafe { libc::poll(&raw mut entry, 1, PATIENCE_MS) };
    ready > 0 || (ready < 0 && is_interrupted())
}

fn select(fd: c_int, wants_in: bool, wants_out: bool) -> bool {
    let mut time = libc::timeval {
        tv_sec: libc::time_t::from(PATIENCE_MS / 1000),
        tv_usec: 0,
    };
    // SAFETY: the descriptor is below the size of a set.
    unsafe {
        let mut sets: [libc::fd_set; 2] = std::mem::zeroed();
        if wants_in {
            libc::FD_SET(fd, &raw mut sets[0]);
        }
        if wants_out {
            libc::FD_SET(fd, &raw mut sets[1]);
        }
        let [read, write] = &mut sets;
        let none = std::ptr::null_mut();
        let ready = libc::select(fd + 1, read, write, none, &raw mut time);
        ready > 0 || (ready < 0 && is_interrupted())
    }
}

/// Epoll set of a side, in another one for nested sets.
struct EpollSet {
    inner: c_int,
    outer: c_int,
    mode: Mode,
}

impl EpollSet {
    fn new(mode: Mode) -> EpollSet {
        let create = || {
            // SAFETY: no preconditions.
            let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
            assert!(fd >= 0);
            fd
        };
        let mut set = EpollSet {
            inner: -1,
            outer: -1,
            mode,
        };
        if matches!(
            mode,
            Mode::Level | Mode::Edge | Mode::OneShot | Mode::Nested
        ) {
            set.inner = create();
        }
        if mode == Mode::Nested {
            set.outer = create();
            set.control(set.outer, libc::EPOLL_CTL_ADD, set.inner, libc::EPOLLIN);
        }
        set
    }

    fn control(&self, set: c_int, op: c_int, fd: c_int, events: c_int) {
        let mut event = epoll_event {
            events: events.cast_unsigned(),
            u64: 42,
        };
        // SAFETY: the event is valid.
        let done = unsafe { libc::epoll_ctl(set, op, fd, &raw mut event) };
        assert_eq!(done, 0, "epoll_ctl in {:?}", self.mode);
    }

    fn events(&self, wants_in: bool, wants_out: bool) -> c_int {
        if self.mode == Mode::Edge {
            return libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLET;
        }
        let mut events = 0;
        if wants_in {
            events |= libc::EPOLLIN;
        }
        if wants_out {
            events |= libc::EPOLLOUT;
        }
        if self.mode == Mode::OneShot {
            events |= libc::EPOLLONESHOT;
        }
        events
    }

    fn add(&mut self, fd: c_int, wants_in: bool) {
        if self.inner >= 0 {
            let events = self.events(wants_in, true);
            self.control(self.inner, libc::EPOLL_CTL_ADD, fd, events);
        }
    }

    fn wait(&self, fd: c_int, wants_in: bool, wants_out: bool) -> bool {
        if self.mode != Mode::Edge {
            let events = self.events(wants_in, wants_out);
            self.control(self.inner, libc::EPOLL_CTL_MOD, fd, events);
        }
        let top = if self.outer >= 0 {
            self.outer
        } else {
            self.inner
        };
        let mut event = epoll_event { events: 0, u64: 0 };
        // SAFETY: room for one event.
        let ready = unsafe { libc::epoll_wait(top, &raw mut event, 1, PATIENCE_MS) };
        assert!(ready <= 0 || event.u64 == 42, "data of the event");
        ready > 0 || (ready < 0 && is_interrupted())
    }

    fn close(&mut self) {
        for fd in [&mut self.inner, &mut self.outer] {
            if *fd >= 0 {
                // SAFETY: the set owns its descriptors.
                unsafe { libc::close(*fd) };
                *fd = -1;
            }
        }
    }
}
