// SPDX-License-Identifier: MIT OR Apache-2.0
//! Blocks to all hosts of one Ethernet at once, by UDP multicast, with repair of what hosts lack.
//!
//! The source sends each block in pieces, a datagram each, to a group that the hosts have joined
//! ([`muster`]). Everything else goes by the job's own messages from process to process: who has which
//! pieces, what the source has sent, who is gone. UDP and not raw Ethernet: it needs no privilege, the
//! kernel cuts and joins runs of datagrams, and what bridges and switches do with it is known.
//!
//! [`Caster`] and [`Listener`] have no descriptors and no clock. A host grants by its reports: the
//! source is never further ahead of the slowest than that one's socket can buffer, nor, by what
//! [`crate::relay`] keeps, than the blocks that it may hold.
//!
//! Every host of an Ethernet can hear what is sent to a group, whatever its switches keep from it otherwise.
//! So datagrams are always sealed, by a key of the cast.
//!
//! The one invariant: no byte of a datagram is believed for itself. It counts only with its seal, for a
//! block that is due, and the block only with its hash.

mod caster;
mod datagram;
mod listener;
mod muster;
mod part;
mod socket;

pub(crate) use muster::{Desks, Muster, muster};
pub(crate) use part::{Part, Turn};

use serde::{Deserialize, Serialize};
use std::fmt;

/// What processes tell one another about multicast.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Word {
    /// From the source: join this group.
    Invite {
        group: [u8; 4],
        port: u16,
        keys: Keys,
    },
    /// To the source: joined; the socket buffers that many bytes, and the interface's packets have at
    /// most that many.
    Ready { buffer_len: u64, mtu: u32 },
    /// To the source: not joined.
    Refused { why: String },
    /// From the source: datagrams were sent for trial, so many before and now.
    Trial { count: u64 },
    /// To the source: so many of all datagrams for trial have come.
    Heard { count: u64 },
    /// From the source: the data comes by multicast, or, with `None`, by a chain.
    Begin(Option<Terms>),
    /// To the source: what has come, and what has not.
    Report(Report),
    /// From the source: this was sent, in case that it has not come.
    Sent { serial: u64, front: Front },
}

/// What source and hosts have agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Terms {
    /// Bytes of a block in one datagram.
    pub(crate) piece_len: usize,
    /// Datagrams that may be under way to the slowest host.
    pub(crate) window: u64,
    /// Number of the last datagram before.
    pub(crate) serial: u64,
}

/// How far a host is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Report {
    /// Datagrams up to this one have come, or never will.
    pub(crate) seen: u64,
    /// The first block that is not whole.
    pub(crate) next: u64,
    /// Of what was sent, what has not come.
    pub(crate) lacks: Vec<Lack>,
}

/// Pieces of a block, as ranges of first and one past the last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Lack {
    pub(crate) block: u64,
    pub(crate) ranges: Vec<(u16, u16)>,
}

/// One past the last piece that was ever sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Front {
    pub(crate) block: u64,
    pub(crate) pieces: u16,
}

/// What only members of a cast know. The source draws it, and tells it by the job's own messages.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Keys {
    /// Each datagram begins with it: what is not the cast's is dropped without more ado.
    token: u64,
    /// What seals the datagrams.
    seal: [u8; 32],
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keys")
    }
}

impl Keys {
    /// New ones.
    pub(crate) fn draw() -> std::io::Result<Keys> {
        let mut bytes = [0; 40];
        let mut filled = 0;
        while filled < bytes.len() {
            let flags = rustix::rand::GetRandomFlags::empty();
            filled += rustix::rand::getrandom(&mut bytes[filled..], flags)?;
        }
        let (token, seal) = bytes.split_at(8);
        Ok(Keys {
            token: u64::from_le_bytes(token.try_into().unwrap_or_default()),
            seal: seal.try_into().unwrap_or_default(),
        })
    }
}

/// How many pieces a block's message of `len` bytes has.
fn piece_count(len: usize, piece_len: usize) -> u16 {
    // The least piece and the longest message make some thousands.
    u16::try_from(len.div_ceil(piece_len)).unwrap_or(u16::MAX)
}

/// Where piece `index` of a message of `len` bytes lies; empty beyond its end.
fn piece_range(index: u16, len: usize, piece_len: usize) -> std::ops::Range<usize> {
    let begin = (usize::from(index) * piece_len).min(len);
    begin..(begin + piece_len).min(len)
}

#[cfg(test)]
mod tests;
