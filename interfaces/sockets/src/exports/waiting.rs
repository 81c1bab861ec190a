// SPDX-License-Identifier: MIT OR Apache-2.0
//! Functions that wait for several descriptors.

use crate::ready::{self, Set};
use crate::{epoll, real};
use libc::{c_int, epoll_event, fd_set, nfds_t, pollfd, sigset_t, timespec, timeval};

/// A timeout of zero.
static NOW: timespec = timespec {
    tv_sec: 0,
    tv_nsec: 0,
};

fn is_zero(timeout: *const timespec) -> bool {
    // SAFETY: the program passes a valid pointer.
    !timeout.is_null() && unsafe { (*timeout).tv_sec == 0 && (*timeout).tv_nsec == 0 }
}

/// Returns the program's entries. Returns an empty slice for invalid arguments, which the kernel
/// refuses.
fn entries<'a>(fds: *mut pollfd, count: nfds_t) -> &'a mut [pollfd] {
    const MOST: nfds_t = 1 << 20;
    if fds.is_null() || count > MOST {
        return &mut [];
    }
    // SAFETY: the program passes `count` valid entries.
    unsafe { std::slice::from_raw_parts_mut(fds, usize::try_from(count).unwrap_or(0)) }
}

#[unsafe(no_mangle)]
extern "C-unwind" fn poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
    ready::poll(entries(fds, count), timeout != 0, &mut |at_once| {
        real::poll(fds, count, if at_once { 0 } else { timeout })
    })
}

#[unsafe(no_mangle)]
extern "C-unwind" fn __poll_chk(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: c_int,
    room: usize,
) -> c_int {
    check_entries(count, room);
    poll(fds, count, timeout)
}

fn check_entries(count: nfds_t, room: usize) {
    if count > (room / size_of::<pollfd>()) as nfds_t {
        std::process::abort();
    }
}

#[unsafe(no_mangle)]
extern "C-unwind" fn ppoll(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    ready::poll(entries(fds, count), !is_zero(timeout), &mut |at_once| {
        let timeout = if at_once { &raw const NOW } else { timeout };
        real::ppoll(fds, count, timeout, mask)
    })
}

#[unsafe(no_mangle)]
extern "C-unwind" fn __ppoll_chk(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
    room: usize,
) -> c_int {
    check_entries(count, room);
    ppoll(fds, count, timeout, mask)
}

fn sets(count: c_int, sets: [*mut fd_set; 3]) -> [Set; 3] {
    sets.map(|set| Set::new(set, count))
}

#[unsafe(no_mangle)]
extern "C-unwind" fn select(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    // SAFETY: the program passes a valid pointer.
    let is_zero =
        !timeout.is_null() && unsafe { (*timeout).tv_sec == 0 && (*timeout).tv_usec == 0 };
    let sets = sets(count, [read, write, except]);
    ready::select(sets, !is_zero, &mut |at_once| {
        let mut now = timeval {
            tv_sec: 0,
            tv_usec: 0,
        };
        let timeout = if at_once { &raw mut now } else { timeout };
        real::select(count, read, write, except, timeout)
    })
}

#[unsafe(no_mangle)]
extern "C-unwind" fn pselect(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    let sets = sets(count, [read, write, except]);
    ready::select(sets, !is_zero(timeout), &mut |at_once| {
        let timeout = if at_once { &raw const NOW } else { timeout };
        real::pselect(count, read, write, except, timeout, mask)
    })
}

#[unsafe(no_mangle)]
extern "C-unwind" fn epoll_ctl(
    epoll: c_int,
    op: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    let result = real::epoll_ctl(epoll, op, fd, event);
    if result == 0 && epoll::is_of_interest(fd) {
        // SAFETY: the program passes a valid pointer.
        let event = (!event.is_null()).then(|| unsafe { event.read_unaligned() });
        epoll::changed(epoll, op, fd, event);
    }
    result
}

/// Returns the program's events. Returns an empty slice for invalid arguments, which the kernel
/// refuses.
fn events<'a>(events: *mut epoll_event, most: c_int) -> &'a mut [epoll_event] {
    let most = usize::try_from(most).unwrap_or(0);
    if events.is_null() || most > 1 << 20 {
        return &mut [];
    }
    // SAFETY: the program passes room for `most` events; they are packed, so any address is
    // aligned.
    unsafe { std::slice::from_raw_parts_mut(events, most) }
}

/// Calls `kernel` for the events of the program, and adds those of rings.
fn wait(
    epoll: c_int,
    place: *mut epoll_event,
    most: c_int,
    sleeps: bool,
    kernel: &mut dyn FnMut(*mut epoll_event, c_int, bool) -> c_int,
) -> c_int {
    let events = events(place, most);
    if events.is_empty() || !epoll::is_of_interest(epoll) {
        return kernel(place, most, false);
    }
    epoll::wait(epoll, events, sleeps, &mut |part, at_once| {
        let most = c_int::try_from(part.len()).unwrap_or(c_int::MAX);
        kernel(part.as_mut_ptr(), most, at_once)
    })
}

#[unsafe(no_mangle)]
extern "C-unwind" fn epoll_wait(
    epoll: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout: c_int,
) -> c_int {
    wait(
        epoll,
        events,
        most,
        timeout != 0,
        &mut |events, most, at_once| {
            real::epoll_wait(epoll, events, most, if at_once { 0 } else { timeout })
        },
    )
}

#[unsafe(no_mangle)]
extern "C-unwind" fn epoll_pwait(
    epoll: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout: c_int,
    mask: *const sigset_t,
) -> c_int {
    wait(
        epoll,
        events,
        most,
        timeout != 0,
        &mut |events, most, at_once| {
            real::epoll_pwait(epoll, events, most, if at_once { 0 } else { timeout }, mask)
        },
    )
}

#[unsafe(no_mangle)]
extern "C-unwind" fn epoll_pwait2(
    epoll: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    wait(
        epoll,
        events,
        most,
        !is_zero(timeout),
        &mut |events, most, at_once| {
            let timeout = if at_once { &raw const NOW } else { timeout };
            real::epoll_pwait2(epoll, events, most, timeout, mask)
        },
    )
}
