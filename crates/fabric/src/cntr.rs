// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counters of completed operations. Reading one makes its endpoints work.

#![allow(unsafe_code, reason = "called from C")]

use std::ffi::{c_int, c_void};
use std::time::Instant;

use crate::abi::*;
use crate::absent;
use crate::cq::{Nap, deadline, engine_nap, lighter, sleep_on};
use crate::domain::Domain;
use crate::errno::{Errno, status};
use crate::object::{Object, fid};
use crate::state::State;

static FID_OPS: Ops = Ops {
    size: size_of::<Ops>(),
    close,
    bind: absent::bind,
    control: absent::control,
    ops_open: absent::ops_open,
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

/// A counter.
#[derive(Default)]
pub(crate) struct Cntr {
    value: u64,
    errors: u64,
    /// The endpoints that count here, each once.
    eps: Vec<usize>,
}

impl Cntr {
    #[inline]
    pub(crate) fn succeeded(&mut self) {
        self.value = self.value.wrapping_add(1);
    }

    #[cold]
    pub(crate) fn failed(&mut self) {
        self.errors = self.errors.wrapping_add(1);
    }
}

pub(crate) extern "C" fn open(
    domain: *mut FidDomain,
    attr: *mut CntrAttr,
    out: *mut *mut FidCntr,
    context: *mut c_void,
) -> c_int {
    status(|| {
        // SAFETY: an open domain of ours, and the application's attributes.
        let (domain, attr) = unsafe { (Domain::of(domain), attr.as_ref()) };
        // Waiting is done by `fi_cntr_wait`, not on a descriptor.
        if attr.is_some_and(|attr| {
            !matches!(attr.wait_obj, WAIT_NONE | WAIT_UNSPEC | WAIT_YIELD) || attr.events != 0
        }) {
            return Err(Errno::NOSYS);
        }
        let index = domain.state.lock().cntrs.insert(Cntr::default());
        let head = FidCntr {
            fid: fid(CLASS_CNTR, context, &FID_OPS),
            ops: &raw const CNTR_OPS,
        };
        // SAFETY: the application's place for the counter.
        unsafe { Object::give(out, head, domain, index) };
        Ok(())
    })
}

extern "C" fn close(cntr: *mut Fid) -> c_int {
    status(|| {
        // SAFETY: an open counter of ours.
        let object = unsafe { Object::<FidCntr>::of(cntr) };
        let mut state = object.domain.state.lock();
        if !state.cntrs[object.index].eps.is_empty() {
            return Err(Errno::BUSY);
        }
        state.cntrs.remove(object.index);
        drop(state);
        // SAFETY: as above, and closed only once.
        drop(unsafe { Object::<FidCntr>::take(cntr) });
        Ok(())
    })
}

/// Use a counter after its endpoints worked.
fn with<T>(cntr: *mut FidCntr, body: impl FnOnce(&mut Cntr) -> T) -> T {
    // SAFETY: an open counter of ours.
    let object = unsafe { Object::<FidCntr>::of(cntr) };
    let mut state = object.domain.state.lock();
    state.progress_all(|state| &state.cntrs[object.index].eps);
    body(&mut state.cntrs[object.index])
}

extern "C" fn read(cntr: *mut FidCntr) -> u64 {
    with(cntr, |cntr| cntr.value)
}

extern "C" fn readerr(cntr: *mut FidCntr) -> u64 {
    with(cntr, |cntr| cntr.errors)
}

extern "C" fn add(cntr: *mut FidCntr, value: u64) -> c_int {
    with(cntr, |cntr| cntr.value = cntr.value.wrapping_add(value));
    0
}

extern "C" fn set(cntr: *mut FidCntr, value: u64) -> c_int {
    with(cntr, |cntr| cntr.value = value);
    0
}

extern "C" fn adderr(cntr: *mut FidCntr, value: u64) -> c_int {
    with(cntr, |cntr| cntr.errors = cntr.errors.wrapping_add(value));
    0
}

extern "C" fn seterr(cntr: *mut FidCntr, value: u64) -> c_int {
    with(cntr, |cntr| cntr.errors = value);
    0
}

extern "C" fn wait(cntr: *mut FidCntr, threshold: u64, timeout: c_int) -> c_int {
    status(|| {
        // SAFETY: an open counter of ours.
        let object = unsafe { Object::<FidCntr>::of(cntr) };
        let deadline = deadline(timeout);
        let mut errors = None;
        loop {
            let (nap, fd) = {
                let mut state = object.domain.state.lock();
                state.progress_all(|state| &state.cntrs[object.index].eps);
                let own = &state.cntrs[object.index];
                if own.value >= threshold {
                    return Ok(());
                }
                if own.errors != *errors.get_or_insert(own.errors) {
                    return Err(Errno::AVAIL);
                }
                if deadline.is_some_and(|at| Instant::now() >= at) {
                    return Err(Errno::TIMEDOUT);
                }
                nap(&mut state, object.index)
            };
            sleep_on(nap, fd, deadline);
        }
    })
}

/// How to wait. Several endpoints have no common descriptor: then there is no sleep.
fn nap(state: &mut State, cntr: usize) -> (Nap, c_int) {
    let State { cntrs, eps, .. } = state;
    match *cntrs[cntr].eps.as_slice() {
        [ep] => {
            let engine = &mut eps[ep].engine;
            (engine_nap(engine), engine.wait_fd())
        }
        ref several => {
            let naps = several.iter().map(|&ep| engine_nap(&mut eps[ep].engine));
            (naps.fold(Nap::Yield, lighter), -1)
        }
    }
}

/// Have an endpoint count on a counter.
pub(crate) fn attach(state: &mut State, index: usize, ep: usize) -> Result<(), Errno> {
    let cntr = state.cntrs.get_mut(index).ok_or(Errno::INVAL)?;
    if !cntr.eps.contains(&ep) {
        cntr.eps.push(ep);
    }
    Ok(())
}

/// Forget an endpoint that is being closed.
pub(crate) fn detach(state: &mut State, index: usize, ep: usize) {
    if let Some(cntr) = state.cntrs.get_mut(index) {
        cntr.eps.retain(|&other| other != ep);
    }
}
