// SPDX-License-Identifier: MIT OR Apache-2.0
//! Greeting with which both ends of a new connection prove that they belong to one session. No
//! other data is sent or accepted before.

use crate::PeerId;
use portolan_sys::net;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Instant;

const MAGIC: [u8; 4] = *b"PSTR";
const VERSION: u8 = 2;

/// Bytes of a greeting and of its answer.
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
    pub(super) until: Instant,
    /// For a connection opened by this side: the peer, the session's tokens, and a flag set after
    /// the greeting was sent.
    opening: Option<(PeerId, Tokens, bool)>,
    got: [u8; GREETING_LEN],
    got_len: usize,
}

/// Result of an event on a greeter.
pub(super) enum Heard {
    Nothing,
    /// Connected, and the greeting was sent.
    Connected,
    Proven(PeerId),
    Ended,
}

impl Greeter {
    pub(super) fn opening(
        socket: TcpStream,
        peer: PeerId,
        tokens: Tokens,
        until: Instant,
    ) -> Greeter {
        Greeter {
            opening: Some((peer, tokens, false)),
            ..Greeter::accepted(socket, until)
        }
    }

    pub(super) fn accepted(socket: TcpStream, until: Instant) -> Greeter {
        Greeter {
            socket,
            number: 0,
            until,
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
    pub(super) fn hear(&mut self, owner: &mut dyn FnMut(&Tokens) -> Option<PeerId>) -> Heard {
        self.try_hear(owner).unwrap_or(Heard::Ended)
    }

    fn try_hear(&mut self, owner: &mut dyn FnMut(&Tokens) -> Option<PeerId>) -> io::Result<Heard> {
        if let Some((peer, tokens, false)) = self.opening {
            if !net::stream_stands(&self.socket)? {
                return Ok(Heard::Nothing);
            }
            // Nothing was sent before, so the buffer has room.
            return match self.socket.write(&tokens.encode())? {
                GREETING_LEN => {
                    self.opening = Some((peer, tokens, true));
                    Ok(Heard::Connected)
                }
                _ => Ok(Heard::Ended),
            };
        }
        match self.socket.read(&mut self.got[self.got_len..]) {
            Ok(0) => return Ok(Heard::Ended),
            Ok(len) => self.got_len += len,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Heard::Nothing),
            Err(error) => return Err(error),
        }
        if self.got_len < GREETING_LEN {
            return Ok(Heard::Nothing);
        }
        let Some(said) = Tokens::decode(&self.got) else {
            return Ok(Heard::Ended);
        };
        if let Some((peer, tokens, _)) = self.opening {
            let proven = said == tokens && owner(&said) == Some(peer);
            return Ok(if proven {
                Heard::Proven(peer)
            } else {
                Heard::Ended
            });
        }
        let Some(peer) = owner(&said) else {
            return Ok(Heard::Ended);
        };
        match self.socket.write(&said.encode())? {
            GREETING_LEN => Ok(Heard::Proven(peer)),
            _ => Ok(Heard::Ended),
        }
    }
}
