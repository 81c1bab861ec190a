// SPDX-License-Identifier: MIT OR Apache-2.0
//! Acknowledgement record: the numbered frames that have arrived (`P3.4`).

use crate::field::{put, u16_at, u32_at};

/// Length in bytes of an acknowledgement without its bitmap.
pub const ACK_FIXED_LEN: usize = 16;

pub(crate) const KIND_ACK: u8 = 8;

/// Set of frames of a path that have arrived; `word_count` 64-bit words of bitmap follow.
///
/// All frames below `base` have arrived; bit `i` of the bitmap stands for `base + 1 + i` (`base`
/// itself is the first missing one).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack {
    /// Number of the path, as numbered by the acknowledged side.
    pub path: u8,
    /// Number of 64-bit words in the bitmap.
    pub word_count: u8,
    /// Attempt of frame `echo_num`.
    pub echo_attempt: u8,
    /// Microseconds between the arrival of `echo_num` and this acknowledgement, saturating.
    pub delay_us: u16,
    /// Lowest packet number that has not arrived.
    pub base: u32,
    /// Number of the frame that arrived last.
    pub echo_num: u32,
}

impl Ack {
    /// Parses the first [`ACK_FIXED_LEN`] bytes of an acknowledgement; `None` if the record is of
    /// another kind or truncated.
    #[inline]
    #[must_use]
    pub fn peek(bytes: &[u8]) -> Option<Ack> {
        let is_ack = bytes.len() >= ACK_FIXED_LEN && bytes[0] == KIND_ACK;
        is_ack.then(|| Ack::parse(bytes))
    }

    #[inline]
    pub(crate) fn parse(bytes: &[u8]) -> Ack {
        Ack {
            path: bytes[1],
            word_count: bytes[2],
            echo_attempt: bytes[3],
            delay_us: u16_at(bytes, 4),
            base: u32_at(bytes, 8),
            echo_num: u32_at(bytes, 12),
        }
    }

    /// Writes the record without its bitmap into the first [`ACK_FIXED_LEN`] bytes.
    ///
    /// # Panics
    /// Panics if `bytes` is shorter.
    #[inline]
    pub fn emit(&self, bytes: &mut [u8]) {
        bytes[0] = KIND_ACK;
        bytes[1] = self.path;
        bytes[2] = self.word_count;
        bytes[3] = self.echo_attempt;
        put(bytes, 4, self.delay_us.to_le_bytes());
        put(bytes, 6, [0; 2]);
        put(bytes, 8, self.base.to_le_bytes());
        put(bytes, 12, self.echo_num.to_le_bytes());
    }
}
