// SPDX-License-Identifier: MIT OR Apache-2.0
//! The error queue of a datagram socket: errors of datagrams sent earlier (ip(7), `IP_RECVERR`).
#![allow(unsafe_code, reason = "control messages are walked by pointer")]

use super::{SockAddr, checked_len};
use crate::usage::{self, Call};
use libc::{c_int, cmsghdr, msghdr, sock_extended_err, sockaddr_in, sockaddr_in6};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

/// Source of an error report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorOrigin {
    /// The kernel of this host.
    Local,
    /// A router or the destination, by ICMP. Forgeable by anyone that guesses the ports.
    Icmp,
    /// Another source, such as a time stamp.
    Other,
}

/// One entry of a socket's error queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketError {
    /// The errno.
    pub errno: i32,
    /// Source of the report.
    pub origin: ErrorOrigin,
    /// With `EMSGSIZE`, the MTU that would have passed.
    pub info: u32,
    /// Destination of the datagram.
    pub destination: Option<SocketAddr>,
    /// Sender of the ICMP message; this host itself if address resolution failed.
    pub offender: Option<IpAddr>,
}

/// Space for one `sock_extended_err` followed by the offender's address, and for control messages
/// that other options may add before it.
const CONTROL_LEN: usize = 256;

#[repr(C, align(8))]
struct Control([u8; CONTROL_LEN]);

/// Reads one entry of the error queue, or returns `None` if it is empty. Also clears the socket's
/// pending error.
///
/// # Errors
/// The errno of `recvmsg`.
pub fn recv_error(fd: BorrowedFd<'_>) -> io::Result<Option<SocketError>> {
    Ok(recv_error_quoting(fd, &mut [])?.map(|(error, _)| error))
}

/// Like [`recv_error`], and copies the quoted part of the datagram's payload into `quoted`. Also
/// returns the number of quoted bytes. Linux quotes 548 bytes and more (RFC 1812, 4.3.2.3); other
/// systems may quote none (RFC 792 requires only the UDP header).
///
/// # Errors
/// The errno of `recvmsg`.
pub fn recv_error_quoting(
    fd: BorrowedFd<'_>,
    quoted: &mut [u8],
) -> io::Result<Option<(SocketError, usize)>> {
    let mut control = Control([0; CONTROL_LEN]);
    let mut name = SockAddr::empty();
    let mut pieces = [io::IoSliceMut::new(quoted)];
    // SAFETY: a C structure of numbers and pointers, for all of which zero is valid.
    let mut message: msghdr = unsafe { std::mem::zeroed() };
    message.msg_name = name.as_mut_ptr().cast();
    message.msg_namelen = name.len();
    message.msg_iov = pieces.as_mut_ptr().cast();
    message.msg_iovlen = pieces.len();
    message.msg_control = (&raw mut control).cast();
    message.msg_controllen = CONTROL_LEN;
    usage::count_call(Call::Recvmsg);
    // SAFETY: `message` points at `name`, `control` and `pieces`, live locals, with their lengths;
    // an `IoSliceMut` has the layout of an `iovec`.
    let returned = unsafe {
        libc::recvmsg(
            fd.as_raw_fd(),
            &raw mut message,
            libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT,
        )
    };
    let quoted_len = match checked_len(returned) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
        other => other?,
    };
    Ok(Some((parse(&message, &name), quoted_len)))
}

fn parse(message: &msghdr, name: &SockAddr) -> SocketError {
    let (found, offender) = extended_error(message);
    let origin = match found.ee_origin {
        libc::SO_EE_ORIGIN_LOCAL => ErrorOrigin::Local,
        libc::SO_EE_ORIGIN_ICMP | libc::SO_EE_ORIGIN_ICMP6 => ErrorOrigin::Icmp,
        _ => ErrorOrigin::Other,
    };
    SocketError {
        errno: found.ee_errno.cast_signed(),
        origin,
        info: found.ee_info,
        destination: if message.msg_namelen > 0 {
            name.to_std()
        } else {
            None
        },
        offender,
    }
}

/// Returns the extended error among the control messages, all zero if there is none, and its offender.
fn extended_error(message: &msghdr) -> (sock_extended_err, Option<IpAddr>) {
    // SAFETY: `message` was filled by a successful `recvmsg` of our caller.
    let mut header: *const cmsghdr = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !header.is_null() {
        // SAFETY: the CMSG macros return only headers that lie within the control buffer.
        let (level, kind) = unsafe { ((*header).cmsg_level, (*header).cmsg_type) };
        if matches!(
            (level, kind),
            (libc::IPPROTO_IP, libc::IP_RECVERR) | (libc::IPPROTO_IPV6, libc::IPV6_RECVERR)
        ) {
            // SAFETY: the kernel puts a `sock_extended_err` behind a header of this kind; the read
            // does not rely on its alignment.
            let error =
                unsafe { ptr::read_unaligned(libc::CMSG_DATA(header).cast::<sock_extended_err>()) };
            return (error, offender(header));
        }
        // SAFETY: as above; `header` belongs to `message`.
        header = unsafe { libc::CMSG_NXTHDR(message, header) };
    }
    // SAFETY: a C structure of numbers.
    (unsafe { std::mem::zeroed() }, None)
}

/// Reads the address behind an extended error (`SO_EE_OFFENDER` of include/uapi/linux/errqueue.h).
fn offender(header: *const cmsghdr) -> Option<IpAddr> {
    let behind = std::mem::size_of::<sock_extended_err>();
    // SAFETY: `header` is from a successful `recvmsg`, as found by our caller.
    let (len, data) = unsafe { ((*header).cmsg_len, libc::CMSG_DATA(header)) };
    let has = |addr_len: usize| {
        let addr_len = u32::try_from(behind + addr_len).unwrap_or(u32::MAX);
        // SAFETY: no pointers; the length of a message with that much data.
        len >= unsafe { libc::CMSG_LEN(addr_len) } as usize
    };
    if has(std::mem::size_of::<sockaddr_in6>()) {
        // SAFETY: the message is that long; alignment is not relied on; any bytes are valid numbers.
        let addr: sockaddr_in6 = unsafe { ptr::read_unaligned(data.add(behind).cast()) };
        if c_int::from(addr.sin6_family) == libc::AF_INET6 {
            return Some(Ipv6Addr::from(addr.sin6_addr.s6_addr).into());
        }
    }
    if has(std::mem::size_of::<sockaddr_in>()) {
        // SAFETY: as above.
        let addr: sockaddr_in = unsafe { ptr::read_unaligned(data.add(behind).cast()) };
        if c_int::from(addr.sin_family) == libc::AF_INET {
            return Some(Ipv4Addr::from(u32::from_be(addr.sin_addr.s_addr)).into());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::{enable_error_queue, probe_path_mtu, send_to};
    use super::*;
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    #[test]
    fn refusal_names_the_destination() {
        let closed = UdpSocket::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        enable_error_queue(socket.as_fd(), false).unwrap();
        assert_eq!(recv_error(socket.as_fd()).unwrap(), None);
        send_to(socket.as_fd(), &closed.into(), b"anybody?").unwrap();
        let error = recv_error(socket.as_fd()).unwrap().unwrap();
        assert_eq!(error.errno, libc::ECONNREFUSED);
        assert_eq!(error.origin, ErrorOrigin::Icmp);
        assert_eq!(error.destination, Some(closed));
        assert_eq!(error.offender, Some(closed.ip()));
    }

    #[test]
    fn refusal_quotes_what_was_sent() {
        let closed = UdpSocket::bind("127.0.0.1:0").unwrap();
        let to = closed.local_addr().unwrap();
        drop(closed);
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        enable_error_queue(socket.as_fd(), false).unwrap();
        send_to(socket.as_fd(), &to.into(), b"anybody?").unwrap();
        let mut quoted = [0xa5; 16];
        let (error, len) = recv_error_quoting(socket.as_fd(), &mut quoted)
            .unwrap()
            .unwrap();
        assert_eq!(error.errno, libc::ECONNREFUSED);
        assert_eq!((len, &quoted[..len]), (8, &b"anybody?"[..]));
        assert_eq!(quoted[8..], [0xa5; 8]);
    }

    #[test]
    fn oversize_names_the_mtu() {
        // The loopback's MTU of 65536 leaves 65508 bytes, one more than UDP's own limit. Only IPv6
        // can exceed it, because its header is longer.
        let Ok(socket) = UdpSocket::bind("[::1]:0") else {
            println!("SKIPPED oversize_names_the_mtu: no IPv6 on the loopback");
            return;
        };
        probe_path_mtu(socket.as_fd(), true).unwrap();
        enable_error_queue(socket.as_fd(), true).unwrap();
        let to = socket.local_addr().unwrap();
        let sent = send_to(socket.as_fd(), &to.into(), &vec![0; 65500]);
        assert_eq!(sent.unwrap_err().raw_os_error(), Some(libc::EMSGSIZE));
        let error = recv_error(socket.as_fd()).unwrap().unwrap();
        assert_eq!((error.errno, error.info), (libc::EMSGSIZE, 65536));
    }
}
