// SPDX-License-Identifier: MIT OR Apache-2.0
//! Blocks to many hosts of one Ethernet at once, by UDP multicast, with repair of what hosts lack.
//!
//! A source sends each block in pieces, a datagram each, to a group that the hosts have joined. How source and
//! hosts tell one another who has which pieces, and who is gone, is their caller's business: `portolan cast`
//! copies files so, and the library broadcasts messages. UDP and not raw Ethernet: it needs no privilege, the
//! kernel cuts and joins runs of datagrams, and what bridges and switches do with it is known.
//!
//! [`Caster`] and [`Listener`] have no descriptors and no clock. A host grants by its reports: the source is
//! never further ahead of the slowest than that one's socket can buffer, nor than the blocks that it may hold.
//!
//! Every host of an Ethernet can hear what is sent to a group, whatever its switches keep from it otherwise.
//! So datagrams are always sealed.
//!
//! The one invariant: no byte of a datagram is believed for itself. It counts only with its seal, for a
//! block that is due.

mod caster;
mod datagram;
mod listener;
mod socket;

pub use caster::{Caster, Moment, Sent};
pub use datagram::{Codec, Header, OVERHEAD_LEN};
pub use listener::Listener;
pub use socket::{Run, Socket, datagram_len, mtu_of};

use portolan_sys::net::PortRange;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};

/// Bytes of a piece at least: fewer make more pieces of a block of a mebibyte than have numbers.
pub const PIECE_LEN_MIN: usize = 64;

/// Ports of groups begin here, below those that systems give away by themselves (from 32,768 on Linux).
const PORT_FIRST: u16 = 20_000;
const PORTS: u16 = 12_000;

/// What the kernel books for a datagram in a socket's buffer where its driver receives into pages: a page,
/// and a record.
const BOOKED_LEN: u64 = 4096 + 512;

/// What source and hosts have agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terms {
    /// Bytes of a block in one datagram.
    pub piece_len: usize,
    /// Datagrams that may be under way to the slowest host.
    pub window: u64,
    /// Number of the last datagram before.
    pub serial: u64,
}

/// How far a host is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Datagrams up to this one have come, or never will.
    pub seen: u64,
    /// The first block that is not whole.
    pub next: u64,
    /// Of what was sent, what has not come.
    pub lacks: Vec<Lack>,
}

/// Pieces of a block, as ranges of first and one past the last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lack {
    /// Number of the block.
    pub block: u64,
    /// Its ranges.
    pub ranges: Vec<(u16, u16)>,
}

/// One past the last piece that was ever sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Front {
    /// The block that pieces are sent of.
    pub block: u64,
    /// How many of it.
    pub pieces: u16,
}

/// What only source and hosts know.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keys {
    /// Each datagram begins with it: what is not theirs is dropped without more ado.
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
    /// Bytes of which they are made.
    pub const LEN: usize = 40;

    /// New ones.
    ///
    /// # Errors
    /// When the system has no random numbers to give.
    pub fn draw() -> io::Result<Keys> {
        let mut bytes = [0; Keys::LEN];
        let mut filled = 0;
        while filled < bytes.len() {
            let flags = rustix::rand::GetRandomFlags::empty();
            filled += rustix::rand::getrandom(&mut bytes[filled..], flags)?;
        }
        Ok(Keys::from_bytes(&bytes))
    }

    /// Those that are made of `bytes`, which nobody else may know or use for anything else.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; Keys::LEN]) -> Keys {
        let (token, seal) = bytes.split_at(8);
        Keys {
            token: u64::from_le_bytes(token.try_into().unwrap_or_default()),
            seal: seal.try_into().unwrap_or_default(),
        }
    }
}

/// Returns the group of a job's number `number`: an address of the range for one site (RFC 2365), and a
/// port of `ports`.
#[must_use]
pub fn group_of(job_id: [u8; 16], number: u16, ports: PortRange) -> SocketAddrV4 {
    let group = Ipv4Addr::new(239, 255, job_id[0], job_id[1]);
    let number = u16::from_le_bytes([job_id[2], job_id[3]]).wrapping_add(number);
    let port = ports.nth(number).unwrap_or(PORT_FIRST + number % PORTS);
    SocketAddrV4::new(group, port)
}

/// Datagrams with pieces of `piece_len` bytes that a socket with a buffer of `buffer_len` bytes surely holds.
#[must_use]
pub fn window_of(buffer_len: u64, piece_len: usize) -> u64 {
    let booked = BOOKED_LEN.max(2 * piece_len as u64);
    (buffer_len / booked).max(1)
}

/// How many pieces a block of `len` bytes has.
fn piece_count(len: usize, piece_len: usize) -> u16 {
    // The least piece and the longest block make some thousands.
    u16::try_from(len.div_ceil(piece_len)).unwrap_or(u16::MAX)
}

/// Where piece `index` of a block of `len` bytes lies; empty beyond its end.
fn piece_range(index: u16, len: usize, piece_len: usize) -> std::ops::Range<usize> {
    let begin = (usize::from(index) * piece_len).min(len);
    begin..(begin + piece_len).min(len)
}

#[cfg(test)]
mod tests;
