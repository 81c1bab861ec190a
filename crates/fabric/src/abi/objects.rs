// SPDX-License-Identifier: MIT OR Apache-2.0
//! Objects and their tables of operations. An application calls through the tables without looking
//! whether an entry is there, so every entry is set.

use std::ffi::{c_char, c_int, c_void};

use libc::iovec;

use super::info::{Info, RxAttr, TxAttr};
use super::messages::*;

/// The head of every object.
#[repr(C)]
pub(crate) struct Fid {
    pub(crate) fclass: usize,
    pub(crate) context: *mut c_void,
    pub(crate) ops: *const Ops,
}

#[repr(C)]
pub(crate) struct FidFabric {
    pub(crate) fid: Fid,
    pub(crate) ops: *const OpsFabric,
    pub(crate) api_version: u32,
}

#[repr(C)]
pub(crate) struct FidDomain {
    pub(crate) fid: Fid,
    pub(crate) ops: *const OpsDomain,
    pub(crate) mr: *const OpsMr,
}

#[repr(C)]
pub(crate) struct FidEp {
    pub(crate) fid: Fid,
    pub(crate) ops: *const OpsEp,
    pub(crate) cm: *const OpsCm,
    pub(crate) msg: *const OpsMsg,
    pub(crate) rma: *const OpsRma,
    pub(crate) tagged: *const OpsTagged,
    pub(crate) atomic: *const OpsAtomic,
    pub(crate) collective: *const c_void,
}

#[repr(C)]
pub(crate) struct FidAv {
    pub(crate) fid: Fid,
    pub(crate) ops: *const OpsAv,
}

#[repr(C)]
pub(crate) struct FidCq {
    pub(crate) fid: Fid,
    pub(crate) ops: *const OpsCq,
}

#[repr(C)]
pub(crate) struct FidCntr {
    pub(crate) fid: Fid,
    pub(crate) ops: *const OpsCntr,
}

#[repr(C)]
pub(crate) struct FidEq {
    pub(crate) fid: Fid,
    pub(crate) ops: *const OpsEq,
}

#[repr(C)]
pub(crate) struct FidMr {
    pub(crate) fid: Fid,
    pub(crate) mem_desc: *mut c_void,
    pub(crate) key: u64,
}

/// What every object can do.
#[repr(C)]
pub(crate) struct Ops {
    pub(crate) size: usize,
    pub(crate) close: extern "C" fn(*mut Fid) -> c_int,
    pub(crate) bind: extern "C" fn(*mut Fid, *mut Fid, u64) -> c_int,
    pub(crate) control: extern "C" fn(*mut Fid, c_int, *mut c_void) -> c_int,
    pub(crate) ops_open:
        extern "C" fn(*mut Fid, *const c_char, u64, *mut *mut c_void, *mut c_void) -> c_int,
}

/// `struct fi_ops_fabric`, without `domain2`.
#[repr(C)]
pub(crate) struct OpsFabric {
    pub(crate) size: usize,
    pub(crate) domain:
        extern "C" fn(*mut FidFabric, *mut Info, *mut *mut FidDomain, *mut c_void) -> c_int,
    pub(crate) passive_ep:
        extern "C" fn(*mut FidFabric, *mut Info, *mut *mut c_void, *mut c_void) -> c_int,
    pub(crate) eq_open:
        extern "C" fn(*mut FidFabric, *mut EqAttr, *mut *mut FidEq, *mut c_void) -> c_int,
    pub(crate) wait_open: extern "C" fn(*mut FidFabric, *mut c_void, *mut *mut c_void) -> c_int,
    pub(crate) trywait: extern "C" fn(*mut FidFabric, *mut *mut Fid, c_int) -> c_int,
}

/// `struct fi_ops_domain`, without what is optional at its end.
#[repr(C)]
pub(crate) struct OpsDomain {
    pub(crate) size: usize,
    pub(crate) av_open:
        extern "C" fn(*mut FidDomain, *mut AvAttr, *mut *mut FidAv, *mut c_void) -> c_int,
    pub(crate) cq_open:
        extern "C" fn(*mut FidDomain, *mut CqAttr, *mut *mut FidCq, *mut c_void) -> c_int,
    pub(crate) endpoint:
        extern "C" fn(*mut FidDomain, *mut Info, *mut *mut FidEp, *mut c_void) -> c_int,
    pub(crate) scalable_ep:
        extern "C" fn(*mut FidDomain, *mut Info, *mut *mut FidEp, *mut c_void) -> c_int,
    pub(crate) cntr_open:
        extern "C" fn(*mut FidDomain, *mut CntrAttr, *mut *mut FidCntr, *mut c_void) -> c_int,
    pub(crate) poll_open: extern "C" fn(*mut FidDomain, *mut c_void, *mut *mut c_void) -> c_int,
    pub(crate) stx_ctx:
        extern "C" fn(*mut FidDomain, *mut TxAttr, *mut *mut c_void, *mut c_void) -> c_int,
    pub(crate) srx_ctx:
        extern "C" fn(*mut FidDomain, *mut RxAttr, *mut *mut FidEp, *mut c_void) -> c_int,
    pub(crate) query_atomic:
        extern "C" fn(*mut FidDomain, c_int, c_int, *mut AtomicAttr, u64) -> c_int,
}

/// `struct fi_ops_mr`.
#[repr(C)]
pub(crate) struct OpsMr {
    pub(crate) size: usize,
    pub(crate) reg: extern "C" fn(
        *mut Fid,
        *const c_void,
        usize,
        u64,
        u64,
        u64,
        u64,
        *mut *mut FidMr,
        *mut c_void,
    ) -> c_int,
    pub(crate) regv: extern "C" fn(
        *mut Fid,
        *const iovec,
        usize,
        u64,
        u64,
        u64,
        u64,
        *mut *mut FidMr,
        *mut c_void,
    ) -> c_int,
    pub(crate) regattr: extern "C" fn(*mut Fid, *const MrAttr, u64, *mut *mut FidMr) -> c_int,
}

/// `struct fi_ops_av`, without what is optional at its end.
#[repr(C)]
pub(crate) struct OpsAv {
    pub(crate) size: usize,
    pub(crate) insert:
        extern "C" fn(*mut FidAv, *const c_void, usize, *mut u64, u64, *mut c_void) -> c_int,
    pub(crate) insertsvc: extern "C" fn(
        *mut FidAv,
        *const c_char,
        *const c_char,
        *mut u64,
        u64,
        *mut c_void,
    ) -> c_int,
    pub(crate) insertsym: extern "C" fn(
        *mut FidAv,
        *const c_char,
        usize,
        *const c_char,
        usize,
        *mut u64,
        u64,
        *mut c_void,
    ) -> c_int,
    pub(crate) remove: extern "C" fn(*mut FidAv, *mut u64, usize, u64) -> c_int,
    pub(crate) lookup: extern "C" fn(*mut FidAv, u64, *mut c_void, *mut usize) -> c_int,
    pub(crate) straddr:
        extern "C" fn(*mut FidAv, *const c_void, *mut c_char, *mut usize) -> *const c_char,
}

/// `struct fi_ops_cq`.
#[repr(C)]
pub(crate) struct OpsCq {
    pub(crate) size: usize,
    pub(crate) read: extern "C" fn(*mut FidCq, *mut c_void, usize) -> isize,
    pub(crate) readfrom: extern "C" fn(*mut FidCq, *mut c_void, usize, *mut u64) -> isize,
    pub(crate) readerr: extern "C" fn(*mut FidCq, *mut CqErrEntry, u64) -> isize,
    pub(crate) sread: extern "C" fn(*mut FidCq, *mut c_void, usize, *const c_void, c_int) -> isize,
    pub(crate) sreadfrom:
        extern "C" fn(*mut FidCq, *mut c_void, usize, *mut u64, *const c_void, c_int) -> isize,
    pub(crate) signal: extern "C" fn(*mut FidCq) -> c_int,
    pub(crate) strerror:
        extern "C" fn(*mut FidCq, c_int, *const c_void, *mut c_char, usize) -> *const c_char,
}

/// `struct fi_ops_cntr`.
#[repr(C)]
pub(crate) struct OpsCntr {
    pub(crate) size: usize,
    pub(crate) read: extern "C" fn(*mut FidCntr) -> u64,
    pub(crate) readerr: extern "C" fn(*mut FidCntr) -> u64,
    pub(crate) add: extern "C" fn(*mut FidCntr, u64) -> c_int,
    pub(crate) set: extern "C" fn(*mut FidCntr, u64) -> c_int,
    pub(crate) wait: extern "C" fn(*mut FidCntr, u64, c_int) -> c_int,
    pub(crate) adderr: extern "C" fn(*mut FidCntr, u64) -> c_int,
    pub(crate) seterr: extern "C" fn(*mut FidCntr, u64) -> c_int,
}

/// `struct fi_ops_eq`.
#[repr(C)]
pub(crate) struct OpsEq {
    pub(crate) size: usize,
    pub(crate) read: extern "C" fn(*mut FidEq, *mut u32, *mut c_void, usize, u64) -> isize,
    pub(crate) readerr: extern "C" fn(*mut FidEq, *mut c_void, u64) -> isize,
    pub(crate) write: extern "C" fn(*mut FidEq, u32, *const c_void, usize, u64) -> isize,
    pub(crate) sread: extern "C" fn(*mut FidEq, *mut u32, *mut c_void, usize, c_int, u64) -> isize,
    pub(crate) strerror:
        extern "C" fn(*mut FidEq, c_int, *const c_void, *mut c_char, usize) -> *const c_char,
}

/// `struct fi_ops_ep`.
#[repr(C)]
pub(crate) struct OpsEp {
    pub(crate) size: usize,
    pub(crate) cancel: extern "C" fn(*mut Fid, *mut c_void) -> isize,
    pub(crate) getopt: extern "C" fn(*mut Fid, c_int, c_int, *mut c_void, *mut usize) -> c_int,
    pub(crate) setopt: extern "C" fn(*mut Fid, c_int, c_int, *const c_void, usize) -> c_int,
    pub(crate) tx_ctx:
        extern "C" fn(*mut FidEp, c_int, *mut TxAttr, *mut *mut FidEp, *mut c_void) -> c_int,
    pub(crate) rx_ctx:
        extern "C" fn(*mut FidEp, c_int, *mut RxAttr, *mut *mut FidEp, *mut c_void) -> c_int,
    pub(crate) rx_size_left: extern "C" fn(*mut FidEp) -> isize,
    pub(crate) tx_size_left: extern "C" fn(*mut FidEp) -> isize,
}

/// `struct fi_ops_cm`.
#[repr(C)]
pub(crate) struct OpsCm {
    pub(crate) size: usize,
    pub(crate) setname: extern "C" fn(*mut Fid, *mut c_void, usize) -> c_int,
    pub(crate) getname: extern "C" fn(*mut Fid, *mut c_void, *mut usize) -> c_int,
    pub(crate) getpeer: extern "C" fn(*mut FidEp, *mut c_void, *mut usize) -> c_int,
    pub(crate) connect: extern "C" fn(*mut FidEp, *const c_void, *const c_void, usize) -> c_int,
    pub(crate) listen: extern "C" fn(*mut c_void) -> c_int,
    pub(crate) accept: extern "C" fn(*mut FidEp, *const c_void, usize) -> c_int,
    pub(crate) reject: extern "C" fn(*mut c_void, *mut Fid, *const c_void, usize) -> c_int,
    pub(crate) shutdown: extern "C" fn(*mut FidEp, u64) -> c_int,
    pub(crate) join:
        extern "C" fn(*mut FidEp, *const c_void, u64, *mut *mut c_void, *mut c_void) -> c_int,
}

/// `struct fi_ops_msg`.
#[repr(C)]
pub(crate) struct OpsMsg {
    pub(crate) size: usize,
    pub(crate) recv:
        extern "C" fn(*mut FidEp, *mut c_void, usize, *mut c_void, u64, *mut c_void) -> isize,
    pub(crate) recvv:
        extern "C" fn(*mut FidEp, *const iovec, *mut *mut c_void, usize, u64, *mut c_void) -> isize,
    pub(crate) recvmsg: extern "C" fn(*mut FidEp, *const Msg, u64) -> isize,
    pub(crate) send:
        extern "C" fn(*mut FidEp, *const c_void, usize, *mut c_void, u64, *mut c_void) -> isize,
    pub(crate) sendv:
        extern "C" fn(*mut FidEp, *const iovec, *mut *mut c_void, usize, u64, *mut c_void) -> isize,
    pub(crate) sendmsg: extern "C" fn(*mut FidEp, *const Msg, u64) -> isize,
    pub(crate) inject: extern "C" fn(*mut FidEp, *const c_void, usize, u64) -> isize,
    pub(crate) senddata: extern "C" fn(
        *mut FidEp,
        *const c_void,
        usize,
        *mut c_void,
        u64,
        u64,
        *mut c_void,
    ) -> isize,
    pub(crate) injectdata: extern "C" fn(*mut FidEp, *const c_void, usize, u64, u64) -> isize,
}

/// `struct fi_ops_tagged`.
#[repr(C)]
pub(crate) struct OpsTagged {
    pub(crate) size: usize,
    pub(crate) recv: extern "C" fn(
        *mut FidEp,
        *mut c_void,
        usize,
        *mut c_void,
        u64,
        u64,
        u64,
        *mut c_void,
    ) -> isize,
    pub(crate) recvv: extern "C" fn(
        *mut FidEp,
        *const iovec,
        *mut *mut c_void,
        usize,
        u64,
        u64,
        u64,
        *mut c_void,
    ) -> isize,
    pub(crate) recvmsg: extern "C" fn(*mut FidEp, *const MsgTagged, u64) -> isize,
    pub(crate) send: extern "C" fn(
        *mut FidEp,
        *const c_void,
        usize,
        *mut c_void,
        u64,
        u64,
        *mut c_void,
    ) -> isize,
    pub(crate) sendv: extern "C" fn(
        *mut FidEp,
        *const iovec,
        *mut *mut c_void,
        usize,
        u64,
        u64,
        *mut c_void,
    ) -> isize,
    pub(crate) sendmsg: extern "C" fn(*mut FidEp, *const MsgTagged, u64) -> isize,
    pub(crate) inject: extern "C" fn(*mut FidEp, *const c_void, usize, u64, u64) -> isize,
    pub(crate) senddata: extern "C" fn(
        *mut FidEp,
        *const c_void,
        usize,
        *mut c_void,
        u64,
        u64,
        u64,
        *mut c_void,
    ) -> isize,
    pub(crate) injectdata: extern "C" fn(*mut FidEp, *const c_void, usize, u64, u64, u64) -> isize,
}

/// `struct fi_ops_rma`.
#[repr(C)]
pub(crate) struct OpsRma {
    pub(crate) size: usize,
    pub(crate) read: extern "C" fn(
        *mut FidEp,
        *mut c_void,
        usize,
        *mut c_void,
        u64,
        u64,
        u64,
        *mut c_void,
    ) -> isize,
    pub(crate) readv: extern "C" fn(
        *mut FidEp,
        *const iovec,
        *mut *mut c_void,
        usize,
        u64,
        u64,
        u64,
        *mut c_void,
    ) -> isize,
    pub(crate) readmsg: extern "C" fn(*mut FidEp, *const MsgRma, u64) -> isize,
    pub(crate) write: extern "C" fn(
        *mut FidEp,
        *const c_void,
        usize,
        *mut c_void,
        u64,
        u64,
        u64,
        *mut c_void,
    ) -> isize,
    pub(crate) writev: extern "C" fn(
        *mut FidEp,
        *const iovec,
        *mut *mut c_void,
        usize,
        u64,
        u64,
        u64,
        *mut c_void,
    ) -> isize,
    pub(crate) writemsg: extern "C" fn(*mut FidEp, *const MsgRma, u64) -> isize,
    pub(crate) inject: extern "C" fn(*mut FidEp, *const c_void, usize, u64, u64, u64) -> isize,
    pub(crate) writedata: extern "C" fn(
        *mut FidEp,
        *const c_void,
        usize,
        *mut c_void,
        u64,
        u64,
        u64,
        u64,
        *mut c_void,
    ) -> isize,
    pub(crate) injectdata:
        extern "C" fn(*mut FidEp, *const c_void, usize, u64, u64, u64, u64) -> isize,
}

/// `struct fi_ops_atomic`.
#[repr(C)]
pub(crate) struct OpsAtomic {
    pub(crate) size: usize,
    pub(crate) write: extern "C" fn(
        *mut FidEp,
        *const c_void,
        usize,
        *mut c_void,
        u64,
        u64,
        u64,
        c_int,
        c_int,
        *mut c_void,
    ) -> isize,
    pub(crate) writev: extern "C" fn(
        *mut FidEp,
        *const Ioc,
        *mut *mut c_void,
        usize,
        u64,
        u64,
        u64,
        c_int,
        c_int,
        *mut c_void,
    ) -> isize,
    pub(crate) writemsg: extern "C" fn(*mut FidEp, *const MsgAtomic, u64) -> isize,
    pub(crate) inject:
        extern "C" fn(*mut FidEp, *const c_void, usize, u64, u64, u64, c_int, c_int) -> isize,
    pub(crate) readwrite: extern "C" fn(
        *mut FidEp,
        *const c_void,
        usize,
        *mut c_void,
        *mut c_void,
        *mut c_void,
        u64,
        u64,
        u64,
        c_int,
        c_int,
        *mut c_void,
    ) -> isize,
    pub(crate) readwritev: extern "C" fn(
        *mut FidEp,
        *const Ioc,
        *mut *mut c_void,
        usize,
        *mut Ioc,
        *mut *mut c_void,
        usize,
        u64,
        u64,
        u64,
        c_int,
        c_int,
        *mut c_void,
    ) -> isize,
    pub(crate) readwritemsg: extern "C" fn(
        *mut FidEp,
        *const MsgAtomic,
        *mut Ioc,
        *mut *mut c_void,
        usize,
        u64,
    ) -> isize,
    pub(crate) compwrite: extern "C" fn(
        *mut FidEp,
        *const c_void,
        usize,
        *mut c_void,
        *const c_void,
        *mut c_void,
        *mut c_void,
        *mut c_void,
        u64,
        u64,
        u64,
        c_int,
        c_int,
        *mut c_void,
    ) -> isize,
    pub(crate) compwritev: extern "C" fn(
        *mut FidEp,
        *const Ioc,
        *mut *mut c_void,
        usize,
        *const Ioc,
        *mut *mut c_void,
        usize,
        *mut Ioc,
        *mut *mut c_void,
        usize,
        u64,
        u64,
        u64,
        c_int,
        c_int,
        *mut c_void,
    ) -> isize,
    pub(crate) compwritemsg: extern "C" fn(
        *mut FidEp,
        *const MsgAtomic,
        *const Ioc,
        *mut *mut c_void,
        usize,
        *mut Ioc,
        *mut *mut c_void,
        usize,
        u64,
    ) -> isize,
    pub(crate) writevalid: extern "C" fn(*mut FidEp, c_int, c_int, *mut usize) -> c_int,
    pub(crate) readwritevalid: extern "C" fn(*mut FidEp, c_int, c_int, *mut usize) -> c_int,
    pub(crate) compwritevalid: extern "C" fn(*mut FidEp, c_int, c_int, *mut usize) -> c_int,
}
