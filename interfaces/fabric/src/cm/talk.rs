// SPDX-License-Identifier: MIT OR Apache-2.0
//! A TCP connection that carries one message in each direction, without blocking.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};

use super::socket;
use portolan_wire::{CONNECTION_LEN_MAX, ConnectionFrame, ConnectionWord, EndpointId};

/// A message of the connection protocol.
#[derive(Debug)]
pub(super) struct Said {
    pub(super) word: ConnectionWord,
    pub(super) endpoint_id: EndpointId,
    pub(super) data: Box<[u8]>,
}

/// Result of reading from a connection.
#[derive(Debug)]
pub(super) enum Heard {
    Nothing,
    Said(Said),
    /// The connection was closed, or its data is invalid. Holds the system's error, if there is
    /// one.
    End(Option<io::Error>),
}

/// A connection of the protocol; see the module documentation.
#[derive(Debug)]
pub(super) struct Talk {
    stream: TcpStream,
    heard: Vec<u8>,
}

impl Talk {
    /// Wraps `stream`, which is non-blocking, or made so by [`Talk::prepare`] before use.
    pub(super) fn new(stream: TcpStream) -> Talk {
        Talk {
            stream,
            heard: Vec::new(),
        }
    }

    /// Makes an accepted connection non-blocking.
    pub(super) fn prepare(&self) -> io::Result<()> {
        socket::prepare(&self.stream)
    }

    /// Sends a message. It fits any socket's send buffer, which holds nothing else.
    pub(super) fn say(
        &mut self,
        word: ConnectionWord,
        endpoint_id: EndpointId,
        data: &[u8],
    ) -> io::Result<()> {
        let mut bytes = [0; CONNECTION_LEN_MAX];
        let frame = ConnectionFrame {
            word,
            endpoint_id,
            data,
        };
        let len = frame.emit(&mut bytes);
        self.stream.write_all(&bytes[..len])
    }

    /// Reads a message, if it is complete.
    pub(super) fn hear(&mut self) -> Heard {
        loop {
            match ConnectionFrame::parse(&self.heard) {
                Err(_) => return Heard::End(None),
                Ok(Some((frame, len))) => {
                    let said = Said {
                        word: frame.word,
                        endpoint_id: frame.endpoint_id,
                        data: frame.data.into(),
                    };
                    self.heard.drain(..len);
                    return Heard::Said(said);
                }
                Ok(None) => {}
            }
            let mut bytes = [0; CONNECTION_LEN_MAX];
            // The bytes read so far are an incomplete frame, so there is room for more.
            let room = CONNECTION_LEN_MAX - self.heard.len();
            match self.stream.read(&mut bytes[..room]) {
                Ok(0) => return Heard::End(None),
                Ok(len) => self.heard.extend_from_slice(&bytes[..len]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Heard::Nothing,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Heard::End(Some(error)),
            }
        }
    }

    /// Returns true if the peer is connected and all its data has been read.
    pub(super) fn is_silent(&mut self) -> bool {
        matches!(self.hear(), Heard::Nothing) && self.heard.is_empty()
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

impl AsFd for Talk {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
