// SPDX-License-Identifier: MIT OR Apache-2.0
//! Address vectors. An address becomes the number of its place, in the order of insertion as long
//! as none is removed; maps and tables are alike.

#![allow(unsafe_code, reason = "called from C, with arrays of the application")]

use std::ffi::{c_char, c_int, c_void};

use portolan::EndpointAddress;

use crate::abi::*;
use crate::absent;
use crate::errno::{Errno, integer, status};
use crate::object::{Object, domain_of, fid};
use crate::state::State;

static FID_OPS: Ops = Ops {
    close,
    ..absent::OPS
};

static AV_OPS: OpsAv = OpsAv {
    size: size_of::<OpsAv>(),
    insert,
    insertsvc: absent::insertsvc,
    insertsym: absent::insertsym,
    remove,
    lookup,
    straddr,
};

/// An insertion that tells of each address by itself.
const SYNC_ERR: u64 = 1 << 58;

pub(crate) extern "C" fn open(
    domain: *mut FidDomain,
    attr: *mut AvAttr,
    out: *mut *mut FidAv,
    context: *mut c_void,
) -> c_int {
    status(|| {
        // SAFETY: an open domain of ours, and the application's attributes.
        let (domain, attr) = unsafe { (domain_of(domain), attr.as_mut()) };
        if let Some(attr) = attr {
            // No vectors that processes share, none that report to an event queue, no scalable
            // endpoints.
            if !attr.name.is_null() || attr.flags & (READ | COMPLETION) != 0 {
                return Err(Errno::NOSYS);
            }
            if attr.rx_ctx_bits != 0 {
                return Err(Errno::INVAL);
            }
            if attr.av_type == AV_UNSPEC {
                attr.av_type = AV_TABLE;
            }
        }
        let index = domain.lock().open_av();
        let head = FidAv {
            fid: fid(CLASS_AV, context, &FID_OPS),
            ops: &raw const AV_OPS,
        };
        // SAFETY: the application's place for the vector.
        unsafe { Object::give(out, head, domain, index) };
        Ok(())
    })
}

extern "C" fn insert(
    av: *mut FidAv,
    addresses: *const c_void,
    count: usize,
    out: *mut u64,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    integer(|| {
        // What `fi_getinfo` gives for a destination that it does not know.
        if addresses.is_null() && count > 0 {
            return Err(Errno::INVAL);
        }
        // SAFETY: an open vector of ours.
        let object = unsafe { Object::<FidAv>::of(av) };
        let mut state = object.lock();
        let errors = if flags & SYNC_ERR != 0 {
            context.cast::<c_int>()
        } else {
            std::ptr::null_mut()
        };
        let mut inserted = 0;
        for at in 0..count {
            // SAFETY: `count` addresses of this length, which need not be aligned.
            let bytes = unsafe { *addresses.cast::<[u8; EndpointAddress::LEN]>().add(at) };
            let place = insert_one(&mut state, object.index(), &bytes);
            inserted += c_int::from(place.is_ok());
            // SAFETY: arrays of `count`, or null.
            unsafe {
                if !out.is_null() {
                    *out.add(at) = place.map_or(ADDR_NOTAVAIL, |place| place as u64);
                }
                if !errors.is_null() {
                    *errors.add(at) = place.map_or_else(|error| error.0, |_| 0);
                }
            }
        }
        Ok(inserted)
    })
}

/// Add an address as the application passes it.
fn insert_one(
    state: &mut State,
    av: usize,
    bytes: &[u8; EndpointAddress::LEN],
) -> Result<usize, Errno> {
    let address = EndpointAddress::from_bytes(bytes).map_err(|_| Errno::INVAL)?;
    state.insert(av, &address)
}

extern "C" fn remove(av: *mut FidAv, addrs: *mut u64, count: usize, _flags: u64) -> c_int {
    status(|| {
        // SAFETY: an open vector of ours.
        let object = unsafe { Object::<FidAv>::of(av) };
        let mut state = object.lock();
        for at in 0..count {
            // SAFETY: an array of `count`.
            state.remove(object.index(), unsafe { *addrs.add(at) })?;
        }
        Ok(())
    })
}

extern "C" fn lookup(av: *mut FidAv, addr: u64, out: *mut c_void, len: *mut usize) -> c_int {
    status(|| {
        // SAFETY: an open vector of ours.
        let object = unsafe { Object::<FidAv>::of(av) };
        let address = object.lock().address(object.index(), addr)?;
        // SAFETY: a place for `*len` bytes.
        match unsafe { hand_out(&address, out, len) } {
            // What fits is there, and the length tells of the rest.
            Err(Errno::TOOSMALL) => Ok(()),
            other => other,
        }
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
    unsafe { hand_out_bytes(address.as_bytes(), out, len) }
}

/// The same for an address of any kind.
///
/// # Errors
/// As [`hand_out`].
///
/// # Safety
/// `out` has `*len` bytes.
pub(crate) unsafe fn hand_out_bytes(
    address: &[u8],
    out: *mut c_void,
    len: *mut usize,
) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    unsafe {
        let room = len.replace(address.len());
        let copied = room.min(address.len());
        if copied > 0 {
            std::ptr::copy_nonoverlapping(address.as_ptr(), out.cast(), copied);
        }
        if copied < address.len() {
            Err(Errno::TOOSMALL)
        } else {
            Ok(())
        }
    }
}

/// Write an address for people, as much of it as fits, and tell the length it needs.
extern "C" fn straddr(
    _av: *mut FidAv,
    address: *const c_void,
    buf: *mut c_char,
    len: *mut usize,
) -> *const c_char {
    // SAFETY: an address of this length, which need not be aligned.
    let bytes = unsafe { *address.cast::<[u8; EndpointAddress::LEN]>() };
    let text = EndpointAddress::from_bytes(&bytes).map_or_else(
        |_| "not an address of portolan".to_owned(),
        |address| address.to_string(),
    );
    // SAFETY: the application's place for `*len` bytes.
    unsafe {
        let room = len.replace(text.len() + 1);
        let copied = text.len().min(room.saturating_sub(1));
        if room > 0 {
            std::ptr::copy_nonoverlapping(text.as_ptr(), buf.cast(), copied);
            *buf.add(copied) = 0;
        }
    }
    buf
}

extern "C" fn close(av: *mut Fid) -> c_int {
    // SAFETY: an open vector of ours, closed only once.
    unsafe { Object::<FidAv>::close(av, State::close_av) }
}
