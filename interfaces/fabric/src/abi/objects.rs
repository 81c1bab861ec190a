// SPDX-License-Identifier: MIT OR Apache-2.0
//! Objects and their operation tables. Applications call through the tables without checking for
//! null, so every entry is set.

use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;

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
    /// Held by the open domains of the fabric, too. Not a part of libfabric's layout.
    pub(crate) users: Arc<()>,
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
pub(crate) struct FidPep {
    pub(crate) fid: Fid,
    pub(crate) ops: *const OpsEp,
    pub(crate) cm: *const OpsCm,
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

/// Defines operation tables: their size in bytes, followed by functions, given by their argument
/// types.
macro_rules! tables {
    ($($(#[$doc:meta])+ $name:ident { $($call:ident($($arg:ty),+) -> $result:ty;)+ })+) => {$(
        $(#[$doc])+
        #[repr(C)]
        pub(crate) struct $name {
            pub(crate) size: usize,
            $(pub(crate) $call: extern "C" fn($($arg),+) -> $result,)+
        }
    )+};
}

/// An application's pointer, returned with completions and events.
pub(crate) type Context = *mut c_void;
/// Destination of the pointer to a new object.
pub(crate) type Out<T> = *mut *mut T;
/// Registration descriptors: of one buffer, or of each buffer in a list.
type Desc = *mut c_void;
type Descs = *mut *mut c_void;

tables! {
    /// `struct fi_ops`: operations of every object.
    Ops {
        close(*mut Fid) -> c_int;
        bind(*mut Fid, *mut Fid, u64) -> c_int;
        control(*mut Fid, c_int, *mut c_void) -> c_int;
        ops_open(*mut Fid, *const c_char, u64, Out<c_void>, Context) -> c_int;
    }

    /// `struct fi_ops_fabric`, without `domain2`.
    OpsFabric {
        domain(*mut FidFabric, *mut Info, Out<FidDomain>, Context) -> c_int;
        passive_ep(*mut FidFabric, *mut Info, Out<FidPep>, Context) -> c_int;
        eq_open(*mut FidFabric, *mut EqAttr, Out<FidEq>, Context) -> c_int;
        wait_open(*mut FidFabric, *mut c_void, Out<c_void>) -> c_int;
        trywait(*mut FidFabric, *mut *mut Fid, c_int) -> c_int;
    }

    /// `struct fi_ops_domain`, without its optional last entries.
    OpsDomain {
        av_open(*mut FidDomain, *mut AvAttr, Out<FidAv>, Context) -> c_int;
        cq_open(*mut FidDomain, *mut CqAttr, Out<FidCq>, Context) -> c_int;
        endpoint(*mut FidDomain, *mut Info, Out<FidEp>, Context) -> c_int;
        scalable_ep(*mut FidDomain, *mut Info, Out<FidEp>, Context) -> c_int;
        cntr_open(*mut FidDomain, *mut CntrAttr, Out<FidCntr>, Context) -> c_int;
        poll_open(*mut FidDomain, *mut c_void, Out<c_void>) -> c_int;
        stx_ctx(*mut FidDomain, *mut TxAttr, Out<c_void>, Context) -> c_int;
        srx_ctx(*mut FidDomain, *mut RxAttr, Out<FidEp>, Context) -> c_int;
        query_atomic(*mut FidDomain, c_int, c_int, *mut AtomicAttr, u64) -> c_int;
    }

    /// `struct fi_ops_mr`.
    OpsMr {
        reg(*mut Fid, *const c_void, usize, u64, u64, u64, u64, Out<FidMr>, Context) -> c_int;
        regv(*mut Fid, *const iovec, usize, u64, u64, u64, u64, Out<FidMr>, Context) -> c_int;
        regattr(*mut Fid, *const MrAttr, u64, Out<FidMr>) -> c_int;
    }

    /// `struct fi_ops_av`, without its optional last entries.
    OpsAv {
        insert(*mut FidAv, *const c_void, usize, *mut u64, u64, Context) -> c_int;
        insertsvc(*mut FidAv, *const c_char, *const c_char, *mut u64, u64, Context) -> c_int;
        insertsym(
            *mut FidAv, *const c_char, usize, *const c_char, usize, *mut u64, u64, Context
        ) -> c_int;
        remove(*mut FidAv, *mut u64, usize, u64) -> c_int;
        lookup(*mut FidAv, u64, *mut c_void, *mut usize) -> c_int;
        straddr(*mut FidAv, *const c_void, *mut c_char, *mut usize) -> *const c_char;
    }

    /// `struct fi_ops_cq`.
    OpsCq {
        read(*mut FidCq, *mut c_void, usize) -> isize;
        readfrom(*mut FidCq, *mut c_void, usize, *mut u64) -> isize;
        readerr(*mut FidCq, *mut CqErrEntry, u64) -> isize;
        sread(*mut FidCq, *mut c_void, usize, *const c_void, c_int) -> isize;
        sreadfrom(*mut FidCq, *mut c_void, usize, *mut u64, *const c_void, c_int) -> isize;
        signal(*mut FidCq) -> c_int;
        strerror(*mut FidCq, c_int, *const c_void, *mut c_char, usize) -> *const c_char;
    }

    /// `struct fi_ops_cntr`.
    OpsCntr {
        read(*mut FidCntr) -> u64;
        readerr(*mut FidCntr) -> u64;
        add(*mut FidCntr, u64) -> c_int;
        set(*mut FidCntr, u64) -> c_int;
        wait(*mut FidCntr, u64, c_int) -> c_int;
        adderr(*mut FidCntr, u64) -> c_int;
        seterr(*mut FidCntr, u64) -> c_int;
    }

    /// `struct fi_ops_eq`.
    OpsEq {
        read(*mut FidEq, *mut u32, *mut c_void, usize, u64) -> isize;
        readerr(*mut FidEq, *mut EqErrEntry, u64) -> isize;
        write(*mut FidEq, u32, *const c_void, usize, u64) -> isize;
        sread(*mut FidEq, *mut u32, *mut c_void, usize, c_int, u64) -> isize;
        strerror(*mut FidEq, c_int, *const c_void, *mut c_char, usize) -> *const c_char;
    }

    /// `struct fi_ops_ep`.
    OpsEp {
        cancel(*mut Fid, Context) -> isize;
        getopt(*mut Fid, c_int, c_int, *mut c_void, *mut usize) -> c_int;
        setopt(*mut Fid, c_int, c_int, *const c_void, usize) -> c_int;
        tx_ctx(*mut FidEp, c_int, *mut TxAttr, Out<FidEp>, Context) -> c_int;
        rx_ctx(*mut FidEp, c_int, *mut RxAttr, Out<FidEp>, Context) -> c_int;
        rx_size_left(*mut FidEp) -> isize;
        tx_size_left(*mut FidEp) -> isize;
    }

    /// `struct fi_ops_cm`.
    OpsCm {
        setname(*mut Fid, *mut c_void, usize) -> c_int;
        getname(*mut Fid, *mut c_void, *mut usize) -> c_int;
        getpeer(*mut FidEp, *mut c_void, *mut usize) -> c_int;
        connect(*mut FidEp, *const c_void, *const c_void, usize) -> c_int;
        listen(*mut FidPep) -> c_int;
        accept(*mut FidEp, *const c_void, usize) -> c_int;
        reject(*mut FidPep, *mut Fid, *const c_void, usize) -> c_int;
        shutdown(*mut FidEp, u64) -> c_int;
        join(*mut FidEp, *const c_void, u64, Out<c_void>, Context) -> c_int;
    }

    /// `struct fi_ops_msg`.
    OpsMsg {
        recv(*mut FidEp, *mut c_void, usize, Desc, u64, Context) -> isize;
        recvv(*mut FidEp, *const iovec, Descs, usize, u64, Context) -> isize;
        recvmsg(*mut FidEp, *const Msg, u64) -> isize;
        send(*mut FidEp, *const c_void, usize, Desc, u64, Context) -> isize;
        sendv(*mut FidEp, *const iovec, Descs, usize, u64, Context) -> isize;
        sendmsg(*mut FidEp, *const Msg, u64) -> isize;
        inject(*mut FidEp, *const c_void, usize, u64) -> isize;
        senddata(*mut FidEp, *const c_void, usize, Desc, u64, u64, Context) -> isize;
        injectdata(*mut FidEp, *const c_void, usize, u64, u64) -> isize;
    }

    /// `struct fi_ops_tagged`.
    OpsTagged {
        recv(*mut FidEp, *mut c_void, usize, Desc, u64, u64, u64, Context) -> isize;
        recvv(*mut FidEp, *const iovec, Descs, usize, u64, u64, u64, Context) -> isize;
        recvmsg(*mut FidEp, *const MsgTagged, u64) -> isize;
        send(*mut FidEp, *const c_void, usize, Desc, u64, u64, Context) -> isize;
        sendv(*mut FidEp, *const iovec, Descs, usize, u64, u64, Context) -> isize;
        sendmsg(*mut FidEp, *const MsgTagged, u64) -> isize;
        inject(*mut FidEp, *const c_void, usize, u64, u64) -> isize;
        senddata(*mut FidEp, *const c_void, usize, Desc, u64, u64, u64, Context) -> isize;
        injectdata(*mut FidEp, *const c_void, usize, u64, u64, u64) -> isize;
    }

    /// `struct fi_ops_rma`.
    OpsRma {
        read(*mut FidEp, *mut c_void, usize, Desc, u64, u64, u64, Context) -> isize;
        readv(*mut FidEp, *const iovec, Descs, usize, u64, u64, u64, Context) -> isize;
        readmsg(*mut FidEp, *const MsgRma, u64) -> isize;
        write(*mut FidEp, *const c_void, usize, Desc, u64, u64, u64, Context) -> isize;
        writev(*mut FidEp, *const iovec, Descs, usize, u64, u64, u64, Context) -> isize;
        writemsg(*mut FidEp, *const MsgRma, u64) -> isize;
        inject(*mut FidEp, *const c_void, usize, u64, u64, u64) -> isize;
        writedata(*mut FidEp, *const c_void, usize, Desc, u64, u64, u64, u64, Context) -> isize;
        injectdata(*mut FidEp, *const c_void, usize, u64, u64, u64, u64) -> isize;
    }

    /// `struct fi_ops_atomic`.
    OpsAtomic {
        write(
            *mut FidEp, *const c_void, usize, Desc, u64, u64, u64, c_int, c_int, Context
        ) -> isize;
        writev(*mut FidEp, *const Ioc, Descs, usize, u64, u64, u64, c_int, c_int, Context) -> isize;
        writemsg(*mut FidEp, *const MsgAtomic, u64) -> isize;
        inject(*mut FidEp, *const c_void, usize, u64, u64, u64, c_int, c_int) -> isize;
        readwrite(
            *mut FidEp, *const c_void, usize, Desc, *mut c_void, Desc, u64, u64, u64, c_int, c_int,
            Context
        ) -> isize;
        readwritev(
            *mut FidEp, *const Ioc, Descs, usize, *mut Ioc, Descs, usize, u64, u64, u64, c_int,
            c_int, Context
        ) -> isize;
        readwritemsg(*mut FidEp, *const MsgAtomic, *mut Ioc, Descs, usize, u64) -> isize;
        compwrite(
            *mut FidEp, *const c_void, usize, Desc, *const c_void, Desc, *mut c_void, Desc, u64,
            u64, u64, c_int, c_int, Context
        ) -> isize;
        compwritev(
            *mut FidEp, *const Ioc, Descs, usize, *const Ioc, Descs, usize, *mut Ioc, Descs, usize,
            u64, u64, u64, c_int, c_int, Context
        ) -> isize;
        compwritemsg(
            *mut FidEp, *const MsgAtomic, *const Ioc, Descs, usize, *mut Ioc, Descs, usize, u64
        ) -> isize;
        writevalid(*mut FidEp, c_int, c_int, *mut usize) -> c_int;
        readwritevalid(*mut FidEp, c_int, c_int, *mut usize) -> c_int;
        compwritevalid(*mut FidEp, c_int, c_int, *mut usize) -> c_int;
    }
}
