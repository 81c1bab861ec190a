// SPDX-License-Identifier: MIT OR Apache-2.0
//! A second UDP socket with the address of a first, connected to one peer.
//!
//! Datagrams of that peer then arrive at the second socket, because the kernel prefers the socket
//! with both addresses (`compute_score` of net/ipv4/udp.c). From then on neither host looks up
//! routes for them. All other datagrams arrive at the first socket.
#![allow(unsafe_code, reason = "socket, bind and connect take pointers")]

use super::options::set;
use super::{SockAddr, checked};
use libc::c_int;
use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd};

/// Opens a non-blocking socket with the address of `first`, connected to `peer`. `prepare` sets its
/// options before any data can arrive. For a few microseconds, datagrams of other peers may arrive
/// at the new socket.
///
/// # Errors
/// The errno of the failed call; `first` is then unchanged.
pub fn open_connected(
    first: &UdpSocket,
    peer: &SockAddr,
    prepare: impl FnOnce(BorrowedFd<'_>) -> io::Result<()>,
) -> io::Result<UdpSocket> {
    let local = SockAddr::from(first.local_addr()?);
    let family = match peer.is_ipv6() {
        true => libc::AF_INET6,
        false => libc::AF_INET,
    };
    let kind = libc::SOCK_DGRAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: no pointers.
    let fd = unsafe { libc::socket(family, kind, 0) };
    checked(fd)?;
    // SAFETY: `fd` is a descriptor that we have just opened and that has no other owner.
    let second = unsafe { UdpSocket::from_raw_fd(fd) };
    if peer.is_ipv6() {
        // Another socket may own the port for IPv4.
        set(
            second.as_fd(),
            libc::IPPROTO_IPV6,
            libc::IPV6_V6ONLY,
            1 as c_int,
        )?;
    }
    prepare(second.as_fd())?;
    share_port(second.as_fd(), true)?;
    // Shared only while both are bound, so that no other socket can share the port.
    share_port(first.as_fd(), true)?;
    // SAFETY: `local` is live, of the length given.
    let bound = checked(unsafe { libc::bind(fd, local.as_ptr(), local.len()) });
    let exclusive = share_port(first.as_fd(), false).and(share_port(second.as_fd(), false));
    bound.and(exclusive)?;
    // SAFETY: `peer` is live, of the length given.
    checked(unsafe { libc::connect(second.as_raw_fd(), peer.as_ptr(), peer.len()) })?;
    Ok(second)
}

/// Closes a socket opened by [`open_connected`]. Datagrams of its peer arrive at the first socket
/// again at once, even if a forked child kept the descriptor.
///
/// # Errors
/// The errno; that then holds only after all descriptors of the socket are closed.
pub fn close_connected(second: UdpSocket) -> io::Result<()> {
    // A socket connected to itself receives from no other; an open, unconnected one would compete
    // with the first.
    second.connect(second.local_addr()?)
}

/// Sets if sockets of this user may share the address, provided that all of them set this.
fn share_port(fd: BorrowedFd<'_>, shares: bool) -> io::Result<()> {
    set(
        fd,
        libc::SOL_SOCKET,
        libc::SO_REUSEPORT,
        c_int::from(shares),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    fn send(from: &UdpSocket, to: &UdpSocket, bytes: &[u8]) {
        let sent = from.send_to(bytes, to.local_addr().unwrap()).unwrap();
        assert_eq!(sent, bytes.len());
    }

    /// Returns the datagram received by `socket`; empty if it takes longer than any load explains.
    fn received(socket: &UdpSocket) -> Vec<u8> {
        let mut buf = [0; 64];
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_secs(60) {
            match socket.recv(&mut buf) {
                Ok(len) => return buf[..len].to_vec(),
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            }
            std::thread::yield_now();
        }
        vec![]
    }

    fn is_silent(socket: &UdpSocket) -> bool {
        socket.recv(&mut [0; 64]).is_err()
    }

    #[test]
    fn peer_uses_the_second_socket_and_others_the_first() {
        for host in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(first) = UdpSocket::bind(host) else {
                eprintln!("skipped: no {host} here");
                continue;
            };
            first.set_nonblocking(true).unwrap();
            let (peer, other) = (
                UdpSocket::bind(host).unwrap(),
                UdpSocket::bind(host).unwrap(),
            );
            let to = SockAddr::from(peer.local_addr().unwrap());
            let second = open_connected(&first, &to, |_| Ok(())).unwrap();
            send(&peer, &first, b"peer");
            send(&other, &first, b"other");
            assert_eq!(
                (received(&second), received(&first)),
                (b"peer".into(), b"other".into())
            );
            assert!(is_silent(&second) && is_silent(&first));
            assert_eq!(second.send(b"answer").unwrap(), 6);
            assert_eq!(received(&peer), b"answer");
            // A forked child keeps a descriptor in the same way.
            let _kept = second.try_clone().unwrap();
            close_connected(second).unwrap();
            send(&peer, &first, b"again");
            assert_eq!(received(&first), b"again");
        }
    }

    #[test]
    fn no_other_socket_shares_the_port() {
        let first = UdpSocket::bind("127.0.0.1:0").unwrap();
        let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
        let to = SockAddr::from(peer.local_addr().unwrap());
        let _second = open_connected(&first, &to, |_| Ok(())).unwrap();
        // SAFETY: no pointers.
        let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
        // SAFETY: `fd` is a descriptor that we have just opened and that has no other owner.
        let third = unsafe { UdpSocket::from_raw_fd(fd) };
        share_port(third.as_fd(), true).unwrap();
        let local = SockAddr::from(first.local_addr().unwrap());
        // SAFETY: `local` is live, of the length given.
        let bound = checked(unsafe { libc::bind(fd, local.as_ptr(), local.len()) });
        assert_eq!(bound.unwrap_err().raw_os_error(), Some(libc::EADDRINUSE));
    }
}
