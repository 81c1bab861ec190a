// SPDX-License-Identifier: MIT OR Apache-2.0
//! Blocking reads of completion queues. The lock is not held during the sleep.

use std::ffi::{c_int, c_void};

use crate::abi::{Fid, FidCq};
use crate::errno::{Errno, size, status};
use crate::idle::Deadline;
use crate::object::Object;
use crate::state::Arrays;

pub(super) extern "C" fn sread(
    cq: *mut FidCq,
    buf: *mut c_void,
    count: usize,
    cond: *const c_void,
    timeout: c_int,
) -> isize {
    sreadfrom(cq, buf, count, std::ptr::null_mut(), cond, timeout)
}

pub(super) extern "C" fn sreadfrom(
    cq: *mut FidCq,
    buf: *mut c_void,
    count: usize,
    sources: *mut u64,
    cond: *const c_void,
    timeout: c_int,
) -> isize {
    size(|| {
        // SAFETY: an open queue of this provider.
        let object = unsafe { Object::<FidCq>::of(cq) };
        let threshold = threshold(object, cond, count);
        let into = Arrays::new(buf, count, sources);
        let deadline = Deadline::after(timeout);
        loop {
            let action = {
                let mut state = object.lock();
                state.progress_cq(object.index());
                let queue = state.cq(object.index());
                let is_over = deadline.is_over();
                let is_signalled = queue.take_signal();
                if queue.has_failed() || queue.len() >= threshold || is_over || is_signalled {
                    // SAFETY: arrays of the application, of `count` entries.
                    return unsafe { state.read(object.index(), &into) };
                }
                state.idle_action_of_cq(object.index())?
            };
            action.take(deadline);
        }
    })
}

/// Returns the number of entries to wait for: one, unless the queue was opened for thresholds.
fn threshold(object: &Object<FidCq>, cond: *const c_void, count: usize) -> usize {
    if cond.is_null() || !object.lock().cq(object.index()).has_thresholds() {
        return 1;
    }
    // libfabric passes the number itself as the pointer.
    (cond as usize).clamp(1, count.max(1))
}

pub(super) extern "C" fn signal(cq: *mut FidCq) -> c_int {
    status(|| {
        // SAFETY: an open queue of this provider.
        let object = unsafe { Object::<FidCq>::of(cq) };
        object.lock().signal(object.index())
    })
}

/// Prepares a queue for a sleep on its descriptor.
///
/// # Errors
/// `AGAIN` if entries can be read or progress can be made now.
///
/// # Safety
/// `cq` is an open queue of this provider.
pub(crate) unsafe fn trywait(cq: *mut Fid) -> Result<(), Errno> {
    // SAFETY: guaranteed by the caller.
    let object = unsafe { Object::<FidCq>::of(cq) };
    object.lock().try_wait(object.index())
}
