// SPDX-License-Identifier: MIT OR Apache-2.0
//! Greeting with which both ends of a new connection prove that they belong to one session. No
//! other data is sent or accepted before.

use crate::PeerId;
use portolan_sys::net;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Instant;

const MAGIC: [u8; 4] = *b"PSTR";
const VERSION: u8 = 4;

/// Bytes of a greeting and of its reply.
const GREETING_LEN: usize = 24;

/// Tokens that the two ends of a session have exchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tokens {
    /// Token of this side.
    pub mine: u64,
    /// Token of the peer.
    pub theirs: u64,
}

impl Tokens {
    /// Encodes the greeting that proves the tokens to the peer; the peer's own token comes first.
    pub(super) fn encode(&self) -> [u8; GREETING_LEN] {
        let mut bytes = [0; GREETING_LEN];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = VERSION;
        bytes[8..16].copy_from_slice(&self.theirs.to_le_bytes());
        bytes[16..].copy_from_slice(&self.mine.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8; GREETING_LEN]) -> Option<Tokens> {
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(word)
        };
        let is_ours = bytes[..4] == MAGIC && bytes[4..8] == [VERSION, 0, 0, 0];
        is_ours.then(|| Tokens {
            mine: word(8),
            theirs: word(16),
        })
    }
}

/// A connection without a verified session.
pub(super) struct Greeter {
    pub(super) socket: TcpStream,
    pub(super) number: u32,
    pub(super) deadline: Instant,
    /// For a connection opened by this side: the peer, the session's tokens, and a flag set after
    /// the greeting was sent.
    opening: Option<(PeerId, Tokens, bool)>,
    got: [u8; GREETING_LEN],
    got_len: usize,
}

/// Result of an event on a greeter.
pub(super) enum Progress {
    Nothing,
    /// Connected, and the greeting was sent.
    Connected,
    Verified(PeerId),
    Ended,
}

impl Greeter {
    pub(super) fn opening(
        socket: TcpStream,
        peer: PeerId,
        tokens: Tokens,
        deadline: Instant,
    ) -> Greeter {
        Greeter {
            opening: Some((peer, tokens, false)),
            ..Greeter::accepted(socket, deadline)
        }
    }

    pub(super) fn accepted(socket: TcpStream, deadline: Instant) -> Greeter {
        Greeter {
            socket,
            number: 0,
            deadline,
            opening: None,
            got: [0; GREETING_LEN],
            got_len: 0,
        }
    }

    /// Returns the peer, if this side opens the connection.
    pub(super) fn peer(&self) -> Option<PeerId> {
        self.opening.map(|(peer, ..)| peer)
    }

    pub(super) fn opens(&self, peer: PeerId) -> bool {
        self.peer() == Some(peer)
    }

    /// Handles an event on the socket.
    pub(super) fn advance(&mut self, owner: &mut dyn FnMut(&Tokens) -> Option<PeerId>) -> Progress {
        self.try_advance(owner).unwrap_or(Progress::Ended)
    }

    fn try_advance(
        &mut self,
        owner: &mut dyn FnMut(&Tokens) -> Option<PeerId>,
    ) -> io::Result<Progress> {
        if let Some((peer, tokens, false)) = self.opening {
            if !net::is_stream_connected(&self.socket)? {
                return Ok(Progress::Nothing);
            }
            // Nothing was sent before, so the buffer has space.
            return match self.socket.write(&tokens.encode())? {
                GREETING_LEN => {
                    self.opening = Some((peer, tokens, true));
                    Ok(Progress::Connected)
                }
                _ => Ok(Progress::Ended),
            };
        }
        match self.socket.read(&mut self.got[self.got_len..]) {
            Ok(0) => return Ok(Progress::Ended),
            Ok(len) => self.got_len += len,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Ok(Progress::Nothing);
            }
            Err(error) => return Err(error),
        }
        if self.got_len < GREETING_LEN {
            return Ok(Progress::Nothing);
        }
        let Some(received) = Tokens::decode(&self.got) else {
            return Ok(Progress::Ended);
        };
        if let Some((peer, tokens, _)) = self.opening {
            let is_verified = received == tokens && owner(&received) == Some(peer);
            return Ok(if is_verified {
                Progress::Verified(peer)
            } else {
                Progress::Ended
            });
        }
        let Some(peer) = owner(&received) else {
            return Ok(Progress::Ended);
        };
        match self.socket.write(&received.encode())? {
            GREETING_LEN => Ok(Progress::Verified(peer)),
            _ => Ok(Progress::Ended),
        }
    }
}
