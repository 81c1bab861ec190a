// SPDX-License-Identifier: MIT OR Apache-2.0
//! Record that numbers and acknowledges the eager messages of streams.

use crate::field::{put, u32_at};

/// Length in bytes of the record.
pub const STREAM_MARK_LEN: usize = 12;

pub(crate) const KIND_STREAM_MARK: u8 = 12;

/// Number of an eager message on a stream, and acknowledgement of those in the other direction
/// (`P15.11`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamMark {
    /// Number of the message that follows on the stream; 0 in a frame.
    pub num: u32,
    /// Number of the last message that the sender of this record has received, modulo 2^32.
    pub received: u32,
}

impl StreamMark {
    #[inline]
    pub(crate) fn parse(bytes: &[u8]) -> StreamMark {
        StreamMark {
            num: u32_at(bytes, 4),
            received: u32_at(bytes, 8),
        }
    }

    /// Writes the record into the first [`STREAM_MARK_LEN`] bytes.
    ///
    /// # Panics
    /// Panics if `bytes` is shorter.
    #[inline]
    pub fn emit(&self, bytes: &mut [u8]) {
        bytes[0] = KIND_STREAM_MARK;
        put(bytes, 1, [0; 3]);
        put(bytes, 4, self.num.to_le_bytes());
        put(bytes, 8, self.received.to_le_bytes());
    }
}
