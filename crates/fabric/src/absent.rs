// SPDX-License-Identifier: MIT OR Apache-2.0
//! Operations that are not offered. Applications call through the tables without looking, so each
//! has a function that says so.

use std::ffi::{c_char, c_int, c_void};

use crate::abi::*;

const NOSYS: c_int = -libc::ENOSYS;

pub(crate) extern "C" fn bind(_: *mut Fid, _: *mut Fid, _: u64) -> c_int {
    NOSYS
}

pub(crate) extern "C" fn control(_: *mut Fid, _: c_int, _: *mut c_void) -> c_int {
    NOSYS
}

pub(crate) extern "C" fn ops_open(
    _: *mut Fid,
    _: *const c_char,
    _: u64,
    _: *mut *mut c_void,
    _: *mut c_void,
) -> c_int {
    NOSYS
}

pub(crate) extern "C" fn passive_ep(
    _: *mut FidFabric,
    _: *mut Info,
    _: *mut *mut c_void,
    _: *mut c_void,
) -> c_int {
    NOSYS
}

pub(crate) extern "C" fn wait_open(
    _: *mut FidFabric,
    _: *mut c_void,
    _: *mut *mut c_void,
) -> c_int {
    NOSYS
}

pub(crate) extern "C" fn scalable_ep(
    _: *mut FidDomain,
    _: *mut Info,
    _: *mut *mut FidEp,
    _: *mut c_void,
) -> c_int {
    NOSYS
}

pub(crate) extern "C" fn poll_open(
    _: *mut FidDomain,
    _: *mut c_void,
    _: *mut *mut c_void,
) -> c_int {
    NOSYS
}

pub(crate) extern "C" fn stx_ctx(
    _: *mut FidDomain,
    _: *mut TxAttr,
    _: *mut *mut c_void,
    _: *mut c_void,
) -> c_int {
    NOSYS
}

pub(crate) extern "C" fn srx_ctx(
    _: *mut FidDomain,
    _: *mut RxAttr,
    _: *mut *mut FidEp,
    _: *mut c_void,
) -> c_int {
    NOSYS
}

pub(crate) extern "C" fn insertsvc(
    _: *mut FidAv,
    _: *const c_char,
    _: *const c_char,
    _: *mut u64,
    _: u64,
    _: *mut c_void,
) -> c_int {
    NOSYS
}

pub(crate) extern "C" fn insertsym(
    _: *mut FidAv,
    _: *const c_char,
    _: usize,
    _: *const c_char,
    _: usize,
    _: *mut u64,
    _: u64,
    _: *mut c_void,
) -> c_int {
    NOSYS
}

pub(crate) extern "C" fn tx_ctx(
    _: *mut FidEp,
    _: c_int,
    _: *mut TxAttr,
    _: *mut *mut FidEp,
    _: *mut c_void,
) -> c_int {
    NOSYS
}

pub(crate) extern "C" fn rx_ctx(
    _: *mut FidEp,
    _: c_int,
    _: *mut RxAttr,
    _: *mut *mut FidEp,
    _: *mut c_void,
) -> c_int {
    NOSYS
}

pub(crate) extern "C" fn size_left(_: *mut FidEp) -> isize {
    NOSYS as isize
}

pub(crate) extern "C" fn setname(_: *mut Fid, _: *mut c_void, _: usize) -> c_int {
    NOSYS
}

pub(crate) extern "C" fn getpeer(_: *mut FidEp, _: *mut c_void, _: *mut usize) -> c_int {
    NOSYS
}

pub(crate) extern "C" fn connect(
    _: *mut FidEp,
    _: *const c_void,
    _: *const c_void,
    _: usize,
) -> c_int {
    NOSYS
}

pub(crate) extern "C" fn listen(_: *mut c_void) -> c_int {
    NOSYS
}

pub(crate) extern "C" fn accept(_: *mut FidEp, _: *const c_void, _: usize) -> c_int {
    NOSYS
}

pub(crate) extern "C" fn reject(_: *mut c_void, _: *mut Fid, _: *const c_void, _: usize) -> c_int {
    NOSYS
}

pub(crate) extern "C" fn shutdown(_: *mut FidEp, _: u64) -> c_int {
    NOSYS
}

pub(crate) extern "C" fn join(
    _: *mut FidEp,
    _: *const c_void,
    _: u64,
    _: *mut *mut c_void,
    _: *mut c_void,
) -> c_int {
    NOSYS
}
