// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frame headers, which begin every datagram.

use crate::Malformed;
use crate::field::{put, u16_at, u32_at, u64_at};
use crate::seal::SEALED;

/// Protocol version; the high nibble of the first byte.
pub const VERSION: u8 = 1;

/// Length in bytes of the header of every frame.
pub const FRAME_HEADER_LEN: usize = 16;

/// Byte offset of the length field in a frame header.
pub(crate) const FRAME_LEN_AT: usize = 2;

/// Length in bytes of the headers in a bulk datagram: frame header, transfer, fragment index.
pub const BULK_HEADER_LEN: usize = 24;

/// Highest [`FrameHeader::attempt`]; the field has seven bits.
pub const ATTEMPT_MAX: u8 = 0x7f;

/// Flag in the byte of the attempt: a checksum precedes the frame (`P13`).
pub(crate) const CHECKED: u8 = 0x80;

// DESIGN: at most 24 bytes of header in a bulk datagram.
const _: () = assert!(BULK_HEADER_LEN <= 24 && BULK_HEADER_LEN == FRAME_HEADER_LEN + 8);

/// Kinds of frame; the low nibble of the first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FrameKind {
    /// Records; acknowledged by packet number.
    Data,
    /// Records without a packet number: acknowledgements and best-effort messages.
    Unnumbered,
    /// One fragment of a granted transfer; acknowledged by packet number.
    Bulk,
    /// Opens a session.
    Hello,
    /// Answers a hello.
    HelloAck,
    /// Sent by a side that has closed the session (`P2.8`).
    Reset,
}

impl FrameKind {
    #[inline]
    fn from_nibble(nibble: u8) -> Result<Self, Malformed> {
        Ok(match nibble {
            1 => FrameKind::Data,
            2 => FrameKind::Unnumbered,
            3 => FrameKind::Bulk,
            4 => FrameKind::Hello,
            5 => FrameKind::HelloAck,
            6 => FrameKind::Reset,
            // P1.4
            other => return Err(Malformed::FrameKind(other)),
        })
    }

    /// Returns true for frames of a session with contents: records or a fragment.
    #[inline]
    #[must_use]
    pub fn has_contents(self) -> bool {
        matches!(
            self,
            FrameKind::Data | FrameKind::Unnumbered | FrameKind::Bulk
        )
    }

    #[inline]
    fn nibble(self) -> u8 {
        match self {
            FrameKind::Data => 1,
            FrameKind::Unnumbered => 2,
            FrameKind::Bulk => 3,
            FrameKind::Hello => 4,
            FrameKind::HelloAck => 5,
            FrameKind::Reset => 6,
        }
    }
}

/// Header of every frame.
///
/// ```text
///  0        1        2                 4                                   8
/// +--------+--------+-----------------+-----------------------------------+
/// |ver|kind|attempt | frame_len       | packet_num                        |
/// +--------+--------+-----------------+-----------------------------------+
/// | session                                                               |
/// +-----------------------------------------------------------------------+
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// Kind of frame.
    pub kind: FrameKind,
    /// Number of the transmission: 0 for the first, then counted up (saturating), at most
    /// [`ATTEMPT_MAX`]. An acknowledgement echoes it, so that a round trip is measured against the
    /// right transmission.
    pub attempt: u8,
    /// Set if a checksum precedes the frame on the wire (`P13`).
    pub checked: bool,
    /// Length of the whole frame in bytes. A datagram may be longer (Ethernet pads), never shorter.
    pub frame_len: u16,
    /// Number of this frame on its path; 0 if the kind has none.
    pub packet_num: u32,
    /// Receiver's session: the token from its hello. 0 in a hello.
    pub session: u64,
}

impl FrameHeader {
    /// Parses the header and returns it with the frame cut to its stated length.
    ///
    /// # Errors
    /// [`Malformed`] if the bytes are truncated, of another version or kind, or shorter than their
    /// length field.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<(FrameHeader, &[u8]), Malformed> {
        let header = FrameHeader::parse_head(bytes, bytes.len())?;
        Ok((header, &bytes[..usize::from(header.frame_len)]))
    }

    /// Parses the header of a datagram of `total_len` bytes; `head` holds its first bytes.
    ///
    /// # Errors
    /// Returns the errors of [`FrameHeader::parse`].
    #[inline]
    pub fn parse_head(head: &[u8], total_len: usize) -> Result<FrameHeader, Malformed> {
        if head.len() < FRAME_HEADER_LEN {
            return Err(Malformed::Truncated);
        }
        // P1.2
        if head[0] >> 4 != VERSION {
            return Err(Malformed::Version(head[0] >> 4));
        }
        let header = FrameHeader {
            kind: FrameKind::from_nibble(head[0] & 0x0f)?,
            attempt: head[1] & ATTEMPT_MAX,
            checked: head[1] & CHECKED != 0,
            frame_len: u16_at(head, FRAME_LEN_AT),
            packet_num: u32_at(head, 4),
            session: u64_at(head, 8),
        };
        // P1.3
        let frame_len = usize::from(header.frame_len);
        if frame_len < FRAME_HEADER_LEN || frame_len > total_len {
            return Err(Malformed::Length);
        }
        Ok(header)
    }

    /// Writes the header into the first [`FRAME_HEADER_LEN`] bytes.
    ///
    /// # Panics
    /// Panics if `bytes` is shorter than that.
    #[inline]
    pub fn emit(&self, bytes: &mut [u8]) {
        let attempt = self.attempt.min(ATTEMPT_MAX) | if self.checked { CHECKED } else { 0 };
        // Two words: a checksum reads them next, and the processor cannot forward narrower stores.
        let word = u64::from((VERSION << 4) | self.kind.nibble())
            | u64::from(attempt) << 8
            | u64::from(self.frame_len) << (8 * FRAME_LEN_AT)
            | u64::from(self.packet_num) << 32;
        let bytes = &mut bytes[..FRAME_HEADER_LEN];
        put(bytes, 0, word.to_le_bytes());
        put(bytes, 8, self.session.to_le_bytes());
    }

    /// Returns true if the frame has only this header and no packet number, as required of a
    /// [`FrameKind::Reset`]. The kind of a reset differs by one bit from that of frames with
    /// records.
    #[must_use]
    pub fn is_bare(&self) -> bool {
        usize::from(self.frame_len) == FRAME_HEADER_LEN && (self.packet_num, self.attempt) == (0, 0)
    }

    /// Returns the session of a frame with a packet number, sealed or not; `None` for other frames.
    #[must_use]
    pub fn session_of_numbered(frame: &[u8]) -> Option<u64> {
        let head = frame.get(..FRAME_HEADER_LEN)?;
        let kind = FrameKind::from_nibble(head[0] & 0x0f & !SEALED).ok()?;
        matches!(kind, FrameKind::Data | FrameKind::Bulk).then(|| u64_at(head, 8))
    }

    /// Overwrites the attempt in an emitted header.
    #[inline]
    pub fn set_attempt(bytes: &mut [u8], attempt: u8) {
        bytes[1] = bytes[1] & CHECKED | attempt.min(ATTEMPT_MAX);
    }
}

/// Header fields that a bulk frame adds: the transfer and the fragment of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BulkHeader {
    /// Receiver's number for the transfer, from its grant.
    pub transfer: u32,
    /// Index of the fragment. All fragments but the last have the length stated in the request to
    /// send.
    pub fragment_index: u32,
}

impl BulkHeader {
    /// Parses the eight bytes after the frame header.
    ///
    /// # Errors
    /// [`Malformed::Truncated`] if they are missing.
    #[inline]
    pub fn parse(frame: &[u8]) -> Result<BulkHeader, Malformed> {
        if frame.len() < BULK_HEADER_LEN {
            return Err(Malformed::Truncated);
        }
        Ok(BulkHeader {
            transfer: u32_at(frame, FRAME_HEADER_LEN),
            fragment_index: u32_at(frame, FRAME_HEADER_LEN + 4),
        })
    }

    /// Writes the eight bytes after the frame header.
    ///
    /// # Panics
    /// Panics if `frame` is shorter than [`BULK_HEADER_LEN`].
    #[inline]
    pub fn emit(&self, frame: &mut [u8]) {
        put(frame, FRAME_HEADER_LEN, self.transfer.to_le_bytes());
        put(
            frame,
            FRAME_HEADER_LEN + 4,
            self.fragment_index.to_le_bytes(),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATA: [u8; 20] = [
        0x11, 2, 20, 0, 0x78, 0x56, 0x34, 0x12, 8, 7, 6, 5, 4, 3, 2, 1, 0xaa, 0xbb, 0xcc, 0xdd,
    ];

    #[test]
    fn session_is_read_through_the_seal() {
        let mut frame = DATA;
        for (kind, numbered) in [(1, true), (2, false), (3, true), (4, false), (6, false)] {
            for sealed in [0, 8] {
                frame[0] = 0x10 | kind | sealed;
                let session = FrameHeader::session_of_numbered(&frame);
                assert_eq!(session, numbered.then_some(0x0102_0304_0506_0708), "{kind}");
            }
        }
        assert_eq!(FrameHeader::session_of_numbered(&DATA[..15]), None);
    }

    // P1.1
    #[test]
    fn header_parses_real_bytes() {
        let (header, frame) = FrameHeader::parse(&DATA).unwrap();
        assert_eq!(header.kind, FrameKind::Data);
        assert_eq!(header.attempt, 2);
        assert_eq!(header.packet_num, 0x1234_5678);
        assert_eq!(header.session, 0x0102_0304_0506_0708);
        assert_eq!(frame.len(), 20);
    }

    #[test]
    fn header_emits_every_byte() {
        let (header, _) = FrameHeader::parse(&DATA).unwrap();
        let mut bytes = [0xa5; FRAME_HEADER_LEN];
        header.emit(&mut bytes);
        assert_eq!(bytes, DATA[..FRAME_HEADER_LEN]);
    }

    // P13.1
    #[test]
    fn checksum_mark_survives_a_new_attempt() {
        let mut bytes = DATA;
        bytes[1] = 0x82;
        let (header, _) = FrameHeader::parse(&bytes).unwrap();
        assert!(header.checked && header.attempt == 2);
        let mut again = DATA;
        header.emit(&mut again);
        assert_eq!(again, bytes);
        FrameHeader::set_attempt(&mut bytes, 0xff);
        assert_eq!(bytes[1], 0xff);
        let mut plain = DATA;
        FrameHeader::set_attempt(&mut plain, 0xff);
        assert_eq!(plain[1], ATTEMPT_MAX);
    }

    // P1.3
    #[test]
    fn trailing_padding_is_removed() {
        let mut padded = [0u8; 60];
        padded[..20].copy_from_slice(&DATA);
        assert_eq!(FrameHeader::parse(&padded).unwrap().1.len(), 20);
    }

    // P1.2, P1.3, P1.4
    #[test]
    fn malformed_headers_return_their_error() {
        assert_eq!(FrameHeader::parse(&DATA[..15]), Err(Malformed::Truncated));
        assert_eq!(FrameHeader::parse(&DATA[..19]), Err(Malformed::Length));
        let mut other = DATA;
        other[0] = 0x21;
        assert_eq!(FrameHeader::parse(&other), Err(Malformed::Version(2)));
        other[0] = 0x1f;
        assert_eq!(FrameHeader::parse(&other), Err(Malformed::FrameKind(15)));
        other = DATA;
        other[2] = 15;
        assert_eq!(FrameHeader::parse(&other), Err(Malformed::Length));
    }

    #[test]
    fn bulk_header_round_trips() {
        let bulk = BulkHeader {
            transfer: 0xdead_beef,
            fragment_index: 7,
        };
        let mut frame = [0xa5; BULK_HEADER_LEN];
        bulk.emit(&mut frame);
        assert_eq!(BulkHeader::parse(&frame), Ok(bulk));
        assert_eq!(BulkHeader::parse(&frame[..23]), Err(Malformed::Truncated));
    }
}
