// SPDX-License-Identifier: MIT OR Apache-2.0
//! Consecutive frames with the parts of one message. The first is parsed; the next ones are
//! compared with it.

use crate::ack::{ACK_FIXED_LEN, Ack};
use crate::field::{u16_at, u32_at};
use crate::frame::{FRAME_HEADER_LEN, FRAME_LEN_AT, FrameHeader, FrameKind};
use crate::record::{FRAGMENT_LEN, Fragment};

/// Byte offsets at which such a frame differs from the one before, in addition to its length:
/// packet number, part length and part offset.
const NUM_AT: usize = 4;
const SESSION_AT: usize = 8;
const PART_LEN_AT: usize = FRAME_HEADER_LEN + 4;
const SEQ_AT: usize = FRAME_HEADER_LEN + 6;
const OFFSET_AT: usize = FRAME_HEADER_LEN + 12;
const LABEL_AT: usize = FRAME_HEADER_LEN + FRAGMENT_LEN;

/// Data frame that fills its datagram and contains one fragment, then at most padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FragmentFrame {
    /// Frame header.
    pub header: FrameHeader,
    /// Fragment header, with at least one byte of payload.
    pub fragment: Fragment,
}

impl FragmentFrame {
    /// Parses a datagram; `None` if it is another kind of frame or malformed.
    #[inline]
    #[must_use]
    pub fn parse(datagram: &[u8]) -> Option<FragmentFrame> {
        let header = FrameHeader::parse_head(datagram, datagram.len()).ok()?;
        if header.kind != FrameKind::Data || usize::from(header.frame_len) != datagram.len() {
            return None;
        }
        let fragment = Fragment::peek(&datagram[FRAME_HEADER_LEN..])?;
        let frame = FragmentFrame { header, fragment };
        let end = frame.head_len() + frame.part_len();
        (frame.part_len() > 0 && is_end(datagram, end)).then_some(frame)
    }

    /// Returns the length in bytes of everything before the payload.
    #[inline]
    #[must_use]
    pub fn head_len(&self) -> usize {
        FRAME_HEADER_LEN + self.fragment.header_len()
    }

    /// Returns the payload length in bytes.
    #[inline]
    #[must_use]
    pub fn part_len(&self) -> usize {
        usize::from(self.fragment.message.len)
    }

    /// Returns the part in `datagram` if that frame continues this one, `first`: its packet number
    /// is `ahead` higher and its part lies `ahead` parts further in the message. The part has the
    /// length of this one; the last part of the message may be shorter.
    #[inline]
    #[must_use]
    pub fn part_ahead(&self, first: &[u8], datagram: &[u8], ahead: u32) -> Option<PartAhead> {
        let head_len = self.head_len();
        if datagram.len() < head_len || first.len() < head_len {
            return None;
        }
        let alike = |from: usize, to: usize| datagram[from..to] == first[from..to];
        let is_next = alike(0, FRAME_LEN_AT)
            && alike(SESSION_AT, PART_LEN_AT)
            && alike(SEQ_AT, OFFSET_AT)
            && alike(LABEL_AT, head_len)
            && usize::from(u16_at(datagram, FRAME_LEN_AT)) == datagram.len()
            && u32_at(datagram, NUM_AT) == self.header.packet_num.wrapping_add(ahead);
        let full_len = u32::from(self.fragment.message.len);
        let offset = full_len
            .checked_mul(ahead)?
            .checked_add(self.fragment.offset)?;
        if !is_next || u32_at(datagram, OFFSET_AT) != offset {
            return None;
        }
        let len = u32::from(u16_at(datagram, PART_LEN_AT));
        let left = self.fragment.message_len.checked_sub(offset)?;
        let fits = len == full_len && len <= left || 0 < len && len < full_len && len == left;
        let len = usize::try_from(len).ok()?;
        let end = head_len + len;
        if !fits {
            return None;
        }
        if is_end(datagram, end) {
            return Some(PartAhead { len, ack: None });
        }
        let ack = Ack::peek(datagram.get(end..)?).filter(|ack| ack.word_count == 0)?;
        let ack = Some(ack);
        is_end(datagram, end + ACK_FIXED_LEN).then_some(PartAhead { len, ack })
    }
}

/// Contents of a frame that follows the first one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartAhead {
    /// Payload length in bytes.
    pub len: usize,
    /// Piggybacked acknowledgement, if it has no bitmap.
    pub ack: Option<Ack>,
}

/// Returns true if the records of `datagram` end at `end`: the datagram ends or padding begins
/// (`P1.5`).
#[inline]
fn is_end(datagram: &[u8], end: usize) -> bool {
    match datagram.get(end) {
        Some(kind) => *kind == 0,
        None => datagram.len() == end,
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::match_bits::{MatchBits, Space};
    use crate::record::{LaneId, Message};
    use std::vec;
    use std::vec::Vec;

    fn frame(
        num: u32,
        offset: u32,
        len: u16,
        match_bits: Option<MatchBits>,
        pad: usize,
    ) -> Vec<u8> {
        let fragment = Fragment {
            message: Message {
                lane: LaneId::High,
                best_effort: false,
                system: false,
                port: if match_bits.is_some() { 0 } else { 7 },
                len,
                seq: 9,
                match_bits,
            },
            message_len: 250,
            offset,
        };
        let mut bytes = vec![0xa5; FRAME_HEADER_LEN + fragment.header_len() + usize::from(len)];
        fragment.emit(&mut bytes[FRAME_HEADER_LEN..]);
        bytes.resize(bytes.len() + pad, 0);
        FrameHeader {
            kind: FrameKind::Data,
            attempt: 0,
            checked: false,
            frame_len: u16::try_from(bytes.len()).unwrap(),
            packet_num: num,
            session: 3,
        }
        .emit(&mut bytes);
        bytes
    }

    const LABELS: [Option<MatchBits>; 3] = [
        None,
        Some(MatchBits {
            space: Space::Tagged,
            tag: 77,
            imm: None,
        }),
        Some(MatchBits {
            space: Space::Tagged,
            tag: 77,
            imm: Some(1),
        }),
    ];

    #[test]
    fn fragments_of_one_message_are_consecutive() {
        for match_bits in LABELS {
            let first = frame(u32::MAX, 0, 100, match_bits, 0);
            let parsed = FragmentFrame::parse(&first).unwrap();
            assert_eq!(first.len(), parsed.head_len() + parsed.part_len());
            let ahead = |bytes: &[u8], ahead| {
                let part = parsed.part_ahead(&first, bytes, ahead)?;
                part.ack.is_none().then_some(part.len)
            };
            assert_eq!(ahead(&frame(0, 100, 100, match_bits, 0), 1), Some(100));
            assert_eq!(ahead(&frame(1, 200, 50, match_bits, 0), 2), Some(50));
            assert_eq!(ahead(&frame(1, 200, 50, match_bits, 50), 2), Some(50));
            // Another number, offset or length, with and without padding.
            assert_eq!(ahead(&frame(1, 100, 100, match_bits, 0), 1), None);
            assert_eq!(ahead(&frame(0, 101, 100, match_bits, 0), 1), None);
            assert_eq!(ahead(&frame(0, 100, 99, match_bits, 1), 1), None);
            assert_eq!(ahead(&frame(0, 100, 101, match_bits, 0), 1), None);
            assert_eq!(ahead(&frame(1, 200, 49, match_bits, 0), 2), None);
            assert_eq!(ahead(&frame(1, 200, 51, match_bits, 0), 2), None);
            assert_eq!(ahead(&frame(2, 300, 0, match_bits, 0), 3), None);
        }
    }

    #[test]
    fn frames_that_differ_are_not_consecutive() {
        for match_bits in LABELS {
            let first = frame(4, 0, 100, match_bits, 0);
            let parsed = FragmentFrame::parse(&first).unwrap();
            let next = frame(5, 100, 100, match_bits, 0);
            let part = PartAhead {
                len: 100,
                ack: None,
            };
            assert_eq!(parsed.part_ahead(&first, &next, 1), Some(part));
            for at in 0..parsed.head_len() {
                let mut other = next.clone();
                other[at] ^= 1;
                assert_eq!(parsed.part_ahead(&first, &other, 1), None, "byte {at}");
            }
            for len in 0..next.len() {
                assert_eq!(parsed.part_ahead(&first, &next[..len], 1), None);
                assert_eq!(FragmentFrame::parse(&next[..len]), None);
            }
        }
    }

    #[test]
    fn last_frame_may_piggyback_a_plain_acknowledgement() {
        for match_bits in LABELS {
            let first = frame(4, 0, 100, match_bits, 0);
            let parsed = FragmentFrame::parse(&first).unwrap();
            let ack = Ack {
                path: 1,
                word_count: 0,
                echo_attempt: 0,
                delay_us: 7,
                base: 9,
                echo_num: 8,
            };
            for pad in [0, 1, 30] {
                let mut last = frame(6, 200, 50, match_bits, ACK_FIXED_LEN + pad);
                let at = parsed.head_len() + 50;
                ack.emit(&mut last[at..]);
                let part = PartAhead {
                    len: 50,
                    ack: Some(ack),
                };
                assert_eq!(parsed.part_ahead(&first, &last, 2), Some(part));
                // A frame with a bitmap or with further records takes the general path.
                let mut other = last.clone();
                other[at + 2] = 1;
                assert_eq!(parsed.part_ahead(&first, &other, 2), None);
                if pad > 0 {
                    let mut other = last.clone();
                    other[at + ACK_FIXED_LEN] = 7;
                    assert_eq!(parsed.part_ahead(&first, &other, 2), None);
                }
            }
            let short = frame(6, 200, 50, match_bits, ACK_FIXED_LEN - 1);
            let mut short = short;
            short[parsed.head_len() + 50] = 8;
            assert_eq!(parsed.part_ahead(&first, &short, 2), None);
        }
    }

    #[test]
    fn frame_with_another_record_is_not_consecutive() {
        let mut bytes = frame(4, 0, 100, None, 20);
        let first = bytes.clone();
        let parsed = FragmentFrame::parse(&first).unwrap();
        let end = parsed.head_len() + parsed.part_len();
        bytes[end] = 7;
        assert_eq!(FragmentFrame::parse(&bytes), None);
        let mut next = frame(5, 100, 100, None, 20);
        next[end] = 7;
        assert_eq!(parsed.part_ahead(&first, &next, 1), None);
        let mut bulk = frame(4, 0, 100, None, 0);
        bulk[0] = bulk[0] & 0xf0 | 3;
        assert_eq!(FragmentFrame::parse(&bulk), None);
    }
}
