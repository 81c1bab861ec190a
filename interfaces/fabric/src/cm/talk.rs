// SPDX-License-Identifier: MIT OR Apache-2.0
//! A TCP connection by which one thing is said each way. It never waits.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};

use super::socket;
use portolan_wire::{CONNECTION_LEN_MAX, ConnectionFrame, ConnectionWord, EndpointId};

/// What was said.
#[derive(Debug)]
pub(super) struct Said {
    pub(super) word: ConnectionWord,
    pub(super) endpoint_id: EndpointId,
    pub(super) data: Box<[u8]>,
}

/// What there is to hear.
#[derive(Debug)]
pub(super) enum Heard {
    Nothing,
    Said(Said),
    /// The other end is closed, or has said what means nothing. Why, if the system knows.
    End(Option<io::Error>),
}

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Talk {
    stream: TcpStream,
    heard: Vec<u8>,
}

impl Talk {
    /// `stream` does not block, or is made so before it is used.
    pub(super) fn new(stream: TcpStream) -> Talk {
        Talk {
            stream,
            heard: Vec::new(),
        }
    }

    /// Have the stream of an accepted connection not block.
    pub(super) fn prepare(&self) -> io::Result<()> {
        socket::prepare(&self.stream)
    }

    /// Say something. It is shorter than any socket's buffer, of which nothing else is used.
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

    /// Hear what has come.
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
            // What has been heard is part of a frame, so there is room for some more.
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

    /// Whether the other end is there, and has said nothing that nobody has heard.
    pub(super) fn is_silent(&mut self) -> bool {
        matches!(self.hear(), Heard::Nothing) && self.heard.is_empty()
    }

    /// Whether a connection that was begun stands now.
    ///
    /// # Errors
    /// It cannot be had.
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
