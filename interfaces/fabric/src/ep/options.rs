// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options and default flags of an endpoint, and cancelling of operations.

use std::ffi::{c_int, c_void};

use crate::abi::*;
use crate::errno::{Errno, done, status};
use crate::object::Object;
use crate::pep;
use crate::state::Ep;
use crate::unsupported;

pub(super) static OPS: OpsEp = OpsEp {
    size: size_of::<OpsEp>(),
    cancel,
    getopt,
    setopt,
    tx_ctx: unsupported::tx_ctx,
    rx_ctx: unsupported::rx_ctx,
    rx_size_left: unsupported::size_left,
    tx_size_left: unsupported::size_left,
};

/// Cancels a posted receive. It completes as cancelled, or as received if a message matched first.
extern "C" fn cancel(ep: *mut Fid, context: *mut c_void) -> isize {
    done(|| {
        // SAFETY: an open endpoint of this provider.
        let object = unsafe { Object::<FidEp>::of(ep) };
        object.lock().ep(object.index()).cancel(context as u64);
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
        if name == OPT_CM_DATA_SIZE {
            // SAFETY: an open endpoint of this provider; `value` has room for `*len` bytes.
            return unsafe {
                let object = Object::<FidEp>::of(ep);
                match object.lock().ep(object.index()).is_connected_kind() {
                    true => pep::cm_data_len(level, name, value, len),
                    false => Err(Errno::NOPROTOOPT),
                }
            };
        }
        if level != OPT_ENDPOINT || name != OPT_MIN_MULTI_RECV {
            return Err(Errno::NOPROTOOPT);
        }
        // SAFETY: an open endpoint of this provider; `value` has room for `*len` bytes.
        unsafe {
            if *len < size_of::<usize>() {
                return Err(Errno::TOOSMALL);
            }
            let object = Object::<FidEp>::of(ep);
            *value.cast() = object.lock().ep(object.index()).min_free();
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
        // SAFETY: an open endpoint of this provider; the option's value is a `size_t`.
        unsafe {
            let object = Object::<FidEp>::of(ep);
            object.lock().ep(object.index()).set_min_free(*value.cast());
        }
        Ok(())
    })
}

/// Stores the default flags of the direction that `*flags` selects.
///
/// # Safety
/// `flags` may be read and written.
pub(super) unsafe fn get_flags(ep: &Ep, flags: *mut u64) -> Result<(), Errno> {
    // SAFETY: guaranteed by the caller.
    unsafe {
        *flags = match *flags & (SEND | RECV) {
            SEND => ep.tx().default_flags(),
            RECV => ep.rx().default_flags(),
            _ => return Err(Errno::INVAL),
        };
    }
    Ok(())
}
