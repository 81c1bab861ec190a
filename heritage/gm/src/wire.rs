// SPDX-License-Identifier: MIT OR Apache-2.0
//! Header of each GM message inside a Portolan message.
//!
//! ```text
//!  0  kind u8                1  size u8; highest bit: high priority
//!  2  port of the sender u8  3  port of the receiver u8
//!  4  messages of the other direction that the sender of this one has accepted so far, u32
//!  8  bytes of the message u32
//! 12  tag of the bytes that follow by themselves, or a status u32
//! 16  address u64, of kinds that have one
//! ```
//! Integers are little-endian. Short messages follow their header. The bytes of long ones are sent
//! as a tagged message, directly from user memory to user memory.

use crate::world::{PORTS, SIZES};

/// Kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Message whose bytes follow.
    Data,
    /// Message whose bytes are sent as a tagged message.
    LongData,
    /// Put whose bytes follow.
    Put,
    /// Put whose bytes are sent as a tagged message.
    LongPut,
    /// Request for bytes of memory.
    Get,
    /// Acknowledgement of accepted messages.
    Ack,
    /// Notice that the next message has failed.
    Nack,
    /// Request to continue with the message after the failed one.
    Resume,
    /// Request to discard the messages that were not accepted.
    Drop,
    /// Reply to `Drop`: the messages were discarded.
    Dropped,
    /// Message without an acknowledgement, which may be lost.
    Datagram,
    /// Message without an acknowledgement. It is in order with the messages that have arrived, unless
    /// it was sent best effort, which may overtake.
    Loose,
}

const KINDS: [Kind; 12] = [
    Kind::Data,
    Kind::LongData,
    Kind::Put,
    Kind::LongPut,
    Kind::Get,
    Kind::Ack,
    Kind::Nack,
    Kind::Resume,
    Kind::Drop,
    Kind::Dropped,
    Kind::Datagram,
    Kind::Loose,
];

/// Length of a header without an address, in bytes.
pub(crate) const SHORT_LEN: usize = 16;
/// Length of a header with an address, in bytes.
pub(crate) const LEN: usize = 24;

/// Bit of the high priority in the byte of the size.
const HIGH_BIT: u8 = 0x80;

/// Header of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) kind: Kind,
    pub(crate) size: u8,
    pub(crate) high: bool,
    pub(crate) from_port: u8,
    pub(crate) to_port: u8,
    pub(crate) ack: u32,
    pub(crate) len: u32,
    pub(crate) aux: u32,
    pub(crate) addr: u64,
}

impl Kind {
    fn has_addr(self) -> bool {
        matches!(self, Kind::Put | Kind::LongPut | Kind::Get)
    }

    /// Returns whether the message is ordered with the other messages of its connection.
    pub(crate) fn is_ordered(self) -> bool {
        matches!(
            self,
            Kind::Data | Kind::LongData | Kind::Put | Kind::LongPut | Kind::Get | Kind::Loose
        )
    }
}

fn read_u32(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at + 4)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

impl Header {
    /// Writes the header to `out`, and returns its length.
    #[inline]
    pub(crate) fn write(&self, out: &mut [u8; LEN]) -> usize {
        let high = if self.high { HIGH_BIT } else { 0 };
        out[..4].copy_from_slice(&[
            self.kind as u8,
            self.size | high,
            self.from_port,
            self.to_port,
        ]);
        out[4..8].copy_from_slice(&self.ack.to_le_bytes());
        out[8..12].copy_from_slice(&self.len.to_le_bytes());
        out[12..16].copy_from_slice(&self.aux.to_le_bytes());
        out[16..].copy_from_slice(&self.addr.to_le_bytes());
        match self.kind.has_addr() {
            true => LEN,
            false => SHORT_LEN,
        }
    }

    /// Parses a header and returns it with the bytes after it; `None` if it is invalid.
    #[inline]
    pub(crate) fn parse(bytes: &[u8]) -> Option<(Header, &[u8])> {
        let &[kind, size, from_port, to_port] = bytes.get(..4)? else {
            return None;
        };
        let kind = *KINDS.get(usize::from(kind))?;
        let (addr, len) = match kind.has_addr() {
            true => {
                let addr = bytes.get(SHORT_LEN..LEN)?.try_into().ok()?;
                (u64::from_le_bytes(addr), LEN)
            }
            false => (0, SHORT_LEN),
        };
        let header = Header {
            kind,
            size: size & !HIGH_BIT,
            high: size & HIGH_BIT != 0,
            from_port,
            to_port,
            ack: read_u32(bytes, 4)?,
            len: read_u32(bytes, 8)?,
            aux: read_u32(bytes, 12)?,
            addr,
        };
        let rest = bytes.get(len..)?;
        let follows = match kind {
            Kind::Data | Kind::Put | Kind::Datagram | Kind::Loose => header.len,
            _ => 0,
        };
        let is_complete = usize::try_from(follows) == Ok(rest.len());
        let is_port = |port: u8| usize::from(port) < PORTS;
        (is_complete && usize::from(header.size) < SIZES && is_port(from_port) && is_port(to_port))
            .then_some((header, rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_header_is_parsed_back() {
        for kind in KINDS {
            let header = Header {
                kind,
                size: 5,
                high: kind != Kind::Data,
                from_port: 2,
                to_port: 7,
                ack: 0x0102_0304,
                len: 3,
                aux: u32::MAX,
                addr: if kind.has_addr() { 1 << 60 } else { 0 },
            };
            let mut bytes = [0xa5; LEN];
            let len = header.write(&mut bytes);
            let rest: &[u8] = match kind {
                Kind::Data | Kind::Put | Kind::Datagram | Kind::Loose => b"abc",
                _ => b"",
            };
            let message = [&bytes[..len], rest].concat();
            assert_eq!(Header::parse(&message), Some((header, rest)));
            for short in 0..message.len() {
                assert_eq!(Header::parse(&message[..short]), None, "{short}");
            }
        }
    }

    #[test]
    fn invalid_header_is_refused() {
        let good = [0, 3, 2, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        assert!(Header::parse(&good).is_some());
        for (at, value) in [(0, 12), (1, 32), (2, 8), (3, 255), (8, 1)] {
            let mut bad = good;
            bad[at] = value;
            assert_eq!(Header::parse(&bad), None, "{at}");
        }
    }
}
