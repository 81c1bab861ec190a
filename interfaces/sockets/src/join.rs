// SPDX-License-Identifier: MIT OR Apache-2.0
//! Discovery: both ends of a connection find each other outside of it, without a byte in its
//! stream.
//!
//! After some calls the end that called `connect` listens on an abstract socket whose name consists
//! of the user and the connection's addresses. Abstract names belong to the network namespace, as
//! the addresses do. The accepting end connects to that name, and passes the memory file of a new
//! segment. Each end repeats its search after twice as many calls, so an end that is alone makes
//! few system calls.
//!
//! Each end begins to count at the kernel's own positions in both streams.
#![allow(unsafe_code)]

use crate::conn::{self, ABSENT, Conn, JOINED, JOINING, PLAIN};
use crate::process::own_fd;
use crate::segment::{Segment, WriterState};
use crate::stats::Why;
use crate::{bypass, errno, real};
use libc::{c_int, c_void, socklen_t};
use std::io::Write as _;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::sync::atomic::Ordering;

/// Established, of the kernel's `include/net/tcp_states.h`.
const ESTABLISHED: u8 = 1;

/// Bytes of a control message with one descriptor, and more than any alignment needs.
const CONTROL: usize = 64;

/// The searching end's result.
enum Found {
    Segment(Segment),
    /// The other end may come later.
    NotYet,
    /// The other end cannot be found.
    Never(Why),
}

/// Counts a call on `conn`, and joins both ends when a search is due.
pub(crate) fn count(conn: &conn::ConnRef, fd: i32) {
    if conn.state() == PLAIN && conn.count_call() && conn.join_lock.lock().is_ok() {
        let error = errno::last();
        if conn.state() == PLAIN {
            attempt(conn, fd);
        }
        conn.join_lock.unlock();
        errno::set(error);
    }
}

fn attempt(conn: &conn::ConnRef, fd: i32) {
    // Retry later: a shared connection, or one that a thread sleeps on, may become available.
    let more = conn.try_later();
    if bypass::is_used() {
        conn.stay_on_kernel(Why::Bypass);
        conn.set_state(ABSENT);
        return conn.close_listener();
    }
    if !conn.is_sole_user() {
        return finish(conn, more);
    }
    conn.set_state(JOINING);
    if !conn.is_quiet() {
        conn.set_state(PLAIN);
        return finish(conn, more);
    }
    let found = search(conn, fd);
    match found {
        Found::Segment(segment) => {
            conn.close_listener();
            conn.set_segment(segment);
            conn.set_state(JOINED);
        }
        Found::NotYet => {
            conn.set_state(PLAIN);
            finish(conn, more);
        }
        Found::Never(why) => {
            conn.stay_on_kernel(why);
            conn.close_listener();
            conn.set_state(ABSENT);
        }
    }
}

/// Ends the search after the last attempt.
fn finish(conn: &Conn, more: bool) {
    if !more {
        conn.stay_on_kernel(Why::Alone);
        conn.close_listener();
        conn.set_state(ABSENT);
    }
}

fn search(conn: &conn::ConnRef, fd: i32) -> Found {
    if option(fd, libc::SOL_SOCKET, libc::SO_PROTOCOL) != Some(libc::IPPROTO_TCP) {
        return Found::Never(Why::Elsewhere);
    }
    let Some((name, len)) = name(fd, conn.end() == 1) else {
        return Found::Never(Why::Elsewhere);
    };
    match conn.end() {
        1 => await_other(conn, fd, &name, len),
        _ => connect_to_other(fd, &name, len),
    }
}

/// Returns an option of a socket that is a number.
pub(crate) fn option(fd: i32, level: c_int, name: c_int) -> Option<c_int> {
    let mut value: c_int = 0;
    let mut len = socklen::<c_int>();
    // SAFETY: the value has the given length.
    let got = unsafe { libc::getsockopt(fd, level, name, (&raw mut value).cast(), &raw mut len) };
    (got == 0).then_some(value)
}

/// Returns the kernel's number of a socket, which no other socket ever has.
pub(crate) fn cookie(fd: i32) -> Option<u64> {
    /// Of the kernel's `include/uapi/asm-generic/socket.h`.
    const SO_COOKIE: c_int = 57;
    let mut value = 0_u64;
    let mut len = socklen::<u64>();
    let place = (&raw mut value).cast();
    // SAFETY: the value has the given length.
    let got = unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, SO_COOKIE, place, &raw mut len) };
    (got == 0).then_some(value)
}

fn socklen<T>() -> socklen_t {
    socklen_t::try_from(size_of::<T>()).unwrap_or(0)
}

/// The address and the port of one end; IPv4 as an IPv6 address.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Place {
    address: [u8; 16],
    port: [u8; 2],
}

impl Place {
    fn is_loopback(&self) -> bool {
        self.address == std::net::Ipv6Addr::LOCALHOST.octets() || self.address[..13] == V4_LOOPBACK
    }
}

const V4_LOOPBACK: [u8; 13] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127];

type Query = unsafe extern "C" fn(c_int, *mut libc::sockaddr, *mut socklen_t) -> c_int;

fn place(fd: i32, query: Query) -> Option<Place> {
    // SAFETY: zero is a valid value of all fields.
    let mut storage: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let mut len = socklen::<libc::sockaddr_storage>();
    // SAFETY: the storage has the given length.
    if unsafe { query(fd, (&raw mut storage).cast(), &raw mut len) } != 0 {
        return None;
    }
    match c_int::from(storage.ss_family) {
        libc::AF_INET => {
            // SAFETY: the storage is larger than any address, and aligned for all.
            let v4 = unsafe { *(&raw const storage).cast::<libc::sockaddr_in>() };
            let address = std::net::Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
            Some(Place {
                address: address.to_ipv6_mapped().octets(),
                port: v4.sin_port.to_ne_bytes(),
            })
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let v6 = unsafe { *(&raw const storage).cast::<libc::sockaddr_in6>() };
            Some(Place {
                address: v6.sin6_addr.s6_addr,
                port: v6.sin6_port.to_ne_bytes(),
            })
        }
        _ => None,
    }
}

/// Returns the abstract name of a connection within this host.
fn name(fd: i32, is_client: bool) -> Option<(libc::sockaddr_un, socklen_t)> {
    let own = place(fd, libc::getsockname)?;
    let other = place(fd, libc::getpeername)?;
    // Another host may have the same loopback address, but then no end is found here.
    if own.address != other.address && !(own.is_loopback() && other.is_loopback()) {
        return None;
    }
    let (client, server) = if is_client {
        (own, other)
    } else {
        (other, own)
    };
    // SAFETY: zero is a valid value of all fields.
    let mut name: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    name.sun_family = libc::sa_family_t::try_from(libc::AF_UNIX).ok()?;
    let mut bytes = [0_u8; 107];
    let mut rest = &mut bytes[..];
    // SAFETY: `geteuid` has no preconditions.
    let user = unsafe { libc::geteuid() };
    write!(rest, "portolan-sockets/{user}/").ok()?;
    for end in [client, server] {
        for byte in end.address.iter().chain(&end.port) {
            write!(rest, "{byte:02x}").ok()?;
        }
    }
    let used = 107 - rest.len();
    for (place, byte) in name.sun_path[1..].iter_mut().zip(&bytes[..used]) {
        *place = libc::c_char::from_ne_bytes([*byte]);
    }
    let len = std::mem::offset_of!(libc::sockaddr_un, sun_path) + 1 + used;
    Some((name, socklen_t::try_from(len).ok()?))
}

/// Returns the bytes that were ever written to and read from a connection.
fn positions(fd: i32, is_client: bool) -> Option<(u64, u64)> {
    for _ in 0..10 {
        let before = info(fd)?;
        let (unacknowledged, unread) = (queued(fd, libc::TIOCOUTQ)?, queued(fd, libc::FIONREAD)?);
        let after = info(fd)?;
        if before == after {
            // The kernel counts the end's own SYN as acknowledged, only at the connecting end.
            let sent = after.0.checked_sub(u64::from(is_client))?;
            return Some((sent + unacknowledged, after.1.checked_sub(unread)?));
        }
    }
    None
}

/// Returns the bytes acknowledged and received, if the connection is established
/// (`tcpi_bytes_acked` of the kernel's `include/uapi/linux/tcp.h`).
fn info(fd: i32) -> Option<(u64, u64)> {
    let mut info = [0_u64; 32];
    let mut len = socklen::<[u64; 32]>();
    let value = info.as_mut_ptr().cast::<c_void>();
    // SAFETY: the value has the given length.
    let got =
        unsafe { libc::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, value, &raw mut len) };
    let state = info[0].to_le_bytes()[0];
    // The fields are at bytes 120 and 128.
    (got == 0 && len >= 136 && state == ESTABLISHED).then_some((info[15], info[16]))
}

fn queued(fd: i32, request: libc::c_ulong) -> Option<u64> {
    let mut len: c_int = 0;
    if real::ioctl(fd, request, (&raw mut len).cast()) != 0 {
        return None;
    }
    u64::try_from(len).ok()
}

/// Stores whether the end's kernel delays short segments (without `TCP_NODELAY`).
pub(crate) fn note_delay(fd: i32, writer: &WriterState) {
    let delays = option(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY) == Some(0);
    writer.delays.store(u32::from(delays), Ordering::Relaxed);
}

/// Sends the acknowledgement that the kernel holds back for a segment of this end.
pub(crate) fn acknowledge(fd: i32) {
    let error = errno::last();
    let value: c_int = 1;
    let place = (&raw const value).cast();
    real::setsockopt(
        fd,
        libc::IPPROTO_TCP,
        libc::TCP_QUICKACK,
        place,
        socklen::<c_int>(),
    );
    errno::set(error);
}

/// Stores this end's positions in the segment, before the other end may use them.
fn begin(segment: Segment, end: usize, fd: i32, (sent, received): (u64, u64)) {
    let incoming = segment.half(1 - end);
    incoming
        .reader()
        .received
        .store(received, Ordering::Release);
    let writer = segment.half(end).writer();
    note_delay(fd, writer);
    writer
        .cookie
        .store(cookie(fd).unwrap_or(0), Ordering::Relaxed);
    writer.kernel_sent.store(sent, Ordering::Release);
    // SYNC: join.ready
    writer.ready.store(1, Ordering::Release);
}

/// Returns true if the other end of a Unix socket has this process's user.
fn is_own_user(fd: i32) -> bool {
    let mut peer = libc::ucred {
        pid: 0,
        uid: u32::MAX,
        gid: 0,
    };
    let mut len = socklen::<libc::ucred>();
    let value = (&raw mut peer).cast();
    // SAFETY: the value has the given length; `geteuid` has no preconditions.
    unsafe {
        libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_PEERCRED, value, &raw mut len) == 0
            && peer.uid == libc::geteuid()
    }
}

fn unix_socket() -> Option<OwnedFd> {
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: `socket` has no preconditions.
    let fd = unsafe { libc::socket(libc::AF_UNIX, kind, 0) };
    // SAFETY: a new descriptor has no other owner.
    (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The accepting end: passes a new segment to the connecting end, if that listens.
fn connect_to_other(fd: i32, name: &libc::sockaddr_un, len: socklen_t) -> Found {
    let Some(socket) = unix_socket() else {
        return Found::Never(Why::NoMemory);
    };
    if real::connect(socket.as_raw_fd(), std::ptr::from_ref(name).cast(), len) != 0 {
        return Found::NotYet;
    }
    if !is_own_user(socket.as_raw_fd()) {
        return Found::Never(Why::Elsewhere);
    }
    let Ok((segment, file)) = Segment::create() else {
        return Found::Never(Why::NoMemory);
    };
    let Some(positions) = positions(fd, false) else {
        segment.unmap();
        return Found::NotYet;
    };
    begin(segment, 0, fd, positions);
    if send_file(socket.as_raw_fd(), file.as_raw_fd()) {
        return Found::Segment(segment);
    }
    segment.unmap();
    Found::NotYet
}

/// The connecting end: listens, and takes the segment when the accepting end has connected.
fn await_other(conn: &Conn, fd: i32, name: &libc::sockaddr_un, len: socklen_t) -> Found {
    let Some(listener) = conn.listener() else {
        return listen(conn, name, len);
    };
    let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    let other = real::accept4(listener, std::ptr::null_mut(), std::ptr::null_mut(), flags);
    if other < 0 {
        return Found::NotYet;
    }
    // SAFETY: a new descriptor has no other owner.
    let other = unsafe { OwnedFd::from_raw_fd(other) };
    if !is_own_user(other.as_raw_fd()) {
        return Found::NotYet;
    }
    let Some(segment) = receive_file(other.as_raw_fd()).and_then(|file| Segment::open(&file))
    else {
        return Found::NotYet;
    };
    let Some(positions) = positions(fd, true) else {
        segment.unmap();
        return Found::Never(Why::Alone);
    };
    begin(segment, 1, fd, positions);
    Found::Segment(segment)
}

fn listen(conn: &Conn, name: &libc::sockaddr_un, len: socklen_t) -> Found {
    let Some(socket) = unix_socket() else {
        return Found::Never(Why::NoMemory);
    };
    let raw = socket.as_raw_fd();
    // SAFETY: `name` has at least `len` bytes; the descriptor is open.
    let listens = unsafe {
        libc::bind(raw, std::ptr::from_ref(name).cast(), len) == 0 && libc::listen(raw, 1) == 0
    };
    let own = if listens {
        own_fd(socket.into_raw_fd())
    } else {
        -1
    };
    if own < 0 {
        return Found::Never(Why::NoMemory);
    }
    conn.set_listener(own);
    Found::NotYet
}

/// A message of one byte with room for a descriptor.
#[repr(C, align(8))]
struct Parcel {
    control: [u8; CONTROL],
    byte: u8,
}

impl Parcel {
    /// Calls `use_it` with the header of the message.
    fn with<R>(&mut self, use_it: impl FnOnce(&mut libc::msghdr) -> R) -> R {
        let mut vector = libc::iovec {
            iov_base: (&raw mut self.byte).cast(),
            iov_len: 1,
        };
        // SAFETY: zero is a valid value of all fields.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_iov = &raw mut vector;
        header.msg_iovlen = 1;
        header.msg_control = self.control.as_mut_ptr().cast();
        header.msg_controllen = CONTROL as _;
        use_it(&mut header)
    }
}

fn send_file(socket: i32, file: i32) -> bool {
    let mut parcel = Parcel {
        control: [0; CONTROL],
        byte: 1,
    };
    parcel.with(|header| {
        // SAFETY: the control buffer is aligned and has room for one message with a descriptor.
        unsafe {
            let space = libc::CMSG_SPACE(4);
            header.msg_controllen = space as _;
            let message = libc::CMSG_FIRSTHDR(header);
            (*message).cmsg_level = libc::SOL_SOCKET;
            (*message).cmsg_type = libc::SCM_RIGHTS;
            (*message).cmsg_len = libc::CMSG_LEN(4) as _;
            libc::CMSG_DATA(message)
                .cast::<c_int>()
                .write_unaligned(file);
        }
        real::sendmsg(socket, header, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT) == 1
    })
}

fn receive_file(socket: i32) -> Option<OwnedFd> {
    let mut parcel = Parcel {
        control: [0; CONTROL],
        byte: 0,
    };
    parcel.with(|header| {
        let flags = libc::MSG_CMSG_CLOEXEC | libc::MSG_DONTWAIT;
        if real::recvmsg(socket, header, flags) != 1 {
            return None;
        }
        // SAFETY: the kernel wrote whole control messages into the aligned buffer, and a received
        // descriptor has no other owner.
        unsafe {
            let message = libc::CMSG_FIRSTHDR(header);
            if message.is_null() || (*message).cmsg_type != libc::SCM_RIGHTS {
                return None;
            }
            let file = libc::CMSG_DATA(message).cast::<c_int>().read_unaligned();
            Some(OwnedFd::from_raw_fd(file))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn positions_are_the_bytes_written_and_read_at_both_ends() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        client.write_all(&[1; 100]).unwrap();
        server.write_all(&[2; 37]).unwrap();
        server.read_exact(&mut [0; 60]).unwrap();
        client.read_exact(&mut [0; 7]).unwrap();
        assert_eq!(positions(client.as_raw_fd(), true), Some((100, 7)));
        assert_eq!(positions(server.as_raw_fd(), false), Some((37, 60)));
        client.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(positions(client.as_raw_fd(), true), None);
    }

    #[test]
    fn both_ends_derive_the_same_name() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let listener = TcpListener::bind(address).unwrap();
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (server, _) = listener.accept().unwrap();
            let (one, len) = name(client.as_raw_fd(), true).unwrap();
            let (two, other_len) = name(server.as_raw_fd(), false).unwrap();
            assert_eq!((one.sun_path, len), (two.sun_path, other_len));
        }
    }
}
