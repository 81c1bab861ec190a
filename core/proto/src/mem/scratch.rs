// SPDX-License-Identifier: MIT OR Apache-2.0
//! Headers and short frames of one transmit, and the parts of operations' memory sent with them.

use crate::OpId;
use alloc::vec::Vec;

/// Part of an operation's buffer that is sent with a transmit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Payload {
    /// Operation that owns the buffer.
    pub op: OpId,
    /// Offset of the first byte.
    pub off: u64,
    /// Length in bytes.
    pub len: usize,
}

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    bytes: Vec<u8>,
    payload: Vec<Payload>,
    repaired: Vec<u32>,
}

impl Scratch {
    /// Clears everything and returns `len` zero bytes to be written.
    #[inline]
    pub(crate) fn start(&mut self, len: usize) -> &mut [u8] {
        self.payload.clear();
        self.repaired.clear();
        self.bytes.clear();
        self.bytes.resize(len, 0);
        &mut self.bytes
    }

    /// Appends `len` zero bytes and returns them.
    #[inline]
    pub(crate) fn extend(&mut self, len: usize) -> &mut [u8] {
        let start = self.bytes.len();
        self.bytes.resize(start + len, 0);
        &mut self.bytes[start..]
    }

    /// Appends `part` to the payload.
    #[inline]
    pub(crate) fn push_payload(&mut self, part: Payload) {
        match self.payload.last_mut() {
            Some(last) if last.op == part.op && last.off + last.len as u64 == part.off => {
                last.len += part.len;
            }
            _ => self.payload.push(part),
        }
    }

    /// Records that the frame with this number is retransmitted.
    pub(crate) fn push_repaired(&mut self, num: u32) {
        self.repaired.push(num);
    }

    /// Returns the bytes written since the start.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the payload, in sending order.
    #[inline]
    pub(crate) fn payload(&self) -> &[Payload] {
        &self.payload
    }

    /// Returns the numbers of frames that are retransmitted with new ones.
    pub(crate) fn repaired(&self) -> &[u32] {
        &self.repaired
    }
}
