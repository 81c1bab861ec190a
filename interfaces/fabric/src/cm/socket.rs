// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sockets of connection management: bound before use, and never blocking.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::time::Duration;

use portolan::binding::PortRange;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

/// Keepalive: the first probe after this idle time, then one per interval. The peer is declared
/// dead after `KEEPALIVE_COUNT` lost probes, 30 s in all. Portolan detects it sooner if there is
/// traffic.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(10);
const KEEPALIVE_BETWEEN: Duration = Duration::from_secs(5);
const KEEPALIVE_COUNT: u32 = 4;

/// Opens an unbound socket of the address family of `addr`.
///
/// # Errors
/// Errors of `socket`.
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

/// Opens a socket bound to `addr`, to listen or to connect. Port 0 selects a free port of the
/// setting `ports`.
///
/// # Errors
/// The errno of `bind`; `EADDRINUSE` if all ports of the setting are in use; `EINVAL` if the
/// setting is not a range.
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
    // Lets a restarted server bind its previous port.
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
    portolan::binding::port_range().map_err(|error| {
        log::error!("connection manager: {error}");
        io::Error::from_raw_os_error(libc::EINVAL)
    })
}

/// Returns the local address of a socket.
pub(crate) fn name(socket: &OwnedFd) -> Option<SocketAddr> {
    let name = rustix::net::getsockname(socket).ok()?;
    SocketAddr::try_from(name).ok()
}

/// Makes a bound socket listen.
///
/// # Errors
/// Errors of `listen`.
pub(super) fn listen(socket: &OwnedFd, backlog: i32) -> io::Result<()> {
    Ok(rustix::net::listen(socket, backlog)?)
}

/// Starts to connect, from the bound address or from any.
///
/// # Errors
/// Immediate errors of `connect`.
pub(super) fn connect(socket: &OwnedFd, to: &SocketAddr) -> io::Result<()> {
    tune(socket)?;
    match rustix::net::connect(socket, to) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Accepts the next connection. Call [`prepare`] before using it.
///
/// # Errors
/// Errors of `accept`: no connection is pending, or resources are missing.
pub(super) fn accept(listener: &TcpListener) -> io::Result<(TcpStream, SocketAddr)> {
    listener.accept()
}

/// Sets the options of an accepted connection, as [`connect`] does for an outgoing one.
///
/// # Errors
/// Errors of the system calls.
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
    fn unbound_socket_gets_its_own_port_of_the_range() {
        let anywhere = (Ipv4Addr::LOCALHOST, 0).into();
        // Below Linux's ephemeral ports. Other processes of this host may use some of them.
        let ports: PortRange = "28140-28179".parse().unwrap();
        let socket = bind_in(&anywhere, ports).unwrap();
        let port = name(&socket).unwrap().port();
        assert!(ports.ports().unwrap().contains(&port), "{port}");
        let one = format!("{port}-{port}").parse().unwrap();
        let errno = bind_in(&anywhere, one).unwrap_err().raw_os_error();
        assert_eq!(errno, Some(libc::EADDRINUSE));
        // A port that the program chooses is not changed.
        drop(socket);
        let socket = bind_in(&(Ipv4Addr::LOCALHOST, port).into(), "1-1".parse().unwrap());
        assert_eq!(name(&socket.unwrap()).unwrap().port(), port);
    }
}
