// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frames as they cross the link boundary.

use crate::PeerId;
use std::io::IoSlice;

/// One frame to send, or a run of equal segments.
#[derive(Clone, Copy, Debug)]
pub struct TxFrame<'a> {
    /// Without `segments`, the first bytes of the frame (all of a small frame). With `segments`,
    /// one header per segment, end to end.
    pub head: &'a [u8],
    /// Payload slices: appended to `head`, or, with `segments`, cut and distributed behind the
    /// headers.
    pub payload: &'a [IoSlice<'a>],
    /// Lengths of the segments, for a run.
    pub segments: Option<Segments>,
}

impl<'a> TxFrame<'a> {
    /// Returns a frame that is contiguous in memory.
    #[must_use]
    pub fn contiguous(bytes: &'a [u8]) -> Self {
        TxFrame {
            head: bytes,
            payload: &[],
            segments: None,
        }
    }

    /// Returns the bytes of gathered payload.
    #[must_use]
    pub fn payload_len(&self) -> usize {
        self.payload.iter().map(|slice| slice.len()).sum()
    }
}

/// Layout of a run: each segment has `header_len` bytes of head and `payload_len` of payload. The
/// last segment's payload may be shorter. Each segment travels as one datagram. With a `header_len`
/// of 0 only the payload is cut; it then consists of complete frames, end to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segments {
    /// Bytes of header per segment.
    pub header_len: usize,
    /// Bytes of payload per segment, except the last.
    pub payload_len: usize,
}

/// One received frame.
pub struct RxFrame<'a> {
    /// Sender, if the link identifies it (shared memory). Network links leave it `None`; the
    /// session in the frame identifies the sender.
    pub from: Option<PeerId>,
    /// The frame, or its first bytes when `body` is present. Private memory: it does not change
    /// while it is being parsed.
    pub head: &'a [u8],
    /// Rest of a large frame, in memory that the sender can still write. It may only be copied out.
    pub body: Option<&'a dyn Body>,
    /// Set if the network marked the frame for congestion (RFC 3168).
    pub marked: bool,
}

/// Bytes in memory that another process may be writing. They are read only by copying.
pub trait Body {
    /// Returns the bytes available.
    fn len(&self) -> usize;

    /// Returns `true` if no bytes are available.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies `dst.len()` bytes, starting at `off`, into `dst`.
    ///
    /// # Panics
    /// Panics if `off + dst.len()` exceeds [`Body::len`].
    fn copy_to(&self, off: usize, dst: &mut [u8]);
}
