// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counters of completed operations. Reading a counter makes progress on its endpoints.

#![allow(unsafe_code, reason = "called from C")]

use std::ffi::{c_int, c_void};

use crate::abi::*;
use crate::errno::{Errno, status};
use crate::idle::Deadline;
use crate::object::{Object, domain_of, fid};
use crate::state::{Cntr, State};
use crate::unsupported;

static FID_OPS: Ops = Ops {
    close,
    ..unsupported::OPS
};

static CNTR_OPS: OpsCntr = OpsCntr {
    size: size_of::<OpsCntr>(),
    read,
    readerr,
    add,
    set,
    wait,
    adderr,
    seterr,
};

pub(crate) extern "C" fn open(
    domain: *mut FidDomain,
    attr: *mut CntrAttr,
    out: *mut *mut FidCntr,
    context: *mut c_void,
) -> c_int {
    status(|| {
        // SAFETY: an open domain of this provider, and the application's attributes.
        let (domain, attr) = unsafe { (domain_of(domain), attr.as_ref()) };
        // Applications wait with `fi_cntr_wait`, not on a descriptor.
        if attr.is_some_and(|attr| {
            !matches!(attr.wait_obj, WAIT_NONE | WAIT_UNSPEC | WAIT_YIELD) || attr.events != 0
        }) {
            return Err(Errno::NOSYS);
        }
        let index = domain.lock().open_cntr();
        let head = FidCntr {
            fid: fid(CLASS_CNTR, context, &FID_OPS),
            ops: &raw const CNTR_OPS,
        };
        // SAFETY: `out` is the application's storage for the counter.
        unsafe { Object::store(out, head, domain, index) };
        Ok(())
    })
}

extern "C" fn close(cntr: *mut Fid) -> c_int {
    // SAFETY: an open counter of this provider, closed only once.
    unsafe { Object::<FidCntr>::close(cntr, State::close_cntr) }
}

/// Makes progress on the counter's endpoints and passes the counter to `body`.
fn with<T>(cntr: *mut FidCntr, body: impl FnOnce(&mut Cntr) -> T) -> T {
    // SAFETY: an open counter of this provider.
    let object = unsafe { Object::<FidCntr>::of(cntr) };
    let mut state = object.lock();
    state.progress_cntr(object.index());
    body(state.cntr(object.index()))
}

extern "C" fn read(cntr: *mut FidCntr) -> u64 {
    with(cntr, |cntr| cntr.value())
}

extern "C" fn readerr(cntr: *mut FidCntr) -> u64 {
    with(cntr, |cntr| cntr.errors())
}

extern "C" fn add(cntr: *mut FidCntr, value: u64) -> c_int {
    with(cntr, |cntr| cntr.add(value));
    0
}

extern "C" fn set(cntr: *mut FidCntr, value: u64) -> c_int {
    with(cntr, |cntr| cntr.set(value));
    0
}

extern "C" fn adderr(cntr: *mut FidCntr, value: u64) -> c_int {
    with(cntr, |cntr| cntr.add_errors(value));
    0
}

extern "C" fn seterr(cntr: *mut FidCntr, value: u64) -> c_int {
    with(cntr, |cntr| cntr.set_errors(value));
    0
}

extern "C" fn wait(cntr: *mut FidCntr, threshold: u64, timeout: c_int) -> c_int {
    status(|| {
        // SAFETY: an open counter of this provider.
        let object = unsafe { Object::<FidCntr>::of(cntr) };
        let deadline = Deadline::after(timeout);
        let mut errors = None;
        loop {
            let action = {
                let mut state = object.lock();
                state.progress_cntr(object.index());
                let own = state.cntr(object.index());
                if own.value() >= threshold {
                    return Ok(());
                }
                if own.errors() != *errors.get_or_insert(own.errors()) {
                    return Err(Errno::AVAIL);
                }
                if deadline.is_over() {
                    return Err(Errno::TIMEDOUT);
                }
                state.idle_action_of_cntr(object.index())
            };
            action.take(deadline);
        }
    })
}
