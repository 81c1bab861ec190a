// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waiting for connections: `poll` and `select`.
//!
//! A thread that sleeps arms all directions that it waits for, so the kernel wakes it. Bytes that
//! are in a ring by then are reported at once.
#![allow(unsafe_code)]

use crate::conn::{self, ConnRef, Ends};
use crate::recv::InKernel;
use crate::table::{self, Kind};
use crate::{epoll, errno, real, settings, spin};
use libc::{c_int, c_short, pollfd};

/// Connections that one call watches while it polls; further ones stay on the kernel.
const WATCHED: usize = 64;

/// Returns true if calls on the descriptor block.
pub(crate) fn is_blocking(fd: i32) -> bool {
    real::fcntl(fd, libc::F_GETFL, std::ptr::null_mut()) & libc::O_NONBLOCK == 0
}

fn poll_one(fd: i32, events: c_short, timeout: c_int) -> Option<c_short> {
    let mut entry = pollfd {
        fd,
        events,
        revents: 0,
    };
    let ready = real::poll(&raw mut entry, 1, timeout);
    (ready >= 0).then_some(entry.revents)
}

/// Waits for bytes of the kernel's connection. Returns false after a signal.
pub(crate) fn wait_readable(fd: i32) -> bool {
    poll_one(fd, libc::POLLIN, -1).is_some()
}

/// Returns true if a pipe is writable, after waiting for it if `waits`. Else sets `errno`.
pub(crate) fn wait_writable(fd: i32, waits: bool) -> bool {
    match poll_one(fd, libc::POLLOUT, if waits { -1 } else { 0 }) {
        Some(0) => errno::fail(libc::EAGAIN) == 0,
        Some(_) => true,
        None => false,
    }
}

/// Returns true if the kernel's connection has ended in one direction.
pub(crate) fn has_ended(fd: i32) -> bool {
    let error = errno::last();
    let ended = poll_one(fd, libc::POLLRDHUP, 0).is_none_or(|events| events != 0);
    errno::set(error);
    ended
}

/// Polls until the ring has bytes, its writer uses the kernel, or the time for it is over.
pub(crate) fn spin(ends: &Ends) {
    spin::until(&|| is_active(ends), &mut || false);
}

/// Returns true if a ring has bytes, or further bytes use the kernel.
pub(crate) fn is_active(ends: &Ends) -> bool {
    let half = ends.incoming();
    half.len() > 0 || half.word().is_kernel()
}

/// Connections of a call that waits.
pub(crate) struct Watched {
    conns: [Option<ConnRef>; WATCHED],
    count: usize,
    /// Set if the call waits for nothing else than bytes of one connection.
    is_alone: bool,
}

impl Watched {
    pub(crate) fn new() -> Watched {
        Watched {
            conns: [const { None }; WATCHED],
            count: 0,
            is_alone: false,
        }
    }

    /// Adds the connection of `fd`, if both of its ends are joined. Returns its place.
    pub(crate) fn add(&mut self, fd: i32) -> Option<Ends> {
        if let Kind::Epoll(set) = table::kind(fd) {
            epoll::share(set);
        }
        let conn = conn::of(fd)?;
        let ends = conn.joined()?;
        match self.conns.get_mut(self.count) {
            Some(place) => {
                *place = Some(conn);
                self.count += 1;
            }
            None => conn.stay_on_kernel(crate::stats::Why::Option),
        }
        Some(ends)
    }

    fn ends(&self) -> impl Iterator<Item = Ends> {
        self.conns.iter().flatten().filter_map(|conn| conn.joined())
    }

    /// Returns true if a ring has bytes.
    pub(crate) fn has_bytes(&self) -> bool {
        self.ends().any(|ends| ends.incoming().len() > 0)
    }

    /// Waits by `kernel`, which must not sleep if its argument is true. Polls before, if
    /// configured. `sleeps` is false for a call with a zero timeout.
    pub(crate) fn wait(&self, sleeps: bool, kernel: &mut dyn FnMut(bool) -> c_int) -> c_int {
        if self.count == 0 {
            return kernel(false);
        }
        if !sleeps || self.has_bytes() {
            return kernel(true);
        }
        if settings::spin_ns() > 0
            && let Some(found) = self.poll(kernel)
        {
            return found;
        }
        self.sleep(kernel)
    }

    /// Polls rings and kernel. Returns the kernel's result if something is ready.
    fn poll(&self, kernel: &mut dyn FnMut(bool) -> c_int) -> Option<c_int> {
        let mut open = [None; WATCHED];
        let idle = self.ends().filter(|ends| !is_active(ends));
        for (place, ends) in open.iter_mut().zip(idle) {
            *place = Some(ends);
        }
        open[0]?;
        // Other descriptors, and writable connections, are ready without a delay.
        let mut found = if self.is_alone { 0 } else { kernel(true) };
        if found != 0 {
            return Some(found);
        }
        spin::until(&|| open.iter().flatten().any(is_active), &mut || {
            found = kernel(true);
            found != 0
        });
        if found != 0 {
            return Some(found);
        }
        self.has_bytes().then(|| kernel(true))
    }

    fn sleep(&self, kernel: &mut dyn FnMut(bool) -> c_int) -> c_int {
        let mut all = [const { None }; WATCHED];
        for (place, ends) in all.iter_mut().zip(self.ends()) {
            *place = Some(ends);
        }
        let stay = all.each_ref().map(|ends| {
            let ends = ends.as_ref()?;
            InKernel::enter(ends.incoming())
        });
        let result = kernel(self.has_bytes());
        let error = errno::last();
        drop(stay);
        errno::set(error);
        result
    }
}

/// `poll` and `ppoll`: `sleeps` is false for a timeout of 0; `kernel` is the program's own call, or
/// one that does not sleep.
pub(crate) fn poll(
    entries: &mut [pollfd],
    sleeps: bool,
    kernel: &mut dyn FnMut(bool) -> c_int,
) -> c_int {
    const IN: c_short = libc::POLLIN | libc::POLLRDNORM;
    let mut watched = Watched::new();
    for entry in entries.iter().filter(|entry| entry.events & IN != 0) {
        watched.add(entry.fd);
    }
    if watched.count == 0 {
        return kernel(false);
    }
    let mut alone = None;
    if let [entry] = entries
        && entry.events & !(IN | libc::POLLERR | libc::POLLHUP) == 0
    {
        watched.is_alone = true;
        entry.revents = 0;
        alone = Some(entry.fd);
    }
    let result = watched.wait(sleeps, &mut |at_once| {
        // The ring's bytes are the whole result: no system call is needed.
        if at_once && alone.is_some_and(ring_has_bytes) {
            return 0;
        }
        kernel(at_once)
    });
    if result < 0 {
        return result;
    }
    let mut ready = 0;
    for entry in entries {
        let wanted = entry.events & IN;
        if wanted != 0 && ring_has_bytes(entry.fd) {
            entry.revents |= wanted;
        }
        ready += c_int::from(entry.revents != 0);
    }
    ready
}

/// Returns true if the descriptor is a connection with bytes in its ring.
pub(crate) fn ring_has_bytes(fd: i32) -> bool {
    let ends = conn::of(fd).and_then(|conn| conn.joined());
    ends.is_some_and(|ends| ends.incoming().len() > 0)
}

/// Set of descriptors of `select`.
#[derive(Clone, Copy)]
pub(crate) struct Set {
    words: *mut u64,
    count: usize,
}

impl Set {
    /// Creates the set of the program, which has `count` bits, or none.
    pub(crate) fn new(set: *mut libc::fd_set, count: c_int) -> Set {
        let count = if set.is_null() {
            0
        } else {
            usize::try_from(count).unwrap_or(0)
        };
        Set {
            words: set.cast(),
            count,
        }
    }

    fn word_count(self) -> usize {
        self.count.div_ceil(64)
    }

    /// Returns the descriptors.
    fn iter(self) -> impl Iterator<Item = usize> {
        (0..self.count).filter(move |fd| self.has(*fd))
    }

    fn has(self, fd: usize) -> bool {
        // SAFETY: the program passes a set of `count` bits.
        fd < self.count && unsafe { *self.words.add(fd / 64) } >> (fd % 64) & 1 == 1
    }

    fn insert(self, fd: usize) {
        // SAFETY: `fd` was in the program's set, which is as long.
        unsafe { *self.words.add(fd / 64) |= 1 << (fd % 64) }
    }

    /// Copies the words to `into`, or back if `back`.
    fn copy(self, into: &mut [u64; 16], back: bool) {
        for (index, word) in into.iter_mut().enumerate().take(self.word_count()) {
            // SAFETY: the program passes a set of `count` bits.
            let own = unsafe { &mut *self.words.add(index) };
            if back {
                *own = *word;
            } else {
                *word = *own;
            }
        }
    }
}

/// `select` and `pselect`: the sets of reading, writing and exceptions.
pub(crate) fn select(sets: [Set; 3], sleeps: bool, kernel: &mut dyn FnMut(bool) -> c_int) -> c_int {
    let reading = sets[0];
    let mut watched = Watched::new();
    if reading.count <= 1024 {
        for fd in reading.iter() {
            watched.add(i32::try_from(fd).unwrap_or(-1));
        }
    }
    if watched.count == 0 {
        return kernel(false);
    }
    let mut before = [[0_u64; 16]; 3];
    for (set, before) in sets.iter().zip(&mut before) {
        set.copy(before, false);
    }
    let result = watched.wait(sleeps, &mut |at_once| {
        for (set, before) in sets.iter().zip(&mut before) {
            set.copy(before, true);
        }
        kernel(at_once)
    });
    if result < 0 {
        return result;
    }
    let mut ready = result;
    for fd in 0..reading.count {
        let asked = before[0][fd / 64] >> (fd % 64) & 1 == 1;
        let number = i32::try_from(fd).unwrap_or(-1);
        if asked && !reading.has(fd) && ring_has_bytes(number) {
            reading.insert(fd);
            ready += 1;
        }
    }
    ready
}
