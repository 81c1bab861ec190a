// SPDX-License-Identifier: MIT OR Apache-2.0
//! Objects that the application holds: a head in libfabric's layout, followed by the provider's
//! fields.

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

/// An object of a domain: its head for C, and the index of its state.
#[repr(C)]
pub(crate) struct Object<F> {
    head: F,
    domain: Arc<Domain>,
    /// Index of the object in the domain's table of its type.
    index: usize,
}

impl<F> Object<F> {
    /// Passes an object to the application, which owns it until it closes it.
    ///
    /// # Safety
    /// `out` may be written, and `F` begins with a [`Fid`].
    pub(crate) unsafe fn store(out: *mut *mut F, head: F, domain: &Arc<Domain>, index: usize) {
        let object = Box::new(Object {
            head,
            domain: Arc::clone(domain),
            index,
        });
        // SAFETY: guaranteed by the caller.
        unsafe { *out = Box::into_raw(object).cast() };
    }

    /// Returns the object behind a pointer.
    ///
    /// # Safety
    /// `fid` was stored by [`Object::store`] with the same `F` and is not closed.
    #[inline]
    pub(crate) unsafe fn of<'a, P>(fid: *mut P) -> &'a Object<F> {
        // SAFETY: the head is the first field of the object, by `repr(C)`.
        unsafe { &*fid.cast() }
    }

    pub(crate) fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }

    /// Returns the index of the object in the domain's table of its type.
    #[inline]
    pub(crate) fn index(&self) -> usize {
        self.index
    }

    /// Locks the domain's tables.
    #[inline]
    pub(crate) fn lock(&self) -> Guard<'_, State> {
        self.domain.lock()
    }

    /// Closes an object, unless `remove` reports that it is in use. The value that `remove` takes
    /// out of the tables is dropped without the lock.
    ///
    /// # Safety
    /// As for [`Object::of`]. The object is not used after a successful close.
    pub(crate) unsafe fn close<T>(
        fid: *mut Fid,
        remove: impl FnOnce(&mut State, usize) -> Result<T, Errno>,
    ) -> c_int {
        status(|| {
            // SAFETY: guaranteed by the caller.
            let object = unsafe { Object::<F>::of(fid) };
            let removed = remove(&mut object.lock(), object.index)?;
            // SAFETY: allocated by `Box::new` in `give`.
            drop(unsafe { Box::from_raw(fid.cast::<Object<F>>()) });
            drop(removed);
            Ok(())
        })
    }
}

/// Returns the domain behind a pointer.
///
/// # Safety
/// `domain` is an open domain of this provider.
pub(crate) unsafe fn domain_of<'a, P>(domain: *mut P) -> &'a Arc<Domain> {
    // SAFETY: guaranteed by the caller.
    unsafe { Object::<FidDomain>::of(domain) }.domain()
}

/// Creates the head of an object.
pub(crate) fn fid(fclass: usize, context: *mut c_void, ops: &'static Ops) -> Fid {
    Fid {
        fclass,
        context,
        ops,
    }
}

/// Returns the class of the object behind a pointer, or an error for a null pointer.
///
/// # Safety
/// `fid` is null or an object of this provider.
pub(crate) unsafe fn class(fid: *const Fid) -> Result<usize, Errno> {
    // SAFETY: guaranteed by the caller.
    unsafe { fid.as_ref() }
        .map(|fid| fid.fclass)
        .ok_or(Errno::INVAL)
}
