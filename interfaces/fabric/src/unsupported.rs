// SPDX-License-Identifier: MIT OR Apache-2.0
//! Functions for operations that the provider does not support. Applications call through the
//! tables without checking for null, so each entry is set.

use std::ffi::{c_char, c_int, c_void};

use crate::abi::*;

const NOSYS: c_int = -libc::ENOSYS;

/// Default operations of every object. An object's own table overrides the supported ones.
pub(crate) const OPS: Ops = Ops {
    size: size_of::<Ops>(),
    close,
    bind,
    control,
    ops_open,
};

/// Defines functions that take the given argument types and return `ENOSYS`.
macro_rules! unsupported {
    ($($name:ident($($arg:ty),+);)+) => {$(
        pub(crate) extern "C" fn $name($(_: $arg),+) -> c_int {
            NOSYS
        }
    )+};
}

type Addr = *const c_void;

unsupported! {
    close(*mut Fid);
    bind(*mut Fid, *mut Fid, u64);
    control(*mut Fid, c_int, *mut c_void);
    ops_open(*mut Fid, *const c_char, u64, Out<c_void>, Context);
    // Fabric operations.
    wait_open(*mut FidFabric, *mut c_void, Out<c_void>);
    // Domain operations.
    scalable_ep(*mut FidDomain, *mut Info, Out<FidEp>, Context);
    poll_open(*mut FidDomain, *mut c_void, Out<c_void>);
    stx_ctx(*mut FidDomain, *mut TxAttr, Out<c_void>, Context);
    srx_ctx(*mut FidDomain, *mut RxAttr, Out<FidEp>, Context);
    // Address vector operations.
    insertsvc(*mut FidAv, *const c_char, *const c_char, *mut u64, u64, Context);
    insertsym(*mut FidAv, *const c_char, usize, *const c_char, usize, *mut u64, u64, Context);
    // Endpoint operations.
    tx_ctx(*mut FidEp, c_int, *mut TxAttr, Out<FidEp>, Context);
    rx_ctx(*mut FidEp, c_int, *mut RxAttr, Out<FidEp>, Context);
    setname(*mut Fid, *mut c_void, usize);
    getpeer(*mut FidEp, *mut c_void, *mut usize);
    connect(*mut FidEp, Addr, Addr, usize);
    listen(*mut FidPep);
    accept(*mut FidEp, Addr, usize);
    reject(*mut FidPep, *mut Fid, Addr, usize);
    shutdown(*mut FidEp, u64);
    join(*mut FidEp, Addr, u64, Out<c_void>, Context);
}

pub(crate) extern "C" fn size_left(_: *mut FidEp) -> isize {
    NOSYS as isize
}
