// SPDX-License-Identifier: MIT OR Apache-2.0
//! Domains, and the functions that open their objects.

#![allow(unsafe_code, reason = "called from C")]

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use crate::abi::*;
use crate::errno::{Errno, status};
use crate::object::{Object, fid};
use crate::state::Domain;
use crate::unsupported;
use crate::{av, cntr, cq, ep, mr};

static FID_OPS: Ops = Ops {
    close,
    bind,
    ..unsupported::OPS
};

static DOMAIN_OPS: OpsDomain = OpsDomain {
    size: size_of::<OpsDomain>(),
    av_open: av::open,
    cq_open: cq::open,
    endpoint: ep::open,
    scalable_ep: unsupported::scalable_ep,
    cntr_open: cntr::open,
    poll_open: unsupported::poll_open,
    stx_ctx: unsupported::stx_ctx,
    srx_ctx: unsupported::srx_ctx,
    query_atomic: ep::query_atomic,
};

pub(crate) extern "C" fn open(
    fabric: *mut FidFabric,
    info: *mut Info,
    out: *mut *mut FidDomain,
    context: *mut c_void,
) -> c_int {
    status(|| {
        // SAFETY: an open fabric of this provider, whose version libfabric sets after `open`, and
        // the application's information.
        let (fabric, attr) = unsafe {
            let info = info.as_ref().ok_or(Errno::INVAL)?;
            let attr = info.domain_attr.as_ref().ok_or(Errno::INVAL)?;
            (&*fabric, attr)
        };
        let domain = Arc::new(Domain::new(attr, fabric.api_version));
        domain.lock().enter(&fabric.users);
        let head = FidDomain {
            fid: fid(CLASS_DOMAIN, context, &FID_OPS),
            ops: &raw const DOMAIN_OPS,
            mr: &raw const mr::OPS,
        };
        // SAFETY: `out` is the application's storage for the domain.
        unsafe { Object::store(out, head, &domain, 0) };
        Ok(())
    })
}

/// Accepts an event queue. It would only report asynchronous registrations, which do not exist
/// here.
extern "C" fn bind(_domain: *mut Fid, _eq: *mut Fid, _flags: u64) -> c_int {
    0
}

extern "C" fn close(domain: *mut Fid) -> c_int {
    // SAFETY: an open domain of this provider, closed only once.
    unsafe { Object::<FidDomain>::close(domain, |state, _| state.leave()) }
}
