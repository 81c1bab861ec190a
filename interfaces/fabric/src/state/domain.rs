// SPDX-License-Identifier: MIT OR Apache-2.0
//! What belongs together under one lock, and how it was opened.

use std::ffi::c_int;

use portolan_ffi::{Guard, Guarded};

use super::State;
use crate::abi::{
    DomainAttr, MR_BASIC, MR_PROV_KEY, MR_VIRT_ADDR, PROGRESS_AUTO, THREAD_DOMAIN, version,
};

/// Since this version a failed completion has room for a text.
const ERROR_DATA_SINCE: u32 = version(1, 5);

/// What a domain was opened with, and what it holds.
pub(crate) struct Domain {
    state: Guarded<State>,
    mr_mode: c_int,
    data_progress: c_int,
    api: u32,
}

impl Domain {
    /// One as `attr` asks for, of an application that was built for the version `api`.
    pub(crate) fn new(attr: &DomainAttr, api: u32) -> Domain {
        let locking = attr.threading != THREAD_DOMAIN;
        Domain {
            state: Guarded::new(State::default(), locking),
            mr_mode: attr.mr_mode,
            data_progress: attr.data_progress,
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

    /// The application wants progress while it makes no calls.
    pub(crate) fn has_own_progress(&self) -> bool {
        self.data_progress == PROGRESS_AUTO
    }

    pub(crate) fn knows_error_data(&self) -> bool {
        self.api >= ERROR_DATA_SINCE
    }
}
