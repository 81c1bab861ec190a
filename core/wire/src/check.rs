// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frames with a checksum in front (`P13`). The caller computes the sum.
//!
//! ```text
//!  0        1          2                              8
//! +--------+----------+------------------------------+------- - -
//! |ver| 7  | head_len | sum, 48 bits                 | frame
//! +--------+----------+------------------------------+------- - -
//! ```
//!
//! The sum covers the frame, and the second byte of the frame states that a sum precedes it. Of the
//! bytes before the sum, the first has only one valid value, and the second determines how the sum
//! is computed. No bit can change undetected.

use crate::field::{u16_at, u64_at};
use crate::frame::{CHECKED, FRAME_LEN_AT};
use crate::{FRAME_HEADER_LEN, Malformed, VERSION};

/// Length in bytes of the checksum header. The frame header after it stays aligned.
pub const CHECK_LEN: usize = 8;

/// First byte: version, kind 7.
const FRONT: u8 = (VERSION << 4) | 7;

/// Checksum of a frame, and how it is computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// Number of bytes of the frame that are summed first. Their sum is the seed for the rest.
    pub head_len: u8,
    /// Sum; only the lowest 48 bits are used.
    pub value: u64,
}

impl Sum {
    /// Bits of a sum that are transmitted.
    pub const MASK: u64 = (1 << 48) - 1;

    #[inline]
    fn parse(front: &[u8]) -> Sum {
        Sum {
            head_len: front[1],
            value: u64_at(front, 0) >> 16,
        }
    }
}

/// Received frame with a checksum, not yet verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckedFrame<'a> {
    /// Frame, cut to its stated length; the sum covers these bytes.
    pub frame: &'a [u8],
    /// Expected sum.
    pub sum: Sum,
}

impl<'a> CheckedFrame<'a> {
    /// Returns true if `bytes` begin with a checksum header; they may still be malformed.
    #[inline]
    #[must_use]
    pub fn has_sum(bytes: &[u8]) -> bool {
        bytes.first() == Some(&FRONT)
    }

    /// Returns true if the frame that starts with `head` must be sent with a checksum.
    #[inline]
    #[must_use]
    pub fn needs_sum(head: &[u8]) -> bool {
        head.get(1).is_some_and(|second| second & CHECKED != 0)
            && head[0] >> 4 == VERSION
            && !crate::SealedFrame::is_sealed(head)
    }

    /// Splits the checksum header from the frame.
    ///
    /// # Errors
    /// [`Malformed`] if the bytes cannot be a frame with a checksum.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        if bytes.len() < CHECK_LEN + FRAME_HEADER_LEN {
            return Err(Malformed::Truncated);
        }
        let (front, frame) = bytes.split_at(CHECK_LEN);
        if front[0] != FRONT || frame[1] & CHECKED == 0 {
            return Err(Malformed::Field);
        }
        // The other fields are checked with the frame, after its sum.
        let frame = stated_len(frame).and_then(|len| frame.get(..len));
        Ok(CheckedFrame {
            frame: frame.ok_or(Malformed::Length)?,
            sum: Sum::parse(front),
        })
    }

    /// Returns the length of the datagram at the start of `bytes`, with or without a checksum
    /// header, according to its frame header. Over UDP a frame fills its datagram. `None` if it is
    /// not a frame.
    #[inline]
    #[must_use]
    pub fn datagram_len(bytes: &[u8]) -> Option<usize> {
        let front_len = if Self::has_sum(bytes) { CHECK_LEN } else { 0 };
        Some(front_len + stated_len(bytes.get(front_len..)?)?)
    }

    /// Returns the bytes after the checksum header of `head`, and the sum; `None` if it has none.
    #[inline]
    #[must_use]
    pub fn split_front(head: &'a [u8]) -> Option<(&'a [u8], Sum)> {
        let (front, behind) = head.split_at_checked(CHECK_LEN)?;
        (front[0] == FRONT).then(|| (behind, Sum::parse(front)))
    }

    /// Returns the checksum header for this sum.
    #[inline]
    #[must_use]
    pub fn front(sum: Sum) -> [u8; CHECK_LEN] {
        let low = u64::from(FRONT) | u64::from(sum.head_len) << 8;
        (low | sum.value << 16).to_le_bytes()
    }
}

/// Returns the length that a frame states; `None` if `head` is too short for a frame header, or is
/// not one.
#[inline]
fn stated_len(head: &[u8]) -> Option<usize> {
    if head.len() < FRAME_HEADER_LEN || head[0] >> 4 != VERSION {
        return None;
    }
    let len = usize::from(u16_at(head, FRAME_LEN_AT));
    (len >= FRAME_HEADER_LEN).then_some(len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FrameHeader;
    use crate::FrameKind;
    use crate::field::put;

    const SUM: Sum = Sum {
        head_len: 9,
        value: 0x0605_0403_0201,
    };

    fn checked() -> [u8; CHECK_LEN + 20] {
        let mut bytes = [0xa5; CHECK_LEN + 20];
        put(&mut bytes, 0, CheckedFrame::front(SUM));
        FrameHeader {
            kind: FrameKind::Bulk,
            attempt: 3,
            checked: true,
            frame_len: 20,
            packet_num: 7,
            session: 9,
        }
        .emit(&mut bytes[CHECK_LEN..]);
        bytes
    }

    // P13.2
    #[test]
    fn checked_frame_follows_its_sum() {
        let bytes = checked();
        assert_eq!(bytes[..10], [0x17, 9, 1, 2, 3, 4, 5, 6, 0x13, 0x83]);
        assert!(CheckedFrame::has_sum(&bytes) && !CheckedFrame::needs_sum(&bytes));
        assert!(CheckedFrame::needs_sum(&bytes[CHECK_LEN..]));
        let mut padded = [0; 60];
        padded[..28].copy_from_slice(&bytes);
        for bytes in [&bytes[..], &padded] {
            let parsed = CheckedFrame::parse(bytes).unwrap();
            assert_eq!((parsed.frame, parsed.sum), (&bytes[8..28], SUM));
        }
    }

    // P1.3
    #[test]
    fn datagram_states_its_length() {
        let bytes = checked();
        let behind = [0x17; 60];
        for (frame, len) in [(&bytes[..], 28), (&bytes[CHECK_LEN..], 20)] {
            let run = [frame, &behind].concat();
            assert_eq!(CheckedFrame::datagram_len(&run), Some(len));
            assert_eq!(CheckedFrame::datagram_len(frame), Some(len));
        }
        for head_len in 0..CHECK_LEN + FRAME_HEADER_LEN {
            assert_eq!(CheckedFrame::datagram_len(&bytes[..head_len]), None);
        }
        // Another version, and a length below that of a header.
        for (at, value) in [(CHECK_LEN, 0x23), (CHECK_LEN + FRAME_LEN_AT, 15)] {
            let mut other = bytes;
            other[at] = value;
            assert_eq!(CheckedFrame::datagram_len(&other), None);
        }
    }

    // P13.2
    #[test]
    fn invalid_checked_frame_is_refused() {
        let bytes = checked();
        let mut other = bytes;
        other[0] ^= 0x40;
        assert_eq!(CheckedFrame::parse(&other), Err(Malformed::Field));
        let mut other = bytes;
        other[CHECK_LEN + 1] &= 0x7f;
        assert_eq!(CheckedFrame::parse(&other), Err(Malformed::Field));
        assert_eq!(CheckedFrame::parse(&bytes[..27]), Err(Malformed::Length));
        assert_eq!(CheckedFrame::parse(&bytes[..23]), Err(Malformed::Truncated));
        assert!(!CheckedFrame::has_sum(&[]) && !CheckedFrame::needs_sum(&[0x11]));
    }
}
