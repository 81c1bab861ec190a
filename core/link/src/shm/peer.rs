// SPDX-License-Identifier: MIT OR Apache-2.0
//! Per-peer state.

use super::pull::OfferRecord;
use crate::PeerId;
use portolan_sys::doorbell::{self, Drained};
use portolan_sys::ring::{Bell, RingReceiver, RingSender};
use portolan_sys::seqpacket::Seqpacket;
use portolan_sys::shortage::Shortage;
use std::os::fd::OwnedFd;
use std::time::Instant;

/// The ring to a peer.
pub(super) struct Outbound {
    pub(super) ring: RingSender,
    /// Length of the frame that did not fit, until there is space for it.
    pub(super) blocked_len: Option<usize>,
    pub(super) channel: Channel,
}

/// State of the connection.
pub(super) enum Channel {
    /// Not connected yet: the peer's backlog or the kernel's limit of descriptors in flight was
    /// reached.
    Pending {
        /// Name of the peer's socket.
        name: String,
        /// The ring's memory file.
        memory: OwnedFd,
        /// Time of the first attempt.
        since: Instant,
    },
    /// Connected; the hello was sent.
    Open(Seqpacket),
}

impl Outbound {
    /// Rings the peer if requested. While the connection is pending, no process can be asleep at
    /// its other end.
    #[inline]
    pub(super) fn notify(&self, bell: Bell) {
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
    /// Rings the peer if requested.
    #[inline]
    pub(super) fn notify(&self, bell: Bell) {
        if bell == Bell::Ring {
            doorbell::ring(&self.socket);
        }
    }
}

/// A connection of a peer that returned before the caller removed its previous one.
pub(super) struct Returning {
    pub(super) inbound: Inbound,
    pub(super) pid: Option<u32>,
}

/// A peer to which this process connected, or which sent a hello.
#[derive(Debug, Default)]
pub(super) struct Peer {
    pub(super) life: Life,
    /// Set if it sent a farewell before it hung up: its process is alive.
    pub(super) farewell: bool,
    /// Set if it reported a shortage.
    pub(super) has_shortage: bool,
    /// Pid of the peer as reported by the kernel; `None` if its memory cannot be read.
    pub(super) pid: Option<u32>,
    pub(super) offers: OfferRecord,
}

/// Reason for the end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Departure {
    /// Its process died.
    Died,
    /// Its process is alive.
    Closed,
}

/// Reports of a shortage read in one call. A process reports each resource once; further reports
/// are read by the next poll.
const REPORTS_MAX: usize = 8;

/// Reports received from the other end of a socket.
#[derive(Debug, Default)]
pub(super) struct Reports {
    /// Resource that its process lacks.
    pub(super) shortage: Option<Shortage>,
    /// Reason for its departure, if it has left.
    pub(super) departure: Option<Departure>,
}

impl Reports {
    /// Reads everything that waits at `socket`, including doorbells.
    pub(super) fn read(socket: &Seqpacket) -> Reports {
        let mut reports = Reports::default();
        for _ in 0..REPORTS_MAX {
            reports.departure = match doorbell::drain(socket) {
                Drained::Shortage(shortage) => {
                    reports.shortage = Some(shortage);
                    continue;
                }
                Drained::Bells(_) => None,
                Drained::Farewell => Some(Departure::Closed),
                Drained::HungUp => Some(Departure::Died),
            };
            break;
        }
        reports
    }
}

/// State of a peer between its first connection and [`crate::Link::disconnect`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Life {
    /// Connected.
    #[default]
    Live,
    /// Hung up; frames sent before are still being received.
    Leaving,
    /// Reported as departed.
    Departed,
}

/// Source of an event of the epoll set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token {
    /// A process connects.
    Listener,
    /// An accepted connection without a hello, by its number.
    Greeting(u32),
    /// The ring to a peer.
    Outbound(PeerId),
    /// The ring from a peer.
    Inbound(PeerId),
}

impl Token {
    /// Encodes the kind in the upper half and the number in the lower half.
    pub(super) fn encode(self) -> u64 {
        let (kind, number) = match self {
            Token::Listener => (0, 0),
            Token::Greeting(id) => (1, id),
            Token::Outbound(peer) => (2, peer),
            Token::Inbound(peer) => (3, peer),
        };
        kind << 32 | u64::from(number)
    }

    /// Reverses [`Token::encode`]. The kernel returns tokens unchanged.
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
