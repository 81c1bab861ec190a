// SPDX-License-Identifier: MIT OR Apache-2.0
//! Congestion record: the number of frames that the network has marked.

use crate::field::{put, u32_at};

/// Length in bytes of the record.
pub const MARKS_LEN: usize = 8;

pub(crate) const KIND_MARKS: u8 = 10;

/// Number of numbered frames of a path that arrived with the network's congestion mark (RFC 3168).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marks {
    /// Number of the path, as numbered by the side that receives this record.
    pub path: u8,
    /// Count since the start of the session, modulo 2^32.
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
    /// Panics if `bytes` is shorter. When `bytes` is shorter.
    pub fn emit(&self, bytes: &mut [u8]) {
        bytes[0] = KIND_MARKS;
        bytes[1] = self.path;
        put(bytes, 2, [0; 2]);
        put(bytes, 4, self.count.to_le_bytes());
    }
}
