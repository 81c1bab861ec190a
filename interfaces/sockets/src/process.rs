// SPDX-License-Identifier: MIT OR Apache-2.0
//! Events of the process: start, fork, exec, and the life of its descriptors.
#![allow(unsafe_code)]

use crate::conn;
use crate::stats::{self, Why};
use crate::table::{self, Kind};
use crate::{epoll, errno, give_back, lock, real, settings};
use libc::{c_int, c_uint};
use std::sync::atomic::{AtomicI32, Ordering};

/// Lowest number for descriptors of this library, if the limit permits: programs expect the low
/// numbers for themselves.
const OWN_FDS: usize = 700;

/// Number of this process. A child of `vfork` has its parent's memory, but another number.
static PROCESS: AtomicI32 = AtomicI32::new(0);

/// Prepares the library, before the program starts.
pub(crate) fn load() {
    settings::load();
    stats::load();
    table::load();
    conn::load();
    epoll::load();
    note_process();
    // SAFETY: the functions have this type, and live as long as the process.
    unsafe { libc::pthread_atfork(Some(before_fork), None, Some(in_child)) };
}

/// Ends the library, when the process exits.
pub(crate) fn unload() {
    if is_own_memory() {
        give_back_all();
        stats::write_open();
        leave_all(false);
    }
}

/// Returns the unread bytes of all connections, which the end of the process closes.
fn give_back_all() {
    for fd in table::known() {
        if let Some(conn) = conn::of(fd) {
            give_back::outgoing(&conn, fd);
        }
    }
}

fn note_process() {
    // SAFETY: `getpid` has no preconditions.
    let pid = unsafe { libc::getpid() };
    PROCESS.store(pid, Ordering::Relaxed);
    stats::set_process(pid);
}

/// Returns the number of this process.
pub(crate) fn number() -> i32 {
    PROCESS.load(Ordering::Relaxed)
}

/// Returns false in a child of `vfork`, which must not change its parent's records.
pub(crate) fn is_own_memory() -> bool {
    // SAFETY: `getpid` has no preconditions.
    (unsafe { libc::getpid() }) == PROCESS.load(Ordering::Relaxed)
}

extern "C" fn before_fork() {
    let error = errno::last();
    epoll::before_fork();
    for conn in conn::all() {
        if conn.has_fds() {
            conn.add_user();
        }
    }
    errno::set(error);
}

extern "C" fn in_child() {
    lock::forget_own_id();
    note_process();
    epoll::after_fork();
    for conn in conn::all() {
        conn.after_fork();
    }
}

/// Moves a new descriptor of this library away from the numbers that programs expect, and protects
/// it from the program. Returns -1 for -1.
pub(crate) fn own_fd(fd: c_int) -> c_int {
    if fd < 0 {
        return -1;
    }
    let low = std::ptr::without_provenance_mut(OWN_FDS);
    let moved = real::fcntl(fd, libc::F_DUPFD_CLOEXEC, low);
    let own = if moved < 0 { fd } else { moved };
    if moved >= 0 {
        real::close(fd);
    }
    table::note(own);
    table::set(own, Kind::Own(0));
    own
}

/// Forgets a descriptor that the program is about to close. Returns false if it belongs to this
/// library.
pub(crate) fn before_close(fd: c_int) -> bool {
    match table::kind(fd) {
        Kind::Other => true,
        Kind::Own(_) => false,
        _ if !is_own_memory() => true,
        Kind::Conn(_) => {
            conn::remove_fd(fd);
            true
        }
        Kind::Epoll(index) => {
            epoll::remove_fd(fd, index);
            true
        }
    }
}

/// Forgets `to`, which `dup2` is about to replace by `from`.
pub(crate) fn before_replace(from: c_int, to: c_int) {
    if from == to || table::kind(to) == Kind::Other || !is_own_memory() {
        return;
    }
    // A failed call must not change anything.
    if real::fcntl(from, libc::F_GETFD, std::ptr::null_mut()) < 0 {
        return;
    }
    if let Kind::Own(_) = table::kind(to) {
        conn::lose_own(to);
        epoll::lose_own(to);
        table::set(to, Kind::Other);
    } else {
        before_close(to);
    }
}

/// Follows a successful duplication.
pub(crate) fn duplicated(from: c_int, to: c_int) {
    if to < 0 || from == to || table::kind(from) == Kind::Other || !is_own_memory() {
        return;
    }
    let error = errno::last();
    match table::kind(from) {
        Kind::Conn(_) => {
            if let Some(conn) = conn::any_of(from) {
                conn::add_fd(&conn, to);
            }
        }
        Kind::Epoll(index) => epoll::add_fd(index, to),
        _ => {}
    }
    errno::set(error);
}

/// `close_range` without this library's descriptors.
pub(crate) fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    const CLOEXEC: c_int = libc::CLOSE_RANGE_CLOEXEC as c_int;
    if flags & CLOEXEC != 0 || first > last {
        return real::close_range(first, last, flags);
    }
    let mut from = first;
    while let Some(fd) = table::next_known(from, last) {
        let number = fd.unsigned_abs();
        if !before_close(fd) && !is_in_child_memory() {
            if number > from {
                let result = real::close_range(from, number - 1, flags);
                if result != 0 {
                    return result;
                }
            }
            from = number + 1;
            if from > last || from == 0 {
                return 0;
            }
            continue;
        }
        // The descriptor is forgotten (or the parent's record stays): search behind it.
        match skip_forgotten(number, from, last, flags) {
            Ok(next) => from = next,
            Err(result) => return result,
        }
        if from > last {
            return 0;
        }
    }
    real::close_range(from, last, flags)
}

/// Closes `from..=number` and returns the next number.
fn skip_forgotten(number: u32, from: u32, last: u32, flags: c_int) -> Result<u32, c_int> {
    match real::close_range(from, number.min(last), flags) {
        0 => Ok(number.saturating_add(1)),
        failed => Err(failed),
    }
}

/// Returns true in a child of `vfork`: its descriptors may all be closed.
fn is_in_child_memory() -> bool {
    !is_own_memory()
}

/// Prepares for a new program in this process or in a child: connections that it inherits return
/// to the kernel, because it may not have this library.
pub(crate) fn before_exec() {
    let error = errno::last();
    for fd in table::known() {
        if let Kind::Conn(_) = table::kind(fd)
            && is_inherited(fd)
            && let Some(conn) = conn::any_of(fd)
        {
            give_back::hand_over(&conn, fd, Why::Inherited);
        }
    }
    errno::set(error);
}

/// A new program gets the connection of this descriptor.
pub(crate) fn given_away(fd: c_int) {
    if let Some(conn) = conn::any_of(fd) {
        give_back::hand_over(&conn, fd, Why::Inherited);
    }
}

fn is_inherited(fd: c_int) -> bool {
    let flags = real::fcntl(fd, libc::F_GETFD, std::ptr::null_mut());
    flags >= 0 && flags & libc::FD_CLOEXEC == 0
}

/// Takes this process away from its connections, before it ends or another program replaces it;
/// `undo` returns it after a failed call.
pub(crate) fn leave_all(undo: bool) {
    if !is_own_memory() {
        return;
    }
    let error = errno::last();
    for conn in conn::all() {
        if conn.has_fds() {
            if undo {
                conn.add_user();
            } else {
                conn.drop_user();
            }
        }
    }
    errno::set(error);
}
