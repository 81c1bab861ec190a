// SPDX-License-Identifier: MIT OR Apache-2.0
//! Address vectors. An address maps to its index, in order of insertion as long as none is removed.
//! Maps and tables work the same way.

#![allow(unsafe_code, reason = "called from C, with arrays of the application")]

use std::ffi::{c_char, c_int, c_void};

use portolan::binding::EndpointAddress;

use crate::abi::*;
use crate::errno::{Errno, integer, status};
use crate::object::{Object, domain_of, fid};
use crate::state::State;
use crate::unsupported;

static FID_OPS: Ops = Ops {
    close,
    ..unsupported::OPS
};

static AV_OPS: OpsAv = OpsAv {
    size: size_of::<OpsAv>(),
    insert,
    insertsvc: unsupported::insertsvc,
    insertsym: unsupported::insertsym,
    remove,
    lookup,
    straddr,
};

/// Flag of an insertion that reports an error for each address.
const SYNC_ERR: u64 = 1 << 58;

pub(crate) extern "C" fn open(
    domain: *mut FidDomain,
    attr: *mut AvAttr,
    out: *mut *mut FidAv,
    context: *mut c_void,
) -> c_int {
    status(|| {
        // SAFETY: an open domain of this provider, and the application's attributes.
        let (domain, attr) = unsafe { (domain_of(domain), attr.as_mut()) };
        if let Some(attr) = attr {
            // Not supported: shared vectors, vectors that report to an event queue, scalable
            // endpoints.
            if !attr.name.is_null() || attr.flags & (READ | COMPLETION) != 0 {
                return Err(Errno::NOSYS);
            }
            if attr.rx_ctx_bits != 0 {
                return Err(Errno::INVAL);
            }
            match attr.av_type {
                AV_MAP | AV_TABLE => {}
                AV_UNSPEC => attr.av_type = AV_TABLE,
                _ => return Err(Errno::INVAL),
            }
        }
        let index = domain.lock().open_av();
        let head = FidAv {
            fid: fid(CLASS_AV, context, &FID_OPS),
            ops: &raw const AV_OPS,
        };
        // SAFETY: `out` is the application's storage for the vector.
        unsafe { Object::store(out, head, domain, index) };
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
        // `fi_getinfo` may have returned a null destination address.
        if addresses.is_null() && count > 0 {
            return Err(Errno::INVAL);
        }
        // SAFETY: an open vector of this provider.
        let object = unsafe { Object::<FidAv>::of(av) };
        let mut state = object.lock();
        let errors = if flags & SYNC_ERR != 0 {
            context.cast::<c_int>()
        } else {
            std::ptr::null_mut()
        };
        let mut inserted = 0;
        for at in 0..count {
            // SAFETY: `addresses` has `count` addresses of this length; they need not be aligned.
            let bytes = unsafe { *addresses.cast::<[u8; EndpointAddress::LEN]>().add(at) };
            let place = insert_one(&mut state, object.index(), &bytes);
            inserted += c_int::from(place.is_ok());
            // SAFETY: `out` and `errors` are arrays of `count` elements, or null.
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

/// Inserts one address in the application's format.
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
        // SAFETY: an open vector of this provider.
        let object = unsafe { Object::<FidAv>::of(av) };
        let mut state = object.lock();
        for at in 0..count {
            // SAFETY: `addrs` is an array of `count` elements.
            state.remove(object.index(), unsafe { *addrs.add(at) })?;
        }
        Ok(())
    })
}

extern "C" fn lookup(av: *mut FidAv, addr: u64, out: *mut c_void, len: *mut usize) -> c_int {
    status(|| {
        // SAFETY: an open vector of this provider.
        let object = unsafe { Object::<FidAv>::of(av) };
        let address = object.lock().address(object.index(), addr)?;
        // SAFETY: `out` has room for `*len` bytes.
        match unsafe { hand_out(&address, out, len) } {
            // A truncated address is not an error here; the length reports the full size.
            Err(Errno::TOOSMALL) => Ok(()),
            other => other,
        }
    })
}

/// Copies an address to the application.
///
/// # Errors
/// `TOOSMALL` if it does not fit. The required length is stored in any case.
///
/// # Safety
/// `out` has room for `*len` bytes.
pub(crate) unsafe fn hand_out(
    address: &EndpointAddress,
    out: *mut c_void,
    len: *mut usize,
) -> Result<(), Errno> {
    // SAFETY: guaranteed by the caller.
    unsafe { hand_out_bytes(address.as_bytes(), out, len) }
}

/// Copies an address of any kind to the application.
///
/// # Errors
/// As for [`hand_out`].
///
/// # Safety
/// `out` has room for `*len` bytes.
pub(crate) unsafe fn hand_out_bytes(
    address: &[u8],
    out: *mut c_void,
    len: *mut usize,
) -> Result<(), Errno> {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let capacity = len.replace(address.len());
        let copied = capacity.min(address.len());
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

/// Writes an address as text, truncated to the buffer, and stores the required length.
extern "C" fn straddr(
    _av: *mut FidAv,
    address: *const c_void,
    buf: *mut c_char,
    len: *mut usize,
) -> *const c_char {
    // SAFETY: `address` points to an address of this length; it need not be aligned.
    let bytes = unsafe { *address.cast::<[u8; EndpointAddress::LEN]>() };
    let text = EndpointAddress::from_bytes(&bytes).map_or_else(
        |_| "not an address of portolan".to_owned(),
        |address| address.to_string(),
    );
    // SAFETY: `buf` is the application's buffer of `*len` bytes.
    unsafe {
        let capacity = len.replace(text.len() + 1);
        let copied = text.len().min(capacity.saturating_sub(1));
        if capacity > 0 {
            std::ptr::copy_nonoverlapping(text.as_ptr(), buf.cast(), copied);
            *buf.add(copied) = 0;
        }
    }
    buf
}

extern "C" fn close(av: *mut Fid) -> c_int {
    // SAFETY: an open vector of this provider, closed only once.
    unsafe { Object::<FidAv>::close(av, State::close_av) }
}
