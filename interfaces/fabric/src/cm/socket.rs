// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sockets of connection management: bound before they are used, and never waited for.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

/// A peer's host that is silent is asked after so long, again and again, and given up when as many
/// questions are lost: half a minute in all. Portolan finds out sooner when there is traffic.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(10);
const KEEPALIVE_BETWEEN: Duration = Duration::from_secs(5);
const KEEPALIVE_COUNT: u32 = 4;

/// A socket without an address yet, for those of the family of this one.
///
/// # Errors
/// What `socket` says.
pub(crate) fn open(addr: &SocketAddr) -> io::Result<OwnedFd> {
    let family = match addr {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(rustix::net::socket_with(
        family,
        SocketType::STREAM,
        flags,
        None,
    )?)
}

/// A socket with this address of its own, to listen at or to connect from.
///
/// # Errors
/// What `bind` says.
pub(crate) fn bind(addr: &SocketAddr) -> io::Result<OwnedFd> {
    let socket = open(addr)?;
    // A server that was restarted may listen where it did.
    sockopt::set_socket_reuseaddr(&socket, true)?;
    rustix::net::bind(&socket, addr)?;
    Ok(socket)
}

/// The address of a socket.
pub(crate) fn name(socket: &OwnedFd) -> Option<SocketAddr> {
    let name = rustix::net::getsockname(socket).ok()?;
    SocketAddr::try_from(name).ok()
}

/// Have a bound socket take connections.
///
/// # Errors
/// What `listen` says.
pub(super) fn listen(socket: &OwnedFd, backlog: i32) -> io::Result<()> {
    Ok(rustix::net::listen(socket, backlog)?)
}

/// Begin to connect, from where the socket is bound or from anywhere.
///
/// # Errors
/// What `connect` says at once.
pub(super) fn connect(socket: &OwnedFd, to: &SocketAddr) -> io::Result<()> {
    tune(socket)?;
    match rustix::net::connect(socket, to) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// The next connection that somebody has made, and who. It is to be prepared.
///
/// # Errors
/// What `accept` says: there is none, or none can be taken.
pub(super) fn accept(listener: &TcpListener) -> io::Result<(TcpStream, SocketAddr)> {
    listener.accept()
}

/// Have a connection that was accepted behave as one that was made.
///
/// # Errors
/// What the system says.
pub(super) fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nonblocking(true)?;
    tune(stream)
}

fn tune(socket: impl std::os::fd::AsFd) -> io::Result<()> {
    let socket = socket.as_fd();
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(socket, KEEPALIVE_BETWEEN)?;
    sockopt::set_tcp_keepcnt(socket, KEEPALIVE_COUNT)?;
    Ok(())
}
