// SPDX-License-Identifier: MIT OR Apache-2.0
//! The address of a connectionless endpoint.

use std::ffi::{c_int, c_void};

use crate::abi::*;
use crate::av::hand_out;
use crate::errno::status;
use crate::object::Object;
use crate::unsupported;

pub(super) static OPS: OpsCm = OpsCm {
    size: size_of::<OpsCm>(),
    setname: unsupported::setname,
    getname,
    getpeer: unsupported::getpeer,
    connect: unsupported::connect,
    listen: unsupported::listen,
    accept: unsupported::accept,
    reject: unsupported::reject,
    shutdown: unsupported::shutdown,
    join: unsupported::join,
};

extern "C" fn getname(ep: *mut Fid, out: *mut c_void, len: *mut usize) -> c_int {
    status(|| {
        // SAFETY: an open endpoint of this provider.
        let object = unsafe { Object::<FidEp>::of(ep) };
        let address = object.lock().ep(object.index()).address();
        // SAFETY: the application's buffer has as many bytes as it states.
        unsafe { hand_out(&address, out, len) }
    })
}
