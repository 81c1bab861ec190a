// SPDX-License-Identifier: MIT OR Apache-2.0
//! Match bits: the fields by which a message without a port is matched (`P11.1`).

use crate::Malformed;
use crate::field::{put, u64_at};

/// Length in bytes of the longest match bits.
pub const LABEL_LEN_MAX: usize = 16;

const FLAG_IMMEDIATE: u8 = 1;

/// Matching space. Messages and receives of different spaces never match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Space {
    /// Matched by tag and sender.
    Tagged,
    /// Matched by sender alone; the tag is 0.
    Plain,
}

impl Space {
    /// Returns 0 for tagged, 1 for plain.
    #[inline]
    #[must_use]
    pub fn index(self) -> usize {
        match self {
            Space::Tagged => 0,
            Space::Plain => 1,
        }
    }
}

/// Match bits of a message, with an optional word for its receiver.
///
/// Bytes 2 and 3 of the record's header contain the space and a flag for the word. The tag and the
/// word follow the header.
///
/// ```text
/// 2 | space u8 | flags u8 |     behind the header: | tag u64 | [immediate u64] |
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MatchBits {
    /// Matching space.
    pub space: Space,
    /// The tag.
    pub tag: u64,
    /// Immediate data: not part of the message, and available together with the match bits.
    pub imm: Option<u64>,
}

impl MatchBits {
    /// Parses match bits from the two header bytes and the bytes `behind` the header.
    #[inline]
    pub(crate) fn parse(header: [u8; 2], behind: &[u8]) -> Result<MatchBits, Malformed> {
        let space = match header[0] {
            0 => Space::Tagged,
            1 => Space::Plain,
            _ => return Err(Malformed::Field),
        };
        // P1.6
        if header[1] & !FLAG_IMMEDIATE != 0 {
            return Err(Malformed::Field);
        }
        let has_imm = header[1] & FLAG_IMMEDIATE != 0;
        if behind.len() < if has_imm { 16 } else { 8 } {
            return Err(Malformed::Truncated);
        }
        Ok(MatchBits {
            space,
            tag: u64_at(behind, 0),
            imm: has_imm.then(|| u64_at(behind, 8)),
        })
    }

    /// Returns the length in bytes after the record's header.
    #[inline]
    #[must_use]
    pub fn wire_len(&self) -> usize {
        if self.imm.is_some() { 16 } else { 8 }
    }

    /// Writes the bytes after the header, and returns the two header bytes.
    #[inline]
    pub(crate) fn emit(&self, behind: &mut [u8]) -> [u8; 2] {
        put(behind, 0, self.tag.to_le_bytes());
        if let Some(imm) = self.imm {
            put(behind, 8, imm.to_le_bytes());
        }
        let space = if self.space == Space::Plain { 1 } else { 0 };
        [
            space,
            if self.imm.is_some() {
                FLAG_IMMEDIATE
            } else {
                0
            },
        ]
    }
}
