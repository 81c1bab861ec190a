// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sealed frames: the layout of a frame with encrypted records (`P10`). The caller provides the
//! cipher.
//!
//! ```text
//! 0                16                     frame_len - 24      frame_len - 8
//! +----------------+----------------------+-------------------+------------------------+
//! | frame header,  | records, encrypted   | tag (16 bytes)    | count u32, generation  |
//! | kind | 8       |                      |                   | u32 of the key         |
//! +----------------+----------------------+-------------------+------------------------+
//! ```

use crate::field::{array, put, u16_at, u32_at, u64_at};
use crate::{FRAME_HEADER_LEN, Malformed, VERSION};

/// Length in bytes of the tag that authenticates a sealed frame.
pub const SEAL_TAG_LEN: usize = 16;

/// Number of bytes that sealing adds to a frame: tag and seal number.
pub const SEAL_LEN: usize = SEAL_TAG_LEN + NUMBER_LEN;

const NUMBER_LEN: usize = 8;

/// Flag in the kind of a frame: its records are sealed.
pub(crate) const SEALED: u8 = 0x08;

/// Input of the nonce of a sealed frame. It is never used twice with one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SealNumber {
    /// Key of the session, direction and path.
    pub generation: u32,
    /// Number of frames sealed with that key before.
    pub count: u32,
}

impl SealNumber {
    /// Returns the bytes of the number, as on the wire and in the cipher's nonce.
    #[must_use]
    pub fn to_bytes(self) -> [u8; NUMBER_LEN] {
        let mut bytes = [0; NUMBER_LEN];
        put(&mut bytes, 0, self.count.to_le_bytes());
        put(&mut bytes, 4, self.generation.to_le_bytes());
        bytes
    }
}

/// Received sealed frame, not yet authenticated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SealedFrame<'a> {
    /// Header as received; the tag covers it and the records.
    pub header: [u8; FRAME_HEADER_LEN],
    /// The receiver's session.
    pub session: u64,
    /// Encrypted records, followed by the tag.
    pub body: &'a [u8],
    /// Key and nonce of the frame.
    pub number: SealNumber,
}

impl<'a> SealedFrame<'a> {
    /// Returns true if `frame` is marked as sealed; it may still be malformed.
    #[inline]
    #[must_use]
    pub fn is_sealed(frame: &[u8]) -> bool {
        frame.first().is_some_and(|first| first & SEALED != 0)
    }

    /// Parses a sealed frame.
    ///
    /// # Errors
    /// [`Malformed`] if it is truncated, of another version, not sealed, or shorter than its length
    /// field.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        if bytes.len() < FRAME_HEADER_LEN + SEAL_LEN {
            return Err(Malformed::Truncated);
        }
        // P1.2
        if bytes[0] >> 4 != VERSION {
            return Err(Malformed::Version(bytes[0] >> 4));
        }
        if !SealedFrame::is_sealed(bytes) {
            return Err(Malformed::FrameKind(bytes[0] & 0x0f));
        }
        // P1.3
        let frame_len = usize::from(u16_at(bytes, 2));
        if frame_len < FRAME_HEADER_LEN + SEAL_LEN || frame_len > bytes.len() {
            return Err(Malformed::Length);
        }
        let number_off = frame_len - NUMBER_LEN;
        Ok(SealedFrame {
            header: array(bytes, 0),
            session: u64_at(bytes, 8),
            body: &bytes[FRAME_HEADER_LEN..number_off],
            number: SealNumber {
                count: u32_at(bytes, number_off),
                generation: u32_at(bytes, number_off + 4),
            },
        })
    }

    /// Returns the header of the frame inside.
    #[must_use]
    pub fn plain_header(&self) -> [u8; FRAME_HEADER_LEN] {
        let mut header = self.header;
        header[0] &= !SEALED;
        let frame_len = FRAME_HEADER_LEN + self.body.len() - SEAL_TAG_LEN;
        // The length only shrinks, so it fits 16 bits.
        let frame_len = u16::try_from(frame_len).unwrap_or(u16::MAX);
        put(&mut header, 2, frame_len.to_le_bytes());
        header
    }
}

/// Turns the header of a plain frame into that of the sealed frame, and returns a copy of it.
///
/// # Panics
/// Panics if `frame` is shorter than [`FRAME_HEADER_LEN`].
pub fn seal_header(frame: &mut [u8]) -> [u8; FRAME_HEADER_LEN] {
    frame[0] |= SEALED;
    let frame_len = usize::from(u16_at(frame, 2)) + SEAL_LEN;
    let frame_len = u16::try_from(frame_len).unwrap_or(u16::MAX);
    put(frame, 2, frame_len.to_le_bytes());
    array(frame, 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FrameHeader, FrameKind};

    const NUMBER: SealNumber = SealNumber {
        generation: 0x0807_0605,
        count: 0x0403_0201,
    };

    fn sealed() -> [u8; 44] {
        let mut frame = [0xa5; 44];
        FrameHeader {
            kind: FrameKind::Bulk,
            attempt: 3,
            checked: false,
            frame_len: 20,
            packet_num: 7,
            session: 9,
        }
        .emit(&mut frame);
        seal_header(&mut frame);
        frame[36..].copy_from_slice(&NUMBER.to_bytes());
        frame
    }

    #[test]
    fn sealed_frame_round_trips() {
        let bytes = sealed();
        assert_eq!(bytes[..4], [0x1b, 3, 44, 0]);
        assert_eq!(bytes[36..], [1, 2, 3, 4, 5, 6, 7, 8]);
        let frame = SealedFrame::parse(&bytes).unwrap();
        assert_eq!((frame.session, frame.number), (9, NUMBER));
        assert_eq!(frame.body, &[0xa5; 20]);
        let plain = FrameHeader::parse_head(&frame.plain_header(), 20).unwrap();
        assert_eq!((plain.kind, plain.frame_len), (FrameKind::Bulk, 20));
        assert_eq!((plain.attempt, plain.packet_num), (3, 7));
    }

    // P1.2, P1.3
    #[test]
    fn invalid_sealed_frame_is_refused() {
        let bytes = sealed();
        assert_eq!(SealedFrame::parse(&bytes[..39]), Err(Malformed::Truncated));
        assert_eq!(SealedFrame::parse(&bytes[..43]), Err(Malformed::Length));
        let mut other = bytes;
        other[0] = 0x2b;
        assert_eq!(SealedFrame::parse(&other), Err(Malformed::Version(2)));
        other[0] = 0x13;
        assert_eq!(SealedFrame::parse(&other), Err(Malformed::FrameKind(3)));
        other = bytes;
        other[2] = 39;
        assert_eq!(SealedFrame::parse(&other), Err(Malformed::Length));
        assert!(!SealedFrame::is_sealed(&[]));
    }

    #[test]
    fn padding_of_a_sealed_frame_is_removed() {
        let mut padded = [0; 60];
        padded[..44].copy_from_slice(&sealed());
        let frame = SealedFrame::parse(&padded).unwrap();
        assert_eq!((frame.body.len(), frame.number), (20, NUMBER));
    }
}
