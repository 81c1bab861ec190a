// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frames as they cross the link boundary.

use crate::PeerId;
use std::io::IoSlice;

/// One frame to send, or a run of equal segments.
#[derive(Clone, Copy, Debug)]
pub struct TxFrame<'a> {
    /// Without `segments`: the first bytes of the frame (all of it for small frames).
    /// With `segments`: as many headers as there are segments, end to end.
    pub head: &'a [u8],
    /// Gathered behind `head`, or, with `segments`, cut and dealt out behind the headers.
    pub payload: &'a [IoSlice<'a>],
    /// How to cut.
    pub segments: Option<Segments>,
}

impl<'a> TxFrame<'a> {
    /// A frame that is contiguous already.
    #[must_use]
    pub fn whole(bytes: &'a [u8]) -> Self {
        TxFrame {
            head: bytes,
            payload: &[],
            segments: None,
        }
    }

    /// Bytes of gathered payload.
    #[must_use]
    pub fn payload_len(&self) -> usize {
        self.payload.iter().map(|slice| slice.len()).sum()
    }
}

/// A run of segments: `header_len` bytes of head and `payload_len` of payload each; the last
/// segment's payload may be shorter. Each segment travels as one datagram. With a `header_len` of 0
/// the payload alone is cut: frames that lie behind one another already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segments {
    /// Bytes of header per segment.
    pub header_len: usize,
    /// Bytes of payload per segment, but for the last.
    pub payload_len: usize,
}

/// One frame that has arrived.
pub struct RxFrame<'a> {
    /// Who sent it, where the link itself knows (shared memory). Links on a network leave it
    /// `None`: the frame's session tells.
    pub from: Option<PeerId>,
    /// The frame, or its first bytes when `body` is present. Private memory: it does not change
    /// while it is being parsed.
    pub head: &'a [u8],
    /// The rest of a large frame, still in memory that the sender shares; it can only be copied out.
    pub body: Option<&'a dyn Body>,
    /// The network has marked it as having met congestion (RFC 3168).
    pub marked: bool,
}

/// Bytes in memory that another process may be writing; reading is by copy only.
pub trait Body {
    /// Bytes available.
    fn len(&self) -> usize;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies `dst.len()` bytes, starting at `off`, into `dst`.
    ///
    /// # Panics
    /// When `off + dst.len()` exceeds [`Body::len`].
    fn copy_to(&self, off: usize, dst: &mut [u8]);
}
