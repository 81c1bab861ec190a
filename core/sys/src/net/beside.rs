// SPDX-License-Identifier: MIT OR Apache-2.0
//! A second UDP socket with the address of a first, connected to one peer.
//!
//! What the peer sends to that address then comes by the second socket, since the kernel prefers the
//! one that knows both addresses (`compute_score` of net/ipv4/udp.c), and neither host looks up routes
//! for it any more. All else comes by the first.
#![allow(unsafe_code, reason = "socket, bind and connect take pointers")]

use super::options::set;
use super::{SockAddr, checked};
use libc::c_int;
use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd};

/// Opens a non-blocking socket with the address of `first`, connected to `peer`. `prepare` sets its
/// options, before anything can arrive. For some microseconds what others send may come by the new
/// socket.
///
/// # Errors
/// The errno of what fails; `first` then is as before.
pub fn connect_beside(
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
    // SAFETY: `fd` is a descriptor that we have just opened and that nobody else knows.
    let second = unsafe { UdpSocket::from_raw_fd(fd) };
    if peer.is_ipv6() {
        // Another socket may have the port for IPv4.
        set(
            second.as_fd(),
            libc::IPPROTO_IPV6,
            libc::IPV6_V6ONLY,
            1 as c_int,
        )?;
    }
    prepare(second.as_fd())?;
    share_port(second.as_fd(), true)?;
    // Only while both are bound: nobody else is to share the port.
    share_port(first.as_fd(), true)?;
    // SAFETY: `local` is live, of the length given.
    let bound = checked(unsafe { libc::bind(fd, local.as_ptr(), local.len()) });
    let shut = share_port(first.as_fd(), false).and(share_port(second.as_fd(), false));
    bound.and(shut)?;
    // SAFETY: `peer` is live, of the length given.
    checked(unsafe { libc::connect(second.as_raw_fd(), peer.as_ptr(), peer.len()) })?;
    Ok(second)
}

/// Closes a socket that [`connect_beside`] opened. What its peer sends comes by the first again at
/// once, even if a child of a fork has kept the descriptor.
///
/// # Errors
/// The errno, if that is so only when all descriptors of the socket are closed.
pub fn close_beside(second: UdpSocket) -> io::Result<()> {
    // A socket connected to itself is nobody else's; one that is open and unconnected would compete
    // with the first.
    second.connect(second.local_addr()?)
}

/// Whether sockets of this user may have the same address, if they all say so.
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

    fn say(from: &UdpSocket, to: &UdpSocket, words: &[u8]) {
        let sent = from.send_to(words, to.local_addr().unwrap()).unwrap();
        assert_eq!(sent, words.len());
    }

    /// What comes by `socket`; nothing if that takes longer than any load explains.
    fn heard(socket: &UdpSocket) -> Vec<u8> {
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
    fn peer_comes_by_the_second_socket_and_all_others_by_the_first() {
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
            let second = connect_beside(&first, &to, |_| Ok(())).unwrap();
            say(&peer, &first, b"peer");
            say(&other, &first, b"other");
            assert_eq!(
                (heard(&second), heard(&first)),
                (b"peer".into(), b"other".into())
            );
            assert!(is_silent(&second) && is_silent(&first));
            assert_eq!(second.send(b"answer").unwrap(), 6);
            assert_eq!(heard(&peer), b"answer");
            // As a child of a fork keeps it.
            let _kept = second.try_clone().unwrap();
            close_beside(second).unwrap();
            say(&peer, &first, b"again");
            assert_eq!(heard(&first), b"again");
        }
    }

    #[test]
    fn port_is_shared_with_nobody_else() {
        let first = UdpSocket::bind("127.0.0.1:0").unwrap();
        let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
        let to = SockAddr::from(peer.local_addr().unwrap());
        let _second = connect_beside(&first, &to, |_| Ok(())).unwrap();
        // SAFETY: no pointers.
        let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
        // SAFETY: `fd` is a descriptor that we have just opened and that nobody else knows.
        let third = unsafe { UdpSocket::from_raw_fd(fd) };
        share_port(third.as_fd(), true).unwrap();
        let local = SockAddr::from(first.local_addr().unwrap());
        // SAFETY: `local` is live, of the length given.
        let bound = checked(unsafe { libc::bind(fd, local.as_ptr(), local.len()) });
        assert_eq!(bound.unwrap_err().raw_os_error(), Some(libc::EADDRINUSE));
    }
}
