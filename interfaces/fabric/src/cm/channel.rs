// SPDX-License-Identifier: MIT OR Apache-2.0
//! A TCP connection that carries one message in each direction, without blocking.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};

use super::socket;
use portolan_wire::{CONNECTION_LEN_MAX, ConnectionFrame, ConnectionKind, EndpointId};

/// A message of the connection protocol.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) kind: ConnectionKind,
    pub(super) endpoint_id: EndpointId,
    pub(super) data: Box<[u8]>,
}

/// Result of reading from a connection.
#[derive(Debug)]
pub(super) enum Received {
    Nothing,
    Frame(Frame),
    /// The connection was closed, or its data is invalid. Holds the system's error, if there is
    /// one.
    End(Option<io::Error>),
}

/// A connection of the protocol; see the module documentation.
#[derive(Debug)]
pub(super) struct Channel {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Channel {
    /// Wraps `stream`, which is non-blocking, or made so by [`Channel::prepare`] before use.
    pub(super) fn new(stream: TcpStream) -> Channel {
        Channel {
            stream,
            buffer: Vec::new(),
        }
    }

    /// Makes an accepted connection non-blocking.
    pub(super) fn prepare(&self) -> io::Result<()> {
        socket::prepare(&self.stream)
    }

    /// Sends a message. It fits any socket's send buffer, which holds nothing else.
    pub(super) fn send(
        &mut self,
        kind: ConnectionKind,
        endpoint_id: EndpointId,
        data: &[u8],
    ) -> io::Result<()> {
        let mut bytes = [0; CONNECTION_LEN_MAX];
        let frame = ConnectionFrame {
            kind,
            endpoint_id,
            data,
        };
        let len = frame.emit(&mut bytes);
        self.stream.write_all(&bytes[..len])
    }

    /// Reads a message, if it is complete.
    pub(super) fn receive(&mut self) -> Received {
        loop {
            match ConnectionFrame::parse(&self.buffer) {
                Err(_) => return Received::End(None),
                Ok(Some((frame, len))) => {
                    let frame_read = Frame {
                        kind: frame.kind,
                        endpoint_id: frame.endpoint_id,
                        data: frame.data.into(),
                    };
                    self.buffer.drain(..len);
                    return Received::Frame(frame_read);
                }
                Ok(None) => {}
            }
            let mut bytes = [0; CONNECTION_LEN_MAX];
            // The bytes read so far are an incomplete frame, so there is room for more.
            let free = CONNECTION_LEN_MAX - self.buffer.len();
            match self.stream.read(&mut bytes[..free]) {
                Ok(0) => return Received::End(None),
                Ok(len) => self.buffer.extend_from_slice(&bytes[..len]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Received::Nothing,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Received::End(Some(error)),
            }
        }
    }

    /// Returns true if the peer is connected and all its data has been read.
    pub(super) fn is_idle(&mut self) -> bool {
        matches!(self.receive(), Received::Nothing) && self.buffer.is_empty()
    }

    /// Returns true if a started connection is established.
    ///
    /// # Errors
    /// The connection could not be established.
    pub(super) fn is_connected(&self) -> io::Result<bool> {
        if let Some(error) = self.stream.take_error()? {
            return Err(error);
        }
        match self.stream.peer_addr() {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NotConnected => Ok(false),
            Err(error) => Err(error),
        }
    }

    pub(super) fn local(&self) -> Option<SocketAddr> {
        self.stream.local_addr().ok()
    }

    pub(super) fn remote(&self) -> Option<SocketAddr> {
        self.stream.peer_addr().ok()
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
