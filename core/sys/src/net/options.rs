// SPDX-License-Identifier: MIT OR Apache-2.0
//! Socket options.
#![allow(
    unsafe_code,
    reason = "getsockopt and setsockopt take untyped pointers"
)]

use super::{checked, socklen_of};
use crate::usage::{self, Call};
use libc::c_int;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt};
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, BorrowedFd};

/// Requests `len` bytes of receive buffer. The kernel silently grants at most `net.core.rmem_max`,
/// and lets waiting data occupy twice the granted length, including its own overhead.
///
/// # Errors
/// The errno of `setsockopt`.
pub fn request_receive_buffer(fd: BorrowedFd<'_>, len: usize) -> io::Result<()> {
    set(
        fd,
        libc::SOL_SOCKET,
        libc::SO_RCVBUF,
        c_int::try_from(len).unwrap_or(c_int::MAX / 2),
    )
}

/// Requests `len` bytes of send buffer; bounded by `net.core.wmem_max`, otherwise like the receive
/// buffer.
///
/// # Errors
/// The errno of `setsockopt`.
pub fn request_send_buffer(fd: BorrowedFd<'_>, len: usize) -> io::Result<()> {
    set(
        fd,
        libc::SOL_SOCKET,
        libc::SO_SNDBUF,
        c_int::try_from(len).unwrap_or(c_int::MAX / 2),
    )
}

/// Returns the kernel memory that waiting datagrams may occupy, in bytes: the doubled value, which
/// includes the overhead of the buffers (socket(7), `SO_RCVBUF`).
///
/// # Errors
/// The errno of `getsockopt`.
pub fn receive_buffer_len(fd: BorrowedFd<'_>) -> io::Result<usize> {
    let len: c_int = get(fd, libc::SOL_SOCKET, libc::SO_RCVBUF)?;
    Ok(usize::try_from(len).unwrap_or(0))
}

/// Returns the kernel memory that outgoing datagrams may occupy, in bytes, also doubled.
///
/// # Errors
/// The errno of `getsockopt`.
pub fn send_buffer_len(fd: BorrowedFd<'_>) -> io::Result<usize> {
    let len: c_int = get(fd, libc::SOL_SOCKET, libc::SO_SNDBUF)?;
    Ok(usize::try_from(len).unwrap_or(0))
}

/// Disables fragmentation, and makes the kernel ignore path MTUs from ICMP messages (RFC 8899,
/// section 3, calls for such a mode; ip(7), `IP_PMTUDISC_PROBE`).
///
/// # Errors
/// The errno of `setsockopt`.
pub fn probe_path_mtu(fd: BorrowedFd<'_>, ipv6: bool) -> io::Result<()> {
    if ipv6 {
        set(
            fd,
            libc::IPPROTO_IPV6,
            libc::IPV6_MTU_DISCOVER,
            libc::IPV6_PMTUDISC_PROBE,
        )
    } else {
        set(
            fd,
            libc::IPPROTO_IP,
            libc::IP_MTU_DISCOVER,
            libc::IP_PMTUDISC_PROBE,
        )
    }
}

/// Opens a blocking datagram socket bound to `at`. An IPv6 socket also receives IPv4 if `takes_v4`,
/// whatever `net.ipv6.bindv6only` is; IPv4 addresses then appear as `::ffff:a.b.c.d`.
///
/// # Errors
/// The errno of the failed call.
pub fn bind_datagram(at: SocketAddr, takes_v4: bool) -> io::Result<UdpSocket> {
    let family = match at {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let socket = socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    if at.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, !takes_v4)?;
    }
    bind(&socket, &at)?;
    Ok(UdpSocket::from(socket))
}

/// Enables reports of ICMP errors and refused sends in the socket's error queue.
///
/// # Errors
/// The errno of `setsockopt`.
pub fn enable_error_queue(fd: BorrowedFd<'_>, ipv6: bool) -> io::Result<()> {
    if ipv6 {
        set(fd, libc::IPPROTO_IPV6, libc::IPV6_RECVERR, 1 as c_int)
    } else {
        set(fd, libc::IPPROTO_IP, libc::IP_RECVERR, 1 as c_int)
    }
}

/// Bits for explicit congestion notification in an IP header (RFC 3168, section 5).
pub(super) const ECN_BITS: u8 = 3;

/// ECT(0): the sender reacts to marks.
pub const ECN_CAPABLE: u8 = 2;

/// CE: the mark.
pub const ECN_CE: u8 = 3;

/// Sets the congestion notification bits of all outgoing packets; the rest of that byte is best
/// effort.
///
/// # Errors
/// The errno of `setsockopt`.
pub fn set_ecn(fd: BorrowedFd<'_>, ipv6: bool, bits: u8) -> io::Result<()> {
    let value = c_int::from(bits & ECN_BITS);
    if ipv6 {
        set(fd, libc::IPPROTO_IPV6, libc::IPV6_TCLASS, value)
    } else {
        set(fd, libc::IPPROTO_IP, libc::IP_TOS, value)
    }
}

/// Enables reports of marks with all received data. Costs the kernel about 40 ns per call.
///
/// # Errors
/// The errno of `setsockopt`.
pub fn report_marks(fd: BorrowedFd<'_>, ipv6: bool) -> io::Result<()> {
    if ipv6 {
        set(fd, libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, 1 as c_int)
    } else {
        set(fd, libc::IPPROTO_IP, libc::IP_RECVTOS, 1 as c_int)
    }
}

/// Lets the kernel deliver runs of equal datagrams in one buffer (udp(7), `UDP_GRO`).
///
/// # Errors
/// `ENOPROTOOPT` before Linux 5.0.
pub fn enable_receive_offload(fd: BorrowedFd<'_>) -> io::Result<()> {
    set(fd, libc::SOL_UDP, libc::UDP_GRO, 1 as c_int)
}

/// Returns `true` if the kernel can split one send into many datagrams (udp(7), `UDP_SEGMENT`,
/// Linux
/// 4.18).
#[must_use]
pub fn segmentation_supported(fd: BorrowedFd<'_>) -> bool {
    get::<c_int>(fd, libc::SOL_UDP, libc::UDP_SEGMENT).is_ok()
}

/// Makes the kernel cut outgoing data into datagrams of `segment_len` bytes, the last perhaps
/// shorter (udp(7), `UDP_SEGMENT`). 0 disables this.
///
/// # Errors
/// `ENOPROTOOPT` before Linux 4.18.
pub fn set_segment_len(fd: BorrowedFd<'_>, segment_len: u16) -> io::Result<()> {
    set(
        fd,
        libc::SOL_UDP,
        libc::UDP_SEGMENT,
        c_int::from(segment_len),
    )
}

/// Returns the kernel memory that waiting datagrams occupy now, in bytes, out of
/// [`receive_buffer_len`].
///
/// # Errors
/// `ENOPROTOOPT` before Linux 4.12.
pub fn receive_charged_len(fd: BorrowedFd<'_>) -> io::Result<usize> {
    Ok(meminfo(fd)?[libc::SK_MEMINFO_RMEM_ALLOC as usize] as usize)
}

/// Returns the datagrams that this socket has dropped since it was opened, because its buffer was
/// full or a checksum was wrong. The count wraps around.
///
/// # Errors
/// `ENOPROTOOPT` before Linux 4.12.
pub fn receive_drops(fd: BorrowedFd<'_>) -> io::Result<u32> {
    Ok(meminfo(fd)?[libc::SK_MEMINFO_DROPS as usize])
}

/// Returns the values by the indices SK_MEMINFO_* of include/uapi/linux/sock_diag.h.
fn meminfo(fd: BorrowedFd<'_>) -> io::Result<[u32; 9]> {
    get(fd, libc::SOL_SOCKET, libc::SO_MEMINFO)
}

/// Types of option values: plain numbers and C structures of numbers, valid for any bytes.
pub(super) trait Plain: Copy {}
impl Plain for c_int {}
impl Plain for [u32; 9] {}
impl Plain for libc::sock_fprog {}
impl Plain for libc::tpacket_req {}
impl Plain for libc::tpacket_stats {}
impl Plain for libc::tcp_info {}

pub(super) fn set<T: Plain>(
    fd: BorrowedFd<'_>,
    level: c_int,
    name: c_int,
    value: T,
) -> io::Result<()> {
    usage::count_call(Call::Setsockopt);
    // SAFETY: `value` is a live local of exactly the length passed with it.
    checked(unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            socklen_of::<T>(),
        )
    })
}

pub(super) fn get<T: Plain>(fd: BorrowedFd<'_>, level: c_int, name: c_int) -> io::Result<T> {
    // SAFETY: `Plain` types are valid for any bytes, so also for zeroes.
    let mut value: T = unsafe { std::mem::zeroed() };
    let mut len = socklen_of::<T>();
    usage::count_call(Call::Getsockopt);
    // SAFETY: `value` and `len` are live locals; the kernel writes at most `len` bytes.
    checked(unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            level,
            name,
            (&raw mut value).cast(),
            &raw mut len,
        )
    })?;
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    #[test]
    fn granted_buffer_is_charged_double() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        request_receive_buffer(socket.as_fd(), 16 * 1024).unwrap();
        assert_eq!(receive_buffer_len(socket.as_fd()).unwrap(), 32 * 1024);
        request_send_buffer(socket.as_fd(), 16 * 1024).unwrap();
        assert_eq!(send_buffer_len(socket.as_fd()).unwrap(), 32 * 1024);
    }

    #[test]
    fn full_receive_buffer_counts_drops() {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        request_receive_buffer(receiver.as_fd(), 4096).unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        for _ in 0..100 {
            sender
                .send_to(&[0xa5; 1000], receiver.local_addr().unwrap())
                .unwrap();
        }
        let drops = receive_drops(receiver.as_fd()).unwrap();
        assert!((50..100).contains(&drops), "{drops} drops");
        let charged = receive_charged_len(receiver.as_fd()).unwrap();
        let charged_max = receive_buffer_len(receiver.as_fd()).unwrap();
        assert!((1000..=charged_max).contains(&charged), "{charged} charged");
    }
}
