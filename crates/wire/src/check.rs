// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frames with a checksum in front (`P13`). The sum is the caller's to compute.
//!
//! ```text
//!  0        1                          4                  8
//! +--------+--------+-----------------+------------------+------- - -
//! |ver| 7  | 0                        | sum              | frame
//! +--------+--------+-----------------+------------------+------- - -
//! ```
//!
//! The sum covers the frame, whose first byte but one says that a sum stands in front of it. What
//! stands before the sum has one value only, so nothing is left that could change unseen.

use crate::field::{put, u32_at};
use crate::frame::CHECKED;
use crate::{FRAME_HEADER_LEN, FrameHeader, Malformed, VERSION};

/// Bytes in front of a frame with a checksum: the header behind them stays aligned.
pub const CHECK_LEN: usize = 8;

/// The first bytes: version, kind 7, zeros.
const FRONT: [u8; 4] = [(VERSION << 4) | 7, 0, 0, 0];

/// A frame with a checksum that has arrived; nothing of it is proven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckedFrame<'a> {
    /// The frame, to its stated length: what the sum covers.
    pub frame: &'a [u8],
    /// What the sum of it must be.
    pub sum: u32,
}

impl<'a> CheckedFrame<'a> {
    /// Whether `bytes` say that a checksum stands in front; it may still be malformed.
    #[inline]
    #[must_use]
    pub fn has_sum(bytes: &[u8]) -> bool {
        bytes.first() == Some(&FRONT[0])
    }

    /// Whether the frame that `head` begins with is to have a checksum put in front of it.
    #[inline]
    #[must_use]
    pub fn wants_sum(head: &[u8]) -> bool {
        head.get(1).is_some_and(|second| second & CHECKED != 0)
            && head[0] >> 4 == VERSION
            && !crate::SealedFrame::is_sealed(head)
    }

    /// Takes the sum off.
    ///
    /// # Errors
    /// [`Malformed`] when that cannot be a frame with a checksum.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        if bytes.len() < CHECK_LEN + FRAME_HEADER_LEN {
            return Err(Malformed::Truncated);
        }
        if bytes[..4] != FRONT {
            return Err(Malformed::Field);
        }
        let (header, frame) = FrameHeader::parse(&bytes[CHECK_LEN..])?;
        if !header.checked {
            return Err(Malformed::Field);
        }
        Ok(CheckedFrame {
            frame,
            sum: u32_at(bytes, 4),
        })
    }

    /// What stands behind the sum that `head` begins with, and the sum; `None` if it does not.
    #[inline]
    #[must_use]
    pub fn split_front(head: &'a [u8]) -> Option<(&'a [u8], u32)> {
        let (front, behind) = head.split_at_checked(CHECK_LEN)?;
        (front[..4] == FRONT).then(|| (behind, u32_at(front, 4)))
    }

    /// What stands in front of a frame with this sum.
    #[inline]
    #[must_use]
    pub fn front(sum: u32) -> [u8; CHECK_LEN] {
        let mut bytes = [0; CHECK_LEN];
        put(&mut bytes, 0, FRONT);
        put(&mut bytes, 4, sum.to_le_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FrameKind;

    const SUM: u32 = 0x0403_0201;

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
    fn a_frame_is_taken_from_behind_its_sum() {
        let bytes = checked();
        assert_eq!(bytes[..10], [0x17, 0, 0, 0, 1, 2, 3, 4, 0x13, 0x83]);
        assert!(CheckedFrame::has_sum(&bytes) && !CheckedFrame::wants_sum(&bytes));
        assert!(CheckedFrame::wants_sum(&bytes[CHECK_LEN..]));
        let mut padded = [0; 60];
        padded[..28].copy_from_slice(&bytes);
        for bytes in [&bytes[..], &padded] {
            let parsed = CheckedFrame::parse(bytes).unwrap();
            assert_eq!((parsed.frame, parsed.sum), (&bytes[8..28], SUM));
        }
    }

    // P13.2
    #[test]
    fn what_is_no_checked_frame_is_named() {
        let bytes = checked();
        for at in 0..4 {
            let mut other = bytes;
            other[at] ^= 0x40;
            assert_eq!(CheckedFrame::parse(&other), Err(Malformed::Field), "{at}");
        }
        let mut other = bytes;
        other[CHECK_LEN + 1] &= 0x7f;
        assert_eq!(CheckedFrame::parse(&other), Err(Malformed::Field));
        assert_eq!(CheckedFrame::parse(&bytes[..27]), Err(Malformed::Length));
        assert_eq!(CheckedFrame::parse(&bytes[..23]), Err(Malformed::Truncated));
        assert!(!CheckedFrame::has_sum(&[]) && !CheckedFrame::wants_sum(&[0x11]));
    }
}
