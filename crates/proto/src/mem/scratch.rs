// SPDX-License-Identifier: MIT OR Apache-2.0
//! Headers and short frames that live for one transmit only.

use alloc::vec::Vec;

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    bytes: Vec<u8>,
}

impl Scratch {
    /// `len` zeros to be written to.
    #[inline]
    pub(crate) fn start(&mut self, len: usize) -> &mut [u8] {
        self.bytes.clear();
        self.bytes.resize(len, 0);
        &mut self.bytes
    }

    /// What was written last.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}
