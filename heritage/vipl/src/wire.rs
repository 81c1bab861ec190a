// SPDX-License-Identifier: MIT OR Apache-2.0
//! The header of each VIPL message in a Portolan message.
//!
//! ```text
//!  0  kind u8       1  flags u8      2  of long transfers: number of the tagged message u16
//!  4  token of the receiving end of the connection u32
//!  8  number of units of the other direction that the sender has accepted so far u32
//! 12  immediate data, or the number of an RDMA read u32
//! 16  of parts and long messages: bytes of the whole message u32, offset of this part u32
//! 16  of RDMA: address u64, memory handle u32, bytes of the whole transfer u32
//! ```
//! Integers are little-endian. A unit is a message, or a part of one, that is counted: it is
//! retransmitted if lost, and the receiver reports the number it has accepted. Connection messages
//! have a body (`body.rs`) instead of the fields from byte 16 on.

/// Type of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// A message of a send.
    Data,
    /// A part of a message of a send.
    Part,
    /// Data of an RDMA write.
    Write,
    /// An RDMA read request.
    Read,
    /// A part of the data of an RDMA read.
    ReadData,
    /// An acknowledgement of units.
    Ack,
    /// The connection has failed.
    Broken,
    /// The connection was ended.
    Disconnect,
    /// A message of a send, the bytes of which follow as a tagged message.
    LongData,
    /// An RDMA write, the data of which follows as a tagged message.
    LongWrite,
    /// A client's connection request.
    Request,
    /// A peer's connection request.
    PeerRequest,
    /// The result of a request.
    Reply,
    /// Withdrawal of a request.
    Cancel,
}

const KINDS: [Kind; 14] = [
    Kind::Data,
    Kind::Part,
    Kind::Write,
    Kind::Read,
    Kind::ReadData,
    Kind::Ack,
    Kind::Broken,
    Kind::Disconnect,
    Kind::LongData,
    Kind::LongWrite,
    Kind::Request,
    Kind::PeerRequest,
    Kind::Reply,
    Kind::Cancel,
];

/// Flag: the message has immediate data.
pub(crate) const IMMEDIATE: u8 = 1;
/// Flag: the last part.
pub(crate) const LAST: u8 = 2;
/// Flag: the message is a unit.
pub(crate) const COUNTED: u8 = 4;
/// Flag: the immediate data is the number of a failed RDMA read.
pub(crate) const OF_READ: u8 = 8;
/// Flag of an RDMA read: the data is requested as a tagged message. If the read is refused, the
/// message is empty.
pub(crate) const TAGGED: u8 = 16;

/// Length of the fields that all headers have.
pub(crate) const SHORT_LEN: usize = 16;
const PART_LEN: usize = 24;
/// Maximum length of a header.
pub(crate) const LEN_MAX: usize = 32;

/// A header; see the module documentation. Fields that a type does not have are 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) kind: Kind,
    pub(crate) flags: u8,
    /// Number of the tagged message of a long transfer.
    pub(crate) tag: u16,
    pub(crate) token: u32,
    pub(crate) ack: u32,
    pub(crate) imm: u32,
    /// Bytes of the whole message or transfer. In a failure, the status.
    pub(crate) total: u32,
    pub(crate) offset: u32,
    pub(crate) addr: u64,
    pub(crate) handle: u32,
}

impl Kind {
    /// Returns the length of a header of this type.
    #[inline]
    pub(crate) fn header_len(self) -> usize {
        match self {
            Kind::Part | Kind::ReadData | Kind::Broken | Kind::LongData => PART_LEN,
            Kind::Write | Kind::Read | Kind::LongWrite => LEN_MAX,
            _ => SHORT_LEN,
        }
    }
}

fn read_u32(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at + 4)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

impl Header {
    pub(crate) const fn new(kind: Kind, token: u32, ack: u32) -> Header {
        Header {
            kind,
            flags: 0,
            tag: 0,
            token,
            ack,
            imm: 0,
            total: 0,
            offset: 0,
            addr: 0,
            handle: 0,
        }
    }

    #[inline]
    pub(crate) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Writes the header. Returns its length.
    #[inline]
    pub(crate) fn write(&self, out: &mut [u8; LEN_MAX]) -> usize {
        out[0] = self.kind as u8;
        out[1] = self.flags;
        out[2..4].copy_from_slice(&self.tag.to_le_bytes());
        out[4..8].copy_from_slice(&self.token.to_le_bytes());
        out[8..12].copy_from_slice(&self.ack.to_le_bytes());
        out[12..16].copy_from_slice(&self.imm.to_le_bytes());
        let len = self.kind.header_len();
        match len {
            PART_LEN => {
                out[16..20].copy_from_slice(&self.total.to_le_bytes());
                out[20..24].copy_from_slice(&self.offset.to_le_bytes());
            }
            LEN_MAX => {
                out[16..24].copy_from_slice(&self.addr.to_le_bytes());
                out[24..28].copy_from_slice(&self.handle.to_le_bytes());
                out[28..].copy_from_slice(&self.total.to_le_bytes());
            }
            _ => {}
        }
        len
    }

    /// Parses a header and returns the rest. Returns `None` if it is malformed.
    #[inline]
    pub(crate) fn parse(bytes: &[u8]) -> Option<(Header, &[u8])> {
        let kind = *KINDS.get(usize::from(*bytes.first()?))?;
        let len = kind.header_len();
        let (head, rest) = bytes.split_at_checked(len)?;
        let mut header = Header::new(kind, read_u32(head, 4)?, read_u32(head, 8)?);
        header.flags = head[1];
        header.tag = u16::from_le_bytes([head[2], head[3]]);
        header.imm = read_u32(head, 12)?;
        match len {
            PART_LEN => {
                header.total = read_u32(head, 16)?;
                header.offset = read_u32(head, 20)?;
            }
            LEN_MAX => {
                header.addr = u64::from_le_bytes(head[16..24].try_into().ok()?);
                header.handle = read_u32(head, 24)?;
                header.total = read_u32(head, 28)?;
            }
            _ => {}
        }
        Some((header, rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_header_is_parsed_back() {
        for kind in KINDS {
            let len = kind.header_len();
            let header = Header {
                flags: COUNTED | LAST,
                tag: 0x0506,
                imm: 0x0102_0304,
                total: if len > SHORT_LEN { 7 } else { 0 },
                offset: if len == PART_LEN { 5 } else { 0 },
                addr: if len == LEN_MAX { 1 << 60 } else { 0 },
                handle: if len == LEN_MAX { u32::MAX } else { 0 },
                ..Header::new(kind, 0x8000_0001, 9)
            };
            let mut bytes = [0xa5; LEN_MAX];
            assert_eq!(header.write(&mut bytes), len);
            let message = [&bytes[..len], b"abc"].concat();
            assert_eq!(Header::parse(&message), Some((header, &b"abc"[..])));
            for short in 0..len {
                assert_eq!(Header::parse(&message[..short]), None, "{kind:?} {short}");
            }
        }
    }

    #[test]
    fn invalid_header_is_refused() {
        assert_eq!(Header::parse(&[14; 64]), None);
        assert_eq!(Header::parse(&[255; 64]), None);
    }
}
