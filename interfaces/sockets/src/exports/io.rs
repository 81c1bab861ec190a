// SPDX-License-Identifier: MIT OR Apache-2.0
//! Functions that read and write.

use crate::conn;
use crate::give_back;
use crate::real;
use crate::recv::{self, Received};
use crate::send;
use crate::stats::Why;
use crate::table::{self, Kind};
use libc::{
    c_int, c_uint, c_void, iovec, mmsghdr, msghdr, off_t, size_t, sockaddr, socklen_t, ssize_t,
    timespec,
};

fn is_conn(fd: c_int) -> bool {
    matches!(table::kind(fd), Kind::Conn(_))
}

fn vector(buf: *const c_void, len: size_t) -> iovec {
    iovec {
        iov_base: buf.cast_mut(),
        iov_len: len,
    }
}

fn count(count: c_int) -> usize {
    // The kernel refuses a negative number, and `Cursor` a large one.
    usize::try_from(count).unwrap_or(usize::MAX)
}

fn receive_one(
    fd: c_int,
    buf: *mut c_void,
    len: size_t,
    flags: c_int,
    kernel: impl FnMut() -> ssize_t,
) -> Received {
    let vector = vector(buf, len);
    let call = recv::Call {
        fd,
        vectors: &raw const vector,
        count: 1,
        flags,
    };
    recv::receive(&call, kernel)
}

fn send_one(
    fd: c_int,
    buf: *const c_void,
    len: size_t,
    flags: c_int,
    kernel: impl FnMut() -> ssize_t,
) -> ssize_t {
    let vector = vector(buf, len);
    let call = send::Call {
        fd,
        vectors: &raw const vector,
        count: 1,
        flags,
        is_plain: true,
    };
    send::send(&call, kernel)
}

#[unsafe(no_mangle)]
extern "C-unwind" fn read(fd: c_int, buf: *mut c_void, len: size_t) -> ssize_t {
    if !is_conn(fd) {
        return real::read(fd, buf, len);
    }
    receive_one(fd, buf, len, 0, || real::read(fd, buf, len)).result()
}

#[unsafe(no_mangle)]
extern "C-unwind" fn __read_chk(fd: c_int, buf: *mut c_void, len: size_t, room: size_t) -> ssize_t {
    check(len, room);
    read(fd, buf, len)
}

/// Aborts the process like the C library's fortified functions.
fn check(len: size_t, room: size_t) {
    if len > room {
        std::process::abort();
    }
}

#[unsafe(no_mangle)]
extern "C-unwind" fn readv(fd: c_int, vectors: *const iovec, number: c_int) -> ssize_t {
    if !is_conn(fd) {
        return real::readv(fd, vectors, number);
    }
    let call = recv::Call {
        fd,
        vectors,
        count: count(number),
        flags: 0,
    };
    recv::receive(&call, || real::readv(fd, vectors, number)).result()
}

#[unsafe(no_mangle)]
extern "C-unwind" fn recv(fd: c_int, buf: *mut c_void, len: size_t, flags: c_int) -> ssize_t {
    if !is_conn(fd) {
        return real::recv(fd, buf, len, flags);
    }
    receive_one(fd, buf, len, flags, || real::recv(fd, buf, len, flags)).result()
}

#[unsafe(no_mangle)]
extern "C-unwind" fn __recv_chk(
    fd: c_int,
    buf: *mut c_void,
    len: size_t,
    room: size_t,
    flags: c_int,
) -> ssize_t {
    check(len, room);
    recv(fd, buf, len, flags)
}

#[unsafe(no_mangle)]
extern "C-unwind" fn recvfrom(
    fd: c_int,
    buf: *mut c_void,
    len: size_t,
    flags: c_int,
    addr: *mut sockaddr,
    addr_len: *mut socklen_t,
) -> ssize_t {
    let mut kernel = || real::recvfrom(fd, buf, len, flags, addr, addr_len);
    if !is_conn(fd) {
        return kernel();
    }
    let received = receive_one(fd, buf, len, flags, &mut kernel);
    if let Received::FromRing(0..) = received
        && !addr.is_null()
        && !addr_len.is_null()
    {
        // TCP gives no address. SAFETY: the program passes a valid pointer.
        unsafe { *addr_len = 0 };
    }
    received.result()
}

#[unsafe(no_mangle)]
extern "C-unwind" fn __recvfrom_chk(
    fd: c_int,
    buf: *mut c_void,
    len: size_t,
    room: size_t,
    flags: c_int,
    addr: *mut sockaddr,
    addr_len: *mut socklen_t,
) -> ssize_t {
    check(len, room);
    recvfrom(fd, buf, len, flags, addr, addr_len)
}

#[unsafe(no_mangle)]
extern "C-unwind" fn recvmsg(fd: c_int, msg: *mut msghdr, flags: c_int) -> ssize_t {
    if !is_conn(fd) || msg.is_null() {
        return real::recvmsg(fd, msg, flags);
    }
    // SAFETY: the program's call vouches for the message.
    let (vectors, count) = unsafe { ((*msg).msg_iov, (*msg).msg_iovlen) };
    let call = recv::Call {
        fd,
        vectors,
        count,
        flags,
    };
    let received = recv::receive(&call, || real::recvmsg(fd, msg, flags));
    if let Received::FromRing(0..) = received {
        // SAFETY: as above.
        unsafe {
            (*msg).msg_namelen = 0;
            (*msg).msg_controllen = 0;
            (*msg).msg_flags = 0;
        }
    }
    received.result()
}

#[unsafe(no_mangle)]
extern "C-unwind" fn recvmmsg(
    fd: c_int,
    msgs: *mut mmsghdr,
    number: c_uint,
    flags: c_int,
    timeout: *mut timespec,
) -> c_int {
    if !is_conn(fd) || msgs.is_null() {
        return real::recvmmsg(fd, msgs, number, flags, timeout);
    }
    let mut done = 0;
    for index in 0..number as usize {
        let wait = if done > 0 { libc::MSG_DONTWAIT } else { 0 };
        // SAFETY: the program's call vouches for `number` messages.
        let one = unsafe { msgs.add(index) };
        // SAFETY: as above.
        let got = recvmsg(fd, unsafe { &raw mut (*one).msg_hdr }, flags | wait);
        let Ok(len) = u32::try_from(got) else {
            return if done > 0 { done } else { -1 };
        };
        // SAFETY: as above.
        unsafe { (*one).msg_len = len };
        done += 1;
        if len == 0 {
            break;
        }
    }
    done
}

#[unsafe(no_mangle)]
extern "C-unwind" fn write(fd: c_int, buf: *const c_void, len: size_t) -> ssize_t {
    if !is_conn(fd) {
        return real::write(fd, buf, len);
    }
    send_one(fd, buf, len, 0, || real::write(fd, buf, len))
}

#[unsafe(no_mangle)]
extern "C-unwind" fn writev(fd: c_int, vectors: *const iovec, number: c_int) -> ssize_t {
    if !is_conn(fd) {
        return real::writev(fd, vectors, number);
    }
    let call = send::Call {
        fd,
        vectors,
        count: count(number),
        flags: 0,
        is_plain: true,
    };
    send::send(&call, || real::writev(fd, vectors, number))
}

#[unsafe(no_mangle)]
extern "C-unwind" fn send(fd: c_int, buf: *const c_void, len: size_t, flags: c_int) -> ssize_t {
    if !is_conn(fd) {
        return real::send(fd, buf, len, flags);
    }
    send_one(fd, buf, len, flags, || real::send(fd, buf, len, flags))
}

#[unsafe(no_mangle)]
extern "C-unwind" fn sendto(
    fd: c_int,
    buf: *const c_void,
    len: size_t,
    flags: c_int,
    addr: *const sockaddr,
    addr_len: socklen_t,
) -> ssize_t {
    // A connected TCP socket ignores the address.
    let mut kernel = || real::sendto(fd, buf, len, flags, addr, addr_len);
    if !is_conn(fd) {
        return kernel();
    }
    send_one(fd, buf, len, flags, &mut kernel)
}

#[unsafe(no_mangle)]
extern "C-unwind" fn sendmsg(fd: c_int, msg: *const msghdr, flags: c_int) -> ssize_t {
    if msg.is_null() {
        return real::sendmsg(fd, msg, flags);
    }
    // SAFETY: the program's call vouches for the message.
    let (vectors, count, control) =
        unsafe { ((*msg).msg_iov, (*msg).msg_iovlen, (*msg).msg_controllen > 0) };
    if control {
        passes_descriptors(msg);
    }
    if !is_conn(fd) {
        return real::sendmsg(fd, msg, flags);
    }
    let call = send::Call {
        fd,
        vectors,
        count,
        flags,
        is_plain: !control,
    };
    send::send(&call, || real::sendmsg(fd, msg, flags))
}

/// Returns the connections of descriptors in control messages to the kernel, because another
/// process will receive them.
fn passes_descriptors(msg: *const msghdr) {
    // SAFETY: the program passes a valid message and control messages.
    unsafe {
        let mut control = libc::CMSG_FIRSTHDR(msg);
        while !control.is_null() {
            if (*control).cmsg_level == libc::SOL_SOCKET && (*control).cmsg_type == libc::SCM_RIGHTS
            {
                let data = libc::CMSG_DATA(control).cast::<c_int>();
                let len = ((*control).cmsg_len as usize).saturating_sub(libc::CMSG_LEN(0) as usize);
                for index in 0..len / size_of::<c_int>() {
                    let fd = data.add(index).read_unaligned();
                    if let Some(conn) = conn::of(fd) {
                        give_back::hand_over(&conn, fd, Why::Passed);
                    }
                }
            }
            control = libc::CMSG_NXTHDR(msg, control);
        }
    }
}

#[unsafe(no_mangle)]
extern "C-unwind" fn sendmmsg(
    fd: c_int,
    msgs: *mut mmsghdr,
    number: c_uint,
    flags: c_int,
) -> c_int {
    if !is_conn(fd) || msgs.is_null() {
        return real::sendmmsg(fd, msgs, number, flags);
    }
    let mut done = 0;
    for index in 0..number as usize {
        // SAFETY: the program's call vouches for `number` messages.
        let one = unsafe { msgs.add(index) };
        // SAFETY: as above.
        let sent = sendmsg(fd, unsafe { &raw const (*one).msg_hdr }, flags);
        let Ok(len) = u32::try_from(sent) else {
            return if done > 0 { done } else { -1 };
        };
        // SAFETY: as above.
        unsafe { (*one).msg_len = len };
        done += 1;
    }
    done
}

#[unsafe(no_mangle)]
extern "C-unwind" fn sendfile(
    out: c_int,
    input: c_int,
    offset: *mut off_t,
    len: size_t,
) -> ssize_t {
    send::by_kernel(out, || real::sendfile(out, input, offset, len))
}

#[unsafe(no_mangle)]
extern "C-unwind" fn sendfile64(
    out: c_int,
    input: c_int,
    offset: *mut off_t,
    len: size_t,
) -> ssize_t {
    sendfile(out, input, offset, len)
}

#[unsafe(no_mangle)]
extern "C-unwind" fn splice(
    input: c_int,
    in_offset: *mut i64,
    out: c_int,
    out_offset: *mut i64,
    len: size_t,
    flags: c_uint,
) -> ssize_t {
    let kernel = || real::splice(input, in_offset, out, out_offset, len, flags);
    if is_conn(out) {
        return send::by_kernel(out, kernel);
    }
    if !is_conn(input) {
        return kernel();
    }
    recv::splice(input, out, len, flags, kernel)
}

#[unsafe(no_mangle)]
extern "C-unwind" fn ioctl(fd: c_int, request: libc::c_ulong, arg: *mut c_void) -> c_int {
    let result = real::ioctl(fd, request, arg);
    if result != 0 || !is_conn(fd) {
        return result;
    }
    let Some(conn) = conn::of(fd) else {
        return result;
    };
    let ends = conn.joined();
    let more = match (request, ends) {
        (libc::FIONREAD, Some(ends)) => ends.incoming().len(),
        (libc::TIOCOUTQ, Some(ends)) => ends.outgoing().len(),
        (libc::FIOASYNC, _) => {
            conn.stay_on_kernel(Why::Option);
            return result;
        }
        _ => return result,
    };
    // SAFETY: both requests store a number at the valid pointer that the program passes.
    unsafe { *arg.cast::<c_int>() += c_int::try_from(more).unwrap_or(0) };
    result
}

#[unsafe(no_mangle)]
extern "C-unwind" fn shutdown(fd: c_int, how: c_int) -> c_int {
    if how != libc::SHUT_RD
        && let Some(conn) = conn::of(fd)
        && let Some(ends) = conn.joined()
    {
        // Stored before bytes are returned: this thread waits for a reader that is returning bytes,
        // and later readers see the flag and do not start.
        let writer = ends.outgoing().writer();
        writer.shut.store(1, std::sync::atomic::Ordering::SeqCst);
        give_back::await_reader(ends.outgoing());
        give_back::outgoing(&conn, fd);
    }
    real::shutdown(fd, how)
}
