// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages as words of four bytes in the program's memory.

use crate::machine::{Failure, failure};
use crate::tag::Received;
use portolan_ffi::Unusable;
use std::ffi::c_int;

/// Bytes of a word.
pub(crate) const WORD_LEN: usize = 4;

#[cold]
fn invalid_len(len: c_int) -> Failure {
    failure(format!("the length is {len} words; pass 0 or more"))
}

#[cold]
fn invalid_buffer(why: Unusable) -> Failure {
    match why {
        Unusable::Null => failure("the buffer is null"),
        Unusable::TooLong => failure("the message length exceeds the memory of the process"),
    }
}

#[inline]
fn len_of(words: c_int) -> Result<usize, Failure> {
    match usize::try_from(words) {
        Ok(words) => Ok(words * WORD_LEN),
        Err(_) => Err(invalid_len(words)),
    }
}

/// Returns the bytes of `len` words.
///
/// # Safety
/// The words are valid, and not changed while the slice is used.
#[inline]
pub(crate) unsafe fn bytes<'a>(buf: *const c_int, len: c_int) -> Result<&'a [u8], Failure> {
    // SAFETY: guaranteed by the caller.
    unsafe { portolan_ffi::bytes(buf.cast(), len_of(len)?) }.map_err(invalid_buffer)
}

/// Returns the bytes of `len` words for writing.
///
/// # Safety
/// The words are valid, and not accessed by other code while the slice is used.
#[inline]
pub(crate) unsafe fn bytes_mut<'a>(buf: *mut c_int, len: c_int) -> Result<&'a mut [u8], Failure> {
    // SAFETY: guaranteed by the caller.
    unsafe { portolan_ffi::bytes_mut(buf.cast(), len_of(len)?) }.map_err(invalid_buffer)
}

/// Returns the description of a message of `len` bytes from the process `source`.
#[inline]
pub(crate) fn received(len: usize, source: u32) -> Received {
    Received {
        len: c_int::try_from(len / WORD_LEN).unwrap_or(c_int::MAX),
        node: c_int::try_from(source).unwrap_or(c_int::MAX),
    }
}

/// Stores a result in the program's memory.
///
/// # Safety
/// `at` is null, or may be written.
#[inline]
pub(crate) unsafe fn store(at: *mut c_int, value: c_int) -> Result<(), Failure> {
    if at.is_null() {
        return Err(Failure::null("the pointer for a result"));
    }
    // SAFETY: guaranteed by the caller.
    unsafe { at.write(value) };
    Ok(())
}
