// SPDX-License-Identifier: MIT OR Apache-2.0
//! A domain: the state behind one lock, and the attributes it was opened with.

use std::ffi::c_int;

use portolan_ffi::{Guard, Guarded};

use super::State;
use crate::abi::{
    DomainAttr, MR_BASIC, MR_PROV_KEY, MR_VIRT_ADDR, PROGRESS_AUTO, THREAD_DOMAIN, version,
};

/// First version in which a failed completion has room for a text.
const ERROR_DATA_SINCE: u32 = version(1, 5);

/// State and attributes of a domain.
pub(crate) struct Domain {
    state: Guarded<State>,
    mr_mode: c_int,
    data_progress: c_int,
    api: u32,
}

impl Domain {
    /// Creates a domain with the attributes `attr`, for an application built for the version `api`.
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

    /// Returns true if the provider chooses the keys of regions. They are random, so no process can
    /// guess them.
    pub(crate) fn chooses_keys(&self) -> bool {
        self.mr_mode == MR_BASIC || self.mr_mode & MR_PROV_KEY != 0
    }

    /// Returns true if peers address bytes in a region by virtual address instead of offset.
    pub(crate) fn addresses_are_virtual(&self) -> bool {
        self.mr_mode == MR_BASIC || self.mr_mode & MR_VIRT_ADDR != 0
    }

    /// Returns true if the application expects progress while it makes no calls.
    pub(crate) fn has_own_progress(&self) -> bool {
        self.data_progress == PROGRESS_AUTO
    }

    pub(crate) fn has_error_data(&self) -> bool {
        self.api >= ERROR_DATA_SINCE
    }
}
