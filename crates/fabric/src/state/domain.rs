// SPDX-License-Identifier: MIT OR Apache-2.0
//! What belongs together under one lock, and how it was opened.

use std::ffi::c_int;

use super::State;
use crate::abi::{MR_BASIC, MR_PROV_KEY, MR_VIRT_ADDR, version};
use crate::lock::{Guard, Guarded};

/// Since this version a failed completion has room for a text.
const ERROR_DATA_SINCE: u32 = version(1, 5);

/// What a domain was opened with, and what it holds.
pub(crate) struct Domain {
    state: Guarded<State>,
    mr_mode: c_int,
    api: u32,
}

impl Domain {
    /// `locking` as for [`Guarded::new`].
    pub(crate) fn new(mr_mode: c_int, api: u32, locking: bool) -> Domain {
        Domain {
            state: Guarded::new(State::default(), locking),
            mr_mode,
            api,
        }
    }

    #[inline]
    pub(crate) fn lock(&self) -> Guard<'_, State> {
        self.state.lock()
    }

    /// Keys of regions are ours to choose, and then nobody can guess them.
    pub(crate) fn chooses_keys(&self) -> bool {
        self.mr_mode == MR_BASIC || self.mr_mode & MR_PROV_KEY != 0
    }

    /// Peers name places in a region by their addresses here, not by offsets.
    pub(crate) fn addresses_are_virtual(&self) -> bool {
        self.mr_mode == MR_BASIC || self.mr_mode & MR_VIRT_ADDR != 0
    }

    pub(crate) fn knows_error_data(&self) -> bool {
        self.api >= ERROR_DATA_SINCE
    }
}
