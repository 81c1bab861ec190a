// SPDX-License-Identifier: MIT OR Apache-2.0
//! The fabric, from which domains are opened.

#![allow(unsafe_code, reason = "called from C")]

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use crate::abi::*;
use crate::cq;
use crate::domain;
use crate::eq;
use crate::errno::{Errno, status};
use crate::object::{class, fid};
use crate::pep;
use crate::unsupported;

static FID_OPS: Ops = Ops {
    close,
    ..unsupported::OPS
};

static FABRIC_OPS: OpsFabric = OpsFabric {
    size: size_of::<OpsFabric>(),
    domain: domain::open,
    passive_ep: pep::open,
    eq_open: eq::open,
    wait_open: unsupported::wait_open,
    trywait,
};

pub(crate) extern "C" fn open(
    attr: *mut FabricAttr,
    out: *mut *mut FidFabric,
    context: *mut c_void,
) -> c_int {
    status(|| {
        // SAFETY: the application's attributes; `out` points to its storage for the fabric.
        unsafe {
            let api_version = attr.as_ref().ok_or(Errno::INVAL)?.api_version;
            let fabric = FidFabric {
                fid: fid(CLASS_FABRIC, context, &FID_OPS),
                ops: &raw const FABRIC_OPS,
                api_version,
                users: Arc::default(),
            };
            *out = Box::into_raw(Box::new(fabric));
        }
        Ok(())
    })
}

/// Prepares queues for a sleep on their descriptors.
extern "C" fn trywait(_fabric: *mut FidFabric, fids: *mut *mut Fid, count: c_int) -> c_int {
    status(|| {
        for at in 0..usize::try_from(count).unwrap_or(0) {
            // SAFETY: `fids` is an array of `count` open objects of this provider.
            unsafe {
                let fid = *fids.add(at);
                match class(fid)? {
                    CLASS_CQ => cq::trywait(fid)?,
                    CLASS_EQ => eq::trywait(fid)?,
                    _ => return Err(Errno::NOSYS),
                }
            }
        }
        Ok(())
    })
}

extern "C" fn close(fabric: *mut Fid) -> c_int {
    status(|| {
        let fabric = fabric.cast::<FidFabric>();
        // SAFETY: an open fabric of this provider.
        let users = unsafe { &(*fabric).users };
        if Arc::strong_count(users) > 1 {
            return Err(Errno::BUSY);
        }
        // SAFETY: allocated by `open`, and closed only once.
        drop(unsafe { Box::from_raw(fabric) });
        Ok(())
    })
}
