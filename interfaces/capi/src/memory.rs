// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory of programs, checked on input and filled on output; and memory for programs.

use crate::code::*;
use crate::failure::{Failure, guard};
use portolan::{Buffer, Region};
use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::ptr::NonNull;
use std::sync::Mutex;

/// Returns the address, or a non-null one if no byte is read.
#[inline]
fn address(what: &str, at: *const c_void, len: usize) -> Result<*const u8, Failure> {
    if len > isize::MAX.unsigned_abs() {
        return Err(too_long(what, len));
    }
    match (at.is_null(), len) {
        (false, _) => Ok(at.cast()),
        (true, 0) => Ok(NonNull::dangling().as_ptr()),
        (true, _) => Err(Failure::null(what)),
    }
}

#[cold]
fn too_long(what: &str, len: usize) -> Failure {
    let text = format!("{what}: {len} bytes do not fit in memory");
    Failure::new(PORTOLAN_ERR_ARGUMENT, text)
}

/// # Safety
/// The program guarantees that it may read `len` bytes at `at`, unless `at` is null, for the
/// duration of the call.
#[inline]
pub(crate) unsafe fn bytes<'a>(
    what: &str,
    at: *const c_void,
    len: usize,
) -> Result<&'a [u8], Failure> {
    let at = address(what, at, len)?;
    // SAFETY: not null, not too long; the caller guarantees the rest.
    Ok(unsafe { std::slice::from_raw_parts(at, len) })
}

/// # Safety
/// As [`bytes`], and the bytes are not used otherwise in that time.
#[inline]
pub(crate) unsafe fn bytes_mut<'a>(
    what: &str,
    at: *mut c_void,
    len: usize,
) -> Result<&'a mut [u8], Failure> {
    let at = address(what, at, len)?.cast_mut();
    // SAFETY: as in `bytes`. They may be uninitialised: the library only writes them.
    Ok(unsafe { std::slice::from_raw_parts_mut(at, len) })
}

/// # Safety
/// The program guarantees that the bytes do not change until the operation has ended.
#[inline]
pub(crate) unsafe fn send_buffer(at: *const c_void, len: usize) -> Result<Buffer, Failure> {
    let at = address("the buffer", at, len)?;
    // SAFETY: guaranteed by the caller.
    Ok(unsafe { Buffer::from_raw(at, len) })
}

/// # Safety
/// The program guarantees that the bytes are not used otherwise until the operation has ended.
#[inline]
pub(crate) unsafe fn receive_buffer(at: *mut c_void, len: usize) -> Result<Buffer, Failure> {
    let at = address("the buffer", at, len)?.cast_mut();
    // SAFETY: guaranteed by the caller.
    Ok(unsafe { Buffer::from_raw_mut(at, len) })
}

/// Returns the address of the program's array; a dangling one if it has no elements.
fn array<T>(what: &str, at: *const T, count: usize) -> Result<*const T, Failure> {
    if count == 0 {
        return Ok(std::ptr::dangling());
    }
    if at.is_null() {
        return Err(Failure::null(what));
    }
    if !at.is_aligned() || count > isize::MAX.unsigned_abs() / size_of::<T>() {
        let text = format!("{what}: not aligned for the element type, or too many elements");
        return Err(Failure::new(PORTOLAN_ERR_ARGUMENT, text));
    }
    Ok(at)
}

/// # Safety
/// The program guarantees that `at`, unless it is null, has `count` elements. All bit patterns of
/// an element must be valid.
pub(crate) unsafe fn elements<'a, T>(
    what: &str,
    at: *const T,
    count: usize,
) -> Result<&'a [T], Failure> {
    let at = array(what, at, count)?;
    // SAFETY: not null, aligned, not too long; the caller guarantees the rest.
    Ok(unsafe { std::slice::from_raw_parts(at, count) })
}

/// # Safety
/// As [`elements`], of the type `T`, and the elements are not used otherwise in that time.
pub(crate) unsafe fn elements_mut<'a, T>(
    what: &str,
    at: *mut c_void,
    count: usize,
) -> Result<&'a mut [T], Failure> {
    let at = array(what, at.cast::<T>(), count)?.cast_mut();
    // SAFETY: as in `elements`.
    Ok(unsafe { std::slice::from_raw_parts_mut(at, count) })
}

/// Returns the size at the start of a structure of the program, if it is at least `least`.
///
/// # Safety
/// `at` points to a structure that begins with its size.
unsafe fn size_from<T>(what: &str, at: *const T, least: usize) -> Result<usize, Failure> {
    // SAFETY: guaranteed by the caller.
    let size = unsafe { at.cast::<usize>().read_unaligned() };
    match size >= least {
        true => Ok(size),
        false => Err(too_small(what, size, size_of::<T>())),
    }
}

#[cold]
fn too_small(what: &str, size: usize, expected: usize) -> Failure {
    let text =
        format!("{what}: its size field is {size}; set it to sizeof the structure, {expected}");
    Failure::new(PORTOLAN_ERR_STRUCT_SIZE, text)
}

/// A structure of the program that is filled when a call succeeds. It is checked before the call
/// does anything, so that a refused call has no effect.
pub(crate) struct Out<T> {
    at: *mut T,
    /// Length of the program's version of the structure; 0 if the program passed null.
    size: usize,
}

impl<T: Copy> Out<T> {
    /// Checks a structure that begins with its size and has only one version.
    ///
    /// # Safety
    /// As [`Out::grown`].
    #[inline]
    pub(crate) unsafe fn new(what: &str, at: *mut T) -> Result<Out<T>, Failure> {
        // SAFETY: guaranteed by the caller.
        unsafe { Out::grown(what, at, size_of::<T>()) }
    }

    /// Checks a structure that begins with its size, and had `first` bytes in its first version.
    ///
    /// # Safety
    /// `T` begins with a `usize`. `at` is null, or points to as many bytes as that field states,
    /// which belong to the program until the call has ended.
    #[inline]
    pub(crate) unsafe fn grown(what: &str, at: *mut T, first: usize) -> Result<Out<T>, Failure> {
        let size = match at.is_null() {
            true => 0,
            // SAFETY: guaranteed by the caller.
            false => unsafe { size_from(what, at, first)? },
        };
        Ok(Out { at, size })
    }

    /// Fills the structure from the result of a call: `convert` converts a value, `truncated` an
    /// error. If `truncated` returns `None`, the structure is not changed.
    #[inline]
    pub(crate) fn fill_from<R, E>(
        self,
        returned: &Result<R, E>,
        convert: impl FnOnce(&R) -> T,
        truncated: impl FnOnce(&E) -> Option<T>,
    ) {
        match returned {
            Ok(result) => self.fill(&convert(result)),
            Err(error) => {
                if let Some(value) = truncated(error) {
                    self.fill(&value);
                }
            }
        }
    }

    /// Fills the part of the structure that the program's version has, except for the size.
    #[inline]
    pub(crate) fn fill(self, value: &T) {
        // Most programs have the library's version. It is written whole, with a length that the
        // compiler knows.
        if self.size == size_of::<T>() {
            // SAFETY: `grown` has checked that `at` points to `size` bytes that begin with a `usize`.
            unsafe {
                self.at.write_unaligned(*value);
                self.at.cast::<usize>().write_unaligned(self.size);
            }
        } else {
            self.fill_head(value, self.size.min(size_of::<T>()));
        }
    }

    /// Fills the first `end` bytes of the structure, except for the size.
    fn fill_head(&self, value: &T, end: usize) {
        let head = size_of::<usize>();
        let len = end.saturating_sub(head);
        if len == 0 {
            return;
        }
        // SAFETY: `grown` has checked that both have at least this many bytes; they do not overlap.
        unsafe {
            std::ptr::copy_nonoverlapping(
                std::ptr::from_ref(value).cast::<u8>().add(head),
                self.at.cast::<u8>().add(head),
                len,
            );
        }
    }
}

/// Reads a structure that begins with its size.
///
/// # Safety
/// `T` consists of numbers and begins with a `usize`. `at` is null, or points to as many bytes as
/// that field states.
pub(crate) unsafe fn take<T: Copy>(what: &str, at: *const T) -> Result<T, Failure> {
    if at.is_null() {
        return Err(Failure::null(what));
    }
    // SAFETY: guaranteed by the caller; `size_from` checked the length.
    unsafe {
        size_from(what, at, size_of::<T>())?;
        Ok(at.read_unaligned())
    }
}

/// Regions of programs, by address.
static REGIONS: Mutex<BTreeMap<usize, Region>> = Mutex::new(BTreeMap::new());

/// Allocates `len` zeroed bytes for bulk messages. These are whole, populated pages, and large
/// pages if the system has them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_alloc(len: usize, memory: *mut *mut c_void) -> c_int {
    guard(|| {
        if memory.is_null() {
            return Err(Failure::null("memory"));
        }
        if len == 0 || len > isize::MAX.unsigned_abs() {
            let text = format!("a region of {len} bytes cannot be allocated");
            return Err(Failure::new(PORTOLAN_ERR_ARGUMENT, text));
        }
        let mut region = Region::new(len)?;
        let at = region.as_mut_ptr();
        let mut regions = REGIONS.lock().unwrap_or_else(|broken| broken.into_inner());
        regions.insert(at.addr(), region);
        // SAFETY: not null; the program guarantees that it points to a pointer.
        unsafe { memory.write(at.cast()) };
        Ok(PORTOLAN_OK)
    })
}

/// Returns 1 if memory of portolan_alloc() consists of large pages, as far as the system reports,
/// and 0 otherwise. Large pages are requested from 2 MiB on.
///
/// Errors: PORTOLAN_ERR_ARGUMENT for other memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_has_large_pages(memory: *const c_void) -> c_int {
    guard(|| {
        let regions = REGIONS.lock().unwrap_or_else(|broken| broken.into_inner());
        let region = regions.get(&memory.addr()).ok_or_else(not_allocated)?;
        Ok(c_int::from(region.has_large_pages()))
    })
}

#[cold]
fn not_allocated() -> Failure {
    Failure::new(
        PORTOLAN_ERR_ARGUMENT,
        "memory was not allocated by portolan_alloc(), or freed before",
    )
}

/// Frees memory of portolan_alloc(). Null has no effect. No operation may be using the memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_free(memory: *mut c_void) -> c_int {
    guard(|| {
        if memory.is_null() {
            return Ok(PORTOLAN_OK);
        }
        let mut regions = REGIONS.lock().unwrap_or_else(|broken| broken.into_inner());
        regions.remove(&memory.addr()).ok_or_else(not_allocated)?;
        Ok(PORTOLAN_OK)
    })
}
