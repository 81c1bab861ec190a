// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory regions: what peers may read or write, by a key.

#![allow(unsafe_code, reason = "called from C, with memory of the application")]

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use libc::iovec;
use portolan::{RawAccess, RawPiece};

use crate::abi::*;
use crate::absent;
use crate::errno::{Errno, status};
use crate::object::{Object, domain_of, fid};
use crate::state::{Domain, Mr, State};

pub(crate) static OPS: OpsMr = OpsMr {
    size: size_of::<OpsMr>(),
    reg,
    regv,
    regattr,
};

static FID_OPS: Ops = Ops {
    close,
    bind,
    control,
    ..absent::OPS
};

/// What the application asks for.
struct Wanted {
    memory: iovec,
    access: u64,
    key: u64,
    context: *mut c_void,
}

extern "C" fn reg(
    domain: *mut Fid,
    buf: *const c_void,
    len: usize,
    access: u64,
    _offset: u64,
    key: u64,
    _flags: u64,
    out: *mut *mut FidMr,
    context: *mut c_void,
) -> c_int {
    let memory = iovec {
        iov_base: buf.cast_mut(),
        iov_len: len,
    };
    register(
        domain,
        &Wanted {
            memory,
            access,
            key,
            context,
        },
        out,
    )
}

extern "C" fn regv(
    domain: *mut Fid,
    iov: *const iovec,
    count: usize,
    access: u64,
    _offset: u64,
    key: u64,
    _flags: u64,
    out: *mut *mut FidMr,
    context: *mut c_void,
) -> c_int {
    if count != 1 {
        return -libc::EINVAL;
    }
    // SAFETY: one entry is there.
    let memory = unsafe { *iov };
    register(
        domain,
        &Wanted {
            memory,
            access,
            key,
            context,
        },
        out,
    )
}

extern "C" fn regattr(
    domain: *mut Fid,
    attr: *const MrAttr,
    _flags: u64,
    out: *mut *mut FidMr,
) -> c_int {
    // SAFETY: the application's attributes.
    let attr = unsafe { &*attr };
    if attr.iov_count != 1 || attr.iface != 0 {
        return -libc::EINVAL;
    }
    // SAFETY: one entry is there.
    let memory = unsafe { *attr.iov };
    let (access, key, context) = (attr.access, attr.requested_key, attr.context);
    register(
        domain,
        &Wanted {
            memory,
            access,
            key,
            context,
        },
        out,
    )
}

fn register(domain: *mut Fid, wanted: &Wanted, out: *mut *mut FidMr) -> c_int {
    status(|| {
        // SAFETY: an open domain of ours.
        let domain = unsafe { domain_of(domain) };
        let mut state = domain.lock();
        let mr = plan(domain, &state, wanted)?;
        let key = mr.key();
        let index = state.open_mr(mr)?;
        drop(state);
        let head = FidMr {
            fid: fid(CLASS_MR, wanted.context, &FID_OPS),
            mem_desc: null_mut(),
            key,
        };
        // SAFETY: the application's place for the region.
        unsafe { Object::give(out, head, domain, index) };
        Ok(())
    })
}

/// Decide on key and addresses, as the domain was opened.
fn plan(domain: &Domain, state: &State, wanted: &Wanted) -> Result<Mr, Errno> {
    let memory = RawPiece {
        ptr: wanted.memory.iov_base.cast(),
        len: wanted.memory.iov_len,
    };
    let access = RawAccess {
        read: wanted.access & REMOTE_READ != 0,
        write: wanted.access & REMOTE_WRITE != 0,
    };
    let key = match domain.chooses_keys() {
        true => rand::random(),
        false => wanted.key,
    };
    if state.has_key(key) {
        return Err(Errno::NOKEY);
    }
    let base = match domain.addresses_are_virtual() {
        true => memory.ptr as u64,
        false => 0,
    };
    Ok(Mr::new(memory, access, key, base))
}

/// Regions need no binding; some applications bind them all the same.
extern "C" fn bind(_mr: *mut Fid, _to: *mut Fid, flags: u64) -> c_int {
    if flags & (REMOTE_READ | REMOTE_WRITE) == 0 {
        0
    } else {
        -libc::ENOSYS
    }
}

extern "C" fn control(_mr: *mut Fid, command: c_int, _arg: *mut c_void) -> c_int {
    if command == ENABLE { 0 } else { -libc::ENOSYS }
}

extern "C" fn close(mr: *mut Fid) -> c_int {
    // SAFETY: an open region of ours, closed only once.
    unsafe { Object::<FidMr>::close(mr, State::close_mr) }
}
