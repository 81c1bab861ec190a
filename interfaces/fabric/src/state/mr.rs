// SPDX-License-Identifier: MIT OR Apache-2.0
//! A memory region.

use portolan::binding::{RawAccess, RawPiece};

/// A region, registered with every endpoint of its domain.
pub(crate) struct Mr {
    start: usize,
    len: usize,
    key: u64,
    /// Address of the first byte in peers' requests.
    base: u64,
    access: RawAccess,
}

impl Mr {
    pub(crate) fn new(memory: RawPiece, access: RawAccess, key: u64, base: u64) -> Mr {
        Mr {
            start: memory.ptr as usize,
            len: memory.len,
            key,
            base,
            access,
        }
    }

    pub(crate) fn key(&self) -> u64 {
        self.key
    }

    pub(super) fn base(&self) -> u64 {
        self.base
    }

    pub(super) fn memory(&self) -> RawPiece {
        RawPiece {
            ptr: self.start as *mut u8,
            len: self.len,
        }
    }

    /// Returns the operations that peers may perform.
    pub(super) fn access(&self) -> RawAccess {
        self.access
    }
}
