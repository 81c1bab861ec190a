// SPDX-License-Identifier: MIT OR Apache-2.0
//! TCP of `doctor --between`: each address listens, and connects to each address of the other host.
//! The connecting side sends its mark, which identifies it to the listener.

use super::report::{By, End, Failure, MARK_LEN, ProbePath};
use super::results::Results;
use super::sockets::source;
use portolan::binding::PortRange;
use portolan_sys::net;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};

/// Largest number of unidentified connections that are kept.
const INCOMING_MAX: usize = 256;

/// Bytes of the headers of TCP and IPv4; used only to report a packet length.
const HEADERS_LEN: usize = 40;

/// Number of UDP ports to try until the same TCP port is free.
const PORTS_TRIED: usize = 64;

/// See the module documentation.
pub(super) struct TcpEnds {
    ports: PortRange,
    listeners: Vec<TcpListener>,
    /// Connection attempts that have neither succeeded nor failed.
    connecting: Vec<(ProbePath, TcpStream)>,
    /// Accepted connections that have sent less than a mark.
    incoming: Vec<(TcpStream, Vec<u8>)>,
    /// Finished connections; kept open so that no reset overtakes the mark.
    finished: Vec<TcpStream>,
}

impl TcpEnds {
    pub(super) fn new(ports: PortRange) -> TcpEnds {
        TcpEnds {
            ports,
            listeners: Vec::new(),
            connecting: Vec::new(),
            incoming: Vec::new(),
            finished: Vec::new(),
        }
    }

    /// Opens a UDP socket at `at`, listens at the same TCP port, and returns the port.
    pub(super) fn listen_beside_udp(&mut self, at: SocketAddr) -> io::Result<(UdpSocket, u16)> {
        let with_port = |port| {
            let mut at = at;
            at.set_port(port);
            at
        };
        let mut tried = Vec::new();
        loop {
            let udp = self.ports.open(|port| UdpSocket::bind(with_port(port)))?;
            let port = udp.local_addr()?.port();
            match net::listen_stream(with_port(port)) {
                Ok(listener) => {
                    self.listeners.push(listener);
                    return Ok((udp, port));
                }
                Err(error) if error.kind() == ErrorKind::AddrInUse && tried.len() < PORTS_TRIED => {
                    // Kept open, so that the next attempt gets another port.
                    tried.push(udp);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Begins to connect from `end` to `to`.
    pub(super) fn connect(
        &mut self,
        path: ProbePath,
        end: &End,
        to: SocketAddr,
        results: &mut Results<'_>,
    ) {
        match net::begin_connect(source(end), to, self.ports) {
            Ok(stream) => self.connecting.push((path, stream)),
            Err(error) => results.record_failure(path, failure(&error)),
        }
    }

    /// Polls all connections.
    pub(super) fn poll(&mut self, results: &mut Results<'_>) {
        self.poll_attempts(results);
        self.accept();
        self.read(results);
    }

    fn poll_attempts(&mut self, results: &mut Results<'_>) {
        for (path, mut stream) in std::mem::take(&mut self.connecting) {
            match stream.take_error() {
                Ok(Some(error)) | Err(error) => results.record_failure(path, failure(&error)),
                Ok(None) if stream.peer_addr().is_ok() => {
                    let mark = results.mark(path, MARK_LEN).to_bytes();
                    match stream.write_all(&mark) {
                        Ok(()) => self.finished.push(stream),
                        Err(error) => results.record_failure(path, failure(&error)),
                    }
                }
                Ok(None) => self.connecting.push((path, stream)),
            }
        }
    }

    fn accept(&mut self) {
        for listener in &self.listeners {
            while self.incoming.len() < INCOMING_MAX {
                let Ok((stream, _)) = listener.accept() else {
                    break;
                };
                if stream.set_nonblocking(true).is_ok() {
                    self.incoming.push((stream, Vec::new()));
                }
            }
        }
    }

    fn read(&mut self, results: &mut Results<'_>) {
        for (mut stream, mut bytes) in std::mem::take(&mut self.incoming) {
            let mut more = [0; MARK_LEN];
            match stream.read(&mut more[bytes.len()..]) {
                Ok(0) => {}
                Ok(len) => {
                    let begin = bytes.len();
                    bytes.extend(&more[begin..begin + len]);
                    if bytes.len() < MARK_LEN {
                        self.incoming.push((stream, bytes));
                    } else {
                        results.record_packet(By::Tcp, &bytes, HEADERS_LEN);
                        self.finished.push(stream);
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.incoming.push((stream, bytes));
                }
                Err(_) => {}
            }
        }
    }
}

/// Converts a connection error. A refusal comes from the other host, any other error from this one.
fn failure(error: &io::Error) -> Failure {
    let errno = error.raw_os_error().unwrap_or(0);
    let is_remote = matches!(errno, libc::ECONNREFUSED | libc::ECONNRESET);
    Failure { errno, is_remote }
}
