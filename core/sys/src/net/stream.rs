// SPDX-License-Identifier: MIT OR Apache-2.0
//! TCP connections with pages passed by reference: the functions for connecting, sending and status
//! that the standard library lacks.
//!
//! [`Pipe::splice_in`] takes references to pages of this process (`vmsplice`), and
//! [`Pipe::splice_to`] passes them to a socket (`splice`). Nothing is copied: the peer receives the contents that the
//! pages have when the bytes are read from them. The caller must leave them unchanged until the
//! peer has reported that it has the bytes.
#![allow(
    unsafe_code,
    reason = "vmsplice and splice are not in the standard library"
)]

use super::options::{get, set};
use super::{PortRange, checked, checked_len, wait_writable};
use crate::usage;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto};
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;
use std::time::Duration;

/// Connections that may wait to be accepted. More are refused, and retried later.
const BACKLOG: i32 = 64;

/// As [`BACKLOG`], for [`listen_server`]; the system reduces it to `net.core.somaxconn`.
const SERVER_BACKLOG: i32 = 4096;

/// Listens at `at`, non-blocking. The unspecified IPv6 address accepts IPv4 as well.
///
/// # Errors
/// Returns the error of `bind`: the port is taken.
pub fn listen_stream(at: SocketAddr) -> io::Result<TcpListener> {
    let socket = new_socket(at.ip())?;
    if at.is_ipv6() {
        rustix::net::sockopt::set_ipv6_v6only(&socket, !at.ip().is_unspecified())?;
    }
    // Without SO_REUSEADDR, so that no other process shares the port.
    rustix::net::bind(&socket, &at)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(TcpListener::from(socket))
}

/// Listens at `at` as [`listen_stream`] does, for a server at a fixed port. It
/// can be restarted while connections of its predecessor are closing, and clients may come in
/// crowds.
///
/// # Errors
/// Returns the error of `bind`: another process listens there.
pub fn listen_server(at: SocketAddr) -> io::Result<TcpListener> {
    let socket = new_socket(at.ip())?;
    if at.is_ipv6() {
        rustix::net::sockopt::set_ipv6_v6only(&socket, !at.ip().is_unspecified())?;
    }
    // On Linux two listeners still cannot share the port (socket(7)).
    rustix::net::sockopt::set_socket_reuseaddr(&socket, true)?;
    rustix::net::bind(&socket, &at)?;
    rustix::net::listen(&socket, SERVER_BACKLOG)?;
    Ok(TcpListener::from(socket))
}

/// Starts to connect to `to` from a port of `ports`, and from the address `from` if its family is
/// that of `to`. The socket becomes writable when the attempt has succeeded or failed.
///
/// # Errors
/// The error of `connect`, if it fails at once; the errors of [`PortRange::open`].
pub fn begin_connect(from: IpAddr, to: SocketAddr, ports: PortRange) -> io::Result<TcpStream> {
    ports.open(|port| {
        let socket = new_socket(to.ip())?;
        if port != 0 {
            // Connections to different destinations may share a port; a listener's port is refused.
            rustix::net::sockopt::set_socket_reuseaddr(&socket, true)?;
        }
        let is_of_family = from.is_ipv4() == to.is_ipv4();
        if port != 0 || (is_of_family && !from.is_unspecified()) {
            let from = if is_of_family { from } else { any_address(to) };
            rustix::net::bind(&socket, &SocketAddr::new(from, port))?;
        }
        match rustix::net::connect(&socket, &to) {
            Ok(()) | Err(Errno::INPROGRESS) => Ok(TcpStream::from(socket)),
            // The port already has a connection to this destination.
            Err(Errno::ADDRNOTAVAIL) if port != 0 => Err(io::ErrorKind::AddrInUse.into()),
            Err(errno) => Err(errno.into()),
        }
    })
}

/// Connects to `to` from a port of `ports`, and waits at most `timeout`. The socket is blocking.
///
/// # Errors
/// The errno of the attempt, or `TimedOut`; the errors of [`PortRange::open`].
pub fn connect_within(
    to: SocketAddr,
    ports: PortRange,
    timeout: Duration,
) -> io::Result<TcpStream> {
    let stream = begin_connect(any_address(to), to, ports)?;
    wait_writable(stream.as_fd(), timeout)?;
    if let Some(error) = stream.take_error()? {
        return Err(error);
    }
    if stream.peer_addr().is_err() {
        return Err(io::ErrorKind::TimedOut.into());
    }
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// Returns the unspecified address of the family of `to`.
fn any_address(to: SocketAddr) -> IpAddr {
    match to {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}

fn new_socket(ip: IpAddr) -> io::Result<OwnedFd> {
    let family = match ip {
        IpAddr::V4(_) => AddressFamily::INET,
        IpAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let kind = SocketType::STREAM;
    Ok(rustix::net::socket_with(
        family,
        kind,
        flags,
        Some(ipproto::TCP),
    )?)
}

/// Disables Nagle's algorithm, and selects the congestion control `congestion` if the system has it
/// and permits the choice.
pub fn prepare_stream(fd: BorrowedFd<'_>, congestion: &str) {
    // Both may fail: without the first, data may leave later; without the second, the system's
    // default applies.
    let _ = set(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1 as libc::c_int);
    let _ = rustix::net::sockopt::set_tcp_congestion(fd, congestion);
}

/// Closes `stream` at once. The peer gets a reset, and unacknowledged data is dropped, even while a
/// forked child holds a copy of the descriptor.
pub fn abort_stream(stream: TcpStream) {
    // If it fails, the system closes the connection normally.
    let _ = rustix::net::connect_unspec(&stream);
}

/// Returns how often in a row the connection's retransmission timer has expired.
///
/// # Errors
/// The errno of `getsockopt`.
pub fn stream_timeouts(fd: BorrowedFd<'_>) -> io::Result<u8> {
    let info: libc::tcp_info = get(fd, libc::IPPROTO_TCP, libc::TCP_INFO)?;
    Ok(info.tcpi_retransmits)
}

/// Returns the bytes passed to the socket that the peer's TCP has not acknowledged (tcp(7),
/// `SIOCOUTQ`).
///
/// # Errors
/// The errno of `ioctl`.
pub(super) fn unacknowledged_len(fd: BorrowedFd<'_>) -> io::Result<u64> {
    let mut len: libc::c_int = 0;
    // SAFETY: `len` is a live local of the type that this request writes. SIOCOUTQ of
    // include/uapi/linux/sockios.h is this number.
    checked(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TIOCOUTQ, &raw mut len) })?;
    Ok(u64::try_from(len).unwrap_or(0))
}

/// Sends some of `slices` on a connected socket with one call.
///
/// # Errors
/// The errno of `sendmsg`.
pub(super) fn send_stream_gathered(
    fd: BorrowedFd<'_>,
    slices: &[IoSlice<'_>],
) -> io::Result<usize> {
    use rustix::net::{SendAncillaryBuffer, SendFlags};
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let mut control = SendAncillaryBuffer::default();
    usage::count_call(usage::Call::Sendmsg);
    Ok(rustix::net::sendmsg(fd, slices, &mut control, flags)?)
}

/// Sends some of `bytes` on a connected socket; `more` is set if their completion follows at once.
///
/// # Errors
/// The errno of `send`.
pub(super) fn send_stream(fd: BorrowedFd<'_>, bytes: &[u8], more: bool) -> io::Result<usize> {
    let more = if more { libc::MSG_MORE } else { 0 };
    usage::count_call(usage::Call::Sendto);
    // SAFETY: `bytes` is live with the length given; the kernel copies it.
    checked_len(unsafe {
        libc::send(
            fd.as_raw_fd(),
            bytes.as_ptr().cast(),
            bytes.len(),
            libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL | more,
        )
    })
}

/// A pipe that holds references to pages on their way from user memory to a socket.
#[derive(Debug)]
pub struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
}

impl Pipe {
    /// Creates a pipe that holds `len` bytes of whole pages, or as many as the system permits.
    ///
    /// # Errors
    /// Fails if descriptors are exhausted.
    pub fn new(len: usize) -> io::Result<Pipe> {
        let mut ends = [-1; 2];
        // SAFETY: the kernel writes two descriptors.
        checked(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) })?;
        // SAFETY: both were just made for this process, and have no other owner.
        let [read, write] = ends.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
        // Users have a limit for all their pipes together. A smaller pipe passes less at a time.
        let len = libc::c_int::try_from(len).unwrap_or(libc::c_int::MAX);
        // SAFETY: no pointer is passed.
        unsafe { libc::fcntl(write.as_raw_fd(), libc::F_SETPIPE_SZ, len) };
        Ok(Pipe { read, write })
    }

    /// Passes the pages of `bytes` by reference, as far as the pipe has space, and returns the
    /// number of bytes. They must stay unchanged until their receiver has them.
    ///
    /// # Errors
    /// The errno of `vmsplice`: `EAGAIN` if the pipe is full.
    pub fn splice_in(&self, bytes: &[u8]) -> io::Result<usize> {
        let iov = libc::iovec {
            iov_base: bytes.as_ptr().cast_mut().cast(),
            iov_len: bytes.len(),
        };
        usage::count_call(usage::Call::Vmsplice);
        // SAFETY: `iov` describes `bytes`, which the kernel only reads; it holds on to the pages
        // and not to the addresses, so that nothing is accessed that was unmapped or freed since.
        checked_len(unsafe {
            libc::vmsplice(
                self.write.as_raw_fd(),
                &raw const iov,
                1,
                libc::SPLICE_F_NONBLOCK,
            )
        })
    }

    /// Passes up to `len` bytes of the pipe's contents to `socket`; `more` is set if their
    /// completion follows at once.
    ///
    /// # Errors
    /// The errno of `splice`: `EAGAIN` if the socket buffer is full.
    pub fn splice_to(&self, socket: BorrowedFd<'_>, len: usize, more: bool) -> io::Result<usize> {
        let more = if more { libc::SPLICE_F_MORE } else { 0 };
        usage::count_call(usage::Call::Splice);
        without_sigpipe(|| {
            // SAFETY: only null pointers are passed.
            checked_len(unsafe {
                libc::splice(
                    self.read.as_raw_fd(),
                    ptr::null_mut(),
                    socket.as_raw_fd(),
                    ptr::null_mut(),
                    len,
                    libc::SPLICE_F_NONBLOCK | more,
                )
            })
        })
    }
}

/// Calls `splice` without raising `SIGPIPE`. It has no flag for that, and the signal would end
/// programs in C.
fn without_sigpipe(splice: impl FnOnce() -> io::Result<usize>) -> io::Result<usize> {
    let mut set = MaybeUninit::zeroed();
    let mut before = MaybeUninit::zeroed();
    // SAFETY: the set is emptied, then gets one valid signal; `before` is written, and valid as
    // zeros if it is not.
    let (set, before): (libc::sigset_t, libc::sigset_t) = unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), libc::SIGPIPE);
        libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), before.as_mut_ptr());
        (set.assume_init(), before.assume_init())
    };
    let result = splice();
    if result
        .as_ref()
        .is_err_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    {
        let no_time = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: the set and the time are live; no information about the signal is requested.
        unsafe { libc::sigtimedwait(&raw const set, ptr::null_mut(), &raw const no_time) };
    }
    // SAFETY: `before` is the thread's previous mask.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut()) };
    result
}

/// Returns `true` once a connection has been established; `false` while the attempt is in progress.
///
/// # Errors
/// The reason why the attempt failed.
pub fn is_stream_connected(stream: &TcpStream) -> io::Result<bool> {
    if let Some(error) = stream.take_error()? {
        return Err(error);
    }
    match stream.peer_addr() {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::io::Read;

    pub(in crate::net) fn pair() -> (TcpStream, TcpStream) {
        let listener = listen_stream((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let to = listener.local_addr().unwrap();
        let near = begin_connect(Ipv4Addr::LOCALHOST.into(), to, PortRange::default()).unwrap();
        let far = loop {
            match listener.accept() {
                Ok((far, _)) => break far,
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            }
        };
        while !is_stream_connected(&near).unwrap() {}
        far.set_nonblocking(false).unwrap();
        far.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        (near, far)
    }

    #[test]
    fn connections_use_the_port_range_and_listeners_avoid_their_ports() {
        let listener = listen_stream((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let to = listener.local_addr().unwrap();
        // Below Linux's ephemeral ports. Other processes of this host may hold some.
        let ports: PortRange = "28100-28139".parse().unwrap();
        let patience = Duration::from_secs(60);
        let first = connect_within(to, ports, patience).unwrap();
        let second = connect_within(to, ports, patience).unwrap();
        let own = |stream: &TcpStream| stream.local_addr().unwrap().port();
        assert!(ports.ports().unwrap().contains(&own(&first)));
        assert!(ports.ports().unwrap().contains(&own(&second)));
        assert_ne!(own(&first), own(&second));
        let one: PortRange = format!("{0}-{0}", own(&first)).parse().unwrap();
        let again = connect_within(to, one, patience).map_err(|error| error.kind());
        assert_eq!(again.map(drop), Err(io::ErrorKind::AddrInUse));
        let taken = one.open(|port| listen_stream((Ipv4Addr::LOCALHOST, port).into()));
        let taken = taken.map_err(|error| error.kind());
        assert_eq!(taken.map(drop), Err(io::ErrorKind::AddrInUse));
    }

    #[test]
    fn spliced_pages_arrive_behind_earlier_bytes() {
        let (near, mut far) = pair();
        prepare_stream(near.as_fd(), "cubic");
        let pipe = Pipe::new(1 << 20).unwrap();
        let bytes: Vec<u8> = (0..300_001u32)
            .map(|at| at.to_le_bytes()[at as usize % 3])
            .collect();
        assert_eq!(send_stream(near.as_fd(), b"head", true).unwrap(), 4);
        let mut got = vec![0xa5; 4 + bytes.len() - 1];
        std::thread::scope(|scope| {
            scope.spawn(|| far.read_exact(&mut got).unwrap());
            let mut spliced = &bytes[1..];
            while !spliced.is_empty() {
                let count = pipe.splice_in(spliced).unwrap();
                spliced = &spliced[count..];
                let mut left = count;
                while left > 0 {
                    match pipe.splice_to(near.as_fd(), left, !spliced.is_empty()) {
                        Ok(count) => left -= count,
                        Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
                    }
                }
            }
        });
        assert_eq!(got[..4], *b"head");
        assert!(got[4..] == bytes[1..]);
        assert_eq!(stream_timeouts(near.as_fd()).unwrap(), 0);
    }

    #[test]
    fn full_pipe_refuses_more_pages() {
        let pipe = Pipe::new(16 * 4096).unwrap();
        let bytes = vec![7; 40 * 4096];
        let spliced = pipe.splice_in(&bytes).unwrap();
        assert!((1..bytes.len()).contains(&spliced), "{spliced}");
        let error = pipe.splice_in(&bytes).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn reset_connection_is_an_error_without_a_signal() {
        let (near, far) = pair();
        abort_stream(far);
        let pipe = Pipe::new(4096).unwrap();
        // SAFETY: the default disposition at program start.
        let before = unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
        for _ in 0..3 {
            // The first call reports the reset, later ones that the socket is closed for sending.
            let _ = pipe.splice_in(b"late");
            pipe.splice_to(near.as_fd(), 4, false).unwrap_err();
        }
        // SAFETY: the previous disposition.
        unsafe { libc::signal(libc::SIGPIPE, before) };
    }

    #[test]
    fn port_without_listener_refuses() {
        let free = listen_stream((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let to = free.local_addr().unwrap();
        drop(free);
        let near = begin_connect(Ipv4Addr::LOCALHOST.into(), to, PortRange::default()).unwrap();
        let refused = loop {
            match is_stream_connected(&near) {
                Ok(is_connected) => assert!(!is_connected),
                Err(error) => break error,
            }
        };
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    }
}
