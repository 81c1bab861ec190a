// SPDX-License-Identifier: MIT OR Apache-2.0
//! Headers and short frames that live for one transmit only, and what of operations' memory leaves with
//! them.

use crate::OpId;
use alloc::vec::Vec;

/// A part of an operation's buffer that leaves with a transmit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Payload {
    /// Whose buffer.
    pub op: OpId,
    /// First byte.
    pub off: u64,
    /// How many bytes.
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
    /// `len` zeros to be written to, with nothing beside them.
    #[inline]
    pub(crate) fn start(&mut self, len: usize) -> &mut [u8] {
        self.payload.clear();
        self.repaired.clear();
        self.bytes.clear();
        self.bytes.resize(len, 0);
        &mut self.bytes
    }

    /// `len` zeros more, behind what was written.
    #[inline]
    pub(crate) fn extend(&mut self, len: usize) -> &mut [u8] {
        let start = self.bytes.len();
        self.bytes.resize(start + len, 0);
        &mut self.bytes[start..]
    }

    /// `part` leaves behind the parts before it.
    #[inline]
    pub(crate) fn push_payload(&mut self, part: Payload) {
        match self.payload.last_mut() {
            Some(last) if last.op == part.op && last.off + last.len as u64 == part.off => {
                last.len += part.len;
            }
            _ => self.payload.push(part),
        }
    }

    /// The frame with this number leaves again.
    pub(crate) fn push_repaired(&mut self, num: u32) {
        self.repaired.push(num);
    }

    /// What was written last.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// What leaves beside it, in the order of sending.
    #[inline]
    pub(crate) fn payload(&self) -> &[Payload] {
        &self.payload
    }

    /// Frames that leave again beside new ones.
    pub(crate) fn repaired(&self) -> &[u32] {
        &self.repaired
    }
}
