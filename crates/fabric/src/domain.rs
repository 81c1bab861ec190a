// SPDX-License-Identifier: MIT OR Apache-2.0
//! Domains: what belongs together under one lock.

#![allow(unsafe_code, reason = "called from C")]

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use crate::abi::*;
use crate::absent;
use crate::errno::{Errno, status};
use crate::fabric;
use crate::lock::Guarded;
use crate::object::{Object, fid};
use crate::state::State;
use crate::{av, cntr, cq, ep, mr};

static FID_OPS: Ops = Ops {
    size: size_of::<Ops>(),
    close,
    bind,
    control: absent::control,
    ops_open: absent::ops_open,
};

static DOMAIN_OPS: OpsDomain = OpsDomain {
    size: size_of::<OpsDomain>(),
    av_open: av::open,
    cq_open: cq::open,
    endpoint: ep::open,
    scalable_ep: absent::scalable_ep,
    cntr_open: cntr::open,
    poll_open: absent::poll_open,
    stx_ctx: absent::stx_ctx,
    srx_ctx: absent::srx_ctx,
    query_atomic: ep::query_atomic,
};

/// Since this version a failed completion has room for a text.
const ERROR_DATA_SINCE: u32 = version(1, 5);

/// What a domain was opened with, and what it holds.
pub(crate) struct Domain {
    pub(crate) state: Guarded<State>,
    mr_mode: c_int,
    api: u32,
}

impl Domain {
    /// See a domain again.
    ///
    /// # Safety
    /// An open domain of ours.
    pub(crate) unsafe fn of<'a>(domain: *mut FidDomain) -> &'a Arc<Domain> {
        // SAFETY: the caller's promise.
        unsafe { &Object::<FidDomain>::of(domain).domain }
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

pub(crate) extern "C" fn open(
    fabric: *mut FidFabric,
    info: *mut Info,
    out: *mut *mut FidDomain,
    context: *mut c_void,
) -> c_int {
    status(|| {
        // SAFETY: an open fabric of ours, and the application's information.
        let (api, attr) = unsafe {
            let info = info.as_ref().ok_or(Errno::INVAL)?;
            (
                fabric::api(fabric),
                info.domain_attr.as_ref().ok_or(Errno::INVAL)?,
            )
        };
        let locking = attr.threading != THREAD_DOMAIN;
        let state = Guarded::new(State::default(), locking);
        let domain = Arc::new(Domain {
            state,
            mr_mode: attr.mr_mode,
            api,
        });
        let head = FidDomain {
            fid: fid(CLASS_DOMAIN, context, &FID_OPS),
            ops: &raw const DOMAIN_OPS,
            mr: &raw const mr::OPS,
        };
        // SAFETY: the application's place for the domain.
        unsafe { Object::give(out, head, &domain, 0) };
        Ok(())
    })
}

/// An event queue would only hear of asynchronous registration, which there is none of.
extern "C" fn bind(_domain: *mut Fid, _eq: *mut Fid, _flags: u64) -> c_int {
    0
}

extern "C" fn close(domain: *mut Fid) -> c_int {
    status(|| {
        // SAFETY: an open domain of ours.
        let object = unsafe { Object::<FidDomain>::of(domain) };
        let state = object.domain.state.lock();
        if !state.eps.is_empty() || !state.cqs.is_empty() || !state.avs.is_empty() {
            return Err(Errno::BUSY);
        }
        drop(state);
        // SAFETY: as above, and closed only once. Regions that are left keep the domain's memory.
        drop(unsafe { Object::<FidDomain>::take(domain) });
        Ok(())
    })
}
