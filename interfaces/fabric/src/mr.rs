// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory regions, which peers access by a key.

#![allow(unsafe_code, reason = "called from C, with memory of the application")]

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use libc::iovec;
use portolan::binding::{RawAccess, RawPiece};

use crate::abi::*;
use crate::errno::{Errno, status};
use crate::object::{Object, domain_of, fid};
use crate::state::{Domain, Mr, State};
use crate::unsupported;

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
    ..unsupported::OPS
};

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
    let attr = attr(&raw const memory, 1, access, key, context);
    register(domain, &attr, out)
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
    register(domain, &attr(iov, count, access, key, context), out)
}

extern "C" fn regattr(
    domain: *mut Fid,
    attr: *const MrAttr,
    _flags: u64,
    out: *mut *mut FidMr,
) -> c_int {
    // SAFETY: the application's attributes.
    register(domain, unsafe { &*attr }, out)
}

/// Returns attributes for the calls that pass only the main ones.
fn attr(
    iov: *const iovec,
    iov_count: usize,
    access: u64,
    requested_key: u64,
    context: *mut c_void,
) -> MrAttr {
    MrAttr {
        iov,
        iov_count,
        access,
        offset: 0,
        requested_key,
        context,
        auth_key_size: 0,
        auth_key: null_mut(),
        iface: 0,
        device: 0,
    }
}

fn register(domain: *mut Fid, attr: &MrAttr, out: *mut *mut FidMr) -> c_int {
    status(|| {
        if attr.iov_count != 1 || attr.iface != 0 {
            return Err(Errno::INVAL);
        }
        // SAFETY: an open domain of this provider; the list has one entry.
        let (domain, memory) = unsafe { (domain_of(domain), *attr.iov) };
        let mut state = domain.lock();
        let mr = plan(domain, &state, attr, memory)?;
        let key = mr.key();
        let index = state.open_mr(mr)?;
        drop(state);
        let head = FidMr {
            fid: fid(CLASS_MR, attr.context, &FID_OPS),
            mem_desc: null_mut(),
            key,
        };
        // SAFETY: `out` is the application's storage for the region.
        unsafe { Object::store(out, head, domain, index) };
        Ok(())
    })
}

/// Selects key and base address according to the domain's `mr_mode`.
fn plan(domain: &Domain, state: &State, attr: &MrAttr, memory: iovec) -> Result<Mr, Errno> {
    if memory.iov_base.is_null() && memory.iov_len > 0 {
        return Err(Errno::INVAL);
    }
    let memory = RawPiece {
        ptr: memory.iov_base.cast(),
        len: memory.iov_len,
    };
    let access = RawAccess {
        read: attr.access & REMOTE_READ != 0,
        write: attr.access & REMOTE_WRITE != 0,
    };
    let key = match domain.chooses_keys() {
        true => rand::random(),
        false => attr.requested_key,
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

/// Accepts bindings without effect. Regions need none, but some applications bind them.
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
    // SAFETY: an open region of this provider, closed only once.
    unsafe { Object::<FidMr>::close(mr, State::close_mr) }
}
