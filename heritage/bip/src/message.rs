// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages as words of four bytes in the program's memory.

use crate::machine::{Failure, failure};
use crate::tag::Got;
use portolan_ffi::Unusable;
use std::ffi::c_int;

/// Bytes of a word.
pub(crate) const WORD_LEN: usize = 4;

#[cold]
fn bad_len(len: c_int) -> Failure {
    failure(format!("a length of {len} words: give 0 or more"))
}

#[cold]
fn bad_place(why: Unusable) -> Failure {
    match why {
        Unusable::Null => failure("the buffer is null"),
        Unusable::TooLong => failure("the message is longer than memory"),
    }
}

#[inline]
fn len_of(words: c_int) -> Result<usize, Failure> {
    match usize::try_from(words) {
        Ok(words) => Ok(words * WORD_LEN),
        Err(_) => Err(bad_len(words)),
    }
}

/// Returns the bytes of `len` words.
///
/// # Safety
/// The words are valid, and not changed while the slice is used.
#[inline]
pub(crate) unsafe fn bytes<'a>(buf: *const c_int, len: c_int) -> Result<&'a [u8], Failure> {
    // SAFETY: guaranteed by the caller.
    unsafe { portolan_ffi::bytes(buf.cast(), len_of(len)?) }.map_err(bad_place)
}

/// Returns the bytes of `len` words for writing.
///
/// # Safety
/// The words are valid, and not accessed by other code while the slice is used.
#[inline]
pub(crate) unsafe fn bytes_mut<'a>(buf: *mut c_int, len: c_int) -> Result<&'a mut [u8], Failure> {
    // SAFETY: guaranteed by the caller.
    unsafe { portolan_ffi::bytes_mut(buf.cast(), len_of(len)?) }.map_err(bad_place)
}

/// Returns the description of a message of `len` bytes from the process `source`.
#[inline]
pub(crate) fn got(len: usize, source: u32) -> Got {
    Got {
        len: c_int::try_from(len / WORD_LEN).unwrap_or(c_int::MAX),
        node: c_int::try_from(source).unwrap_or(c_int::MAX),
    }
}

/// Stores a result in the program's memory.
///
/// # Safety
/// `at` is null, or may be written.
#[inline]
pub(crate) unsafe fn tell(at: *mut c_int, value: c_int) -> Result<(), Failure> {
    if at.is_null() {
        return Err(Failure::null("the pointer for a result"));
    }
    // SAFETY: guaranteed by the caller.
    unsafe { at.write(value) };
    Ok(())
}
