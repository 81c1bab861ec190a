// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory regions: what peers may read or write, by a key.

#![allow(unsafe_code, reason = "called from C, with memory of the application")]

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::Arc;

use libc::iovec;

use crate::abi::*;
use crate::absent;
use crate::domain::Domain;
use crate::errno::{Errno, status};
use crate::object::{Object, fid};
use crate::state::State;

pub(crate) static OPS: OpsMr = OpsMr {
    size: size_of::<OpsMr>(),
    reg,
    regv,
    regattr,
};

static FID_OPS: Ops = Ops {
    size: size_of::<Ops>(),
    close,
    bind,
    control,
    ops_open: absent::ops_open,
};

/// A region, registered by every endpoint of its domain.
pub(crate) struct Mr {
    pub(crate) start: usize,
    pub(crate) len: usize,
    pub(crate) key: u64,
    /// What addresses in the region count from.
    pub(crate) base: u64,
    pub(crate) readable: bool,
    pub(crate) writable: bool,
}

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
        let domain: &Arc<Domain> = unsafe { Domain::of(domain.cast()) };
        let mut state = domain.state.lock();
        let mr = plan(domain, &state, wanted)?;
        let key = mr.key;
        register_by_all(&mut state, &mr)?;
        let index = state.mrs.insert(mr);
        drop(state);
        let fid = fid(CLASS_MR, wanted.context, &FID_OPS);
        // SAFETY: the application's place for the region.
        unsafe {
            Object::give(
                out,
                FidMr {
                    fid,
                    mem_desc: null_mut(),
                    key,
                },
                domain,
                index,
            )
        };
        Ok(())
    })
}

/// Decide on key and addresses, as the domain was opened.
fn plan(domain: &Domain, state: &State, wanted: &Wanted) -> Result<Mr, Errno> {
    let start = wanted.memory.iov_base as usize;
    let taken = |key| state.mrs.iter().any(|(_, mr)| mr.key == key);
    let key = if domain.chooses_keys() {
        rand::random()
    } else {
        wanted.key
    };
    if taken(key) {
        return Err(Errno::NOKEY);
    }
    Ok(Mr {
        start,
        len: wanted.memory.iov_len,
        key,
        base: if domain.addresses_are_virtual() {
            start as u64
        } else {
            0
        },
        readable: wanted.access & REMOTE_READ != 0,
        writable: wanted.access & REMOTE_WRITE != 0,
    })
}

/// Register a region by all endpoints, or by none.
fn register_by_all(state: &mut State, mr: &Mr) -> Result<(), Errno> {
    let failed = state
        .eps
        .iter_mut()
        .find_map(|(_, ep)| ep.register(mr).err());
    match failed {
        None => Ok(()),
        Some(error) => {
            deregister_by_all(state, mr.key);
            Err(error)
        }
    }
}

fn deregister_by_all(state: &mut State, key: u64) {
    for (_, ep) in &mut state.eps {
        ep.engine.deregister(key);
    }
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
    status(|| {
        // SAFETY: an open region of ours, closed only once.
        let object = unsafe { Object::<FidMr>::take(mr) };
        let mut state = object.domain.state.lock();
        let mr = state.mrs.remove(object.index);
        deregister_by_all(&mut state, mr.key);
        Ok(())
    })
}
