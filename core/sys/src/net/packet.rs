// SPDX-License-Identifier: MIT OR Apache-2.0
//! Raw Ethernet sockets (packet(7)).
#![allow(
    unsafe_code,
    reason = "socket, bind and the filter program take pointers"
)]

use super::options::{get, set};
use super::{checked, socklen_of};
use libc::c_int;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// One instruction of a classic BPF program.
pub type FilterOp = libc::sock_filter;

/// Opens a raw Ethernet socket that receives nothing until [`bind_packet`].
///
/// # Errors
/// `EPERM` without `CAP_NET_RAW` in the network namespace's owner.
pub fn packet_socket() -> io::Result<OwnedFd> {
    // Protocol 0: with any other, frames of all interfaces would come in before the bind.
    // SAFETY: no pointers.
    let fd = unsafe {
        libc::socket(
            libc::AF_PACKET,
            libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC,
            0,
        )
    };
    checked(fd)?;
    // SAFETY: `fd` is a descriptor that we have just opened and that nobody else knows.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Receives from here on only what `program` accepts.
///
/// # Errors
/// `EINVAL` for a malformed program.
pub fn attach_filter(fd: BorrowedFd<'_>, program: &[FilterOp]) -> io::Result<()> {
    let len = u16::try_from(program.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    // The kernel copies the program and writes nothing.
    let filter = program.as_ptr().cast_mut();
    set(
        fd,
        libc::SOL_SOCKET,
        libc::SO_ATTACH_FILTER,
        libc::sock_fprog { len, filter },
    )
}

/// Refuses from here on to have the filter changed or removed, by whoever has the socket.
///
/// # Errors
/// The errno of `setsockopt`.
pub fn lock_filter(fd: BorrowedFd<'_>) -> io::Result<()> {
    set(fd, libc::SOL_SOCKET, libc::SO_LOCK_FILTER, 1 as c_int)
}

/// Marks all that the socket sends, for the rules of the kernel's packet filter.
///
/// # Errors
/// `EPERM` without `CAP_NET_RAW` or `CAP_NET_ADMIN` in the network namespace's owner.
pub fn set_mark(fd: BorrowedFd<'_>, mark: u32) -> io::Result<()> {
    set(fd, libc::SOL_SOCKET, libc::SO_MARK, mark.cast_signed())
}

/// Hands frames to the driver directly, past traffic control.
///
/// # Errors
/// The errno of `setsockopt`.
pub fn bypass_qdisc(fd: BorrowedFd<'_>) -> io::Result<()> {
    set(fd, libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, 1 as c_int)
}

/// Does not receive what this host itself sends.
///
/// # Errors
/// `ENOPROTOOPT` before Linux 4.20.
pub fn ignore_outgoing(fd: BorrowedFd<'_>) -> io::Result<()> {
    set(
        fd,
        libc::SOL_PACKET,
        libc::PACKET_IGNORE_OUTGOING,
        1 as c_int,
    )
}

/// Starts to receive frames of EtherType `protocol` on the interface with number `interface`.
///
/// # Errors
/// `ENODEV` when there is no such interface, `ENETDOWN` when it is down.
pub fn bind_packet(fd: BorrowedFd<'_>, interface: u32, protocol: u16) -> io::Result<()> {
    let sll_ifindex = c_int::try_from(interface).map_err(|_| io::ErrorKind::InvalidInput)?;
    let addr = libc::sockaddr_ll {
        #[allow(
            clippy::cast_possible_truncation,
            reason = "address families are small numbers"
        )]
        sll_family: libc::AF_PACKET as libc::c_ushort,
        sll_protocol: protocol.to_be(),
        sll_ifindex,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    // SAFETY: `addr` is a live local of the length given.
    checked(unsafe {
        libc::bind(
            fd.as_raw_fd(),
            (&raw const addr).cast(),
            socklen_of::<libc::sockaddr_ll>(),
        )
    })
}

/// Frames that passed the filter and found the receive buffer full, since the last call.
///
/// # Errors
/// The errno of `getsockopt`.
pub fn packet_drops(fd: BorrowedFd<'_>) -> io::Result<u32> {
    let stats: libc::tpacket_stats = get(fd, libc::SOL_PACKET, libc::PACKET_STATISTICS)?;
    Ok(stats.tp_drops)
}

/// The error that the socket has kept, which is gone with this: `ENETDOWN` after its interface went
/// down.
#[must_use]
pub fn pending_error(fd: BorrowedFd<'_>) -> Option<io::Error> {
    match get::<c_int>(fd, libc::SOL_SOCKET, libc::SO_ERROR) {
        Ok(0) => None,
        Ok(errno) => Some(io::Error::from_raw_os_error(errno)),
        Err(error) => Some(error),
    }
}
