// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sockets of connection management: bound before they are used, and never waited for.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::time::Duration;

use portolan::PortRange;
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
fn open(addr: &SocketAddr) -> io::Result<OwnedFd> {
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

/// Opens a socket bound to `addr`, to listen at or to connect from. Port 0 stands for a free one of the
/// setting `ports`.
///
/// # Errors
/// The errno of `bind`; `EADDRINUSE` if all ports of the setting are taken; `EINVAL` if it is no range.
pub(crate) fn bind(addr: &SocketAddr) -> io::Result<OwnedFd> {
    bind_in(addr, ports()?)
}

fn bind_in(addr: &SocketAddr, ports: PortRange) -> io::Result<OwnedFd> {
    if addr.port() != 0 || ports.is_any() {
        return bind_to(addr, true);
    }
    // A listener's port must not be shared.
    let bound = ports.open(|port| bind_to(&SocketAddr::new(addr.ip(), port), false));
    bound.map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => {
            log::error!("connection manager: bind {}: {error}", addr.ip());
            io::Error::from_raw_os_error(libc::EADDRINUSE)
        }
        _ => error,
    })
}

fn bind_to(addr: &SocketAddr, is_shared: bool) -> io::Result<OwnedFd> {
    let socket = open(addr)?;
    // A server that was restarted may listen where it did.
    sockopt::set_socket_reuseaddr(&socket, is_shared)?;
    rustix::net::bind(&socket, addr)?;
    Ok(socket)
}

/// Opens a socket to connect to `to`. It is bound only if the setting `ports` is set.
///
/// # Errors
/// As [`bind`].
pub(crate) fn open_to(to: &SocketAddr) -> io::Result<OwnedFd> {
    if ports()?.is_any() {
        return open(to);
    }
    let anywhere: IpAddr = match to {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    bind(&SocketAddr::new(anywhere, 0))
}

fn ports() -> io::Result<PortRange> {
    portolan::port_range().map_err(|error| {
        log::error!("connection manager: {error}");
        io::Error::from_raw_os_error(libc::EINVAL)
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn socket_without_a_port_gets_one_of_the_range_alone() {
        let anywhere = (Ipv4Addr::LOCALHOST, 0).into();
        // Below Linux's ephemeral ports. Other processes of this host may hold some.
        let ports: PortRange = "28140-28179".parse().unwrap();
        let socket = bind_in(&anywhere, ports).unwrap();
        let port = name(&socket).unwrap().port();
        assert!(ports.ports().unwrap().contains(&port), "{port}");
        let one = format!("{port}-{port}").parse().unwrap();
        let errno = bind_in(&anywhere, one).unwrap_err().raw_os_error();
        assert_eq!(errno, Some(libc::EADDRINUSE));
        // A port that the program names is used as it is.
        drop(socket);
        let socket = bind_in(&(Ipv4Addr::LOCALHOST, port).into(), "1-1".parse().unwrap());
        assert_eq!(name(&socket.unwrap()).unwrap().port(), port);
    }
}
