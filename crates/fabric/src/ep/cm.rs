// SPDX-License-Identifier: MIT OR Apache-2.0
//! An endpoint's own address. There are no connections.

use std::ffi::{c_int, c_void};

use portolan::EndpointAddress;

use crate::abi::*;
use crate::absent;
use crate::errno::{Errno, status};
use crate::object::Object;

pub(super) static OPS: OpsCm = OpsCm {
    size: size_of::<OpsCm>(),
    setname: absent::setname,
    getname,
    getpeer: absent::getpeer,
    connect: absent::connect,
    listen: absent::listen,
    accept: absent::accept,
    reject: absent::reject,
    shutdown: absent::shutdown,
    join: absent::join,
};

extern "C" fn getname(ep: *mut Fid, out: *mut c_void, len: *mut usize) -> c_int {
    status(|| {
        // SAFETY: an open endpoint of ours.
        let object = unsafe { Object::<FidEp>::of(ep) };
        let address = object.domain.state.lock().eps[object.index]
            .engine
            .address();
        // SAFETY: the application's place for as many bytes as it says.
        unsafe { hand_out(&address, out, len) }
    })
}

/// Copy an address to the application.
///
/// # Errors
/// `TOOSMALL` if not all of it fits; the length needed is told in any case.
///
/// # Safety
/// `out` has `*len` bytes.
pub(crate) unsafe fn hand_out(
    address: &EndpointAddress,
    out: *mut c_void,
    len: *mut usize,
) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    unsafe {
        let room = len.replace(EndpointAddress::LEN);
        let copied = room.min(EndpointAddress::LEN);
        if copied > 0 {
            std::ptr::copy_nonoverlapping(address.as_bytes().as_ptr(), out.cast(), copied);
        }
        if copied < EndpointAddress::LEN {
            Err(Errno::TOOSMALL)
        } else {
            Ok(())
        }
    }
}
