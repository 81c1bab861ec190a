// SPDX-License-Identifier: MIT OR Apache-2.0
//! Functions that make, change and close descriptors.

use crate::stats::Why;
use crate::table::{self, Kind};
use crate::{bypass, conn, epoll, errno, join, process, real};
use libc::{c_char, c_int, c_long, c_uint, c_void, sockaddr, socklen_t};

#[unsafe(no_mangle)]
extern "C-unwind" fn connect(fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int {
    let result = real::connect(fd, addr, len);
    if addr.is_null() || len < 2 {
        return result;
    }
    // SAFETY: the program passes a valid address.
    let family = c_int::from(unsafe { (*addr).sa_family });
    let error = errno::last();
    let begins = result == 0 || error == libc::EINPROGRESS || error == libc::EINTR;
    if family == libc::AF_UNSPEC {
        // The socket may be connected again.
        if let Some(conn) = conn::of(fd) {
            conn.stay_on_kernel(Why::Option);
        }
    } else if (family == libc::AF_INET || family == libc::AF_INET6)
        && begins
        && table::kind(fd) == Kind::Other
        && is_tcp(fd)
        && process::is_own_memory()
    {
        conn::track(fd, true);
    }
    errno::set(error);
    result
}

fn is_tcp(fd: c_int) -> bool {
    let mut protocol: c_int = 0;
    let mut len: socklen_t = 4;
    // SAFETY: the value has the given length.
    let got = unsafe {
        libc::getsockopt(
            fd,
            libc::SOL_SOCKET,
            libc::SO_PROTOCOL,
            (&raw mut protocol).cast(),
            &raw mut len,
        )
    };
    got == 0 && protocol == libc::IPPROTO_TCP
}

fn accepted(fd: c_int) -> c_int {
    if fd >= 0 && process::is_own_memory() {
        let error = errno::last();
        conn::track(fd, false);
        errno::set(error);
    }
    fd
}

#[unsafe(no_mangle)]
extern "C-unwind" fn accept(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int {
    accepted(real::accept(fd, addr, len))
}

#[unsafe(no_mangle)]
extern "C-unwind" fn accept4(
    fd: c_int,
    addr: *mut sockaddr,
    len: *mut socklen_t,
    flags: c_int,
) -> c_int {
    accepted(real::accept4(fd, addr, len, flags))
}

#[unsafe(no_mangle)]
extern "C-unwind" fn close(fd: c_int) -> c_int {
    if table::kind(fd) != Kind::Other && !process::before_close(fd) && process::is_own_memory() {
        errno::set(libc::EBADF);
        return -1;
    }
    real::close(fd)
}

#[unsafe(no_mangle)]
extern "C-unwind" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    process::close_range(first, last, flags)
}

#[unsafe(no_mangle)]
extern "C-unwind" fn closefrom(first: c_int) {
    process::close_range(first.max(0).unsigned_abs(), c_uint::MAX, 0);
}

#[unsafe(no_mangle)]
extern "C-unwind" fn dup(fd: c_int) -> c_int {
    let to = real::dup(fd);
    process::duplicated(fd, to);
    to
}

#[unsafe(no_mangle)]
extern "C-unwind" fn dup2(fd: c_int, to: c_int) -> c_int {
    process::before_replace(fd, to);
    let result = real::dup2(fd, to);
    process::duplicated(fd, result);
    result
}

#[unsafe(no_mangle)]
extern "C-unwind" fn dup3(fd: c_int, to: c_int, flags: c_int) -> c_int {
    process::before_replace(fd, to);
    let result = real::dup3(fd, to, flags);
    process::duplicated(fd, result);
    result
}

/// `fcntl` has a variable argument, which the calling convention passes like a pointer.
#[unsafe(no_mangle)]
extern "C-unwind" fn fcntl(fd: c_int, command: c_int, arg: *mut c_void) -> c_int {
    let result = real::fcntl(fd, command, arg);
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => process::duplicated(fd, result),
        libc::F_SETFL if arg.addr() & libc::O_ASYNC as usize != 0 => stay(fd),
        _ => {}
    }
    result
}

#[unsafe(no_mangle)]
extern "C-unwind" fn fcntl64(fd: c_int, command: c_int, arg: *mut c_void) -> c_int {
    fcntl(fd, command, arg)
}

fn stay(fd: c_int) {
    if let Some(conn) = conn::of(fd) {
        conn.stay_on_kernel(Why::Option);
    }
}

/// Streams of the C library do not call the functions of this library.
#[unsafe(no_mangle)]
extern "C-unwind" fn fdopen(fd: c_int, mode: *const c_char) -> *mut c_void {
    process::given_away(fd);
    real::fdopen(fd, mode)
}

/// Returns true for socket options that only the kernel can implement.
fn is_special(level: c_int, name: c_int) -> bool {
    const TCP_REPAIR: c_int = 19;
    const TCP_ULP: c_int = 31;
    const TCP_INQ: c_int = 36;
    match level {
        libc::SOL_SOCKET => matches!(
            name,
            libc::SO_RCVLOWAT
                | libc::SO_ZEROCOPY
                | libc::SO_TIMESTAMP
                | libc::SO_TIMESTAMPNS
                | libc::SO_TIMESTAMPING
                | libc::SO_OOBINLINE
        ),
        libc::IPPROTO_TCP => matches!(name, TCP_REPAIR | TCP_ULP | TCP_INQ),
        _ => false,
    }
}

#[unsafe(no_mangle)]
extern "C-unwind" fn setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: socklen_t,
) -> c_int {
    if is_special(level, name) {
        stay(fd);
    }
    let result = real::setsockopt(fd, level, name, value, len);
    if level == libc::IPPROTO_TCP
        && name == libc::TCP_NODELAY
        && let Some(ends) = conn::of(fd).and_then(|conn| conn.joined())
    {
        join::note_delay(fd, ends.outgoing().writer());
    }
    result
}

/// Notices io_uring. The arguments are passed like those of a function with a variable number.
#[unsafe(no_mangle)]
extern "C-unwind" fn syscall(
    number: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> c_long {
    if number == libc::SYS_io_uring_setup && process::is_own_memory() {
        bypass::found();
    }
    real::syscall(number, a, b, c, d, e, f)
}

fn created(epoll: c_int) -> c_int {
    if epoll >= 0 && process::is_own_memory() {
        epoll::track(epoll);
    }
    epoll
}

#[unsafe(no_mangle)]
extern "C-unwind" fn epoll_create(size: c_int) -> c_int {
    created(real::epoll_create(size))
}

#[unsafe(no_mangle)]
extern "C-unwind" fn epoll_create1(flags: c_int) -> c_int {
    created(real::epoll_create1(flags))
}
