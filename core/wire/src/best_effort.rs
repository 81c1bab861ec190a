// SPDX-License-Identifier: MIT OR Apache-2.0
//! Record for a part of a best-effort message that fills several frames (`P7.6`).

use crate::field::{put, u16_at, u32_at};
use crate::{LaneId, Malformed, flags};

/// Length in bytes of the header.
pub const BEST_EFFORT_PART_LEN: usize = 20;

pub(crate) const KIND_BEST_EFFORT_PART: u8 = 11;

/// Header of a part of a best-effort message; `len` bytes of payload follow.
///
/// ```text
/// | kind u8 | flags u8 | port u16 | len u16 | 0 u16 | message_len u32 | offset u32 | number u32 |
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BestEffortPart {
    /// Priority.
    pub lane: LaneId,
    /// Set if the port belongs to the library, not to the program.
    pub system: bool,
    /// Destination port.
    pub port: u16,
    /// Payload length in bytes.
    pub len: u16,
    /// Length of the whole message in bytes.
    pub message_len: u32,
    /// Byte offset of this part in the message.
    pub offset: u32,
    /// Number of the message, counting only messages of its lane that fill several frames. It has
    /// 32 bits, so that a late part is never assigned to another message.
    pub number: u32,
}

impl BestEffortPart {
    /// Parses the header; `bytes` holds at least [`BEST_EFFORT_PART_LEN`].
    pub(crate) fn parse(bytes: &[u8]) -> Result<BestEffortPart, Malformed> {
        let part = BestEffortPart {
            lane: flags::lane_of(bytes[1]),
            system: bytes[1] & flags::SYSTEM != 0,
            port: u16_at(bytes, 2),
            len: u16_at(bytes, 4),
            message_len: u32_at(bytes, 8),
            offset: u32_at(bytes, 12),
            number: u32_at(bytes, 16),
        };
        let end = u64::from(part.offset) + u64::from(part.len);
        // P1.6, P1.7
        let is_known = bytes[1] & !(flags::HIGH | flags::SYSTEM) == 0;
        match is_known && part.len > 0 && end <= u64::from(part.message_len) {
            true => Ok(part),
            false => Err(Malformed::Field),
        }
    }

    /// Parses the header of the record at the front of `bytes`; `None` if it is of another kind or
    /// malformed.
    #[must_use]
    pub fn peek(bytes: &[u8]) -> Option<BestEffortPart> {
        let is_one = bytes.first() == Some(&KIND_BEST_EFFORT_PART);
        let has_header = bytes.len() >= BEST_EFFORT_PART_LEN;
        (is_one && has_header).then(|| BestEffortPart::parse(bytes).ok())?
    }

    /// Writes the header into the first [`BEST_EFFORT_PART_LEN`] bytes.
    ///
    /// # Panics
    /// Panics if `bytes` is shorter.
    pub fn emit(&self, bytes: &mut [u8]) {
        let system = if self.system { flags::SYSTEM } else { 0 };
        bytes[0] = KIND_BEST_EFFORT_PART;
        bytes[1] = flags::of_lane(self.lane) | system;
        put(bytes, 2, self.port.to_le_bytes());
        put(bytes, 4, self.len.to_le_bytes());
        put(bytes, 6, [0; 2]);
        put(bytes, 8, self.message_len.to_le_bytes());
        put(bytes, 12, self.offset.to_le_bytes());
        put(bytes, 16, self.number.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Record, Records};

    const PART: BestEffortPart = BestEffortPart {
        lane: LaneId::High,
        system: true,
        port: 515,
        len: 3,
        message_len: 65_536,
        offset: 65_533,
        number: 0xfeed_f00d,
    };

    fn frame() -> [u8; 23] {
        let mut bytes = [0xa5; 23];
        PART.emit(&mut bytes);
        bytes
    }

    // P1.1, P7.6
    #[test]
    fn part_round_trips() {
        let bytes = frame();
        let expected = [
            11, 5, 3, 2, 3, 0, 0, 0, 0, 0, 1, 0, 0xfd, 0xff, 0, 0, 0x0d, 0xf0, 0xed, 0xfe,
        ];
        assert_eq!(bytes[..20], expected);
        let mut records = Records::new(&bytes, 0, bytes.len());
        let first = records.next().unwrap().unwrap();
        assert_eq!(first, (Record::BestEffortPart(PART), 20..23));
        assert_eq!(records.next(), None);
        assert_eq!(BestEffortPart::peek(&bytes), Some(PART));
    }

    // P1.6, P1.7
    #[test]
    fn invalid_part_is_refused() {
        let parse = |bytes: &[u8]| Records::new(bytes, 0, bytes.len()).next().unwrap();
        // Unknown flags; no payload; payload beyond the message, by one byte and by far.
        let bad = [
            (1, 2),
            (1, 8),
            (4, 0),
            (12, 0xfe),
            (14, 1),
            (15, 0xff),
            (10, 0),
        ];
        for (at, value) in bad {
            let mut bytes = frame();
            bytes[at] = value;
            assert_eq!(parse(&bytes), Err(Malformed::Field), "{value} at {at}");
            assert_eq!(BestEffortPart::peek(&bytes), None);
        }
        for len in 8..20 {
            assert_eq!(parse(&frame()[..len]), Err(Malformed::Truncated), "{len}");
        }
        assert_eq!(parse(&frame()[..22]), Err(Malformed::Length), "no payload");
    }
}
