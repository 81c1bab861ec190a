// SPDX-License-Identifier: MIT OR Apache-2.0
//! The C library's own functions, which the functions of this library hide.
//!
//! Each is a safe function here, although it has pointers: they come unchanged from the program's
//! call of the same function, or point to memory of the caller.
#![allow(unsafe_code)]

use libc::{
    c_char, c_int, c_long, c_uint, c_ulong, c_void, epoll_event, fd_set, iovec, mmsghdr, msghdr,
    nfds_t, off_t, pid_t, pollfd, sigset_t, size_t, sockaddr, socklen_t, ssize_t, timespec,
    timeval,
};
use std::ffi::CStr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Returns the next definition of `name` after this library.
fn next(name: &CStr) -> *mut c_void {
    // SAFETY: `name` ends with a zero byte.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    if found.is_null() {
        // Nothing can be returned to the program: its C library lacks the function that it calls.
        // SAFETY: `abort` has no preconditions.
        unsafe { libc::abort() }
    }
    found
}

macro_rules! real {
    ($($name:ident($($arg:ident: $type:ty),*) -> $result:ty;)*) => {$(
        pub(crate) fn $name($($arg: $type),*) -> $result {
            static FOUND: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
            let mut found = FOUND.load(Ordering::Relaxed);
            if found.is_null() {
                let name = concat!(stringify!($name), "\0").as_bytes();
                found = next(CStr::from_bytes_with_nul(name).unwrap_or(c""));
                FOUND.store(found, Ordering::Relaxed);
            }
            // SAFETY: `found` is the C library's function of this name, which has this type. It
            // may unwind, because a blocked call is a cancellation point. The arguments are
            // covered by the module's contract.
            unsafe {
                let call: unsafe extern "C-unwind" fn($($type),*) -> $result =
                    std::mem::transmute(found);
                call($($arg),*)
            }
        }
    )*};
}

real! {
    read(fd: c_int, buf: *mut c_void, len: size_t) -> ssize_t;
    readv(fd: c_int, iov: *const iovec, count: c_int) -> ssize_t;
    recv(fd: c_int, buf: *mut c_void, len: size_t, flags: c_int) -> ssize_t;
    recvfrom(fd: c_int, buf: *mut c_void, len: size_t, flags: c_int, addr: *mut sockaddr,
        addr_len: *mut socklen_t) -> ssize_t;
    recvmsg(fd: c_int, msg: *mut msghdr, flags: c_int) -> ssize_t;
    recvmmsg(fd: c_int, msgs: *mut mmsghdr, count: c_uint, flags: c_int, timeout: *mut timespec)
        -> c_int;
    write(fd: c_int, buf: *const c_void, len: size_t) -> ssize_t;
    writev(fd: c_int, iov: *const iovec, count: c_int) -> ssize_t;
    send(fd: c_int, buf: *const c_void, len: size_t, flags: c_int) -> ssize_t;
    sendto(fd: c_int, buf: *const c_void, len: size_t, flags: c_int, addr: *const sockaddr,
        addr_len: socklen_t) -> ssize_t;
    sendmsg(fd: c_int, msg: *const msghdr, flags: c_int) -> ssize_t;
    sendmmsg(fd: c_int, msgs: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int;
    sendfile(out: c_int, input: c_int, offset: *mut off_t, len: size_t) -> ssize_t;
    splice(input: c_int, in_offset: *mut i64, out: c_int, out_offset: *mut i64, len: size_t,
        flags: c_uint) -> ssize_t;
    connect(fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int;
    accept(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int;
    accept4(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t, flags: c_int) -> c_int;
    shutdown(fd: c_int, how: c_int) -> c_int;
    setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, len: socklen_t)
        -> c_int;
    ioctl(fd: c_int, request: c_ulong, arg: *mut c_void) -> c_int;
    fcntl(fd: c_int, command: c_int, arg: *mut c_void) -> c_int;
    close(fd: c_int) -> c_int;
    close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int;
    dup(fd: c_int) -> c_int;
    dup2(fd: c_int, to: c_int) -> c_int;
    dup3(fd: c_int, to: c_int, flags: c_int) -> c_int;
    fdopen(fd: c_int, mode: *const c_char) -> *mut c_void;
    poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int;
    ppoll(fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t)
        -> c_int;
    select(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set,
        timeout: *mut timeval) -> c_int;
    pselect(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set,
        timeout: *const timespec, mask: *const sigset_t) -> c_int;
    epoll_create(size: c_int) -> c_int;
    epoll_create1(flags: c_int) -> c_int;
    epoll_ctl(epoll: c_int, op: c_int, fd: c_int, event: *mut epoll_event) -> c_int;
    epoll_wait(epoll: c_int, events: *mut epoll_event, most: c_int, timeout: c_int) -> c_int;
    epoll_pwait(epoll: c_int, events: *mut epoll_event, most: c_int, timeout: c_int,
        mask: *const sigset_t) -> c_int;
    epoll_pwait2(epoll: c_int, events: *mut epoll_event, most: c_int, timeout: *const timespec,
        mask: *const sigset_t) -> c_int;
    execve(path: *const c_char, argv: *const *const c_char, envp: *const *const c_char) -> c_int;
    execvpe(file: *const c_char, argv: *const *const c_char, envp: *const *const c_char) -> c_int;
    fexecve(fd: c_int, argv: *const *const c_char, envp: *const *const c_char) -> c_int;
    posix_spawn(pid: *mut pid_t, path: *const c_char, actions: *const c_void, attr: *const c_void,
        argv: *const *const c_char, envp: *const *const c_char) -> c_int;
    posix_spawnp(pid: *mut pid_t, file: *const c_char, actions: *const c_void,
        attr: *const c_void, argv: *const *const c_char, envp: *const *const c_char) -> c_int;
    posix_spawn_file_actions_adddup2(actions: *mut c_void, fd: c_int, to: c_int) -> c_int;
    syscall(number: c_long, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> c_long;
    _exit(status: c_int) -> !;
    system(command: *const c_char) -> c_int;
    popen(command: *const c_char, mode: *const c_char) -> *mut c_void;
}
