// SPDX-License-Identifier: MIT OR Apache-2.0
//! Transmission of blocks to many hosts of one Ethernet at once, by UDP multicast with repair of
//! losses.
//!
//! A source sends each block in pieces, one per datagram, to a group that the hosts have joined.
//! The caller carries the reports between source and hosts, and detects failed hosts. `portolan
//! cast` copies files this way, and the library broadcasts messages. It uses UDP instead of raw
//! Ethernet, because UDP needs no privilege, the kernel segments and merges runs of datagrams, and
//! bridges and switches handle it predictably.
//!
//! [`Caster`] and [`Listener`] have no descriptors and no clock. A host's reports act as grants.
//! The source is never further ahead of the slowest host than its socket can buffer, or than the
//! blocks that it may hold.
//!
//! Every host of an Ethernet can receive datagrams of a group, even behind switches. Datagrams are
//! therefore always encrypted and authenticated.
//!
//! Invariant: a datagram is accepted only with a valid authentication tag, for a block that is due.

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

/// Minimum length of a piece in bytes. With fewer, a block of 1 MiB would have more pieces than
/// there are numbers.
pub const PIECE_LEN_MIN: usize = 64;

/// First port of groups, below the ports that systems assign themselves (from 32,768 on Linux).
const PORT_FIRST: u16 = 20_000;
const PORTS: u16 = 12_000;

/// Bytes that the kernel charges for a datagram in a socket's buffer if its driver receives into
/// pages: a page and a record.
const CHARGED_LEN: u64 = 4096 + 512;

/// Parameters agreed on by source and hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terms {
    /// Bytes of a block in one datagram.
    pub piece_len: usize,
    /// Maximum number of datagrams in flight to the slowest host.
    pub window: u64,
    /// Number of the last datagram before the start.
    pub serial: u64,
}

/// Progress of a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Datagrams up to this number have arrived or are lost.
    pub seen: u64,
    /// The first incomplete block.
    pub next: u64,
    /// Sent pieces that have not arrived.
    #[serde(rename = "lacks")]
    pub missing: Vec<MissingPieces>,
}

/// Missing pieces of a block, as half-open ranges.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissingPieces {
    /// Number of the block.
    pub block: u64,
    /// Ranges, each with its first piece and one past its last.
    pub ranges: Vec<(u16, u16)>,
}

/// Position after the last piece sent so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Front {
    /// Current block.
    pub block: u64,
    /// Number of its pieces sent so far.
    pub pieces: u16,
}

/// Secrets shared by source and hosts.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keys {
    /// First bytes of each datagram; all other datagrams are dropped early.
    token: u64,
    /// Key that encrypts and authenticates the datagrams.
    seal: [u8; 32],
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keys")
    }
}

impl Keys {
    /// Bytes from which the keys are made.
    pub const LEN: usize = 40;

    /// Draws new random keys.
    ///
    /// # Errors
    /// Fails if the system has no random numbers.
    pub fn draw() -> io::Result<Keys> {
        let mut bytes = [0; Keys::LEN];
        let mut filled = 0;
        while filled < bytes.len() {
            let flags = rustix::rand::GetRandomFlags::empty();
            filled += rustix::rand::getrandom(&mut bytes[filled..], flags)?;
        }
        Ok(Keys::from_bytes(&bytes))
    }

    /// Makes keys from `bytes`, which must be secret and have no other use.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; Keys::LEN]) -> Keys {
        let (token, seal) = bytes.split_at(8);
        Keys {
            token: u64::from_le_bytes(token.try_into().unwrap_or_default()),
            seal: seal.try_into().unwrap_or_default(),
        }
    }
}

/// Returns the group of a job with index `number`: a site-local address (RFC 2365) and a port of
/// `ports`.
#[must_use]
pub fn group_of(job_id: [u8; 16], number: u16, ports: PortRange) -> SocketAddrV4 {
    let group = Ipv4Addr::new(239, 255, job_id[0], job_id[1]);
    let number = u16::from_le_bytes([job_id[2], job_id[3]]).wrapping_add(number);
    let port = ports.nth(number).unwrap_or(PORT_FIRST + number % PORTS);
    SocketAddrV4::new(group, port)
}

/// Returns how many datagrams with pieces of `piece_len` bytes a socket buffer of `buffer_len`
/// bytes can certainly hold.
#[must_use]
pub fn window_of(buffer_len: u64, piece_len: usize) -> u64 {
    let charged = CHARGED_LEN.max(2 * piece_len as u64);
    (buffer_len / charged).max(1)
}

/// Returns the number of pieces of a block of `len` bytes.
fn piece_count(len: usize, piece_len: usize) -> u16 {
    // The shortest piece and the longest block give some thousands.
    u16::try_from(len.div_ceil(piece_len)).unwrap_or(u16::MAX)
}

/// Returns the range of piece `index` in a block of `len` bytes; empty beyond its end.
fn piece_range(index: u16, len: usize, piece_len: usize) -> std::ops::Range<usize> {
    let begin = (usize::from(index) * piece_len).min(len);
    begin..(begin + piece_len).min(len)
}

#[cfg(test)]
mod tests;
