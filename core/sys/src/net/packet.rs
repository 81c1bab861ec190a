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
    // Protocol 0: with any other, frames of all interfaces would arrive before the bind.
    // SAFETY: no pointers.
    let fd = unsafe {
        libc::socket(
            libc::AF_PACKET,
            libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC,
            0,
        )
    };
    checked(fd)?;
    // SAFETY: `fd` is a descriptor that we have just opened and that has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Restricts further frames to those that `program` accepts.
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

/// Forbids further changes to the filter, for every process that has the socket.
///
/// # Errors
/// The errno of `setsockopt`.
pub fn lock_filter(fd: BorrowedFd<'_>) -> io::Result<()> {
    set(fd, libc::SOL_SOCKET, libc::SO_LOCK_FILTER, 1 as c_int)
}

/// Marks all packets sent by the socket, for the rules of the kernel's packet filter.
///
/// # Errors
/// `EPERM` without `CAP_NET_RAW` or `CAP_NET_ADMIN` in the network namespace's owner.
pub fn set_mark(fd: BorrowedFd<'_>, mark: u32) -> io::Result<()> {
    set(fd, libc::SOL_SOCKET, libc::SO_MARK, mark.cast_signed())
}

/// Passes frames directly to the driver, bypassing traffic control.
///
/// # Errors
/// The errno of `setsockopt`.
pub fn bypass_qdisc(fd: BorrowedFd<'_>) -> io::Result<()> {
    set(fd, libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, 1 as c_int)
}

/// Excludes frames that this host itself sends.
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
/// `ENODEV` if there is no such interface, `ENETDOWN` if it is down.
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

/// Returns the frames since the last call that passed the filter but found the receive buffer full.
///
/// # Errors
/// The errno of `getsockopt`.
pub fn packet_drops(fd: BorrowedFd<'_>) -> io::Result<u32> {
    let stats: libc::tpacket_stats = get(fd, libc::SOL_PACKET, libc::PACKET_STATISTICS)?;
    Ok(stats.tp_drops)
}

/// Returns and clears the socket's pending error: `ENETDOWN` after its interface went down.
#[must_use]
pub fn pending_error(fd: BorrowedFd<'_>) -> Option<io::Error> {
    match get::<c_int>(fd, libc::SOL_SOCKET, libc::SO_ERROR) {
        Ok(0) => None,
        Ok(errno) => Some(io::Error::from_raw_os_error(errno)),
        Err(error) => Some(error),
    }
}
