// SPDX-License-Identifier: MIT OR Apache-2.0
//! Objects that the application holds: a head laid out as libfabric wants, then what we need.

#![allow(
    unsafe_code,
    reason = "objects are handed to C and come back as pointers"
)]

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use portolan_ffi::Guard;

use crate::abi::{Fid, FidDomain, Ops};
use crate::errno::{Errno, status};
use crate::state::{Domain, State};

/// An object of a domain: what C sees, and where its state is.
#[repr(C)]
pub(crate) struct Object<F> {
    head: F,
    domain: Arc<Domain>,
    /// Its place in the domain's table of such objects.
    index: usize,
}

impl<F> Object<F> {
    /// Give an object to the application, which owns it until it closes it.
    ///
    /// # Safety
    /// `out` may be written; `F` begins with a [`Fid`].
    pub(crate) unsafe fn give(out: *mut *mut F, head: F, domain: &Arc<Domain>, index: usize) {
        let object = Box::new(Object {
            head,
            domain: Arc::clone(domain),
            index,
        });
        // SAFETY: the caller's promise.
        unsafe { *out = Box::into_raw(object).cast() };
    }

    /// See an object again.
    ///
    /// # Safety
    /// `fid` came from [`Object::give`] with the same `F` and is not closed.
    #[inline]
    pub(crate) unsafe fn of<'a, P>(fid: *mut P) -> &'a Object<F> {
        // SAFETY: the head is at the beginning of the object, by `repr(C)`.
        unsafe { &*fid.cast() }
    }

    pub(crate) fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }

    /// Its place in the domain's table of such objects.
    #[inline]
    pub(crate) fn index(&self) -> usize {
        self.index
    }

    /// The domain's tables.
    #[inline]
    pub(crate) fn lock(&self) -> Guard<'_, State> {
        self.domain.lock()
    }

    /// Take an object back from the application, unless `remove` finds that it is in use. What that
    /// takes out of the domain's tables ends without the lock.
    ///
    /// # Safety
    /// As for [`Object::of`]; once closed, it is not used afterwards.
    pub(crate) unsafe fn close<T>(
        fid: *mut Fid,
        remove: impl FnOnce(&mut State, usize) -> Result<T, Errno>,
    ) -> c_int {
        status(|| {
            // SAFETY: the caller's promise.
            let object = unsafe { Object::<F>::of(fid) };
            let removed = remove(&mut object.lock(), object.index)?;
            // SAFETY: made by `Box::into_raw` in `give`.
            drop(unsafe { Box::from_raw(fid.cast::<Object<F>>()) });
            drop(removed);
            Ok(())
        })
    }
}

/// See a domain again.
///
/// # Safety
/// An open domain of ours.
pub(crate) unsafe fn domain_of<'a, P>(domain: *mut P) -> &'a Arc<Domain> {
    // SAFETY: the caller's promise.
    unsafe { Object::<FidDomain>::of(domain) }.domain()
}

/// Make the head of an object.
pub(crate) fn fid(fclass: usize, context: *mut c_void, ops: &'static Ops) -> Fid {
    Fid {
        fclass,
        context,
        ops,
    }
}

/// The kind of object behind a pointer, or an error for none.
///
/// # Safety
/// `fid` is null or an object of ours.
pub(crate) unsafe fn class(fid: *const Fid) -> Result<usize, Errno> {
    // SAFETY: the caller's promise.
    unsafe { fid.as_ref() }
        .map(|fid| fid.fclass)
        .ok_or(Errno::INVAL)
}
