// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is kept for each peer.

use super::pull::OfferRecord;
use crate::PeerId;
use portolan_sys::doorbell::{self, Drained};
use portolan_sys::lack::Lack;
use portolan_sys::ring::{Bell, RingReceiver, RingSender};
use portolan_sys::seqpacket::Seqpacket;
use std::os::fd::OwnedFd;
use std::time::Instant;

/// The ring to a peer.
pub(super) struct Outbound {
    pub(super) ring: RingSender,
    /// Length of the frame that found no room, until it is known that it would.
    pub(super) blocked_len: Option<usize>,
    pub(super) channel: Channel,
}

/// How far the connection is.
pub(super) enum Channel {
    /// The peer's backlog or the kernel's limit of descriptors under way was full: try again.
    Pending {
        /// Name of the peer's socket.
        name: String,
        /// The ring's memory file.
        memory: OwnedFd,
        /// When it was first tried.
        since: Instant,
    },
    /// The hello is under way or has arrived.
    Open(Seqpacket),
}

impl Outbound {
    /// Rings if asked to. While the connection is pending nobody can be asleep at its other end.
    #[inline]
    pub(super) fn answer(&self, bell: Bell) {
        if bell == Bell::Ring
            && let Channel::Open(socket) = &self.channel
        {
            doorbell::ring(socket);
        }
    }

    pub(super) fn socket(&self) -> Option<&Seqpacket> {
        match &self.channel {
            Channel::Open(socket) => Some(socket),
            Channel::Pending { .. } => None,
        }
    }
}

/// The ring from a peer.
pub(super) struct Inbound {
    pub(super) ring: RingReceiver,
    pub(super) peer: PeerId,
    pub(super) socket: Seqpacket,
}

impl Inbound {
    /// Rings if asked to.
    #[inline]
    pub(super) fn answer(&self, bell: Bell) {
        if bell == Bell::Ring {
            doorbell::ring(&self.socket);
        }
    }
}

/// A peer that has connected again, although it has not been forgotten after it left.
pub(super) struct Returning {
    pub(super) inbound: Inbound,
    pub(super) pid: Option<u32>,
}

/// A peer that was connected to, or has said hello.
#[derive(Debug, Default)]
pub(super) struct Peer {
    pub(super) life: Life,
    /// It bade farewell before it hung up: its process lives on.
    pub(super) farewell: bool,
    /// It has said what it lacks.
    pub(super) lacks: bool,
    /// Its process, as the kernel told; `None` where it cannot be read.
    pub(super) pid: Option<u32>,
    pub(super) offers: OfferRecord,
}

/// How the other end of a socket has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Departure {
    /// With its process.
    Died,
    /// Its process lives on.
    Closed,
}

/// Lacks that are read in one go: a process tells of each resource once. More are read with the next
/// look.
const LACKS_MAX: usize = 8;

/// What the other end of a socket has said.
#[derive(Debug, Default)]
pub(super) struct Heard {
    /// What its process lacks.
    pub(super) lack: Option<Lack>,
    /// How it has gone, if it has.
    pub(super) departure: Option<Departure>,
}

impl Heard {
    /// Takes off what waits at `socket`, bells included.
    pub(super) fn at(socket: &Seqpacket) -> Heard {
        let mut heard = Heard::default();
        for _ in 0..LACKS_MAX {
            heard.departure = match doorbell::drain(socket) {
                Drained::Lack(lack) => {
                    heard.lack = Some(lack);
                    continue;
                }
                Drained::Bells(_) => None,
                Drained::Farewell => Some(Departure::Closed),
                Drained::HungUp => Some(Departure::Died),
            };
            break;
        }
        heard
    }
}

/// Where a peer is between its first connection and [`crate::Link::disconnect`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Life {
    /// Nothing has hung up.
    #[default]
    Live,
    /// Hung up; what it sent before is still being received.
    Leaving,
    /// Reported as gone.
    Gone,
}

/// What an event of the epoll set is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token {
    /// Somebody connects.
    Listener,
    /// An accepted connection without a hello, by number.
    Greeting(u32),
    /// The ring to a peer.
    Outbound(PeerId),
    /// The ring from a peer.
    Inbound(PeerId),
}

impl Token {
    /// Kind in the upper half, number in the lower.
    pub(super) fn encode(self) -> u64 {
        let (kind, number) = match self {
            Token::Listener => (0, 0),
            Token::Greeting(id) => (1, id),
            Token::Outbound(peer) => (2, peer),
            Token::Inbound(peer) => (3, peer),
        };
        kind << 32 | u64::from(number)
    }

    /// Undoes [`Token::encode`]; tokens come back from the kernel as they were given to it.
    #[allow(clippy::cast_possible_truncation, reason = "takes the lower half")]
    pub(super) fn decode(token: u64) -> Self {
        let number = token as u32;
        match token >> 32 {
            1 => Token::Greeting(number),
            2 => Token::Outbound(number),
            3 => Token::Inbound(number),
            _ => Token::Listener,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_survive_a_round_trip() {
        let most = u32::MAX;
        for token in [
            Token::Listener,
            Token::Greeting(most),
            Token::Outbound(0),
            Token::Inbound(most),
        ] {
            assert_eq!(Token::decode(token.encode()), token);
        }
    }
}
