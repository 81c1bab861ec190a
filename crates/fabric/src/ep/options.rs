// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options of an endpoint, default flags, and withdrawing operations.

use std::ffi::{c_int, c_void};

use super::Ep;
use crate::abi::*;
use crate::absent;
use crate::errno::{Errno, done, status};
use crate::object::Object;

pub(super) static OPS: OpsEp = OpsEp {
    size: size_of::<OpsEp>(),
    cancel,
    getopt,
    setopt,
    tx_ctx: absent::tx_ctx,
    rx_ctx: absent::rx_ctx,
    rx_size_left: absent::size_left,
    tx_size_left: absent::size_left,
};

/// Withdraw a posted receive. It completes as cancelled, or as received if that came first.
extern "C" fn cancel(ep: *mut Fid, context: *mut c_void) -> isize {
    done(|| {
        // SAFETY: an open endpoint of ours.
        let object = unsafe { Object::<FidEp>::of(ep) };
        let mut state = object.domain.state.lock();
        let ep = &mut state.eps[object.index];
        // Of several with this context the oldest: the application told them apart by nothing.
        ep.engine.cancel(context as u64);
        Ok(())
    })
}

extern "C" fn getopt(
    ep: *mut Fid,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut usize,
) -> c_int {
    status(|| {
        if level != OPT_ENDPOINT || name != OPT_MIN_MULTI_RECV {
            return Err(Errno::NOPROTOOPT);
        }
        // SAFETY: an open endpoint of ours; a place for `*len` bytes.
        unsafe {
            if *len < size_of::<usize>() {
                return Err(Errno::TOOSMALL);
            }
            let object = Object::<FidEp>::of(ep);
            *value.cast() = object.domain.state.lock().eps[object.index].min_free;
            *len = size_of::<usize>();
        }
        Ok(())
    })
}

extern "C" fn setopt(
    ep: *mut Fid,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: usize,
) -> c_int {
    status(|| {
        if level != OPT_ENDPOINT || name != OPT_MIN_MULTI_RECV {
            return Err(Errno::NOPROTOOPT);
        }
        if len < size_of::<usize>() {
            return Err(Errno::INVAL);
        }
        // SAFETY: an open endpoint of ours; the option's value is a `size_t`.
        unsafe {
            let object = Object::<FidEp>::of(ep);
            object.domain.state.lock().eps[object.index].min_free = *value.cast();
        }
        Ok(())
    })
}

/// Tell the default flags of one direction, which is named by the flags that are there.
///
/// # Safety
/// `flags` may be read and written.
pub(super) unsafe fn get_flags(ep: &Ep, flags: *mut u64) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    unsafe {
        *flags = match *flags & (SEND | RECV) {
            SEND => ep.tx.default,
            RECV => ep.rx.default,
            _ => return Err(Errno::INVAL),
        };
    }
    Ok(())
}

/// Set the default flags of one direction.
///
/// # Safety
/// `flags` may be read.
pub(super) unsafe fn set_flags(ep: &mut Ep, flags: *const u64) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    let flags = unsafe { *flags };
    let side = match flags & (SEND | RECV) {
        SEND => &mut ep.tx,
        RECV => &mut ep.rx,
        _ => return Err(Errno::INVAL),
    };
    side.default = flags & !(SEND | RECV);
    Ok(())
}
