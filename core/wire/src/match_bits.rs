// SPDX-License-Identifier: MIT OR Apache-2.0
//! Labels: what a message is matched by that does not go to a port (`P11.1`).

use crate::Malformed;
use crate::field::{put, u64_at};

/// Bytes of the longest match bits.
pub const LABEL_LEN_MAX: usize = 16;

const FLAG_IMMEDIATE: u8 = 1;

/// One of the two sets of messages and receives that are matched apart from one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Space {
    /// Matched by tag and sender.
    Tagged,
    /// Matched by sender alone; the tag is 0.
    Plain,
}

impl Space {
    /// 0 or 1.
    #[inline]
    #[must_use]
    pub fn index(self) -> usize {
        match self {
            Space::Tagged => 0,
            Space::Plain => 1,
        }
    }
}

/// What a message is matched by, and a word that is handed to its receiver.
///
/// The two bytes at 2 of the record's header say the space and whether there is a word; the tag and
/// the word stand behind the header.
///
/// ```text
/// 2 | space u8 | flags u8 |     behind the header: | tag u64 | [immediate u64] |
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MatchBits {
    /// The set it is matched in.
    pub space: Space,
    /// The tag.
    pub tag: u64,
    /// Immediate data: no part of the message, and known as soon as its match bits are.
    pub imm: Option<u64>,
}

impl MatchBits {
    /// Reads match bits from the two bytes in the header and what stands `behind` it.
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

    /// Bytes behind the record's header.
    #[inline]
    #[must_use]
    pub fn wire_len(&self) -> usize {
        if self.imm.is_some() { 16 } else { 8 }
    }

    /// Writes what stands behind the header, and returns the two bytes in it.
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
