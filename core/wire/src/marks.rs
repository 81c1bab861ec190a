// SPDX-License-Identifier: MIT OR Apache-2.0
//! The record by which a receiver says how many frames the network has marked.

use crate::field::{put, u32_at};

/// Bytes of the record.
pub const MARKS_LEN: usize = 8;

pub(crate) const KIND_MARKS: u8 = 10;

/// How many numbered frames of a path have arrived with the network's mark that they met congestion
/// (RFC 3168), counted from the start of the session, modulo 2^32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marks {
    /// Which of the paths of the side that is told.
    pub path: u8,
    /// The count.
    pub count: u32,
}

impl Marks {
    #[inline]
    pub(crate) fn parse(bytes: &[u8]) -> Marks {
        Marks {
            path: bytes[1],
            count: u32_at(bytes, 4),
        }
    }

    /// Writes the record into the first [`MARKS_LEN`] bytes.
    ///
    /// # Panics
    /// When `bytes` is shorter.
    pub fn emit(&self, bytes: &mut [u8]) {
        bytes[0] = KIND_MARKS;
        bytes[1] = self.path;
        put(bytes, 2, [0; 2]);
        put(bytes, 4, self.count.to_le_bytes());
    }
}
